"""Spanservers that say what a test tells them to, over simulated channels; the client and its streams are real."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from f1common.errors import Code, F1Error
from f1common.pb import spanstore_pb2 as pb
from f1common.pb import spanstore_pb2_grpc as stubs
from f1common.rpc.channels import ChannelCache
from f1common.rpc.serving import Owed, serve_requests
from spanstore.client import SpanClient
from spanstore.client.router import Router
from spanstore.placement.range_map import KEY_MAX, Range, RangeMap
from spanstore.runtime.wire import error_to_pb
from spanstore.testing.sim import NodeEnv, World, run_sim

T = TypeVar("T")

SERVERS = ("s1", "s2", "s3")
PORT = 7000

LOST = None
"""The answer that never comes."""

Answer = pb.Response | F1Error | None
Script = Callable[[str, pb.Request], Answer]

MAP = RangeMap([Range(b"", b"m", 1), Range(b"m", b"t", 2), Range(b"t", KEY_MAX, 3)])
"""Keys below m belong to group 1, those below t to group 2, the others to group 3."""


def error(code: Code, **details: str) -> F1Error:
    return F1Error(code, "told to say so", details=details)


def not_leader(leader: str = "") -> F1Error:
    return F1Error(Code.NOT_LEADER, "told to say so", details={"leader": leader})


def body(request: pb.Request) -> str:
    return request.WhichOneof("body") or ""


@dataclass
class Tier:
    """Three servers, each a voter of each group. ``script`` answers whatever is not about the map."""

    world: World
    script: Script
    map: RangeMap = MAP
    leaders: dict[int, str] = field(default_factory=lambda: dict.fromkeys((1, 2, 3), "s1"))
    log: list[tuple[str, int, str]] = field(default_factory=list)
    """What arrived, as (server, group, kind)."""
    requests: list[pb.Request] = field(default_factory=list)
    maps_asked: int = 0

    def start(self) -> None:
        for name in SERVERS:
            self.world.add_node(name, self._run)

    async def _run(self, env: NodeEnv) -> None:
        server = env.server()
        stubs.add_SpanServerServicer_to_server(_Servicer(self, env.name), server)
        server.add_insecure_port(env.address(PORT))
        await server.start()
        await asyncio.Event().wait()

    def answer(self, server: str, request: pb.Request) -> Answer:
        kind = body(request)
        if kind == "range_map":
            self.maps_asked += 1
            return pb.Response(
                range_map=pb.RangeMapReply(
                    cluster_id="sim",
                    version=self.map.version,
                    ranges=[pb.RangeEntry(start=r.start, end=r.end, group=r.group) for r in self.map.ranges],
                    groups=[pb.GroupEntry(group=g, voters=SERVERS, leader=at) for g, at in self.leaders.items()],
                    servers=[pb.ServerEntry(name=n, zone=n, address=f"{n}:{PORT}") for n in SERVERS],
                )
            )
        self.log.append((server, request.group, kind))
        self.requests.append(request)
        return self.script(server, request)

    def kinds(self) -> list[str]:
        return [kind for _, _, kind in self.log]

    def of(self, kind: str, group: int = 0) -> list[Any]:
        """Return the bodies of one kind that arrived, at one group if it is named."""
        return [getattr(r, kind) for r in self.requests if body(r) == kind and group in (0, r.group)]


class _Servicer(stubs.SpanServerServicer):
    def __init__(self, tier: Tier, name: str) -> None:
        self.tier = tier
        self.name = name

    async def Session(self, request_iterator: Any, context: Any) -> None:
        def handle(request: pb.Request, reply: Owed[pb.Request, pb.Response]) -> None:
            found = self.tier.answer(self.name, request)
            if isinstance(found, F1Error):
                found = pb.Response(error=error_to_pb(found))
            if found is not None:
                copy = pb.Response()
                copy.CopyFrom(found)
                copy.id = request.id
                reply(copy)

        await serve_requests(
            context, lambda batch: batch.requests, lambda responses: pb.ServerBatch(responses=responses), handle
        )


def talk(script: Script, main: Callable[[SpanClient, Tier], Awaitable[T]], *, map: RangeMap = MAP) -> T:
    """Run ``main`` against servers that follow ``script``, in virtual time."""

    async def everything(world: World) -> T:
        tier = Tier(world, script, map)
        tier.start()
        env = world.add_client("client")

        async def work() -> T:
            addresses = [f"{name}:{PORT}" for name in SERVERS]
            client = SpanClient(addresses, clock=env.clock, rng=env.rng, channels=ChannelCache(env.channel))
            try:
                return await main(client, tier)
            finally:
                await client.close()

        return await env.spawn(work())

    result: T = run_sim(everything, 1)
    return result


def route(script: Script, main: Callable[[Router, Tier], Awaitable[T]]) -> T:
    """As :func:`talk`, with the router alone."""

    async def everything(world: World) -> T:
        tier = Tier(world, script)
        tier.start()
        env = world.add_client("client")

        async def work() -> T:
            addresses = [f"{name}:{PORT}" for name in SERVERS]
            router = Router(addresses, channels=ChannelCache(env.channel), rng=random.Random(1))
            try:
                return await main(router, tier)
            finally:
                await router.close()

        return await env.spawn(work())

    result: T = run_sim(everything, 1)
    return result


def committed(ts: int) -> pb.Response:
    return pb.Response(commit=pb.CommitReply(ts=ts))


def prepared(ts: int) -> pb.Response:
    return pb.Response(prepare=pb.PrepareReply(prepare_ts=ts))


def outcome(state: pb.TxnState, ts: int = 0) -> pb.Response:
    return pb.Response(outcome=pb.OutcomeReply(state=state, ts=ts, attempt=1))


DONE = {
    "decide": pb.Response(decide=pb.DecideReply()),
    "release": pb.Response(release=pb.ReleaseReply()),
}
