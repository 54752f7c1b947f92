"""Finishing other people's commits: participants whose decision is late ask the coordinator (Spanner section 4.2.1).

The f1server that drove a transaction may have died between prepare and decision. The coordinator's log has the one
answer; a coordinator that never heard of the attempt logs its abort first, so that it can never commit afterwards.
"""

import asyncio
import logging

from f1common.clock import Clock
from f1common.errors import Code, F1Error
from f1common.pb import spanstore_pb2 as pb
from spanstore.client.router import Router
from spanstore.group.outbox import Ticket
from spanstore.group.requests import Answer, Decide
from spanstore.runtime.spanserver import SpanServer
from spanstore.txn.commands import PrepareCmd

_log = logging.getLogger(__name__)

_PERIOD_S = 0.3
_ASK_S = 5.0


class InDoubtResolver:
    """One task per spanserver that resolves prepared transactions of the groups that it leads."""

    def __init__(self, server: SpanServer, router: Router, clock: Clock) -> None:
        self._server = server
        self._router = router
        self._clock = clock
        self._asking: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Look for late decisions until cancelled."""
        try:
            while True:
                await asyncio.sleep(_PERIOD_S)
                for number in sorted(self._server.groups):
                    for prepared in self._server.groups[number].overdue():
                        self._start(number, prepared)
        finally:
            for task in self._asking:
                task.cancel()

    def _start(self, group: int, prepared: PrepareCmd) -> None:
        task = asyncio.create_task(self._resolve(group, prepared), name=f"resolve in group {group}")
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _resolve(self, group: int, prepared: PrepareCmd) -> None:
        txn = prepared.txn
        ref = pb.TxnRef(anchor=txn.anchor, unique=txn.unique, created_ts=txn.created_ts, attempt=txn.attempt)

        def ask() -> pb.Request:
            return pb.Request(outcome=pb.Outcome(txn=ref, inquiry=True))

        try:
            # The record of the outcome is where its anchor is, whatever group the prepare was told of.
            coordinator = (await self._router.range_map(_ASK_S)).group_of(txn.anchor)
            reply = (await self._router.send(coordinator, ask, _ASK_S)).outcome
        except F1Error as error:
            if error.code is Code.WRONG_RANGE:
                await self._forget_map()
            _log.warning("group %d: transaction %s stays in doubt: %s", group, txn.unique.hex(), error)
            return
        if reply.state == pb.UNKNOWN:
            return
        ts = int(reply.ts) if reply.state == pb.COMMITTED else None
        deadline_us = self._clock.sample().boot_us + int(_ASK_S * 1_000_000)
        self._server.submit(group, Ticket(Decide(txn, ts), _ignore, deadline_us), 64)

    async def _forget_map(self) -> None:
        try:
            await self._router.range_map(_ASK_S, refresh=True)
        except F1Error as error:
            _log.warning("no fresh range map: %s", error)


def _ignore(answer: Answer) -> None:
    """The decision is asked for again if this one is lost."""
