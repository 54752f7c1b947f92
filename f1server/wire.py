"""Protobuf at the edge of the f1server: logical writes, read sets and reads as values."""

from collections.abc import Iterable, Sequence

from f1common.encoding.row import decode_row, encode_row
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from f1server.rows.values import Value
from f1server.rows.writes import LogicalWrite, WriteKind
from f1server.txn import nosql
from f1server.txn.committer import CommitName
from f1server.txn.readset import ReadSetEntry

_LAST_TIMESTAMP = 1 << 55


def writes_from_pb(messages: Iterable[pb.LogicalWrite]) -> list[LogicalWrite]:
    """Return the logical writes in messages. Raises INVALID_ARGUMENT for what cannot be read."""
    return [_write_from_pb(m) for m in messages]


def _write_from_pb(m: pb.LogicalWrite) -> LogicalWrite:
    try:
        kind = WriteKind(m.kind)
    except ValueError:
        raise F1Error(Code.INVALID_ARGUMENT, f"{m.kind} is no kind of write") from None
    return LogicalWrite(
        kind=kind,
        table=m.table,
        key=_values(m.key),
        columns=_values(m.columns),
        must_exist=m.must_exist,
        schema_version=m.schema_version,
        defaults=_values(m.defaults),
        key_order=tuple(m.key_order),
    )


def write_to_pb(write: LogicalWrite) -> pb.LogicalWrite:
    """Return the message of a logical write."""
    return pb.LogicalWrite(
        kind=pb.LogicalWrite.Kind.Name(write.kind),
        table=write.table,
        key=encode_row(dict(write.key)),
        columns=encode_row(dict(write.columns)) if write.columns else b"",
        must_exist=write.must_exist,
        schema_version=write.schema_version,
        defaults=encode_row(dict(write.defaults)) if write.defaults else b"",
        key_order=write.key_order,
    )


def _values(data: bytes) -> dict[int, Value]:
    if not data:
        return {}
    try:
        return decode_row(data)  # type: ignore[return-value]  # lock cells are refused when the write is prepared
    except F1Error as error:
        raise F1Error(Code.INVALID_ARGUMENT, f"the values of a write cannot be read: {error.message}") from error


def params_from_pb(data: bytes) -> list[Value]:
    """Return the parameters of a statement, in order. Raises INVALID_ARGUMENT."""
    cells = _values(data)
    if any(number > len(cells) for number in cells):
        raise F1Error(Code.INVALID_ARGUMENT, "parameters are numbered from 1 on, without a gap")
    return [cells[number] for number in range(1, len(cells) + 1)]


def read_set_from_pb(messages: Iterable[pb.ReadSetEntry]) -> list[ReadSetEntry]:
    """Return the read set in messages."""
    return [ReadSetEntry(m.key, m.ts, m.table, tuple(m.columns)) for m in messages]


def read_set_to_pb(entries: Iterable[ReadSetEntry]) -> list[pb.ReadSetEntry]:
    """Return the messages of a read set."""
    return [pb.ReadSetEntry(key=e.key, ts=e.ts, table=e.table, columns=e.columns) for e in entries]


def is_point(request: pb.Read, reads: Sequence[nosql.TableRead]) -> bool:
    """Tell whether this is a strong read of one row outside of a transaction."""
    return not (request.timestamp or request.txn.ByteSize()) and len(reads) == 1 and nosql.is_point(reads[0])


def table_read_from_pb(message: pb.TableRead) -> nosql.TableRead:
    """Return what to read of one table."""
    keys = message.keys
    return nosql.TableRead(
        table=message.table,
        columns=tuple(message.columns),
        keys=tuple(keys.keys),
        prefixes=tuple(keys.prefixes),
        ranges=tuple((r.start, r.end) for r in keys.ranges),
        everything=keys.all,
        index=message.index,
        limit=message.limit,
        reverse=message.reverse,
        exclusive=message.exclusive,
        key_columns=tuple(message.key_columns),
    )


def check_timestamp(timestamp: int) -> None:
    """Raise INVALID_ARGUMENT for what is no timestamp."""
    if not 0 <= timestamp < _LAST_TIMESTAMP:
        raise F1Error(Code.INVALID_ARGUMENT, f"{timestamp} is no timestamp in microseconds since 1970")


def commit_name_from_pb(execute: pb.Execute) -> CommitName | None:
    """Return what names the commit that comes with a statement. Raises INVALID_ARGUMENT."""
    if not execute.commit_id:
        return None
    txn = execute.txn
    if txn.kind != pb.OPTIMISTIC or txn.writes or txn.read_ts or execute.timestamp:
        text = "a commit comes with a statement that is all of an optimistic transaction"
        raise F1Error(Code.INVALID_ARGUMENT, text)
    require_commit_name(execute.commit_id, execute.created_ts)
    check_timestamp(execute.priority_ts)
    return CommitName(execute.commit_id, execute.created_ts, execute.priority_ts)


def require_commit_name(commit_id: bytes, created_ts: int) -> None:
    """Raise INVALID_ARGUMENT for what is no name of a commit."""
    check_timestamp(created_ts)
    if not 8 <= len(commit_id) <= 16:
        raise F1Error(Code.INVALID_ARGUMENT, "a commit id has 8 to 16 bytes")
