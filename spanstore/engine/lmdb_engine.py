"""The engine on a disk: one LMDB environment per spanserver.

What is not obvious about LMDB, and shapes this file:

* A write transaction belongs to the thread that began it (it holds a robust mutex): committed elsewhere, it hangs
  the next one. So one thread does all writing, and :meth:`LmdbEngine.commit` hands it batches. Batches that queue up
  while it syncs share the next transaction and its sync.
* Every call of LMDB lets go of the interpreter's lock, and the thread that wants it back waits for the switch
  interval if the event loop is busy: at Python's default of 5 ms, a transaction of a hundred puts took 60 ms beside a
  busy loop, at 0.1 ms it takes 3. Opening an engine for writing therefore lowers the switch interval.
* The file is read through a memory map: reading a page beyond the end of a truncated file is SIGBUS, not an error.
  So length and meta pages are checked before the map is made. LMDB need not write the last pages it counted (those
  allocated and freed within one transaction), so the file is kept longer than the count by allocating space ahead of
  it, which also finds a full disk before anything is written.
* LMDB creates its file without syncing the directory, so that a crash could lose the name.
* A process that dies with an open read transaction pins pages until ``reader_check``.
"""

import asyncio
import errno
import os
import queue
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import lmdb
import msgspec

from f1common.errors import Code, F1Error, InvariantViolation, check
from spanstore.engine.base import DELETE, PUT, EngineFailed, Space, WriteBatch
from spanstore.engine.damage import FileMarks
from spanstore.engine.directory import (
    DATA_FILE,
    DISK_FULL_ERRNOS,
    IDENTITY_FILE,
    IDENTITY_KEY,
    Identity,
    check_file,
    check_identity,
    failure_of,
    lock_directory,
    read_identity_file,
    write_identity_file,
)
from spanstore.engine.lmdb_reader import LmdbReader, seek
from spanstore.engine.pages import PageFile, free_pages

DEFAULT_MAP_BYTES = 1 << 40
"""Size of the map: address space, not memory and not disk. It bounds the data of one spanserver."""

DEFAULT_MAX_READERS = 512
"""Slots for concurrent read transactions of all processes that have the environment open."""

_SWITCH_INTERVAL_S = 0.0001
_GROUP_BYTES = 16 << 20
_SPARE_READERS = 16

_MIN_GROWTH_BYTES = 4 << 20
_MAX_GROWTH_BYTES = 64 << 20
_PATH_PAGES = 8
_ENTRY_OVERHEAD_BYTES = 16
_SLACK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class _Commit:
    """A batch on its way to the writer, and whom to tell."""

    batch: WriteBatch
    loop: asyncio.AbstractEventLoop
    done: "asyncio.Future[None]"


class _Grow:
    """Asks the writer to look for room."""


class LmdbEngine:
    """The :class:`~spanstore.engine.base.Engine` of real spanservers. All methods but ``commit`` are synchronous."""

    def __init__(
        self,
        env: lmdb.Environment,
        path: Path,
        *,
        lock_fd: int | None,
        identity: Identity | None,
        page_bytes: int,
        reserve_bytes: int = 0,
    ) -> None:
        """Take an open environment: use :meth:`open` or :meth:`open_read_only`."""
        self._env = env
        self._path = path
        self._lock_fd = lock_fd
        self._identity: Final = identity
        self._page_bytes = page_bytes
        self._reserve_bytes = reserve_bytes
        self._refused_at = 0
        """Length of the file when the system last refused to make it longer; 0 if it did not."""
        self.damage: Final = FileMarks(path)
        found = (path / DATA_FILE).stat()
        self._file_bytes = found.st_size
        self._file: Final = (found.st_dev, found.st_ino)
        self._readers: set[LmdbReader] = set()
        self._failed: EngineFailed | None = None
        self._closed = False
        self._commits = 0
        self._transactions = 0
        self._queue: queue.SimpleQueue[_Commit | _Grow | None] = queue.SimpleQueue()
        self._writer: threading.Thread | None = None
        if lock_fd is not None:
            self._writer = threading.Thread(target=self._write_loop, name=f"lmdb {path.name}", daemon=True)
            self._writer.start()

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        cluster: str,
        server: str,
        map_bytes: int = DEFAULT_MAP_BYTES,
        max_readers: int = DEFAULT_MAX_READERS,
        reserve_bytes: int = 0,
    ) -> Self:
        """Open the data directory of a spanserver for reading and writing, creating it if it is new.

        ``reserve_bytes`` of disk are allocated beyond what is used, where there is so much.

        Raises F1Error BAD_DATA_DIR (in use, foreign, another format) and EngineFailed DATA_CORRUPTION (missing or
        truncated data), DISK_FULL, UNAVAILABLE (other errors of the operating system).
        """
        if sys.getswitchinterval() > _SWITCH_INTERVAL_S:
            sys.setswitchinterval(_SWITCH_INTERVAL_S)
        try:
            path.mkdir(parents=True, exist_ok=True)
            lock_fd = lock_directory(path)
        except OSError as error:
            if error.errno in (errno.EROFS, *DISK_FULL_ERRNOS):
                raise failure_of(error, f"opening {path} failed") from error
            raise F1Error(Code.BAD_DATA_DIR, f"cannot use {path} as server.data_dir: {error}") from error
        try:
            expected = read_identity_file(path)
            page_bytes = check_file(path, must_exist=expected is not None)
            env = lmdb.open(
                str(path), map_size=map_bytes, max_readers=max_readers, max_spare_txns=_SPARE_READERS, max_dbs=0
            )
            try:
                env.reader_check()
                page_bytes = page_bytes or env.stat()["psize"]
                identity = check_identity(env, path, Identity(cluster, server), expected)
                engine = cls(
                    env,
                    path,
                    lock_fd=lock_fd,
                    identity=identity,
                    page_bytes=page_bytes,
                    reserve_bytes=reserve_bytes,
                )
            except BaseException:
                env.close()
                raise
        except BaseException as error:
            os.close(lock_fd)
            if isinstance(error, lmdb.Error | OSError):
                raise failure_of(error, f"opening {path} failed") from error
            raise
        try:
            engine._begin_incarnation(new=expected is None)
        except BaseException:
            engine._shut()
            raise
        return engine

    @classmethod
    def open_read_only(
        cls,
        path: Path,
        *,
        map_bytes: int = DEFAULT_MAP_BYTES,
        max_readers: int = DEFAULT_MAX_READERS,
    ) -> Self:
        """Open a directory that another process may be writing, for the scans of a sibling process.

        Raises F1Error BAD_DATA_DIR if no spanserver's data is there, EngineFailed as :meth:`open`.
        """
        if read_identity_file(path) is None:
            raise F1Error(Code.BAD_DATA_DIR, f"{path} holds no data of a spanserver")
        page_bytes = check_file(path, must_exist=True, live=True)
        try:
            env = lmdb.open(
                str(path),
                map_size=map_bytes,
                max_readers=max_readers,
                max_spare_txns=_SPARE_READERS,
                readonly=True,
                create=False,
            )
        except (lmdb.Error, OSError) as error:
            raise failure_of(error, f"opening {path} failed") from error
        return cls(env, path, lock_fd=None, identity=None, page_bytes=page_bytes)

    @property
    def identity(self) -> Identity:
        """Whose data this is, and which incarnation has it open."""
        if self._identity is None:
            raise InvariantViolation("an engine opened read-only has no incarnation")
        return self._identity

    @property
    def incarnation(self) -> int:
        """How often this directory was opened for writing."""
        return self.identity.boot

    def snapshot(self) -> LmdbReader:
        """Open a view of the newest durable state. Raises EngineFailed."""
        self._check_usable()
        reader = LmdbReader(self, self.begin_read())
        self._readers.add(reader)
        return reader

    def begin_read(self) -> "lmdb.Transaction[bytes]":
        """Begin a read transaction. Raises EngineFailed."""
        try:
            return self._env.begin()
        except lmdb.Error as error:
            raise failure_of(error, "beginning a read failed") from error

    def forget_reader(self, reader: LmdbReader) -> None:
        """Take note that a reader closed itself."""
        self._readers.discard(reader)

    def space(self) -> Space | None:
        """Tell how much room there is: in the file, on its disk and under the map. A full disk is tried again.

        Raises EngineFailed DATA_CORRUPTION if the file has gone: what is written to it would be gone with the process.
        """
        self._check_usable()
        self._check_in_place()
        environment = self._env.info()
        used = (environment["last_pgno"] + 1) * self._page_bytes
        disk = os.statvfs(self._path)
        # The system may refuse what it says is free: quotas, limits of a process.
        free = 0 if self._refused_at else disk.f_bavail * disk.f_frsize
        room = min(self._file_bytes - used + free, environment["map_size"] - used)
        if self._refused_at:
            self._queue.put(_Grow())
        if room < self._reserve_bytes * 2:
            room += self._free_bytes()
        return Space(room, self._reserve_bytes)

    def _check_in_place(self) -> None:
        try:
            found = (self._path / DATA_FILE).stat()
            gone = (found.st_dev, found.st_ino) != self._file
        except FileNotFoundError:
            gone = True
        if gone:
            text = f"{self._path / DATA_FILE} was deleted or replaced while the server ran"
            self._failed = EngineFailed(Code.DATA_CORRUPTION, text)
            raise self._failed

    def _free_bytes(self) -> int:
        """Return the size of the pages within the file that deletions have left: LMDB fills them first."""
        pages = PageFile(self._path / DATA_FILE)
        try:
            with self._env.begin() as view:
                number = view.id()
                for meta in pages.metas():
                    if meta is not None and meta.transaction == number:
                        return len(free_pages(pages, meta)[0]) * self._page_bytes
            return 0
        finally:
            pages.close()

    async def commit(self, batch: WriteBatch) -> None:
        """Apply ``batch`` atomically and return once it is durable. Raises EngineFailed."""
        self._check_usable()
        check(self._writer is not None, "an engine opened read-only cannot commit")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._queue.put(_Commit(batch, loop, done))
        await done

    async def close(self) -> None:
        """Finish the commits that were begun and let go of the directory."""
        if self._closed:
            return
        self._closed = True
        if self._writer is not None:
            self._queue.put(None)
            await asyncio.get_running_loop().run_in_executor(None, self._writer.join)
        self._release()

    def reader_check(self) -> int:
        """Free the slots of processes that died while reading; return how many there were."""
        self._check_usable()
        return self._env.reader_check()

    def info(self) -> dict[str, int | str]:
        """Return sizes and counts for the operator."""
        self._check_usable()
        environment = self._env.info()
        return {
            "engine": "lmdb",
            "path": str(self._path),
            "entries": self._env.stat()["entries"],
            "used_bytes": (environment["last_pgno"] + 1) * self._page_bytes,
            "file_bytes": self._file_bytes,
            "map_bytes": environment["map_size"],
            "commits": self._commits,
            "transactions": self._transactions,
            "last_transaction": environment["last_txnid"],
            "open_readers": len(self._readers),
            "reader_slots": environment["num_readers"],
            "max_readers": environment["max_readers"],
        }

    def _check_usable(self) -> None:
        if self._failed is not None:
            raise EngineFailed(Code.UNAVAILABLE, f"the engine failed before: {self._failed.message}")
        if self._closed:
            raise EngineFailed(Code.UNAVAILABLE, "the engine is closed")

    def _begin_incarnation(self, *, new: bool) -> None:
        """Write the identity with its new count of boots; the writer's thread has nothing to do yet."""
        batch = WriteBatch()
        batch.put(IDENTITY_KEY, msgspec.msgpack.encode(self.identity))
        failed = self._write([batch])
        if failed is not None:
            raise failed
        if new:
            try:
                write_identity_file(self._path, self.identity)
            except OSError as error:
                raise failure_of(error, f"writing {self._path / IDENTITY_FILE} failed") from error

    def _shut(self) -> None:
        self._closed = True
        if self._writer is not None:
            self._queue.put(None)
            self._writer.join()
        self._release()

    def release(self) -> None:
        """Let go of the directory at once, for an engine opened read-only."""
        check(self._writer is None, "an engine that writes is closed")
        if not self._closed:
            self._closed = True
            self._release()

    def _release(self) -> None:
        for reader in list(self._readers):
            reader.close()
        self._env.close()
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    # What follows runs on the writer's thread.

    def _write_loop(self) -> None:
        last = False
        while not last:
            first = self._queue.get()
            if first is None:
                return
            if isinstance(first, _Grow):
                self._look_for_room()
                continue
            group, size = [first], first.batch.size
            while size < _GROUP_BYTES:
                try:
                    item = self._queue.get_nowait()
                except queue.Empty:
                    break
                if item is None:
                    last = True
                    break
                if isinstance(item, _Grow):
                    continue
                group.append(item)
                size += item.batch.size
            failure = self._failed or self._write([item.batch for item in group])
            self._tell(group, failure)

    def _write(self, batches: list[WriteBatch]) -> EngineFailed | None:
        """Commit all batches in one transaction; a failure makes the engine unusable."""
        try:
            self._reserve(batches)
            with self._env.begin(write=True) as txn:
                for batch in batches:
                    _apply(txn, batch)
        except BaseException as error:  # whatever it is, the waiters must hear of it
            failure = failure_of(error, "a commit failed")
            failure.__cause__ = error
            self._failed = failure
            return failure
        self._commits += len(batches)
        self._transactions += 1
        return None

    def _reserve(self, batches: list[WriteBatch]) -> None:
        """Make the file longer than the pages that this transaction can come to count."""
        operations = sum(len(batch.ops) for batch in batches)
        size = sum(batch.size for batch in batches)
        environment = self._env.info()
        used = (environment["last_pgno"] + 1) * self._page_bytes
        # Old pages are copied, a path of them for each operation but no page twice; new ones are at worst half full,
        # and large values begin pages of their own.
        copied = min(used, operations * _PATH_PAGES * self._page_bytes)
        needed = used + copied + 4 * (size + operations * _ENTRY_OVERHEAD_BYTES) + _SLACK_BYTES
        if needed + self._reserve_bytes <= self._file_bytes or (self._refused_at and needed <= self._file_bytes):
            return
        self._refused_at = 0
        growth = min(max(self._file_bytes // 8, _MIN_GROWTH_BYTES), _MAX_GROWTH_BYTES)
        target = min(max(needed + self._reserve_bytes, self._file_bytes + growth), environment["map_size"])
        if target <= self._file_bytes:
            return  # the map is as good as full: the transaction itself finds out
        try:
            self._grow(target)
        except OSError as error:
            if error.errno not in DISK_FULL_ERRNOS:
                raise
            self._refused_at = self._file_bytes
            if needed > self._file_bytes + self._free_bytes():
                self._grow(needed)  # without a reserve; if that fails too, it does so before anything is written

    def _look_for_room(self) -> None:
        """Try to have the reserve again; the next commit says what else is wrong."""
        used = (self._env.info()["last_pgno"] + 1) * self._page_bytes
        target = min(used + self._reserve_bytes + _SLACK_BYTES, self._env.info()["map_size"])
        try:
            if target > self._file_bytes:
                self._grow(target)
            self._refused_at = 0
        except OSError:
            pass  # still none

    def _grow(self, target: int) -> None:
        fd = os.open(self._path / DATA_FILE, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.posix_fallocate(fd, self._file_bytes, target - self._file_bytes)
            os.fsync(fd)
        finally:
            os.close(fd)
        self._file_bytes = target

    @staticmethod
    def _tell(group: list[_Commit], failure: EngineFailed | None) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
        for item in group:
            by_loop.setdefault(item.loop, []).append(item.done)
        for loop, waiters in by_loop.items():
            with suppress(RuntimeError):  # the loop was closed meanwhile: nobody is left to tell
                loop.call_soon_threadsafe(_resolve, waiters, failure)


def _resolve(waiters: list["asyncio.Future[None]"], failure: EngineFailed | None) -> None:
    for waiter in waiters:
        if waiter.done():
            continue  # cancelled: the commit stands all the same
        if failure is None:
            waiter.set_result(None)
        else:
            error = EngineFailed(failure.code, failure.message)
            error.__cause__ = failure.__cause__
            waiter.set_exception(error)


def _apply(txn: "lmdb.Transaction[bytes]", batch: WriteBatch) -> None:
    put = txn.put
    for kind, key, value in batch.ops:
        if kind == PUT:
            put(key, value)
        elif kind == DELETE:
            txn.delete(key)
        else:
            with txn.cursor() as cursor:
                found = seek(cursor, key)
                while found and cursor.key() < value:
                    found = cursor.delete()
