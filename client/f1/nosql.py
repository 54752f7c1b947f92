"""Reads and writes by key (F1 section 7.2): Python values in, requests out."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from f1.metadata import Column, Metadata, Table
from f1.session import Session
from f1.values import to_cell
from f1common.encoding.row import Cell, encode_row
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from f1common.pb.types_pb2 import KeyRange

# No element of a tuple begins with it.
_AFTER_ALL = b"\xff"
_OF_THE_SCHEMA = frozenset({Code.NOT_FOUND, Code.INVALID_ARGUMENT, Code.OUT_OF_RANGE})
"""What is said of names, keys and values that do not fit the schema as it is known."""

T = TypeVar("T")

Key = Any
"""One key: a tuple of its values, a mapping by column name, or the value itself if it is one column."""
RowLike = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Read:
    """A read of one table: the rows with these ``keys``, those whose keys begin with one of ``prefixes``, and those in
    ``ranges`` (pairs of start and end, end excluded, None: open). Nothing of the three: all rows.

    ``columns`` None: all. ``index``: keys are of this index and rows come in its order. ``exclusive``: a pessimistic
    transaction locks them for writing.
    """

    table: str
    keys: Sequence[Key] | None = None
    columns: Sequence[str] | None = None
    prefixes: Sequence[Key] | None = None
    ranges: Sequence[tuple[Key, Key]] | None = None
    index: str | None = None
    limit: int = 0
    reverse: bool = False
    exclusive: bool = field(default=False)


def keys_of(keys: Any) -> list[Key]:
    """Return several keys as a list: a list, set or iterator is several keys, anything else is one."""
    if isinstance(keys, list | set | frozenset | range) or (
        isinstance(keys, Iterable) and not isinstance(keys, str | bytes | bytearray | tuple | Mapping)
    ):
        return list(keys)
    return [keys]


async def with_metadata(session: Session, work: Callable[[Metadata], T]) -> T:
    """Do what needs the schema; once more with a fresh one if a name is not known, or a key or value does not fit.

    Raises F1Error NOT_FOUND, INVALID_ARGUMENT, OUT_OF_RANGE.
    """
    try:
        return work(await session.metadata())
    except F1Error as error:
        if error.code not in _OF_THE_SCHEMA:
            raise
    return work(await session.metadata(fresh=True))


async def read_many(
    session: Session, reads: Sequence[Read], send: Callable[[Sequence[pb.TableRead]], Awaitable[pb.ReadReply]]
) -> pb.ReadReply:
    """Read rows by keys as the schema is that the server has; ``send`` asks it, and may be called more than once.

    A key travels as a tuple, in an order that changes when a table moves or an index is made anew: those that were
    made by an older schema would be the keys of other rows. Raises F1Error as :func:`with_metadata` and ``send``.
    """

    def made(metadata: Metadata) -> tuple[int, list[pb.TableRead]]:
        return metadata.version, [table_read(metadata, read) for read in reads]

    version, messages = await with_metadata(session, made)
    while True:
        try:
            reply = await send(messages)
        except F1Error as error:
            session.heed(error)
            raise
        if reply.schema_version <= version:
            return reply
        await session.metadata_since(reply.schema_version)
        before = messages
        version, messages = await with_metadata(session, made)
        if messages == before:
            return reply


async def read_snapshot(
    session: Session,
    reads: Sequence[Read],
    send: Callable[[Sequence[pb.TableRead], int], Awaitable[pb.ReadReply]],
    timestamp: int,
) -> pb.ReadReply:
    """Read rows by keys as of ``timestamp`` (0: the server says which), with the names and keys that tables had then.

    ``send`` asks a server to read as of a time, and may be called twice. Raises F1Error as :func:`with_metadata` and
    ``send``.
    """

    def made(metadata: Metadata) -> list[pb.TableRead]:
        return [table_read(metadata, read) for read in reads]

    metadata = await session.metadata_at(timestamp) if timestamp else await session.metadata()
    try:
        messages = made(metadata)
    except F1Error as error:
        if metadata.of_the_past or error.code not in _OF_THE_SCHEMA:
            raise
        fresh = session.metadata_at(timestamp, fresh=True) if timestamp else session.metadata(fresh=True)
        metadata = await fresh
        messages = made(metadata)
    failed: F1Error | None = None
    try:
        reply = await send(messages, timestamp)
        timestamp = reply.read_ts
        if metadata.of_the_past or (metadata.since <= timestamp and reply.schema_version <= metadata.version):
            return reply
    except F1Error as error:
        if metadata.of_the_past or not timestamp or not _is_of_the_schema(error):
            raise
        failed = error
    # The schema has changed, and it was not the one of that time by which the request was made.
    again = made(await session.metadata_at(timestamp, fresh=True))
    if again != messages:
        return await send(again, timestamp)
    if failed is not None:
        raise failed
    return reply


def _is_of_the_schema(error: F1Error) -> bool:
    return error.code in _OF_THE_SCHEMA or error.details.get("conflict") == "schema"


def table_read(metadata: Metadata, read: Read) -> pb.TableRead:
    """Return the message of a read. Raises F1Error NOT_FOUND, INVALID_ARGUMENT."""
    table = metadata.table(read.table)
    message = pb.TableRead(table=table.name, limit=read.limit, reverse=read.reverse, exclusive=read.exclusive)
    message.columns.extend(table.column(name).name for name in read.columns or ())
    columns: Sequence[Column] = ()
    if read.index is None:
        message.key_columns.extend(column.id for column in table.key)
    else:
        index = table.index(read.index)
        message.index = index.name
        columns = index.columns
    whole = not columns
    for key in read.keys or ():
        if whole:
            message.keys.keys.append(table.encode_key(key))
        else:
            # A key of an index may stand for several rows.
            message.keys.prefixes.append(table.encode_key(key, columns=columns, partial=True))
    for prefix in read.prefixes or ():
        message.keys.prefixes.append(table.encode_key(prefix, columns=columns, partial=True))
    for start, end in read.ranges or ():
        message.keys.ranges.append(
            KeyRange(
                start=b"" if start is None else table.encode_key(start, columns=columns, partial=True),
                end=_AFTER_ALL if end is None else table.encode_key(end, columns=columns, partial=True),
            )
        )
    message.keys.all = read.keys is None and read.prefixes is None and read.ranges is None
    return message


def insert(metadata: Metadata, name: str, row: RowLike) -> pb.LogicalWrite:
    """Return an INSERT. Columns that are left out get their defaults."""
    return _write(metadata, pb.LogicalWrite.INSERT, name, row, whole_key=False)


def upsert(metadata: Metadata, name: str, row: RowLike) -> pb.LogicalWrite:
    """Return a write that inserts the row, or updates these columns if there is one with its key."""
    return _write(metadata, pb.LogicalWrite.UPSERT, name, row)


def update(metadata: Metadata, name: str, row: RowLike) -> pb.LogicalWrite:
    """Return an UPDATE of the row with the key in ``row``; it must exist."""
    write = _write(metadata, pb.LogicalWrite.UPDATE, name, row)
    write.must_exist = True
    return write


def delete(metadata: Metadata, name: str, key: Key, *, must_exist: bool = False) -> pb.LogicalWrite:
    """Return a DELETE of the row with a key."""
    table = metadata.table(name)
    values = table.key_values(key)
    cells: dict[int, Cell] = {column.id: value for column, value in zip(table.key, values, strict=True)}
    return pb.LogicalWrite(
        kind=pb.LogicalWrite.DELETE,
        table=table.name,
        key=encode_row(cells),
        must_exist=must_exist,
        schema_version=metadata.version,
        key_order=() if isinstance(key, Mapping) or len(cells) == 1 else list(cells),
    )


def _write(
    metadata: Metadata, kind: pb.LogicalWrite.Kind, name: str, row: RowLike, *, whole_key: bool = True
) -> pb.LogicalWrite:
    table = metadata.table(name)
    key_ids = {column.id for column in table.key}
    key: dict[int, Cell] = {}
    columns: dict[int, Cell] = {}
    for column_name, value in row.items():
        column = table.column(column_name)
        cell = to_cell(value, f"{table.name}.{column.name}")
        (key if column.id in key_ids else columns)[column.id] = cell
    _check_key(table, key, whole_key)
    return pb.LogicalWrite(
        kind=kind,
        table=table.name,
        key=encode_row(key),
        columns=encode_row(columns) if columns else b"",
        schema_version=metadata.version,
    )


def _check_key(table: Table, key: Mapping[int, Cell], whole: bool) -> None:
    missing = [c.name for c in table.key if c.id not in key and (whole or not (c.hidden or c.default_sql))]
    if missing:
        raise F1Error(
            Code.INVALID_ARGUMENT,
            f"a row of {table.name} needs its whole key; {', '.join(missing)} is missing",
            details={"table": table.name, "column": missing[0]},
        )
