"""Transactions of the storage tier: strict two-phase locking at leaders, two-phase commit over Paxos groups.

Purpose
=======
A transaction reads and writes rows of any number of groups. It commits everywhere or nowhere, at one timestamp, as if
it had run alone at that timestamp, whatever dies, pauses, repeats or arrives late. This package holds the parts of
that which need no disk, network or clock: the lock table (:mod:`~spanstore.txn.locks`), the commands of a group's log
(:mod:`~spanstore.txn.commands`), and the rules about what is remembered (:mod:`~spanstore.txn.outcomes`). The group
composes them with Paxos and with the choice of timestamps.

Plain two-phase commit fails in known ways: a coordinator that dies between prepare and decision leaves locks for
ever; a participant that restarts forgets what it promised; a client that lost the answer commits a second time. Here
each party of the protocol is a Paxos group, so it does not die while a majority lives, and its promises are entries
of its log. What remains is what this text is about: locks are *not* in the log, messages may be any number of times
late, and records cannot be kept for ever.

Locks live at the leader
========================
A lock is an entry in the memory of the leader of one term, lost with the term. That is safe because nothing is
promised on a lock alone. Before a transaction's commit or prepare enters the log, the leader verifies that *every*
lock that the transaction took here is still held, under the same term; otherwise the transaction aborts. From then on
locks matter beyond the term, so the prepare carries the whole lock set, and a new leader rebuilds it before it serves
anything.

Every group where a transaction holds any lock is therefore a participant, also where it only read. Take a transaction
T that read x in group A (and found some y absent) and writes in group B. If A were left out, its leader could die
after T's reads were validated and before B decided; the new leader knows no lock, another transaction U writes x and
reads what T is about to overwrite in B, and both commit: write skew. With A as a participant its log holds T's shared
locks on x and y, and U waits. A transaction all of whose locks lie in one group commits there in one round: its
commit *is* the verified use of its locks.

Locks are shared, exclusive or append, on single keys or ranges. Append is for inserts whose key ends in the commit
timestamp, which is unknown until the end: the fixed prefix is locked as a range, in a mode that is compatible with
itself, since commit timestamps and ids keep the keys apart, and clashes with readers and writers of the range.

Wound-wait, and prepared transactions
=====================================
Waiting is ordered by age: a transaction's priority is the time when it first began, with the transaction itself as
the tie-break, and its retries keep it. Wound-wait (Rosenkrantz et al.; Spanner, section 4.2.1) says: an older
transaction wounds the younger one in its way, which aborts and retries; a younger one waits for an older one. All
waits then go from young to old, and no cycle exists. But a *prepared* transaction cannot be wounded, because only the
coordinator may abort it. So an older transaction waits for a younger prepared one, an edge from old to young; if that
one's prepare in another group waits for an older transaction in turn, there is a deadlock. Wound-wait alone does run
into it: a test shows so.

A transaction is in its *execution phase* until all of its reads under locks have been answered, and then in its
*commit phase*. Requests of a multi-group transaction in its commit phase (prepares, and the coordinator's own locks)
use the policy PREPARE, all others WOUND_WAIT, also the commit of a one-group transaction, which needs no lock
anywhere else. A one-group transaction enters its commit phase, and counts as prepared, when its command is proposed;
it waits for nothing from then on.

======================= ============================================ ==================================================
in the way              a WOUND_WAIT request                         a PREPARE request
======================= ============================================ ==================================================
prepared holder         waits                                        waits if that is younger, else dies
unprepared holder       wounds it if that is younger, else waits     wounds it if that is younger, else dies
waiting WOUND_WAIT      goes ahead if older, else waits              goes ahead if older, else dies
waiting PREPARE         waits                                        waits if that is younger, else dies
======================= ============================================ ==================================================

*Dies*: it is refused at once, nothing is changed, and the client retries the transaction with its old priority.

No deadlock. Take any cycle of transactions each of which waits for the next, and look at their phases.

1. A PREPARE request waits only for younger transactions, and these are prepared, or wait with PREPARE, or were
   granted a PREPARE request that waited ahead: in each case they are in their commit phase. Later arrivals never add
   to its waits, because nobody overtakes it. So an edge out of the commit phase leads to a strictly younger
   transaction in its commit phase; the cycle never leaves that phase, gets younger at each step, and cannot close.
2. So all are in the execution phase. There a request waits for older transactions, and otherwise only for prepared or
   PREPARE ones, which are not in that phase. The cycle gets older at each step and cannot close either.

The phases must not mix: a transaction sends no prepare while one of its reads still waits. A driver that breaks this
may make a cycle, which only the deadlines of requests end.

No starvation. A request waits as a whole, it takes none of its locks before it can have all, and a waiting request
blocks the younger ones that clash with it. In the execution phase the oldest transaction waits only for commits that
are under way. A PREPARE request dies for an older transaction only; the older ones end, and its age stays.

The wait graph is kept as explicit sets, and a request is granted in the very call that empties its set; of two
clashing requests that wait, one always has the other in its set, so they never become free together.

Commit ids and attempts: exactly once
=====================================
The client names a commit before it sends it: ``(anchor, unique, created_ts)``. The anchor is the root key of its
first write, and the group that owns the anchor is always the coordinator, so that every server, and the client itself
later on, finds the same record; it lies in the anchor's directory and moves with it. There is one record per id: how
its newest decided attempt ended. Attempts count from 1:

* attempt n+1 starts only when "n aborted" is recorded, so at most one attempt can be undecided;
* a lower attempt is refused for ever, so that a delayed message of an old attempt cannot commit beside a new one;
* a committed id answers its timestamp to its own and every higher attempt: a retry, by whomever, is harmless.

Asked about an attempt that it never heard of, the coordinator must not answer "aborted" from ignorance: the commit
may be on its way in the network, and would commit after the client was told otherwise. It logs the abort first; then
the late commit finds it. The same holds for a participant that asks about a transaction it has prepared (its driver
died): the logged abort is the decision. Replicas check once more when they apply: the first decision in the log
stands.

Forgetting
==========
Records are kept by age, and refusal by age takes over where they end:

* an outcome record is dropped when its id was created and decided more than ``keep`` ago (at least an hour) and none
  of its participants has the transaction prepared any more: a participant may be down for longer than that, and must
  still find the decision. So for a participant that asks, no record means no decision, at any age
  (``judge_inquiry``);
* whether a participant has it prepared is asked, once for all records: a leader fixes the age below which they may go,
  then asks every group for the oldest id of which it has anything prepared or proposed. A group that answers "none so
  old" never will have, because it refuses prepares of ids past that age. A group that does not answer, or has one,
  keeps the records that name it, for as long as that lasts. Acknowledging each decision instead would cost an entry
  of the log for every transaction;
* an id of that age without a record answers EXPIRED, never "aborted", and starts no attempt. Nothing is recorded about
  it any more either, also when a participant asks: an abort recorded then might be that of an attempt of an id which
  committed by another one, whose record is gone;
* a participant remembers the newest finished attempt of an id until its deadline, and refuses prepares past theirs;
* deadlines lie before ``created_ts + keep`` whatever the client asked for (``latest_deadline``), so that no attempt
  outlives the memory of its id.

Ages are compared at opposite edges of the TrueTime interval: records are dropped when the *earlier* edge has passed a
bound, requests refused when the *later* edge has. Two leaders whose intervals both contain the true time then leave
no gap between the two.

Fences
======
A commit carries a deadline: the end of the schema lease under which its writes were made (F1 schema change, section
4.3), or what the client is willing to wait. The coordinator compares the timestamp that it *chose*, not the clock when
the request arrived, and aborts when it exceeds the deadline; everything at or below it is decided by then or never. A
not-before fence is the same from below. Participants carry the deadline so that they know when an attempt is dead.

Life of a two-group commit
==========================
1. LockRead in groups A and B: locks in the leaders' tables (WOUND_WAIT), the rows come back with the leaders' terms.
2. Prepare to B: judge the attempt, verify the locks and the term, take the write locks (PREPARE), test preconditions
   under them, choose a prepare timestamp, log PrepareCmd with all locks. From now B is bound.
3. Commit to A, the coordinator, with B's prepare timestamp: the same steps, then a timestamp at or above all of these
   and not above the deadline, logged as CommitCmd with the outcome record. This entry is the commit point.
4. Commit-wait; the client is answered; DecideCmd to B: it writes its rows at that timestamp and releases its locks.
5. Whatever stops in between is finished by anyone: B asks A's group, A's record answers, or becomes "aborted".

Left out
========
Read-only transactions take no locks and are not here (:mod:`spanstore.mvcc`). Deadlocks are prevented, not detected.
No lock escalation: a range lock is asked for as such. Locks do not move between groups; a range move waits for or
transfers prepared transactions. A client that reads outside of locks uses preconditions, which are tested under locks
at commit.

References
==========
* J. Corbett et al.: Spanner, OSDI 2012, sections 4.1.2 and 4.2.1.
* J. Shute et al.: F1, VLDB 2013, section 5 (kinds of transactions), section 6 (change history keys).
* D. Rosenkrantz, R. Stearns, P. Lewis: System level concurrency control for distributed databases, TODS 3(2), 1978.
* J. Gray, L. Lamport: Consensus on transaction commit, TODS 31(1), 2006.
"""
