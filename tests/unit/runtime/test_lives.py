"""Replicas that begin and end at a spanserver: each life once, in one data directory, and nothing is left of it."""

import asyncio
import random

import pytest

from f1common.clock import ManualClock
from f1common.errors import Code, F1Error
from spanstore.engine import keyspace
from spanstore.engine.base import WriteBatch
from spanstore.engine.memory import MemoryEngine
from spanstore.group.config import GroupConfig
from spanstore.group.members import load_lives, put_configuration
from spanstore.group.outbox import Ticket
from spanstore.group.requests import Answer, SafeTimeQuery
from spanstore.paxos.configuration import Configuration
from spanstore.paxos.messages import NO_BALLOT, Accept, Ballot, Message, Prepare, Removed
from spanstore.placement.range_map import KEY_MAX, KEY_MIN, Range, RangeMap
from spanstore.runtime.spanserver import SpanServer
from spanstore.runtime.topology import Topology

HOME = "cafe"
LIFE = f"d#3-{HOME}"
BALLOT = Ballot(5, "a")


class Server:
    """The server d, which founded no group."""

    def __init__(self, engine: MemoryEngine | None = None, *, home: str = HOME) -> None:
        self.engine = engine or MemoryEngine()
        self.sent: list[tuple[str, str, Message]] = []
        self.answers: list[Answer] = []
        topology = Topology(
            "test",
            {name: (name, f"{name}:1") for name in "abcd"},
            {1: Configuration(0, ("a", "b", "c"))},
            RangeMap([Range(KEY_MIN, KEY_MAX, 1)]),
        )
        self.clock = ManualClock(boot_us=5_000_000, tt_us=1_700_000_000_000_000)
        self.server = SpanServer(
            name="d",
            topology=topology,
            engine=self.engine,
            clock=self.clock,
            config=GroupConfig(),
            send=lambda group, sender, to, message: self.sent.append((sender, to, message)),
            rng=random.Random(1),
            home=home,
        )

    async def hear(self, receiver: str, message: Message | None = None) -> None:
        self.server.receive(1, "a", receiver, message or heartbeat(), 10)
        await self.server.turn()

    async def ask(self) -> Answer:
        deadline = self.clock.sample().boot_us + 1_000_000
        self.server.submit(1, Ticket(SafeTimeQuery(), self.answers.append, deadline), 10)
        await self.server.turn()
        return self.answers[-1]

    @property
    def replica(self) -> str:
        group = self.server.groups.get(1)
        return group.member if group is not None else ""


def heartbeat() -> Accept:
    return Accept(BALLOT, 9, Ballot(4, "b"), (), 9, 0, 0, 1_000, 0, 0, 1)


@pytest.mark.asyncio
async def test_a_replica_begins_when_a_leader_writes_to_it() -> None:
    d = Server()
    await d.hear(LIFE)
    assert d.replica == LIFE
    with d.engine.snapshot() as reader:
        assert load_lives(reader) == {1: (LIFE, True)}
    answer = next(message for _, to, message in d.sent if to == "a")
    assert getattr(answer, "hint", 0) == -1, "it has no state, and says so"


@pytest.mark.asyncio
@pytest.mark.parametrize("receiver", ["d", "d#3", "d#3-beef", f"e#3-{HOME}", f"d#0-{HOME}"])
async def test_nobody_elses_life_begins_here(receiver: str) -> None:
    d = Server()
    await d.hear(receiver)
    assert d.replica == ""


@pytest.mark.asyncio
async def test_only_a_leaders_word_begins_a_life() -> None:
    d = Server()
    await d.hear(LIFE, Prepare(BALLOT, 9, Ballot(4, "b"), NO_BALLOT))
    assert d.replica == ""


@pytest.mark.asyncio
async def test_a_removed_replica_ends_and_leaves_nothing() -> None:
    d = Server()
    await d.hear(LIFE)
    batch = WriteBatch()
    for number in range(5_000):
        batch.put(keyspace.data_prefix(1) + b"row%d" % number, b"x")
    await d.engine.commit(batch)
    await d.hear(LIFE, Removed(BALLOT, 4))
    assert d.replica == ""
    for _ in range(6):
        await d.server.turn()
    with d.engine.snapshot() as reader:
        assert reader.seek_first(*keyspace.group_range(1)) is None
        assert load_lives(reader) == {1: (LIFE, False)}
    answer = await d.ask()
    assert isinstance(answer, F1Error) and answer.code is Code.NOT_LEADER and "no_replica" in answer.details


@pytest.mark.asyncio
async def test_no_life_begins_twice_also_after_a_restart() -> None:
    d = Server()
    await d.hear(LIFE)
    await d.hear(LIFE, Removed(BALLOT, 4))
    await d.server.turn()
    await d.hear(LIFE)
    assert d.replica == ""
    again = Server(d.engine)
    await again.hear(LIFE)
    assert again.replica == ""
    later = f"d#6-{HOME}"
    await again.hear(later)
    await again.hear(later)
    assert again.replica == later


@pytest.mark.asyncio
async def test_a_later_life_takes_the_place_of_an_earlier_one() -> None:
    d = Server()
    await d.hear(LIFE)
    later = f"d#7-{HOME}"
    for _ in range(4):  # what the earlier one left goes first
        await d.hear(later)
    assert d.replica == later
    await d.hear(LIFE)
    assert d.replica == later


@pytest.mark.asyncio
async def test_a_replica_is_taken_out_and_loaded_again() -> None:
    d = Server()
    await d.hear(LIFE)
    out = d.server.take_out(1)
    task = asyncio.ensure_future(out)
    await asyncio.sleep(0)
    await d.server.turn()
    await task
    assert d.replica == ""
    answer = await d.ask()
    assert isinstance(answer, F1Error) and answer.code is Code.NOT_LEADER
    await d.hear(LIFE)
    assert d.replica == "", "it fetches its state meanwhile"
    batch = WriteBatch()
    put_configuration(batch, 1, Configuration(3, ("a", "b", "c"), (LIFE,)))
    await d.engine.commit(batch)
    task = asyncio.ensure_future(d.server.load(1))
    await asyncio.sleep(0)
    await d.server.turn()
    await task
    assert d.replica == LIFE
    assert d.server.groups[1].replica.configuration.learners == (LIFE,)


@pytest.mark.parametrize("number", [2, keyspace.SERVER, 1 << 16, (1 << 32) - 1])
def test_no_replica_begins_of_a_group_that_is_not(number: int) -> None:
    """Records of some would lie among the server's own, or nowhere; that of another nobody would ever take away."""

    async def main() -> None:
        server = Server()
        server.server.receive(number, "a", LIFE, heartbeat(), 10)
        await server.server.turn()
        assert not server.server.groups
        await server.hear(LIFE)
        assert server.replica == LIFE

    asyncio.run(main())
