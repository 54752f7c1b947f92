"""Defaults and generated keys: decided once, before the first attempt of a transaction, then part of its writes."""

import re
from collections.abc import Callable, Sequence
from decimal import Decimal

from msgspec.structs import replace

from f1common.encoding.values import INT64_MAX, INT64_MIN
from f1common.errors import check
from f1server.catalog.schema import Column, ElementState, Kind, Schema, Table
from f1server.rows.coerce import coerce_column
from f1server.rows.layout import of_schema
from f1server.rows.values import Row, Value
from f1server.rows.writes import LogicalWrite, WriteKind

Evaluate = Callable[[Sequence[str]], Sequence[Value]]
"""Evaluates SQL expressions over no row, each by itself, all with one now()."""

_WORDS: dict[str, Value] = {"null": None, "true": True, "false": False}
_INTEGER = re.compile(r"[+-]?\d{1,19}")
_DECIMAL = re.compile(r"[+-]?\d{1,29}\.\d{1,9}")
_TEXT = re.compile(r"'((?:[^'\\]|'')*)'")


def fill_defaults(
    schema: Schema, writes: Sequence[LogicalWrite], *, evaluate: Evaluate, new_id: Callable[[], bytes]
) -> list[LogicalWrite]:
    """Return the writes with what INSERT and UPSERT leave out: defaults, and hidden keys from ``new_id`` (16 bytes).

    An UPDATE of a key makes a new row. That gets the defaults of columns that are being added, if the old one has not
    got them yet: nobody looks for rows that have come since to fill them. Doing it twice changes nothing. ``evaluate``
    is called once at most, for what is no literal. Raises NOT_FOUND for an unknown table, what ``evaluate`` raises, and
    as :func:`coerce_column` for a default that is no value of its column.
    """
    filled: list[tuple[LogicalWrite, Table, Row]] = []
    asked: list[tuple[Row, Table, Column]] = []
    for write in writes:
        row: Row = {}
        table = schema.table(write.table)
        if columns := _defaulted(schema, table, write):
            for column in columns:
                if column.id in write.columns or column.id in write.key or column.id in write.defaults:
                    continue
                if column.hidden and not column.default_sql:
                    row[column.id] = _generated(column, new_id())
                elif (literal := literal_value(column.default_sql)) is not None:
                    row[column.id] = coerce_column(schema, table, column, literal[0])
                else:
                    asked.append((row, table, column))
        filled.append((write, table, row))
    if asked:
        values = evaluate([column.default_sql for _, _, column in asked])
        check(len(values) == len(asked), "every default gets a value")
        for (row, table, column), value in zip(asked, values, strict=True):
            row[column.id] = coerce_column(schema, table, column, value)
    return [_filled(write, table, row) if row else write for write, table, row in filled]


def _defaulted(schema: Schema, table: Table, write: LogicalWrite) -> Sequence[Column]:
    if write.kind in (WriteKind.INSERT, WriteKind.UPSERT):
        return columns_with_default(schema, table)
    if write.kind is WriteKind.UPDATE and any(i in write.columns for i in table.key_column_ids):
        return [c for c in columns_with_default(schema, table) if c.state is ElementState.WRITE_ONLY and c.fills]
    return ()


def columns_with_default(schema: Schema, table: Table) -> tuple[Column, ...]:
    """Return the columns that get a value in a new row if they are given none."""

    def find() -> tuple[Column, ...]:
        return tuple(c for c in table.columns if c.state >= ElementState.WRITE_ONLY and (c.default_sql or c.hidden))

    return of_schema(schema, ("defaults", table.id), find)


def _filled(write: LogicalWrite, table: Table, row: Row) -> LogicalWrite:
    keys = {i: v for i, v in row.items() if i in table.key_column_ids}
    rest = {i: v for i, v in row.items() if i not in table.key_column_ids}
    if write.kind is not WriteKind.INSERT:
        return replace(write, key={**write.key, **keys}, defaults={**write.defaults, **rest})
    # What nobody gave is marked: it may be dropped before the transaction commits.
    defaults = {**write.defaults, **rest}
    return replace(write, key={**write.key, **keys}, columns={**write.columns, **rest}, defaults=defaults)


def _generated(column: Column, unique: bytes) -> Value:
    match column.type.kind:
        case Kind.INT64:
            return int.from_bytes(unique[:8], "big") >> 1
        case Kind.BYTES:
            return unique
        case Kind.STRING:
            return unique.hex()
        case other:
            check(False, f"a generated key is no {other}")
            return None


def literal_value(sql: str) -> tuple[Value] | None:
    """Return the value of the SQL of a plain literal, in a tuple because it may be NULL; None for anything else."""
    text = sql.strip()
    if text.lower() in _WORDS:
        return (_WORDS[text.lower()],)
    if _INTEGER.fullmatch(text):
        number = int(text)
        return (number,) if INT64_MIN <= number <= INT64_MAX else None
    if _DECIMAL.fullmatch(text):
        return (Decimal(text),)
    if match := _TEXT.fullmatch(text):
        return (match[1].replace("''", "'"),)
    return None
