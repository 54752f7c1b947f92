"""Does the walks that an f1server asks for, and says how they go."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio

from f1common.clock import Clock
from f1common.errors import Code, F1Error
from f1common.observe.logs import get_logger
from f1common.pb import slave_pb2 as pb
from f1common.pb import types_pb2
from f1common.rpc.batches import END_OF_STREAM
from f1common.rpc.status import error_from_exception, error_to_wire
from f1common.rpc.versions import check_version
from f1server.exec.duck import Duck, DuckConfig
from f1server.exec.rowwise import RowEvaluator
from f1server.exec.spill import spill_folder
from f1server.schemachange.work.pacing import Paced
from f1server.schemachange.work.sums import Sums
from f1server.schemachange.work.throttle import ThrottleOptions
from f1server.schemachange.work.walk import Walker
from f1server.schemachange.work.walking import Rest, Walk
from f1server.schemachange.work.wire import options_from_pb, sums_to_pb, walk_from_pb
from slavepool.assignment import SchemaCache
from slavepool.run_session import to_the_end
from spanstore.client import SpanClient

__all__ = ["InPlaceWalks"]

PROTOCOL_VERSION = 4
_TELL_S = 0.25
_MEMORY_MB = 128

_log = get_logger(__name__)
_CLIENT_GONE = (grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError, ConnectionError)


class _Fenced:
    """Until when commits are allowed, as the f1server has said."""

    def __init__(self, clock: Clock, fence_ts: int) -> None:
        self._clock = clock
        self.fence_ts = fence_ts

    @asynccontextmanager
    async def __call__(self) -> AsyncGenerator[Callable[[], int], None]:
        """Let a commit happen up to the fence. Raises ABORTED if that has passed."""
        if self._clock.sample().tt.latest >= self.fence_ts:
            text = "the f1server has not said for too long that the schema may be used"
            raise F1Error(Code.ABORTED, text, retryable=True)
        yield lambda: self.fence_ts


class InPlaceWalks:
    """Walks in this process, over ``client``, which works in the background."""

    def __init__(self, client: SpanClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._schemas = SchemaCache()
        self._pace = Paced(client, ThrottleOptions(), lambda: clock.sample().tt.latest / 1e6, asyncio.sleep)
        self._evaluator: RowEvaluator | None = None
        self._duck: Duck | None = None
        self._streams: set[asyncio.Task[Any]] = set()

    def _evaluators(self) -> RowEvaluator:
        if self._evaluator is None:
            self._duck = Duck(DuckConfig(memory_mb=_MEMORY_MB, threads=1, temp_dir=spill_folder()))
            self._evaluator = RowEvaluator(self._duck, self._clock)
        return self._evaluator

    async def close(self) -> None:
        """End all walks."""
        for task in list(self._streams):
            task.cancel()
        if self._duck is not None:
            self._duck.close()

    async def serve(self, context: Any) -> None:
        """Do the walk that a stream asks for."""
        first = await context.read()
        if first is END_OF_STREAM:
            return
        start: pb.StartWalk = first.start
        check_version("the f1server", start.protocol_version, PROTOCOL_VERSION, reach=3)
        walk = walk_from_pb(start, self._schemas.get(start.schema, start.schema_commit_ts))
        self._pace.adjust(options_from_pb(start))
        fence = _Fenced(self._clock, start.fence_ts)
        session = _Session(context, fence)
        walker = Walker(self._client, self._evaluators, fence, self._pace, asyncio.sleep)
        await self._run(session, walk, walker)

    async def _run(self, session: "_Session", walk: Walk, walker: Walker) -> None:
        walking = session.work(lambda: walker.walk(walk, session.tell, session.lot_ended))
        work = asyncio.create_task(walking, name="walk")
        ends = [asyncio.create_task(session.read()), asyncio.create_task(session.write())]
        self._streams.add(work)
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for task in ends:
                if task.done():
                    task.result()
        except _CLIENT_GONE as error:
            _log.debug("the f1server of a walk is gone", reason=str(error))
        finally:
            self._streams.discard(work)
            for task in (*ends, work):
                task.cancel()
            await to_the_end(asyncio.gather(*ends, work, return_exceptions=True))


class _Session:
    """One stream: what has been done since the last message, and how the walk ended."""

    def __init__(self, context: Any, fence: _Fenced) -> None:
        self._context = context
        self._fence = fence
        self._rows = 0
        self._bytes = 0
        self._rest: Rest | None = None
        self._ended: pb.ReorganiseReply | None = None
        self._wake = asyncio.Event()

    async def tell(self, rows: int, size: int) -> None:
        """So much has been done."""
        self._rows += rows
        self._bytes += size

    def lot_ended(self, rest: Rest) -> None:
        """This is left."""
        self._rest = rest

    async def work(self, walk: Callable[[], Awaitable[Sums]]) -> None:
        """Do the walk, and remember how it ended."""
        try:
            self._ended = pb.ReorganiseReply(done=True, sums=sums_to_pb(await walk()))
        except Exception as error:
            self._ended = pb.ReorganiseReply(
                error=types_pb2.Error(**error_to_wire(error_from_exception(error))._asdict())
            )
        self._wake.set()

    async def read(self) -> None:
        """Hear until when commits are allowed, until the f1server ends the stream."""
        while (request := await self._context.read()) is not END_OF_STREAM:
            self._fence.fence_ts = max(self._fence.fence_ts, request.fence_ts)

    async def write(self) -> None:
        """Tell what has been done, some times a second, and how it ended."""
        while self._ended is None:
            try:
                async with asyncio.timeout(_TELL_S):
                    await self._wake.wait()
            except TimeoutError:
                await self._say(pb.ReorganiseReply())
        await self._say(self._ended)

    async def _say(self, reply: pb.ReorganiseReply) -> None:
        reply.rows, self._rows = self._rows, 0
        reply.bytes, self._bytes = self._bytes, 0
        if self._rest is not None:
            rest, self._rest = self._rest, None
            sums = sums_to_pb(rest.sums)
            reply.rest.MergeFrom(
                pb.WalkRest(start=rest.start, end=rest.end, rows=rest.rows, bytes=rest.size, sums=sums)
            )
        await self._context.write(reply)
