"""How a query is spread over slaves: the planner of distributed queries (F1 sections 8.1 to 8.3). Pure.

Why
===

Most queries of an application read a few rows by key, and one server answers them in milliseconds. The others read a
table, or several, and there the work is in the rows: reading, filtering, joining, grouping them. Spread over N slaves,
each does an N-th of that, if one can say which rows have to meet and where. That question is all that this package
answers.

The idea
========

DuckDB evaluates; we only decide where. So a plan is not a tree of operators of ours but a DAG of *parts*, each of them
SQL (:mod:`f1server.plan.parts`), and the planner's work is to cut one SQL query into several, along the lines where
rows have to move. Inside a part DuckDB orders joins, decorrelates subqueries and chooses algorithms, as it does for a
whole query on one server, over the rows that this worker has.

An open query that can still grow is a :class:`~f1server.plan.spread.relation.Rel`: FROM and WHERE, and one more thing,
how its rows are spread (:class:`~f1server.plan.spread.relation.Dist`):

- ``range``: by the key of a root row. Scans of one hierarchy are divided at the same root rows, so that a customer and
  its campaigns are at one worker: what is interleaved joins and groups by its root key without moving at all. This is
  what F1's hierarchical schema buys a distributed query.
- ``hash``: by the hash of some columns, after an exchange.
- ``copy``: each worker has all of it. ``one``: the first worker has all of it. ``any``: nothing is known.

Every operator is a question to that property. A join is local if the equal columns are those by which both sides are
spread, or one side is a copy; a GROUP BY is whole at each worker if the rows are spread by columns it groups by;
otherwise something is *closed*: the open query becomes a part, its rows move, and a new open query begins with them.
That keeps the chain of joins in one part as long as nothing has to move, which is F1's rule too.

From the inside out
===================

1. :mod:`~f1server.plan.spread.normal` spells the query out: one alias for each relation, every column with it, no
   stars, no USING, no ordinals. What it cannot spell out is not spread.
2. :mod:`~f1server.plan.spread.blocks` plans one SELECT after another, inner ones first: FROM and WHERE, groups, select
   list, windows, DISTINCT; :mod:`~f1server.plan.spread.queries` what is around them: unions, WITH, ORDER BY with LIMIT
   (each worker keeps its own top rows, one has the last word).
3. :mod:`~f1server.plan.spread.joins` decides how two relations meet. Joining begins with the largest relation and goes
   on with the smallest that is joined by its whole key, which multiplies no rows. A broadcast costs one copy of the
   small side for each worker; a repartition moves both sides, or one if the other lies right already.
4. :mod:`~f1server.plan.spread.lookups`: a few rows fetch those of a large table by its key or an index, in batches,
   each worker for its own share of the few. It is the lookup join of F1 section 8.2, and it moves nothing.
5. :mod:`~f1server.plan.spread.groups` and :mod:`~f1server.plan.spread.aggregates` take aggregates apart: partial ones
   where the rows are, final ones where the groups meet. Those that cannot be (DISTINCT, medians, ordered ones) wait
   for their rows to meet.
6. :mod:`~f1server.plan.spread.subqueries`: a query inside an expression that depends on nothing around it is planned by
   itself and its result sent to all. One that depends on the row is left to DuckDB; its tables come to the row, the
   largest by the hash of the column that an equality ties to the row, so that each worker has what its rows ask for.

When a query stays on one server
================================

Joins, groups and subqueries that cannot be cut are no error: :class:`Unspreadable` says why, EXPLAIN shows it, and the
query runs on the f1server that took it. So does a query that reads every table by key, one that examines few rows, one
in a transaction that has written or that locks what it reads, and one whose run failed with an error of its own: the
central run then gives the error that users are told.

What must hold
==============

1. Equal values meet. The two sides of a join are hashed in one type, in which values that a comparison finds equal are
   equal (:func:`~f1server.plan.spread.builder.hash_cast`); where there is no such type the side is broadcast.
2. A row is in one place. What every worker has (``copy``) is given on by the first one only; the preserved side of an
   outer join is never a copy.
3. A condition is tested where it was written: nothing moves over the padding side of an outer join.
4. A distribution that is claimed is true: a key that is projected away is forgotten, and so is what an outer join pads.

What is left out
================

Joins are ordered greedily by rough estimates; there are no histograms. GROUPING SETS, recursive queries, DISTINCT ON,
LATERAL over tables and named windows run centrally; UNION without ALL, windows without PARTITION BY, and RIGHT and FULL
joins without equalities run on one slave. Ordered exchanges do not exist: who needs an order sorts.
"""

from f1server.plan.spread.joins import JoinOptions
from f1server.plan.spread.planner import Unspreadable, examined, is_short, spread

__all__ = ["JoinOptions", "Unspreadable", "examined", "is_short", "spread"]
