"""Where change batches are, and how one is read."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from f1common.encoding import tuple as tuples
from f1common.encoding.values import Timestamp
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from f1server.catalog.schema import Schema, Table
from f1server.rows.changes import ChangeBatch, batch_prefix, change_from_pb, change_to_pb, decode_batch
from f1server.rows.keys import row_key
from f1server.rows.layout import HISTORY_ID, layout
from f1server.rows.values import Value


@dataclass(frozen=True, slots=True)
class BatchRef:
    """What the key of a batch says."""

    root_key: tuple[Value, ...]
    commit_ts: int
    commit_id: bytes


@dataclass(frozen=True, slots=True)
class HistoryShape:
    """How a scan over a whole hierarchy tells batches from rows: by the number of elements and one of them."""

    key_elements: int
    position: int
    element: bytes


def history_shape(schema: Schema, root: Table) -> HistoryShape:
    """Return the shape of the keys of the batches under ``root``, for a bulk scan of its table's span."""
    width = layout(schema, root).width
    return HistoryShape(width + 3, width, tuples.encode((HISTORY_ID,)))


def history_root(schema: Schema, name: str, after_ts: int) -> Table:
    """Return the root table by whose name its history is asked for, from ``after_ts`` on; 0: whatever there is.

    Raises NOT_FOUND, INVALID_ARGUMENT for a table that is none, SNAPSHOT_TOO_OLD if the table was moved since, so that
    what comes next is not where it was read until then, nor, perhaps, anywhere any more.
    """
    table = schema.table(name)
    again = f"read its rows as of {table.history_from} or later, and go on with the history of"
    if table.parent_id:
        root = schema.root(table).name
        # While servers may still write to its former form, nobody knows yet from when on nothing is missing.
        known = table.history_from >= table.readable_from > 0
        moved = f" since it was moved; {again} {root} from there" if known else ""
        raise F1Error(Code.INVALID_ARGUMENT, f"history is kept by root row; {table.name} lies in {root}{moved}")
    if 0 < after_ts < table.history_from:
        text = f"{table.name} was moved, and its changes of before went with its former history; {again} {table.name}"
        raise F1Error(Code.SNAPSHOT_TOO_OLD, f"{text} from there", details={"table": table.name})
    return table


def history_span(
    schema: Schema, root: Table, root_key: Sequence[Value], *, after_ts: int = -1, until_ts: int | None = None
) -> tuple[bytes, bytes]:
    """Return the storage range of a root's batches with ``after_ts`` < commit timestamp <= ``until_ts`` (None: all)."""
    prefix = batch_prefix(row_key(schema, root, root_key))
    start = prefix + tuples.encode((Timestamp(after_ts + 1),))
    if until_ts is None:
        return start, tuples.successor(prefix)
    return start, tuples.successor(prefix + tuples.encode((Timestamp(until_ts),)))


def split_batch_key(schema: Schema, root: Table, key: bytes) -> BatchRef | None:
    """Return what the key of a batch under ``root`` says; None if it is the key of something else."""
    elements = tuples.decode(key)
    width = layout(schema, root).width
    if len(elements) != width + 3 or elements[0] != root.id or elements[width] != HISTORY_ID:
        return None
    commit_ts, commit_id = elements[width + 1], elements[width + 2]
    if not isinstance(commit_ts, Timestamp) or not isinstance(commit_id, bytes):
        raise F1Error(Code.DATA_CORRUPTION, f"key {key.hex()} looks like a change batch's and is none")
    return BatchRef(elements[1:width], commit_ts.us, commit_id)


def read_batch(schema: Schema, root: Table, key: bytes, value: bytes) -> ChangeBatch | None:
    """Read a batch; None if the key is that of something else. Raises DATA_CORRUPTION."""
    found = split_batch_key(schema, root, key)
    if found is None:
        return None
    return decode_batch(found.root_key, found.commit_ts, found.commit_id, value)


def batch_to_pb(batch: ChangeBatch) -> pb.ChangeBatch:
    """Return the message of a whole batch, as clients get it: with its root, timestamp and commit id."""
    return pb.ChangeBatch(
        root_table=batch.root_table,
        root_key=tuples.encode(batch.root_key),
        commit_ts=batch.commit_ts,
        commit_id=batch.commit_id,
        changes=[change_to_pb(change) for change in batch.changes],
        other_roots=batch.other_roots,
        roots=batch.roots,
    )


def batch_from_pb(message: pb.ChangeBatch) -> ChangeBatch:
    """Read what :func:`batch_to_pb` made. Raises DATA_CORRUPTION."""
    return ChangeBatch(
        message.root_table,
        tuples.decode(message.root_key),
        tuple(change_from_pb(change) for change in message.changes),
        tuple(message.other_roots),
        message.commit_ts,
        message.commit_id,
        message.roots,
    )


def seen_by(batches: Iterable[ChangeBatch], sees: Callable[[int], bool]) -> list[ChangeBatch]:
    """Return batches with the changes of those tables, by id, that ``sees``; without any, none."""
    found = [replace(b, changes=tuple(c for c in b.changes if sees(c.table_id))) for b in batches]
    return [batch for batch in found if batch.changes]
