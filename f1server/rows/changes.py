"""Change batches: what one transaction changed under one root row, written with it (F1 section 6).

A batch is a row under its root: the key holds the commit timestamp, which nobody knows while the batch is written
(eight bytes are left for it), and the commit id, since two transactions may touch one root at the same timestamp. The
timestamp and the root are not repeated in the value; :mod:`f1server.history` puts them in when it reads.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from functools import cache

import msgspec

from f1common.encoding import tuple as tuples
from f1common.encoding.row import Cell, decode_row, encode_row
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from f1server.catalog.schema import ElementState, Schema, Table
from f1server.rows.keys import check_key_length
from f1server.rows.layout import HISTORY_ID, layout
from f1server.rows.values import Row, Value, same
from spanstore.client import Write

BATCH_CELL = 1
"""The one cell of a stored batch: the bytes of a f1.db.ChangeBatch."""
MAX_LINKS = 16
"""How many other batches of its transaction each batch names."""


class ChangeKind(IntEnum):
    """What became of a row; numbered as f1.db.Change.Kind."""

    INSERT = 0
    UPDATE = 1
    DELETE = 2


class Change(msgspec.Struct, frozen=True, gc=False):
    """One row's change by one transaction: its first before, its last after.

    ``before`` is empty for an INSERT, ``after`` for a DELETE; otherwise both hold the columns that changed, by id, NULL
    included. An INSERT has all columns that are not NULL, as has a DELETE; the key's are in ``key`` alone.
    """

    kind: ChangeKind
    table: str
    table_id: int
    key: tuple[Value, ...]
    before: Row = {}
    after: Row = {}
    columns: tuple[str, ...] = ()


class ChangeBatch(msgspec.Struct, frozen=True, gc=False):
    """All changes of one transaction under one root row, in key order: parents before children.

    ``other_roots`` are the storage keys of the root rows of the transaction's other batches, which have the same
    ``commit_ts`` and ``commit_id``; in a transaction with more than :data:`MAX_LINKS` of them, only its first batch in
    key order names all, and the others name that one: a bulk load would write more links than rows. ``roots`` is the
    number of the transaction's batches. ``commit_ts`` is 0 until the batch has been read back.
    """

    root_table: str
    root_key: tuple[Value, ...]
    changes: tuple[Change, ...]
    other_roots: tuple[bytes, ...] = ()
    commit_ts: int = 0
    commit_id: bytes = b""
    roots: int = 1


def change_of(table: Table, key: tuple[Value, ...], before: Row | None, after: Row | None) -> Change | None:
    """Return the change from one image of a row to another; None if nothing changed that is tracked."""
    if table.untracked or (before is None and after is None):
        return None
    tracked = tracked_ids(table)
    old: Row = {}
    new: Row = {}
    if before is None or after is None:
        kind = ChangeKind.INSERT if before is None else ChangeKind.DELETE
        if before is not None:
            old = {i: v for i in tracked if (v := before.get(i)) is not None}
        if after is not None:
            new = {i: v for i in tracked if (v := after.get(i)) is not None}
    else:
        kind = ChangeKind.UPDATE
        changed = [i for i in tracked if not same(before.get(i), after.get(i))]
        if not changed:
            return None
        old = {i: before.get(i) for i in changed}
        new = {i: after.get(i) for i in changed}
    names = tuple(table.by_id[i].name for i in tracked if i in old or i in new)
    return Change(kind, table.name, table.id, key, old, new, names)


def tracked_ids(table: Table) -> tuple[int, ...]:
    """Return the ids of the columns whose changes are kept, without the key's, in the order of the table."""
    kept: dict[str, tuple[int, ...]] = vars(table)
    found = kept.get("_tracked")
    if found is None:
        found = tuple(
            c.id
            for c in table.columns
            if not c.untracked
            and c.id not in table.key_column_ids
            and (c.state >= ElementState.WRITE_ONLY or c.returns)
        )
        kept["_tracked"] = found
    return found


def batches_of(schema: Schema, changes: Iterable[tuple[Table, Change]], commit_id: bytes) -> dict[bytes, ChangeBatch]:
    """Group changes, given in key order, into batches by the storage key of their root row."""
    grouped: dict[bytes, tuple[Table, tuple[Value, ...], list[Change]]] = {}
    for table, change in changes:
        where = layout(schema, table)
        root_key = change.key[: where.root_width]
        storage_key = layout(schema, where.root).row_key_again(root_key)
        grouped.setdefault(storage_key, (where.root, root_key, []))[2].append(change)
    roots = tuple(sorted(grouped))
    links = links_of(roots)
    return {
        storage_key: ChangeBatch(
            root.name, root_key, tuple(found), links[storage_key], commit_id=commit_id, roots=len(roots)
        )
        for storage_key, (root, root_key, found) in sorted(grouped.items())
    }


def links_of(roots: tuple[bytes, ...]) -> dict[bytes, tuple[bytes, ...]]:
    """Return, for each of a transaction's root rows, those that its batch names."""
    if len(roots) - 1 <= MAX_LINKS:
        return {root: tuple(other for other in roots if other != root) for root in roots}
    return {**dict.fromkeys(roots, roots[:1]), roots[0]: roots[1:]}


def batch_prefix(root_row_key: bytes) -> bytes:
    """Return what the keys of all batches of a root begin with; ``root_row_key`` is the root row's storage key."""
    return root_row_key + tuples.encode((HISTORY_ID,))


def batch_write(root_row_key: bytes, batch: ChangeBatch) -> Write:
    """Return the storage write of a batch, with the place for the commit timestamp in its key."""
    key, offset = batch_key(root_row_key, batch.commit_id, batch.root_table)
    return Write(key, encode_row({BATCH_CELL: encode_batch(batch)}), key_offset=offset)


def batch_key(root_row_key: bytes, commit_id: bytes, root_table: str) -> tuple[bytes, int]:
    """Return the key of a batch, and where in it the commit timestamp goes. Raises KEY_TOO_LONG."""
    check_batch_key(root_row_key, commit_id, root_table)
    tail, offset = batch_tail(commit_id)
    return root_row_key + tail, len(root_row_key) + offset


def check_batch_key(root_row_key: bytes, commit_id: bytes, table: str) -> None:
    """Raise KEY_TOO_LONG if a batch of this root could have too long a key, whatever id the transaction has drawn.

    Some bytes of an id take two in a key. A row that some ids leave no room for fails always, not now and then.
    """
    check_key_length(
        root_row_key + _longest_tail(len(commit_id)), f"a change of {table}, the transaction's id included,"
    )


@cache
def _longest_tail(id_bytes: int) -> bytes:
    return batch_tail(bytes(id_bytes))[0]


def batch_tail(commit_id: bytes) -> tuple[bytes, int]:
    """Return how the keys of all batches of a transaction end, and where in that the commit timestamp goes."""
    prefix = batch_prefix(b"")
    return prefix + tuples.timestamp_placeholder() + tuples.encode((commit_id,)), len(prefix) + 1


def encode_batch(batch: ChangeBatch) -> bytes:
    """Return the bytes of the f1.db.ChangeBatch, without what the key says."""
    message = pb.ChangeBatch(root_table=batch.root_table, other_roots=batch.other_roots, roots=batch.roots)
    for change in batch.changes:
        message.changes.append(change_to_pb(change))
    return message.SerializeToString(deterministic=True)


def change_to_pb(change: Change) -> pb.Change:
    """Return the message of one change."""
    return pb.Change(
        kind=pb.Change.Kind.Name(change.kind.value),
        table=change.table,
        table_id=change.table_id,
        key=tuples.encode(change.key),
        before=encode_row(change.before) if change.kind is not ChangeKind.INSERT else b"",
        after=encode_row(change.after) if change.kind is not ChangeKind.DELETE else b"",
        columns=change.columns,
    )


def change_from_pb(message: pb.Change) -> Change:
    """Read one change. Raises DATA_CORRUPTION."""
    return Change(
        ChangeKind(message.kind),
        message.table,
        message.table_id,
        tuples.decode(message.key),
        _values(decode_row(message.before)) if message.before else {},
        _values(decode_row(message.after)) if message.after else {},
        tuple(message.columns),
    )


def _values(cells: Mapping[int, Cell]) -> Row:
    return dict(cells)  # type: ignore[arg-type]


def decode_batch(root_key: tuple[Value, ...], commit_ts: int, commit_id: bytes, value: bytes) -> ChangeBatch:
    """Read the value of a batch whose key was split already. Raises DATA_CORRUPTION."""
    data = decode_row(value).get(BATCH_CELL)
    try:
        message = pb.ChangeBatch.FromString(data if isinstance(data, bytes) else b"\xff")
        changes = tuple(change_from_pb(change) for change in message.changes)
    except Exception as error:
        raise F1Error(Code.DATA_CORRUPTION, f"a change batch of {commit_ts} cannot be read: {error}") from error
    others = tuple(message.other_roots)
    roots = message.roots or len(others) + 1
    return ChangeBatch(message.root_table, root_key, changes, others, commit_ts, commit_id, roots)


__all__ = [
    "BATCH_CELL",
    "MAX_LINKS",
    "Change",
    "ChangeBatch",
    "ChangeKind",
    "batch_key",
    "batch_prefix",
    "batch_tail",
    "check_batch_key",
    "batch_write",
    "batches_of",
    "change_from_pb",
    "change_of",
    "change_to_pb",
    "decode_batch",
    "encode_batch",
    "links_of",
    "tracked_ids",
]
