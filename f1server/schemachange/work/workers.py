"""Who does walks: this server, or slaves, which commit under the lease that this server has on the schema.

A slave has no lease of its own. It is told until when it may commit, and told again as the lease is renewed; each of
its commits carries that as its fence. While it works the version of the schema counts as in use here, so that whoever
writes the next one waits for it, unless that has other roles and nothing else; if the stream breaks, until the end of
the lease that the slave was told of. So when this server is gone, or another one owns the change, nothing that a slave
still does comes too late to be right.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any

import grpc.aio

from f1common.errors import Code, F1Error
from f1common.pb import slave_pb2 as pb
from f1common.pb import slave_pb2_grpc as stubs
from f1common.rpc.batches import END_OF_STREAM
from f1common.rpc.channels import ChannelCache
from f1common.rpc.status import carries_error, error_from_rpc, error_from_wire
from f1server.catalog.leases import Leased, SchemaLeases
from f1server.catalog.schema import Schema
from f1server.dist.pool import SlavePool
from f1server.schemachange.work.dealing import Worker
from f1server.schemachange.work.sums import Sums
from f1server.schemachange.work.throttle import ThrottleOptions
from f1server.schemachange.work.walk import Walker
from f1server.schemachange.work.walking import Ended, Rest, Tell, Walk, WalkKind
from f1server.schemachange.work.wire import sums_from_pb, walk_to_pb

__all__ = ["Here", "Workers", "leased_fence"]

PROTOCOL_VERSION = 4
"""Slaves of version 1 know walks that change rows, and no others; those of version 2, which take 3 for theirs, add
nothing up."""
_EXTEND_S = 0.1
_SILENCE_S = 10.0
_LANES_HERE = 2
_LANES_OF_SLAVE = 2


@asynccontextmanager
async def leased_fence(leases: SchemaLeases, schema: Schema) -> AsyncGenerator[Callable[[], int], None]:
    """Let a commit happen not later than this server may use ``schema``, or one that differs in roles only.

    Raises ABORTED if it uses another version.
    """
    async with leases.use(schema.database) as leased:
        _check_same(leased, schema)
        yield leased.deadline


def _check_same(leased: Leased, schema: Schema) -> None:
    if leased.schema.elements_version != schema.elements_version:
        raise F1Error(Code.ABORTED, f"the schema has version {leased.schema.version} by now", retryable=True)


class _Hold:
    """The hold on a schema of a walk that takes long: when roles have changed, it goes on under the newer version.

    What it commits is the same under both, so that nobody has to wait until it is over.
    """

    def __init__(self, leases: SchemaLeases, schema: Schema) -> None:
        self._leases = leases
        self._schema = schema
        self._use = leases.use(schema.database)

    async def __aenter__(self) -> "_Hold":
        """Begin. Raises ABORTED as :func:`leased_fence`."""
        self._leased = await self._use.__aenter__()
        try:
            _check_same(self._leased, self._schema)
        except F1Error as error:
            await self._use.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End, as :class:`f1server.catalog.leases.Use` does."""
        await self._use.__aexit__(kind, error, trace)

    def deadline(self) -> int:
        """Return until when commits are allowed, as it is known."""
        return self._leased.deadline()

    async def extended(self) -> int:
        """Return the same, under the version that this server uses by now if that differs in roles only."""
        told, use = self.deadline(), self._leases.use(self._schema.database)
        try:
            newer = await use.__aenter__()
        except F1Error:
            return told  # there is no lease to be had, so it stays with what was told
        other = newer.schema.version != self._leased.schema.version
        same_work = newer.schema.elements_version == self._schema.elements_version
        if other and same_work and newer.lease_end >= told:
            self._use, self._leased, use = use, newer, self._use
        await use.__aexit__(None, None, None)
        return self.deadline()


class Here:
    """A worker of this server."""

    elsewhere = False

    def __init__(self, walker: Callable[[Schema], Walker], adjust: Callable[[int], None]) -> None:
        """``walker`` makes what does walks under a schema; ``adjust`` sets the pace for a table of so many rows."""
        self._walker = walker
        self._adjust = adjust

    async def work(self, walk: Walk, tell: Tell, ended: Ended) -> Sums:
        """Do a walk."""
        self._adjust(walk.table_rows)
        return await self._walker(walk.schema).walk(walk, tell, ended)


class AtSlave:
    """A worker that is a slave."""

    elsewhere = True

    def __init__(
        self,
        open_call: Callable[[], Any],
        here: Here,
        leases: SchemaLeases,
        options: Callable[[int], ThrottleOptions],
    ) -> None:
        """``open_call`` opens a stream to it; ``here`` does what a slave of an older version does not know.

        ``options`` are those of each slave for a table of so many rows.
        """
        self._open_call = open_call
        self._here = here
        self._leases = leases
        self._options = options

    async def work(self, walk: Walk, tell: Tell, ended: Ended) -> Sums:
        """Have a walk done. Raises what the slave says, or UNAVAILABLE, ambiguous: commits may still come."""
        try:
            return await self._ask(walk, tell, ended)
        except F1Error as error:
            if error.code is not Code.VERSION_MISMATCH:
                raise
            # In the middle of an upgrade.
            return await self._here.work(walk, tell, ended)

    async def _ask(self, walk: Walk, tell: Tell, ended: Ended) -> Sums:
        async with _Hold(self._leases, walk.schema) as hold:
            call = self._open_call()
            extending = asyncio.create_task(self._write(call, walk, hold), name="fence of a walk")
            try:
                return await self._read(call, tell, ended)
            except grpc.aio.AioRpcError as error:
                if carries_error(error):
                    raise error_from_rpc(error) from error
                raise _gone(f"{error.code().name}: {error.details() or 'no details'}") from error
            except (grpc.aio.BaseError, asyncio.InvalidStateError, TimeoutError) as error:
                raise _gone(str(error) or f"it was silent for {_SILENCE_S:g} s") from error
            finally:
                extending.cancel()
                call.cancel()
                await asyncio.gather(extending, return_exceptions=True)

    async def _write(self, call: Any, walk: Walk, hold: _Hold) -> None:
        """Say what there is to do, and then again and again until when commits are allowed."""
        told = hold.deadline()
        options = self._options(walk.table_rows)
        await call.write(pb.ReorganiseRequest(start=walk_to_pb(walk, options, told, _version_for(walk))))
        while True:
            await asyncio.sleep(_EXTEND_S)
            fence_ts = await hold.extended()
            if fence_ts != told:
                told = fence_ts
                await call.write(pb.ReorganiseRequest(fence_ts=told))

    async def _read(self, call: Any, tell: Tell, ended: Ended) -> Sums:
        while True:
            async with asyncio.timeout(_SILENCE_S):
                reply = await call.read()
            if reply is END_OF_STREAM:
                raise _gone("it ended the stream")
            if reply.HasField("error"):
                e = reply.error
                raise error_from_wire(e.code, e.message, e.retryable, e.ambiguous, dict(e.details))
            if reply.HasField("rest"):
                rest = reply.rest
                ended(Rest(rest.start, rest.end, rest.rows, rest.bytes, sums_from_pb(rest.sums)))
            await tell(reply.rows, reply.bytes)
            if reply.done:
                return sums_from_pb(reply.sums)


def _version_for(walk: Walk) -> int:
    """Return the oldest version of the protocol that knows such walks."""
    if walk.kind is WalkKind.CHANGE:
        return 1
    return PROTOCOL_VERSION if walk.kind.sums else 2


def _gone(why: str) -> F1Error:
    return F1Error(Code.UNAVAILABLE, f"the stream to the slave broke: {why}", retryable=True, ambiguous=True)


class Workers:
    """All who can do walks now: the slaves that live, or this server if there are none."""

    def __init__(
        self,
        here: Here,
        pool: SlavePool | None,
        leases: SchemaLeases,
        channels: ChannelCache | None,
        options: ThrottleOptions,
    ) -> None:
        """``pool`` None: there never is a slave. ``options`` are those of all workers together."""
        self._here = here
        self._pool = pool
        self._leases = leases
        self._channels = channels
        self._options = options

    def __call__(self) -> Mapping[str, Worker]:
        """Return the workers by name; another process of a slave has another name."""
        slaves = self._pool.live() if self._pool is not None and self._channels is not None else ()
        if not slaves or self._channels is None:
            return {f"this server, lane {lane}": self._here for lane in range(_LANES_HERE)}

        def options(table_rows: int) -> ThrottleOptions:
            return self._options.over(table_rows).shared(len(slaves))

        channels = self._channels
        found: dict[str, Worker] = {}
        for lane in range(_LANES_OF_SLAVE):
            for slave in slaves:
                stub = stubs.SlaveStub(channels.get(slave.address))
                found[f"{slave.name}/{slave.incarnation:x}, lane {lane}"] = AtSlave(
                    stub.Reorganise, self._here, self._leases, options
                )
        return found
