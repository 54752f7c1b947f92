"""A slave's part in schema changes: walks over rows, in a process of their own that gives way to queries.

Walks take processor time for as long as a table is large, and queries must not wait for it. So the slave starts a child
of the lowest priority when there is something to do, and hands it the streams as they are; it ends it when there has
been nothing to do for a while. The child ends by itself when its parent is gone. In the simulator, which has no
processes, the walks run in place.
"""

import asyncio
import os
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import grpc.aio
import msgspec

from f1common.config import Config
from f1common.errors import Code, F1Error
from f1common.observe.logs import get_logger
from f1common.pb import slave_pb2_grpc as stubs
from f1common.priority import module_that_gives_way
from f1common.rpc.batches import END_OF_STREAM
from f1common.rpc.status import carries_error, error_from_rpc
from f1common.scratch import remove_left
from slavepool.run_session import to_the_end

__all__ = ["ChildWalks", "Walks"]

_START_S = 60.0
_IDLE_S = 60.0
_END_S = 5.0
_FOLDERS = "f1-walks"

_log = get_logger(__name__)


class Walks(Protocol):
    """Serves streams of Reorganise."""

    async def serve(self, context: Any) -> None:
        """Serve one stream to its end."""

    async def close(self) -> None:
        """End all of them."""


class _Child:
    """A process that does walks, and the channel to it."""

    def __init__(self, process: Process, channel: Any) -> None:
        self.process = process
        self.channel = channel
        self.stub = stubs.SlaveStub(channel)

    @property
    def alive(self) -> bool:
        """Has it not ended?"""
        return self.process.returncode is None

    async def end(self) -> None:
        """End it: it does so when its input is closed; killed if it takes its time."""
        await self.channel.close()
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            async with asyncio.timeout(_END_S):
                await self.process.wait()
        except TimeoutError:
            self.process.kill()
            await self.process.wait()


class ChildWalks:
    """Hands streams to a child process."""

    def __init__(self, config: Callable[[], Config]) -> None:
        """``config`` is what the child works by. Removes what slaves left that were killed with their children."""
        remove_left(_FOLDERS)
        self._config = config
        self._child: _Child | None = None
        self._starting = asyncio.Lock()
        self._begun: asyncio.Task[_Child] | None = None
        self._streams: set[asyncio.Task[Any]] = set()
        self._ending: asyncio.Task[None] | None = None
        self._closed = False
        self._started = 0
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    async def serve(self, context: Any) -> None:
        """Relay one stream. Raises UNAVAILABLE if there is no child, or it ends."""
        task = asyncio.current_task()
        if task is not None:
            self._streams.add(task)
        try:
            child = await self._ready()
            await _relay(context, child)
        finally:
            if task is not None:
                self._streams.discard(task)
            if not self._streams and not self._closed:
                self._end_later()

    async def close(self) -> None:
        """End the streams and the child."""
        self._closed = True
        for task in list(self._streams):
            task.cancel()
        if self._ending is not None:
            self._ending.cancel()
        async with self._starting:
            await self._end()
        if self._folder is not None:
            self._folder.cleanup()

    # ------------------------------------------------------------------ the child

    async def _ready(self) -> _Child:
        async with self._starting:
            if self._closed:
                raise F1Error(Code.UNAVAILABLE, "this slave is about to end; use another one")
            if self._child is not None and not self._child.alive:
                _log.warning("the process that works on rows has ended", code=self._child.process.returncode)
                await self._end()
            if self._child is None:
                # On busy processors that takes longer than a stream waits. The next one finds what this one began;
                # otherwise each would begin anew, and all of these processes would be in each other's way.
                self._begun = self._begun or asyncio.create_task(self._start(), name="start of a process")
                await asyncio.wait((self._begun,))
                begun, self._begun = self._begun, None
                self._child = begun.result()
            return self._child

    async def _start(self) -> _Child:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix=f"{_FOLDERS}-{os.getpid()}-")
        self._started += 1
        path = Path(self._folder.name) / str(self._started)
        module = module_that_gives_way("slavepool.walker", must_end=True)
        try:
            process = await asyncio.create_subprocess_exec(sys.executable, *module, str(path), stdin=PIPE, stdout=PIPE)
        except OSError as error:
            raise F1Error(Code.UNAVAILABLE, f"no process can be started: {error}") from error
        if process.stdin is None or process.stdout is None:
            raise F1Error(Code.INTERNAL, "a process was started without pipes")
        process.stdin.write(msgspec.json.encode(self._config()) + b"\n")
        said = b""
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_START_S):
                    said = await process.stdout.readline()
        finally:
            if not said:
                with suppress(ProcessLookupError):  # it has ended by itself
                    process.kill()
                await to_the_end(process.wait())
        if not said:
            raise F1Error(Code.UNAVAILABLE, "the process that works on rows does not start; the slave's log says why")
        _log.info("a process that works on rows was started", pid=process.pid)
        return _Child(process, grpc.aio.insecure_channel(f"unix:{path}"))

    def _end_later(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
        self._ending = asyncio.create_task(self._end_idle(), name="end of an idle process")

    async def _end_idle(self) -> None:
        await asyncio.sleep(_IDLE_S)
        async with self._starting:
            if not self._streams:
                await self._end()

    async def _end(self) -> None:
        if self._begun is not None:
            begun, self._begun = self._begun, None
            begun.cancel()
            await asyncio.wait((begun,))
            self._child = None if begun.cancelled() or begun.exception() is not None else begun.result()
        child, self._child = self._child, None
        if child is not None:
            await child.end()


async def _relay(context: Any, child: _Child) -> None:
    """Hand over what comes from either side until one of them ends."""
    call = child.stub.Reorganise()

    async def down() -> None:
        while (request := await context.read()) is not END_OF_STREAM:
            await call.write(request)

    async def up() -> None:
        while (reply := await call.read()) is not END_OF_STREAM:
            await context.write(reply)

    tasks = [asyncio.create_task(down()), asyncio.create_task(up())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[1].done():
            _raise_end(tasks[1])
    finally:
        call.cancel()
        for task in tasks:
            task.cancel()
        await to_the_end(asyncio.gather(*tasks, return_exceptions=True))


def _raise_end(up: "asyncio.Task[None]") -> None:
    """Raise what ended the child's side, if it did not end in order."""
    error = up.exception()
    if isinstance(error, grpc.aio.AioRpcError) and carries_error(error):
        raise error_from_rpc(error) from error
    if isinstance(error, grpc.RpcError | grpc.aio.BaseError | asyncio.InvalidStateError):
        raise F1Error(Code.UNAVAILABLE, f"the process that works on rows broke off: {error}") from error
    if error is not None:
        raise error
