"""What the client knows of a database's schema: names, ids and types of columns. The servers have the last word.

Writes name their columns by id and rows by key, so the library needs the schema to make them. It keeps one copy for
each database, and reads it again when it meets a name that it does not know or a server says that a column is gone.
"""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from google.protobuf.message import DecodeError, Message

from f1.values import to_key_value
from f1common.encoding.proto import ProtoRegistry
from f1common.encoding.tuple import Value, encode
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from f1common.pb import schema_pb2


@dataclass(frozen=True, slots=True)
class Column:
    """A column: ``kind`` is BOOL, INT64, DOUBLE, NUMERIC, STRING, BYTES, DATE, TIMESTAMP or PROTO."""

    id: int
    name: str
    kind: str
    proto: str = ""
    not_null: bool = False
    hidden: bool = False
    default_sql: str = ""
    scale: int | None = None

    @property
    def type(self) -> str:
        """The type as people write it."""
        return f"PROTO<{self.proto}>" if self.kind == "PROTO" else self.kind


@dataclass(frozen=True)
class Index:
    """A secondary index: the columns of its key in order; proto fields are columns named ``Column.path.to.field``."""

    name: str
    columns: tuple[Column, ...]
    unique: bool
    local: bool


@dataclass(frozen=True)
class Table:
    """A table as readers see it. ``parent`` is the name of the table that it is interleaved in, or empty."""

    name: str
    columns: tuple[Column, ...]
    key: tuple[Column, ...]
    parent: str
    indexes: tuple[Index, ...]

    @cached_property
    def by_name(self) -> Mapping[str, Column]:
        """Columns by lower-case name."""
        return {column.name.lower(): column for column in self.columns}

    def column(self, name: str) -> Column:
        """Return a column. Raises F1Error NOT_FOUND."""
        found = self.by_name.get(name.lower())
        if found is None:
            raise unknown("column", f"{self.name}.{name}", name, [c.name for c in self.columns])
        return found

    def index(self, name: str) -> Index:
        """Return an index. Raises F1Error NOT_FOUND."""
        for found in self.indexes:
            if found.name.lower() == name.lower():
                return found
        raise unknown("index", f"{name} of {self.name}", name, [i.name for i in self.indexes])

    def key_values(self, key: object, *, columns: Sequence[Column] = (), partial: bool = False) -> list[Value]:
        """Return the values of a key: a tuple or list, a mapping by column name, or one value by itself.

        ``columns`` are those of the key, by default of the primary key; ``partial`` allows a prefix. Raises F1Error
        INVALID_ARGUMENT, NOT_FOUND.
        """
        columns = columns or self.key
        if isinstance(key, Mapping):
            given = {self.column(str(name)).id: value for name, value in key.items()}
            values = []
            for column in columns:
                if column.id not in given:
                    break
                values.append(given.pop(column.id))
            if given:
                raise self._wrong_key(key, columns)
        elif isinstance(key, tuple | list):
            values = list(key)
        else:
            values = [key]
        if len(values) > len(columns) or (len(values) < len(columns) and not partial):
            raise self._wrong_key(key, columns)
        return [
            to_key_value(column.kind, value, f"{self.name}.{column.name}")
            for column, value in zip(columns, values, strict=False)
        ]

    def encode_key(self, key: object, *, columns: Sequence[Column] = (), partial: bool = False) -> bytes:
        """Return the tuple of a key as it travels. Errors as for :meth:`key_values`."""
        return encode(self.key_values(key, columns=columns, partial=partial))

    def _wrong_key(self, key: object, columns: Sequence[Column]) -> F1Error:
        names = ", ".join(column.name for column in columns)
        return F1Error(Code.INVALID_ARGUMENT, f"a key of {self.name} is ({names}), not {key!r}")


class Metadata:
    """One version of one database's schema, as it is now or as a snapshot is read with it (``of_the_past``)."""

    def __init__(self, reply: pb.ShowSchemaReply, *, of_the_past: bool = False) -> None:
        """Take a server's answer. Raises F1Error DATA_CORRUPTION."""
        try:
            message = schema_pb2.Schema.FromString(reply.schema)
        except DecodeError as error:
            raise F1Error(Code.DATA_CORRUPTION, f"the server's schema cannot be read: {error}") from error
        self.version = reply.version
        self.since = reply.since
        """From when on, in microseconds since 1970, snapshots are read with it; 0: always, for older servers."""
        self.of_the_past = of_the_past
        self.descriptor_set = reply.descriptor_set or message.descriptor_set
        names = {table.id: table.name for table in message.tables}
        public = [table for table in message.tables if table.state == schema_pb2.PUBLIC]
        self.tables: tuple[Table, ...] = tuple(_table(table, names) for table in public)
        self.views: tuple[str, ...] = tuple(view.name for view in message.views)
        self._by_name = {table.name.lower(): table for table in self.tables}

    def table(self, name: str) -> Table:
        """Return a table. Raises F1Error NOT_FOUND."""
        found = self._by_name.get(name.lower())
        if found is None:
            raise unknown("table", name, name, [table.name for table in self.tables])
        return found

    @cached_property
    def protos(self) -> ProtoRegistry:
        """The message types of the proto columns."""
        return ProtoRegistry(self.descriptor_set)

    def message_class(self, name: str) -> type[Message]:
        """Return the class of a message type of the schema. Raises F1Error NOT_FOUND."""
        return self.protos.message_class(name)


def _table(message: schema_pb2.Table, names: Mapping[int, str]) -> Table:
    columns = {c.id: _column(c) for c in message.columns if c.state == schema_pb2.PUBLIC}
    indexes = tuple(
        Index(
            index.name,
            tuple(_part(columns[p.column_id], p) for p in index.parts if p.column_id in columns),
            index.unique,
            index.local,
        )
        for index in message.indexes
        if index.state == schema_pb2.PUBLIC
    )
    return Table(
        message.name,
        tuple(columns.values()),
        tuple(columns[i] for i in message.key_column_ids if i in columns),
        names.get(message.parent_id, ""),
        indexes,
    )


def _part(column: Column, part: schema_pb2.IndexPart) -> Column:
    # The server knows the type of a field inside a message: its key values travel as they are.
    return replace(column, name=".".join([column.name, *part.path]), kind="") if part.path else column


def _column(message: schema_pb2.Column) -> Column:
    return Column(
        message.id,
        message.name,
        message.type.kind,
        message.type.proto,
        message.not_null,
        message.hidden,
        message.default_sql,
        message.type.scale if message.type.precision else None,
    )


def unknown(what: str, shown: str, name: str, known: Sequence[str]) -> F1Error:
    """Return the error for a name that is not there, with a near miss if there is one."""
    close = difflib.get_close_matches(name.lower(), [k.lower() for k in known], n=1)
    hint = next((f"; did you mean {k}?" for k in known if close and k.lower() == close[0]), "")
    return F1Error(Code.NOT_FOUND, f"there is no {what} {shown}{hint}", details={what: name})
