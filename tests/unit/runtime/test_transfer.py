"""State transfer between disks: positions, damage, sources that die, are behind or have cut their logs; limits."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest

from f1common.config import StorageSection
from f1common.errors import Code, F1Error
from f1common.pb import spanstore_pb2 as pb
from f1common.rpc.channels import ChannelCache
from spanstore.engine import keyspace
from spanstore.engine.base import EngineFailed, WriteBatch
from spanstore.engine.keyspace import Subspace
from spanstore.engine.memory import MemoryEngine
from spanstore.group import checkpoint, storage
from spanstore.group.checkpoint import Part, Stage
from spanstore.group.state import ReplicatedState
from spanstore.group.storage import DiskLog, load_applied, load_hard_state, put_effects
from spanstore.paxos.effects import Effects
from spanstore.paxos.messages import Ballot, HardState, LogEntry
from spanstore.runtime import transfer
from spanstore.runtime.peers import PROTOCOL_VERSION
from spanstore.runtime.state_source import StateSource
from spanstore.runtime.transfer import Transfers
from spanstore.testing.mutations.transfers import BUILDS
from spanstore.txn.commands import CommitCmd, TxnRef, Write, encode_command

GROUP = 1
BALLOT = Ballot(4, "a")
PROMISE = HardState(Ballot(9, "b"), 5_000, 300_000)
STORAGE = StorageSection(transfer_chunk_bytes=100, transfer_bytes_per_s=0)

Tamper = Callable[[pb.StateChunk], pb.StateChunk | None]
"""Changes a chunk on its way; None ends the stream there."""


def entry(index: int, ballot: Ballot = BALLOT) -> LogEntry:
    txn = TxnRef(b"\x01k", index.to_bytes(4, "big"), 1_000 + index, 1)
    key = b"\x01" + bytes([1 + index % 7])
    return LogEntry(index, ballot, encode_command(CommitCmd(txn, 1_000 + index, (Write(key, b"v"),), (), 0)))


async def append(engine: MemoryEngine, first: int, last: int, *, apply: bool = True, ballot: Ballot = BALLOT) -> None:
    """Write entries to a log, and apply them."""
    batch = WriteBatch()
    entries = [entry(index, ballot) for index in range(first, last + 1)]
    with engine.snapshot() as reader:
        put_effects(batch, GROUP, Effects(append=entries))
        if apply:
            ReplicatedState(GROUP, reader).apply(entries, batch, reader)
    await engine.commit(batch)


async def disk(last: int, first: int = 1) -> MemoryEngine:
    """Return a disk with entries 1 to ``last`` applied, of which the log has those from ``first`` on."""
    engine = MemoryEngine()
    await append(engine, 1, last)
    await cut(engine, first)
    return engine


async def cut(engine: MemoryEngine, first: int) -> None:
    batch = WriteBatch()
    put_effects(batch, GROUP, Effects(truncate_below=first))
    await engine.commit(batch)


class BreakAt:
    """Breaks the stream off at the ``nth`` chunk of a kind, once."""

    def __init__(self, part: int, nth: int) -> None:
        self.part = part
        self.nth = nth
        self.seen = 0

    @property
    def broke(self) -> bool:
        return self.seen >= self.nth

    def __call__(self, chunk: pb.StateChunk) -> pb.StateChunk | None:
        self.seen += chunk.part == self.part
        return None if chunk.part == self.part and self.seen == self.nth else chunk


class Call:
    """A call of FetchState without a network."""

    def __init__(self, source: StateSource, request: pb.StateRequest, tamper: Tamper) -> None:
        self._queue: asyncio.Queue[pb.StateChunk | F1Error | None] = asyncio.Queue(1)
        self._tamper = tamper
        self._task = asyncio.create_task(self._serve(source, request))

    async def _serve(self, source: StateSource, request: pb.StateRequest) -> None:
        try:
            await source.serve(request, self)
            await self._queue.put(None)
        except F1Error as error:
            await self._queue.put(error)

    async def write(self, chunk: pb.StateChunk) -> None:
        await self._queue.put(chunk)

    async def __aiter__(self) -> AsyncIterator[pb.StateChunk]:
        while (item := await self._queue.get()) is not None:
            if isinstance(item, F1Error):
                raise item
            changed = self._tamper(item)
            if changed is None:
                return
            yield changed

    def cancel(self) -> None:
        self._task.cancel()


class Channel:
    """Looks like a channel to one server."""

    def __init__(self, source: StateSource, calls: list[tuple[str, pb.StateRequest]], name: str) -> None:
        self.source = source
        self.tamper: Tamper = lambda chunk: chunk
        self.call: type[Call] = Call
        self._calls = calls
        self._name = name

    def unary_stream(self, *_: Any, **__: Any) -> Callable[[pb.StateRequest], Call]:
        def call(request: pb.StateRequest) -> Call:
            self._calls.append((self._name, request))
            return self.call(self.source, request, self.tamper)

        return call

    def unary_unary(self, *_: Any, **__: Any) -> None:
        return None

    stream_stream = stream_unary = unary_unary


@dataclass
class Replica:
    """What a transfer looks at of a replica."""

    offered_state: tuple[str, int] | None
    chosen_index: int
    declined: int = 0

    def decline_state(self) -> None:
        self.offered_state = None
        self.declined += 1


@dataclass
class Group:
    replica: Replica


@dataclass
class Host:
    name: str = "c"
    groups: dict[int, Any] = field(default_factory=dict)
    absent: set[int] = field(default_factory=set)
    loaded: list[int] = field(default_factory=list)

    async def take_out(self, number: int) -> None:
        del self.groups[number]
        self.absent.add(number)

    async def load(self, number: int) -> None:
        self.absent.discard(number)
        self.loaded.append(number)


class World:
    """Sources ``a`` and ``b`` and a receiver ``c``."""

    def __init__(self, receiver: MemoryEngine, **sources: MemoryEngine) -> None:
        self.receiver = receiver
        self.calls: list[tuple[str, pb.StateRequest]] = []
        self.host = Host()
        self.installed: list[int] = []
        self.channels = {
            name: Channel(StateSource(name, "tea", engine, lambda group: True, STORAGE), self.calls, name)
            for name, engine in sources.items()
        }

    def address_of(self, server: str) -> str | None:
        return server if server in self.channels else None

    def servers_of(self, group: int) -> list[str]:
        return sorted(self.channels)

    def offer(self, member: str, chosen: int) -> Replica:
        replica = Replica((member, chosen + 2), chosen)
        self.host.groups[GROUP] = Group(replica)
        return replica

    def transfers(self) -> Transfers:
        return Transfers(
            self.host,
            self.receiver,
            ChannelCache(self.channels.__getitem__),
            self,
            cluster_id="tea",
            at_once=1,
            on_installed=lambda group, index: self.installed.append(index),
        )

    async def until(self, done: Callable[[], bool], transfers: Transfers | None = None) -> Transfers:
        """Let transfers run until ``done``, which is looked at between chunks."""
        running = transfers or self.transfers()
        task = asyncio.create_task(running.run())
        while not done() and not task.done():
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if not task.cancelled():
            task.result()
        return running

    async def install(self) -> Transfers:
        return await self.until(lambda: bool(self.host.loaded))


class SlowCall(Call):
    """A link that carries so many bytes a second that a whole chunk takes longer than a receiver waits."""

    BYTES_PER_S = 3_000

    async def __aiter__(self) -> AsyncIterator[pb.StateChunk]:
        async for chunk in super().__aiter__():
            await asyncio.sleep(len(chunk.payload) / self.BYTES_PER_S)
            yield chunk


def state(engine: MemoryEngine) -> dict[bytes, bytes]:
    with engine.snapshot() as reader:
        return {
            key: value
            for space in checkpoint.STATE
            for key, value in reader.scan(*keyspace.subspace_range(GROUP, space))
            if space is not Subspace.META or not checkpoint.is_local(key)
        }


def log_of(engine: MemoryEngine) -> tuple[int, int]:
    with engine.snapshot() as reader:
        log = DiskLog(reader, GROUP)
        return log.first_index(), log.last_index()


async def promise(engine: MemoryEngine) -> None:
    batch = WriteBatch()
    put_effects(batch, GROUP, Effects(hard_state=PROMISE))
    await engine.commit(batch)


def check(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 30))


async def installed_over_another() -> None:
    source, receiver = await disk(60, first=50), await disk(9)
    await promise(receiver)
    stale = WriteBatch()
    stale.put(keyspace.finished_key(GROUP, b"collected meanwhile"), b"x")
    await receiver.commit(stale)
    world = World(receiver, a=source)
    world.offer("a#3", 9)
    await world.install()
    assert state(receiver) == state(source)
    assert log_of(receiver) == (60, 60)
    assert world.installed == [60]
    with receiver.snapshot() as reader:
        assert load_hard_state(reader, GROUP) == PROMISE
        assert checkpoint.load_installing(reader, GROUP) is None
        assert storage.load_whole_from(reader, GROUP) == 60


def test_a_replica_that_is_behind_becomes_like_its_source() -> None:
    check(installed_over_another())


def test_a_replica_without_anything_is_filled() -> None:
    async def work() -> None:
        source, receiver = await disk(5), MemoryEngine()
        world = World(receiver, a=source)
        world.offer("a", 0)
        await world.install()
        assert state(receiver) == state(source)

    check(work())


def test_an_offer_of_who_is_not_ahead_is_declined() -> None:
    async def work() -> None:
        source, receiver = await disk(20), await disk(20)
        world = World(receiver, a=source)
        replica = world.offer("a", 20)
        await world.until(lambda: replica.declined > 0)
        assert GROUP in world.host.groups
        assert state(receiver) == state(source)

    check(work())


async def installed_below_the_end_of_the_log() -> None:
    for ballot, last in ((BALLOT, 33), (Ballot(2, "b"), 30)):
        source, receiver = await disk(30, first=25), await disk(10)
        # A lost answer, or a leader that was deposed: the log goes on, but nobody said that it is chosen.
        await append(receiver, 11, 33, apply=False, ballot=ballot)
        world = World(receiver, a=source)
        world.offer("a", 10)
        await world.install()
        assert log_of(receiver) == (30, last)
        with receiver.snapshot() as reader:
            assert load_applied(reader, GROUP).index == 30


def test_entries_above_the_base_stay_only_if_the_log_has_the_base() -> None:
    check(installed_below_the_end_of_the_log())


def test_the_rows_go_on_where_they_were_at_another_source() -> None:
    async def work() -> None:
        first, second, receiver = await disk(60), await disk(60), await disk(2)
        world = World(receiver, a=first, b=second)
        world.offer("a", 2)

        world.channels["a"].tamper = BreakAt(pb.StateChunk.ROWS, 4)
        await append(second, 61, 70)  # what it writes meanwhile is in later views
        await world.install()
        name, request = world.calls[-1]
        assert name == "b"
        assert request.base_index == 60
        assert request.after
        with receiver.snapshot() as reader:
            assert storage.load_whole_from(reader, GROUP) == 70
            assert load_applied(reader, GROUP).index == 60
        await append(receiver, 61, 70)
        assert state(receiver) == state(second)

    check(work())


@pytest.mark.parametrize("part", [pb.StateChunk.RECORDS, pb.StateChunk.ROWS, pb.StateChunk.END])
def test_a_receiver_that_dies_goes_on_after_its_restart(part: int) -> None:
    async def work() -> None:
        source, receiver = await disk(60, first=55), await disk(2)
        await promise(receiver)
        world = World(receiver, a=source)
        world.offer("a", 2)
        broken = world.channels["a"].tamper = BreakAt(part, 1 if part == pb.StateChunk.END else 3)
        await world.until(lambda: broken.broke)
        assert not world.host.loaded
        receiver.crash()
        receiver.restart()
        world.host.absent.add(GROUP)
        transfers = world.transfers()
        (progress,) = transfers.status()
        assert (progress.base_index == 60) == (part != pb.StateChunk.RECORDS)
        await world.until(lambda: bool(world.host.loaded), transfers)
        assert state(receiver) == state(source)
        with receiver.snapshot() as reader:
            assert load_hard_state(reader, GROUP) == PROMISE

    check(work())


async def resumed_while_a_server_is_behind() -> None:
    ahead, behind, receiver = await disk(60), await disk(40), await disk(2)
    world = World(receiver, a=ahead, b=behind)
    world.offer("a", 2)
    world.channels["a"].tamper = BreakAt(pb.StateChunk.ROWS, 3)
    await world.install()
    assert state(receiver) == state(ahead)
    assert [name for name, _ in world.calls] == ["a", "a", "b", "a"]
    assert world.calls[-1][1].base_index == 60


def test_a_source_behind_the_base_is_not_used() -> None:
    check(resumed_while_a_server_is_behind())


def test_it_begins_anew_when_every_log_was_cut_above_the_base() -> None:
    async def work() -> None:
        source, receiver = await disk(30), await disk(2)
        world = World(receiver, a=source)
        world.offer("a", 2)
        broken = world.channels["a"].tamper = BreakAt(pb.StateChunk.ROWS, 3)
        await world.until(lambda: broken.broke)
        await append(source, 31, 50)
        await cut(source, 45)
        await world.install()
        assert world.installed == [50]
        assert state(receiver) == state(source)

    check(work())


async def installed_over_a_bad_line() -> None:
    source, other, receiver = await disk(30), await disk(30), await disk(2)
    world = World(receiver, a=source, b=other)
    world.offer("a", 2)

    def flip(chunk: pb.StateChunk) -> pb.StateChunk:
        if chunk.part == pb.StateChunk.RECORDS:
            data = bytearray(chunk.payload)
            data[-1] ^= 1
            chunk.payload = bytes(data)
        return chunk

    world.channels["a"].tamper = flip
    await world.install()
    assert state(receiver) == state(other)
    assert [name for name, _ in world.calls] == ["a", "a", "b"]


def test_a_chunk_that_changed_on_the_way_is_refused() -> None:
    check(installed_over_a_bad_line())


def test_a_damaged_row_is_named_and_another_source_asked(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        source, other, receiver = await disk(30), await disk(30), await disk(2)
        with source.snapshot() as reader:
            key, value = list(reader.scan(*keyspace.data_range(GROUP)))[5]
        batch = WriteBatch()
        batch.put(key, value[:-1] + bytes([value[-1] ^ 1]))
        await source.commit(batch)
        world = World(receiver, a=source, b=other)
        world.offer("a", 2)
        await world.install()
        assert state(receiver) == state(other)
        user_key = key[3:-9]
        (line,) = [r.getMessage() for r in caplog.records if "DATA_CORRUPTION" in r.getMessage()]
        assert "from a" in line
        assert user_key.hex() in line

    check(work())


def test_a_source_that_is_itself_being_installed_serves_nobody() -> None:
    async def work() -> None:
        source = await disk(30)
        with source.snapshot() as reader:
            assert checkpoint.check_source(reader, GROUP, 30) == 30
            with pytest.raises(F1Error, match="has applied 30 only, 31 is needed"):
                checkpoint.check_source(reader, GROUP, 31)
        batch = WriteBatch()
        batch.put(keyspace.meta_key(GROUP, storage.WHOLE_FROM), struct.pack(">Q", 31))
        await source.commit(batch)
        with source.snapshot() as reader, pytest.raises(F1Error, match="itself being installed"):
            checkpoint.check_source(reader, GROUP, 0)
        batch = WriteBatch()
        batch.delete(keyspace.meta_key(GROUP, storage.WHOLE_FROM))
        checkpoint.put_installing(batch, GROUP, checkpoint.Installing(Stage.CLEARING, "a", 0))
        await source.commit(batch)
        with source.snapshot() as reader, pytest.raises(F1Error, match="itself being installed"):
            checkpoint.check_source(reader, GROUP, 0)

    check(work())


def test_a_base_that_would_take_the_replica_back_is_refused() -> None:
    async def work() -> None:
        source, receiver = await disk(30), await disk(35)
        with source.snapshot() as theirs, receiver.snapshot() as mine:
            base = checkpoint.read_base(theirs, GROUP)
            with pytest.raises(F1Error, match="had come to 31 before"):
                checkpoint.check_base(mine, GROUP, base, 31)
            checkpoint.check_base(mine, GROUP, base, 30)
        await cut(receiver, 33)
        with receiver.snapshot() as mine, pytest.raises(F1Error, match="had come to 33 before"):
            checkpoint.check_base(mine, GROUP, base, 0)

    check(work())


def test_a_failed_disk_ends_the_server() -> None:
    async def work() -> None:
        source, receiver = await disk(30), await disk(2)
        world = World(receiver, a=source)
        world.offer("a", 2)
        receiver.fail_next_commit()
        with pytest.raises(EngineFailed):
            await world.until(lambda: False)

    check(work())


def test_strangers_and_too_many_are_refused() -> None:
    class Context:
        async def write(self, chunk: pb.StateChunk) -> None:
            await asyncio.Event().wait()

    async def work() -> None:
        source = StateSource("a", "tea", await disk(30), lambda group: group == GROUP, STORAGE)

        def request(**fields: Any) -> pb.StateRequest:
            asked = pb.StateRequest(protocol_version=PROTOCOL_VERSION, cluster_id="tea", receiver="c", group=GROUP)
            asked.MergeFrom(pb.StateRequest(**fields))
            return asked

        for fields, code in (({"cluster_id": "coffee"}, Code.FAILED_PRECONDITION), ({"group": 2}, Code.WRONG_RANGE)):
            with pytest.raises(F1Error) as caught:
                await source.serve(request(**fields), Context())
            assert caught.value.code is code
        tasks = [asyncio.create_task(source.serve(request(), Context())) for _ in range(STORAGE.transfers_out)]
        await asyncio.sleep(0)
        with pytest.raises(F1Error) as caught:
            await source.serve(request(), Context())
        assert caught.value.code is Code.OVERLOADED
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    check(work())


def test_chunks_have_a_place() -> None:
    whole = checkpoint.checksum(b"x", 1, 2, Part.ROWS, 3, 4)
    others = [
        checkpoint.checksum(b"y", 1, 2, Part.ROWS, 3, 4),
        checkpoint.checksum(b"x", 2, 2, Part.ROWS, 3, 4),
        checkpoint.checksum(b"x", 1, 3, Part.ROWS, 3, 4),
        checkpoint.checksum(b"x", 1, 2, Part.RECORDS, 3, 4),
        checkpoint.checksum(b"x", 1, 2, Part.ROWS, 4, 4),
        checkpoint.checksum(b"x", 1, 2, Part.ROWS, 3, 5),
    ]
    assert whole not in others
    assert len(set(others)) == len(others)


CAUGHT_BY = {
    "resumed behind the base": resumed_while_a_server_is_behind,
    "old state kept": installed_over_another,
    "chunks unchecked": installed_over_a_bad_line,
    "log dropped": installed_below_the_end_of_the_log,
    "promise forgotten": installed_over_another,
}


@pytest.mark.parametrize("name", BUILDS)
def test_broken_builds_are_caught(name: str) -> None:
    with BUILDS[name](), pytest.raises(AssertionError):
        check(CAUGHT_BY[name]())


async def installed_over_a_slow_link() -> list[int]:
    source, receiver = await disk(90), MemoryEngine()
    world = World(receiver, a=source)
    channel = world.channels["a"]
    channel.source = StateSource("a", "tea", source, lambda group: True, StorageSection(transfer_bytes_per_s=0))
    channel.call = SlowCall
    world.offer("a", 0)
    await world.install()
    assert state(receiver) == state(source)
    return [request.max_chunk_bytes for _, request in world.calls if not request.probe]


def test_where_a_chunk_comes_too_slowly_smaller_ones_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "_SILENCE_S", 0.6)
    monkeypatch.setattr(transfer, "_SLOW_BYTES", 4096)
    asked: list[int] = []

    async def work() -> None:
        asked.extend(await installed_over_a_slow_link())

    check(work())
    assert asked[0] == 0 and asked[-1] == 1024, asked
