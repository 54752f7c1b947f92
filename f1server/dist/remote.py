"""The f1server's end of the stream to one slave that takes part in a query."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import grpc.aio

from f1common.errors import Code, F1Error
from f1common.pb import slave_pb2 as pb
from f1common.rpc.batches import END_OF_STREAM
from f1common.rpc.status import carries_error, error_from_exception, error_from_rpc, error_from_wire
from f1server.dist.scheduler import Failure

__all__ = ["RemoteRun"]

PROTOCOL_VERSION = 1


class RemoteRun:
    """One slave's run of one attempt. It is over when :meth:`close` returns."""

    def __init__(
        self,
        position: int,
        open_call: Callable[[], Any],
        hear: Callable[[int, pb.RunReply], Awaitable[None]],
        broke: Callable[[int, Failure], None],
    ) -> None:
        """``hear`` gets each message and must not fail; ``broke`` is told once if the stream ends by itself."""
        self.position = position
        self.busy = False
        """Whether a message is being worked on: then it is not the slave that is silent."""
        self._open_call = open_call
        self._hear = hear
        self._broke = broke
        self._requests: deque[pb.RunRequest] = deque()
        self._wake = asyncio.Event()
        self._accepted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self, start: pb.Start) -> None:
        """Open the stream and tell the slave what there is to do."""
        self._task = asyncio.create_task(self._run(start), name=f"run at worker {self.position}")

    def send(self, request: pb.RunRequest) -> None:
        """Send something as soon as the stream is free."""
        self._requests.append(request)
        self._wake.set()

    async def close(self) -> None:
        """End the stream, and so whatever the slave does for it. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, start: pb.Start) -> None:
        try:
            failure = await self._converse(start)
        except Exception as error:
            failure = Failure(error_from_exception(error), broke=True)
        self._broke(self.position, failure)

    async def _converse(self, start: pb.Start) -> Failure:
        call = self._open_call()
        writer = asyncio.create_task(self._write(call, start))
        try:
            while (reply := await call.read()) is not END_OF_STREAM:
                self._accepted.set()
                self.busy = True
                await self._hear(self.position, reply)
                self.busy = False
            return Failure(F1Error(Code.UNAVAILABLE, "the slave ended the stream"), broke=True)
        except grpc.aio.AioRpcError as error:
            return self._refused(error)
        except (grpc.aio.BaseError, asyncio.InvalidStateError) as error:
            return Failure(F1Error(Code.UNAVAILABLE, f"the stream to the slave broke: {error}"), broke=True)
        finally:
            writer.cancel()
            call.cancel()
            await asyncio.gather(writer, return_exceptions=True)

    def _refused(self, error: grpc.aio.AioRpcError) -> Failure:
        """Return what a status says: the slave's own words, or that it is gone."""
        if not carries_error(error):
            text = f"{error.code().name}: {error.details() or 'no details'}"
            return Failure(F1Error(Code.UNAVAILABLE, f"the stream to the slave broke: {text}"), broke=True)
        said = error_from_rpc(error)
        # A slave that is about to end, or too old, is well: it is only of no use for this query.
        unfit = said.code in (Code.UNAVAILABLE, Code.VERSION_MISMATCH)
        return Failure(said, blamed=self.position if unfit else None)

    async def _write(self, call: Any, start: pb.Start) -> None:
        await call.write(pb.RunRequest(start=start))
        # What is written to a call that is just being refused would replace the reason by an internal error.
        await self._accepted.wait()
        while True:
            await self._wake.wait()
            while self._requests:
                await call.write(self._requests.popleft())
            self._wake.clear()


def failure_from_pb(message: pb.Failed) -> Failure:
    """Return why a slave says that its run failed."""
    e = message.error
    error = error_from_wire(e.code, e.message, e.retryable, e.ambiguous, dict(e.details))
    return Failure(error, blamed=message.blamed - 1 if message.blamed else None)
