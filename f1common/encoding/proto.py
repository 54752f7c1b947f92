"""Protocol buffer columns: compile their sources, and read single fields without decoding the rest.

Purpose
    The types of proto columns come from .proto files that users keep beside their DDL (F1, section 3.2). The schema
    stores the compiled descriptors, and every server makes message classes from them at run time: nothing is generated
    or imported. The compiler is the one of grpcio-tools, called in process.

How fields are read
    A query names a few fields of a large message. :class:`Projection` builds, from the paths asked for, a message type
    that has these fields only and parses the bytes as that type: the parser steps over everything else as over
    fields that it does not know. Where several fields are alternatives (oneof), all of them are kept in that type,
    so that the last one on the wire wins as it does in a full decode.

Meaning of values
    Unset fields that have presence are None, others have their default. Enums are their names (a number that has no
    name is its decimal digits). A path through a repeated field gives a list, one level for each. A path that ends at
    a message gives its bytes, serialised deterministically, and one that ends at a map a list of pairs sorted by key.

Left out
    Paths through maps, and extensions. Arrow structs are built by the scan, from these values.

References
    F1: A Distributed SQL Database That Scales, sections 3.2 and 6.4.
"""

import difflib
import json
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Any

from google.protobuf import json_format, text_format
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from grpc_tools import _protoc_compiler  # the module around it would install import hooks

from f1common.errors import Code, F1Error

FieldValue = None | bool | int | float | str | bytes | list[Any]
"""What a path yields; lists hold such values, or pairs of them for a map."""

_Getter = Callable[[Any], FieldValue]
_OfEnum = Callable[[EnumDescriptor], _Getter]
"""Makes what reads the fields of an enum."""

_PROJECTION_FILE = "f1_projection.proto"
_PROJECTION_PACKAGE = "f1_projection"
_JSON_LISTS = frozenset({"google.protobuf.ListValue", "google.protobuf.Value"})
_Tree = dict[str, "_Tree | None"]
"""The fields that are wanted of a message, and of each those that are wanted of it in turn: None is all of it."""


def compile_protos(sources: Mapping[str, str]) -> bytes:
    """Compile .proto files, given by name, and return a FileDescriptorSet of them and all that they import.

    The files may import each other by these names, and ``google/protobuf/*.proto``. The result depends on nothing but
    the sources. Raises F1Error INVALID_ARGUMENT with file, line and column of each mistake.
    """
    for name in sources:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or str(path) != name or path.suffix != ".proto" or "\\" in name:
            raise F1Error(Code.INVALID_ARGUMENT, f"{name!r} is no relative name of a .proto file")
    if not sources:
        return b""
    include = resources.files("grpc_tools") / "_proto"
    with resources.as_file(include) as include_dir, tempfile.TemporaryDirectory(prefix="f1-protos-") as scratch:
        names = sorted(sources)
        try:
            for name in names:
                target = Path(scratch, name)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(sources[name], encoding="utf-8")
        except (OSError, ValueError) as error:
            raise F1Error(Code.INVALID_ARGUMENT, f"cannot compile the .proto files: {error}") from error
        _find_mistakes(names, [scratch, str(include_dir)])
        target = Path(scratch, "descriptors.bin")
        options = [f"-I{scratch}", f"-I{include_dir}", "--include_imports", f"--descriptor_set_out={target}"]
        if _protoc_compiler.run_main([argument.encode() for argument in ("protoc", *options, *names)]) != 0:
            raise F1Error(Code.INVALID_ARGUMENT, f"the .proto files {', '.join(names)} do not fit together")
        return target.read_bytes()


def _find_mistakes(names: Iterable[str], include: Sequence[str]) -> None:
    # This entry point of the compiler returns its errors; the one that writes descriptors prints them to stderr.
    mistakes: list[str] = []
    for name in names:
        try:
            _protoc_compiler.get_protos(name.encode(), [directory.encode() for directory in include])
        except _protoc_compiler.ProtocErrors as error:
            for mistake in error.errors():
                place = f"{mistake.filename.decode()}:{mistake.line + 1}:{mistake.column + 1}"
                text = f"{place}: {mistake.message.decode(errors='replace')}"
                if text not in mistakes:
                    mistakes.append(text)
    if mistakes:
        raise F1Error(Code.INVALID_ARGUMENT, "; ".join(mistakes))


class ProtoRegistry:
    """The message and enum types of one descriptor set. Immutable: a new schema makes a new registry."""

    def __init__(self, descriptor_set: bytes) -> None:
        """Take a serialised FileDescriptorSet. Raises F1Error DATA_CORRUPTION if it is none or is incomplete."""
        try:
            files = FileDescriptorSet.FromString(descriptor_set)
            self._files = tuple(files.file)
            self._pool = _pool_of(self._files)
        except (DecodeError, TypeError, KeyError) as error:
            raise F1Error(Code.DATA_CORRUPTION, f"no complete set of protocol buffer descriptors: {error}") from error
        self._messages = tuple(sorted(name for file in self._files for name in _message_names(file)))

    @property
    def message_names(self) -> tuple[str, ...]:
        """Full names of all message types, nested ones included, ascending."""
        return self._messages

    def message_class(self, name: str) -> type[Message]:
        """Return the class for the message type ``name``. Raises F1Error NOT_FOUND."""
        return GetMessageClass(self._descriptor(name))

    def enum_names(self, name: str) -> dict[int, str]:
        """Return the names of an enum type by number; of aliases the first. Raises F1Error NOT_FOUND."""
        try:
            enum = self._pool.FindEnumTypeByName(name)
        except KeyError:
            raise F1Error(Code.NOT_FOUND, f"there is no enum type {name!r} in the schema") from None
        return _names_by_number(enum)

    def parse(self, name: str, data: bytes) -> Message:
        """Decode a whole message. Raises F1Error NOT_FOUND for the type, DATA_CORRUPTION for the bytes."""
        message = self.message_class(name)()
        _parse(message, data, name)
        return message

    def to_json(self, name: str, data: bytes) -> str:
        """Return protobuf's JSON mapping of a message: compact, keys sorted. Errors as for :meth:`parse`."""
        message = self.parse(name, data)
        try:
            document = json_format.MessageToDict(message, descriptor_pool=self._pool)
        except (json_format.Error, TypeError, ValueError) as error:
            raise F1Error(Code.DATA_CORRUPTION, f"a message of type {name} has no JSON form: {error}") from error
        return json.dumps(document, ensure_ascii=False, separators=(",", ":"), sort_keys=True)

    def from_json(self, name: str, text: str) -> bytes:
        """Return the bytes of a message in protobuf's JSON mapping.

        Raises F1Error NOT_FOUND for the type, INVALID_ARGUMENT for text that is no such JSON.
        """
        message = self.message_class(name)()
        if text.lstrip()[:1] == "[" and name not in _JSON_LISTS:
            raise F1Error(Code.INVALID_ARGUMENT, f"no JSON of a {name}: a list")  # the library takes an empty one
        try:
            json_format.Parse(text, message, descriptor_pool=self._pool)
        except (json_format.Error, TypeError, ValueError, RecursionError) as error:
            raise F1Error(Code.INVALID_ARGUMENT, f"no JSON of a {name}: {error}") from error
        return _serialise(message)

    def to_text(self, name: str, data: bytes) -> str:
        """Return the text format of a message, fields by number. Errors as for :meth:`parse`."""
        message = self.parse(name, data)
        return text_format.MessageToString(message, as_utf8=True, descriptor_pool=self._pool)

    def from_text(self, name: str, text: str) -> bytes:
        """Return the bytes of a message in text format. Errors as for :meth:`from_json`."""
        message = self.message_class(name)()
        try:
            text_format.Parse(text, message, descriptor_pool=self._pool)
        except (text_format.ParseError, TypeError, ValueError, RecursionError) as error:
            raise F1Error(Code.INVALID_ARGUMENT, f"no text format of a {name}: {error}") from error
        return _serialise(message)

    def projection(self, name: str, paths: Sequence[str], *, named: bool = False) -> "Projection":
        """Return a reader of the fields at ``paths`` (``"a.b.c"``) of messages of type ``name``.

        It may be kept and used for any number of messages. ``named``: enums have to hold numbers that have a name, so
        that what is read stays true when later descriptors name more of them. Raises F1Error NOT_FOUND for a type or
        field that does not exist, INVALID_ARGUMENT for a path that leads through a map or a field without fields.
        """
        return Projection(self._descriptor(name), paths, self._files, named=named)

    def _descriptor(self, name: str) -> Descriptor:
        try:
            return self._pool.FindMessageTypeByName(name)
        except KeyError:
            hint = _hint(name, self._messages)
            raise F1Error(Code.NOT_FOUND, f"there is no message type {name!r} in the schema{hint}") from None


class Projection:
    """Reads some fields of messages of one type. Made by :meth:`ProtoRegistry.projection`."""

    __slots__ = ("_class", "_getters", "_name", "paths")

    def __init__(
        self, descriptor: Descriptor, paths: Sequence[str], files: Iterable[FileDescriptorProto], *, named: bool = False
    ) -> None:
        self.paths = tuple(paths)
        self._name = descriptor.full_name
        tree: _Tree = {}
        getters: list[_Getter] = []
        for path in self.paths:
            fields = _resolve(descriptor, path)
            _plant(tree, [field.name for field in fields])
            getters.append(_getter(fields, _named if named else _enum_converter))
        self._getters = tuple(getters)
        file = FileDescriptorProto(name=_PROJECTION_FILE, package=_PROJECTION_PACKAGE, syntax="proto2")
        names = [known.name for known in files]
        file.dependency.extend(names)
        root = _Builder(file, numbers=named).message(descriptor, tree)
        pool = _pool_of((*files, file))
        self._class = GetMessageClass(pool.FindMessageTypeByName(root.removeprefix(".")))

    def extract(self, data: bytes) -> tuple[FieldValue, ...]:
        """Return the values at the paths, in their order.

        Raises F1Error DATA_CORRUPTION if ``data`` is no message, FAILED_PRECONDITION for a number of an enum that has
        no name and should have one.
        """
        message = self._class()
        _parse(message, data, self._name)
        try:
            return tuple([getter(message) for getter in self._getters])
        except UnicodeDecodeError as error:
            raise F1Error(Code.DATA_CORRUPTION, f"text in a message of type {self._name} is no UTF-8") from error


class _Builder:
    """Builds the message types of a projection, one for each place in the tree of paths."""

    def __init__(self, file: FileDescriptorProto, *, numbers: bool = False) -> None:
        """``numbers``: enums are read as numbers. As what it is, a closed one hides those that have no name."""
        self._file = file
        self._numbers = numbers

    def message(self, descriptor: Descriptor, tree: _Tree) -> str:
        """Add a type with those fields of ``descriptor`` that are in ``tree``; return its name with a dot before."""
        # A name first, then the content: the types of fields are added to the same list.
        index = len(self._file.message_type)
        content = DescriptorProto(name=f"M{index}")
        self._file.message_type.add(name=content.name)
        wanted = dict(tree)
        oneofs: dict[str, int] = {}
        for name in tree:
            oneof = descriptor.fields_by_name[name].containing_oneof
            if oneof is not None and oneof.name not in oneofs:
                oneofs[oneof.name] = len(oneofs)
                content.oneof_decl.add(name=oneof.name)
                for alternative in oneof.fields:
                    wanted.setdefault(alternative.name, {})
        for name, below in wanted.items():
            field = descriptor.fields_by_name[name]
            added = self._field(content, field, below)
            if field.containing_oneof is not None:
                added.oneof_index = oneofs[field.containing_oneof.name]
        self._file.message_type[index].CopyFrom(content)
        return f".{_PROJECTION_PACKAGE}.{content.name}"

    def _field(self, content: DescriptorProto, field: FieldDescriptor, below: _Tree | None) -> FieldDescriptorProto:
        added = content.field.add(name=field.name, number=field.number)
        added.type = FieldDescriptorProto.Type.ValueType(field.type)
        added.label = FieldDescriptorProto.LABEL_REPEATED if field.is_repeated else FieldDescriptorProto.LABEL_OPTIONAL
        if field.enum_type is not None and self._numbers:
            added.type = FieldDescriptorProto.TYPE_INT32
        elif field.enum_type is not None:
            added.type_name = "." + field.enum_type.full_name
        elif field.message_type is not None and _is_map(field):
            entry = content.nested_type.add()
            field.message_type.CopyToProto(entry)
            added.type_name = f".{_PROJECTION_PACKAGE}.{content.name}.{entry.name}"
        elif field.message_type is not None and below is None:
            added.type_name = "." + field.message_type.full_name
        elif field.message_type is not None:
            added.type_name = self.message(field.message_type, below or {})
        return added


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _resolve(descriptor: Descriptor, path: str) -> list[FieldDescriptor]:
    """Return the fields along a path."""
    fields: list[FieldDescriptor] = []
    at: Descriptor | None = descriptor
    for name in path.split("."):
        if at is None or at.GetOptions().map_entry:
            before = fields[-1].full_name
            raise F1Error(Code.INVALID_ARGUMENT, f"the path {path!r} goes on after {before}, which has no fields")
        field = at.fields_by_name.get(name)
        if field is None:
            hint = _hint(name, list(at.fields_by_name))
            raise F1Error(Code.NOT_FOUND, f"the message type {at.full_name} has no field {name!r}{hint}")
        fields.append(field)
        at = field.message_type
    return fields


def _plant(tree: _Tree, names: Sequence[str]) -> None:
    """Add a path to the tree. A path that ends at a message wants all of it, whatever other paths want."""
    for name in names[:-1]:
        below = tree.setdefault(name, {})
        if below is None:
            return
        tree = below
    tree[names[-1]] = None


def _getter(fields: Sequence[FieldDescriptor], of_enum: _OfEnum) -> _Getter:
    """Return the function that reads the path ``fields`` from a projected message."""
    field, rest = fields[0], fields[1:]
    name = field.name
    convert = _getter(rest, of_enum) if rest else _leaf_converter(field, of_enum)
    if field.message_type is not None and _is_map(field):
        return _map_getter(name, field.message_type, of_enum)
    if field.is_repeated:
        return lambda message: [convert(item) for item in getattr(message, name)]
    if field.has_presence:
        return lambda message: convert(getattr(message, name)) if message.HasField(name) else None
    return lambda message: convert(getattr(message, name))


def _map_getter(name: str, entry: Descriptor, of_enum: _OfEnum) -> _Getter:
    convert_key = _leaf_converter(entry.fields_by_name["key"], of_enum)
    convert = _leaf_converter(entry.fields_by_name["value"], of_enum)

    def get(message: Any) -> FieldValue:
        pairs = [(convert_key(key), convert(value)) for key, value in getattr(message, name).items()]
        return sorted(pairs, key=lambda pair: pair[0])

    return get


def _leaf_converter(field: FieldDescriptor, of_enum: _OfEnum) -> _Getter:
    if field.enum_type is not None:
        return of_enum(field.enum_type)
    if field.message_type is not None:
        return _serialise
    if field.type == FieldDescriptor.TYPE_STRING:
        return _text
    return lambda value: value


def _enum_converter(enum: EnumDescriptor) -> _Getter:
    names = _names_by_number(enum)
    return lambda number: names.get(number) or str(number)


def _named(enum: EnumDescriptor) -> _Getter:
    names = _names_by_number(enum)

    def convert(number: int) -> str:
        try:
            return names[number]
        except KeyError:
            text = f"{number} is no value of the enum {enum.full_name}, and an index or a check needs its name"
            details = {"enum": enum.full_name, "number": str(number)}
            raise F1Error(
                Code.FAILED_PRECONDITION, f"{text}: add it to the enum, or write one that it has", details=details
            ) from None

    return convert


def _names_by_number(enum: EnumDescriptor) -> dict[int, str]:
    names: dict[int, str] = {}
    for value in enum.values:
        names.setdefault(value.number, value.name)
    return dict(sorted(names.items()))


def _text(value: Any) -> str:
    # The projected type does not check text when it parses; text that is no UTF-8 then reads as bytes (the key of a map
    # raises UnicodeDecodeError instead).
    if not isinstance(value, str):
        raise F1Error(Code.DATA_CORRUPTION, f"text in a message is no UTF-8: {value!r}")
    return value


def _pool_of(files: Iterable[FileDescriptorProto]) -> DescriptorPool:
    pool = DescriptorPool()
    for file in files:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


def _message_names(file: FileDescriptorProto) -> list[str]:
    names: list[str] = []

    def visit(prefix: str, types: Iterable[DescriptorProto]) -> None:
        for kind in types:
            if not kind.options.map_entry:
                names.append(prefix + kind.name)
                visit(f"{prefix}{kind.name}.", kind.nested_type)

    visit(f"{file.package}." if file.package else "", file.message_type)
    return names


def _parse(message: Message, data: bytes, name: str) -> None:
    try:
        message.ParseFromString(data)
    except (DecodeError, RecursionError) as error:
        raise F1Error(Code.DATA_CORRUPTION, f"the bytes are no message of type {name}: {error}") from error


def _serialise(message: Message) -> bytes:
    return message.SerializePartialToString(deterministic=True)


def _hint(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""
