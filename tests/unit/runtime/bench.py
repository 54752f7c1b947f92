"""One spanserver on a memory engine whose peers and clients are the test."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from f1common.clock import ManualClock
from spanstore.engine.base import WriteBatch
from spanstore.engine.memory import MemoryEngine
from spanstore.group.config import GroupConfig
from spanstore.group.outbox import Ticket
from spanstore.group.requests import Answer, Commit, Request, TxnWork
from spanstore.paxos.configuration import Configuration
from spanstore.paxos.messages import (
    Ballot,
    Message,
)
from spanstore.placement.range_map import KEY_MAX, Range, RangeMap
from spanstore.runtime.spanserver import SpanServer
from spanstore.runtime.topology import Topology
from spanstore.testing.replicas import EPOCH, FAST, MS
from spanstore.txn.commands import TxnRef, Write

T = TypeVar("T")
SOME = Ballot(1, "b")
RANGES = RangeMap([Range(b"", b"m", 1), Range(b"m", KEY_MAX, 2)])


class RecordingEngine(MemoryEngine):
    """Tells when a sync begins and ends."""

    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self.log = log
        self.gate: asyncio.Event | None = None

    async def commit(self, batch: WriteBatch) -> None:
        self.log.append("sync begins")
        if self.gate is not None:
            await self.gate.wait()
        await super().commit(batch)
        self.log.append("synced")


@dataclass
class Bench:
    """One spanserver whose peers are the test."""

    voters: tuple[str, ...] = ("a",)
    inbox: int = 100
    log: list[str] = field(default_factory=list)
    sent: list[tuple[int, str, Message]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock = ManualClock(boot_us=5_000_000, tt_us=EPOCH)
        self.engine = RecordingEngine(self.log)
        self.server = self.load()

    def load(self) -> SpanServer:
        return SpanServer(
            name="a",
            topology=Topology(
                "test",
                {name: (name, f"{name}:1") for name in "abc"},
                {1: Configuration(0, self.voters), 2: Configuration(0, self.voters), 3: Configuration(0, ("b",))},
                RANGES,
            ),
            engine=self.engine,
            clock=self.clock,
            config=GroupConfig(paxos=FAST),
            send=self.send,
            rng=random.Random(1),
            inbox_messages=self.inbox,
        )

    def send(self, group: int, _: str, to: str, message: Message) -> None:
        self.log.append(type(message).__name__)
        self.sent.append((group, to, message))

    async def turns(self, count: int = 1, us: int = 10 * MS) -> None:
        for _ in range(count):
            self.clock.advance(us)
            await self.server.turn()

    def ask(self, group: int, request: Request, size: int = 10) -> list[Answer]:
        answers: list[Answer] = []
        self.server.submit(group, Ticket(request, answers.append, self.clock.sample().boot_us + 1_000 * MS), size)
        return answers


def write(key: bytes, name: str = "t1") -> Commit:
    return Commit(TxnWork(TxnRef(key, name.encode(), EPOCH, 1), EPOCH, (Write(key, b"v"),)))


def run(main: Callable[[Bench], Awaitable[T]], bench: Bench | None = None) -> T:
    async def everything() -> T:
        return await main(bench or Bench())

    return asyncio.run(everything())
