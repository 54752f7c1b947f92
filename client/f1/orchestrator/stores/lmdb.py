"""A store in one LMDB file on this machine. Everything is on the disk when it is acknowledged.

One thread commits all writes; what has come in while it was busy with a commit shares the next one and its sync. The
key of a version is the cell's key and the timestamp, inverted, so that the newest version of a cell comes first.
"""

import asyncio
import contextlib
import fcntl
import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import lmdb

from f1.errors import translating
from f1.orchestrator import options
from f1.orchestrator.protocol import EVERYTHING
from f1.orchestrator.steps import Version, Write
from f1.orchestrator.stores.base import check_keys
from f1common.errors import Code, F1Error
from f1common.observe.logs import get_logger

__all__ = ["LmdbStore"]

T = TypeVar("T")

_log = get_logger(__name__)

_STAMP_BYTES = 8
_MAX_BATCH = 1000
_DELETED = b"\x00"
_VALUE = b"\x01"

_Work = tuple[Callable[[Any], Any], "asyncio.Future[Any]", asyncio.AbstractEventLoop]


def _version_key(key: bytes, ts: int) -> bytes:
    return key + (EVERYTHING - ts).to_bytes(_STAMP_BYTES, "big")


def _split(version_key: bytes) -> tuple[bytes, int]:
    return version_key[:-_STAMP_BYTES], EVERYTHING - int.from_bytes(version_key[-_STAMP_BYTES:], "big")


def _packed(value: bytes | None) -> bytes:
    return _DELETED if value is None else _VALUE + value


def _unpacked(data: bytes) -> bytes | None:
    return None if data[:1] == _DELETED else data[1:]


def _folder(path: str | os.PathLike[str]) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise F1Error(Code.INVALID_ARGUMENT, f"a store is a folder, not {str(path)[:60]!r}")
    return Path(path)


def _open(folder: Path, shared: bool, map_bytes: int) -> tuple[int, Any]:
    """Return the file that says who uses the folder, locked, and the environment."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        guard = os.open(folder / "used", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise F1Error(Code.BAD_DATA_DIR, f"cannot use {folder} for a store: {error.strerror}") from error
    try:
        fcntl.flock(guard, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        return guard, lmdb.open(str(folder), map_size=map_bytes, max_readers=1024)
    except OSError as error:
        os.close(guard)
        text = (
            f"{folder} is open already, in another process or in this one: close it there, or open the store with "
            "shared=True in all processes"
        )
        raise F1Error(Code.FAILED_PRECONDITION, text) from error
    except (lmdb.Error, OverflowError) as error:
        os.close(guard)
        raise F1Error(Code.BAD_DATA_DIR, f"cannot open the store {folder}: {error}") from error


class LmdbStore:
    """Implements :class:`~f1.orchestrator.stores.base.Store`."""

    def __init__(self, path: str | os.PathLike[str], *, shared: bool = False, map_bytes: int = 64 << 30) -> None:
        """Open or create the folder ``path``.

        One process at a time may have it open, since the twins of the services know no other one; with ``shared`` any
        number of processes, which then all use the same timestamp and lock services, and give the same ``map_bytes``,
        which is how large it can grow. Raises F1Error FAILED_PRECONDITION if another process has it, BAD_DATA_DIR,
        INVALID_ARGUMENT.
        """
        with translating():
            folder = _folder(path)
            self._guard, self._env = _open(folder, shared, options.above_zero("map_bytes", map_bytes))
        self.shared = shared
        """Whether other processes may have it open too."""
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._commit_all, name=f"store {folder.name}", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------ reads

    async def get_versions(self, asked: Sequence[tuple[bytes, int]]) -> list[Version | None]:
        """Return the newest versions below the timestamps."""
        with self._reading() as cursor:
            return [_newest(cursor, key, below) for key, below in asked]

    async def range(
        self, start: bytes, end: bytes, below: int, limit: int, *, every: bool = False
    ) -> list[tuple[bytes, list[Version]]]:
        """Return cells in the order of their keys."""
        page: list[tuple[bytes, list[Version]]] = []
        if below <= 0:
            return page
        with self._reading() as cursor:
            found = cursor.set_range(start)
            while found and len(page) < limit:
                key, _ = _split(cursor.key())
                if key >= end:
                    break
                if key < start:  # a bound just above a key comes before the versions of that key
                    found = cursor.set_range(key + b"\xff" * _STAMP_BYTES)
                    continue
                versions = []
                found = cursor.set_range(_version_key(key, below - 1))
                while found and cursor.key()[:-_STAMP_BYTES] == key:
                    versions.append(Version(_split(cursor.key())[1], _unpacked(cursor.value())))
                    if not every:
                        break
                    found = cursor.next()
                if versions:
                    page.append((key, versions))
                if found and cursor.key()[:-_STAMP_BYTES] == key:
                    found = cursor.set_range(key + b"\xff" * _STAMP_BYTES)
        return page

    @contextlib.contextmanager
    def _reading(self) -> Iterator[Any]:
        if self._closed:
            raise F1Error(Code.FAILED_PRECONDITION, "the store is closed")
        try:
            with self._env.begin() as txn, txn.cursor() as cursor:
                yield cursor
        except lmdb.Error as error:
            raise _failed(error) from error

    # ------------------------------------------------------------------ writes

    async def put(self, writes: Sequence[Write]) -> None:
        """Write versions. Raises F1Error KEY_TOO_LONG, DISK_FULL."""
        check_keys([write.key for write in writes])

        def work(txn: Any) -> None:
            for write in writes:
                txn.put(_version_key(write.key, write.ts), _packed(write.value))

        await self._written(work)

    async def put_if_absent(self, write: Write) -> bytes:
        """Write a version unless there is one; return what is there. Raises F1Error KEY_TOO_LONG, DISK_FULL."""
        check_keys([write.key])

        def work(txn: Any) -> bytes:
            key = _version_key(write.key, write.ts)
            found = txn.get(key)
            if found is None:
                txn.put(key, _packed(write.value))
                return write.value or b""
            return _unpacked(found) or b""

        return await self._written(work)

    async def delete(self, versions: Sequence[tuple[bytes, int]]) -> None:
        """Remove versions, all of them or none."""

        def work(txn: Any) -> None:
            for key, ts in versions:
                txn.delete(_version_key(key, ts))

        await self._written(work)

    async def close(self) -> None:
        """Commit what is queued and close the file. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._work.put(None)
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join)
        self._env.close()
        os.close(self._guard)

    async def _written(self, work: Callable[[Any], T]) -> T:
        if self._closed:
            raise F1Error(Code.FAILED_PRECONDITION, "the store is closed")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._work.put((work, future, loop))
        return await future

    def _commit_all(self) -> None:
        """The thread that begins and commits every write transaction."""
        while (first := self._work.get()) is not None:
            batch = [first]
            last = False
            while len(batch) < _MAX_BATCH and not self._work.empty():
                item = self._work.get()
                if item is None:
                    last = True
                    break
                batch.append(item)
            self._commit(batch)
            if last:
                return

    def _commit(self, batch: list[_Work]) -> None:
        results: list[Any] = []
        failure: F1Error | None = None
        try:
            with self._env.begin(write=True) as txn:
                results = [work(txn) for work, _, _ in batch]
        except lmdb.Error as error:
            failure = _failed(error)
        except Exception as error:  # this thread is the only one: whoever waits, now or later, would wait for ever
            _log.error("a write of the store has failed", exc=error)
            failure = F1Error(Code.INTERNAL, f"a write of the store has failed: {error}", ambiguous=True)
        for position, (_, future, loop) in enumerate(batch):
            result = None if failure is not None else results[position]
            with contextlib.suppress(RuntimeError):  # the loop of the caller has ended
                loop.call_soon_threadsafe(_settle, future, result, failure)


def _newest(cursor: Any, key: bytes, below: int) -> Version | None:
    if below <= 0 or not cursor.set_range(_version_key(key, below - 1)):
        return None
    found, ts = _split(cursor.key())
    return Version(ts, _unpacked(cursor.value())) if found == key else None


def _settle(future: "asyncio.Future[Any]", result: Any, failure: F1Error | None) -> None:
    if future.done():
        return
    if failure is None:
        future.set_result(result)
    else:
        # One error for each caller: a shared one would collect all their tracebacks.
        future.set_exception(F1Error(failure.code, failure.message, ambiguous=failure.ambiguous))


def _failed(error: lmdb.Error) -> F1Error:
    """A full map is found before anything is written; of other failures of a commit nothing is known."""
    if isinstance(error, lmdb.MapFullError):
        return F1Error(Code.DISK_FULL, "the store is full: open it with a larger map_bytes")
    return F1Error(Code.UNAVAILABLE, f"the store failed: {error}", ambiguous=True)
