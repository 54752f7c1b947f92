"""The server's side of the scan processes: starts them when they are needed, deals scans to them, notices their end."""

import asyncio
import itertools
import logging
import socket
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

from f1common.errors import Code, F1Error
from f1common.priority import module_that_gives_way
from spanstore.scan.frames import (
    HEADER,
    Cancel,
    Chunk,
    Credit,
    Failed,
    Open,
    Ready,
    ToWorker,
    decode_from_worker,
    frame,
)
from spanstore.scan.plan import ScanPlan

_log = logging.getLogger(__name__)

_CREDITS = 3
_STREAM_BYTES = 1 << 20
CHECK_S = 5.0
_STOP_S = 2.0
_RESTART_S = 1.0
STILL_S = 10.0
"""A process that owes chunks and says nothing for so long stands still, and is killed: it tells of progress often."""
SLOW_STILL_S = 60.0
"""The same for one that is just starting, and for the one that gets what processor time is left over."""


class PooledScan:
    """A scan that a worker executes."""

    def __init__(self, worker: "_Worker", number: int) -> None:
        self._worker = worker
        self._number = number
        self._ended = False
        self._first = True
        self.owed = _CREDITS
        """Chunks that the worker may send and has not sent."""
        self._told = False
        self._over = False
        """Whether the worker has sent the end, which may not have been taken yet."""
        self.arrived: asyncio.Queue[Chunk | F1Error] = asyncio.Queue()
        """No longer than the credits, two ends and the schema."""

    def take(self, message: Chunk | Failed) -> None:
        """Take what the worker has sent. The schema, which comes first, takes no credit; after the end none is used."""
        if isinstance(message, Failed) or message.last:
            self._over, self.owed = True, 0
        else:
            self.owed -= self._told
        self._told = True
        self.arrived.put_nowait(message.error() if isinstance(message, Failed) else message)

    async def next(self) -> Chunk:
        """Return the next chunk. Raises what ended the scan; UNAVAILABLE if the worker died."""
        item = await self.arrived.get()
        if isinstance(item, F1Error):
            self._ended = True
            raise item
        if item.last:
            self._ended = True
        elif not self._first:
            if not self._over:
                self._worker.expect()
                self.owed += 1
            self._worker.send(Credit(self._number, 1))
        self._first = False
        return item

    def close(self) -> None:
        """Tell the worker to stop, unless the scan has ended."""
        self._worker.forget(self._number)
        if not self._ended:
            self._ended = True
            self._worker.send(Cancel(self._number))


class _Worker:
    """One process and the socket to it."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", on_end: Callable[["_Worker"], None], *, background: bool
    ) -> None:
        self.process: Final = process
        self.background: Final = background
        self.scans: dict[int, PooledScan] = {}
        self.ready = False
        self.alive = True
        self.suspected = False
        """Whether it stood still when that was looked at last."""
        self._heard_s = 0.0
        self._on_end = on_end
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None

    async def connect(self, connection: socket.socket) -> None:
        """Take the server's end of the socket."""
        reader, self._writer = await asyncio.open_connection(sock=connection, limit=_STREAM_BYTES)
        self._task = asyncio.create_task(self._receive(reader), name=f"scan process {self.process.pid}")

    def send(self, message: ToWorker) -> None:
        """Send a message, if the process still lives."""
        if self.alive and self._writer is not None:
            self._writer.write(frame(message))

    def expect(self) -> None:
        """Note that it is asked for something: from now on it must say something again and again."""
        if not self._owes():
            self._heard_s = asyncio.get_running_loop().time()

    def _owes(self) -> bool:
        return any(scan.owed > 0 for scan in self.scans.values())

    def stands_still(self, now_s: float) -> bool:
        """Tell whether it has been silent for too long though it owes chunks."""
        limit_s = SLOW_STILL_S if self.background or not self.ready else STILL_S
        return self._owes() and now_s - self._heard_s > limit_s

    def forget(self, number: int) -> None:
        """Drop what still arrives for a scan."""
        self.scans.pop(number, None)

    async def _receive(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                (length,) = HEADER.unpack(await reader.readexactly(HEADER.size))
                message = decode_from_worker(await reader.readexactly(length))
                self._heard_s = asyncio.get_running_loop().time()
                if isinstance(message, Ready):
                    self.ready = True
                    continue
                scan = self.scans.get(message.scan)
                if scan is not None:
                    scan.take(message)
        except (asyncio.IncompleteReadError, OSError):
            pass  # the process ended
        finally:
            self.alive = False
            for number in sorted(self.scans):
                error = F1Error(Code.UNAVAILABLE, f"scan process {self.process.pid} ended; go on where it stopped")
                self.scans[number].arrived.put_nowait(error)
            self._on_end(self)

    async def stop(self) -> None:
        """Close the socket, which ends the process, and wait for it; kill it if it takes its time."""
        if self._writer is not None:
            self._writer.close()
        try:
            await asyncio.to_thread(self.process.wait, _STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            await asyncio.to_thread(self.process.wait)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


class ScanPool:
    """Up to ``processes`` scan processes over the environment in ``data_dir``, and one for what nobody waits for.

    That one is apart because its priority is lower: it could not raise it again for a user's scan.
    """

    def __init__(self, data_dir: Path, *, processes: int, map_bytes: int, reader_check: Callable[[], int]) -> None:
        """Start nothing yet. ``reader_check`` frees what processes that died held of the environment."""
        self._data_dir = data_dir
        self._processes = processes
        self._map_bytes = map_bytes
        self._reader_check = reader_check
        self._workers: list[_Worker] = []
        self._numbers = itertools.count(1)
        self._starting = asyncio.Lock()
        self._not_before_s = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    async def open(self, plan: ScanPlan) -> PooledScan:
        """Begin a scan at the process with the fewest. Raises UNAVAILABLE when there is none and none starts."""
        worker = await self._pick(background=plan.background)
        number = next(self._numbers)
        worker.expect()
        scan = worker.scans[number] = PooledScan(worker, number)
        worker.send(Open(number, plan, _CREDITS))
        return scan

    def pids(self) -> list[int]:
        """Return the process ids of the workers that live."""
        return [worker.process.pid for worker in self._workers]

    async def close(self) -> None:
        """End all processes; scans under way answer UNAVAILABLE."""
        self._closed = True
        tasks, self._tasks = list(self._tasks), set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(worker.stop() for worker in list(self._workers)))

    async def _pick(self, *, background: bool) -> _Worker:
        async with self._starting:
            if self._closed:
                raise F1Error(Code.UNAVAILABLE, "the scan processes are shutting down; ask another server")
            workers = self._of_kind(background)
            idle = any(not worker.scans for worker in workers)
            if not idle and len(workers) < (1 if background else self._processes):
                await self._start(background=background)
            return min(self._of_kind(background), key=lambda worker: len(worker.scans))

    def _of_kind(self, background: bool) -> list[_Worker]:
        return [worker for worker in self._workers if worker.background is background]

    async def _start(self, *, background: bool) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() < self._not_before_s:
            if self._of_kind(background):
                return
            raise F1Error(Code.UNAVAILABLE, "the last scan process could not start; the server's log says why")
        ours, theirs = socket.socketpair()
        try:
            ours.setblocking(False)
            process = await asyncio.to_thread(self._spawn, theirs.fileno(), background)
        except OSError as error:
            ours.close()
            raise F1Error(Code.UNAVAILABLE, f"a scan process cannot be started: {error}") from error
        finally:
            theirs.close()
        worker = _Worker(process, self._ended, background=background)
        self._workers.append(worker)
        await worker.connect(ours)
        _log.info("scan process %d started", process.pid)
        if not self._tasks:
            self._spawn_task(self._check_regularly())

    def _spawn(self, descriptor: int, background: bool) -> "subprocess.Popen[bytes]":
        name = "spanstore.scan.worker"
        module = module_that_gives_way(name, must_end=True) if background else ("-P", "-m", name)
        priority = "background" if background else "users"
        arguments = (str(descriptor), str(self._data_dir), str(self._map_bytes), priority)
        return subprocess.Popen([sys.executable, *module, *arguments], stdin=subprocess.DEVNULL, pass_fds=[descriptor])

    def _ended(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        if self._closed:
            return
        if not worker.ready:
            self._not_before_s = asyncio.get_running_loop().time() + _RESTART_S
        self._spawn_task(self._bury(worker))

    async def _bury(self, worker: _Worker) -> None:
        """Wait for a process that has closed its socket, and free what it held."""
        await worker.stop()
        _log.warning("scan process %d ended with %s", worker.process.pid, worker.process.returncode)
        self._check_readers()

    async def _check_regularly(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            self._check_readers()
            self._end_the_still(asyncio.get_running_loop().time())

    def _end_the_still(self, now_s: float) -> None:
        """Kill processes that stand still: their scans go on elsewhere, and new ones get a new process.

        Only who does so twice: it may have been this process that stood still, with all they said unread.
        """
        for worker in self._workers:
            before, worker.suspected = worker.suspected, worker.stands_still(now_s)
            if before and worker.suspected:
                _log.error("scan process %d stands still and is killed", worker.process.pid)
                worker.process.kill()

    def _check_readers(self) -> None:
        try:
            freed = self._reader_check()
        except F1Error as error:
            _log.warning("readers that died could not be looked for: %s", error)
            return
        if freed:
            _log.warning("freed %d reader slots of processes that died", freed)

    def _spawn_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
