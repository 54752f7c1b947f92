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
   follow. The same message is heartbeat and lease request, and carries the ceiling, the chosen index, the safe time
   and how far the log may be cut. Accepted is sent when all that is durable. Entries are pipelined: the leader sends
   on without waiting, up to a number of bytes, and goes back on a gap.
4. *Lease.* The leader may answer without a quorum round while ``sent + lease - margin`` has not passed for a quorum's
   latest answers (:mod:`spanstore.paxos.lease`). It steps down when a whole lease brought no quorum.
5. *Ceiling.* Acceptors write the ceiling to disk before they answer; the leader uses timestamps up to the highest one
   that a quorum answered for. It asks for now + lease, in steps of half a lease, or for what the group wants.
6. *Transfer.* A leader gives up its lease for ever and tells a caught-up voter, whose Prepare names the released
   ballot: acceptors then need not wait for that lease. The old leader also tells the highest timestamp that it gave
   out, so that the heir need not start above the whole ceiling; this counts only if no promise shows a leader between
   the two.
7. *Truncation.* The log goes below what every member holds durably and the replica itself has applied, but at least
   below its newest part, whose size bounds what is kept for a member that does not come. Whoever needs more than there
   is left is offered the state instead (OfferState), and the log from there on is kept for it within the same bounds;
   :mod:`spanstore.runtime.transfer` fetches it. The entry that was applied last always stays.

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

I3 in short: choosing under ballot b needs a quorum that stored the entry while b was its highest promise. The
promises for a later ballot come from a quorum that shares a member with it, and that member promises only to a log at
least as up to date as its own. By induction over ballots, a log whose last ballot is at least b and which is at least
as long within it contains the entry. I5: the shared member of a lease's quorum and a successor's promises refused the
successor until its own clock had advanced a lease since *receipt*; the leader stopped a margin short of a lease since
*sending*. I6 is I3's argument for a number instead of a log.

``spanstore.testing.paxos_world`` checks all of these after every step of thousands of hostile runs.

Left out
--------
How the state is fetched that was offered: that is no matter of consensus.
Byzantine peers: not at all; malformed messages are ignored, and a contradiction of I4 is an InvariantViolation.

References
----------
Lamport, "Paxos Made Simple", 2001. Howard and Mortier, "Paxos vs Raft: have we reached consensus on distributed
consensus?", 2020. Ongaro and Ousterhout, "In Search of an Understandable Consensus Algorithm", 2014, section 5.4;
Ongaro, "Consensus: Bridging Theory and Practice", 2014, sections 3.10 (transfer), 6.4 (leases) and 9.6 (PreVote).
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
