"""From one slave to another: the stream on which one query's rows go."""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc.aio

from f1common.errors import Code, F1Error
from f1common.pb import slave_pb2 as pb
from f1common.rpc.batches import END_OF_STREAM
from f1common.rpc.status import error_from_exception
from slavepool.outbox import Outbox

__all__ = ["Link"]


class Link:
    """Sends rows to one slave. It opens with its first rows; once broken it stays so: the query is tried again."""

    def __init__(
        self,
        open_call: Callable[[], Any],
        hello: pb.Hello,
        window_bytes: int,
        failed: Callable[[F1Error], None],
    ) -> None:
        """``failed`` is called once when the stream breaks."""
        self._open_call = open_call
        self._hello = hello
        self._failed = failed
        self._outbox = Outbox(window_bytes)
        self._task: asyncio.Task[None] | None = None

    async def send(self, rows: pb.Rows) -> int:
        """Queue rows once there is room and return their bytes. Raises F1Error when the stream broke."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"rows for worker {self._hello.to_worker}")
        return await self._outbox.put(rows)

    async def flushed(self) -> None:
        """Return once the receiver has taken everything over. Raises F1Error when the stream broke."""
        await self._outbox.drained()

    async def close(self) -> None:
        """End the stream, whatever is on its way. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._outbox.fail(F1Error(Code.CANCELLED, "the query has ended here"))

    async def _run(self) -> None:
        try:
            error = await self._converse()
        except Exception as failure:
            error = error_from_exception(failure)
        self._outbox.fail(error)
        self._failed(error)

    async def _converse(self) -> F1Error:
        """Run the stream until it breaks and return why."""
        call = self._open_call()
        writer: asyncio.Task[None] | None = None
        try:
            # Nothing is written before the hello is accepted, or the reason of a refusal would be lost.
            await call.write(pb.ExchangeRequest(hello=self._hello))
            while (reply := await call.read()) is not END_OF_STREAM:
                self._outbox.credit(reply.credit_bytes)
                if writer is None:
                    writer = asyncio.create_task(self._write(call))
            return F1Error(Code.UNAVAILABLE, "the receiver of rows ended the stream")
        except (grpc.aio.BaseError, asyncio.InvalidStateError) as failure:
            return await _reason(call, failure)
        finally:
            if writer is not None:
                writer.cancel()
                await asyncio.gather(writer, return_exceptions=True)
            call.cancel()

    async def _write(self, call: Any) -> None:
        outbox = self._outbox
        while True:
            await outbox.wake.wait()
            if rows := outbox.take():
                await call.write(pb.ExchangeRequest(rows=rows))
            if not outbox:
                outbox.wake.clear()


async def _reason(call: Any, failure: Exception) -> F1Error:
    """Return why a call is over: a failed write knows only that it is."""
    if isinstance(failure, grpc.aio.AioRpcError):
        return error_from_exception(failure)
    try:
        async with asyncio.timeout(1.0):
            code, details = await call.code(), await call.details()
        return F1Error(Code.UNAVAILABLE, f"the stream broke: {code.name}: {details}")
    except TimeoutError:
        return F1Error(Code.UNAVAILABLE, "the stream broke")
