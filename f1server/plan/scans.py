"""What a plan reads from tables: the contract between plans and the storage behind them.

A scan may give more rows than its index spans and predicates say (DuckDB checks every condition again), never fewer;
spans of the primary key are exact.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from f1common.encoding import tuple as tuples
from f1server.catalog.schema import Index, Table
from f1server.rows.values import Value

__all__ = ["Bound", "Direct", "FieldWanted", "KeySpan", "Lookup", "PredicateOp", "SimplePredicate", "TableScan"]


@dataclass(frozen=True, slots=True)
class FieldWanted:
    """A column, or a field inside a proto column: ``path`` through repeated fields gives a list, one level for each."""

    column_id: int
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a range."""

    value: Value
    inclusive: bool


@dataclass(frozen=True, slots=True)
class KeySpan:
    """Keys that begin with ``prefix`` and whose next part lies between the bounds, if there are bounds.

    The parts are those of a primary key or of an index, in their order. NULL sorts before all values and lies in no
    range with a lower bound.
    """

    prefix: tuple[Value, ...] = ()
    lower: Bound | None = None
    upper: Bound | None = None

    def encoded(self) -> tuple[bytes, bytes]:
        """Return the half-open range of encoded tuples of key parts. Raises F1Error as the tuple codec does."""
        start = tuples.encode(self.prefix)
        end = tuples.successor(start) if start else b"\xff"
        if self.lower is not None:
            start = tuples.encode((*self.prefix, self.lower.value))
            if not self.lower.inclusive:
                start = tuples.successor(start)
        if self.upper is not None:
            end = tuples.encode((*self.prefix, self.upper.value))
            if self.upper.inclusive:
                end = tuples.successor(end)
        return start, max(start, end)


class PredicateOp(StrEnum):
    """What a predicate tests; NULL passes IS_NULL only."""

    EQ = "EQ"
    NE = "NE"
    LT = "LT"
    LE = "LE"
    GT = "GT"
    GE = "GE"
    IN = "IN"
    IS_NULL = "IS_NULL"
    IS_NOT_NULL = "IS_NOT_NULL"


@dataclass(frozen=True, slots=True)
class SimplePredicate:
    """A comparison of a column (no path) with constants of exactly its type."""

    column: FieldWanted
    op: PredicateOp
    values: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Lookup:
    """Keys that are known only when another scan of the statement has been read: a lookup join.

    ``relation`` names that scan. Each of ``parts`` is a column of it, or a constant in a tuple, and gives one part of
    the primary key, or of ``index``. With more than ``limit`` different keys, the table is read as its scan says.
    """

    relation: str
    parts: tuple[FieldWanted | tuple[Value], ...]
    index: Index | None = None
    covering: bool = False
    limit: int = 1000


@dataclass(frozen=True, slots=True, eq=False)
class TableScan:
    """One table as one part of a statement reads it.

    ``spans``: parts of the primary key, none: the whole table. With ``index``, ``index_spans`` are parts of the index,
    and ``covering`` says that its entries hold all ``columns``; otherwise the rows are fetched by the entries' primary
    keys. ``limit``: so many rows are enough, whichever; with ``in_key_order`` the first in the order of the primary key
    (1) or in its reverse (-1), and nothing but the spans selects. ``ancestry``: scans of one statement with the same
    number lie on one ancestry path and read the same keys, so that one storage request serves them (cluster join, F1
    section 3.1). ``clip``: only what lies in this half-open range of storage keys, this worker's share of a scan that
    several divide (F1 section 8.2); with ``index``, of its entries. Its borders lie between root rows, so that a row is
    in one share.
    """

    table: Table
    columns: tuple[FieldWanted, ...]
    spans: tuple[KeySpan, ...] = ()
    index: Index | None = None
    index_spans: tuple[KeySpan, ...] = ()
    covering: bool = False
    predicates: tuple[SimplePredicate, ...] = ()
    limit: int | None = None
    in_key_order: int = 0
    with_locks: bool = False
    ancestry: int | None = None
    empty: bool = False
    clip: tuple[bytes, bytes] | None = None

    @property
    def is_point(self) -> bool:
        """Are these whole primary keys?"""
        width = len(self.table.key_column_ids)
        return bool(self.spans) and all(len(s.prefix) == width for s in self.spans)


@dataclass(frozen=True, slots=True)
class Direct:
    """The rows of the only scan of a query are its result, if they are few: no more than :data:`MOST_ROWS`.

    ``picks``: the names of the columns of the result, in the order of the primary key (``way`` 1) or its reverse (-1).
    """

    MOST_ROWS: ClassVar = 256

    picks: tuple[str, ...]
    way: int = 1
