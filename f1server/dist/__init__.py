"""Distributed queries: a DAG of plan parts, run by slaves, driven by the f1server that took the query (F1 section 8.2).

Why
===

An f1server that reads all base tables itself moves every row over the network once, to the one process that then does
all the work. A slave reads a share of the keys next to as many others as there are, and what leaves it is filtered,
projected and, where there is a GROUP BY, aggregated already. F1 reads from a remote disk at any rate, so that it gains
nothing by bringing queries to the data; what it gains is breadth, and this is what is built here: every part of a query
runs at all slaves at a time, and rows that must meet are sent to where they meet.

The shape of a run
==================

The planner (:mod:`f1server.plan.spread`) makes *parts* (:mod:`f1server.plan.parts`): each is one SQL query for DuckDB
over scans and over the rows that other parts give. A run has *workers*, which are slaves with positions from 0, and the
f1server, which runs the root part. From the parts and the number of workers alone both ends of every exchange work out
who sends to whom (:mod:`~f1server.dist.topology`); a consumer knows that it has all its rows when everyone who has any
to give has said that these were the last.

How rows are dealt out is DuckDB's own ``hash(keys) % workers``, computed by the part's query itself
(:mod:`~f1server.dist.dealing`). A hash of ours would have to agree with DuckDB on which values are equal: -0.0 and 0.0,
all NaNs, the decimals of one type; where they disagreed a join would lose rows without a word. DuckDB agrees with
itself. It does not hash equal values of different types alike: to give both sides of a join one type is the planner's
duty.

Each part runs by the same code wherever it runs (:mod:`~f1server.dist.evaluation`): inputs are taken over while scans
are read, both into memory up to a bound and beyond it into DuckDB's temporary tables, which spill; when all is there,
the part's query runs, and its batches are dealt out as they come.

What keeps it from standing still
=================================

A producer waits while more than a window of its bytes is on the way to a receiver, and a receiver returns room when it
has *taken over* rows, not when they arrived: a slow consumer slows its producers, and nobody's memory. The naive
version of this deadlocks: A waits for B to take rows, B for C, C for A, each unable to take more because its own query
waits. Here taking rows over waits for nothing but the local disk: inputs are collected whatever else the part and its
neighbours do, and a part's query begins only when all inputs are complete, so that it never waits in the middle for
rows of others. The price is that nothing is pipelined from one part through the next. Streams of different pairs of
workers share nothing; a worker gives rows to itself without a stream.

Starting, watching, ending
==========================

A run takes two steps (:mod:`~f1server.dist.scheduler` decides, :mod:`~f1server.dist.attempt` performs): the f1server
starts the parts at all slaves; only when each has said that it is ready, which means that it takes rows, are they told
to go. Otherwise the first rows of a fast slave would meet a slow one that has never heard of the query, and nobody
could tell that from a query that has ended.

While a run lasts each slave keeps one stream to the f1server, on which it says twice a second that its event loop runs.
A stream that breaks is a slave that is gone; two seconds of silence, with the connection in the best of health, is one
that hangs. Either is reported to the pool and left out, and the query begins again with the others, as another attempt
with streams of its own: what still arrives of an earlier attempt is refused. A slave that says it could not reach
another one costs that one its place in this query only: there are links that are cut while both ends are well. Errors
that pass (a spanserver was away) leave nobody out; all others are the query's own and end it at once. After four
attempts, or with no slave left, the coordinator gives up with :class:`~f1server.dist.coordinator.SpreadFailed`, whose
catcher may run the query on the f1server alone.

A retry is never seen by the client, because no row reaches it before the attempt has succeeded: the root part is a part
like any other and begins when its inputs are complete. By then all slaves are free again, so that a client that reads
slowly, or not at all, holds nobody up.

A stream that ends, for whatever reason, ends what it asked for: the slave interrupts DuckDB, ends scans and exchanges
and drops the query's tables. There is no message that cancels, because there would have to be a second way for the
f1server that died.

Invariants
==========

1. Rows of an attempt count only if every worker of that attempt has ended and all it gave was taken over.
2. All parts read at one timestamp, and divided scans cover each key once: the answer is that of one snapshot.
3. No task waits for the network while it holds a thread, or DuckDB's connection.
4. Nothing of a query outlives its stream.

What is left out
================

Parts are not restarted one by one from what others kept: a query is short, and a whole new attempt is simple. Rows are
not compressed: hosts of one site have more network than processor. Workers do not steal work from slow ones; shares are
made about equal beforehand (:mod:`~f1server.dist.division`).
"""
