"""The engine of the simulator: keeps the contract in memory, can be crashed, slowed and broken, and is deterministic.

The object stands for the disk and outlives the servers that use it: :meth:`MemoryEngine.crash` takes away what was
not synced and cuts off the old incarnation, :meth:`MemoryEngine.restart` lets the next one in.

Snapshots are versions: every key has the list of its values by commit number, a snapshot remembers a commit number,
and values that no snapshot can see are dropped as commits go by. Time comes from the injected ``sleep``, so that a
sync takes as long as the simulator says.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from types import TracebackType
from typing import Self

from sortedcontainers import SortedDict

from f1common.errors import Code, InvariantViolation, check
from spanstore.engine.base import DELETE, PUT, EngineFailed, Space, WriteBatch
from spanstore.engine.damage import MemoryMarks
from spanstore.engine.sealing import is_sealed, unseal

_CHUNK_KEYS = 64

_Chain = list[tuple[int, bytes | None]]
"""Values of one key as (commit number, value or None if deleted), oldest first."""


class _Pending:
    """A commit that is not synced."""

    __slots__ = ("batch", "done")

    def __init__(self, batch: WriteBatch, done: "asyncio.Future[None]") -> None:
        self.batch = batch
        self.done = done


class MemoryReader:
    """A view of one commit of a :class:`MemoryEngine`."""

    __slots__ = ("_data", "_engine", "_open", "incarnation", "number")

    def __init__(
        self, engine: "MemoryEngine", data: "SortedDict[bytes, _Chain]", number: int, incarnation: int
    ) -> None:
        self._engine = engine
        self._data = data
        self._open = True
        self.number = number
        self.incarnation = incarnation

    def get(self, key: bytes) -> bytes | None:
        """Return the value of ``key``, or None."""
        self._check_open()
        chain = self._data.get(key)
        data = None if chain is None else self._visible(chain)
        return unseal(key, data) if data is not None and is_sealed(key) else data

    def seek_first(self, start: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        """Return the first (key, value) in ``[start, end)``, or None."""
        return next(self.scan(start, end), None)

    def seek_last(self, start: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        """Return the last (key, value) in ``[start, end)``, or None."""
        return next(self.scan(start, end, reverse=True), None)

    def scan(self, start: bytes, end: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, value) of ``[start, end)``, ascending or descending."""
        self._check_open()
        data = self._data
        low, high, open_low = start, end, False
        chunk = 1  # grows, because most scans are seeks
        while low < high:
            # In chunks, because commits change the dictionary while a scan is under way.
            keys = list(islice(data.irange(low, high, (not open_low, False), reverse), chunk))
            for key in keys:
                value = self._visible(data.get(key, ()))
                if value is not None:
                    yield key, unseal(key, value) if is_sealed(key) else value
                    self._check_open()
            if len(keys) < chunk:
                return
            chunk = min(chunk * 2, _CHUNK_KEYS)
            if reverse:
                high = keys[-1]
            else:
                low, open_low = keys[-1], True

    def page(self, start: bytes, end: bytes, most: int, max_bytes: int) -> tuple[list[tuple[bytes, bytes]], bool]:
        """Return the first (key, value) of ``[start, end)``, and whether these are all."""
        items: list[tuple[bytes, bytes]] = []
        size = 0
        for item in self.scan(start, end):
            if len(items) >= most or size >= max_bytes:
                return items, False
            items.append(item)
            size += len(item[1])
        return items, True

    def close(self) -> None:
        """Let go of the view."""
        if self._open:
            self._open = False
            self._engine.forget_reader(self)

    def _check_open(self) -> None:
        if not self._open:
            raise InvariantViolation("the reader is closed")
        if self.incarnation != self._engine.incarnation:
            raise EngineFailed(Code.UNAVAILABLE, "the engine crashed since this reader was opened")

    def _visible(self, chain: "_Chain | tuple[()]") -> bytes | None:
        number = self.number
        for commit, value in reversed(chain):
            if commit <= number:
                return value
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


async def _yield_once(delay_s: float) -> None:
    await asyncio.sleep(0)


class MemoryEngine:
    """An :class:`~spanstore.engine.base.Engine` in memory, with the faults of a disk.

    Faults, all of which may be set at any time:

    * ``latency``: seconds that the next sync takes; a slow disk is a large number.
    * :meth:`fail_next_commit`: the next sync fails, having kept its commits or not.
    * ``disk_full``: every sync fails with DISK_FULL and keeps nothing.
    * ``space_left``: what :meth:`space` tells of the room that is left.
    * ``ack_before_sync``: a mutation for testing the tests. Commits are acknowledged before they are synced, as with
      LMDB's MDB_NOSYNC, so that a crash loses what was promised. A correct checker must notice.
    """

    def __init__(
        self,
        *,
        sleep: Callable[[float], Awaitable[None]] = _yield_once,
        latency: Callable[[], float] = lambda: 0.0,
        ack_before_sync: bool = False,
    ) -> None:
        """Make an empty disk. ``sleep`` takes seconds of the simulator's time."""
        self.sleep = sleep
        self.latency = latency
        self.ack_before_sync = ack_before_sync
        self.disk_full = False
        self.space_left: Space | None = None
        self.damage = MemoryMarks()
        self._incarnation = 1
        self._data: SortedDict[bytes, _Chain] = SortedDict()
        self._visible = 0
        self._durable = 0
        self._commits = 0
        self._readers: dict[MemoryReader, None] = {}
        self._prunable: dict[bytes, None] = {}
        self._pending: list[_Pending] = []
        self._syncer: asyncio.Task[None] | None = None
        self._fail_next: tuple[Code, bool] | None = None
        self._refusal: str | None = None

    @property
    def incarnation(self) -> int:
        """How many servers used this disk, the present one included."""
        return self._incarnation

    def space(self) -> Space | None:
        """Tell how much room there is, as the test has it."""
        return self.space_left

    def snapshot(self) -> MemoryReader:
        """Open a view of the newest durable state. Raises EngineFailed."""
        self._check_usable()
        reader = MemoryReader(self, self._data, self._visible, self.incarnation)
        self._readers[reader] = None
        return reader

    def forget_reader(self, reader: MemoryReader) -> None:
        """Take note that a reader closed itself."""
        self._readers.pop(reader, None)

    async def commit(self, batch: WriteBatch) -> None:
        """Apply ``batch`` atomically and return once it is synced. Raises EngineFailed."""
        self._check_usable()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pending.append(_Pending(batch, done))
        if self.ack_before_sync:
            self._apply(batch)
            done.set_result(None)
        if self._syncer is None or self._syncer.done():
            self._syncer = asyncio.create_task(self._sync_loop(self.incarnation))
        await done

    async def close(self) -> None:
        """Finish the commits that were begun; :meth:`restart` opens the disk again."""
        if self._refusal is not None:
            return
        self._refusal = "the engine is closed"
        if self._syncer is not None and not self._syncer.done():
            await asyncio.wait([self._syncer])
        self._cut_off(self._refusal)

    def info(self) -> dict[str, int | str]:
        """Return counts for tests and operators."""
        return {
            "engine": "memory",
            "entries": len(self._data),
            "commits": self._commits,
            "pending": len(self._pending),
            "open_readers": len(self._readers),
            "incarnation": self.incarnation,
        }

    def fail_next_commit(self, code: Code = Code.UNAVAILABLE, *, kept: bool = False) -> None:
        """Let the next sync fail with ``code``; ``kept`` says whether its commits are on the disk all the same."""
        self._fail_next = (code, kept)

    def flip_bit(self, key: bytes, *, bit: int = 0) -> None:
        """Flip a bit of what is stored under ``key``, as a disk does that nobody watches."""
        chain = self._data[key]
        commit, value = chain[-1]
        check(value, f"nothing is stored under {key.hex()}")
        damaged = bytearray(value or b"")
        damaged[bit // 8] ^= 1 << bit % 8
        chain[-1] = (commit, bytes(damaged))

    def lose(self, key: bytes) -> None:
        """Forget what is stored under ``key``, as a disk does that has lost a write."""
        del self._data[key]

    def crash(self, *, keep_pending: int = 0) -> None:
        """Lose what is not synced, as a power failure does, and refuse service until :meth:`restart`.

        The first ``keep_pending`` of the commits that nobody heard of survive: a crash may come after the sync and
        before the answer.
        """
        if self._syncer is not None:
            self._syncer.cancel()
        self._make_durable(self._pending[:keep_pending])
        if self.ack_before_sync:
            self._roll_back()
        self._cut_off("the engine crashed")

    def restart(self) -> None:
        """Serve a new incarnation of the server, whose memory is empty."""
        check(self._refusal is not None, "an engine restarts after a crash, a failure or a close")
        self._refusal = None
        self._fail_next = None

    def _check_usable(self) -> None:
        if self._refusal is not None:
            raise EngineFailed(Code.UNAVAILABLE, self._refusal)

    async def _sync_loop(self, incarnation: int) -> None:
        while self._pending and self.incarnation == incarnation:
            group = list(self._pending)
            await self.sleep(self.latency())
            failure, self._fail_next = self._fail_next, None
            if self.disk_full:
                failure = (Code.DISK_FULL, False)
            if failure is None or failure[1]:
                self._make_durable(group)
            if failure is not None:
                if self.ack_before_sync:
                    self._roll_back()
                self._cut_off("a commit failed", failure[0])
                return
            del self._pending[: len(group)]
            self._commits += len(group)
            for item in group:
                if not item.done.done():
                    item.done.set_result(None)
            self._prune()

    def _make_durable(self, group: list[_Pending]) -> None:
        if self.ack_before_sync:
            self._durable += len(group)
            return
        for item in group:
            self._apply(item.batch)
        self._durable = self._visible

    def _cut_off(self, why: str, code: Code = Code.UNAVAILABLE) -> None:
        """Refuse everything from now on, and tell those who wait."""
        self._refusal = why
        pending, self._pending = self._pending, []
        for item in pending:
            if not item.done.done():
                item.done.set_exception(EngineFailed(code, why))
        self._syncer = None
        self._readers.clear()
        self._incarnation += 1
        self._prune()

    def _apply(self, batch: WriteBatch) -> None:
        self._visible += 1
        for kind, key, value in batch.ops:
            if kind == PUT:
                self._set(key, value)
            elif kind == DELETE:
                self._set(key, None)
            else:
                for doomed in list(self._data.irange(key, value, (True, False))):
                    self._set(doomed, None)

    def _set(self, key: bytes, value: bytes | None) -> None:
        chain = self._data.get(key)
        if chain is None:
            if value is None:
                return
            self._data[key] = [(self._visible, value)]
            return
        if chain[-1][0] == self._visible:
            chain.pop()
        chain.append((self._visible, value))
        self._prunable[key] = None

    def _roll_back(self) -> None:
        """Drop every value above the last synced commit."""
        for key, chain in list(self._data.items()):
            while chain and chain[-1][0] > self._durable:
                chain.pop()
            if not chain:
                del self._data[key]
        self._visible = self._durable

    def _prune(self) -> None:
        """Drop values that neither a snapshot nor a crash can bring to light."""
        oldest = min((reader.number for reader in self._readers), default=self._visible)
        oldest = min(oldest, self._durable)
        kept: dict[bytes, None] = {}
        for key in self._prunable:
            chain = self._data.get(key)
            if chain is None:
                continue
            newest_needed = 0
            for position, (commit, _) in enumerate(chain):
                if commit <= oldest:
                    newest_needed = position
            del chain[:newest_needed]
            if len(chain) == 1 and chain[0][1] is None and chain[0][0] <= oldest:
                del self._data[key]
            elif len(chain) > 1 or chain[0][1] is None:
                kept[key] = None
        self._prunable = kept
