"""Reading rows at a timestamp from the view that the turn has open. Whether that may be done is decided before."""

from spanstore.engine.base import Reader
from spanstore.group.config import GroupConfig
from spanstore.group.exporting import export
from spanstore.group.move_requests import Export, ExportReply
from spanstore.group.requests import LockRead, RangeRead, Read, ReadReply, RowSet, Settle, SettleReply
from spanstore.group.state import ReplicatedState
from spanstore.mvcc.versions import Version, read_version, scan_versions
from spanstore.txn.spans import Span

NEWEST = (1 << 63) - 1
"""A timestamp above every version: what a transaction that holds locks reads at."""


def answer(
    reader: Reader, state: ReplicatedState, request: Read | Settle | Export, ts: int, config: GroupConfig
) -> ReadReply | SettleReply | ExportReply:
    """Answer a read whose timestamp, ``ts``, is readable in ``reader``, a view as of what ``state`` has applied.

    Raises DATA_CORRUPTION for a damaged version.
    """
    if isinstance(request, Settle):
        return SettleReply(ts, state.applied.index, state.holding.record.epoch)
    if isinstance(request, Export):
        return export(reader, state.group, request, ts)
    return read_rows(reader, state.group, request.keys, request.ranges, ts, config)


def read_rows(
    reader: Reader,
    group: int,
    keys: tuple[bytes, ...],
    ranges: tuple[RangeRead, ...],
    ts: int,
    config: GroupConfig,
) -> ReadReply:
    """Read ``keys`` and ``ranges`` at ``ts``. Raises DATA_CORRUPTION for a damaged version."""
    versions = [read_version(reader, group, key, ts) for key in keys]
    row_sets = [_read_range(reader, group, r, ts, config) for r in ranges]
    return ReadReply(ts, versions, row_sets)


def _read_range(reader: Reader, group: int, wanted: RangeRead, ts: int, config: GroupConfig) -> RowSet:
    limit = min(wanted.limit or config.read_max_rows, config.read_max_rows)
    rows: list[tuple[bytes, Version]] = []
    size = 0
    found = scan_versions(reader, group, wanted.start, wanted.end, ts, limit=limit + 1, reverse=wanted.reverse)
    for key, version in found:
        if len(rows) == limit or size >= config.read_max_bytes:
            # A forward read goes on at this key; a reverse one below the last key that was given.
            return RowSet(rows, True, rows[-1][0] if wanted.reverse else key)
        rows.append((key, version))
        size += len(key) + len(version.value or b"")
    return RowSet(rows)


def spans_of(request: Read | Settle | LockRead | Export) -> list[Span]:
    """Return what a read covers."""
    if isinstance(request, Export):
        return [Span(request.start, request.end)]
    keys = () if isinstance(request, Settle) else request.keys
    return [Span(key) for key in keys] + [Span(r.start, r.end) for r in request.ranges]
