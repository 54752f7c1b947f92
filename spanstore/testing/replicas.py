"""The replicas of one group moved by hand: memory engines, manual clocks, messages in a list, no network and no tasks.

What :class:`spanstore.runtime.spanserver.SpanServer` does in a turn is done here step by step, so that a test can stop
a leader between its work and its answers, hold a message back, fail a disk or let a clock lie, and say exactly when.
Every request's answers are collected, and a second answer to one request is an error of the harness.

Time is one integer, microseconds of true time since the start; :data:`EPOCH` is added for timestamps.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self, TypeVar

from f1common.clock import Now, TTInterval
from f1common.errors import Code, F1Error
from spanstore.engine.base import WriteBatch
from spanstore.engine.memory import MemoryEngine
from spanstore.group.config import GroupConfig
from spanstore.group.group import Group, Outgoing
from spanstore.group.outbox import Ticket
from spanstore.group.requests import Answer, Request
from spanstore.group.state import Done
from spanstore.paxos.config import PaxosConfig
from spanstore.paxos.configuration import Configuration
from spanstore.paxos.messages import Message, Prepare, PreVote
from spanstore.placement.range_map import KEY_MAX, KEY_MIN
from spanstore.txn.kinds import NEWEST

MS = 1_000
EPOCH = 1_700_000_000_000_000
"""True time at the start, in microseconds since the Unix epoch."""

GROUP = 1
NAMES = ("a", "b", "c")

FAST = PaxosConfig(lease_us=300 * MS, heartbeat_us=20 * MS, election_timeout_us=60 * MS, retry_us=40 * MS)
"""Short times, so that leaders change within few turns."""

A = TypeVar("A", bound=Answer)


class Answered(AssertionError):
    """A request was answered in a way that no request may be: twice, or not at all."""


@dataclass(slots=True, eq=False)
class Asked:
    """A request and what came back."""

    request: Request
    answers: list[Answer] = field(default_factory=list)

    def reply(self, answer: Answer) -> None:
        """Take the answer. Raises Answered for a second one."""
        self.answers.append(answer)
        if len(self.answers) > 1:
            raise Answered(f"{self.request} was answered {len(self.answers)} times: {self.answers}")

    @property
    def done(self) -> bool:
        """Tell whether the answer is here."""
        return bool(self.answers)

    @property
    def answer(self) -> Answer:
        """Return the answer. Raises Answered if there is none."""
        if not self.answers:
            raise Answered(f"{self.request} has no answer")
        return self.answers[0]

    def of(self, kind: type[A]) -> A:
        """Return the answer, which must be of this kind. Raises Answered."""
        answer = self.answer
        if not isinstance(answer, kind):
            raise Answered(f"{self.request} was answered {answer!r}")
        return answer

    @property
    def code(self) -> Code | None:
        """Return the code of an error, None if there is no answer or it is none."""
        answer = self.answers[0] if self.answers else None
        return answer.code if isinstance(answer, F1Error) else None


@dataclass(slots=True, eq=False)
class Member:
    """One replica, its disk and its clocks."""

    name: str
    engine: MemoryEngine
    rng: random.Random
    boot_base: int
    bound_us: int
    skew_us: int = 0
    group: Group | None = None
    messages: deque[tuple[str, Message]] = field(default_factory=deque)
    tickets: deque[Ticket] = field(default_factory=deque)
    due_us: int = 0
    stall_us: int = 0
    """How long the next turn stands still between its work and its answers."""
    applied: list[Done] = field(default_factory=list)

    @property
    def live(self) -> Group:
        """Return the replica. Raises Answered while it is down."""
        if self.group is None:
            raise Answered(f"{self.name} is down")
        return self.group


class Replicas:
    """The voters of one group."""

    def __init__(
        self,
        names: tuple[str, ...] = NAMES,
        *,
        config: GroupConfig | None = None,
        owned: tuple[tuple[bytes, bytes], ...] = ((KEY_MIN, KEY_MAX),),
        bound_us: int = 1 * MS,
    ) -> None:
        """Start all ``names`` with empty disks; ``owned`` are the key ranges of the group."""
        self.names = names
        self.config = config or GroupConfig(paxos=FAST)
        self.owned = owned
        self.time = 0
        self.cut: set[tuple[str, str]] = set()
        """Links, as (sender, receiver), that lose everything."""
        self.versions: dict[str, int] = {}
        """Versions of the protocol that members speak, where it is not the newest; 0: it is not known."""
        self.held: set[tuple[str, str]] = set()
        """Links whose messages wait."""
        self.paused: set[str] = set()
        self.asked: list[Asked] = []
        self.crashed: dict[str, BaseException] = {}
        self._waiting: list[tuple[str, str, Message]] = []
        self._candidate = ""
        self._runner = asyncio.Runner()
        self.members = {
            name: Member(name, MemoryEngine(), random.Random(at), (at + 1) * 7_000_000, bound_us)
            for at, name in enumerate(names)
        }
        for name in names:
            self._load(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._runner.close()

    # ------------------------------------------------------------------ clocks

    @property
    def true_ts(self) -> int:
        """The true time as a timestamp."""
        return EPOCH + self.time

    def now(self, name: str) -> Now:
        """Return what the clocks of ``name`` show."""
        member = self.members[name]
        middle = self.true_ts + member.skew_us
        interval = TTInterval(middle - member.bound_us, middle + member.bound_us)
        return Now(member.boot_base + self.time, interval)

    # ------------------------------------------------------------------ life and death

    def _load(self, name: str) -> None:
        member = self.members[name]
        with member.engine.snapshot() as reader:
            member.group = Group(
                group=GROUP,
                me=name,
                founding=Configuration(0, self.names),
                owned=self.owned,
                config=self.config,
                reader=reader,
                now=self.now(name),
                rng=member.rng,
                on_applied=lambda _, done: member.applied.append(done),
                version_of=lambda server: self.versions.get(server, NEWEST),
            )
        member.due_us = 0

    def crash(self, name: str) -> None:
        """Lose the process and what its disk has not synced."""
        member = self.members[name]
        member.group = None
        member.messages.clear()
        member.tickets.clear()
        member.engine.crash()

    def restart(self, name: str) -> None:
        """Start the process again from its disk."""
        self.members[name].engine.restart()
        self._load(name)

    def damage(self, name: str, engine_key: bytes) -> None:
        """Flip a bit in what the disk of ``name`` holds under ``engine_key``."""
        engine = self.members[name].engine
        with engine.snapshot() as reader:
            value = reader.get(engine_key)
        if not value:
            raise Answered(f"{name} has nothing under {engine_key!r}")
        batch = WriteBatch()
        batch.put(engine_key, value[:-1] + bytes((value[-1] ^ 1,)))
        self._runner.run(engine.commit(batch))

    def isolate(self, name: str) -> None:
        """Cut all links of ``name``."""
        for other in self.names:
            self.cut |= {(name, other), (other, name)}

    def heal(self) -> None:
        """Mend all links and let everybody run."""
        self.cut.clear()
        self.held.clear()
        self.paused.clear()

    # ------------------------------------------------------------------ requests

    def ask(self, name: str, request: Request, *, timeout_us: int = 5_000 * MS) -> Asked:
        """Put a request into the inbox of ``name``; it is taken in by the next turn."""
        member = self.members[name]
        asked = Asked(request)
        self.asked.append(asked)
        deadline = member.boot_base + self.time + timeout_us
        member.tickets.append(Ticket(request, asked.reply, deadline))
        return asked

    def get(self, name: str, request: Request, *, within_us: int = 3_000 * MS) -> Answer:
        """Ask and let time pass until the answer is here. Raises Answered."""
        asked = self.ask(name, request)
        self.until(lambda: asked.done, within_us=within_us)
        return asked.answer

    # ------------------------------------------------------------------ turns

    def turn(self, name: str) -> None:
        """Let ``name`` do one whole turn with everything that has arrived."""
        member = self.members[name]
        batch = WriteBatch()
        out = self.work(name, batch)
        self.commit(name, batch)
        if member.group is not None:
            self.finish(name, out)

    def work(self, name: str, batch: WriteBatch) -> Outgoing:
        """Do the first half of a turn: everything up to the point where the batch is to be committed."""
        member = self.members[name]
        group = member.live
        self._arrive(name)
        with member.engine.snapshot() as reader:
            group.begin_turn(reader, self.now(name))
            while member.messages:
                group.on_peer(*member.messages.popleft())
            while member.tickets:
                group.on_request(member.tickets.popleft())
            group.tick()
            out = group.end_turn(batch)
        self._post(name, out.now)
        self.time, member.stall_us = self.time + member.stall_us, 0
        group.deliver(self.now(name))
        return out

    def commit(self, name: str, batch: WriteBatch) -> None:
        """Sync ``batch``; a failure is the end of the replica."""
        member = self.members[name]
        if batch:
            try:
                self._runner.run(member.engine.commit(batch))
            except F1Error as error:
                self.crashed[name] = error
                member.group = None

    def finish(self, name: str, out: Outgoing) -> None:
        """Do the second half of a turn."""
        member = self.members[name]
        group = member.live
        now = self.now(name)
        with member.engine.snapshot() as reader:
            group.durable(reader, now)
        self._post(name, out.synced)
        group.deliver(now)
        member.due_us = now.boot_us if group.has_work() else group.next_wakeup(now)

    def _post(self, sender: str, messages: list[tuple[str, Message]]) -> None:
        for to, message in messages:
            campaigns = isinstance(message, Prepare | PreVote)
            if (sender, to) not in self.cut and not (campaigns and self._candidate not in ("", sender)):
                self._waiting.append((sender, to, message))

    def _arrive(self, name: str) -> None:
        rest = []
        for sender, to, message in self._waiting:
            if to == name and (sender, to) not in self.held:
                if (sender, to) not in self.cut and self.members[name].group is not None:
                    self.members[name].messages.append((sender, message))
            else:
                rest.append((sender, to, message))
        self._waiting = rest

    def step(self, us: int = 1 * MS) -> None:
        """Let ``us`` pass, then let everybody who has something to do, do one turn."""
        self.time += us
        for name in self.names:
            member = self.members[name]
            if member.group is None or name in self.paused:
                continue
            self._arrive(name)
            if member.messages or member.tickets or member.due_us <= member.boot_base + self.time:
                self.turn(name)

    def run(self, us: int, *, step_us: int = 1 * MS) -> None:
        """Let ``us`` pass in steps."""
        end = self.time + us
        while self.time < end:
            self.step(min(step_us, end - self.time))

    def until(self, condition: Callable[[], bool], *, within_us: int = 3_000 * MS) -> None:
        """Let time pass until ``condition`` holds. Raises Answered if it does not come to hold."""
        end = self.time + within_us
        while not condition():
            if self.time >= end:
                raise Answered(f"still not so after {within_us} us")
            self.step()

    # ------------------------------------------------------------------ leaders

    def leader(self) -> str | None:
        """Return who serves as leader, None if nobody does."""
        serving = [n for n in self.names if (g := self.members[n].group) is not None and g.is_serving_leader()]
        fresh = [n for n in serving if self.members[n].live.replica.lease_valid(self.members[n].boot_base + self.time)]
        if len(fresh) > 1:
            raise Answered(f"{fresh} all lead")
        return fresh[0] if fresh else None

    def elect(self, name: str) -> None:
        """Let time pass until ``name`` leads: nobody else campaigns, and whoever leads now is cut off until then."""
        before = self.leader()
        cut = set(self.cut)
        self._candidate = name
        if before is not None and before != name:
            self.isolate(before)
        self.until(lambda: self.leader() == name, within_us=20_000 * MS)
        self.cut = cut
        self._candidate = ""

    def lead(self, name: str) -> Group:
        """As :meth:`elect`, and wait until everybody follows. Return the leader's replica."""
        self.elect(name)
        group = self.members[name].live
        others = [m for m in self.members.values() if m.group is not None and m.name not in self.paused]
        self.until(lambda: all(m.live.replica.leader == name for m in others) and not group.has_work())
        return group
