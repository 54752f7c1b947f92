"""Multi-Paxos for one group: elections, a replicated log, timed leader leases and timestamp ceilings, without I/O.

Purpose
-------
A group of 3 or 5 voters agrees on a log of entries (commands of the group; here: bytes) and survives the loss of a
minority. One replica at a time leads: it alone proposes, it answers strong reads from its own memory without asking
anybody (it holds a lease), and it gives out timestamps that never go back over all leaders of the group's life (a
ceiling bounds what each leader may use). :class:`Replica` is a pure state machine: messages and samples of the clocks
go in, :class:`Effects` come out, and the fields of Effects carry the order of persisting, syncing and sending.

Why the naive way fails
-----------------------
*Single-decree Paxos per slot.* Textbook Multi-Paxos elects a leader with any log and lets it learn, slot by slot,
what may have been chosen, filling holes with no-ops. Our entries are not independent: each carries a timestamp above
those before it, and was produced under locks that its leader held. If slot 7 of a deposed leader were found and
chosen behind slots 5 and 6 of its successor, a commit would appear below timestamps that have been read, and under
locks that were long gone. So the log is elected *as a whole*, as in Raft: an acceptor promises only to a candidate
whose log is at least as up to date as its own (last ballot first, then last index), entries are appended in order
only, and what a new leader lacks is gone for ever. Howard and Mortier show that this is the difference between the
two, and that it is one of how the leader is elected; ballots, promises and quorums are Paxos all the same, and so are
the words here.

*Counting copies.* An entry of an older ballot that lies on a quorum of disks is not chosen by that: a candidate whose
last entry has a ballot between may still win and overwrite it (Ongaro and Ousterhout, figure 8; a golden script plays
it). A leader counts only entries of its own ballot; with them all before are chosen. Hence a new leader first
proposes an entry of its own, and neither serves nor calls any timestamp safe before that one is chosen.

*Leases from the receipt.* A leader that counts its lease from when the answer came in believes in it longer than
those who granted it. It counts from when it *sent* the request, on the boot clock (which runs while the machine
sleeps), and uses 2 % less, since clocks drift under 1 %. No two clocks are ever compared.

*Leases and restarts.* Granted leases are kept in memory. Whoever restarts has forgotten them and must refuse
everybody for the longest lease that it may have granted.

*Changing the members at once.* If every replica changes from {a, b, c} to {c, d, e} when it hears of it, {a, b} and
{d, e} are quorums at the same time. Also a change of one voter is not safe by itself: out of {a, b, c, d}, a leader a
removes d and nobody hears of it; its successor c removes b, which c and d choose, two of three; then a is elected by
itself and b, two of its three. The flaw was in the first publication of the method (Ongaro's message to raft-dev,
"bug in single-server membership changes", 2015); the remedy is the same as against counting copies: an own entry first.

*Coming back empty.* A voter that lost its disk has lost what it promised and stored. Under its old name it elects
leaders that lack chosen entries. So a name is that of one life of a replica, and a new life is a new member.

*Growing ballots.* A replica that is cut off and stands for election again and again comes back with a huge ballot and
deposes a healthy leader. So candidates first ask (PreVote), which changes nothing anywhere, and asking is refused
while a lease runs.

The protocol
------------
A ballot is (round, replica), ordered; a replica promises and accepts only at or above the highest one it has
promised.

1. *PreVote.* A replica that has heard no leader since its grant ended, plus a random delay, asks whether it would be
   promised. A quorum of yes (itself included) starts an election; otherwise it asks again soon.
2. *Prepare, Promise.* It promises itself a higher ballot and, when that is durable, sends Prepare with the end of its
   log. An acceptor promises if no lease or quarantine forbids it, if the log is up to date and if the ballot is high
   enough; the Promise carries the ceiling that it holds. A quorum of promises makes a leader, whose timestamps start
   above the highest ceiling among them.
3. *Accept, Accepted.* Accept carries entries with the index and ballot of the one before them; an acceptor whose log
   differs there says so, and the leader goes back; entries that conflict with the leader's are deleted with all that
   follow. The same message is heartbeat and lease request (heartbeats of all groups of a server fall on the same
   moments, so that one turn makes them), and carries the ceiling, the chosen index, the safe time and how far the log
   may be cut. Accepted is sent when all that is durable. Entries are pipelined: the leader sends on without waiting, up
   to a number of bytes, and goes back on a gap.
4. *Lease.* The leader may answer without a quorum round while ``sent + lease - margin`` has not passed for a quorum's
   latest answers (:mod:`spanstore.paxos.lease`). It steps down when a whole lease brought no quorum.
5. *Ceiling.* Acceptors write the ceiling to disk before they answer; the leader uses timestamps up to the highest one
   that a quorum answered for. It asks for now + lease, in steps of half a lease, or for what the group wants.
6. *Transfer.* A leader gives up its lease for ever and tells a caught-up voter, whose Prepare names the released
   ballot: acceptors then need not wait for that lease. The old leader also tells the highest timestamp that it gave
   out, so that the heir need not start above the whole ceiling; this counts only if no promise shows a leader between
   the two.
7. *Truncation.* The log goes below what every member holds durably and the replica itself has applied; for a member
   that is away only up to ``log_hold_entries`` and ``log_hold_bytes``. Cutting is never unsafe: what is applied is
   chosen, and no election is decided by entries below the last. The entry that was applied last always stays.
8. *Offer of the state.* A leader whose log begins above what a member has says so with each heartbeat (OfferState), and
   keeps the log from there on within the same bounds. To fetch the state is the driver's job, from any replica that has
   applied more (:mod:`spanstore.runtime.transfer`): here the replica ends, and begins again with the state as of an
   entry j. Three rules make that safe. The hard state stays. The log stays if it has an entry j
   of the same ballot; otherwise it becomes entry j alone. And j is above all that the replica had applied.

Configurations
--------------
A configuration (:class:`Configuration`) names the *voters*, which elect and choose, and the *learners*, which get the
log, the leases' requests and the safe times but count for nothing: read-only replicas, and those that are about to
vote. It is an entry of the log, and counts from the moment that it is in a replica's log, chosen or not; if the log
loses it, the one before counts again. ``Replica.change`` takes one step: a learner comes, becomes a voter, or a member
is demoted or goes. The leader refuses it

* before an entry of its own ballot is chosen, and while the last configuration is not;
* if a voter that the step adds lacks more than ``promote_lag_entries`` of the log or has no state at all, or if the
  voters that are up and have caught up would be no majority: the group would stop.

Only progress depends on how much a new voter lacks. It counts for an entry once it holds it and all before, and elects
nobody whose log ends before its own; a majority with it meets every majority without it in somebody who holds what was
chosen. There is a bound so that the group does not wait for a long copy when one other voter is away, and it is not 0
because under load nobody ever lacks nothing.

A *name* is ``server`` for the first members and ``server#version`` for those brought by a later configuration. It is
never used again. So whoever is not in a chosen configuration of its own version or a later one was removed for good:
its messages are ignored, and if it asks to be elected it is told (Removed). What a configuration that is not chosen
says of others proves nothing: there may be another of the same version, and whoever that one brought may lead by now.
A replica that stands for nothing and hears no leader asks, in a way that cannot be granted, to find out.

A *newcomer* begins without any state, not even a configuration. It promises nothing and fits no log until its driver
has fetched the state. A server must begin a life at most once: one that has lost its disk, and with it the knowledge of
its lives, must not begin the same again because a leader still writes to it. That is the driver's duty; the core only
does what it can. A voter had a state when it became one, so a leader gives a voter without state nothing to go on with.
What remains is an offer by a deposed leader, to which it is a learner still, that comes late.

A leader that a change removes or demotes leads on until that is chosen, by the copies and grants of others alone; then
it steps down. A voter that an unchosen configuration removes may stand: perhaps only its log is up to date.

*Preferred leaders.* The core has no opinion on who should lead. A driver that prefers somebody else transfers
leadership, to a voter and not during a change, and keeps a replica from standing by ``set_may_lead``.

Invariants
----------
I1  One leader per ballot: a ballot names its proposer, and is durable before it is used.
I2  Log matching: entries of equal index and ballot are equal, and so is all before them.
I3  Leader completeness: the leader of a ballot holds all that was chosen under lower ballots.
I4  Agreement: at most one entry is chosen per index; a chosen entry stays on a quorum of disks.
I5  Leases of two leaders never overlap in true time, as long as clocks drift less than the margin.
I6  A leader's floor is at or above every ceiling that an earlier leader could use, or, after a transfer, every
    timestamp that one gave out.
I7  A promise, vote or answer leaves only when what it depends on is durable.
I8  Whoever has applied the index of a safe pair has every entry that will ever have a timestamp up to the pair's.
I9  One change is under way at most, and majorities of successive configurations intersect.

I3 in short: choosing under ballot b needs a quorum that stored the entry while b was its highest promise. The
promises for a later ballot come from a quorum that shares a member with it, and that member promises only to a log at
least as up to date as its own. By induction over ballots, a log whose last ballot is at least b and which is at least
as long within it contains the entry. I5: the shared member of a lease's quorum and a successor's promises refused the
successor until its own clock had advanced a lease since *receipt*; the leader stopped a margin short of a lease since
*sending*. I6 is I3's argument for a number instead of a log.

*Across changes.* The arguments above compare two quorums, which may now belong to different configurations. Write C_n
for the configurations in the order in which they are chosen; a *successor* of C_n is any that was proposed after it,
chosen or not. All quorums of a configuration and of its successor intersect (I9). Those of two successors D and E of
the same C_n need not, but only one of them ever matters: they were proposed under different ballots, and the proposer
with the higher one first had an entry of its own chosen by a quorum of C_n, which meets those of D and of E. From then
on, whoever is elected has this entry, and a log with it does not have the successor of the lower ballot (its entries
before are those of the proposer, its entries after are of that ballot or higher). In particular

1. *A leader has every configuration that was chosen under a lower ballot.* Let X be the first one that lacks some, and
   C_n+1 the first that X lacks. X counts by C_n or by another successor of it. By C_n: its quorum meets the one that
   chose C_n+1, and the log check gives X that entry. By another successor E: if C_n+1 is of the higher ballot, X does
   not have E. If E is, its proposer lacked C_n+1; so that was not chosen under a lower ballot, X being the first; and
   under E's ballot or a higher one nobody has it. Either way a contradiction.
2. *The quorum that elects X, the next leader after A, meets every quorum by which A counts from then on.* Let C_n be
   the newest configuration that is chosen then. X has it by 1, A by 1 or because it chose it. Beyond it each has at
   most one successor, not chosen; if both have one it is the same, as above. So they count by equal or successive ones.
3. *So A is at its end when X is elected.* Enough members refuse its Accepts: what it has not got chosen by then never
   is under its ballot, no lease begins anew, and it gets to no further configuration. So later leaders need to be
   compared with X only, and so on.

What A did by configurations that it had replaced before that moment is covered as follows.

*Entries (I3, I4)* chosen by C_n-1 come before C_n in the log, and are in every log that has C_n.

*Leases (I5)* are counted by the newest configuration at the time of asking, and also by answers that a voter gave as
a learner: it has refused others since. Only the single voter of a group that never had another needs no quarantine
after a start: the last voter of a group that shrank may have granted a lease to a leader that does not know yet that
it was removed.

*Ceilings (I6)* used by C_n-1 must be held by a quorum of C_n before a successor of C_n is proposed. They are: every
Accept carries the ceiling, which an acceptor holds durably before it answers. So whoever stored C_n holds all that had
been asked for until it was proposed, and what is used later is counted by C_n. The same goes for the floor of a new
leader and its own first entry.

*State transfer.* The replica forgets nothing that anybody counts on. Entry j is chosen, for it was applied. If the log
has an entry j of the same ballot, all above it stays. If it ends below j, nothing is lost but what the state contains.
If it has another entry there, that one and all above it are not chosen and never will be: an entry is chosen only with
all before it. The last entry may be of a lower ballot afterwards, as after an Accept that drops a suffix.

``spanstore.testing.paxos_world`` checks all of these after every step of thousands of hostile runs,
``spanstore.testing.paxos_members`` does so while members come and go and disks are lost.

Left out
--------
Joint configurations that change several voters in one step, and witnesses that vote without a state: steps of one voter
do. A majority of the voters whose disks are lost for ever: no protocol brings that back; a group restored from a copy
begins with new names. Byzantine peers: not at all; malformed messages are ignored, and a contradiction of I4 is an
InvariantViolation.

References
----------
Lamport, "Paxos Made Simple", 2001. Howard and Mortier, "Paxos vs Raft: have we reached consensus on distributed
consensus?", 2020. Ongaro and Ousterhout, "In Search of an Understandable Consensus Algorithm", 2014, section 5.4;
Ongaro, "Consensus: Bridging Theory and Practice", 2014, sections 3.10 (transfer), 4 (changes of the members,
one at a time), 6.4 (leases) and 9.6 (PreVote); "bug in single-server membership changes", raft-dev, 10 July 2015.
Corbett et al., "Spanner: Google's Globally-Distributed Database", 2012, sections 2.1, 4.1.1 and appendix A (leases).
Gray and Cheriton, "Leases", 1989.
"""

from spanstore.paxos.config import PaxosConfig
from spanstore.paxos.configuration import Configuration, joined_at, server_of
from spanstore.paxos.core import Role
from spanstore.paxos.effects import Effects
from spanstore.paxos.log import LogReader
from spanstore.paxos.messages import (
    NO_BALLOT,
    Accept,
    Accepted,
    Ballot,
    HardState,
    LogEntry,
    Message,
    OfferState,
    Prepare,
    PreVote,
    PreVoteReply,
    Promise,
    Removed,
    TransferLeadership,
)
from spanstore.paxos.replica import Replica

__all__ = [
    "NO_BALLOT",
    "Accept",
    "Accepted",
    "Ballot",
    "Configuration",
    "Effects",
    "HardState",
    "LogEntry",
    "LogReader",
    "Message",
    "OfferState",
    "PaxosConfig",
    "PreVote",
    "PreVoteReply",
    "Prepare",
    "Promise",
    "Removed",
    "Replica",
    "Role",
    "TransferLeadership",
    "joined_at",
    "server_of",
]
