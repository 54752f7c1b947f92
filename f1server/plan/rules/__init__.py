"""The rules that choose how tables are read, in the order in which they are applied. Each can be turned off by its
name.

Whatever rules are on, the answer is the same: they only limit what is read, and DuckDB checks every condition again.
"""

from collections.abc import Callable, Collection

from f1server.plan.planning import Planning
from f1server.plan.rules import (
    cluster_join,
    index_access,
    key_access,
    limit,
    lookup_join,
    point_read,
    predicates,
    shared_scan,
    transitive,
)

Rule = Callable[[Planning], None]

RULES: tuple[tuple[str, Rule], ...] = (
    # First: the others then see the constants of all tables.
    ("transitive", transitive.apply),
    ("key_access", key_access.apply),
    # After the primary key: an index is taken only if it is better.
    ("index_access", index_access.apply),
    # Needs to know which tables are limited already.
    ("lookup_join", lookup_join.apply),
    ("predicates", predicates.apply),
    ("limit", limit.apply),
    # Needs the spans of both tables.
    ("cluster_join", cluster_join.apply),
    # Needs to know everything about the scans that it compares.
    ("shared_scan", shared_scan.apply),
    # Last: it needs a scan that is exact.
    ("point_read", point_read.apply),
)

RULE_NAMES = tuple(name for name, _ in RULES)


def apply_rules(planning: Planning, off: Collection[str] = ()) -> None:
    """Apply all rules that are not turned off."""
    for name, rule in RULES:
        if name not in off:
            rule(planning)
