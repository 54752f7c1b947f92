"""The driver of a spanserver: one task that owns all groups and moves them in turns.

A turn takes everything that arrived, lets the groups work, sends what promises nothing, writes what all of them must
keep in one engine transaction with one sync, and only then sends what promises something. While the disk works, the
next turn's inputs gather; that is all the batching there is, and no timer takes part in it.

A failed commit is the end of this object: its owner discards it, and the process with it.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from f1common.clock import Clock, Now
from f1common.errors import Code, F1Error
from f1common.rpc.queues import Inbox
from spanstore.engine.base import Engine, Reader, WriteBatch
from spanstore.group.config import GroupConfig
from spanstore.group.group import Group, Outgoing
from spanstore.group.outbox import Ticket
from spanstore.group.state import Done
from spanstore.paxos.messages import Message
from spanstore.placement.range_map import RANGE_MAP_KEY, OwnedRanges, RangeMap

_log = logging.getLogger(__name__)

_TURN_MESSAGES = 2_000
_TURN_BYTES = 16 << 20
_IDLE_TICK_US = 100_000


@dataclass(frozen=True, slots=True)
class Topology:
    """What a spanserver knows of its cluster when it starts for the first time.

    ``servers`` maps names to (zone, address), ``groups`` numbers to the names of the voters; ``ranges`` is the first
    range map, which from then on lives in the meta group.
    """

    cluster_id: str
    servers: Mapping[str, tuple[str, str]]
    groups: Mapping[int, tuple[str, ...]]
    ranges: RangeMap


@dataclass(frozen=True, slots=True)
class _FromPeer:
    group: int
    sender: str
    message: Message


@dataclass(frozen=True, slots=True)
class _FromClient:
    group: int
    ticket: Ticket


class SpanServer:
    """All replicas of one spanserver and the task that drives them."""

    def __init__(
        self,
        *,
        name: str,
        topology: Topology,
        engine: Engine,
        clock: Clock,
        config: GroupConfig,
        send: Callable[[int, str, Message], None],
        rng: random.Random,
        inbox_messages: int = 10_000,
        on_applied: Callable[[int, Done], None] | None = None,
    ) -> None:
        """Load every group that ``topology`` places here. Raises DATA_CORRUPTION for damaged state."""
        self.name = name
        self.topology = topology
        self.turns = 0
        self._engine = engine
        self._clock = clock
        self._send = send
        # Apart, so that however many requests wait, the leases of the groups are renewed.
        self._inbox: Inbox[_FromClient] = Inbox(inbox_messages, 256 << 20)
        self._peers: Inbox[_FromPeer] = Inbox(inbox_messages, 256 << 20)
        self._wake = asyncio.Event()
        self._stopping = False
        self._due: dict[int, int] = {}
        self._clocks_reported: dict[int, set[str]] = {}
        now = clock.sample()
        with engine.snapshot() as reader:
            self.groups: dict[int, Group] = {
                number: Group(
                    group=number,
                    me=name,
                    voters=voters,
                    owned=OwnedRanges(topology.ranges.owned_by(number)),
                    config=config,
                    reader=reader,
                    now=now,
                    rng=random.Random(rng.random()),
                    on_applied=on_applied,
                )
                for number, voters in sorted(topology.groups.items())
                if name in voters
            }

    # ------------------------------------------------------------------ inputs

    def submit(self, group: int, ticket: Ticket, size: int) -> None:
        """Take in a client's request; a full inbox answers OVERLOADED at once."""
        if group not in self.groups:
            ticket.reply(
                F1Error(
                    Code.WRONG_RANGE,
                    f"{self.name} has no replica of group {group}; refresh the range map",
                    retryable=True,
                )
            )
        elif self._stopping:
            ticket.reply(F1Error(Code.UNAVAILABLE, f"{self.name} is shutting down; ask another server"))
        elif not self._inbox.put(_FromClient(group, ticket), size):
            ticket.reply(F1Error(Code.OVERLOADED, f"{self.name} has too many requests waiting; retry later"))
        else:
            self._wake.set()

    def receive(self, group: int, sender: str, message: Message, size: int) -> None:
        """Take in a Paxos message; dropped when the inbox is full, since Paxos sends again."""
        if group in self.groups and self._peers.put(_FromPeer(group, sender, message), size):
            self._wake.set()

    # ------------------------------------------------------------------ the loop

    async def run(self) -> None:
        """Drive turns until :meth:`stop`. Raises EngineFailed when the disk fails: the replicas have crashed."""
        loop = asyncio.get_running_loop()
        while not self._stopping:
            wait_us = self._microseconds_to_wait()
            if wait_us > 0 and not len(self._inbox) and not len(self._peers):
                self._wake.clear()
                timer = loop.call_later(wait_us / 1_000_000, self._wake.set)
                try:
                    await self._wake.wait()
                finally:
                    timer.cancel()
            await self.turn()

    def stop(self) -> None:
        """End :meth:`run` after the current turn."""
        self._stopping = True
        self._wake.set()

    async def turn(self) -> None:
        """Do one turn."""
        self.turns += 1
        inputs: list[_FromPeer | _FromClient] = [
            *self._peers.drain(_TURN_MESSAGES, _TURN_BYTES),
            *self._inbox.drain(_TURN_MESSAGES, _TURN_BYTES),
        ]
        now = self._clock.sample()
        batch = WriteBatch()
        outgoing: list[tuple[int, Outgoing]] = []
        with self._engine.snapshot() as reader:
            active = self._begin(inputs, reader, now)
            for number in active:
                outgoing.append((number, self.groups[number].end_turn(batch)))
        for number, out in outgoing:
            for to, message in out.now:
                self._send(number, to, message)
        self._deliver(active)
        if batch:
            await self._engine.commit(batch)
        now = self._clock.sample()
        with self._engine.snapshot() as reader:
            for number in active:
                self.groups[number].durable(reader, now)
        for number, out in outgoing:
            for to, message in out.synced:
                self._send(number, to, message)
        self._deliver(active)
        for number in active:
            group = self.groups[number]
            self._due[number] = now.boot_us if group.has_work() else group.next_wakeup(now)
        if not batch:
            await asyncio.sleep(0)

    def _begin(self, inputs: list[_FromPeer | _FromClient], reader: Reader, now: Now) -> list[int]:
        """Start the turn of every group that has something to do, hand out the inputs, and tell who takes part."""
        due = {n for n in self.groups if self._due.get(n, 0) <= now.boot_us}
        active = sorted(due | {item.group for item in inputs})
        for number in active:
            self.groups[number].begin_turn(reader, now)
        for item in inputs:
            group = self.groups[item.group]
            if isinstance(item, _FromPeer):
                group.on_peer(item.sender, item.message)
            else:
                group.on_request(item.ticket)
        for number in sorted(due):
            self.groups[number].tick()
        for number in active:
            self._report_clocks(number, self.groups[number].clocks_ahead)
        return active

    def _report_clocks(self, number: int, ahead: Mapping[str, int]) -> None:
        """Say once about each leader that its clock and the one here differ by more than clocks may."""
        known = self._clocks_reported.setdefault(number, set())
        for sender in sorted(ahead.keys() - known):
            text = "group %d: %s leads by a clock that is ahead of this server's by %d us more than clocks may differ; "
            _log.error(text + "it is refused: repair its clock, or this server's", number, sender, ahead[sender])
        known.clear()
        known.update(ahead)

    def _deliver(self, active: list[int]) -> None:
        now = self._clock.sample()
        for number in active:
            self.groups[number].deliver(now)

    def _microseconds_to_wait(self) -> int:
        now = self._clock.sample().boot_us
        due = min((self._due.get(n, 0) for n in self.groups), default=now + _IDLE_TICK_US)
        return min(due - now, _IDLE_TICK_US * 10)

    # ------------------------------------------------------------------ questions

    def stored_range_map(self) -> RangeMap | None:
        """Return the range map as this server's replica of the meta group has it, None if it has none."""
        meta = self.groups.get(0)
        if meta is None:
            return None
        with self._engine.snapshot() as reader:
            value = meta.newest_value(reader, RANGE_MAP_KEY)
        return None if value is None else RangeMap.decode(value)

    def leader_of(self, group: int) -> str:
        """Return the leader of ``group`` as far as this server knows, or an empty string."""
        found = self.groups.get(group)
        return "" if found is None else found.replica.leader or ""

    def hand_over(self) -> None:
        """Give leadership of every group to a caught-up voter, before this server goes away."""
        for number in sorted(self.groups):
            self.groups[number].hand_over()
            self._due[number] = 0
        self._wake.set()

    def leave(self) -> None:
        """Send clients elsewhere, those that wait and those that come: the peers are not heard any more."""
        for number in sorted(self.groups):
            self.groups[number].leave()
            self._due[number] = 0
        self._wake.set()

    def leads_any(self) -> bool:
        """Tell whether a group is led from here."""
        return any(group.leads() for group in self.groups.values())

    def check_identity(self, sender: str, cluster_id: str) -> None:
        """Refuse peers of another cluster. Raises FAILED_PRECONDITION."""
        if cluster_id != self.topology.cluster_id or sender not in self.topology.servers:
            raise F1Error(
                Code.FAILED_PRECONDITION,
                f"server {sender!r} of cluster {cluster_id!r} is no member of cluster {self.topology.cluster_id!r}",
            )
