"""The Arrow types of columns, of fields inside messages, and of results."""

from typing import Any

import pyarrow as pa

from f1common.errors import check
from f1server.catalog.protos import registry_of
from f1server.catalog.schema import Kind, Schema, Table
from f1server.plan.scans import FieldWanted
from f1server.plan.types import SqlType, of_column, of_path

NUMERIC_TYPE = pa.decimal128(38, 9)
TIMESTAMP_TYPE = pa.timestamp("us", tz="UTC")

_TYPES: dict[Kind, Any] = {
    Kind.BOOL: pa.bool_(),
    Kind.INT64: pa.int64(),
    Kind.DOUBLE: pa.float64(),
    Kind.NUMERIC: NUMERIC_TYPE,
    Kind.STRING: pa.string(),
    Kind.BYTES: pa.binary(),
    Kind.DATE: pa.date32(),
    Kind.TIMESTAMP: TIMESTAMP_TYPE,
    Kind.PROTO: pa.binary(),
}


def arrow_type(kind: SqlType) -> Any:
    """Return the Arrow type of a known type."""
    check(kind.kind is not None, "an unknown type has no Arrow type")
    found = _TYPES[kind.kind or Kind.BYTES]
    for _ in range(kind.lists):
        found = pa.list_(found)
    return found


def sql_type(schema: Schema, table: Table, wanted: FieldWanted) -> SqlType:
    """Return the type of a column, or of a field inside a proto column."""
    column = table.by_id[wanted.column_id]
    if not wanted.path:
        return of_column(column)
    return of_path(registry_of(schema), column.type.proto, wanted.path)


def type_of(schema: Schema, table: Table, wanted: FieldWanted) -> Any:
    """Return the Arrow type in which a source gives a column or field."""
    return arrow_type(sql_type(schema, table, wanted))


def narrowed(kind: SqlType) -> Any:
    """Return the Arrow type in which DuckDB gets a column: DECIMAL(p, s) computes with the digits that it has."""
    if kind.kind is Kind.NUMERIC and not kind.lists and (kind.precision, kind.scale) != (38, 9):
        return pa.decimal128(kind.precision, kind.scale)
    return arrow_type(kind)


def result_type(arrow: Any) -> tuple[str, Any]:
    """Return the name of a result column's type, and the Arrow type that it is sent as."""
    types = pa.types
    if types.is_boolean(arrow):
        return Kind.BOOL.value, pa.bool_()
    if types.is_uint64(arrow):
        return Kind.NUMERIC.value, pa.decimal128(38, 0)
    if types.is_integer(arrow):
        return Kind.INT64.value, pa.int64()
    if types.is_floating(arrow):
        return Kind.DOUBLE.value, pa.float64()
    if types.is_decimal(arrow):
        return Kind.NUMERIC.value, pa.decimal128(38, arrow.scale)
    if types.is_string(arrow) or types.is_large_string(arrow) or types.is_string_view(arrow):
        return Kind.STRING.value, pa.string()
    if types.is_binary(arrow) or types.is_large_binary(arrow):
        return Kind.BYTES.value, pa.binary()
    if types.is_date(arrow):
        return Kind.DATE.value, pa.date32()
    if types.is_timestamp(arrow):
        return Kind.TIMESTAMP.value, TIMESTAMP_TYPE
    if types.is_list(arrow) or types.is_large_list(arrow):
        name, inner = result_type(arrow.value_type)
        return f"ARRAY<{name}>", pa.list_(inner)
    if types.is_struct(arrow):
        fields = [(f.name, *result_type(f.type)) for f in arrow]
        return f"STRUCT<{', '.join(f'{n} {t}' for n, t, _ in fields)}>", pa.struct([(n, a) for n, _, a in fields])
    if types.is_null(arrow):
        return Kind.STRING.value, pa.string()
    return str(arrow).upper(), arrow
