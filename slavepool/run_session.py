"""The stream between the f1server and one run: what it says, what it hears, and the end of both."""

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any

import grpc
import grpc.aio

from f1common.errors import Code, F1Error
from f1common.observe.logs import get_logger
from f1common.pb import slave_pb2 as pb
from f1common.rpc.batches import END_OF_STREAM
from f1common.rpc.status import error_from_exception
from slavepool.run import SlaveRun

__all__ = ["serve_run", "to_the_end"]

BEAT_S = 0.5
_GRACE_S = 1.0

_log = get_logger(__name__)
# What a context raises when its client is gone.
_CLIENT_GONE = (grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError, ConnectionError)


class _Session:
    def __init__(self, run: SlaveRun, context: Any) -> None:
        self._run = run
        self._context = context
        self._go = asyncio.Event()
        self._wake = run.rows_for_root.wake
        self._says: list[pb.RunReply] = []

    def say(self, reply: pb.RunReply) -> None:
        """Send something as soon as the stream is free."""
        self._says.append(reply)
        self._wake.set()

    async def read(self) -> None:
        """Hear the f1server until it ends the stream."""
        while (request := await self._context.read()) is not END_OF_STREAM:
            match request.WhichOneof("body"):
                case "go":
                    self._go.set()
                case "credit_bytes":
                    self._run.rows_for_root.credit(request.credit_bytes)
                case _:
                    raise F1Error(Code.INVALID_ARGUMENT, "a query is started once")

    async def write(self) -> None:
        """Send rows for the root part, and what else there is to say, several things in a message."""
        while True:
            await self._wake.wait()
            rows = self._run.rows_for_root.take()
            reply = pb.RunReply(rows=rows)
            for said in self._says:
                reply.MergeFrom(said)
            some, self._says = bool(rows or self._says), []
            if not self._run.rows_for_root:
                self._wake.clear()
            if some:
                await self._context.write(reply)

    async def beat(self) -> None:
        """Tell again and again that the event loop runs."""
        while True:
            await asyncio.sleep(BEAT_S)
            self.say(pb.RunReply(beat=True))

    async def work(self) -> None:
        """Run the parts, and say how they ended."""
        run = self._run
        try:
            await run.open()
            self.say(pb.RunReply(ready=pb.Ready()))
            work = asyncio.create_task(self._parts())
            try:
                await asyncio.wait((work, run.failed), return_when=asyncio.FIRST_COMPLETED)
                if not run.failed.done():
                    self.say(pb.RunReply(done=pb.Done(parts=work.result(), read_set=run.read_set())))
            finally:
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)
        except Exception as error:
            run.fail(error_from_exception(error))
        if run.failed.done() and not run.failed.cancelled():
            self.say(pb.RunReply(failed=run.failed.result()))

    async def _parts(self) -> list[pb.PartStats]:
        await self._go.wait()
        return await self._run.work()


async def serve_run(run: SlaveRun, context: Any) -> None:
    """Serve until the f1server ends the stream, goes away, or the query's time is over."""
    session = _Session(run, context)
    parts: list[Coroutine[Any, Any, object]] = [session.read(), session.write(), session.beat(), run.ended.wait()]
    ends = [asyncio.create_task(part) for part in parts]
    work = asyncio.create_task(session.work())
    timeout_ms = run.assignment.timeout_ms
    try:
        await asyncio.wait(
            ends,
            return_when=asyncio.FIRST_COMPLETED,
            timeout=timeout_ms / 1000 + _GRACE_S if timeout_ms else None,
        )
        for task in ends:
            if task.done():
                task.result()
        if run.ended.is_set():
            raise F1Error(Code.UNAVAILABLE, "this slave is about to end; use another one")
    except _CLIENT_GONE as error:
        _log.debug("the f1server of a query is gone", reason=str(error))
    finally:
        for task in (*ends, work):
            task.cancel()
        await to_the_end(asyncio.gather(*ends, work, return_exceptions=True))


async def to_the_end(work: Awaitable[object]) -> None:
    """Let ``work`` end whatever happens to whoever waits for it. Raises CancelledError afterwards if it was cancelled.

    gRPC cancels a handler when its client is gone, and also if the handler has ended by itself and is just cleaning up:
    a clean-up that breaks off there leaves a run behind for as long as the process lives.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled
