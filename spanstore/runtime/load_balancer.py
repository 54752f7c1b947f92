"""The load balancer: ranges are cut, joined and moved, and leaders changed, as sizes, load and policies want it.

Every spanserver has one, and the one at the leader of the meta group works. What it does others can do by command, in
the same way, and what it begins is carried out by the mover; so nothing is lost when it stops anywhere.
"""

import logging
from asyncio import sleep

from f1common.clock import Clock
from f1common.config import PlacementSection
from f1common.errors import Code, F1Error
from spanstore.client import SpanClient
from spanstore.client.groups import GroupAdmin
from spanstore.client.placement import merge_ranges, move_jobs, split_range, submit_move
from spanstore.client.surveying import Surveyor
from spanstore.placement.load_balance import Action, Lead, Limits, Merge, Shift, Split, Why, plan
from spanstore.placement.range_map import META_GROUP
from spanstore.runtime.spanserver import SpanServer

_log = logging.getLogger(__name__)

_SETTLE_WINDOWS = 2
"""What is measured is up to so many windows old: nothing is judged by load from before the last action."""
_TRANSFER_S = 10.0
_MIB = 1 << 20


class LoadBalancer:
    """One task for each spanserver."""

    def __init__(self, server: SpanServer, client: SpanClient, clock: Clock, config: PlacementSection) -> None:
        self._server = server
        self._client = client
        self._clock = clock
        self._config = config
        self._limits = Limits(config.max_range_mib * _MIB, config.busy_rows_per_s)
        self._surveyor = Surveyor(client, server.topology.leader_zones, background=True)
        self._intended: Action | None = None
        self._settled_us = 0
        self.actions = 0
        """Actions that this balancer has taken."""

    async def run(self) -> None:
        """Look at the cluster, and act where that helps, until cancelled."""
        while True:
            await sleep(self._config.balance_period_ms / 1000)
            meta = self._server.groups.get(META_GROUP)
            if not self._config.balance_load or meta is None or not meta.is_serving_leader():
                self._intended = None
                continue
            try:
                await self._once()
            except F1Error as error:
                _log.info("load balancing: %s", error)

    async def _once(self) -> None:
        if any(not job.ended for job in await move_jobs(self._client)):
            self._intended = None
            return
        now = self._clock.sample().boot_us
        view = await self._surveyor.view(boot_us=now, count_every_us=self._config.count_every_ms * 1000)
        action = plan(view, self._limits)
        if action is None or not self._is_sure(action, now):
            self._intended = action
            return
        await self._carry_out(action)
        self.actions += 1
        self._intended = None
        windows_us = _SETTLE_WINDOWS * self._config.load_window_ms * 1000
        self._settled_us = self._clock.sample().boot_us + windows_us

    def _is_sure(self, action: Action, now_us: int) -> bool:
        """Tell whether to act now. What rests on load must be wanted twice in a row, and not just after a change.

        The second time it may be another range: of two that are equally busy, samples name now this one, now that.
        """
        if isinstance(action, Split | Shift) and action.why in (Why.POLICY, Why.SIZE):
            return True
        return now_us >= self._settled_us and type(self._intended) is type(action)

    async def _carry_out(self, action: Action) -> None:
        match action:
            case Split():
                await self._split(action)
                _log.info("split a range at %s: %s", action.key.hex(), action.why)
            case Merge(key):
                await merge_ranges(self._client, key)
                _log.info("merged the ranges that meet at %s", key.hex())
            case Shift(start, end, target, why):
                job = await submit_move(self._client, start, end, target)
                _log.info("range job %d moves a range to group %d: %s", job.number, target, why)
            case Lead(group, server):
                await GroupAdmin(self._client, timeout_s=_TRANSFER_S).transfer(group, server)
                _log.info("group %d is led by %s, which led less than others", group, server)

    async def _split(self, action: Split) -> None:
        try:
            await split_range(self._client, action.key, automatic=True)
        except F1Error as error:
            if error.code is not Code.INVALID_ARGUMENT or not action.fragment:
                raise
            await split_range(self._client, action.key, fragment=True, automatic=True)
