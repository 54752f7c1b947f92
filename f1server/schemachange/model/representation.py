"""The database representation: the set of key-value pairs that all servers share (sections 2.3 and 3)."""

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["EXISTS", "Cell", "Entry", "Key", "Representation", "rows_of", "value_of"]

EXISTS = "exists"
"""The special column whose pair says that a row exists; it has no value (section 2.3)."""


class Cell(NamedTuple):
    """The key of a column's pair, ``k_r(C)``: the row is named by its table and primary key."""

    table: str
    pk: int
    column: str


class Entry(NamedTuple):
    """The key of an index's pair, ``k_r(I)``: table, index (``of``), the row's indexed values and its primary key."""

    table: str
    of: str
    values: tuple[int, ...]
    pk: int


Key = Cell | Entry | str
"""A key; a string is one that is of neither form (clause 7 of definition 4)."""

Representation = Mapping[Key, int | None]
"""Each key once, with its value; the pairs of *exists* and of entries have none. Never changed in place."""


def rows_of(d: Representation, table: str) -> list[int]:
    """Return the primary keys of the rows that exist, ascending."""
    return sorted(key.pk for key in d if isinstance(key, Cell) and key.table == table and key.column == EXISTS)


def value_of(d: Representation, table: str, pk: int, column: str) -> int | None:
    """Return the value of a column in a row, None if there is no pair."""
    return d.get(Cell(table, pk, column))
