"""Which group owns which range of keys, and how a range moves from one group to another while it is used.

Purpose
=======
Groups are the units of replication, ranges the units of placement (F1, section 2.1; Spanner, section 2.2): a group
owns any number of ranges, each of whole directories, and ranges move between groups when some are too large or too
busy. Clients find the group of a key in the *range map*, one row of the meta group, of which they keep copies. A copy
may be old: the group that is asked refuses what it does not own (WRONG_RANGE), and the client reads the map again.

So the map is a hint, and ownership is a fact of the groups' own logs: each keeps a record of what it owns
(:mod:`~spanstore.placement.holdings`), changed by log entries only, and every replica judges by the entries that it
has applied. Splitting and merging change borders of the map alone, and no group hears of it.

Why the naive ways fail: with ownership in the map only, a group whose copy is old serves what another group owns. With
a lease on ranges, a clock decides whether data are lost. Copying while nobody writes is a long outage. Copying while
somebody writes, without a point from which on the old group writes nothing, loses what is written last.

Invariants
==========
P1. At any moment at most one group owns a key, and each key is owned again after a bounded number of steps of whoever
    carries its move on. In the logs: *cede* in the old group precedes *own* in the new one.
P2. Of each key the owner has all versions and tombstones that the owner before had when it ceded, and all outcomes of
    commit ids whose anchor it is.
P3. A group that owns a key gives out no timestamp for it at or below what any owner before it gave out or promised.
P4. Whatever is asked late, twice, or by a mover that has been replaced, changes nothing.

The move of a range R from group S to group D
=============================================
A job is a row of the meta group (:mod:`~spanstore.placement.jobs`). The server that leads the meta group carries jobs
out, one at a time in the order of their numbers; if it dies, the next leader goes on. The row says roughly how far the
job is. How far it is exactly, the logs of S and D say, and both answer every question again.

1. *copying.* D logs that it expects R (BeginMoveCmd) and removes whatever it has of R. Passes follow: S reads what is
   newer than the last pass, in pieces, and D logs each piece (StageCmd). D does not own R, so nobody reads it there. A
   pass begins with a timestamp that S has *settled* for R, as for a read: everything at or below it is applied and
   nothing comes there any more, so the next pass needs only what is above. This goes on until a pass is short.
2. *ceding.* S's leader closes R: it takes in nothing that would lock or decide something in R, wounds the unprepared
   transactions that hold locks there, and waits until prepared ones have ended, commands under way have been applied,
   and the locks of commits have been released, which is after their commit-wait. If that takes too long it opens R
   again, and the mover tries later. Then it logs CedeCmd, with ``last_ts``, which is at or above everything that it
   gave out or promised. From that entry on S never serves R.
3. S's R does not change any more. The rest is shipped, with the outcomes whose anchor lies in R, and what S remembers
   as a participant of attempts that have finished and whose deadline has not passed: a late prepare of such an attempt
   may now come to D.
4. *owning.* D logs OwnCmd. Its leader, and every later one, gives out timestamps above ``last_ts`` only.
5. The range map says so, in one commit with the job's row. *cleaning.* S removes R's rows and records, in pieces.

Until S has logged CedeCmd a move can be cancelled: S logs that it will not cede for it (AbandonCmd), and only then is
D told. If S answers that it has ceded already, the move goes on.

Why nobody reads too little
===========================
*At D.* Let a replica of D answer a read of R at timestamp t. It has applied OwnCmd, so it has all versions that S had
when it ceded (P2): all commits in R up to ``last_ts``. For commits by D, the rule of safe time holds as ever: the
pair (index, t') under which it answers promised that D's leader gives out nothing at or below t' afterwards. The pair
may be older than OwnCmd. Then t' lies below everything that D gives out in R later, and nothing that D gave out
before is in R. Between ``last_ts`` and t' there are no commits in R, because S ceded before.

*At S, before it has applied CedeCmd.* The leader may answer until it proposes CedeCmd: each answer at t raises what
it has promised to t, so ``last_ts`` is at or above t, and D commits above that (P3). After the proposal it refuses R.
A follower that has not applied CedeCmd answers at t if its safe time has reached t, by a pair (index, t') whose index
it has applied. Pairs given out after the proposal have an index at or above CedeCmd's, so this one was given out
before, and t' is at or below ``last_ts``: all of S's commits up to t are there, and D adds none at or below t.

*At a leader of S that does not know it is deposed*: its answers wait for a fresh look at its lease, as always. Its
CedeCmd may be lost with it. Then the next leader of S simply owns R; D has not been told, because the mover is
answered by what is applied.

*Bulk scans* read from views of their own. Each view is asked for the record of ranges in it: while that has the epoch
at which the timestamp was settled, or still holds all that is scanned, no row has been removed. Otherwise the scan
ends with WRONG_RANGE, and the client goes on at the new owner from where it was, at the same timestamp.

Why nothing is done twice, or half
==================================
Transactions that are prepared in S for R end there, before CedeCmd. A prepare or commit that comes later is refused;
its attempt aborts. Who asks for the outcome of an attempt asks the owner of its anchor: before CedeCmd S, after
OwnCmd D, which has S's records, and nobody in between. So D logs the abort of an attempt that nobody heard of only
when S can no longer commit it.

One thing is new to two-phase commit. A driver with a new map may repeat an attempt that another driver has brought to
its commit under an old map, when the participants were others: it prepares in D what is committed and was moved
there. The coordinator answers with the commit's timestamp, which lies at or below D's ``last_ts`` and hence below
this prepare. A decision at or below a prepare timestamp therefore means that the commit did without this prepare,
which is dropped.

Old messages (P4)
=================
Numbers of jobs ascend, and jobs run one after the other. A group remembers the highest move that has ended there, and
ignores everything about moves up to it. A piece of a copy carries its sequence number, and counts only as the next
one: a piece that comes twice could bring rows back that have been deleted and collected since. Two movers that work
at once, one of which has not noticed that it was replaced, get in each other's way without harm: a piece that was not
the next is answered by where the copy really stands.

Garbage
=======
A delta brings what is newer than the pass before; a delete that was collected in between would be missing, and its row
would be there again. So garbage marks do not rise while there is a job that has not ended: whoever raises one reads
pins and jobs at one strong timestamp, and a mark that rests on a read from before the job lies below its beginning,
hence below every timestamp from which a delta starts. Only keys that a group owns are collected: rows that arrive in
pieces are not, nor what was ceded. OwnCmd carries the mark of S, so that D answers nothing below it.

Damage
======
Versions travel as they are stored, with their checksums, which do not contain the group. They are verified when S
reads them and again before D logs them; each piece has a checksum of its own.

Balance
=======
What should be cut, joined and moved is decided by pure functions over what was measured, for replicas
(:mod:`~spanstore.placement.balance`) and for ranges and leaders (:mod:`~spanstore.placement.load_balance`), one step at
a time, each only if it leaves the fullest or busiest clearly better off; so it comes to rest. What a table or group is
to have is its :mod:`~spanstore.placement.policy`. Sizes come from sketches of the rows, load from counts of the last
window and a sample of its keys. All of it is advice: the steps are those that an operator could take.

Left out
========
Moves run one at a time. A delta is found by walking over R's versions: splitting large ranges keeps the time short for
which R is closed. Dedicated learners for moves; leases on ranges.

References
==========
* J. Corbett et al.: Spanner, OSDI 2012, sections 2.2 and 2.3 (directories, movedir, fragments).
* J. Shute et al.: F1, VLDB 2013, section 2.1.
"""
