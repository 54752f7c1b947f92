"""What a scan is asked to do, as plain values that travel to the process that does it."""

from enum import StrEnum

import msgspec

from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from spanstore.engine.keyspace import MAX_GROUP


class ColumnType(StrEnum):
    """Types of columns; PROTO is a message as bytes."""

    BOOL = "BOOL"
    INT64 = "INT64"
    DOUBLE = "DOUBLE"
    NUMERIC = "NUMERIC"
    STRING = "STRING"
    BYTES = "BYTES"
    DATE = "DATE"
    TIMESTAMP = "TIMESTAMP"
    PROTO = "PROTO"


class Source(StrEnum):
    """Where a column's values come from."""

    CELL = "CELL"
    KEY_PART = "KEY_PART"
    VERSION_TS = "VERSION_TS"
    RAW_KEY = "RAW_KEY"
    RAW_VALUE = "RAW_VALUE"


class Operator(StrEnum):
    """What a predicate tests."""

    EQ = "EQ"
    NE = "NE"
    LT = "LT"
    LE = "LE"
    GT = "GT"
    GE = "GE"
    IN = "IN"
    IS_NULL = "IS_NULL"
    IS_NOT_NULL = "IS_NOT_NULL"


class Column(msgspec.Struct, frozen=True):
    """A column of the answer; ``number`` is a cell's column id or a key part's position."""

    name: str
    type: ColumnType
    source: Source = Source.CELL
    number: int = 0


class Predicate(msgspec.Struct, frozen=True):
    """A test of the column at position ``column``; ``literals`` are tuple-encoded elements."""

    column: int
    operator: Operator
    literals: tuple[bytes, ...] = ()


class KeyShape(msgspec.Struct, frozen=True):
    """Which keys are rows of the table: ``elements`` many tuple elements (0: any number).

    And, unless ``table`` is empty, the encoded element ``table`` at ``position``, and those of ``more`` at theirs.
    """

    elements: int = 0
    table: bytes = b""
    position: int = 0
    more: tuple[tuple[int, bytes], ...] = ()


class Sketch(msgspec.Struct, frozen=True):
    """Asks for how many rows there are, and where, instead of the rows (:mod:`spanstore.scan.sketch`).

    ``tables``: the path of each table to be told apart, as (encoded table id, elements of its own part of the key)
    from the root down. A segment of the answer has about ``every`` keys at most; of a range, about ``max_keys`` keys
    are walked over.
    """

    tables: tuple[tuple[tuple[bytes, int], ...], ...] = ()
    every: int = 1000
    max_keys: int = 2_000_000


class ScanPlan(msgspec.Struct, frozen=True):
    """A scan of ``[start, end)`` ranges of one group at ``timestamp`` (microseconds).

    Every view that it is read from must have applied at least ``min_index``, and the group own the ranges in it, as it
    does while the record of its ranges has ``range_epoch``. ``limit`` and ``batch_rows`` 0: none. ``background``:
    nobody waits for it.
    """

    group: int
    timestamp: int
    ranges: tuple[tuple[bytes, bytes], ...]
    columns: tuple[Column, ...]
    predicates: tuple[Predicate, ...] = ()
    shape: KeyShape = KeyShape()
    limit: int = 0
    batch_rows: int = 0
    min_index: int = 0
    range_epoch: int = 0
    sketch: Sketch | None = None
    background: bool = False


_RAW = frozenset({Source.RAW_KEY, Source.RAW_VALUE})


def check_plan(plan: ScanPlan) -> None:
    """Refuse what cannot be executed, literals excepted. Raises F1Error INVALID_ARGUMENT."""
    if not 0 <= plan.group <= MAX_GROUP:
        raise _invalid(f"there is no group {plan.group}")
    if not plan.ranges or any(end <= start for start, end in plan.ranges):
        raise _invalid("a scan needs ranges with start < end")
    for column in plan.columns:
        if column.source in _RAW and column.type is not ColumnType.BYTES:
            raise _invalid(f"column {column.name}: {column.source} gives BYTES, not {column.type}")
        if column.source is Source.VERSION_TS and column.type not in (ColumnType.TIMESTAMP, ColumnType.INT64):
            raise _invalid(f"column {column.name}: VERSION_TS gives a TIMESTAMP or an INT64, not {column.type}")
    for predicate in plan.predicates:
        if predicate.column >= len(plan.columns):
            raise _invalid(f"a predicate names column {predicate.column} of {len(plan.columns)}")
    if plan.sketch is not None:
        _check_sketch(plan.sketch)
    shape = plan.shape
    if shape.table:
        literal(shape.table)
        if shape.elements and shape.position >= shape.elements:
            raise _invalid(f"a key of {shape.elements} elements has none at position {shape.position}")
    for _, element in shape.more:
        literal(element)


def _check_sketch(sketch: Sketch) -> None:
    if not 1 <= sketch.every <= 10_000 or sketch.max_keys < 1:
        raise _invalid("a sketch has segments of 1 to 10,000 keys, and walks over at least one")
    if any(not path or any(own < 0 for _, own in path) for path in sketch.tables):
        raise _invalid("the path of a table has at least one step, of no fewer than no elements")
    for path in sketch.tables:
        for table, _ in path:
            literal(table)


def literal(encoded: bytes) -> tuples.Value:
    """Return the value of one encoded element. Raises F1Error INVALID_ARGUMENT if it is anything else."""
    try:
        values = tuples.decode(encoded)
    except F1Error as error:
        raise _invalid(f"a literal cannot be read: {error.message}") from error
    if len(values) != 1:
        raise _invalid(f"a literal is one tuple element, not {len(values)}")
    return values[0]


def _invalid(message: str) -> F1Error:
    return F1Error(Code.INVALID_ARGUMENT, message)
