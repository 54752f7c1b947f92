"""What callers give besides cells, checked before it is used: an option of a wrong type is refused, not misread."""

from collections.abc import Iterable
from typing import Any, TypeVar

from f1.orchestrator import cells
from f1common.errors import Code, F1Error

__all__ = ["above_zero", "addresses", "cells_of", "part", "seconds", "table_names"]

T = TypeVar("T")

_DAY_S = 86_400


def table_names(option: str, names: object) -> frozenset[str]:
    """Return names of tables. A text is no collection of them: its letters would be. Raises INVALID_ARGUMENT."""
    if isinstance(names, str | bytes) or not isinstance(names, Iterable):
        raise F1Error(Code.INVALID_ARGUMENT, f"{option} is a list of names of tables, not {str(names)[:60]!r}")
    return frozenset(cells.check_name("table", name) for name in names)


def seconds(option: str, value: object) -> float:
    """Return a time of 0 s to a day. Raises F1Error INVALID_ARGUMENT."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _DAY_S:
        text = f"{option} is a number of seconds from 0 to {_DAY_S}, not {str(value)[:60]!r}"
        raise F1Error(Code.INVALID_ARGUMENT, text)
    return float(value)


def above_zero(option: str, value: object) -> int:
    """Return a whole number above 0. Raises F1Error INVALID_ARGUMENT."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise F1Error(Code.INVALID_ARGUMENT, f"{option} is a whole number above 0, not {str(value)[:60]!r}")
    return value


def part(what: str, value: T, methods: Iterable[str]) -> T:
    """Return a part that an orchestrator works with, if it has what is called. Raises F1Error INVALID_ARGUMENT."""
    missing = [name for name in methods if not callable(getattr(value, name, None))]
    if missing or isinstance(value, type):
        what_it_is = f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
        raise F1Error(Code.INVALID_ARGUMENT, f"{what} is an object with {', '.join(methods)}, not {what_it_is}")
    return value


def addresses(what: str, text: object) -> list[str]:
    """Return the addresses of ``text``, ``host:port,...``. Raises F1Error INVALID_ARGUMENT."""
    found = [part.strip() for part in text.split(",") if part.strip()] if isinstance(text, str) else []
    if not found or not all(":" in part for part in found):
        raise F1Error(Code.INVALID_ARGUMENT, f"{what} is at HOST:PORT,... and not at {str(text)[:60]!r}")
    return found


def cells_of(wanted: object) -> list[tuple[str, Any, str]]:
    """Return the cells that are wanted, each (table, row, column). Raises F1Error INVALID_ARGUMENT."""
    if not isinstance(wanted, Iterable):
        raise F1Error(Code.INVALID_ARGUMENT, f"cells are a list of (table, row, column), not {str(wanted)[:60]!r}")
    return [_cell(cell) for cell in wanted]


def _cell(cell: object) -> tuple[str, Any, str]:
    if not isinstance(cell, tuple | list) or len(cell) != len(cells.Cell._fields):
        raise F1Error(Code.INVALID_ARGUMENT, f"a cell is (table, row, column), not {str(cell)[:60]!r}")
    table, row, column = cell
    return table, row, column
