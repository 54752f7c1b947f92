"""Pessimistic transactions: a storage transaction held open for a client by this server (F1 section 5)."""

import asyncio
import random
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from f1common.clock import Clock
from f1common.errors import Code, F1Error
from f1common.ids import new_id
from f1server.access.rights import Caller
from f1server.catalog.leases import Leased, SchemaLeases
from f1server.catalog.schema import Schema
from f1server.rows.writes import LogicalWrite
from f1server.txn.committer import Committed, Committer, allow_commit, refuse_fenced
from f1server.txn.readset import moved
from spanstore.client import KeyRange, ReadResult, SpanClient, Transaction

IDLE_S = 10.0
"""F1 section 5: idle transactions are killed after ten seconds, or their locks would stop everybody."""


@dataclass(slots=True, eq=False)
class Open:
    """One open transaction."""

    handle: bytes
    database: str
    caller: Caller
    tx: Transaction
    unique: bytes
    created_ts: int
    last_used: float
    running: int = 0
    """Requests that are being served."""
    ended: bool = False
    broken: bool = False
    """A read failed on its way: nobody knows which of its locks are held."""
    tables: dict[int, str] = field(default_factory=dict)
    """The tables that were public when statements were planned, by id, and their names."""
    schemas: set[int] = field(default_factory=set)
    """When the versions of the schema were committed under which they were planned."""
    names: set[str] = field(default_factory=set)
    """The tables and views that they used."""

    async def read(
        self, keys: Sequence[bytes] = (), ranges: Sequence[KeyRange] = (), *, exclusive: bool = False
    ) -> ReadResult:
        """Lock and read rows. Raises ABORTED if the transaction is over, as by another request for it."""
        if self.ended or self.broken:
            raise F1Error(Code.ABORTED, "the transaction ended while a statement of it was running; run it again")
        try:
            return await self.tx.read(keys, ranges, exclusive=exclusive)
        except BaseException:
            self.broken = True
            raise

    def plan_under(self, schema: Schema, names: Collection[str]) -> None:
        """Note that a statement which uses these tables and views was planned under a version of the schema."""
        self.names.update(names)
        if schema.commit_ts not in self.schemas:
            self.schemas.add(schema.commit_ts)
            self.tables |= {table.id: table.name for table in schema.by_name.values()}

    def refuse_moved(self, schema: Schema) -> None:
        """Raise Conflict if a table may have been read in a form that is public no more.

        Its rows are locked in that form, which those who know the next version of the schema need not write to.
        """
        public = {table.id for table in schema.by_name.values()}
        for table_id, name in self.tables.items():
            if table_id not in public and name.lower() in schema.by_name:
                raise moved(name)

    @contextmanager
    def working(self) -> Iterator[None]:
        """While a request is served the transaction is not idle, however long that takes."""
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1
            self.last_used = asyncio.get_running_loop().time()


@dataclass(frozen=True, slots=True)
class ReadsUnderLease:
    """Reads that count while the schema of their plan may be used: later an index may be gone, and its entries with it.

    Locked reads see the newest rows, so that their moment is when they are answered, not when the statement began.
    """

    item: Open
    leased: Leased
    clock: Clock

    async def read(
        self, keys: Sequence[bytes] = (), ranges: Sequence[KeyRange] = (), *, exclusive: bool = False
    ) -> ReadResult:
        """Lock and read rows. Raises ABORTED if the lease ended meanwhile, or the transaction is over."""
        result = await self.item.read(keys, ranges, exclusive=exclusive)
        if self.clock.sample().tt.latest > self.leased.deadline():
            raise F1Error(
                Code.ABORTED, "the schema may have changed while the statement waited for a lock; run it again"
            )
        return result


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

    def begin(self, database: str, caller: Caller, priority_ts: int) -> Open:
        """Open a transaction of a role; ``priority_ts`` keeps the age of one that is retried."""
        tx = self._client.transaction(priority_ts)
        item = Open(
            handle=new_id(self._rng),
            database=database,
            caller=caller,
            tx=tx,
            unique=new_id(self._rng),
            created_ts=self._clock.sample().tt.latest,
            last_used=asyncio.get_running_loop().time(),
        )
        self._open[item.handle] = item
        return item

    def find(self, handle: bytes, database: str, caller: Caller) -> Open:
        """Return a role's open transaction. Raises ABORTED for one that this server does not (or no longer) hold."""
        item = self._open.get(handle)
        if item is not None and item.caller.role_id != caller.role_id:
            item = None  # another role's: not even that it is there is said
        if item is not None and item.database != database:
            raise F1Error(Code.INVALID_ARGUMENT, f"the transaction belongs to database {item.database}")
        if item is None or item.ended:
            raise F1Error(
                Code.ABORTED,
                "this server holds no such transaction: it was idle for ten seconds, failed, or the server was "
                "restarted; run it again",
            )
        item.last_used = asyncio.get_running_loop().time()
        return item

    async def reads(
        self, handle: bytes, database: str, caller: Caller, leased: Leased, names: Collection[str]
    ) -> ReadsUnderLease:
        """Return the reads of a statement that uses these tables and views, in the form that ``leased`` gives them.

        Raises as :meth:`find`, and Conflict if a name was something else to an earlier statement.
        """
        item = self.find(handle, database, caller)
        await self._committer.require_same_names(leased.schema, item.schemas, names)
        item.plan_under(leased.schema, names)
        return ReadsUnderLease(item, leased, self._clock)

    async def commit(
        self, handle: bytes, database: str, caller: Caller, writes: Sequence[LogicalWrite], timeout_s: float = 10.0
    ) -> Committed:
        """Commit the transaction with its ``writes``. Raises as :meth:`Committer.commit`; it is over in any case."""
        item = self.find(handle, database, caller)
        del self._open[handle]
        item.ended = True
        try:
            if item.running or item.broken:
                what = "was still running" if item.running else "lost its locks"
                raise F1Error(Code.ABORTED, f"a statement of the transaction {what}; run it again")
            async with self._leases.use(item.database) as leased:
                item.refuse_moved(leased.schema)
                if not writes:
                    return Committed(await item.tx.commit(deadline=leased.deadline(), timeout_s=timeout_s), 0)
                allow_commit(leased.schema, caller, writes)
                if item.schemas - {leased.schema.commit_ts}:
                    used = item.names.union(write.table for write in writes)
                    await self._committer.require_same_names(leased.schema, item.schemas, used)
                filled = await self._committer.filled(leased.schema, writes, item.unique, item.created_ts)
                return await self._committer.work(item.tx, leased, filled, (), 0, item.unique, timeout_s)
        except BaseException as error:
            await item.tx.rollback()
            if isinstance(error, F1Error):
                refuse_fenced(error)
            raise

    async def rollback(self, handle: bytes) -> None:
        """Give the transaction up; harmless for one that is over."""
        item = self._open.pop(handle, None)
        if item is not None:
            item.ended = True
            await item.tx.rollback()

    async def give_up(self, handle: bytes, caller: Caller) -> None:
        """Roll a role's transaction back, as its client asks; harmless for one that is over, or another role's."""
        item = self._open.get(handle)
        if item is not None and item.caller.role_id == caller.role_id:
            await self.rollback(handle)

    async def failed(self, handle: bytes) -> None:
        """A statement failed. What it did about locks ends the transaction; what it said about values does not."""
        item = self._open.get(handle)
        if item is not None and item.broken:
            await self.rollback(handle)

    async def sweep(self) -> None:
        """Kill idle transactions, for ever."""
        while True:
            await asyncio.sleep(1.0)
            oldest = asyncio.get_running_loop().time() - IDLE_S
            for handle in [h for h, item in self._open.items() if item.last_used < oldest and not item.running]:
                await self.rollback(handle)

    async def close(self) -> None:
        """Give up all transactions."""
        for handle in list(self._open):
            await self.rollback(handle)
