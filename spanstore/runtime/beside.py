"""Reads that are answered while the disk works.

A turn ends with a sync, which takes as long as many reads. A read that arrives meanwhile may be answered as if it had
arrived just before the turn's end: what the turn writes is undecided until the sync is over, and its locks are held, so
a read that concerns any of it waits for the next turn, as it would then have done; of everything else the engine's view
shows all that is at or below the read's timestamp (:mod:`spanstore.group.leader_reads`). Whether the view has the
turn's rows already, because the sync has just ended, makes no difference. It would for what changes who owns a range,
who belongs to the group or what is garbage: then the reads of that group wait for the next turn
(:meth:`spanstore.group.group.Group.reads_beside`).

Everything else that arrives waits: requests that take locks or write, and the peers' messages.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import msgspec

from f1common.clock import Clock
from f1common.errors import Code, F1Error
from f1common.rpc.queues import Inbox
from spanstore.engine.base import Engine
from spanstore.group.group import Group
from spanstore.group.load import LoadMeter
from spanstore.group.outbox import Ticket
from spanstore.runtime.casualties import Casualties

__all__ = ["FromClient", "ReadsBeside", "refused_as_crowded"]

_CROWDED = "too much of what this client asked for waits to be read by it; read the answers, and retry later"

_SLICE = 64
_SLICE_US = 2_000
"""After so many reads, or so long, somebody looks whether the disk is ready."""


class FromClient(msgspec.Struct, frozen=True):
    """A request of a client to a group, and how many bytes it has."""

    group: int
    ticket: Ticket
    size: int = 0


def refused_as_crowded(ticket: Ticket) -> bool:
    """Refuse a read of somebody who does not read the answers; tell whether it was refused."""
    if ticket.is_crowded():
        ticket.reply(F1Error(Code.OVERLOADED, _CROWDED))
        return True
    return False


class ReadsBeside:
    """The reads that wait at a spanserver, and who answers them between two turns.

    Callbacks of the loop do it, so that whoever waits for the disk goes on as soon as that is ready.
    """

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        groups: Mapping[int, Group],
        loads: Mapping[int, LoadMeter],
        casualties: Casualties,
        inbox: Inbox[FromClient],
    ) -> None:
        """``inbox`` has reads only; what cannot be answered stays there."""
        self._engine = engine
        self._clock = clock
        self._groups = groups
        self._loads = loads
        self._casualties = casualties
        self._inbox = inbox
        self._writing = False
        self._due = False
        self._busy: set[int] = set()
        self._failure: Exception | None = None
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def during_a_sync(self) -> Iterator[set[int]]:
        """Answer reads inside of this; gives the groups that did, in the end.

        Raises what went wrong with that; if the sync fails, too, then that, which says how the disk has failed.
        """
        self._writing, self._busy, self._failure = True, set(), None
        self.arrived()
        try:
            yield self._busy
        finally:
            self._writing = False
            self._stop_timer()
            self._inbox.take_up()
        if self._failure is not None:
            raise self._failure

    def arrived(self) -> None:
        """There is a read in the inbox: answer it soon, if the disk works just now."""
        if self._writing and not self._due and len(self._inbox) and self._failure is None:
            self._due = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._due = False
        if not self._writing:
            return
        try:
            if len(self._inbox):
                self._busy |= self._answer_some()
            self._deliver(self._busy)
            self._set_timer()
        except Exception as error:
            self._failure = error  # the turn will raise it: nobody would hear of it here
        self.arrived()

    def _answer_some(self) -> set[int]:
        """Answer the oldest reads; those that must wait for the next turn are put aside."""
        now = self._clock.sample()
        until_us = now.boot_us + _SLICE_US
        busy: set[int] = set()
        with self._engine.snapshot() as reader:
            for _ in range(_SLICE):
                if not len(self._inbox):
                    break
                (item,) = self._inbox.drain(1, 1)
                group = self._groups.get(item.group)
                if group is None or not group.reads_beside():
                    self._inbox.put_aside(item, item.size)
                    continue
                if refused_as_crowded(item.ticket):
                    continue
                if item.group not in busy:
                    busy.add(item.group)
                    self._casualties.guarded(item.group, Group.begin_beside, reader, now)
                self._loads[item.group].count(item.ticket.request, now.boot_us)
                self._casualties.guarded(item.group, Group.on_request, item.ticket)
                if self._clock.sample().boot_us >= until_us:
                    break
        return busy

    def _deliver(self, busy: Iterable[int]) -> None:
        now = self._clock.sample()
        for number in busy:
            if number in self._groups:
                self._groups[number].deliver(now)

    def _set_timer(self) -> None:
        """Come back when the timestamp of an answer has passed (commit-wait)."""
        self._stop_timer()
        stamps = [self._groups[number].next_answer_ts() for number in self._busy if number in self._groups]
        first_ts = min((ts for ts in stamps if ts is not None), default=None)
        if first_ts is not None:
            wait_us = max(1, first_ts - self._clock.sample().tt.earliest + 1)
            self._timer = asyncio.get_running_loop().call_later(wait_us / 1_000_000, self._go_on)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
