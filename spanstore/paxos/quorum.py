"""Majorities: the one property that the protocol needs is that any two of them intersect."""

from collections.abc import Iterable


def majority(voters: int) -> int:
    """Return how many of ``voters`` make a quorum."""
    return voters // 2 + 1


def reached_by(values: Iterable[int], quorum: int) -> int:
    """Return the largest value that at least ``quorum`` of ``values`` reach.

    ``values`` has one item per voter, so ``quorum`` is at most their number.
    """
    return sorted(values, reverse=True)[quorum - 1]
