"""The value of a row: its columns' cells. The key's columns are not in it, NULL is the absence of a cell."""

from collections.abc import Iterable, Mapping, Sequence

from f1common.encoding.row import Cell, Marker, decode_row, encode_row
from f1common.errors import Code, F1Error
from f1server.catalog.schema import Schema, Table
from f1server.rows.layout import layout, of_schema
from f1server.rows.values import Row, Value


def encode_row_value(table: Table, row: Mapping[int, Value]) -> bytes:
    """Encode the cells of a row of a table without lock columns."""
    return encode_row(cells_of(table, row))


def decode_row_value(table: Table, key_values: Sequence[Value], data: bytes) -> Row:
    """Return all columns of the row by id, the key's from ``key_values``; columns without a cell are NULL.

    Raises DATA_CORRUPTION.
    """
    return row_of(table, key_values, decode_row(data))


def cells_of(table: Table, row: Mapping[int, Value]) -> dict[int, Cell]:
    """Return the cells that hold a row's values."""
    key = table.key_column_ids
    return {column_id: value for column_id, value in row.items() if value is not None and column_id not in key}


def row_of(
    table: Table, key_values: Sequence[Value], cells: Mapping[int, Cell], columns: Iterable[int] | None = None
) -> Row:
    """Return the row that these cells hold, of the columns that the table has; locks and unknown cells are left out.

    ``columns``: only these are wanted, beside the key's.
    """
    row: Row = dict(zip(table.key_column_ids, key_values, strict=True))
    for column_id in table.by_id if columns is None else columns:
        if column_id not in row:
            value = cells.get(column_id)
            if isinstance(value, Marker) or type(value).__name__ == "Ext":
                raise F1Error(
                    Code.DATA_CORRUPTION,
                    f"the cell of column {table.by_id[column_id].name} of {table.name} is no value",
                )
            row[column_id] = value  # type: ignore[assignment]
    return row


def decode_index_value(schema: Schema, table: Table, data: bytes) -> dict[int, Value]:
    """Return the columns that are stored in an index entry's value, by id."""
    known = of_schema(schema, ("columns", table.id), lambda: frozenset(layout(schema, table).table.by_id))
    cells = decode_row(data)
    return {column_id: value for column_id, value in cells.items() if column_id in known}  # type: ignore[misc]
