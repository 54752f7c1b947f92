"""What the schema compiler asks of the message types of proto columns."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from f1common.encoding.proto import ProtoRegistry, compile_protos
from f1common.errors import Code, F1Error
from f1server.catalog.schema import Kind, Schema

__all__ = ["FieldType", "compile_files", "field_type", "incompatibilities", "registry_of"]

_KINDS = {
    FieldDescriptor.CPPTYPE_BOOL: Kind.BOOL,
    FieldDescriptor.CPPTYPE_INT32: Kind.INT64,
    FieldDescriptor.CPPTYPE_INT64: Kind.INT64,
    FieldDescriptor.CPPTYPE_UINT32: Kind.INT64,
    FieldDescriptor.CPPTYPE_FLOAT: Kind.DOUBLE,
    FieldDescriptor.CPPTYPE_DOUBLE: Kind.DOUBLE,
    FieldDescriptor.CPPTYPE_ENUM: Kind.STRING,
}


class FieldType:
    """What a path into a message yields: ``kind`` None is a message or a map; UINT64 reads as NUMERIC."""

    __slots__ = ("kind", "message", "repeated")

    def __init__(self, kind: Kind | None, message: str, repeated: bool) -> None:
        self.kind = kind
        self.message = message
        self.repeated = repeated


def compile_files(files: Sequence[tuple[str, str]]) -> bytes:
    """Compile (name, text) pairs into a serialised FileDescriptorSet. Raises F1Error INVALID_ARGUMENT."""
    return compile_protos(dict(files))


@lru_cache(maxsize=32)
def _registry(descriptor_set: bytes) -> ProtoRegistry:
    return ProtoRegistry(descriptor_set)


def registry_of(schema: Schema) -> ProtoRegistry:
    """Return the message types of a schema; the same object for the same descriptors."""
    return _registry(schema.descriptor_set)


def field_type(registry: ProtoRegistry, message: str, path: Sequence[str]) -> FieldType:
    """Return what ``path`` into messages of type ``message`` yields.

    Raises F1Error NOT_FOUND for an unknown type or field, INVALID_ARGUMENT for a path that goes on after a field
    without fields.
    """
    registry.projection(message, [".".join(path)])  # checks the path
    at: Any = registry.message_class(message).DESCRIPTOR
    repeated = False
    field: Any = None
    for name in path:
        if at is None:
            break
        field = at.fields_by_name[name]
        repeated = repeated or field.is_repeated
        at = field.message_type
    if field is None:
        return FieldType(None, message, False)
    if field.message_type is not None:
        return FieldType(None, field.message_type.full_name, repeated)
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return FieldType(Kind.BYTES if field.type == FieldDescriptor.TYPE_BYTES else Kind.STRING, "", repeated)
    return FieldType(_KINDS.get(field.cpp_type, Kind.NUMERIC), "", repeated)


def incompatibilities(old_set: bytes, new_set: bytes, used: Sequence[str]) -> list[str]:
    """Say why values of the message types ``used``, written under the old descriptors, would be read differently.

    Adding fields, messages and enum values is compatible; removing, renumbering, renaming and retyping is not, in the
    messages used and in those that they contain. Nor is another presence: what is not set reads as NULL or as a value.
    """
    old, new = _registry(old_set), _registry(new_set)
    reasons: list[str] = []
    seen: set[str] = set()
    todo = sorted(used)
    while todo:
        name = todo.pop(0)
        if name in seen or name not in old.message_names:
            continue
        seen.add(name)
        if name not in new.message_names:
            reasons.append(f"the message type {name} is gone")
            continue
        before: Any = old.message_class(name).DESCRIPTOR
        after: Any = new.message_class(name).DESCRIPTOR
        for number, field in sorted(before.fields_by_number.items()):
            reasons += _field_reasons(field, after.fields_by_number.get(number), set(before.fields_by_number))
            if field.message_type is not None:
                todo.append(field.message_type.full_name)
            if field.enum_type is not None and field.enum_type.full_name not in seen:
                seen.add(field.enum_type.full_name)
                reasons += _enum_reasons(field.enum_type.full_name, old, new)
    return reasons


def _field_reasons(field: FieldDescriptor, other: FieldDescriptor | None, known: set[int]) -> Iterator[str]:
    """Say why a field would be read differently; ``known`` are the numbers of all that its message had."""
    if other is None or other.name != field.name:
        yield f"the field {field.full_name} = {field.number} is gone"
    elif _shape(other) != _shape(field):
        yield f"the field {field.full_name} has another type"
    elif other.has_presence != field.has_presence:
        without, with_it = "its default", "NULL"
        now, then = (with_it, without) if field.has_presence else (without, with_it)
        yield f"the field {field.full_name} would read as {then} where it is not set, and reads as {now}"
    elif _alternatives(other) & known != _alternatives(field):
        yield f"the field {field.full_name} would have other alternatives"


def _shape(field: FieldDescriptor) -> tuple[int, bool, bool, str]:
    named = field.message_type or field.enum_type
    return field.type, field.is_repeated, field.is_required, named.full_name if named is not None else ""


def _alternatives(field: FieldDescriptor) -> set[int]:
    oneof = field.containing_oneof
    return {field.number} if oneof is None else {alternative.number for alternative in oneof.fields}


def _enum_reasons(enum: str, old: ProtoRegistry, new: ProtoRegistry) -> Iterator[str]:
    """Values are read as their names, which indexes hold and checks compare."""
    try:
        names = new.enum_names(enum)
    except F1Error:
        return  # then the field has another type
    for number, name in old.enum_names(enum).items():
        if names.get(number) != name:
            yield f"the value {name} = {number} of the enum {enum} is gone"


def used_messages(schema: Schema) -> list[str]:
    """Return the message types of the proto columns of a schema, ascending."""
    return sorted({c.type.proto for t in schema.tables for c in t.columns if c.type.kind is Kind.PROTO})


def require_message(schema: Schema, name: str) -> None:
    """Raise F1Error NOT_FOUND, with a near miss, unless the schema has the message type ``name``."""
    try:
        registry_of(schema).message_class(name)
    except F1Error as error:
        hint = "" if schema.descriptor_set else "; give its .proto file to f1 schema apply, beside the DDL"
        raise F1Error(Code.NOT_FOUND, error.message + hint) from None
