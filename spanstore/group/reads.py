"""Reading rows at a timestamp from the view that the turn has open. Whether that may be done is decided before."""

from f1common.errors import Code, F1Error
from spanstore.engine.base import Reader
from spanstore.group.config import GroupConfig
from spanstore.group.exporting import export
from spanstore.group.garbage import check_readable
from spanstore.group.move_requests import Export, ExportReply
from spanstore.group.requests import LockRead, RangeRead, Read, ReadReply, Request, RowSet, Settle, SettleReply
from spanstore.group.state import ReplicatedState
from spanstore.mvcc.versions import Version, read_version, scan_versions
from spanstore.placement.directory import group_range, number_of_group
from spanstore.placement.range_map import META_GROUP
from spanstore.txn.spans import Span

NEWEST = (1 << 63) - 1
"""A timestamp above every version: what a transaction that holds locks reads at."""


def answer(
    reader: Reader,
    state: ReplicatedState,
    request: Read | Settle | Export,
    ts: int,
    config: GroupConfig,
    leader: str = "",
) -> ReadReply | SettleReply | ExportReply:
    """Answer a read whose timestamp, ``ts``, is readable in ``reader``, a view as of what ``state`` has applied.

    ``leader``: who leads, told by a replica that does not.
    Raises SNAPSHOT_TOO_OLD below the garbage mark, DATA_CORRUPTION for a damaged version.
    """
    if isinstance(request, Export):
        return export(reader, state.group, request, ts)
    check_readable(ts, state.collected.mark_ts, state.group)
    if isinstance(request, Settle):
        return SettleReply(ts, state.applied.index, state.holding.record.epoch)
    return read_rows(reader, state.group, request.keys, request.ranges, ts, config, leader)


def size_of(answer: ReadReply | SettleReply | ExportReply) -> int:
    """Return about how many bytes an answer has."""
    if not isinstance(answer, ReadReply):
        return 0
    found = [version for version in answer.versions if version is not None]
    found += [version for row_set in answer.ranges for _, version in row_set.rows]
    return sum(len(version.value or b"") for version in found)


def read_rows(
    reader: Reader,
    group: int,
    keys: tuple[bytes, ...],
    ranges: tuple[RangeRead, ...],
    ts: int,
    config: GroupConfig,
    leader: str = "",
) -> ReadReply:
    """Read ``keys`` and ``ranges`` at ``ts``, as much as goes into one answer; whoever wants the rest asks again.

    There are versions for the first keys then, and ranges that were not begun go on where they start. Raises
    DATA_CORRUPTION for a damaged version.
    """
    versions: list[Version | None] = []
    size = 0
    for key in keys:
        version = read_version(reader, group, key, ts)
        size += 0 if version is None else len(version.value or b"")
        if versions and size > config.answer_max_bytes:
            break
        versions.append(version)
    row_sets: list[RowSet] = []
    for wanted in ranges:
        if size > config.answer_max_bytes:
            row_sets.append(RowSet([], True, wanted.end if wanted.reverse else wanted.start))
            continue
        row_set, more = _read_range(reader, group, wanted, ts, config)
        row_sets.append(row_set)
        size += more
    return ReadReply(ts, versions, row_sets, leader=leader)


def _read_range(reader: Reader, group: int, wanted: RangeRead, ts: int, config: GroupConfig) -> tuple[RowSet, int]:
    """Return what goes into one answer, and how many bytes that has."""
    limit = min(wanted.limit or config.read_max_rows, config.read_max_rows)
    rows: list[tuple[bytes, Version]] = []
    size = 0
    found = scan_versions(reader, group, wanted.start, wanted.end, ts, limit=limit + 1, reverse=wanted.reverse)
    for key, version in found:
        if len(rows) == limit or size >= config.read_max_bytes:
            # A forward read goes on at this key; a reverse one below the last key that was given.
            return RowSet(rows, True, rows[-1][0] if wanted.reverse else key), size
        rows.append((key, version))
        size += len(key) + len(version.value or b"")
    return RowSet(rows), size


def listed_groups(reader: Reader, group: int) -> tuple[int, ...]:
    """Return the groups that are in the directory, if ``group``, the meta group, holds it.

    ``reader`` shows all that is at or below the safe timestamp that is told with it. Raises DATA_CORRUPTION.
    """
    if group != META_GROUP:
        return ()
    rows = scan_versions(reader, group, *group_range(), NEWEST)
    return tuple(number_of_group(key) for key, version in rows if version.value is not None)


def too_late(state: ReplicatedState, request: Request, safe_ts: int) -> F1Error:
    """Return the error of a read whose timestamp a replica did not reach in time, naming who may be why."""
    ts = request.timestamp if isinstance(request, Read | Settle) else 0
    text = f"safe time is {(ts - safe_ts) / 1e6:.3f} s below the timestamp at this replica of group {state.group}"
    oldest = min(state.prepared.values(), key=lambda p: (p.prepare_ts, p.txn.unique), default=None)
    details = {"group": str(state.group), "safe_ts": str(safe_ts)}
    if oldest is not None and oldest.prepare_ts <= ts:
        details["holder"] = oldest.txn.unique.hex()
        text += f"; transaction {details['holder']} has been prepared since {oldest.prepare_ts}"
    return F1Error(Code.DEADLINE_EXCEEDED, f"{text}; retry, at the leader or further back", details=details)


def spans_of(request: Read | Settle | LockRead | Export) -> list[Span]:
    """Return what a read covers."""
    if isinstance(request, Export):
        return [Span(request.start, request.end)]
    keys = () if isinstance(request, Settle) else request.keys
    return [Span(key) for key in keys] + [Span(r.start, r.end) for r in request.ranges]
