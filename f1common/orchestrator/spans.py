"""Where the orchestrator's data lie in the storage tier: above the ids of tables, indexes and change histories."""

from f1common.encoding import tuple as tuples

__all__ = ["BOUND_KEY", "CELLS", "DECISIONS", "ORCHESTRATOR_SPAN"]

_BASE = 1 << 42

DECISIONS = tuples.encode((_BASE,))
"""Begins the keys of the transaction table: then shard, start timestamp."""

CELLS = tuples.encode((_BASE + 1,))
"""Begins the keys of cells: then table, row, column, and the inverted timestamp of the version."""

BOUND_KEY = tuples.encode((_BASE + 2, "bound"))
"""The record of the timestamp service."""

ORCHESTRATOR_SPAN = (DECISIONS, tuples.successor(tuples.encode((_BASE + 2,))))
"""All of it: start included, end excluded."""
