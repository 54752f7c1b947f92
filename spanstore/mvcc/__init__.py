"""Versions, timestamps and safe time: what lets a read of the past need no locks, on any replica.

Purpose
-------

Every write makes a new version of a row, stamped with the commit timestamp of its transaction. A read at a timestamp
t sees, of every row, the newest version at or below t. So a read takes no lock, blocks no writer and is repeatable,
and a reader of many groups gets one consistent state by using one t everywhere (Spanner, section 4). F1 builds on
it: its default transactions read everything at one timestamp and validate later (F1, section 5), distributed
queries and change feeds read at one (sections 6 and 8), and the reorganiser of a schema change copies one.

Three questions have to be answered for that: where a version is (``versions``), which timestamp a commit gets
(``timestamps``), and whether everything at or below t has arrived at this replica (``safetime``). ``placeholders``
serves transactions that want to write their own timestamp before they know it. ``collect`` finds versions that nobody
needs.

Everything here is a pure function of its arguments or a small state machine: the clock is sampled by the caller, the
engine is a parameter, and the log, the locks and two-phase commit are unknown here.

Where a version is
------------------

::

    group, 10 | user key | 00 | 2^64 - 1 - ts

*Why the timestamp is a suffix.* All versions of a row are neighbours, and neighbouring rows are neighbouring runs, so
that one range read returns a hierarchy (F1, section 3.1) and one seek finds a version.

*Why it is inverted.* The newest version at or below t is then the first key at or above ``key 00 ~t``: one forward
seek, the cheapest thing that a B+ tree does. Uninverted it would be a seek and a step back, which may land in another
row.

*Why there is a 00 before it.* A row's key is a prefix of its children's keys. With nothing in between, the 8 bytes of
the timestamp would be compared with the first bytes of the children's key parts, and the versions of a parent would
lie scattered among its children. No tuple element starts with 00, so ``key 00`` sorts before every child: the
versions of the parent, newest first, then the children. The naive alternative, a separate tree per row or a length
before the key, loses the order of keys or the hierarchy.

*What follows for borders of ranges.* Ranges are given in user keys, and the engine's range is the same with a prefix,
but for one thing: in user keys ``key 00`` is the successor of ``key``, in engine keys the versions of ``key`` lie
above it. ``versions`` treats such a border as what it means. (A key may itself end in 00, as strings do; then it is
the successor of nothing, because no key goes on with 00.)

*Long chains.* A hot row has thousands of versions that garbage collection has not reached. A scan steps over a few
and then seeks, so that its cost is in the rows it returns.

*Damage.* LMDB trusts its pages, so every version carries a checksum over key, timestamp and payload, verified at every
read. It leaves the group out: a range moves between groups byte by byte.

Which timestamp a commit gets
-----------------------------

Invariants (Spanner, sections 4.1.1 and 4.1.2):

T1. *Disjoint and monotone.* The timestamps of a group's commits grow in the order of its log as far as they conflict,
    also across leaders. A leader gives out only timestamps above everything it gave out or promised
    (``TimestampOracle.last_ts``) and at or below a ceiling that a quorum of acceptors remembers; the next leader
    learns the highest ceiling that any predecessor can have had, and starts above it. Naively, a new leader whose
    clock is behind would write into the past that the old one already served.
T2. *External consistency.* If a transaction starts after another's commit was acknowledged, its timestamp is greater.
    The timestamp is at or above ``TT.now().latest`` when the commit reaches its coordinator, and nobody is told
    before the timestamp has passed for certain (commit-wait: ``TT.now().earliest`` is above it). Without the wait, a
    client could tell a friend whose server's clock is behind, and the friend would read the state from before.
    Both belong together: the first makes the timestamp late enough, the second makes it past.
T3. *Reads bind writers.* Whoever answered a read at t gives out no timestamp at or below t afterwards. Otherwise the
    same read twice gives two answers.
T4. *Prepares bind commits.* The timestamp of a transaction over several groups is above all of its prepare timestamps;
    each group holds its safe time below its own.
T5. *Skew is bounded.* Timestamps from others ratchet the oracle (a hybrid clock: causality holds even where bounds of
    clocks are false), but one further ahead than clocks may differ is refused. Otherwise one broken clock would drag
    the whole cluster into the future, where every commit waits for the present to come.

*Fences.* A commit may carry a deadline, and a time before which it must not happen: F1's schema leases rest on them.
They are compared with the timestamp that was chosen, not with a clock at some moment on the way, because the schema
that a write used is judged by timestamps too. A miss is definite: nothing was logged.

*The ceiling* costs a round to the quorum only when time overtakes it; heartbeats raise it ahead of need. A commit above
it waits (:class:`~spanstore.mvcc.timestamps.WaitForCeiling`) and has given out nothing.

What has arrived
----------------

A replica may answer at t once no commit at or below t can still come to it. Spanner splits this in two (section
4.1.3): what Paxos has applied, and what transactions that are prepared may still bring. A follower cannot know the
second from its own log alone up to the present moment, so here the leader answers both at once with a pair:

    (index, ts): whoever has applied the log up to ``index`` has every commit at or below ``ts``.

S1. ``ts`` lies below every timestamp given to a transaction whose end is not applied (prepare timestamps included,
    since the commit comes at or above them), so that everything at or below it is in the log up to ``index``.
S2. Giving the pair out promises that nothing comes at or below ``ts`` (T3); it stays below the ceiling (T1), so that
    the successors of a leader keep its promise.
S3. A replica's safe time never goes back, and pairs of deposed leaders stay true: what their log lost was never chosen,
    and what replaced it lies above their ceiling.

Naively a follower would take the timestamp of the last entry that it applied. In an idle group that never grows and
every read of the present would wait for the next write; and below a prepared transaction it is wrong, for its commit
will come beneath. Another naive idea, that the follower's clock has passed t, is wrong by the delay of the network.

One prepared transaction that never ends would hold back the safe time of its group, and with it the global safe time,
the minimum over groups. Therefore the leader refines by keys: a read waits only for undecided transactions that
hold write locks on what it reads (Spanner's remedy, section 4.2.4), and the group asks coordinators about prepared
transactions that stay.

A read at t is further never answered before t has passed for certain (t below ``TT.now().earliest``): an answer from
the future could be told to somebody in the present.

What may go
-----------

Each group has a *garbage mark*, a timestamp in its replicated state that only rises. Nobody reads below it, so of each
key the versions below the newest one at or below the mark may go, and that one too if it is a tombstone.

G1. *No write at or below the mark.* The leader raises it to at most its safe time, by a command of the log. So what is
    committed at or below the mark stands before that command, and prepared transactions hold the mark back. Otherwise a
    late decision would write a version under one that is already taken for the newest.
G2. *No read below the mark.* Every replica tests it against the mark of the very view that it reads from, scans in
    every step; a failure is SNAPSHOT_TOO_OLD, never a wrong row. Transactions that ask whether a range has changed
    since a timestamp below the mark are aborted: deletes since then may have left no trace. Tests of single versions
    need no such care, since the newest version of a living row never goes; and that a row is absent is true whatever
    became of its tombstone.
G3. *Pins and the retention window hold.* The mark stays below now less the window, and below every pin that has not
    expired. :mod:`spanstore.placement.pins` argues why a pin that was acknowledged is honoured by every group.
G4. *Replicas stay alike.* The leader looks for garbage and logs the names of what it found. If replicas looked for
    themselves at the same command, each would do so in a view from before all commands of its turn, and turns differ.
    Names are also cheap to apply, bounded, and harmless twice; and damage at one replica is not made worse.

Garbage is found by going over the whole group now and then, a few hundred keys at a time. The naive alternative, an
index of garbage kept with every write, would cost each write what few of them need.

Left out
--------

* Timestamps of leaders per key (Spanner's refinement of LastTS() with a map of ranges): reads at the leader see the
  lock table anyway.
* Predictions of future safe time (MinNextTS, section 4.2.4): the pair of an idle leader grows with its clock instead.

References
----------

* Corbett et al., *Spanner: Google's Globally-Distributed Database*, OSDI 2012: sections 3, 4.1 and 4.2.
* Shute et al., *F1: A Distributed SQL Database That Scales*, VLDB 2013: sections 3.1, 5, 6 and 8.
* Rae et al., *Online, Asynchronous Schema Change in F1*, VLDB 2013: sections 4.1 and 4.3, write fences.
* Kulkarni et al., *Logical Physical Clocks*, OPODIS 2014: the ratchet of T5.
"""
