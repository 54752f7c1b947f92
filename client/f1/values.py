"""Values between Python and the wire: parameters and cells on the way out, Arrow columns on the way in.

Out: None, bool, int, float, Decimal, str, bytes, date, aware datetime, and protobuf messages (or their bytes). In: the
same; NUMERIC without trailing zeros, TIMESTAMP as datetime in UTC, a proto column as a message if its class is known to
the process, else as bytes.
"""

import datetime
import decimal
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from operator import index
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from f1common.encoding.row import Cell, decode_row, encode_row
from f1common.encoding.tuple import Value
from f1common.encoding.values import Date, Timestamp
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb

# Wide enough for the 38 digits of NUMERIC.
_CONTEXT = decimal.Context(prec=60)
_ONE = Decimal(1)

MessageClasses = Mapping[str, type[Message]]


def to_cell(value: object, where: str = "a parameter") -> Cell:
    """Convert a Python value. Raises F1Error INVALID_ARGUMENT naming ``where`` for a type that no column has."""
    match value:
        case None | bytes() | Date() | Timestamp():
            return value
        case bool():
            return bool(value)
        case int():
            return int(value)
        case float():
            return float(value)
        case str():
            return str(value)
        case Decimal():
            return value
        case datetime.datetime():
            if value.tzinfo is None:
                raise F1Error(
                    Code.INVALID_ARGUMENT, f"{where}: a datetime needs a time zone, such as datetime.UTC: {value!r}"
                )
            return Timestamp.of(value)
        case datetime.date():
            return Date.of(value)
        case bytearray() | memoryview():
            return bytes(value)
        case Message():
            return bytes(value.SerializeToString(deterministic=True))
        case _:
            raise F1Error(Code.INVALID_ARGUMENT, f"{where}: no column holds a {type(value).__name__}")


def encode_params(params: Sequence[object] | None) -> bytes:
    """Encode the parameters of a statement. Raises F1Error INVALID_ARGUMENT, OUT_OF_RANGE."""
    if not params:
        return b""
    if isinstance(params, str | bytes | Mapping) or not isinstance(params, Sequence):
        raise F1Error(Code.INVALID_ARGUMENT, "parameters are a sequence with one value for each ?, not one value")
    cells = {number: to_cell(value, f"parameter {number}") for number, value in enumerate(params, 1)}
    try:
        return encode_row(cells)
    except F1Error as error:
        raise F1Error(error.code, error.message.replace("column", "parameter")) from error


def to_key_value(kind: str, value: object, where: str) -> Value:
    """Convert a value to the type ``kind`` of a key column: keys are compared by their bytes, so 1 is not 1.0.

    Raises F1Error INVALID_ARGUMENT naming ``where``.
    """
    cell = to_cell(value, where)
    if cell is None or (not kind and isinstance(cell, Value)):
        return cell
    try:
        converted = _KEY_CONVERTERS[kind](cell) if kind in _KEY_CONVERTERS else None
    except (TypeError, ValueError, OverflowError, decimal.DecimalException):
        converted = None
    if converted is None:
        raise F1Error(Code.INVALID_ARGUMENT, f"{where} is {kind}, and {value!r} is none")
    return converted


def _to_bool(cell: Any) -> Value:
    return cell if isinstance(cell, bool) else None


def _to_int(cell: Any) -> Value:
    if isinstance(cell, bool):
        return None
    if isinstance(cell, Decimal | float) and cell == int(cell):
        return int(cell)
    return index(cell)


def _to_float(cell: Any) -> Value:
    return float(cell) if isinstance(cell, int | float | Decimal) and not isinstance(cell, bool) else None


def _to_decimal(cell: Any) -> Value:
    if isinstance(cell, bool):
        return None
    return cell if isinstance(cell, Decimal) else Decimal(repr(cell) if isinstance(cell, float) else cell)


def _to_str(cell: Any) -> Value:
    return cell if isinstance(cell, str) else None


def _to_bytes(cell: Any) -> Value:
    return cell if isinstance(cell, bytes) else None


def _to_date(cell: Any) -> Value:
    return cell if isinstance(cell, Date) else Date.of(datetime.date.fromisoformat(cell))


def _to_timestamp(cell: Any) -> Value:
    return cell if isinstance(cell, Timestamp) else Timestamp.of(datetime.datetime.fromisoformat(cell))


_KEY_CONVERTERS: dict[str, Callable[[Any], Value]] = {
    "BOOL": _to_bool,
    "INT64": _to_int,
    "DOUBLE": _to_float,
    "NUMERIC": _to_decimal,
    "STRING": _to_str,
    "BYTES": _to_bytes,
    "DATE": _to_date,
    "TIMESTAMP": _to_timestamp,
}


def from_cell(cell: object) -> object:
    """Convert a cell of a stored row to the Python value that queries return for it. Raises F1Error OUT_OF_RANGE."""
    match cell:
        case Date():
            return cell.to_date()
        case Timestamp():
            return cell.to_datetime()
        case Decimal():
            return plain_decimal(cell)
        case _:
            return cell


def plain_decimal(value: Decimal) -> Decimal:
    """Return the number without trailing zeros after the point, and without an exponent."""
    short = value.normalize(_CONTEXT)
    exponent = short.as_tuple().exponent
    return short.quantize(_ONE, context=_CONTEXT) if isinstance(exponent, int) and exponent > 0 else short


def read_arrow(data: bytes) -> pa.Table:
    """Read an Arrow IPC stream. Raises F1Error DATA_CORRUPTION."""
    try:
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            return reader.read_all()
    except (pa.ArrowInvalid, OSError) as error:
        raise F1Error(Code.DATA_CORRUPTION, f"the server's answer is no Arrow stream: {error}") from error


def find_message_class(name: str, known: MessageClasses) -> type[Message] | None:
    """Return the class of a message type: a registered one, else one of a generated module that was imported."""
    if not name:
        return None
    if name in known:
        return known[name]
    try:
        return GetMessageClass(descriptor_pool.Default().FindMessageTypeByName(name))
    except KeyError:
        return None


def values_of_row(data: bytes, columns: Sequence[pb.ColumnInfo], known: MessageClasses) -> list[Any]:
    """Return one row of a result, as cells by position. Raises F1Error OUT_OF_RANGE, DATA_CORRUPTION."""
    cells = decode_row(data)
    values: list[Any] = []
    for position, info in enumerate(columns, 1):
        value: Any = cells.get(position)
        if info.proto_type:
            (value,) = _messages([value], info, known)
        elif type(value) in _CONVERTED:
            value = _from_cell_of(info, value)
        values.append(value)
    return values


ARROW_TYPES: Mapping[str, pa.DataType] = {
    "BOOL": pa.bool_(),
    "INT64": pa.int64(),
    "DOUBLE": pa.float64(),
    "NUMERIC": pa.decimal128(38, 9),
    "STRING": pa.string(),
    "BYTES": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    "PROTO": pa.binary(),
}
"""Kinds of columns as Arrow holds them."""


def table_of_rows(rows: Sequence[bytes], columns: Sequence[pb.ColumnInfo]) -> pa.Table:
    """Return rows of a result, each as cells by position, in the types in which the server sends many.

    Raises F1Error DATA_CORRUPTION.
    """
    cells = [decode_row(row) for row in rows]
    arrays = []
    for position, info in enumerate(columns, 1):
        values: list[Any] = [row.get(position) for row in cells]
        kind = ARROW_TYPES["PROTO" if info.proto_type else info.type]
        if info.HasField("scale"):
            kind = pa.decimal128(38, info.scale)
        if info.type in ("DATE", "TIMESTAMP"):
            units = [v.days if isinstance(v, Date) else v.us if isinstance(v, Timestamp) else None for v in values]
            arrays.append(pa.array(units, pa.int32() if info.type == "DATE" else pa.int64()).cast(kind))
        else:
            arrays.append(pa.array(values, kind))
    return pa.Table.from_arrays(arrays, names=[info.name for info in columns])


_CONVERTED = (Date, Timestamp, Decimal)


def _from_cell_of(info: pb.ColumnInfo, cell: object) -> object:
    try:
        return from_cell(cell)
    except F1Error as error:
        text = f"column {info.name} holds what Python's types cannot ({error.message}); use fetch_arrow"
        raise F1Error(error.code, text) from error


def column_values(column: "pa.ChunkedArray | pa.Array", info: pb.ColumnInfo, known: MessageClasses) -> list[Any]:
    """Return a column of a result as Python values. Raises F1Error OUT_OF_RANGE, DATA_CORRUPTION."""
    kind = column.type
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError) as error:
        raise F1Error(
            Code.OUT_OF_RANGE, f"column {info.name} holds what Python's types cannot ({error}); use fetch_arrow"
        ) from error
    if pa.types.is_decimal(kind):
        return [None if value is None else plain_decimal(value) for value in values]
    if pa.types.is_timestamp(kind):
        return [None if value is None else _in_utc(value) for value in values]
    if info.proto_type and pa.types.is_binary(kind):
        return _messages(values, info, known)
    if pa.types.is_nested(kind):
        return [_plain(value) for value in values]
    return values


def _in_utc(value: datetime.datetime) -> datetime.datetime:
    return value.replace(tzinfo=datetime.UTC) if value.tzinfo is not None else value


def _plain(value: Any) -> Any:
    """Convert what is nested in lists and structs, too."""
    match value:
        case Decimal():
            return plain_decimal(value)
        case datetime.datetime():
            return _in_utc(value)
        case list():
            return [_plain(item) for item in value]
        case dict():
            return {key: _plain(item) for key, item in value.items()}
        case _:
            return value


def _messages(values: list[Any], info: pb.ColumnInfo, known: MessageClasses) -> list[Any]:
    found = find_message_class(info.proto_type, known)
    if found is None:
        return values
    try:
        return [None if value is None else found.FromString(value) for value in values]
    except DecodeError as error:
        raise F1Error(
            Code.DATA_CORRUPTION, f"column {info.name} holds what is no {info.proto_type}: {error}"
        ) from error


def rows_of(table: pa.Table, columns: Sequence[pb.ColumnInfo], known: MessageClasses) -> list[tuple[Any, ...]]:
    """Return the rows of a result as tuples."""
    if not table.num_rows:
        return []
    values = [column_values(table.column(i), info, known) for i, info in enumerate(columns)]
    return list(zip(*values, strict=True))
