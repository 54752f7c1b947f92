"""Workloads against a perfect store and against stores with one defect each: every defect is caught."""

import asyncio
import random

import pytest

from f1common.errors import Code, F1Error
from spanstore.testing.history import History, Status, dump, load
from spanstore.testing.sim import run_sim
from spanstore.testing.workloads import (
    BankWorkload,
    ListAppendWorkload,
    RegisterWorkload,
    RingWorkload,
)
from spanstore.testing.workloads.base import Absent, Unchanged

KEYS = [b"k%d" % i for i in range(5)]


class Tx:
    """Reads through, buffers writes."""

    def __init__(self, store):
        self.store = store
        self.writes = {}

    async def read(self, keys):
        await self.store.wait()
        found = self.store.at(self.store.last_ts)
        return [self.writes.get(key, found.get(key)) for key in keys]

    def write(self, key, value):
        self.writes[key] = value


class PerfectStore:
    """Serial transactions under one lock, versions by timestamp, slow answers, and outcomes that get lost."""

    def __init__(self, world, *, unknown=0.02):
        self.world = world
        self.rng = random.Random(f"{world.seed}/store")
        self.lock = asyncio.Lock()
        self.commits = []
        self.last_ts = 0
        self.unknown = unknown

    async def wait(self, most_ms=5):
        await asyncio.sleep(self.rng.random() * most_ms / 1000)

    def next_ts(self):
        self.last_ts = max(self.last_ts + 1, self.world.true_ts())
        return self.last_ts

    def at(self, ts):
        state = {}
        for commit_ts, writes in self.commits:
            if commit_ts <= ts:
                state |= writes
        return state

    async def read(self, keys):
        await self.wait()
        async with self.lock:
            ts = self.next_ts()
            state = self.at(ts)
        await self.wait()
        return ts, [state.get(key) for key in keys]

    async def read_at(self, ts, keys):
        await self.wait()
        async with self.lock:
            state = self.at(ts)
        return [state.get(key) for key in keys]

    async def transact(self, fn):
        await self.wait()
        async with self.lock:
            if self.rng.random() < 0.1:
                await fn(Tx(self))  # aborted, and run again
            tx = Tx(self)
            await fn(tx)
            ts = await self.apply(tx.writes)
        await self.wait()
        return ts

    async def commit(self, writes, conditions=()):
        await self.wait()
        async with self.lock:
            for condition in conditions:
                self.require(condition)
            ts = await self.apply({write.key: write.value for write in writes})
        await self.wait()
        return ts

    def require(self, condition):
        match condition:
            case Unchanged(key, since_ts):
                held = not any(ts > since_ts and key in writes for ts, writes in self.commits)
            case Absent(key):
                held = self.at(self.last_ts).get(key) is None
        if not held:
            raise F1Error(Code.FAILED_PRECONDITION, "changed")

    async def apply(self, writes):
        if self.rng.random() < self.unknown:
            if self.rng.random() < 0.5:
                self.insert(writes)
            raise F1Error(Code.UNKNOWN_OUTCOME, "the answer was lost")
        if self.rng.random() < self.unknown:
            raise F1Error(Code.ABORTED, "wounded")
        return self.insert(writes)

    def insert(self, writes):
        ts = self.next_ts()
        if writes:
            self.commits.append((ts, dict(writes)))
        return ts


class LosesUpdates(PerfectStore):
    """Transactions hold no locks: what was read may be old when it is written."""

    async def transact(self, fn):
        tx = Tx(self)
        await fn(tx)
        await self.wait()
        return await self.apply(tx.writes)


class IgnoresConditions(PerfectStore):
    """Conditional commits always succeed."""

    def require(self, condition):
        return


class ReadsDirt(PerfectStore):
    """Writes of a transaction are seen before it commits, also if it never does."""

    async def transact(self, fn):
        await self.wait()
        tx = Tx(self)
        await fn(tx)
        async with self.lock:
            ts = self.next_ts()
            self.commits.append((ts, tx.writes))
        if self.rng.random() < 0.3:
            await self.wait()
            self.commits.remove((ts, tx.writes))
            raise F1Error(Code.ABORTED, "rolled back")
        return ts


class ReadsStale(PerfectStore):
    """Strong reads see the state of a while ago and call it new."""

    async def read(self, keys):
        await self.wait()
        async with self.lock:
            ts = self.next_ts()
            state = self.at(ts - 20_000)
        return ts, [state.get(key) for key in keys]


class ReadsOld(PerfectStore):
    """Strong reads see the state of a while ago and say so."""

    async def read(self, keys):
        await self.wait()
        async with self.lock:
            ts = self.next_ts() - 20_000
            state = self.at(ts)
        return ts, [state.get(key) for key in keys]


class Tears(PerfectStore):
    """The writes of a commit become visible one by one."""

    async def read(self, keys):
        await self.wait()
        ts = self.next_ts()
        state = self.at(ts)
        return ts, [state.get(key) for key in keys]

    async def apply(self, writes):
        ts = self.next_ts()
        for key, value in writes.items():
            self.commits.append((ts, {key: value}))
            await self.wait()
        return ts


class ForgetsCommits(PerfectStore):
    """An acknowledged commit is sometimes gone."""

    def insert(self, writes):
        ts = self.next_ts()
        if self.rng.random() > 0.05:
            self.commits.append((ts, dict(writes)))
        return ts


class HalvesCommits(PerfectStore):
    """Of a commit to two keys, only one write sometimes survives."""

    def insert(self, writes):
        if len(writes) > 1 and self.rng.random() < 0.1:
            writes = dict(list(writes.items())[:1])
        return super().insert(writes)


class RunsTwice(PerfectStore):
    """A commit whose answer got lost is repeated, and executed again."""

    async def transact(self, fn):
        ts = await super().transact(fn)
        if self.rng.random() < 0.05:
            await self.wait(50)
            async with self.lock:
                found = dict(next((writes for at, writes in self.commits if at == ts), {}))
                if found:
                    self.commits.append((self.next_ts(), found))
        return ts


class GoesBack(PerfectStore):
    """Commit timestamps do not respect real time."""

    def insert(self, writes):
        ts = super().insert(writes)
        if self.rng.random() < 0.05:
            self.commits[-1] = (ts - 30_000, self.commits[-1][1])
            self.commits.sort(key=lambda commit: commit[0])
            return ts - 30_000
        return ts


WORKLOADS = {
    "bank": lambda: BankWorkload(KEYS),
    "ring": lambda: RingWorkload(KEYS),
    "register": lambda: RegisterWorkload(KEYS[:2]),
    "list_append": lambda: ListAppendWorkload(KEYS[:3], appends_per_list=20),
}


def play(workload, store_class, seed, *, clients=4, seconds=2):
    """Run a workload on a store and return (operations, violations)."""

    async def main(world):
        store = store_class(world)
        history = History(world.now_us)
        await workload.setup(store, history)
        end_us = world.now_us() + seconds * 1_000_000
        loops = []
        for process in range(clients):
            env = world.add_client(f"client{process}")
            loop = workload.client_loop(process, store, env.rng, history, lambda: world.now_us() >= end_us)
            loops.append(env.spawn(loop))
        await asyncio.gather(*loops)
        final = await workload.final(store, history)
        return history.ops, workload.check(history.ops, final)

    return run_sim(main, seed)


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_a_perfect_store_passes(name):
    for seed in range(4):
        ops, violations = play(WORKLOADS[name](), PerfectStore, seed)
        assert violations == []
        done = [op.status for op in ops]
        assert done.count(Status.OK) > 200
        assert done.count(Status.UNKNOWN) > 0
        assert done.count(Status.FAIL) > 0


CAUGHT = [
    (LosesUpdates, {"bank", "ring", "list_append"}),
    (IgnoresConditions, {"bank", "register"}),
    (ReadsDirt, {"bank", "ring", "register", "list_append"}),
    (ReadsStale, {"bank", "ring", "register", "list_append"}),
    (ReadsOld, {"bank", "ring", "register", "list_append"}),
    (Tears, {"bank", "ring", "list_append"}),
    (ForgetsCommits, {"bank", "ring", "register", "list_append"}),
    (HalvesCommits, {"bank", "ring", "list_append"}),
    (RunsTwice, {"bank", "ring", "list_append"}),
    (GoesBack, {"bank", "ring", "register", "list_append"}),
]


@pytest.mark.parametrize(
    ("store_class", "name"),
    [(store_class, name) for store_class, names in CAUGHT for name in sorted(names)],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_every_defect_is_caught(store_class, name):
    assert any(play(WORKLOADS[name](), store_class, seed, seconds=1)[1] for seed in range(8))


CAUGHT_WITHOUT_TIMESTAMPS = [
    ("bank", LosesUpdates),
    ("bank", Tears),
    ("bank", HalvesCommits),
    ("ring", LosesUpdates),
    ("ring", HalvesCommits),
    ("register", ReadsStale),
    ("register", ReadsDirt),
    ("register", ForgetsCommits),
    ("list_append", LosesUpdates),
    ("list_append", ReadsStale),
    ("list_append", ReadsDirt),
    ("list_append", Tears),
    ("list_append", ForgetsCommits),
]


@pytest.mark.parametrize(("name", "store_class"), CAUGHT_WITHOUT_TIMESTAMPS)
def test_the_workloads_own_checker_catches_it_without_timestamps(name, store_class):
    own = {"bank": "bank", "ring": "ring", "register": "linearizability", "list_append": "list_append"}[name]
    assert any(
        violation.checker == own
        for seed in range(8)
        for violation in play(WORKLOADS[name](), store_class, seed, seconds=1)[1]
    )


def test_a_history_survives_its_file(tmp_path):
    ops, _ = play(WORKLOADS["register"](), PerfectStore, 1, seconds=1)
    dump(ops, tmp_path / "history.jsonl")
    assert load(tmp_path / "history.jsonl") == ops


def test_an_operation_of_a_killed_client_is_unknown():
    async def main(world):
        history = History(world.now_us)
        client = world.add_client("client")

        async def body(attempt):
            attempt.write(b"k", b"v")
            await asyncio.sleep(100)

        client.spawn(history.run(1, "write", body))
        await asyncio.sleep(1)
        world.crash("client")
        await asyncio.sleep(1)
        (op,) = history.ops
        assert (op.status, op.invoke_us, op.return_us) == (Status.UNKNOWN, 1_000_000, 3_000_000)
        assert op.writes[0].value == b"v"

    run_sim(main, 1)


def test_defects_of_our_own_are_not_outcomes():
    async def main(world):
        history = History(world.now_us)

        async def body(attempt):
            raise F1Error(Code.INTERNAL, "broken")

        with pytest.raises(F1Error, match="broken"):
            await history.run(1, "write", body)

    run_sim(main, 1)
