"""The replicated state machine of a group: what every replica does with a chosen log entry.

Deterministic: the same entries give the same rows on every replica, whoever leads. No clock, lock table or other group
is asked here; the leader decided all that before it logged the command. Nothing that is written here is visible before
the engine commit that carries it has returned (the caller sees to that).
"""

from dataclasses import dataclass
from typing import assert_never
from zlib import crc32

from f1common.errors import Code, F1Error, check
from spanstore.engine import keyspace
from spanstore.engine.base import Reader, WriteBatch
from spanstore.group import garbage, members, storage
from spanstore.group.digests import RangeDigest, digest_of
from spanstore.group.holding import Holding
from spanstore.mvcc.placeholders import TIMESTAMP_BYTES, fill, key_stamp
from spanstore.mvcc.versions import put_versions
from spanstore.paxos.configuration import Configuration, decode_configuration
from spanstore.paxos.messages import LogEntry
from spanstore.placement.holdings import Interval
from spanstore.placement.range_map import KEY_MAX, KEY_MIN
from spanstore.txn import outcomes
from spanstore.txn.commands import (
    AbandonCmd,
    AbortCmd,
    BeginMoveCmd,
    BundleCmd,
    CedeCmd,
    ClearCmd,
    CollectCmd,
    Command,
    CommitCmd,
    DecideCmd,
    DigestCmd,
    GcOutcomesCmd,
    MoveCommand,
    NewLeader,
    OwnCmd,
    PrepareCmd,
    RaiseMarkCmd,
    StageCmd,
    TxnRef,
    Write,
    decode_command,
    encode_command,
)


@dataclass(frozen=True, slots=True)
class MembersChanged:
    """Another configuration of the group was chosen."""

    configuration: Configuration


@dataclass(frozen=True, slots=True)
class Done:
    """One applied command: what a leader must follow up once the rows are durable."""

    index: int
    command: Command | MembersChanged
    prepared: PrepareCmd | None = None
    """The prepare that a DecideCmd ended."""

    def payload(self) -> bytes:
        """Return what the log has there."""
        command = self.command
        return command.configuration.encode() if isinstance(command, MembersChanged) else encode_command(command)


def _known(entry: LogEntry) -> Command:
    """Return the command of an entry. Its bytes are those that were logged, so what is unknown here is newer."""
    try:
        return decode_command(entry.payload)
    except F1Error as error:
        text = f"entry {entry.index} has a command that this version does not know: {error.message}"
        raise F1Error(Code.VERSION_MISMATCH, f"{text}; start the version that wrote it") from error


class ReplicatedState:
    """The rows, prepared transactions and outcome records of one group as of the last applied entry."""

    def __init__(self, group: int, reader: Reader, first_ranges: tuple[Interval, ...] = ((KEY_MIN, KEY_MAX),)) -> None:
        """Load it. ``first_ranges``: what the group owned before any range moved. Raises DATA_CORRUPTION."""
        self.group = group
        self.configuration = members.load_configuration(reader, group)
        self.holding = Holding(group, reader, first_ranges)
        self.applied = storage.load_applied(reader, group)
        self.prepared: dict[bytes, PrepareCmd] = {}
        start, end = keyspace.subspace_range(group, keyspace.Subspace.PREPARED)
        for _, value in reader.scan(start, end):
            record = outcomes.decode_prepared(value)
            self.prepared[record.txn.unique] = record
        self.digests: list[RangeDigest] = []
        """Computed by the last :meth:`apply`, for whoever compares them."""
        self.collected = garbage.load_collected(reader, group)
        """How far garbage is collected, as of the last durable entry."""
        self._reader = reader
        self._records: dict[bytes, bytes | None] = {}
        self._whole_from = storage.load_whole_from(reader, group)
        self._collected = self.collected
        self._digest = self.applied.digest
        self._index = self.applied.index
        self._max_ts = self.applied.max_ts

    def apply(self, entries: list[LogEntry], batch: WriteBatch, reader: Reader) -> list[Done]:
        """Add the effects of chosen ``entries``, in order, to ``batch``; they count once that is :meth:`durable`.

        ``reader`` shows everything applied before this turn.
        """
        done: list[Done] = []
        self.digests = []
        self._reader = reader
        for entry in entries:
            check(entry.index == self._index + 1, f"group {self.group}: entry {entry.index} follows {self._index}")
            configuration = decode_configuration(entry.payload)
            command: Command | MembersChanged
            if configuration is not None:
                command, ended = MembersChanged(configuration), None
                self.configuration = configuration
                members.put_configuration(batch, self.group, configuration)
            else:
                command = _known(entry)
                ended = self._apply_one(command, batch)
            if isinstance(command, DigestCmd) and entry.index >= self._whole_from:
                found = digest_of(reader, batch, self.group, entry.index, command.start, command.end)
                self.digests.append(found)
            self._index = entry.index
            self._digest = crc32(entry.payload, self._digest ^ (entry.index & 0xFFFFFFFF))
            done.append(Done(entry.index, command, ended))
        if entries:
            storage.put_applied(batch, self.group, storage.Applied(self._index, self._max_ts, self._digest))
        return done

    def durable(self) -> None:
        """The batch of the last :meth:`apply` is on disk."""
        self._records.clear()
        self.holding.durable()
        self.collected = self._collected
        self.applied = storage.Applied(self._index, self._max_ts, self._digest)

    @property
    def max_ts(self) -> int:
        """Highest timestamp in any entry handed to :meth:`apply` so far."""
        return self._max_ts

    def _apply_one(self, command: Command, batch: WriteBatch) -> PrepareCmd | None:
        match command:
            case CommitCmd(txn=txn, ts=ts, writes=writes, participants=participants):
                self._commit(txn, ts, writes, participants, batch)
            case BundleCmd(ts=ts):
                for one in command.commits:
                    self._commit(one.txn, ts, one.writes, (), batch)
            case AbortCmd():
                record = outcomes.after_abort(self._outcome(command.txn), command)
                self._put(batch, self._outcome_key(command.txn), outcomes.encode_outcome(record))
            case PrepareCmd():
                self._max_ts = max(self._max_ts, command.prepare_ts)
                self.prepared[command.txn.unique] = command
                key = keyspace.prepared_key(self.group, command.txn.unique)
                batch.put(key, outcomes.encode_prepared(command))
            case DecideCmd():
                return self._decide(command, batch)
            case NewLeader():
                self._max_ts = max(self._max_ts, command.floor_ts)
            case DigestCmd():
                pass  # it changes nothing
            case GcOutcomesCmd() | RaiseMarkCmd() | CollectCmd():
                self._collect(command, batch)
            case BeginMoveCmd() | StageCmd() | CedeCmd() | OwnCmd() | ClearCmd() | AbandonCmd():
                self._move(command, batch)
            case _:
                assert_never(command)
        return None

    def _collect(self, command: GcOutcomesCmd | RaiseMarkCmd | CollectCmd, batch: WriteBatch) -> None:
        match command:
            case RaiseMarkCmd():
                self._collected = garbage.raised(self._collected, command)
            case CollectCmd():
                self._collected = garbage.collect(batch, self.group, self._collected, command)
            case GcOutcomesCmd():

                def delete(key: bytes) -> None:
                    self._records[key] = None
                    batch.delete(key)

                self._collected = garbage.forget(self.group, self._collected, command, self._get, delete)
        garbage.put_collected(batch, self.group, self._collected)

    def _commit(
        self, txn: TxnRef, ts: int, writes: tuple[Write, ...], participants: tuple[int, ...], batch: WriteBatch
    ) -> None:
        record = outcomes.after_commit(self._outcome(txn), txn, ts, participants)
        if record is not None:
            self._write(batch, writes, ts)
            self._put(batch, self._outcome_key(txn), outcomes.encode_outcome(record))

    def _move(self, command: MoveCommand, batch: WriteBatch) -> None:
        if not self.holding.apply(command, batch):
            return
        match command:
            case OwnCmd():
                self._max_ts = max(self._max_ts, command.floor_ts)
                self._collect(RaiseMarkCmd(command.mark_ts), batch)
            case ClearCmd():
                self._clear(command.start, command.end, batch)
            case StageCmd():
                self._stage(command, batch)
            case BeginMoveCmd() | CedeCmd() | AbandonCmd():
                pass  # they touch no rows

    def _stage(self, command: StageCmd, batch: WriteBatch) -> None:
        if command.clear is not None:
            self._clear(*command.clear, batch)
        rows = keyspace.data_prefix(self.group)
        for key, value in command.versions:
            batch.put(rows + key, value)
        decisions = keyspace.prefix(self.group, keyspace.Subspace.OUTCOME)
        for key, value in command.outcomes:
            self._put(batch, decisions + key, value)
        for unique, data in command.finished:
            record = outcomes.decode_finished(data)
            self._remember(unique, record.attempt, record.ts, record.deadline, batch)

    def _clear(self, start: bytes, end: bytes, batch: WriteBatch) -> None:
        rows = keyspace.data_prefix(self.group)
        batch.delete_range(rows + start, rows + end)
        prefix = keyspace.prefix(self.group, keyspace.Subspace.OUTCOME)
        low, high = prefix + start, prefix + end
        batch.delete_range(low, high)
        # A later entry of this turn must not find them in the view from before.
        for key in [key for key in self._records if low <= key < high] + [k for k, _ in self._reader.scan(low, high)]:
            self._records[key] = None

    def _decide(self, command: DecideCmd, batch: WriteBatch) -> PrepareCmd | None:
        unique = command.txn.unique
        prepared = self.prepared.get(unique)
        if prepared is not None and prepared.txn.attempt != command.txn.attempt:
            prepared = None
        deadline = command.deadline
        if prepared is not None:
            deadline = max(deadline, prepared.deadline)
            del self.prepared[unique]
            batch.delete(keyspace.prepared_key(self.group, unique))
            if command.commit_ts is not None:
                self._write(batch, prepared.writes, command.commit_ts)
        self._remember(unique, command.txn.attempt, command.commit_ts, deadline, batch)
        return prepared

    def _remember(self, unique: bytes, attempt: int, ts: int | None, deadline: int, batch: WriteBatch) -> None:
        """Keep that an attempt has finished here, or in the group that some of its keys came from."""
        key = keyspace.finished_key(self.group, unique)
        data = self._get(key)
        before = None if data is None else outcomes.decode_finished(data)
        record = outcomes.after_decide(before, attempt, ts, deadline)
        self._put(batch, key, outcomes.encode_finished(record))

    def _outcome_key(self, txn: TxnRef) -> bytes:
        return keyspace.outcome_key(self.group, txn.unique, txn.anchor)

    def _outcome(self, txn: TxnRef) -> outcomes.OutcomeRecord | None:
        data = self._get(self._outcome_key(txn))
        return None if data is None else outcomes.decode_outcome(data)

    def _get(self, key: bytes) -> bytes | None:
        """Read a record as of the entries applied so far, those of this turn included."""
        return self._records[key] if key in self._records else self._reader.get(key)

    def _put(self, batch: WriteBatch, key: bytes, value: bytes) -> None:
        self._records[key] = value
        batch.put(key, value)

    def _write(self, batch: WriteBatch, writes: tuple[Write, ...], ts: int) -> None:
        self._max_ts = max(self._max_ts, ts)
        stamp = key_stamp(ts)
        rows: list[tuple[bytes, bytes | None]] = []
        for write in writes:
            key, offset = write.key, write.key_offset
            if write.value_offsets:
                rows.append(fill(key, offset if offset >= 0 else None, write.value, write.value_offsets, ts))
            elif offset >= 0:
                rows.append((key[:offset] + stamp + key[offset + TIMESTAMP_BYTES :], write.value))
            else:
                rows.append((key, write.value))
        put_versions(batch, self.group, rows, ts)
