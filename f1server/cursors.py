"""Results that are too large for one answer: the rest waits here until it is fetched or nobody asks any more."""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pyarrow as pa

from f1common.errors import Code, F1Error
from f1common.ids import new_id

IDLE_S = 60.0
_MAX_OPEN = 1_000
# Without it each stream asks the environment how it is to be written, which takes as long as writing a row.
_FORMAT = pa.ipc.IpcWriteOptions()


@dataclass(slots=True, eq=False)
class _Cursor:
    batches: AsyncIterator[pa.RecordBatch]
    schema: pa.Schema
    last_used: float
    owner: int
    busy: bool = False
    rest: pa.RecordBatch | None = None
    """What of the last batch did not fit."""


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a result as an Arrow IPC stream; ``cursor`` empty: that was the last."""

    arrow: bytes
    cursor: bytes
    rows: int


class Cursors:
    """The open results of one server."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._open: dict[bytes, _Cursor] = {}

    def __len__(self) -> int:
        return len(self._open)

    async def start(
        self, schema: pa.Schema, batches: AsyncIterator[pa.RecordBatch], max_bytes: int, owner: int = 0
    ) -> Page:
        """Take the first part of a result of the role ``owner``, and keep the rest if there is one."""
        cursor = _Cursor(batches, schema, asyncio.get_running_loop().time(), owner)
        arrow, rows, more = await _take(cursor, max_bytes)
        if not more:
            return Page(arrow, b"", rows)
        if len(self._open) >= _MAX_OPEN:
            await _close(cursor)
            raise F1Error(Code.OVERLOADED, f"this server holds {_MAX_OPEN} unread results; close some, or retry later")
        handle = new_id(self._rng)
        self._open[handle] = cursor
        return Page(arrow, handle, rows)

    async def fetch(self, handle: bytes, max_bytes: int, owner: int = 0) -> Page:
        """Take the next part, for the role whose result it is.

        Raises NOT_FOUND for a result that is closed, read to its end, given up or another role's.
        """
        cursor = self._open.get(handle)
        if cursor is None or cursor.busy or cursor.owner != owner:
            raise F1Error(
                Code.NOT_FOUND,
                "this server holds no such result: it was read, closed, or idle for a minute; query again",
            )
        cursor.busy = True
        cursor.last_used = asyncio.get_running_loop().time()
        try:
            arrow, rows, more = await _take(cursor, max_bytes)
        except BaseException:
            await self.close_one(handle)
            raise
        finally:
            cursor.busy = False
        if not more:
            self._open.pop(handle, None)
        return Page(arrow, handle if more else b"", rows)

    async def close_one(self, handle: bytes, owner: int | None = None) -> None:
        """Give a result up; harmless for one that is not there, or not ``owner``'s if that is given."""
        if owner is not None and (held := self._open.get(handle)) is not None and held.owner != owner:
            return
        cursor = self._open.pop(handle, None)
        if cursor is not None:
            await _close(cursor)

    async def sweep(self) -> None:
        """Give up results that nobody reads, for ever."""
        while True:
            await asyncio.sleep(5.0)
            oldest = asyncio.get_running_loop().time() - IDLE_S
            for handle in [h for h, c in self._open.items() if c.last_used < oldest and not c.busy]:
                await self.close_one(handle)

    async def close(self) -> None:
        """Give up everything."""
        for handle in list(self._open):
            await self.close_one(handle)


def arrow_stream(batch: pa.RecordBatch) -> bytes:
    """Return an IPC stream of one batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=_FORMAT) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


async def _take(cursor: _Cursor, max_bytes: int) -> tuple[bytes, int, bool]:
    """Return an IPC stream of about ``max_bytes``, its rows, and whether more may come."""
    sink = pa.BufferOutputStream()
    rows = 0
    more = True
    with pa.ipc.new_stream(sink, cursor.schema, options=_FORMAT) as writer:
        while sink.tell() < max_bytes:
            batch = cursor.rest if cursor.rest is not None else await anext(cursor.batches, None)
            if batch is None:
                more = False
                break
            if not batch.num_rows:
                continue
            part = _first_rows(batch, max_bytes - sink.tell())
            cursor.rest = batch.slice(part.num_rows) if part.num_rows < batch.num_rows else None
            writer.write_batch(part)
            rows += part.num_rows
    return sink.getvalue().to_pybytes(), rows, more


def _first_rows(batch: pa.RecordBatch, max_bytes: int) -> pa.RecordBatch:
    """Return as many of the first rows as fit, and one at least: a batch of long values is cut into several pages."""
    count = batch.num_rows
    while count > 1 and batch.slice(0, count).nbytes > max_bytes:
        count //= 2
    return batch.slice(0, count)


async def _close(cursor: _Cursor) -> None:
    close = getattr(cursor.batches, "aclose", None)
    if close is not None:
        await close()


async def one_batch(batch: pa.RecordBatch) -> AsyncIterator[pa.RecordBatch]:
    """Return the batches of a result that is there already."""
    yield batch
