"""The state of a group on its way to a replica that the log cannot help: what is read, and what is written.

Pure: it reads through a :class:`~spanstore.engine.base.Reader` and adds to a batch. :mod:`spanstore.runtime.transfer`
moves it and says why that is safe.

A checkpoint has a *base*, the log entry up to which its source had applied when it read the records:

* the *header*: the applied record and the log entry at the base;
* the *records*: what the log made of everything but rows, all of it as of the base, hence read in one view;
* the *rows*: all versions in the order of their keys, read in as many views as it takes, none older than the base. The
  newest of those views is as of the index ``whole_from``: a replica serves nothing before it has applied that much.

Stored keys are given without the two bytes of the group's number, so that they begin with the byte of the subspace.
"""

from collections.abc import Iterable, Iterator
from enum import IntEnum
from itertools import islice
from typing import TypeVar
from zlib import crc32

import msgspec

from f1common.errors import Code, F1Error
from spanstore.engine import keyspace
from spanstore.engine.base import Reader, WriteBatch
from spanstore.engine.keyspace import Subspace
from spanstore.group.storage import (
    INSTALLING,
    WHOLE_FROM,
    Applied,
    decode_entry,
    load_applied,
    load_whole_from,
    put_applied,
)
from spanstore.mvcc.versions import decode_version

T = TypeVar("T")

Item = tuple[bytes, bytes]
"""(stored key without the group's number, value)"""

BASE = "installing_base"
LOCAL_META = frozenset({"replica", INSTALLING, BASE, WHOLE_FROM})
"""Names of a group's records that are about this replica, and no part of the state that all replicas share."""

RECORDS = (Subspace.META, Subspace.PREPARED, Subspace.OUTCOME, Subspace.FINISHED)
STATE = (Subspace.APPLIED, *RECORDS, Subspace.DATA)
"""Everything that the log makes; the others are the log itself and what the replica promised."""

_NUMBER_BYTES = 2
_DROP_KEYS = 1_000


class Part(IntEnum):
    """What a chunk of a checkpoint has."""

    HEADER = 0
    RECORDS = 1
    ROWS = 2
    END = 3


class Base(msgspec.Struct, frozen=True, array_like=True):
    """The header: the source's applied record, where its log begins, and the stored log entry at the applied index."""

    index: int
    max_ts: int
    digest: int
    first_index: int
    entry: bytes


class Stage(IntEnum):
    """How far an installation has come."""

    CLEARING = 0
    """The old state goes, and records that arrived without their end: nothing of them can be used."""
    ROWS = 1
    """The records are complete; rows follow."""


class Installing(msgspec.Struct, frozen=True, array_like=True):
    """Where an installation stands, written in one batch with each of its chunks. While it is there, nothing serves.

    ``had`` is what the replica had applied before, ``base`` the index that the records are as of (0 in CLEARING),
    ``after`` the stored key of the last row, ``seen`` the newest applied index of the views that rows were read in,
    ``size`` the bytes so far.
    """

    stage: Stage
    source: str
    had: int
    base: int = 0
    after: bytes = b""
    seen: int = 0
    size: int = 0


# ---------------------------------------------------------------------- reading


def load_installing(reader: Reader, group: int) -> Installing | None:
    """Return where the installation of a group stands, None if it is whole, or not there. Raises DATA_CORRUPTION."""
    data = reader.get(keyspace.meta_key(group, INSTALLING))
    return None if data is None else _decode(data, Installing, group)


def all_installing(reader: Reader) -> dict[int, Installing]:
    """Return the installations on this disk that are not complete, by group. Raises DATA_CORRUPTION."""
    found = ((group, load_installing(reader, group)) for group in _groups(reader))
    return {group: installing for group, installing in found if installing is not None}


def _groups(reader: Reader) -> Iterator[int]:
    group = 0
    while group <= keyspace.MAX_GROUP:
        item = reader.seek_first(keyspace.group_range(group)[0], keyspace.group_range(keyspace.MAX_GROUP)[1])
        if item is None:
            return
        group = int.from_bytes(item[0][:_NUMBER_BYTES], "big")
        yield group
        group += 1


def check_source(reader: Reader, group: int, base: int) -> int:
    """Return the applied index of a view from which a checkpoint with ``base`` may be read; 0 is any.

    Raises UNAVAILABLE (retryable) if the replica is itself being installed, has nothing, or is behind the base.
    """
    applied = load_applied(reader, group).index
    if load_installing(reader, group) is not None or applied < load_whole_from(reader, group):
        raise F1Error(Code.UNAVAILABLE, f"the replica of group {group} is itself being installed; ask another")
    if applied == 0 or applied < base:
        text = f"the replica of group {group} has applied {applied} only, {max(base, 1)} is needed; ask another"
        raise F1Error(Code.UNAVAILABLE, text)
    return applied


def read_base(reader: Reader, group: int) -> Base:
    """Return the header of a checkpoint read in this view. Raises UNAVAILABLE, DATA_CORRUPTION."""
    check_source(reader, group, 0)
    applied = load_applied(reader, group)
    entry = reader.get(keyspace.log_key(group, applied.index))
    first = reader.seek_first(*keyspace.log_range(group))
    if entry is None or first is None:
        # The log is never cut above what is applied, and the applied entry itself stays.
        raise F1Error(Code.DATA_CORRUPTION, f"group {group}: the log lacks entry {applied.index}, which was applied")
    decode_entry(group, applied.index, entry)
    return Base(applied.index, applied.max_ts, applied.digest, keyspace.log_index(first[0]), entry)


def read_records(reader: Reader, group: int) -> Iterator[Item]:
    """Yield everything but the rows, in order. All of it must come from the view that the header came from."""
    for space in RECORDS:
        for key, value in reader.scan(*keyspace.subspace_range(group, space)):
            if space is not Subspace.META or not is_local(key):
                yield key[_NUMBER_BYTES:], value


def is_local(key: bytes) -> bool:
    """Tell whether an engine key of the META subspace is a record about the replica, not of the group's state."""
    return key[keyspace.PREFIX_BYTES :].decode(errors="replace") in LOCAL_META


def read_rows(reader: Reader, group: int, after: bytes, max_bytes: int) -> list[Item]:
    """Return row versions above the stored key ``after``, in order, ``max_bytes`` of them or a little more."""
    start, end = keyspace.data_range(group)
    if after:
        start = _engine_key(group, after) + b"\x00"
    return next(in_chunks(((key[_NUMBER_BYTES:], value) for key, value in reader.scan(start, end)), max_bytes), [])


def in_chunks(items: Iterable[Item], max_bytes: int) -> Iterator[list[Item]]:
    """Yield ``items`` in lists that end with the item with which they reach ``max_bytes``."""
    chunk: list[Item] = []
    size = 0
    for item in items:
        chunk.append(item)
        size += len(item[0]) + len(item[1])
        if size >= max_bytes:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


# ---------------------------------------------------------------------- on the way


def encode_base(base: Base) -> bytes:
    """Return the payload of a header."""
    return msgspec.msgpack.encode(base)


def decode_base(data: bytes, group: int) -> Base:
    """Read the payload of a header. Raises DATA_CORRUPTION for what is none, or has a damaged log entry."""
    base = _decode(data, Base, group)
    decode_entry(group, base.index, base.entry)
    return base


def encode_items(items: list[Item]) -> bytes:
    """Return the payload of records or rows."""
    return msgspec.msgpack.encode(items)


def decode_items(data: bytes, group: int, part: Part) -> list[Item]:
    """Read the payload of records or rows, and check each row version. Raises DATA_CORRUPTION, naming the key."""
    items: list[Item] = _decode(data, list[Item], group)
    for key, value in items:
        space = key[0] if key else -1
        if part is Part.ROWS and space == Subspace.DATA:
            decode_version(_engine_key(group, key), value)
        elif part is not Part.RECORDS or space not in RECORDS:
            raise F1Error(Code.DATA_CORRUPTION, f"group {group}: key {key.hex()} has no place among {part.name}")
    return items


def checksum(payload: bytes, group: int, base: int, part: Part, applied: int, number: int) -> int:
    """Return the checksum of a chunk: of its payload, and of whose it is and where it belongs."""
    place = b"".join(n.to_bytes(8, "big") for n in (group, base, part, applied, number))
    return crc32(payload, crc32(place))


# ---------------------------------------------------------------------- writing


def put_installing(batch: WriteBatch, group: int, installing: Installing) -> None:
    """Write where an installation stands."""
    batch.put(keyspace.meta_key(group, INSTALLING), msgspec.msgpack.encode(installing))


def put_base(batch: WriteBatch, group: int, base: Base) -> None:
    """Keep the header until the installation is complete."""
    batch.put(keyspace.meta_key(group, BASE), encode_base(base))


def put_items(batch: WriteBatch, group: int, items: list[Item]) -> None:
    """Write records or rows."""
    for key, value in items:
        batch.put(_engine_key(group, key), value)


def drop_some(reader: Reader, group: int, batch: WriteBatch) -> bool:
    """Remove a piece of the old state; False, and nothing done, when there is none left.

    The log, what the replica promised and the records about the replica stay.
    """
    for space in STATE:
        found = (key for key, _ in reader.scan(*keyspace.subspace_range(group, space)))
        doomed = list(islice((key for key in found if space is not Subspace.META or not is_local(key)), _DROP_KEYS))
        if space is Subspace.META:
            for key in doomed:
                batch.delete(key)
        elif doomed:
            batch.delete_range(doomed[0], doomed[-1] + b"\x00")
        if doomed:
            return True
    return False


def check_base(reader: Reader, group: int, base: Base, had: int) -> None:
    """Refuse a base that would take this replica back. Raises UNAVAILABLE: another source, or later.

    What it had applied may have been chosen with its help, and its log has no entries from before its beginning.
    """
    first = reader.seek_first(*keyspace.log_range(group))
    lowest = max(had, keyspace.log_index(first[0]) if first is not None else 0)
    if base.index < lowest:
        text = f"the source's state of group {group} is as of {base.index}, this replica had come to {lowest} before"
        raise F1Error(Code.UNAVAILABLE, text)


def finish(reader: Reader, group: int, batch: WriteBatch, whole_from: int) -> int:
    """End an installation whose rows are all there: from this batch on the replica can be loaded. Return its index.

    If the log has the entry at the base, what it has above stays, since this replica may be one of the quorum that
    holds it. Otherwise nothing in it from the base on can ever be chosen, and it becomes that one entry.
    """
    data = reader.get(keyspace.meta_key(group, BASE))
    if data is None:
        raise F1Error(Code.DATA_CORRUPTION, f"group {group}: the header of the state that is being installed is gone")
    base = decode_base(data, group)
    held = reader.get(keyspace.log_key(group, base.index))
    ballot = decode_entry(group, base.index, base.entry).ballot
    if held is not None and decode_entry(group, base.index, held).ballot == ballot:
        batch.delete_range(keyspace.log_key(group, 0), keyspace.log_key(group, base.index))
    else:
        batch.delete_range(*keyspace.log_range(group))
        batch.put(keyspace.log_key(group, base.index), base.entry)
    put_applied(batch, group, Applied(base.index, base.max_ts, base.digest))
    batch.put(keyspace.meta_key(group, WHOLE_FROM), max(whole_from, base.index).to_bytes(8, "big"))
    batch.delete(keyspace.meta_key(group, BASE))
    batch.delete(keyspace.meta_key(group, INSTALLING))
    return base.index


def _engine_key(group: int, stored: bytes) -> bytes:
    return group.to_bytes(_NUMBER_BYTES, "big") + stored


def _decode(data: bytes, kind: type[T], group: int) -> T:
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        text = f"group {group}: a part of its state cannot be read: {error}"
        raise F1Error(Code.DATA_CORRUPTION, text, details={"group": str(group)}) from error
