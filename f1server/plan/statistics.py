"""What is known of the sizes of tables: estimates that decide how a query runs, never what it answers."""

from dataclasses import dataclass
from typing import Protocol

from f1server.catalog.schema import Table

__all__ = ["Statistics", "TableStats"]


@dataclass(frozen=True, slots=True)
class TableStats:
    """About how many rows a table has, and how many bytes one of them takes in storage on average, key and value."""

    rows: int
    row_bytes: float


class Statistics(Protocol):
    """The sizes of tables as of some moment within the last minutes."""

    def table(self, table: Table) -> TableStats | None:
        """Return what is known of a table; None: nothing."""
        ...
