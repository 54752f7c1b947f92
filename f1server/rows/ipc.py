"""Record batches from clients: one batch of plain columns, in an Arrow stream of which nothing is trusted.

A few bytes of Arrow can say very much: a column of the null type has any number of rows without a single byte, as have
dictionaries, run ends and structs without fields, and a compressed buffer unfolds to thousands of times its size. So
what may come is little: one batch, not compressed, of the types in which results go out, of a bounded number of rows.
"""

import struct

import pyarrow as pa

from f1common.encoding.columns import MOST_CELLS, MOST_ROWS
from f1common.errors import Code, F1Error
from f1server.catalog.schema import ColumnType, Kind
from f1server.rows.arrow import arrow_type

__all__ = ["read_batch"]

_ALLOWED = frozenset(arrow_type(ColumnType(kind)) for kind in Kind)
_HEADER = 2
_COMPRESSION = 3
"""Numbers of fields in the tables Message and RecordBatch of Arrow's Message.fbs."""


def read_batch(data: bytes) -> pa.RecordBatch:
    """Read a stream of one batch with at least one column and one row.

    Raises INVALID_ARGUMENT for anything else, OUT_OF_RANGE for more than :data:`MOST_ROWS` rows or :data:`MOST_CELLS`.
    """
    try:
        batch = _read(pa.ipc.MessageReader.open_stream(pa.py_buffer(data)))
        if batch.num_rows > MOST_ROWS or batch.num_rows * batch.num_columns > MOST_CELLS:
            raise F1Error(
                Code.OUT_OF_RANGE,
                f"{batch.num_rows} rows of {batch.num_columns} columns are too many for one insert by columns, which "
                f"has {MOST_ROWS} rows and {MOST_CELLS} cells at most: insert in parts",
            )
        # Offsets, lengths and UTF-8 are looked at.
        batch.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, struct.error) as error:
        raise F1Error(Code.INVALID_ARGUMENT, f"the rows of an insert cannot be read: {error}") from error
    if not batch.num_columns or not batch.num_rows:
        raise F1Error(Code.INVALID_ARGUMENT, "an insert by columns has a column and a row at least")
    return batch


def _read(messages: pa.ipc.MessageReader) -> pa.RecordBatch:
    try:
        schema = pa.ipc.read_schema(messages.read_next_message())
        for field in schema:
            if field.type not in _ALLOWED:
                raise ValueError(f"no column comes as an Arrow array of {field.type}")
        rows = messages.read_next_message()
    except StopIteration:
        raise ValueError("a schema and a batch are expected") from None
    if rows.type == "record batch" and _is_compressed(rows.metadata.to_pybytes()):
        raise ValueError("batches of inserts are not compressed")
    batch = pa.ipc.read_record_batch(rows, schema)
    try:
        messages.read_next_message()
    except StopIteration:
        return batch
    raise ValueError("more than one batch is there")


def _is_compressed(metadata: bytes) -> bool:
    """Tell whether the header of a message, a flatbuffer that Arrow has verified, is of a batch that is compressed."""
    (message,) = struct.unpack_from("<I", metadata)
    place = _field(metadata, message, _HEADER)
    if not place:
        raise ValueError("a message without a header")
    (distance,) = struct.unpack_from("<I", metadata, place)
    return _field(metadata, place + distance, _COMPRESSION) > 0


def _field(data: bytes, table: int, number: int) -> int:
    """Return where a field of a flatbuffer's table is; 0: it has none."""
    (back,) = struct.unpack_from("<i", data, table)
    vtable = table - back
    (size,) = struct.unpack_from("<H", data, vtable)
    entry = 4 + 2 * number
    if entry >= size:
        return 0
    (offset,) = struct.unpack_from("<H", data, vtable + entry)
    return table + int(offset) if offset else 0
