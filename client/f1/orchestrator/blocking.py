"""The orchestrator for programs without asyncio: the same as :mod:`f1.orchestrator.aio`, each call waits."""

import inspect
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self, TypeVar

from f1.errors import translating
from f1.orchestrator import aio, options
from f1.orchestrator.aio import RangeRow
from f1.orchestrator.cells import Row, Value
from f1.orchestrator.services import LockService, TimestampService
from f1.orchestrator.stores.base import Store
from f1.orchestrator.sweeping import SweepReport
from f1.runtime import runtime
from f1common.errors import Code, F1Error
from f1common.observe.metrics import Metrics

__all__ = ["Orchestrator", "Transaction"]

T = TypeVar("T")


class Orchestrator:
    """Transactions over a store, for any number of threads. Errors are those of :mod:`f1.errors`."""

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
    ) -> None:
        """See :class:`f1.orchestrator.aio.Orchestrator`."""
        with translating():
            self._inner = aio.Orchestrator(
                store,
                timestamps,
                locks,
                unchecked_tables=unchecked_tables,
                serializable_tables=serializable_tables,
                timeout_s=timeout_s,
                delete_failed=delete_failed,
                metrics=metrics,
            )

    def start(self) -> "Transaction":
        """Begin a transaction: START_TX."""
        with translating():
            return Transaction(runtime().call(self._inner.start()))

    def run(self, fn: "Callable[[Transaction], T]", *, attempts: int = 50) -> T:
        """Run ``fn`` in a transaction, commit it and return what ``fn`` returned. ``fn`` may run more than once.

        ``fn`` neither commits nor aborts. Raises ABORTED after ``attempts`` conflicts, UNKNOWN_OUTCOME, and what ``fn``
        raises.
        """
        with translating():
            options.above_zero("attempts", attempts)
        pauses = self._inner.pauses()
        last: F1Error | None = None
        for _ in range(attempts):
            try:
                with self.start() as transaction:
                    result = _done(fn(transaction))
                    if transaction.commit():
                        return result
                last = None
            except F1Error as error:
                if not error.retryable or error.ambiguous:
                    raise
                last = error
            runtime().call(aio.pause(pauses))
        with translating():
            raise last or aio.too_many(attempts)

    def sweep(self, *, dry_run: bool = False) -> SweepReport:
        """Remove what no transaction can see any more, once; with ``dry_run`` only count it."""
        with translating():
            return runtime().call(self._inner.sweep(dry_run=dry_run))

    def close(self) -> None:
        """Close the store and the services. Idempotent."""
        with translating():
            runtime().give_up(self._inner.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Transaction:
    """One transaction; see :class:`f1.orchestrator.aio.Transaction`. Threads that share it take turns, call by call."""

    def __init__(self, inner: aio.Transaction) -> None:
        """Use :meth:`Orchestrator.start`."""
        self._inner = inner
        self._turn = threading.Lock()

    @contextmanager
    def _taking_turns(self) -> Iterator[None]:
        """A write of one thread is in the commit of another one, or is refused because the transaction has ended."""
        with self._turn, translating():
            yield

    @property
    def start_ts(self) -> int:
        """The start timestamp."""
        return self._inner.start_ts

    @property
    def commit_ts(self) -> int:
        """The commit timestamp, once it has committed."""
        return self._inner.commit_ts

    def get(self, table: str, row: Row, column: str) -> Value:
        """Return the value of a cell, None if there is none: GET."""
        with self._taking_turns():
            return runtime().call(self._inner.get(table, row, column))

    def get_many(self, wanted: Iterable[tuple[str, Row, str]]) -> list[Value]:
        """Return the values of cells, in their order. What makes ``wanted`` may use the transaction."""
        with translating():
            named = options.cells_of(wanted)
        with self._taking_turns():
            return runtime().call(self._inner.get_many(named))

    def get_range(
        self, table: str, start: Row | None = None, end: Row | None = None, *, batch: int = 200
    ) -> Iterator[RangeRow]:
        """Iterate over the rows with ``start <= row < end``, by default all of a table: GET_RANGE."""
        pages = self._inner.range_pages(table, start, end, batch=batch)
        while True:
            with self._taking_turns():
                rows = runtime().call(aio.next_rows(pages))
            if rows is None:
                return
            yield from rows

    def set(self, table: str, row: Row, column: str, value: Value) -> None:
        """Buffer a write: SET."""
        with self._taking_turns():
            self._inner.set(table, row, column, value)

    def delete(self, table: str, row: Row, column: str | None = None) -> None:
        """Buffer the delete of a cell, or without a column of every cell of the row that this transaction sees."""
        with self._taking_turns():
            if column is None:
                runtime().call(self._inner.delete_row(table, row))
            else:
                self._inner.delete(table, row, column)

    def commit(self, *, check: bool = True) -> bool:
        """Commit all writes, or none: COMMIT_TX. False: another transaction was in the way, run this one again."""
        with self._taking_turns():
            return runtime().call(self._inner.commit(check=check))

    def abort(self) -> None:
        """Give everything up. Idempotent, and harmless after :meth:`commit`."""
        with self._taking_turns():
            runtime().give_up(self._inner.abort())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.abort()


def _done(result: T) -> T:
    """Return what a transaction's function returned. A coroutine has done nothing yet, and nobody would await it."""
    if inspect.iscoroutine(result):
        result.close()
        with translating():
            text = "the function of a transaction is a coroutine function: f1.orchestrator.aio runs those"
            raise F1Error(Code.INVALID_ARGUMENT, text)
    return result
