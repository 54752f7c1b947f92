"""Online, asynchronous schema change (Rae et al., VLDB 2013): a schema changes while all servers use it.

The problem
===========
Servers learn of a new schema at different times, and nobody knows all of them. While some write under the old one and
some under the new one, a server that has never heard of an index deletes a row and leaves its entry; one that has heard
of NOT NULL finds rows without values that another has just written. Stopping everybody is no answer.

The answer
==========
At most two neighbouring versions of the schema are in use at a time: leases see to that
(:mod:`f1server.catalog.leases`), and data commits carry the end of their lease as a fence. And neighbouring versions
never differ by more than servers can bear: elements pass through states in which they are maintained, but not read.

* :mod:`~f1server.schemachange.steps`: :mod:`~f1server.schemachange.steps.states` is figure 3 of the paper as a table,
  :mod:`~f1server.schemachange.steps.plan` puts the changes of many elements into its rows,
  :mod:`~f1server.schemachange.steps.diff` finds the elements that differ between two schemas, and
  :mod:`~f1server.schemachange.steps.edits` makes the versions.
* :mod:`~f1server.schemachange.work`: :mod:`~f1server.schemachange.work.reorganiser` fills, validates and removes what
  old rows have or lack, between versions: :mod:`~f1server.schemachange.work.tablewalk` divides a table and notes what
  is done, :mod:`~f1server.schemachange.work.dealing` deals the partitions to slaves,
  :mod:`~f1server.schemachange.work.walk` is what is done with one of them, entries are made by
  :mod:`~f1server.schemachange.work.gathering`, many rows at a time, and
  :mod:`~f1server.schemachange.work.throttle` keeps all of it from disturbing users. What is dropped is deleted by
  :mod:`~f1server.schemachange.work.purging`, and what was filled and validated is held against the rows by
  :mod:`~f1server.schemachange.work.verification` before it is public: rows with the code of ``f1 check``, entries by
  their sums (:mod:`~f1server.schemachange.work.sums`).
* :mod:`~f1server.schemachange.jobs` keeps what is wanted, durably; :mod:`~f1server.schemachange.executor` carries it
  out, whoever's job it was.
* :mod:`~f1server.schemachange.preview`: :mod:`~f1server.schemachange.preview.planner` tells beforehand what a change
  would take, and :mod:`~f1server.schemachange.preview.survey` which rows stand against it.
* :mod:`~f1server.schemachange.model` is the paper's formal model as code, by which tests show that these steps keep a
  database consistent and that none of them can be left out.

Why it can be resumed anywhere
==============================
Nothing says how far a change is but the schema itself: the next step is planned from the states that the elements have
now to those that are wanted. Every version that is written is one that all servers can work with for ever, so a change
may stop, go on at another server, or turn back at any of them. Work on data is idempotent and is done again if its end
was not noted. Two owners of a job cannot both write versions: each write expects the job's row as its owner left it.
What a replaced owner still does to rows fills what is missing or removes what nobody uses: done twice, it is the same.

How rows are reorganised
========================
A walk needs no locks on rows. It reads them as of a snapshot that was taken when every server had the version, so
whoever changes a row after the snapshot sees to its entries too, old and new; a delete leaves a trace under the key of
the entry even where none was yet. So the entry that follows from a row of the snapshot may be written unless its key
has a newer version, which the storage tier tests as it commits: the Thomas write rule of section 4.3. Two rows may want
one key in a unique index only; what is in dispute there is decided under locks, a few rows at a time.

A table is divided into partitions of some seconds' work, which slaves take one after the other; a partition whose slave
dies is given to another. A slave has no lease on the schema: it commits up to a fence, the end of the owner's lease,
which the owner goes on telling it of. Which partitions are done is noted, with the snapshot, so that the next owner, or
this one after a pause, does the rest; if the snapshot can no longer be read, at a newer one, which is as good, since it
too lies after the last write under an older version.

The pace follows from how long the storage tier takes over users' reads and commits, compared with how long it takes
while the reorganiser rests; it has a lower bound, so that every change ends.

Tables that move
================
A table that gets another parent or another primary key gets other keys for all its rows. Its new form is a table of its
own, a mirror, which writers maintain as they do a unique index over all columns, until the two change places
(:mod:`~f1server.schemachange.steps.moves`, :mod:`f1server.rows.mirrors`, docs/adr/0005-tables-move-as-mirrors.md).

Roles
=====
Roles and grants have no states, and no rows depend on them. So statements about them do not wait for the job that runs:
they are a version between two of its own, and what is done with rows is bound to the version of the elements, which
stays (:mod:`~f1server.schemachange.rolechanges`, docs/adr/0009-roles-change-beside-a-running-change.md).

Left out
========
Tables that others are interleaved in, or that foreign keys refer to, are not moved.
"""
