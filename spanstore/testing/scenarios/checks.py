"""Checks of a cluster from within: what the logs say must fit together, and replicas must be alike.

They need no client. What clients may see is checked by :mod:`spanstore.testing.checkers`.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from spanstore.testing.checkers import Applied, Installed, Violation
from spanstore.testing.cluster import SimCluster
from spanstore.txn.commands import AbortCmd, CommitCmd, DecideCmd, PrepareCmd, Write, decode_command

DECISIONS = "decisions"
LEASES = "leases"
REPLICAS = "replicas"

_SAMPLE_S = 0.02

_Attempt = tuple[bytes, int]


@dataclass(slots=True)
class _Log:
    """One group's log, replayed by a second implementation of its rules, which is only about decisions."""

    group: int
    violations: list[Violation]
    decided: dict[bytes, tuple[int, int | None]] = field(default_factory=dict)
    """Coordinator: the newest decided attempt of each id and its commit timestamp."""
    prepared: dict[bytes, PrepareCmd] = field(default_factory=dict)
    prepares: dict[_Attempt, int] = field(default_factory=dict)
    finished: dict[_Attempt, int | None] = field(default_factory=dict)
    """Participant: how prepared attempts ended here."""
    newest: dict[bytes, int] = field(default_factory=dict)

    def apply(self, index: int, entry: bytes) -> None:
        match decode_command(entry):
            case CommitCmd() as command:
                if self._fresh(command.txn.unique, command.txn.attempt):
                    self.decided[command.txn.unique] = (command.txn.attempt, command.ts)
                    self._write(index, command.writes, command.ts)
                    if command.deadline and command.ts > command.deadline:
                        self._wrong(index, f"commits at {command.ts}, past its deadline {command.deadline}")
            case AbortCmd(txn=txn):
                if self._fresh(txn.unique, txn.attempt):
                    self.decided[txn.unique] = (txn.attempt, None)
            case PrepareCmd() as command:
                self.prepared[command.txn.unique] = command
                self.prepares[command.txn.unique, command.txn.attempt] = command.prepare_ts
            case DecideCmd() as command:
                self._decide(index, command)
            case _:
                pass  # it decides nothing

    def _fresh(self, unique: bytes, attempt: int) -> bool:
        before = self.decided.get(unique)
        return before is None or (before[1] is None and before[0] < attempt)

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
        for write in writes:
            before = self.newest.get(write.key, 0)
            if write.key_offset < 0 and ts <= before:
                self._wrong(index, f"writes {write.key!r} at {ts}, but the log wrote it at {before} before")
            self.newest[write.key] = max(before, ts)

    def _wrong(self, index: int, what: str) -> None:
        self.violations.append(Violation(DECISIONS, f"entry {index} of group {self.group} {what}"))


def check_decisions(applied: Iterable[Applied | Installed]) -> list[Violation]:
    """Check what the groups' logs decided: one outcome per attempt everywhere, within fences, in the order of time.

    A participant commits only what its coordinator committed, at that timestamp, and aborts nothing of it; every
    participant of a commit prepared it before; commit timestamps of one key rise along the log.
    """
    entries: dict[tuple[int, int], bytes] = {}
    for event in applied:
        if isinstance(event, Applied):
            entries.setdefault((event.group, event.index), event.entry)
    violations: list[Violation] = []
    logs: dict[int, _Log] = {}
    for (group, index), entry in sorted(entries.items()):
        logs.setdefault(group, _Log(group, violations)).apply(index, entry)
    coordinated: dict[bytes, tuple[int, int | None]] = {}
    for log in logs.values():
        coordinated |= log.decided
    for group, log in sorted(logs.items()):
        for (unique, attempt), ts in sorted(log.finished.items()):
            newest, newest_ts = coordinated.get(unique, (0, None))
            decided = newest_ts if newest == attempt else None
            if ts != decided:
                message = f"group {group} ended {unique.hex()}/{attempt} at {ts}, its coordinator at {decided}"
                violations.append(Violation(DECISIONS, message))
    return violations + _check_participants(entries, logs)


def _check_participants(entries: dict[tuple[int, int], bytes], logs: dict[int, _Log]) -> list[Violation]:
    violations = []
    for (group, index), entry in sorted(entries.items()):
        command = decode_command(entry)
        if not isinstance(command, CommitCmd) or logs[group].decided.get(command.txn.unique) != (
            command.txn.attempt,
            command.ts,
        ):
            continue
        for participant in command.participants:
            log = logs.get(participant)
            prepare_ts = None if log is None else log.prepares.get((command.txn.unique, command.txn.attempt))
            if prepare_ts is None or prepare_ts >= command.ts:
                message = (
                    f"entry {index} of group {group} commits at {command.ts}, prepared in {participant}: {prepare_ts}"
                )
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
