"""The formal model of the schema-change paper (section 3) as code that can be run over every small database.

Purpose
    An asynchronous schema change lets servers work under two schemas on one database. Whether a sequence of states is
    safe is a question about all databases, all operations and all interleavings, which prose answers badly: the authors
    report two bugs that their model found. Here the definitions are functions, and tests enumerate what they speak of.

What is modelled, and where
    ================================= =====================================================================
    database representation (2.3, 3)  :mod:`.representation`: a set of key-value pairs
    schema, elements, states (3.1)    :mod:`.schema`
    definitions 1 to 3, operations    :mod:`.operations`: insert, delete, update, query under one schema
    definition 4, the seven clauses   :mod:`.consistency`
    definition 5, small databases     :mod:`.enumeration`
    reorganisation (3.3, 4.4)         :mod:`.reorganisation`
    optimistic locks, coverage (3.4)  :mod:`.locks`: schedules of transactions over one row
    ================================= =====================================================================

How the words of the paper were read where they leave room
    * The pair of the special column *exists* counts as a column pair in clause 1: without its table it is an orphan
      there, as the proof of claim 2 has it.
    * An index entry is a row's only if its values are those that the row has now. One with old values points to no
      valid row (clause 5).
    * Rows without a value in an indexed column are not indexed (footnote 2 of the paper). f1db itself indexes NULL.
    * Users name public columns only. An insert gives a required column that is write-only its default, and an update
      fills it in if it is missing: a write-only element is written by every insert and update of its row (definition 2,
      proof of claim 7), whether the update concerns it or not. The reorganiser may therefore leave alone rows that were
      written after its snapshot.
    * A delete-only table takes deletes; inserts, updates and queries are refused. Its columns and indexes keep their
      own states within it.
    * Whatever the state of an element, operations see its pairs when they work out what to delete, and constraints see
      them when they are enforced: *cannot be read by user transactions* is about what a query returns.

What the model shows beyond the claims
    * The removal of a dropped column or index must touch rows that were written after its snapshot, too. Section 4.4
      skips them, which is right for fills; but a delete-only column is left as it is by updates (definition 1), so that
      a removal that skips leaves orphans. (F1 had its storage tier remove what the schema lacks: section 4.1.)
    * A lock that is dropped takes its coverage along: in the second schema of figure 3 it is delete-only while the
      column is still covered by both locks. Its pair must go on counting in validations, and a write that would have to
      update it deletes it instead, until the reorganisation has carried its timestamp over. Otherwise a transaction
      that read under the oldest schema loses an update.
    * The pairs of dropped elements go in the order entries, then values, or in one step for each row: the other way
      round clause 5 does not hold in between.

What is left out
    Hierarchies (a parent is a foreign key over the first part of the primary key), proto columns, types and values of
    more than one kind, and concurrency within one operation: operations are atomic (section 2.4).
"""
