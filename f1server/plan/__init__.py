"""SQL to plans: parse, look up names, rewrite for DuckDB, choose how tables are read, and where. Pure.

A statement is prepared once for its text and a version of the schema (:mod:`f1server.plan.prepare`), bound for each
execution, when the rules (:mod:`f1server.plan.rules`) choose access paths, and, if it is large, cut into parts for
slaves (:mod:`f1server.plan.spread`, whose essay says how). ``docs/life-of-a-query.md`` follows one all the way.
"""
