"""One event loop in a thread of its own, shared by all blocking connections of a process.

The library is written once, for asyncio; what blocks hands a coroutine to this loop and waits. Streams to servers are
shared by address, so that the requests of all threads travel together.
"""

import asyncio
import atexit
import itertools
import os
import random
import socket
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

import uvloop

from f1.forks import note_connect
from f1.logins import Credentials, Login
from f1.servers import Servers
from f1common.clock import boot_id, boot_us
from f1common.errors import Code, F1Error
from f1common.rpc.channels import ChannelFactory

T = TypeVar("T")

Key = tuple[tuple[str, ...], Credentials | None]
"""Addresses, and who logs in there."""

_STOP_TIMEOUT_S = 5.0
_ordinals = itertools.count()


def process_rng() -> random.Random:
    """Return a generator whose numbers no other one draws, in this process or another: they name commits."""
    seed = f"{boot_id()} {boot_us()} {socket.gethostname()} {os.getpid()} {next(_ordinals)} {id(object())}"
    return random.Random(seed)


class ServerPool:
    """The servers that connections on one event loop share, by their addresses and who logs in."""

    def __init__(self) -> None:
        self._shared: dict[Key, tuple[Servers, int]] = {}

    def take(self, key: Key, make: Callable[[], Servers]) -> Servers:
        """Return the servers of ``key``, shared with whoever took them before."""
        servers, users = self._shared.get(key) or (make(), 0)
        self._shared[key] = (servers, users + 1)
        return servers

    async def give_back(self, key: Key) -> None:
        """Close the servers when their last user gave them back."""
        servers, users = self._shared[key]
        if users > 1:
            self._shared[key] = (servers, users - 1)
            return
        del self._shared[key]
        await servers.close()

    async def close(self) -> None:
        """Close all."""
        shared, self._shared = self._shared, {}
        for servers, _ in shared.values():
            await servers.close()


class Runtime:
    """The background loop. Made on first use; ends with the process."""

    def __init__(self) -> None:
        self.loop = uvloop.new_event_loop()
        self.pool = ServerPool()
        self.pid = os.getpid()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="f1 client", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` on the loop and return its result. An interrupt (Ctrl-C) cancels it.

        Raises F1Error FAILED_PRECONDITION on the loop's own thread, which would wait for itself for ever: a caller that
        is there is within what another call was given, such as a generator of its arguments. CANCELLED once the process
        is ending, when nobody is left to do it: a generator that holds a transaction may be closed as late as that.
        """
        try:
            note_connect()
            if threading.current_thread() is self._thread:
                text = "an argument makes calls while it is used: make it first, such as a list instead of a generator"
                raise F1Error(Code.FAILED_PRECONDITION, text)
            if self._stopped:
                raise F1Error(Code.CANCELLED, "the process is ending: its connections are closed already")
        except F1Error:
            work.close()
            raise
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except CancelledError:
            raise F1Error(Code.CANCELLED, "the call was cancelled", ambiguous=True) from None
        except BaseException:
            if not future.done():
                future.cancel()
            raise

    def give_up(self, work: Coroutine[Any, Any, object]) -> None:
        """Run ``work``, which gives something up; a process that is ending has given up everything already."""
        if self._stopped:
            work.close()
        else:
            self.call(work)

    async def _close(self) -> None:
        """Close all connections, and end what else runs: a loop that goes with tasks complains about each."""
        await self.pool.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def stop(self) -> None:
        """Close all connections and end the thread."""
        if self.pid != os.getpid() or not self._thread.is_alive():
            return
        self._stopped = True
        try:
            asyncio.run_coroutine_threadsafe(self._close(), self.loop).result(_STOP_TIMEOUT_S)
        except TimeoutError:
            pass  # the process is ending, with or without a farewell
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_STOP_TIMEOUT_S)


_lock = threading.Lock()
_runtime: Runtime | None = None


def runtime() -> Runtime:
    """Return the process's runtime. Raises F1Error FAILED_PRECONDITION in a child that was forked from it."""
    global _runtime
    note_connect()
    with _lock:
        if _runtime is None:
            _runtime = Runtime()
        return _runtime


@atexit.register
def _stop() -> None:
    if _runtime is not None:
        _runtime.stop()


def new_servers(
    addresses: tuple[str, ...], channel_factory: ChannelFactory | None = None, credentials: Credentials | None = None
) -> Servers:
    """Return servers at these addresses, with this process's randomness."""
    login = Login(credentials) if credentials is not None else None
    return Servers(addresses, rng=process_rng(), channel_factory=channel_factory, login=login)
