"""Commits the rows of a file: many transactions of some hundred rows, several in flight (F1 section 10)."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from f1.loading.readers import Source
from f1.loading.writes import Batch, NullValue, WriteMaker, root_width
from f1.metadata import Metadata, Table
from f1.session import Session
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from f1common.rpc.deadlines import Deadline

ROWS_PER_TRANSACTION = 500
IN_FLIGHT = 8

_TRIES = 10
_COMMIT_TIMEOUT_S = 120.0


@dataclass(slots=True)
class Progress:
    """What was loaded. ``rows`` are committed; ``uncertain`` may be (their commit's outcome is not known)."""

    rows: int = 0
    read: int = 0
    uncertain: int = 0
    committed: set[int] = field(default_factory=set)
    _all_up_to: int = 0

    def done(self, batch: Batch) -> None:
        """Count a batch that committed."""
        self.rows += len(batch.rows)
        self.committed.update(batch.rows)
        while self._all_up_to in self.committed:
            self.committed.discard(self._all_up_to)
            self._all_up_to += 1

    @property
    def first_missing(self) -> int:
        """The number (from 0) of the first row that is not known to be loaded."""
        return self._all_up_to


class Loader:
    """Loads one file into one table."""

    def __init__(
        self,
        session: Session,
        metadata: Metadata,
        table: Table,
        source: Source,
        *,
        upsert: bool = False,
        rows_per_transaction: int = ROWS_PER_TRANSACTION,
        in_flight: int = IN_FLIGHT,
        on_progress: Callable[[Progress], None] = lambda progress: None,
    ) -> None:
        """``upsert``: rows that are there already are updated, so that a file may be loaded again."""
        self._session = session
        self._metadata = metadata
        self._table = table
        self._source = source
        self._kind = pb.LogicalWrite.UPSERT if upsert else pb.LogicalWrite.INSERT
        self._rows = rows_per_transaction
        self._in_flight = in_flight
        self._on_progress = on_progress
        self.progress = Progress()

    async def run(self) -> Progress:
        """Load. The first error ends it after the transactions that are under way; what was loaded is in ``progress``.

        Raises F1Error, with the file and the place in it where there is one.
        """
        batches = self._batches()
        running: set[asyncio.Task[None]] = set()
        failure: BaseException | None = None
        exhausted = False
        while running or not exhausted:
            while not exhausted and len(running) < self._in_flight:
                try:
                    batch = next(batches, None)
                except F1Error as error:
                    batch, failure = None, failure or error
                if batch is None:
                    exhausted = True
                    break
                running.add(asyncio.create_task(self._commit(batch)))
                await asyncio.sleep(0)  # lets it go out while the next one is made
            if running:
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                errors = [caught for task in done if (caught := task.exception()) is not None]
                failure = failure or (errors[0] if errors else None)
            exhausted = exhausted or failure is not None
        if failure is not None:
            raise failure
        return self.progress

    def _batches(self) -> Iterator[Batch]:
        maker: WriteMaker | None = None
        for chunk in self._source.chunks():
            if maker is None:
                width = root_width(self._metadata, self._table)
                maker = WriteMaker(self._metadata, self._table, chunk.columns, self._kind, width)
            self.progress.read = chunk.first_row + chunk.rows
            try:
                yield from maker.batches(chunk, self._rows)
            except NullValue as error:
                text = f"{self._source.place(error.row)}: column {error.column} is NOT NULL and needs a value"
                raise F1Error(Code.INVALID_ARGUMENT, text) from error

    async def _commit(self, batch: Batch) -> None:
        backoff = self._session.backoff()
        for attempt in range(1, _TRIES + 1):
            try:
                deadline = Deadline.after(_COMMIT_TIMEOUT_S)
                if batch.upsert:
                    await self._session.commit(batch.writes, (), 0, deadline=deadline)
                else:
                    await self._session.insert_rows(batch.new, deadline=deadline)
                self.progress.done(batch)
                self._on_progress(self.progress)
                return
            except F1Error as error:
                if error.ambiguous:
                    self.progress.uncertain += len(batch.rows)
                if error.ambiguous or not error.retryable or attempt == _TRIES:
                    raise self._placed(error, batch) from error
                delay_s = backoff.next_s()
            await asyncio.sleep(delay_s)

    def _placed(self, error: F1Error, batch: Batch) -> F1Error:
        row = self._row_of(error, batch)
        if row is not None:
            place = self._source.place(row)
        else:
            place = f"{self._source.path}: rows {min(batch.rows) + 1} to {max(batch.rows) + 1}"
        return F1Error(
            error.code,
            f"{place}: {error.message}",
            retryable=error.retryable,
            ambiguous=error.ambiguous,
            details=error.details,
        )

    def _row_of(self, error: F1Error, batch: Batch) -> int | None:
        """Return the row that an error is about: the one whose write it names, or the one that has its key."""
        position = error.details.get("write", "")
        if position.isdecimal() and int(position) < len(batch.rows):
            return batch.rows[int(position)]
        shown = error.details.get("key", "")
        if error.details.get("table", "").lower() != self._table.name.lower() or not shown:
            return batch.rows[0] if len(batch.rows) == 1 else None
        # Of a row without its parent, the key in the error is the beginning of the row's own.
        width = shown.partition(") = (")[0].count(",") + 1
        ends = [f"= ({_shown(key[:width])})" for key in batch.keys]
        return next((row for row, end in zip(batch.rows, ends, strict=True) if shown.endswith(end)), None)


def _shown(key: tuple[object, ...]) -> str:
    """Return a key as servers show it in errors."""
    return ", ".join(repr(value) if isinstance(value, str) else str(value) for value in key)
