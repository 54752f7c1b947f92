"""Checks of a cluster from within: what the logs say must fit together, and replicas must be alike.

They need no client. What clients may see is checked by :mod:`spanstore.testing.checkers`.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from f1common.ids import UNIQUE_BYTES
from spanstore.mvcc.placeholders import fill
from spanstore.paxos.configuration import decode_configuration
from spanstore.testing.checkers import Applied, Installed, Violation
from spanstore.testing.cluster import SimCluster
from spanstore.txn.commands import (
    AbandonCmd,
    AbortCmd,
    BundleCmd,
    ClearCmd,
    CollectCmd,
    CommitCmd,
    DecideCmd,
    OwnCmd,
    PrepareCmd,
    RaiseMarkCmd,
    Removal,
    StageCmd,
    Write,
    decode_command,
)
from spanstore.txn.outcomes import decode_outcome

DECISIONS = "decisions"
LEASES = "leases"
REPLICAS = "replicas"

_SAMPLE_S = 0.02
_NO_MORE = 1 << 62
_TS_BYTES = 8

_Attempt = tuple[bytes, int]


@dataclass(slots=True)
class _Log:
    """One group's log, replayed by a second implementation of its rules, which is only about decisions."""

    group: int
    violations: list[Violation]
    decided: dict[bytes, tuple[int, int | None]] = field(default_factory=dict)
    """Coordinator: the newest decided attempt of each id and its commit timestamp, as far as it is known here."""
    commits: dict[bytes, CommitCmd] = field(default_factory=dict)
    """What was decided here, by this log."""
    aborts: dict[bytes, int] = field(default_factory=dict)
    """The highest attempt of each id whose abort was decided here."""
    prepared: dict[bytes, PrepareCmd] = field(default_factory=dict)
    prepares: dict[_Attempt, int] = field(default_factory=dict)
    finished: dict[_Attempt, int | None] = field(default_factory=dict)
    """Participant: how prepared attempts ended here."""
    newest: dict[bytes, int] = field(default_factory=dict)
    pieces: dict[int, int] = field(default_factory=dict)
    rows: dict[bytes, dict[int, bool]] = field(default_factory=dict)
    """All versions that there are by now, and whether each is a row (not a delete)."""
    mark_ts: int = 0

    def apply(self, index: int, entry: bytes) -> None:
        match decode_command(entry):
            case CommitCmd() as command:
                self._commit(index, command)
            case BundleCmd() as command:
                self._apart(index, command)
            case AbortCmd(txn=txn):
                self._decides(txn.unique, txn.attempt, None)
            case PrepareCmd() as command:
                self.prepared[command.txn.unique] = command
                self.prepares[command.txn.unique, command.txn.attempt] = command.prepare_ts
            case DecideCmd() as command:
                self._decide(index, command)
            case StageCmd() as command:
                self._receive(command)
            case OwnCmd(move=move, mark_ts=mark_ts):
                self.pieces[move] = _NO_MORE
                self.mark_ts = max(self.mark_ts, mark_ts)
            case AbandonCmd(move=move):
                self.pieces[move] = _NO_MORE
            case ClearCmd(start=start, end=end):
                self._clear(start, end)
            case RaiseMarkCmd(mark_ts=mark_ts):
                self.mark_ts = max(self.mark_ts, mark_ts)
            case CollectCmd() as command:
                for removal in command.removed:
                    self._remove(index, removal)
            case _:
                pass  # it decides nothing

    def _commit(self, index: int, command: CommitCmd) -> None:
        if self._decides(command.txn.unique, command.txn.attempt, command.ts):
            self.commits[command.txn.unique] = command
            self._write(index, command.writes, command.ts)
            if command.deadline and command.ts > command.deadline:
                self._wrong(index, f"commits at {command.ts}, past its deadline {command.deadline}")

    def _apart(self, index: int, command: BundleCmd) -> None:
        """Take in commits that share an entry: each as if it had come alone, none with a row of another."""
        for commit in command.apart():
            self._commit(index, commit)

    def _receive(self, command: StageCmd) -> None:
        """Take over what another group decided about anchors in a range that moves here, as long as pieces fit."""
        seq = self.pieces.get(command.move, 0)
        if command.seq != seq + 1:
            return  # it came too late, or twice
        self.pieces[command.move] = command.seq
        for key, value in command.outcomes:
            record = decode_outcome(value)
            self.decided[key[-UNIQUE_BYTES:]] = (record.attempt, record.ts or None)
        if command.clear is not None:
            self._clear(*command.clear)
        for key, value in command.versions:
            row, ts = key[: -_TS_BYTES - 1], (1 << 64) - 1 - int.from_bytes(key[-_TS_BYTES:], "big")
            self.newest[row] = max(self.newest.get(row, 0), ts)
            self.rows.setdefault(row, {})[ts] = value[:1] != b"\x00"

    def _clear(self, start: bytes, end: bytes) -> None:
        for row, versions in self.rows.items():
            stored = {ts: row + b"\x00" + ((1 << 64) - 1 - ts).to_bytes(_TS_BYTES, "big") for ts in versions}
            for ts in [ts for ts, key in stored.items() if start <= key < end]:
                del versions[ts]

    def _decides(self, unique: bytes, attempt: int, ts: int | None) -> bool:
        """Take in a decision; tell whether it counts."""
        before = self.decided.get(unique)
        if before is not None and (before[1] is not None or before[0] >= attempt):
            return False
        self.decided[unique] = (attempt, ts)
        if ts is None:
            self.aborts[unique] = attempt
        return True

    def _decide(self, index: int, command: DecideCmd) -> None:
        unique, attempt = command.txn.unique, command.txn.attempt
        prepared = self.prepared.get(unique)
        if prepared is None or prepared.txn.attempt != attempt:
            return
        del self.prepared[unique]
        self.finished[unique, attempt] = command.commit_ts
        if command.commit_ts is not None:
            self._write(index, prepared.writes, command.commit_ts)

    def _write(self, index: int, writes: tuple[Write, ...], ts: int) -> None:
        if writes and ts <= self.mark_ts:
            self._wrong(index, f"writes at {ts}, below the garbage mark {self.mark_ts}")
        for write in writes:
            key = write.key if write.key_offset < 0 else fill(write.key, write.key_offset, None, (), ts)[0]
            self.rows.setdefault(key, {})[ts] = write.value is not None
            before = self.newest.get(write.key, 0)
            if write.key_offset < 0 and ts <= before:
                self._wrong(index, f"writes {write.key!r} at {ts}, but the log wrote it at {before} before")
            self.newest[write.key] = max(before, ts)

    def _remove(self, index: int, removal: Removal) -> None:
        """Nobody who reads at or above the mark may see a difference."""
        versions = self.rows.get(removal.key, {})
        before = max((ts for ts in versions if ts <= self.mark_ts), default=0)
        seen = before if versions.get(before) else 0
        for ts in [ts for ts in versions if removal.oldest_ts <= ts <= removal.newest_ts]:
            if ts > self.mark_ts:
                self._wrong(index, f"removes {removal.key!r} of {ts}, above the garbage mark {self.mark_ts}")
            del versions[ts]
        after = max((ts for ts in versions if ts <= self.mark_ts), default=0)
        left = after if versions.get(after) else 0
        if seen != left:
            text = f"removes from {removal.key!r} what is read at the garbage mark {self.mark_ts}"
            self._wrong(index, f"{text}: {seen} before, {left} after")

    def _wrong(self, index: int, what: str) -> None:
        self.violations.append(Violation(DECISIONS, f"entry {index} of group {self.group} {what}"))


def check_decisions(applied: Iterable[Applied | Installed]) -> list[Violation]:
    """Check what the groups' logs decided: one outcome per attempt everywhere, within fences, in the order of time.

    A participant commits only what its coordinator committed, at that timestamp, and aborts nothing of it; every
    participant of a commit prepared it before; commit timestamps of one key rise along the log.
    """
    entries: dict[tuple[int, int], bytes] = {}
    for event in applied:
        if isinstance(event, Applied) and decode_configuration(event.entry) is None:
            entries.setdefault((event.group, event.index), event.entry)
    violations: list[Violation] = []
    logs: dict[int, _Log] = {}
    for (group, index), entry in sorted(entries.items()):
        logs.setdefault(group, _Log(group, violations)).apply(index, entry)
    commits, wrong = _one_decision(logs)
    violations += wrong
    for group, log in sorted(logs.items()):
        for (unique, attempt), ts in sorted(log.finished.items()):
            commit = commits.get(unique)
            if commit is None or commit.txn.attempt != attempt:
                decided = None
            elif group not in commit.participants and log.prepares[unique, attempt] >= commit.ts:
                decided = None  # a repeated prepare after its keys had moved here: the commit did without it
            else:
                decided = commit.ts
            if ts != decided:
                message = f"group {group} ended {unique.hex()}/{attempt} at {ts}, its coordinator at {decided}"
                violations.append(Violation(DECISIONS, message))
    return violations + _check_participants(commits, logs)


def _one_decision(logs: dict[int, _Log]) -> tuple[dict[bytes, CommitCmd], list[Violation]]:
    """Return all commits by id, and who decided otherwise: ranges move, and coordinators with them."""
    commits: dict[bytes, CommitCmd] = {}
    violations = []
    for group, log in sorted(logs.items()):
        for unique, commit in sorted(log.commits.items()):
            if unique in commits:
                message = f"group {group} commits {unique.hex()} at {commit.ts}, another did at {commits[unique].ts}"
                violations.append(Violation(DECISIONS, message))
            commits[unique] = commit
    for group, log in sorted(logs.items()):
        for unique, attempt in sorted(log.aborts.items()):
            if unique in commits and attempt >= commits[unique].txn.attempt:
                message = (
                    f"group {group} aborts {unique.hex()}/{attempt}, attempt {commits[unique].txn.attempt} committed"
                )
                violations.append(Violation(DECISIONS, message))
    return commits, violations


def _check_participants(commits: dict[bytes, CommitCmd], logs: dict[int, _Log]) -> list[Violation]:
    violations = []
    for unique, command in sorted(commits.items()):
        for participant in command.participants:
            log = logs.get(participant)
            prepare_ts = None if log is None else log.prepares.get((unique, command.txn.attempt))
            if prepare_ts is None or prepare_ts >= command.ts:
                message = f"{unique.hex()} commits at {command.ts}, prepared in {participant}: {prepare_ts}"
                violations.append(Violation(DECISIONS, message))
    return violations


def check_replicas(cluster: SimCluster) -> list[Violation]:
    """Check that replicas at the same index of their log have the same digest and the same state on their disks."""
    violations = []
    for (group, index), digests in sorted(cluster.digests().items()):
        if len(digests) > 1:
            violations.append(Violation(REPLICAS, f"group {group} has {len(digests)} digests at index {index}"))
    for group in cluster.groups:
        first: dict[int, tuple[str, dict[bytes, bytes]]] = {}
        for name, replica in cluster.replicas(group):
            state = cluster.state(name, group)
            other, expected = first.setdefault(replica.state.applied.index, (name, state))
            differing = sorted(key for key in expected.keys() | state.keys() if expected.get(key) != state.get(key))
            if differing:
                message = f"{name} and {other} differ in {len(differing)} keys of group {group}: {differing[0].hex()}"
                violations.append(Violation(REPLICAS, message))
    return violations


class LeaseWatch:
    """Checks again and again that no two replicas of a group hold a lease at once (Spanner, section 2.1: disjointness).

    Each is asked as of its own clock, also one that stands still.
    """

    def __init__(self, cluster: SimCluster) -> None:
        self.violations: list[Violation] = []
        self._cluster = cluster
        self._seen: set[tuple[int, tuple[str, ...]]] = set()

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            self._look()
            await asyncio.sleep(_SAMPLE_S)

    def _look(self) -> None:
        world = self._cluster.world
        holders: dict[int, list[str]] = {}
        for name, process in sorted(self._cluster.processes.items()):
            node = world.nodes[name]
            if not node.running:
                continue
            boot_us = node.clock.sample().boot_us
            for number, group in process.server.groups.items():
                if group.replica.lease_valid(boot_us):
                    holders.setdefault(number, []).append(f"{name} (round {group.replica.ballot.round})")
        for number, names in sorted(holders.items()):
            mark = (number, tuple(names))
            if len(names) > 1 and mark not in self._seen:
                self._seen.add(mark)
                message = f"at {world.now_us()} us group {number} had leases at {' and '.join(names)}"
                self.violations.append(Violation(LEASES, message))
