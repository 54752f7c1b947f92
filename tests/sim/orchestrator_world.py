"""Many clients of the orchestrator's protocol in one simulated world, from one seed: pauses, lost memory, late writes.

The protocol's generators run unchanged. What performs their steps is a model with every freedom that the real
surroundings have: any client may stand still between any two steps, also between an answer and what it does next; the
lock service forgets everything; leadership of the timestamp service goes back and forth between two processes, which
stand still too; writes fail and take effect later, or never.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from f1.orchestrator import protocol, sweeping
from f1.orchestrator.protocol import Attempt
from f1.orchestrator.steps import (
    Acquire,
    Delete,
    GetVersions,
    NextTimestamp,
    OldestBound,
    Put,
    PutIfAbsent,
    ReadRange,
    Release,
    Step,
    Steps,
    Validate,
    Version,
    Write,
)
from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from f1common.orchestrator.allocation import NO_RECORD, AllocationConfig, Candidacy, Tenure
from f1common.orchestrator.lock_table import LockConfig, LockTable
from spanstore.testing.checkers import SnapshotRange, SnapshotTxn

MS = 1000
WAIT_US = 2_000 * MS


@dataclass(frozen=True)
class Setting:
    """What a seed draws its world from. Chances are per step."""

    clients: int = 5
    keys: int = 4
    transactions: int = 14
    lease_us: int = 300 * MS
    tenure_us: int = 3_000 * MS
    pause: float = 0.02
    pause_us: int = 1_500 * MS
    forget: float = 0.002
    put_fails: float = 0.02
    fail_over: float = 0.004
    sweeps: int = 2
    mode: str = "mixed"
    refresh: bool = True


class Store:
    """Versions in memory; a write that fails may take effect later all the same."""

    def __init__(self) -> None:
        self.cells: dict[bytes, dict[int, bytes | None]] = {}
        self.decisions: dict[int, int] = {}

    def get(self, key: bytes, below: int) -> Version | None:
        found = [ts for ts in self.cells.get(key, {}) if ts < below]
        return Version(max(found), self.cells[key][max(found)]) if found else None

    def range(self, step: ReadRange) -> list[tuple[bytes, list[Version]]]:
        page: list[tuple[bytes, list[Version]]] = []
        for key in sorted(k for k in self.cells if step.start <= k < step.end):
            stamps = sorted((ts for ts in self.cells[key] if ts < step.below), reverse=True)
            if stamps and len(page) < step.limit:
                page.append((key, [Version(ts, self.cells[key][ts]) for ts in stamps[: None if step.every else 1]]))
        return page

    def put(self, write: Write) -> None:
        self.cells.setdefault(write.key, {})[write.ts] = write.value

    def put_if_absent(self, write: Write) -> bytes | None:
        versions = self.cells.setdefault(write.key, {})
        if write.ts not in versions:
            versions[write.ts] = write.value
            decision = protocol.decode_decision(write.value)
            start = protocol.transaction_of(write.key)
            # A committed row that was swept may be failed by a reader too old to matter: the first decision stands.
            self.decisions.setdefault(start, decision)
        return versions[write.ts]

    def delete(self, key: bytes, ts: int) -> None:
        versions = self.cells.get(key, {})
        versions.pop(ts, None)
        if not versions:
            self.cells.pop(key, None)

    @property
    def versions(self) -> int:
        return sum(len(versions) for key, versions in self.cells.items() if key >= tuples.encode(("",)))


class TimestampServer:
    """One process of the timestamp service: it may stand still between taking numbers and looking at its lease."""

    def __init__(self, world: "World", config: AllocationConfig) -> None:
        self._world = world
        self._config = config
        self._candidacy = Candidacy(config)
        self._tenure: Tenure | None = None
        self.held_until = 0

    def handle(self) -> int:
        """Return a timestamp. Raises NOT_LEADER."""
        world = self._world
        if self.held_until > world.now:
            raise F1Error(Code.UNAVAILABLE, "it stands still")
        if self._tenure is None:
            record, version = world.record
            claim = self._candidacy.observe(record, version, world.now)
            sent_us = world.now
            if claim is None or not world.write_record(claim, version):
                raise F1Error(Code.NOT_LEADER, "another one leads")
            self._tenure = Tenure(self._config, claim, sent_us)
        tenure = self._tenure
        first = tenure.take(1)
        if first is None or world.rng.random() < 0.05:
            sent_us = world.now
            record, version = world.record
            world.stand_still(self)
            if record != tenure.record or not world.write_record(raised := tenure.raised(), version):
                self._tenure, self._candidacy = None, Candidacy(self._config)
                raise F1Error(Code.NOT_LEADER, "fenced")
            tenure.wrote(raised, sent_us)
            first = first if first is not None else tenure.take(1)
        assert first is not None
        world.stand_still(self)
        if not tenure.is_leased(world.now):
            self._tenure, self._candidacy = None, Candidacy(self._config)
            raise F1Error(Code.NOT_LEADER, "the lease is over")
        return first


@dataclass
class Client:
    """A program that runs, and what it waits for."""

    name: str
    program: Steps[Any]
    answer: Any = None
    error: F1Error | None = None
    waiting: Step | None = None
    request: bytes = b""
    since: int = 0
    frozen_until: int = 0
    done: bool = False
    attempt: Attempt | None = None


@dataclass
class World:
    """Everything there is; `run` plays it to its end."""

    seed: int
    setting: Setting
    rng: random.Random = field(init=False)
    now: int = 1
    events: int = 0
    store: Store = field(default_factory=Store)
    history: list[SnapshotTxn] = field(default_factory=list)
    reports: list[sweeping.SweepReport] = field(default_factory=list)
    late: list[tuple[int, Write]] = field(default_factory=list)
    given_out: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(f"orchestrator {self.seed}")
        self.record: tuple[Any, int] = (NO_RECORD, 0)
        self._requests = 0
        self._clients: list[Client] = []
        self.forget()
        config = AllocationConfig(lease_us=100 * MS, range_size=7)
        self.servers = [TimestampServer(self, config) for _ in range(2)]
        self.leader = 0

    # -- the timestamp service's record --

    def write_record(self, record: Any, version: int) -> bool:
        if self.record[1] != version:
            return False
        self.record = (record, version + 1)
        return True

    def stand_still(self, server: TimestampServer) -> None:
        """Now and then time passes here, in which the other process may be asked and take over."""
        if self.rng.random() < self.setting.fail_over * 5:
            self.now += self.rng.randrange(400 * MS)
            other = self.servers[1 - self.servers.index(server)]
            if other.held_until <= self.now and server.held_until <= self.now:
                server.held_until = self.now + 1
                for _ in range(3):
                    self.now += self.rng.randrange(200 * MS)
                    try:
                        self._given(other.handle())
                    except F1Error:
                        pass
                server.held_until = 0

    def _given(self, ts: int) -> int:
        assert ts > self.given_out, f"timestamp {ts} after {self.given_out}"
        self.given_out = ts
        return ts

    # -- the lock service --

    def forget(self) -> None:
        """The lock service starts again with nothing."""
        config = LockConfig(self.setting.lease_us, self.setting.tenure_us)
        self.locks = LockTable(config, self.rng.getrandbits(60))
        for client in self._clients:
            if isinstance(client.waiting, Acquire):
                self._answer(client, None, F1Error(Code.UNAVAILABLE, "the lock service is gone"))

    # -- performing steps --

    def _answer(self, client: Client, answer: Any, error: F1Error | None = None) -> None:
        client.waiting, client.answer, client.error = None, answer, error

    def _granted(self, done: list[Any]) -> None:
        for item in done:
            for client in self._clients:
                if client.waiting is not None and client.request == item.request:
                    error = None if item.token else F1Error(Code.DEADLINE_EXCEEDED, "the locks are not free")
                    self._answer(client, item.token, error)

    def _perform(self, client: Client, step: Step) -> None:
        client.waiting = step
        match step:
            case GetVersions(asked):
                self._answer(client, [self.store.get(key, below) for key, below in asked])
            case ReadRange():
                self._answer(client, self.store.range(step))
            case Put(writes):
                self._put(client, writes)
            case PutIfAbsent(write):
                self._answer(client, self.store.put_if_absent(write))
            case Delete(versions):
                broken = self.rng.random() < self.setting.put_fails
                for key, ts in versions[: self.rng.randrange(len(versions)) if broken else None]:
                    self.store.delete(key, ts)
                self._answer(client, None, F1Error(Code.UNAVAILABLE, "no answer", ambiguous=True) if broken else None)
            case Acquire(locks, bound):
                self._requests += 1
                client.request = str(self._requests).encode()
                self._granted(self.locks.acquire(client.request, locks, bound, self.now, self.now + WAIT_US))
            case Validate(tokens):
                alive, done = self.locks.validate(tokens, self.now)
                self._granted(done)
                self._answer(client, all(alive))
            case Release(tokens):
                _, done = self.locks.release(tokens, self.now)
                self._answer(client, None)
                self._granted(done)
            case NextTimestamp():
                try:
                    self._answer(client, self._given(self.servers[self.leader].handle()))
                except F1Error:
                    self.leader = self.rng.randrange(2)  # asked again in a later turn
            case OldestBound():
                oldest, done = self.locks.oldest_bound(self.now)
                self._granted(done)
                self._answer(client, oldest)

    def _put(self, client: Client, writes: tuple[Write, ...]) -> None:
        if self.rng.random() >= self.setting.put_fails:
            for write in writes:
                self.store.put(write)
            self._answer(client, None)
            return
        for write in writes:
            if self.rng.random() < 0.3:
                self.store.put(write)
            elif self.rng.random() < 0.5:
                self.late.append((self.now + self.rng.randrange(3 * self.setting.pause_us), write))
        self._answer(client, None, F1Error(Code.UNAVAILABLE, "no answer", ambiguous=True))

    def _advance(self, client: Client) -> None:
        """Let the program go on with the answer that it has."""
        answer, error = client.answer, client.error
        client.answer = client.error = None
        try:
            step = client.program.throw(error) if error is not None else client.program.send(answer)
        except StopIteration:
            client.done = True
            return
        self._perform(client, step)

    # -- the frame --

    def run(self, programs: Sequence[tuple[str, Callable[["World", Client], Steps[Any]]]]) -> None:
        for name, program in programs:
            client = Client(name, iter(()))  # type: ignore[arg-type]
            client.program = program(self, client)
            self._clients.append(client)
        setting, rng = self.setting, self.rng
        while any(not client.done for client in self._clients):
            self.events += 1
            assert self.events < 400_000, "the world does not come to an end"
            self.now += rng.randrange(1, 2 * MS)
            self._granted(self.locks.tick(self.now))
            self._faults()
            awake = [c for c in self._clients if not c.done and c.frozen_until <= self.now]
            if not awake:
                self.now = min(c.frozen_until for c in self._clients if not c.done)
                continue
            if setting.refresh and self.events % 5 == 0:
                self._refresh(awake)
            client = rng.choice(awake)
            if rng.random() < setting.pause:
                client.frozen_until = self.now + rng.randrange(setting.pause_us)
            elif isinstance(client.waiting, NextTimestamp):
                self._perform(client, client.waiting)
            elif client.waiting is None:
                self._advance(client)
            else:
                self.now += 5 * MS

    def _faults(self) -> None:
        if self.rng.random() < self.setting.forget:
            self.forget()
        if self.rng.random() < self.setting.fail_over:
            self.servers[self.leader].held_until = self.now + self.rng.randrange(500 * MS)
            self.leader = 1 - self.leader
        for item in [item for item in self.late if item[0] <= self.now]:
            self.late.remove(item)
            self.store.put(item[1])

    def _refresh(self, awake: list[Client]) -> None:
        for client in awake:
            attempt = client.attempt
            if attempt is not None:
                tokens = [token for token in (attempt.lease, attempt.commit_lease) if token is not None]
                _, done = self.locks.refresh(tokens, self.now)
                self._granted(done)


# ---------------------------------------------------------------------- programs


def key_of(number: int) -> bytes:
    return tuples.encode(("t", number))


ALL_KEYS = (tuples.encode(("t",)), tuples.encode(("t",)) + b"\xff")


def transactions(world: World, client: Client) -> Steps[None]:
    """One client: transactions one after the other, each recorded."""
    rng = random.Random(f"{world.seed} {client.name}")
    known: dict[int, int] = {}
    last = 0
    for _ in range(world.setting.transactions):
        began = world.events
        client.attempt = None
        try:
            attempt = client.attempt = yield from protocol.start(last)
        except F1Error:
            continue
        last = attempt.start_ts
        mode = world.setting.mode
        if mode == "mixed":
            mode = rng.choice(["checked", "checked", "serializable"])
        txn = SnapshotTxn(attempt.start_ts, began, serializable=mode == "serializable")
        world.history.append(txn)
        try:
            yield from _body(rng, world.setting.keys, mode, attempt, txn, known)
            # Whatever goes wrong in a commit leaves these values in question, so they are recorded before it.
            if attempt.writes:
                txn.committed = yield from protocol.commit(attempt, known)
        except F1Error:
            pass
        txn.ended = world.events
        if rng.random() < 0.3:
            known.clear()


def _body(
    rng: random.Random, keys: int, mode: str, attempt: Attempt, txn: SnapshotTxn, known: dict[int, int]
) -> Steps[None]:
    serializable = mode == "serializable"
    for _ in range(rng.randrange(1, 4)):
        if rng.random() < 0.3:
            found = yield from protocol.read_range(attempt, *ALL_KEYS, rng.choice([2, 100]), known)
            txn.ranges.append(SnapshotRange(found.start, found.end, tuple((key, seen.ts) for key, seen in found.cells)))
            if serializable:
                attempt.ranges.append(found)
        else:
            wanted = sorted({key_of(rng.randrange(keys)) for _ in range(rng.randrange(1, 3))})
            seen = yield from protocol.read_cells(attempt, wanted, known)
            txn.reads += [(key, item.ts) for key, item in zip(wanted, seen, strict=True)]
            if serializable:
                attempt.reads.update((key, item.ts) for key, item in zip(wanted, seen, strict=True))
    for _ in range(rng.randrange(3)):
        key = key_of(rng.randrange(keys))
        value = None if rng.random() < 0.3 else str(attempt.start_ts).encode()
        attempt.writes[key] = value
        attempt.rows[key] = b"" if mode == "unchecked" else key
        txn.writes[key] = value is not None
        if mode != "unchecked":
            txn.checked.add(key)


def sweeps(world: World, client: Client) -> Steps[None]:
    """Sweeps while the others work."""
    rng = random.Random(f"{world.seed} {client.name}")
    for _ in range(world.setting.transactions):
        try:
            world.reports.append((yield from sweeping.sweep({}, page=rng.choice([1, 3, 100]))))
        except F1Error:
            continue


def play(seed: int, setting: Setting) -> World:
    """Play the world of a seed to its end."""
    world = World(seed, setting)
    world.run(
        [(f"client-{n}", transactions) for n in range(setting.clients)]
        + [(f"sweep-{n}", sweeps) for n in range(setting.sweeps)]
    )
    return world
