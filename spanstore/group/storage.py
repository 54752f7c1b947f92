"""What a group keeps on disk: its Paxos log and hard state, and the record of how far the rows have been applied.

Every log entry carries a checksum over its index and content, verified at every read; a damaged one is DATA_CORRUPTION,
never served. The other records are sealed by the engine (:mod:`spanstore.engine.sealing`). The *applied record* is
written in the same engine transaction as the rows it speaks of, so that after a crash the rows and the position in the
log agree.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from zlib import crc32

import msgspec

from f1common.errors import Code, F1Error
from spanstore.engine import keyspace
from spanstore.engine.base import Reader, WriteBatch
from spanstore.group.requests import TxnWork
from spanstore.mvcc.versions import has_no_version, latest, latest_in_range_ts
from spanstore.paxos.effects import Effects
from spanstore.paxos.messages import Ballot, HardState, LogEntry
from spanstore.txn import outcomes
from spanstore.txn.commands import TxnRef, Write

_HEADER = struct.Struct(">IQB")


def encode_entry(entry: LogEntry) -> bytes:
    """Return the stored form of a log entry: checksum, ballot, payload."""
    replica = entry.ballot.replica.encode()
    body = _HEADER.pack(0, entry.ballot.round, len(replica))[4:] + replica + entry.payload
    return crc32(body, entry.index & 0xFFFFFFFF).to_bytes(4, "big") + body


def decode_entry(group: int, index: int, data: bytes) -> LogEntry:
    """Read a stored log entry. Raises DATA_CORRUPTION when its checksum does not match."""
    if len(data) < _HEADER.size or int.from_bytes(data[:4], "big") != crc32(data[4:], index & 0xFFFFFFFF):
        raise _damaged(group, f"log entry {index} is damaged")
    _, ballot_round, length = _HEADER.unpack_from(data)
    end = _HEADER.size + length
    return LogEntry(index, Ballot(ballot_round, data[_HEADER.size : end].decode()), data[end:])


def _damaged(group: int, what: str) -> F1Error:
    return F1Error(
        Code.DATA_CORRUPTION,
        f"group {group}: {what} on disk; discard this replica and let it be rebuilt",
        details={"group": str(group)},
    )


INSTALLING = "installing"
"""Name of the record of a replica that fetches its state (:mod:`spanstore.group.checkpoint`) and is not complete."""

WHOLE_FROM = "whole_from"
"""Name of the record that says from which applied index on its rows are those of its log."""


@dataclass(frozen=True, slots=True)
class Applied:
    """How far the rows on disk have been applied.

    ``max_ts`` is the highest timestamp in any applied entry; ``digest`` chains the checksums of all applied entries,
    so that two replicas at one index can be compared.
    """

    index: int = 0
    max_ts: int = 0
    digest: int = 0


def load_applied(reader: Reader, group: int) -> Applied:
    """Return the applied record, or that of an empty group."""
    data = reader.get(keyspace.applied_key(group))
    if data is None:
        return Applied()
    return Applied(*msgspec.msgpack.decode(data, type=tuple[int, int, int]))


def put_applied(batch: WriteBatch, group: int, applied: Applied) -> None:
    """Write the applied record beside the rows of this batch."""
    record = msgspec.msgpack.encode((applied.index, applied.max_ts, applied.digest))
    batch.put(keyspace.applied_key(group), record)


def load_whole_from(reader: Reader, group: int) -> int:
    """Return from which applied index on the rows of a replica are those of its log; 0 if they always were.

    Below it they are ahead, since they were read after the other records were.
    """
    data = reader.get(keyspace.meta_key(group, WHOLE_FROM))
    return 0 if data is None else int.from_bytes(data, "big")


def load_hard_state(reader: Reader, group: int) -> HardState | None:
    """Return what this replica has promised, or None for a replica that never promised anything."""
    data = reader.get(keyspace.hard_state_key(group))
    if data is None:
        return None
    ballot_round, replica, ceiling, max_lease_us = msgspec.msgpack.decode(data, type=tuple[int, str, int, int])
    return HardState(Ballot(ballot_round, replica), ceiling, max_lease_us)


def check_records(reader: Reader, group: int) -> None:
    """Check that what a replica needs to keep its promises is all there. Raises F1Error DATA_CORRUPTION.

    A record that a damaged page has lost leaves no checksum to be wrong; a replica that took it for never written would
    forget what it promised.
    """
    log = DiskLog(reader, group)
    if log.last_index() < log.first_index():
        return
    if load_hard_state(reader, group) is None:
        raise _damaged(group, "there are log entries, but what the replica promised is missing")
    if reader.get(keyspace.meta_key(group, INSTALLING)) is not None:
        return  # it fetches its state: nothing is applied, and the log stays for the time when that is complete
    applied = load_applied(reader, group).index
    if applied + 1 < log.first_index():
        raise _damaged(group, f"the log begins at {log.first_index()}, but rows are applied up to {applied} only")


def put_effects(batch: WriteBatch, group: int, effects: Effects) -> None:
    """Write the durable part of a flush, in the order that :class:`Effects` demands."""
    if effects.hard_state is not None:
        hard = effects.hard_state
        record = msgspec.msgpack.encode((hard.promised.round, hard.promised.replica, hard.ceiling, hard.max_lease_us))
        batch.put(keyspace.hard_state_key(group), record)
    if effects.truncate_from is not None:
        batch.delete_range(*keyspace.log_range(group, effects.truncate_from))
    for entry in effects.append:
        batch.put(keyspace.log_key(group, entry.index), encode_entry(entry))
    if effects.truncate_below is not None:
        batch.delete_range(keyspace.log_key(group, 0), keyspace.log_key(group, effects.truncate_below))


def load_outcome(reader: Reader, group: int, txn: TxnRef) -> outcomes.OutcomeRecord | None:
    """Return how the newest decided attempt of a commit id ended, if that is recorded here."""
    data = reader.get(keyspace.outcome_key(group, txn.unique, txn.anchor))
    return None if data is None else outcomes.decode_outcome(data)


def load_finished(reader: Reader, group: int, txn: TxnRef) -> outcomes.FinishedRecord | None:
    """Return the newest attempt of a commit id that ended here as a participant, if that is remembered."""
    data = reader.get(keyspace.finished_key(group, txn.unique))
    return None if data is None else outcomes.decode_finished(data)


def newest_of(
    reader: Reader, group: int
) -> tuple[Callable[[bytes], tuple[int, bool] | None], Callable[[bytes, bytes], int]]:
    """Return the two questions that :func:`spanstore.txn.outcomes.evaluate` asks, answered from ``reader``."""

    def newest(key: bytes) -> tuple[int, bool] | None:
        version = latest(reader, group, key)
        return None if version is None else (version.ts, version.value is not None)

    return newest, lambda start, end: latest_in_range_ts(reader, group, start, end)


def failed_test(reader: Reader, group: int, work: TxnWork, mark_ts: int) -> outcomes.Failure | None:
    """Return the first precondition of ``work`` that does not hold now, None if all do; ``mark_ts``: garbage mark."""
    written = [write.key for write in work.writes]

    def is_empty(first: bytes, last: bytes) -> bool:
        return has_no_version(reader, group, first, last)

    return outcomes.evaluate(work.preconditions, *newest_of(reader, group), mark_ts, written, is_empty)


def made_writes(reader: Reader, group: int, work: TxnWork) -> tuple[Write, ...]:
    """Return the writes that are made: not those of keys with a newer version than a precondition allows for."""
    above = outcomes.left_out_above(work.preconditions)
    if above is None or not work.writes:
        return work.writes
    keys = [write.key for write in work.writes]
    if has_no_version(reader, group, min(keys), max(keys)):
        return work.writes
    newest, _ = newest_of(reader, group)
    return tuple(write for write in work.writes if (found := newest(write.key)) is None or found[0] <= above)


class DiskLog:
    """The durable log as the Paxos core reads it, through the view that the current turn has open."""

    __slots__ = ("_first", "_group", "_last", "_reader")

    def __init__(self, reader: Reader, group: int) -> None:
        self._group = group
        self._reader = reader
        start, end = keyspace.log_range(group)
        first = reader.seek_first(start, end)
        last = reader.seek_last(start, end)
        self._first = keyspace.log_index(first[0]) if first else 1
        self._last = keyspace.log_index(last[0]) if last else self._first - 1

    def bind(self, reader: Reader) -> None:
        """Read through ``reader`` from now on."""
        self._reader = reader

    def written(self, effects: Effects) -> None:
        """Note that the writes of ``effects`` are durable."""
        if effects.truncate_from is not None:
            self._last = min(self._last, effects.truncate_from - 1)
        if effects.append:
            self._last = effects.append[-1].index
        if effects.truncate_below is not None:
            self._first = max(self._first, effects.truncate_below)

    def first_index(self) -> int:
        """Return the index of the oldest entry kept (one above the last, when there is none)."""
        return self._first

    def last_index(self) -> int:
        """Return the index of the newest durable entry, or ``first_index() - 1``."""
        return self._last

    def ballot_at(self, index: int) -> Ballot | None:
        """Return the ballot of the entry at ``index``, or None when it is not in the log."""
        entry = self._get(index)
        return None if entry is None else entry.ballot

    def entries(self, first: int, max_bytes: int) -> list[LogEntry]:
        """Return consecutive entries from ``first`` on, up to ``max_bytes`` of payload, but one if there is one."""
        result: list[LogEntry] = []
        size = 0
        for key, value in self._reader.scan(*keyspace.log_range(self._group, first)):
            index = keyspace.log_index(key)
            if index != first + len(result):
                raise _damaged(self._group, f"log entry {first + len(result)} is missing before {index}")
            entry = decode_entry(self._group, index, value)
            result.append(entry)
            size += len(entry.payload)
            if size >= max_bytes:
                break
        return result

    def _get(self, index: int) -> LogEntry | None:
        data = self._reader.get(keyspace.log_key(self._group, index))
        return None if data is None else decode_entry(self._group, index, data)
