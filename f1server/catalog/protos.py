"""What the schema compiler asks of the message types of proto columns."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorSet

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
    messages used and in those that they contain.
    """
    old, new = _messages(old_set), _messages(new_set)
    reasons: list[str] = []
    seen: set[str] = set()
    todo = sorted(used)
    while todo:
        name = todo.pop(0)
        if name in seen or name not in old:
            continue
        seen.add(name)
        if name not in new:
            reasons.append(f"the message type {name} is gone")
            continue
        after = {f.number: f for f in new[name].field}
        for field in sorted(old[name].field, key=lambda f: f.number):
            other = after.get(field.number)
            if other is None or other.name != field.name:
                reasons.append(f"the field {name}.{field.name} = {field.number} is gone")
            elif (other.type, other.label, other.type_name) != (field.type, field.label, field.type_name):
                reasons.append(f"the field {name}.{field.name} has another type")
            if field.type_name:
                todo.append(field.type_name.removeprefix("."))
    return reasons


def _messages(descriptor_set: bytes) -> dict[str, DescriptorProto]:
    found: dict[str, DescriptorProto] = {}

    def visit(prefix: str, message: DescriptorProto) -> None:
        name = prefix + message.name
        found[name] = message
        for nested in message.nested_type:
            visit(name + ".", nested)

    for file in FileDescriptorSet.FromString(descriptor_set).file:
        for message in file.message_type:
            visit(f"{file.package}." if file.package else "", message)
    return found


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
