"""Reads a table at the keys, key prefixes and ranges of keys that conditions leave."""

from dataclasses import replace

from f1server.plan.planning import Planning, access, key_parts


def apply(planning: Planning) -> None:
    """Set the spans of every table whose key is limited."""
    for plan in planning.tables:
        if plan.empty:
            plan.scan = replace(plan.scan, empty=True)
            continue
        found = access(key_parts(plan.table), plan.comparisons)
        if found is not None:
            plan.scan = replace(plan.scan, spans=found.spans)
