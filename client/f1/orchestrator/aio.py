"""The orchestrator for asyncio: the primitives of patent 9619507, the retry loop and the sweep.

Errors are those of :mod:`f1.errors`; ``ambiguous`` is only what a commit raises as UNKNOWN_OUTCOME.
"""

import asyncio
import random
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from f1.errors import translated, translating
from f1.orchestrator import cells, options, protocol, sweeping
from f1.orchestrator.cells import Row, Value
from f1.orchestrator.driver import Surroundings, drive, release
from f1.orchestrator.protocol import Attempt, Seen
from f1.orchestrator.services import LockService, TimestampService, require_shared_twins
from f1.orchestrator.steps import Steps
from f1.orchestrator.stores.base import Store
from f1.orchestrator.sweeping import SweepReport
from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from f1common.ids import process_rng
from f1common.observe.logs import get_logger
from f1common.observe.metrics import Metrics
from f1common.orchestrator.lock_table import Token
from f1common.rpc.backoff import Backoff

__all__ = ["Orchestrator", "RangeRow", "Transaction"]

_log = get_logger(__name__)

T = TypeVar("T")

_KNOWN = 200_000
_MIN_REFRESH_S = 0.01
_STALE_S = 1.0


class RangeRow(NamedTuple):
    """A row of a range, and the values of its columns."""

    row: Row
    columns: dict[str, Value]


class _Decisions(dict[int, int]):
    """Decisions of the transaction table, which never change; the oldest are forgotten."""

    def __setitem__(self, start_ts: int, decision: int) -> None:
        if len(self) >= _KNOWN:
            del self[next(iter(self))]
        super().__setitem__(start_ts, decision)


class Orchestrator:
    """Transactions over a store, for any number of tasks of one event loop; many may share a store and services."""

    def __init__(
        self,
        store: Store,
        timestamps: TimestampService,
        locks: LockService,
        *,
        unchecked_tables: Collection[str] = (),
        serializable_tables: Collection[str] = (),
        timeout_s: float = 10.0,
        delete_failed: bool = True,
        metrics: Metrics | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """All orchestrators of a store use the same timestamp and lock services and agree about their tables.

        Commits look for write-write conflicts, except in ``unchecked_tables``, and for changes of what they have read
        in ``serializable_tables``. ``timeout_s``: how long a transaction waits for the locks of others.
        ``delete_failed``: values of failed transactions are removed by readers that meet them. Raises F1Error
        INVALID_ARGUMENT, FAILED_PRECONDITION.
        """
        with translating():
            self.unchecked_tables = options.table_names("unchecked_tables", unchecked_tables)
            self.serializable_tables = options.table_names("serializable_tables", serializable_tables)
            if both := self.unchecked_tables & self.serializable_tables:
                names = ", ".join(sorted(both))
                text = f"a serializable table is checked for conflicts, so {names} cannot be unchecked"
                raise F1Error(Code.INVALID_ARGUMENT, text)
            options.part("store", store, ("get_versions", "put", "put_if_absent", "range", "delete"))
            options.part("timestamps", timestamps, ("next",))
            options.part("locks", locks, ("acquire", "refresh", "validate", "release", "oldest_bound"))
            self.around = Surroundings(store, timestamps, locks, options.seconds("timeout_s", timeout_s))
            require_shared_twins(self, store, timestamps, locks)
        self._closed = False
        self.known = _Decisions()
        self._delete_failed = delete_failed
        self._rng = rng or process_rng()
        self._last_ts, self._last_s = 0, 0.0
        # By start timestamp. Programs let go of transactions in any thread, also while the refresher looks at them all.
        self._open: weakref.WeakValueDictionary[int, Transaction] = weakref.WeakValueDictionary()
        self._refresher: asyncio.Task[None] | None = None
        meter = metrics or Metrics()
        self._commits = meter.counter("orchestrator_commits", "Transactions by outcome.", ("outcome",))
        self._swept = meter.counter("orchestrator_swept", "What sweeps have removed.", ("what",))
        self._horizon = meter.gauge("orchestrator_horizon", "Timestamp up to which the last sweep has swept.")

    # ------------------------------------------------------------------ transactions

    @property
    def closed(self) -> bool:
        """Whether it has been closed."""
        return self._closed

    @translated
    async def start(self) -> "Transaction":
        """Begin a transaction: START_TX. Raises F1Error UNAVAILABLE and what else the services raise."""
        self._require_not_closed()
        # In memory nothing waits for anything: without this, one task of many transactions would be the only one that
        # runs, and leases would lapse since the refresher never has its turn.
        await asyncio.sleep(0)
        now_s = asyncio.get_running_loop().time()
        if not self._last_ts or now_s > self._last_s + _STALE_S:
            # A sweep removes nothing above the lowest bound: one from long ago would hold it back while this runs.
            self._last_ts = await self.around.timestamps.next()
        with _certain():
            attempt = await drive(protocol.start(self._last_ts), self.around)
        self._last_ts, self._last_s = max(self._last_ts, attempt.start_ts), now_s
        attempt.delete_failed = self._delete_failed
        transaction = Transaction(self, attempt)
        self._open[attempt.start_ts] = transaction
        if self._refresher is None or self._refresher.done():
            self._refresher = asyncio.create_task(_refresh(weakref.ref(self)), name="refresher of leases")
        return transaction

    @translated
    async def run(self, fn: "Callable[[Transaction], Awaitable[T]]", *, attempts: int = 50) -> T:
        """Run ``fn`` in a transaction, commit it and return what ``fn`` returned. ``fn`` may run more than once.

        ``fn`` neither commits nor aborts. Runs again after conflicts and other retryable errors that are not ambiguous.
        Raises F1Error: ABORTED after ``attempts`` conflicts, UNKNOWN_OUTCOME, and what ``fn`` raises.
        """
        pauses = self.pauses()
        last: F1Error | None = None
        for _ in range(options.above_zero("attempts", attempts)):
            try:
                async with await self.start() as transaction:
                    result = await fn(transaction)
                    if await transaction.commit():
                        return result
                last = None
            except F1Error as error:
                if not error.retryable or error.ambiguous:
                    raise
                last = error
            await pause(pauses)
        raise last or too_many(attempts)

    @translated
    async def sweep(self, *, dry_run: bool = False) -> SweepReport:
        """Remove what no transaction can see any more, once; with ``dry_run`` only count it."""
        self._require_not_closed()
        report = await drive(sweeping.sweep(self.known, dry_run=dry_run), self.around)
        if not dry_run:
            self._horizon.set(report.horizon)
            for what in ("old_versions", "deletes", "failed_values", "decisions"):
                self._swept.labels(what=what).inc(getattr(report, what))
        return report

    # ------------------------------------------------------------------ inside

    def pauses(self) -> Backoff:
        """Return how long to wait between the attempts of a transaction."""
        return Backoff(2, 500, 1.7, self._rng)

    def note(self, transaction: "Transaction", outcome: str) -> None:
        """Count how a transaction has ended; its leases are refreshed no longer."""
        self._open.pop(transaction.start_ts, None)
        self._commits.labels(outcome=outcome).inc()

    def leases(self) -> list[Token]:
        """Return the leases of transactions that somebody still holds on to."""
        held = [reference() for reference in self._open.valuerefs()]
        return [token for transaction in held if transaction is not None for token in transaction.leases()]

    def _require_not_closed(self) -> None:
        if self._closed:
            raise F1Error(Code.FAILED_PRECONDITION, "the orchestrator is closed: make another one")

    async def close(self) -> None:
        """End the refresher, and close the store and the services. Open transactions expire. Idempotent."""
        self._closed = True
        if self._refresher is not None:
            self._refresher.cancel()
            await asyncio.gather(self._refresher, return_exceptions=True)
        await self.around.store.close()
        await self.around.timestamps.close()
        await self.around.locks.close()


async def _refresh(orchestrator: "weakref.ref[Orchestrator]") -> None:
    """Refresh the leases of open transactions three times as often as they need it; ends when there are none."""
    while (alive := orchestrator()) is not None and (tokens := alive.leases()):
        locks = alive.around.locks
        del alive
        try:
            await locks.refresh(tokens)
        except F1Error:
            pass  # leases that could not be refreshed lapse, which every read and commit finds out
        except Exception as error:  # an answer that nobody can read is no reason to refresh no more
            _log.error("leases could not be refreshed", exc=error)
        await asyncio.sleep(max(locks.lease_s / 3, _MIN_REFRESH_S))


class Transaction:
    """One transaction. Reads see the snapshot of its start and its own writes; writes are kept here until the commit.

    Leaving it alone aborts it; leaving its ``async with`` block does so at once. After an error of a read it may go on,
    except after TRANSACTION_EXPIRED. Tasks may read at the same time; it commits when no read is under way.
    """

    def __init__(self, orchestrator: Orchestrator, attempt: Attempt) -> None:
        """Use :meth:`Orchestrator.start`."""
        self._orchestrator = orchestrator
        self._attempt = attempt
        self._ended = False
        self._reading = 0

    @property
    def start_ts(self) -> int:
        """The start timestamp: every transaction that committed before it is seen, no other."""
        return self._attempt.start_ts

    @property
    def commit_ts(self) -> int:
        """The commit timestamp, once it has committed; 0 if it has not, or had nothing to write."""
        return self._attempt.commit_ts if self._attempt.committed else 0

    def leases(self) -> list[Token]:
        """Return what has to be refreshed while this is open."""
        attempt = self._attempt
        return [token for token in (attempt.lease, attempt.commit_lease) if token is not None]

    # ------------------------------------------------------------------ reads

    async def get(self, table: str, row: Row, column: str) -> Value:
        """Return the value of a cell, None if there is none: GET.

        Raises F1Error TRANSACTION_EXPIRED, INVALID_ARGUMENT, KEY_TOO_LONG.
        """
        return (await self.get_many([(table, row, column)]))[0]

    @translated
    async def get_many(self, wanted: Iterable[tuple[str, Row, str]]) -> list[Value]:
        """Return the values of cells, in their order: GET in its batched mode. Raises as :meth:`get`."""
        self._require_open()
        named = [(cell[0], cells.cell_key(*cell)) for cell in options.cells_of(wanted)]
        attempt = self._attempt
        rest = sorted({key for _, key in named if key not in attempt.writes})
        found: dict[bytes, Seen] = {}
        if rest:
            steps = protocol.read_cells(attempt, rest, self._orchestrator.known)
            found = dict(zip(rest, await self._read(steps), strict=True))
            serializable = {key for table, key in named if table in self._orchestrator.serializable_tables}
            attempt.reads.update((key, seen.ts) for key, seen in found.items() if key in serializable)
        values = [attempt.writes[key] if key in attempt.writes else found[key].value for _, key in named]
        return [None if value is None else cells.decode_value(value) for value in values]

    async def get_range(
        self, table: str, start: Row | None = None, end: Row | None = None, *, batch: int = 200
    ) -> AsyncIterator[RangeRow]:
        """Iterate over the rows with ``start <= row < end`` in order, by default all of a table: GET_RANGE.

        ``batch`` cells are read at a time. What the transaction writes while it iterates may or may not be met.
        Raises as :meth:`get`.
        """
        async for rows in self.range_pages(table, start, end, batch=batch):
            for row in rows:
                yield row

    async def range_pages(
        self, table: str, start: Row | None = None, end: Row | None = None, *, batch: int = 200
    ) -> AsyncIterator[list[RangeRow]]:
        """Iterate as :meth:`get_range` does, over all rows that one read completes at a time."""
        with translating():
            limit = options.above_zero("batch", batch)
            prefix = cells.table_prefix(table)
            first = prefix if start is None else cells.row_prefix(table, start)
            last = tuples.successor(prefix) if end is None else cells.row_prefix(table, end)
        current: RangeRow | None = None
        while first < last:
            with translating():
                page = await self._page(table, first, last, limit)
                merged = [(cells.decode_key(key), cells.decode_value(data)) for key, data in self._merged(page)]
            first = page.end
            complete: list[RangeRow] = []
            for cell, value in merged:
                if current is None or current.row != cell.row:
                    if current is not None:
                        complete.append(current)
                    current = RangeRow(cell.row, {})
                current.columns[cell.column] = value
            if complete:
                yield complete
        if current is not None:
            yield [current]

    async def _page(self, table: str, first: bytes, last: bytes, batch: int) -> protocol.RangeRead:
        self._require_open()
        steps = protocol.read_range(self._attempt, first, last, batch, self._orchestrator.known)
        page = await self._read(steps)
        if table in self._orchestrator.serializable_tables:
            self._attempt.ranges.append(page)
        return page

    async def _read(self, steps: Steps[T]) -> T:
        self._reading += 1
        try:
            with _certain():
                return await drive(steps, self._orchestrator.around)
        finally:
            self._reading -= 1

    def _merged(self, page: protocol.RangeRead) -> list[tuple[bytes, bytes]]:
        """Lay the transaction's own writes over what was read."""
        merged: dict[bytes, bytes | None] = {key: seen.value for key, seen in page.cells}
        merged.update((k, value) for k, value in self._attempt.writes.items() if page.start <= k < page.end)
        return [(key, value) for key, value in sorted(merged.items()) if value is not None]

    # ------------------------------------------------------------------ writes

    def set(self, table: str, row: Row, column: str, value: Value) -> None:
        """Buffer a write: SET. Raises F1Error INVALID_ARGUMENT, KEY_TOO_LONG, OUT_OF_RANGE."""
        with translating():
            self._write(table, row, column, cells.encode_value(value))

    def delete(self, table: str, row: Row, column: str) -> None:
        """Buffer the delete of a cell. Raises F1Error INVALID_ARGUMENT, KEY_TOO_LONG."""
        with translating():
            self._write(table, row, column, None)

    @translated
    async def delete_row(self, table: str, row: Row) -> None:
        """Buffer the delete of every cell of a row that this transaction sees. Raises as :meth:`get`."""
        prefix = cells.row_prefix(table, row)
        page = await self._page(table, prefix, prefix + b"\xff", 1 << 30)
        for key, _ in self._merged(page):
            self._write(table, row, cells.decode_key(key).column, None)

    def _write(self, table: str, row: Row, column: str, value: bytes | None) -> None:
        self._require_open()
        key = cells.cell_key(table, row, column)
        self._attempt.writes[key] = value
        self._attempt.rows[key] = b"" if table in self._orchestrator.unchecked_tables else cells.row_prefix(table, row)

    # ------------------------------------------------------------------ the end

    @translated
    async def commit(self, *, check: bool = True) -> bool:
        """Commit all writes, or none: COMMIT_TX. False: another transaction was in the way, run this one again.

        ``check=False`` does not look for write-write conflicts, except in serializable tables: of transactions that
        overlap, the one that started last then prevails. Raises F1Error TRANSACTION_EXPIRED and what the store and the
        services raise (nothing was kept), or UNKNOWN_OUTCOME.
        """
        self._require_open()
        if self._reading:
            # What it finds could not be looked at again, where that was asked for.
            raise F1Error(Code.FAILED_PRECONDITION, "a read of this transaction is under way: await it, then commit")
        self._ended = True
        attempt = self._attempt
        if not check:
            serializable = {cells.table_prefix(name) for name in self._orchestrator.serializable_tables}
            attempt.rows = {k: row for k, row in attempt.rows.items() if any(k.startswith(p) for p in serializable)}
        outcome = "failed"
        try:
            committed = await drive(protocol.commit(attempt, self._orchestrator.known), self._orchestrator.around)
            outcome = "committed" if committed else "conflict"
            return committed
        except F1Error as error:
            if attempt.deciding and error.ambiguous:
                outcome = "unknown"
                text = f"transaction {attempt.start_ts} may have committed or not ({error.message}): read to find out"
                raise F1Error(Code.UNKNOWN_OUTCOME, text) from error
            if error.ambiguous:
                # Whatever became of its values: without the row that commits it nobody will ever see them.
                raise _without_doubt(error) from error
            raise
        except asyncio.CancelledError:
            outcome = "unknown" if attempt.deciding else "committed" if attempt.committed else "failed"
            raise
        finally:
            self._orchestrator.note(self, outcome)
            await self._release()

    async def abort(self) -> None:
        """Give everything up. Idempotent, and harmless after :meth:`commit`."""
        if self._ended:
            return
        self._ended = True
        self._orchestrator.note(self, "aborted")
        await self._release()

    async def _release(self) -> None:
        if not self._attempt.released:
            await release(self._orchestrator.around.locks, self.leases())

    def _require_open(self) -> None:
        if self._ended:
            raise F1Error(Code.FAILED_PRECONDITION, "the transaction has ended: start another one")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.abort()


async def pause(pauses: Backoff) -> None:
    """Wait until a transaction may be attempted again."""
    await asyncio.sleep(pauses.next_s())


def too_many(attempts: int) -> F1Error:
    """Return the error of a transaction that lost every conflict."""
    return F1Error(Code.ABORTED, f"the transaction lost a conflict in each of {attempts} attempts; run it again")


async def next_rows(pages: AsyncIterator[list[RangeRow]]) -> list[RangeRow] | None:
    """Return the next rows, None at the end."""
    return await anext(pages, None)


@contextmanager
def _certain() -> Iterator[None]:
    """Nothing that a transaction does before its commit is of doubtful effect for whoever runs it: it may do it again.

    That a write of the store, such as one that fails a dead transaction, may have happened or not matters to nobody.
    """
    try:
        yield
    except F1Error as error:
        if not error.ambiguous:
            raise
        raise _without_doubt(error) from error


def _without_doubt(error: F1Error) -> F1Error:
    code = Code.UNAVAILABLE if error.code is Code.UNKNOWN_OUTCOME else error.code
    return F1Error(code, error.message, retryable=error.retryable, details=error.details)
