"""Pieces of a range for the group that it moves to, as stored: rows with all their versions, and records.

A piece is bounded in bytes and in the items that are looked at, so that a turn stays short.
"""

from collections.abc import Iterator

from f1common.errors import check
from spanstore.engine import keyspace
from spanstore.engine.base import Reader
from spanstore.engine.keyspace import PREFIX_BYTES, Subspace
from spanstore.group.move_requests import Export, ExportReply, Item, checksum_of
from spanstore.mvcc.versions import decode_version
from spanstore.txn import outcomes
from spanstore.txn.commands import CopyStage

MAX_BYTES = 256 << 10
MAX_ITEMS = 20_000
"""Items that are looked at for one piece."""

ROWS = (CopyStage.ROWS, CopyStage.LAST_ROWS)
OUTCOMES = (CopyStage.OUTCOMES, CopyStage.LAST_OUTCOMES)
LAST = (CopyStage.LAST_ROWS, CopyStage.LAST_OUTCOMES, CopyStage.LAST_FINISHED)


def export(reader: Reader, group: int, request: Export, timestamp: int) -> ExportReply:
    """Return the next piece from a view in which everything at or below ``timestamp`` is applied.

    Whatever is newer than ``request.since_ts`` is in it, versions above ``timestamp`` too. Raises DATA_CORRUPTION.
    """
    items: list[Item] = []
    size = 0
    for looked_at, (key, value) in enumerate(_stored(reader, group, request)):
        if size >= MAX_BYTES or looked_at >= MAX_ITEMS:
            return ExportReply(timestamp, tuple(items), key[PREFIX_BYTES:], False, checksum_of(items))
        if _is_new(key, value, request):
            items.append((key[PREFIX_BYTES:], value))
            size += len(key) + len(value)
    return ExportReply(timestamp, tuple(items), b"", True, checksum_of(items))


def _stored(reader: Reader, group: int, request: Export) -> Iterator[tuple[bytes, bytes]]:
    if request.stage is CopyStage.LAST_FINISHED:
        start, end = keyspace.subspace_range(group, Subspace.FINISHED)
        return reader.scan(start + request.resume, end)
    space = Subspace.DATA if request.stage in ROWS else Subspace.OUTCOME
    prefix = keyspace.prefix(group, space)
    return reader.scan(prefix + max(request.start, request.resume), prefix + request.end)


def _is_new(key: bytes, value: bytes, request: Export) -> bool:
    if request.stage in ROWS:
        # Cheaper than decoding it: most versions of a later pass are old.
        if (1 << 64) - 1 - int.from_bytes(key[-8:], "big") <= request.since_ts:
            return False
        decode_version(key, value)
        return True
    if request.stage in OUTCOMES:
        return outcomes.decode_outcome(value).decided_ts > request.since_ts
    check(request.stage is CopyStage.LAST_FINISHED, "there is nothing to export in this stage")
    return outcomes.decode_finished(value).deadline >= request.since_ts


def leftovers(reader: Reader, group: int, start: bytes, end: bytes, max_items: int) -> tuple[bytes, bytes] | None:
    """Return borders, as stored, of the first leftovers in ``[start, end)``, about ``max_items``; None: there are none.

    Both kinds are bounded, because either may be the greater part.
    """
    found = False
    high = end
    for space in (Subspace.DATA, Subspace.OUTCOME):
        prefix = keyspace.prefix(group, space)
        for number, (key, _) in enumerate(reader.scan(prefix + start, prefix + high)):
            found = True
            if number >= max_items:
                high = key[PREFIX_BYTES:]
                break
    return (start, high) if found else None
