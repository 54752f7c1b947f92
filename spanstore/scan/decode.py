"""Stored rows to Arrow record batches: decode, select, project."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, assert_never

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.msgpack import Ext

from f1common.encoding.row import (
    THIS_VERSION,
    StoredCell,
    Timestamp,
    decode_stored,
    read_cell,
    stored_days,
    stored_units,
    stored_us,
)
from f1common.encoding.tuple import Value
from f1common.errors import Code, F1Error
from spanstore.scan.arrow import ARROW_TYPES, PYTHON_TYPES, dates, timestamps, to_array
from spanstore.scan.cells import numerics, stored_dates, stored_numerics, stored_timestamps
from spanstore.scan.keys import elements
from spanstore.scan.parts import key_parts
from spanstore.scan.plan import Column, ColumnType, ScanPlan, Source
from spanstore.scan.predicates import Test, compile_predicate


@dataclass(slots=True)
class Rows:
    """Rows as they are stored, one entry of each list for a row; ``parts`` are empty as long as no key is decoded."""

    keys: list[bytes] = field(default_factory=list)
    parts: list[tuple[Value, ...]] = field(default_factory=list)
    stamps: list[int] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)
    cells: list[dict[int, StoredCell]] = field(default_factory=list)
    size: int = 0
    """Bytes of keys and values."""

    def where(self, mask: Sequence[bool]) -> "Rows":
        """Return the rows for which ``mask`` is true."""
        return Rows(
            list(compress(self.keys, mask)),
            list(compress(self.parts, mask)),
            list(compress(self.stamps, mask)),
            list(compress(self.values, mask)),
            list(compress(self.cells, mask)),
        )


class Decoder:
    """Makes record batches of the rows that a plan's predicates select."""

    def __init__(self, plan: ScanPlan) -> None:
        """Raises F1Error INVALID_ARGUMENT for a predicate that its column cannot be tested with."""
        self._columns = plan.columns
        self.schema = pa.schema([pa.field(column.name, ARROW_TYPES[column.type]) for column in plan.columns])
        self._needs_cells = any(column.source is Source.CELL for column in plan.columns)
        self._tests: list[tuple[int, Test]] = [
            (predicate.column, compile_predicate(plan.columns[predicate.column], predicate))
            for predicate in plan.predicates
        ]

    def batch(self, rows: Rows) -> Any:
        """Return a ``pyarrow.RecordBatch`` of the selected rows.

        Raises F1Error DATA_CORRUPTION for a row that cannot be read, INVALID_ARGUMENT for a cell of another type than
        its column's.
        """
        if self._needs_cells:
            rows.cells = decode_stored(rows.values, whole=False)
        arrays: dict[int, Any] = {}
        mask = self._select(rows, arrays)
        if mask is not None and mask.true_count < len(mask):
            # Columns that were not tested are built for the selected rows only.
            rows = rows.where(mask.to_pylist())
            arrays = {position: array.filter(mask) for position, array in arrays.items()}
        columns = [
            arrays[position] if position in arrays else self._array(column, rows)
            for position, column in enumerate(self._columns)
        ]
        if not columns:
            return pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(pa.struct([]), len(rows.keys), [None]))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _select(self, rows: Rows, arrays: dict[int, Any]) -> Any:
        """Return the mask of the rows for which all tests hold, None without tests; ``arrays`` takes what was built."""
        mask = None
        for position, test in self._tests:
            if position not in arrays:
                arrays[position] = self._array(self._columns[position], rows)
            holds = test(arrays[position])
            mask = holds if mask is None else pc.and_(mask, holds)
        return mask

    def _array(self, column: Column, rows: Rows) -> Any:
        number = column.number
        match column.source:
            case Source.CELL:
                return _cells_array(column, [row.get(number) for row in rows.cells], rows)
            case Source.KEY_PART:
                found = key_parts(rows.keys, number, column.type)
                if found is not None:
                    return found
                if not rows.parts:
                    rows.parts = [elements(key) for key in rows.keys]
                parts = [part[number] if number < len(part) else None for part in rows.parts]
                return _checked(column, parts, rows)
            case Source.VERSION_TS:
                return pa.array(rows.stamps, pa.int64()).view(ARROW_TYPES[column.type])
            case Source.RAW_KEY:
                return to_array(column.type, rows.keys)
            case Source.RAW_VALUE:
                return to_array(column.type, rows.values)
            case _:
                assert_never(column.source)


def _cells_array(column: Column, cells: Sequence[StoredCell], rows: Rows) -> Any:
    """Return the array of a column's cells; those of other columns are never looked into."""
    try:
        match column.type:
            case ColumnType.NUMERIC:
                found = stored_numerics(cells)
                return numerics([stored_units(cell) for cell in cells]) if found is None else found
            case ColumnType.DATE:
                found = stored_dates(cells)
                return dates([stored_days(cell) for cell in cells]) if found is None else found
            case ColumnType.TIMESTAMP:
                found = stored_timestamps(cells)
                pairs = zip(cells, rows.stamps, strict=True)
                return timestamps([stored_us(cell, ts) for cell, ts in pairs]) if found is None else found
            case _:
                return _checked(column, cells, rows)
    except ValueError:
        # One is damaged, or of another type: it is found the slow way.
        values = [read_cell(cell) for cell in cells]
        if column.type is ColumnType.TIMESTAMP:
            stamps = rows.stamps
            values = [Timestamp(ts) if c is THIS_VERSION else c for c, ts in zip(values, stamps, strict=True)]
        return _checked(column, values, rows)


def _checked(column: Column, values: Sequence[object], rows: Rows) -> Any:
    allowed = PYTHON_TYPES[column.type]
    if not allowed.issuperset(map(type, values)):
        wrong = next(position for position, value in enumerate(values) if type(value) not in allowed)
        held = values[wrong]
        kind = type(read_cell(held) if isinstance(held, Ext) else held)
        raise F1Error(
            Code.INVALID_ARGUMENT,
            f"column {column.name} ({column.source} {column.number}) is asked for as {column.type}, but holds a "
            f"{kind.__name__} in the row {rows.keys[wrong].hex()}",
        )
    return to_array(column.type, values)
