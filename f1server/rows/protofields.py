"""Fields inside proto columns, as index parts want them."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from f1common.encoding.proto import Projection, ProtoRegistry
from f1common.errors import Code, F1Error
from f1server.catalog.schema import Schema, Table
from f1server.rows.values import Value


@lru_cache(maxsize=32)
def _registry(descriptor_set: bytes) -> ProtoRegistry:
    return ProtoRegistry(descriptor_set)


def registry(schema: Schema) -> ProtoRegistry:
    """Return the message types of a schema; schemas with the same .proto files share them."""
    return _registry(schema.descriptor_set)


@dataclass(frozen=True, slots=True)
class FieldReader:
    """Reads one field out of a message. ``repeated``: there is a repeated field on the way, so there may be several."""

    projection: Projection
    repeated: bool

    def values(self, message: bytes) -> list[Value]:
        """Return the values of the field: one, or of a repeated field any number.

        Raises DATA_CORRUPTION for what is no message, FAILED_PRECONDITION for an enum's number without a name.
        """
        (found,) = self.projection.extract(message)
        if not self.repeated:
            return [_scalar(found)]
        flat: list[Value] = []
        _flatten(found, flat)
        return flat


def field_reader(schema: Schema, table: Table, column_id: int, path: tuple[str, ...]) -> FieldReader:
    """Return the reader of a field of a proto column. Raises NOT_FOUND for a field that is not there."""
    return _reader(schema.descriptor_set, table.by_id[column_id].type.proto, path)


@lru_cache(maxsize=1024)
def _reader(descriptor_set: bytes, message: str, path: tuple[str, ...]) -> FieldReader:
    known = _registry(descriptor_set)
    projection = known.projection(message, [".".join(path)], named=True)
    at: Any = known.message_class(message).DESCRIPTOR
    repeated = False
    for name in path:
        if at is None:
            raise F1Error(Code.NOT_FOUND, f"the message type {message} has no field {'.'.join(path)!r}")
        field = at.fields_by_name[name]
        repeated = repeated or bool(field.is_repeated)
        at = field.message_type
    return FieldReader(projection, repeated)


def _scalar(value: object) -> Value:
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    raise F1Error(Code.INVALID_ARGUMENT, "only a scalar field of a message may be in an index")


def _flatten(value: object, into: list[Value]) -> None:
    if isinstance(value, list):
        for item in value:
            _flatten(item, into)
    elif value is not None:
        into.append(_scalar(value))
