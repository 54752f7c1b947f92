"""How much a test runs: enough to find what breaks often when all tests are run, the rest in `make test-long`."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import settings

QUICK_SHARE = 4


def examples(full: int) -> int:
    """Return how many examples a property takes that wants `full` of them.

    A quarter in quick runs, whose examples are the same every time; in long ones all of them, and never fewer than the
    long profile of tests/conftest.py asks for.
    """
    if settings.get_current_profile_name() == "long":
        return max(full, settings.default.max_examples if settings.default else 0)
    return full // QUICK_SHARE


def some(quick: Sequence[Any], rest: Sequence[Any]) -> list[Any]:
    """Return parameters of which all runs take the `quick` ones and long runs also the `rest`."""
    return [*quick, *(pytest.param(item, marks=pytest.mark.long) for item in rest)]
