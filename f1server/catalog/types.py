"""Names of types in DDL, what literals fit them, and the values of hidden keys."""

import difflib
from collections.abc import Sequence

from f1common.encoding.values import NUMERIC_SCALE
from f1common.errors import Code, F1Error
from f1server.catalog.schema import ColumnType, Kind

HIDDEN_KEY = "f1_row_id"
"""The column that is the key of a table without a primary key, after the parent's key if it has a parent."""

RESERVED_PREFIX = "f1_"
"""No table, column, index or view of a user begins with this."""

NUMERIC_PRECISION = 38
NUMERIC_WHOLE_DIGITS = NUMERIC_PRECISION - NUMERIC_SCALE

_ALIASES: dict[str, Kind] = {
    "BOOL": Kind.BOOL,
    "BOOLEAN": Kind.BOOL,
    "INT64": Kind.INT64,
    "BIGINT": Kind.INT64,
    "INT": Kind.INT64,
    "INTEGER": Kind.INT64,
    "SMALLINT": Kind.INT64,
    "TINYINT": Kind.INT64,
    "INT2": Kind.INT64,
    "INT4": Kind.INT64,
    "INT8": Kind.INT64,
    "DOUBLE": Kind.DOUBLE,
    "DOUBLE PRECISION": Kind.DOUBLE,
    "FLOAT": Kind.DOUBLE,
    "FLOAT4": Kind.DOUBLE,
    "FLOAT8": Kind.DOUBLE,
    "FLOAT64": Kind.DOUBLE,
    "REAL": Kind.DOUBLE,
    "NUMERIC": Kind.NUMERIC,
    "DECIMAL": Kind.NUMERIC,
    "DEC": Kind.NUMERIC,
    "STRING": Kind.STRING,
    "TEXT": Kind.STRING,
    "VARCHAR": Kind.STRING,
    "CHAR": Kind.STRING,
    "CHARACTER": Kind.STRING,
    "CHARACTER VARYING": Kind.STRING,
    "CHAR VARYING": Kind.STRING,
    "BYTES": Kind.BYTES,
    "BYTEA": Kind.BYTES,
    "BLOB": Kind.BYTES,
    "VARBINARY": Kind.BYTES,
    "DATE": Kind.DATE,
    "TIMESTAMP": Kind.TIMESTAMP,
    "TIMESTAMPTZ": Kind.TIMESTAMP,
    "TIMESTAMP WITH TIME ZONE": Kind.TIMESTAMP,
    "TIMESTAMP WITHOUT TIME ZONE": Kind.TIMESTAMP,
    "DATETIME": Kind.TIMESTAMP,
}

_SIZED = frozenset({Kind.STRING, Kind.BYTES})


def column_type(name: str, arguments: Sequence[int] = ()) -> ColumnType:
    """Return the scalar type that DDL calls ``name`` (one space between words, any case).

    Raises F1Error INVALID_ARGUMENT for an unknown name, with a near miss, and for arguments that the type does not
    take. PROTO is not a scalar type.
    """
    kind = _ALIASES.get(name.upper())
    if kind is None:
        close = difflib.get_close_matches(name.upper(), sorted(_ALIASES), n=1)
        known = ", ".join([k.value for k in Kind if k is not Kind.PROTO] + ["PROTO<message>"])
        hint = f"did you mean {close[0]}?" if close else f"the types are {known}"
        raise F1Error(Code.INVALID_ARGUMENT, f"there is no type {name}; {hint}")
    if kind is Kind.NUMERIC:
        return _numeric(name, arguments)
    if not arguments:
        return ColumnType(kind)
    if kind is Kind.TIMESTAMP and len(arguments) == 1 and arguments[0] <= 6:
        return ColumnType(kind)
    if kind is Kind.DOUBLE and name.upper() == "FLOAT" and len(arguments) == 1 and 1 <= arguments[0] <= 53:
        return ColumnType(kind)
    if kind not in _SIZED or len(arguments) != 1 or not 1 <= arguments[0] <= 10_485_760:
        shown = ", ".join(str(a) for a in arguments)
        raise F1Error(Code.INVALID_ARGUMENT, f"{name} does not take ({shown})")
    return ColumnType(kind, max_length=arguments[0] if kind is Kind.STRING else 0)


def _numeric(name: str, arguments: Sequence[int]) -> ColumnType:
    if not arguments:
        return ColumnType(Kind.NUMERIC)
    precision, scale = arguments[0], arguments[1] if len(arguments) > 1 else 0
    fits = 1 <= precision <= NUMERIC_PRECISION and 0 <= scale <= NUMERIC_SCALE
    if len(arguments) > 2 or not fits or precision - scale > NUMERIC_WHOLE_DIGITS or scale > precision:
        shown = ", ".join(str(a) for a in arguments)
        raise F1Error(
            Code.INVALID_ARGUMENT,
            f"{name}({shown}) is not possible: at most {NUMERIC_SCALE} digits after the point and "
            f"{NUMERIC_WHOLE_DIGITS} before it",
        )
    return ColumnType(Kind.NUMERIC, precision=precision, scale=scale)


def hidden_key(now_us: int, ordinal: int, random_bytes: bytes) -> bytes:
    """Return a value for a hidden key: rows sort by time of insertion, and by ``ordinal`` within one statement.

    ``now_us`` is microseconds since the Unix epoch, ``random_bytes`` are six: two servers never make the same one.
    """
    return now_us.to_bytes(7, "big") + (ordinal & 0xFFFFFF).to_bytes(3, "big") + random_bytes[:6]
