"""Pessimistic transactions: a storage transaction held open for a client by this server (F1 section 5)."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from f1common.clock import Clock
from f1common.errors import Code, F1Error
from f1common.ids import new_id
from f1server.catalog.leases import SchemaLeases
from f1server.rows.writes import LogicalWrite
from f1server.txn.committer import Committed, Committer
from spanstore.client import SpanClient, Transaction

IDLE_S = 10.0
"""F1 section 5: idle transactions are killed after ten seconds, or their locks would stop everybody."""


@dataclass(slots=True, eq=False)
class Open:
    """One open transaction."""

    handle: bytes
    database: str
    tx: Transaction
    unique: bytes
    created_ts: int
    last_used: float
    busy: int = 0
    ended: bool = False
    writes: list[LogicalWrite] = field(default_factory=list)


class PessimisticTransactions:
    """The open transactions of one server. They are gone when it restarts: their clients run them again."""

    def __init__(
        self, client: SpanClient, committer: Committer, leases: SchemaLeases, clock: Clock, rng: random.Random
    ) -> None:
        self._client = client
        self._committer = committer
        self._leases = leases
        self._clock = clock
        self._rng = rng
        self._open: dict[bytes, Open] = {}

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, database: str, priority_ts: int) -> Open:
        """Open a transaction; ``priority_ts`` keeps the age of one that is retried."""
        tx = self._client.transaction(priority_ts)
        item = Open(
            handle=new_id(self._rng),
            database=database,
            tx=tx,
            unique=new_id(self._rng),
            created_ts=self._clock.sample().tt.latest,
            last_used=asyncio.get_running_loop().time(),
        )
        self._open[item.handle] = item
        return item

    def find(self, handle: bytes) -> Open:
        """Return an open transaction. Raises ABORTED for one that this server does not (or no longer) hold."""
        item = self._open.get(handle)
        if item is None or item.ended:
            raise F1Error(
                Code.ABORTED,
                "this server holds no such transaction: it was idle for ten seconds, failed, or the server was "
                "restarted; run it again",
            )
        item.last_used = asyncio.get_running_loop().time()
        return item

    async def commit(self, handle: bytes, writes: Sequence[LogicalWrite], timeout_s: float = 10.0) -> Committed:
        """Commit the transaction with its ``writes``. Raises as :meth:`Committer.commit`; it is over in any case."""
        item = self.find(handle)
        del self._open[handle]
        item.ended = True
        try:
            async with self._leases.use(item.database) as leased:
                if not writes:
                    return Committed(await item.tx.commit(deadline=leased.deadline(), timeout_s=timeout_s), 0)
                filled = self._committer.fill(leased.schema, writes, item.unique, item.created_ts)
                return await self._committer.work(item.tx, leased, filled, (), 0, item.unique, timeout_s)
        except BaseException:
            await item.tx.rollback()
            raise

    async def rollback(self, handle: bytes) -> None:
        """Give the transaction up; harmless for one that is over."""
        item = self._open.pop(handle, None)
        if item is not None:
            item.ended = True
            await item.tx.rollback()

    async def fail(self, handle: bytes) -> None:
        """A statement failed under locks: the storage transaction is over."""
        await self.rollback(handle)

    async def sweep(self) -> None:
        """Kill idle transactions, for ever."""
        while True:
            await asyncio.sleep(1.0)
            oldest = asyncio.get_running_loop().time() - IDLE_S
            for handle in [h for h, item in self._open.items() if item.last_used < oldest and not item.busy]:
                await self.rollback(handle)

    async def close(self) -> None:
        """Give up all transactions."""
        for handle in list(self._open):
            await self.rollback(handle)
