"""Functions over messages that DuckDB calls: for paths that the storage tier could not read, because the message went
through a query first, and for conversions."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from f1common.encoding.proto import ProtoRegistry
from f1common.errors import Code, F1Error
from f1server.catalog.schema import Kind
from f1server.exec.arrow_types import arrow_type
from f1server.plan.resolve import ProtoFunction
from f1server.plan.types import SqlType

ArrowFunction = Callable[[Any], Any]

_DUCK_NAMES = {
    Kind.BOOL: "BOOLEAN",
    Kind.INT64: "BIGINT",
    Kind.DOUBLE: "DOUBLE",
    Kind.NUMERIC: "DECIMAL(38,9)",
    Kind.STRING: "VARCHAR",
    Kind.BYTES: "BLOB",
    Kind.PROTO: "BLOB",
}


def duck_name(kind: SqlType) -> str:
    """Return DuckDB's name of the type of a field."""
    return _DUCK_NAMES[kind.kind or Kind.BYTES] + "[]" * kind.lists


def arrow_function(
    registry: ProtoRegistry, function: ProtoFunction, *, named: bool = False
) -> tuple[str, ArrowFunction]:
    """Return the type of the argument of a function, and the function over Arrow arrays.

    ``named``: as of :meth:`f1common.encoding.proto.ProtoRegistry.projection`.
    """
    convert = _converter(registry, function, named)
    result = arrow_type(function.result)

    def call(values: Any) -> Any:
        return pa.array([None if v is None else convert(v) for v in values.to_pylist()], result)

    return ("VARCHAR" if function.action == "parse" else "BLOB"), call


def _converter(registry: ProtoRegistry, function: ProtoFunction, named: bool) -> Callable[[Any], object]:
    name = function.message
    match function.action:
        case "path":
            projection = registry.projection(name, [".".join(function.path)], named=named)
            return lambda data: projection.extract(data)[0]
        case "to_json":
            return lambda data: registry.to_json(name, data)
        case "parse":
            return lambda text: parse_message(registry, name, text)
        case _:
            return lambda data: _checked(registry, name, data)


def parse_message(registry: ProtoRegistry, name: str, text: str) -> bytes:
    """Return the bytes of a message from its JSON or text form. Raises F1Error INVALID_ARGUMENT."""
    return registry.from_json(name, text) if text.lstrip()[:1] == "{" else registry.from_text(name, text)


def _checked(registry: ProtoRegistry, name: str, data: bytes) -> bytes:
    try:
        registry.parse(name, data)
    except F1Error as error:
        raise F1Error(Code.INVALID_ARGUMENT, error.message) from error
    return data
