"""Garbage collection, as far as it needs to know of the rest of the cluster.

One task per spanserver, for the groups that it leads. Every now and then it reads all pins, strongly, and asks all
groups for the oldest transaction that they have prepared. What follows from the answers is handed to the groups as a
permit; they collect by themselves (:mod:`spanstore.group.collecting`), and a permit stays true however late it comes.

Order matters for the outcome records. The age below which they may go is fixed first and the groups are asked after
that: a group that then says it has nothing prepared of ids so old never will have, since it refuses prepares of them. A
group that does not answer may have: the records that name it stay for as long as that takes. Which groups there are is
read strongly in between: one that is founded later has nothing prepared of ids so old, and one that owned nothing when
the range map was last read here may have.
"""

import asyncio
import logging

from f1common.clock import Clock
from f1common.errors import F1Error
from f1common.pb import spanstore_pb2 as pb
from spanstore.client import reading
from spanstore.client.router import Router
from spanstore.client.values import KeyRange, Row
from spanstore.group.outbox import Ticket
from spanstore.group.requests import Answer, Collect, Commit, TxnWork
from spanstore.placement.directory import group_range, number_of_group
from spanstore.placement.jobs import FIRST_JOB_KEY, JOBS_END, JobState, decode_job
from spanstore.placement.pins import Pin, decode_pin, highest_mark, pin_range
from spanstore.placement.range_map import META_GROUP, RangeMap
from spanstore.placement.settings import SETTINGS_KEY, decode_settings
from spanstore.runtime.spanserver import SpanServer
from spanstore.txn.commands import TxnRef, Write
from spanstore.txn.outcomes import ExpectVersion

_log = logging.getLogger(__name__)

_ROUNDS_PER_WINDOW = 32
_SHORTEST_S = 0.05
_LONGEST_S = 60.0
_ASK_S = 5.0


class GarbageCollector:
    """The task; it needs nothing to be kept from one round to the next."""

    def __init__(self, server: SpanServer, router: Router, clock: Clock) -> None:
        self._server = server
        self._router = router
        self._clock = clock
        self.pins: list[Pin] = []
        """Those that had not expired when they were last read here."""

    @property
    def _period_s(self) -> float:
        config = self._server.config
        window_s = min(config.version_keep_us, config.outcome_keep_us) / 1e6
        return min(max(window_s / _ROUNDS_PER_WINDOW, _SHORTEST_S), _LONGEST_S)

    async def run(self) -> None:
        """Give permits until cancelled."""
        while True:
            await asyncio.sleep(self._period_s)
            led = [number for number, group in sorted(self._server.groups.items()) if group.is_serving_leader()]
            if not led:
                continue
            try:
                await self._permit(led)
            except F1Error as error:
                # Nothing is collected meanwhile, which harms nobody for a while.
                _log.warning("no garbage is collected for now: %s", error)

    async def _permit(self, led: list[int]) -> None:
        config = self._server.config
        before_ts = self._clock.sample().tt.earliest - config.outcome_keep_us
        ranges_map = await self._router.range_map(_ASK_S)
        unsettled = await self._unsettled(await self._all_groups(ranges_map), before_ts)
        limit_ts, moving = await self._highest_mark(ranges_map)
        for number in led:
            self._submit(number, Collect(0 if number in moving else limit_ts, before_ts, unsettled))

    async def _all_groups(self, ranges_map: RangeMap) -> list[int]:
        """Return all groups that there are now."""
        found = await reading.read(self._router, ranges_map, (), (KeyRange(*group_range()),), 0, _no_choice, _ASK_S)
        stored = {number_of_group(row.key) for row in found.ranges[0]}
        # Those that the cluster began with have no row before their leaders have written one.
        return sorted(stored | self._router.groups())

    async def _unsettled(self, groups: list[int], before_ts: int) -> tuple[int, ...]:
        """Return the groups that may have something prepared of an id created before ``before_ts``."""

        async def settled(group: int) -> bool:
            try:
                reply = await self._router.send(group, lambda: pb.Request(oldest_prepared=pb.OldestPrepared()), _ASK_S)
            except F1Error as error:
                _log.debug("group %d does not say what it has prepared: %s", group, error)
                return False
            created_ts = int(reply.oldest_prepared.created_ts)
            return not created_ts or created_ts >= before_ts

        answers = await asyncio.gather(*(settled(group) for group in groups))
        return tuple(group for group, answer in zip(groups, answers, strict=True) if not answer)

    async def _highest_mark(self, ranges_map: RangeMap) -> tuple[int, set[int]]:
        """Return how far marks may rise by the pins and settings, and the groups in which they may not.

        Removes expired pins, if the meta group is here.

        While a range moves they rise in neither of its groups: a later pass of its copy brings what is newer than the
        pass before, and would miss a delete that was collected in between. What was read before the copy began leads to
        marks below its beginning.
        """
        wanted = (KeyRange(*pin_range()), KeyRange(FIRST_JOB_KEY, JOBS_END))
        found = await reading.read(self._router, ranges_map, (SETTINGS_KEY,), wanted, 0, _no_choice, _ASK_S)
        (settings,) = found.values()
        if settings is None:
            return 0, set()
        jobs = [decode_job(row.value) for row in found.ranges[1]]
        under_way = [job for job in jobs if not job.ended and job.state is not JobState.PENDING]
        moving = {group for job in under_way for group in (job.source, job.target)}
        rows = [(row, decode_pin(row.value)) for row in found.ranges[0]]
        meta = self._server.groups.get(META_GROUP)
        if meta is not None and meta.is_serving_leader():
            for row, pin in rows:
                if pin.expired(found.timestamp):
                    self._remove(row)
        self.pins = [pin for _, pin in rows if not pin.expired(found.timestamp)]
        keep_us = decode_settings(settings).version_keep_us
        return highest_mark(found.timestamp, keep_us, [pin for _, pin in rows]), moving

    def _remove(self, row: Row) -> None:
        now = self._clock.sample()
        # Named after the version that it removes, so that no other leader removes it twice.
        txn = TxnRef(row.key, row.ts.to_bytes(8, "big"), now.tt.latest, 1)
        work = TxnWork(
            txn=txn,
            priority_ts=now.tt.latest,
            writes=(Write(row.key, None),),
            preconditions=(ExpectVersion(row.key, row.ts),),
        )
        self._submit(META_GROUP, Commit(work))

    def _submit(self, group: int, request: Collect | Commit) -> None:
        deadline_us = self._clock.sample().boot_us + int(_ASK_S * 1_000_000)
        self._server.submit(group, Ticket(request, _ignore, deadline_us), 64)


def _no_choice() -> int:
    """All pins, jobs and settings lie in one group, which picks the timestamp itself."""
    return 0


def _ignore(answer: Answer) -> None:
    """What is refused now is asked for again in the next round."""
