"""The orchestrator for asyncio: the primitives of patent 9619507, the retry loop and the sweep."""

import asyncio
import random
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from f1.orchestrator import cells, protocol, sweeping
from f1.orchestrator.cells import Row, Value
from f1.orchestrator.driver import Surroundings, drive, release
from f1.orchestrator.protocol import Attempt, Seen
from f1.orchestrator.services import LocalTimestamps, LockService, TimestampService
from f1.orchestrator.steps import Steps
from f1.orchestrator.stores.base import Store
from f1.orchestrator.sweeping import SweepReport
from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from f1common.ids import process_rng
from f1common.observe.metrics import Metrics
from f1common.orchestrator.lock_table import Token
from f1common.rpc.backoff import Backoff

__all__ = ["Orchestrator", "RangeRow", "Transaction"]

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
        INVALID_ARGUMENT.
        """
        if isinstance(timestamps, LocalTimestamps):
            timestamps.bind(store)
        self.unchecked_tables = frozenset(cells.check_name("table", name) for name in unchecked_tables)
        self.serializable_tables = frozenset(cells.check_name("table", name) for name in serializable_tables)
        if both := self.unchecked_tables & self.serializable_tables:
            text = f"a serializable table is checked for conflicts, so {', '.join(sorted(both))} cannot be unchecked"
            raise F1Error(Code.INVALID_ARGUMENT, text)
        self.around = Surroundings(store, timestamps, locks, timeout_s)
        self.known = _Decisions()
        self._delete_failed = delete_failed
        self._rng = rng or process_rng()
        self._last_ts, self._last_s = 0, 0.0
        self._open: weakref.WeakSet[Transaction] = weakref.WeakSet()
        self._refresher: asyncio.Task[None] | None = None
        meter = metrics or Metrics()
        self._commits = meter.counter("orchestrator_commits", "Transactions by outcome.", ("outcome",))
        self._swept = meter.counter("orchestrator_swept", "What sweeps have removed.", ("what",))
        self._horizon = meter.gauge("orchestrator_horizon", "Timestamp up to which the last sweep has swept.")

    # ------------------------------------------------------------------ transactions

    async def start(self) -> "Transaction":
        """Begin a transaction: START_TX. Raises F1Error UNAVAILABLE and what else the services raise."""
        now_s = asyncio.get_running_loop().time()
        if not self._last_ts or now_s > self._last_s + _STALE_S:
            # A sweep removes nothing above the lowest bound: one from long ago would hold it back while this runs.
            self._last_ts = await self.around.timestamps.next()
        attempt = await drive(protocol.start(self._last_ts), self.around)
        self._last_ts, self._last_s = max(self._last_ts, attempt.start_ts), now_s
        attempt.delete_failed = self._delete_failed
        transaction = Transaction(self, attempt)
        self._open.add(transaction)
        if self._refresher is None or self._refresher.done():
            self._refresher = asyncio.create_task(_refresh(weakref.ref(self)), name="refresher of leases")
        return transaction

    async def run(self, fn: "Callable[[Transaction], Awaitable[T]]", *, attempts: int = 50) -> T:
        """Run ``fn`` in a transaction, commit it and return what ``fn`` returned. ``fn`` may run more than once.

        Runs again after conflicts and other retryable errors that are not ambiguous. Raises F1Error: ABORTED after
        ``attempts`` conflicts, UNKNOWN_OUTCOME, and what ``fn`` raises.
        """
        if attempts < 1:
            raise F1Error(Code.INVALID_ARGUMENT, "a transaction is attempted at least once")
        pauses = self.pauses()
        last: F1Error | None = None
        for _ in range(attempts):
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

    async def sweep(self, *, dry_run: bool = False) -> SweepReport:
        """Remove what no transaction can see any more, once; with ``dry_run`` only count it."""
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
        self._open.discard(transaction)
        self._commits.labels(outcome=outcome).inc()

    def leases(self) -> list[Token]:
        """Return the leases of transactions that somebody still holds on to."""
        return [token for transaction in list(self._open) for token in transaction.leases()]

    async def close(self) -> None:
        """End the refresher, and close the store and the services. Open transactions expire. Idempotent."""
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
        """The commit timestamp, once it has committed."""
        return self._attempt.commit_ts

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

    async def get_many(self, wanted: Iterable[tuple[str, Row, str]]) -> list[Value]:
        """Return the values of cells, in their order: GET in its batched mode. Raises as :meth:`get`."""
        self._require_open()
        named = [(_cell(cell)[0], cells.cell_key(*_cell(cell))) for cell in wanted]
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
        if batch < 1:
            raise F1Error(Code.INVALID_ARGUMENT, "a batch has at least one cell")
        prefix = cells.table_prefix(table)
        first = prefix if start is None else cells.row_prefix(table, start)
        last = tuples.successor(prefix) if end is None else cells.row_prefix(table, end)
        current: RangeRow | None = None
        while first < last:
            page = await self._page(table, first, last, batch)
            first = page.end
            for key, data in self._merged(page):
                cell = cells.decode_key(key)
                if current is None or current.row != cell.row:
                    if current is not None:
                        yield current
                    current = RangeRow(cell.row, {})
                current.columns[cell.column] = cells.decode_value(data)
        if current is not None:
            yield current

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
        self._write(table, row, column, cells.encode_value(value))

    def delete(self, table: str, row: Row, column: str) -> None:
        """Buffer the delete of a cell. Raises F1Error INVALID_ARGUMENT, KEY_TOO_LONG."""
        self._write(table, row, column, None)

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
            raise
        except asyncio.CancelledError:
            outcome = "unknown" if attempt.deciding else "failed"
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


async def next_row(rows: AsyncIterator[RangeRow]) -> RangeRow | None:
    """Return the next row, None at the end."""
    return await anext(rows, None)


def _cell(cell: tuple[str, Row, str]) -> tuple[str, Row, str]:
    if not isinstance(cell, tuple | list) or len(cell) != len(cells.Cell._fields):
        raise F1Error(Code.INVALID_ARGUMENT, f"a cell is (table, row, column), not {str(cell)[:60]}")
    table, row, column = cell
    return table, row, column
