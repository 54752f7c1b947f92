"""Distributed queries: a DAG of plan parts, run by slaves, driven by the f1server that took the query."""
