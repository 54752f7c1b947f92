"""A server's beginning and end: port, health, reflection, metrics, drain on a signal."""

import asyncio
import os
import signal
import socket
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf import descriptor_pool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from f1common.errors import Code, F1Error
from f1common.observe.metrics import Metrics
from f1common.rpc.channels import ChannelCache
from f1common.rpc.server import ServerBootstrap, ServerOptions
from f1common.rpc.streams import serve_requests
from tests.unit.rpc.echo import (
    SERVICE,
    Request,
    Response,
    add_echo,
    echo,
    items_of,
    pack_responses,
    request_stream,
    single_method,
    until,
)

Drain = Callable[[], Awaitable[None]]


@asynccontextmanager
async def started(options: ServerOptions | None = None, **arguments: Any) -> AsyncIterator[tuple[ServerBootstrap, Any]]:
    """A started server and a channel to it."""
    bootstrap = ServerBootstrap(options or ServerOptions("span-a1"), **arguments)

    async def single(request: Any, context: Any) -> Any:
        return echo(request)

    add_echo(bootstrap.server, single=single)
    await bootstrap.start()
    channels = ChannelCache()
    try:
        yield bootstrap, channels.get(bootstrap.address)
    finally:
        await channels.close()
        await bootstrap.stop()


async def health_of(channel: Any) -> str:
    stub = health_pb2_grpc.HealthStub(channel)
    reply = await stub.Check(health_pb2.HealthCheckRequest())
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status))


def test_server_serves_on_loopback_with_health_set_by_its_owner() -> None:
    async def scenario() -> None:
        async with started() as (bootstrap, channel):
            assert bootstrap.address == f"127.0.0.1:{bootstrap.port}"
            assert await health_of(channel) == "NOT_SERVING"
            await bootstrap.set_serving(True)
            assert await health_of(channel) == "SERVING"
            assert (await single_method(channel)(Request(text="hi"))).text == "hi"
            await bootstrap.set_serving(False)
            assert await health_of(channel) == "NOT_SERVING"

    asyncio.run(scenario())


def test_busy_port_says_which_and_what_to_do() -> None:
    async def scenario() -> None:
        async with started() as (first, channel):
            second = ServerBootstrap(ServerOptions("span-a2", port=first.port))
            with pytest.raises(F1Error) as caught:
                await second.start()
            error = caught.value
            assert (error.code, error.retryable) == (Code.PORT_IN_USE, False)
            assert str(first.port) in error.message and "another port" in error.message
            assert error.details == {"host": "127.0.0.1", "port": str(first.port)}
            assert (await single_method(channel)(Request(text="unharmed"))).text == "unharmed"

    asyncio.run(scenario())


def test_port_taken_by_a_plain_socket_is_in_use_too() -> None:
    async def scenario(port: int) -> F1Error:
        with pytest.raises(F1Error) as caught:
            await ServerBootstrap(ServerOptions("x", port=port)).start()
        return caught.value

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert asyncio.run(scenario(taken.getsockname()[1])).code is Code.PORT_IN_USE


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 65536), ("127.0.0.1", -1), ("192.0.2.1", 0)])
def test_place_that_cannot_be_listened_on_is_an_invalid_argument(host: str, port: int) -> None:
    async def scenario() -> None:
        with pytest.raises(F1Error) as caught:
            await ServerBootstrap(ServerOptions("x", host=host, port=port)).start()
        assert caught.value.code is Code.INVALID_ARGUMENT
        assert host in caught.value.message or str(port) in caught.value.message

    asyncio.run(scenario())


def test_port_is_free_again_after_the_stop() -> None:
    async def scenario() -> None:
        async with started() as (first, channel):
            await single_method(channel)(Request())
        async with started(ServerOptions("again", port=first.port)) as (second, channel):
            assert second.port == first.port
            assert (await single_method(channel)(Request(text="again"))).text == "again"

    asyncio.run(scenario())


def test_reflection_describes_services_and_messages() -> None:
    async def scenario() -> None:
        async with started(service_names=[SERVICE]) as (bootstrap, _):
            services, fields = await asyncio.to_thread(ask, bootstrap.address)
            assert {SERVICE, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"} <= set(services)
            assert fields == ["id", "text", "body"]

    def ask(address: str) -> tuple[list[str], list[str]]:
        with grpc.insecure_channel(address) as channel:
            database = ProtoReflectionDescriptorDatabase(channel)
            pool = descriptor_pool.DescriptorPool(database)
            service = pool.FindServiceByName(SERVICE)
            assert service.methods_by_name["Session"].server_streaming
            request = pool.FindMessageTypeByName("f1.test.echo.Request")
            return list(database.get_services()), [field.name for field in request.fields]

    asyncio.run(scenario())


def test_metrics_endpoint_serves_the_registry_of_this_server() -> None:
    def fetch(port: int) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
            return str(response.read().decode())

    async def scenario() -> None:
        first, second = Metrics(), Metrics()
        first.counter("commits", "Commits.").inc(3)
        second.counter("commits", "Commits.").inc(5)
        options = ServerOptions("m", metrics_port=0)
        async with started(options, metrics=first) as (one, _), started(options, metrics=second) as (two, _):
            assert one.metrics_port and two.metrics_port
            assert "f1_commits_total 3.0" in await asyncio.to_thread(fetch, one.metrics_port)
            assert "f1_commits_total 5.0" in await asyncio.to_thread(fetch, two.metrics_port)
            port = one.metrics_port
        with pytest.raises(OSError):
            await asyncio.to_thread(fetch, port)

    asyncio.run(scenario())


def test_busy_metrics_port_frees_the_server_port() -> None:
    async def scenario(busy: int) -> None:
        bootstrap = ServerBootstrap(ServerOptions("m", metrics_port=busy), metrics=Metrics())
        with pytest.raises(F1Error) as caught:
            await bootstrap.start()
        assert caught.value.code is Code.PORT_IN_USE and str(busy) in caught.value.message
        async with started(ServerOptions("next", port=bootstrap.port)):
            pass

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        asyncio.run(scenario(taken.getsockname()[1]))


class Draining:
    """A server whose sessions keep requests until told, run until a signal in a task of its own."""

    def __init__(self, drain_timeout_ms: int = 5000) -> None:
        self.bootstrap = ServerBootstrap(ServerOptions("d", drain_timeout_ms=drain_timeout_ms))
        self.waiting: list[tuple[Any, Callable[[Any], None]]] = []
        self.log: list[str] = []

        async def session(_: Any, context: Any) -> None:
            def handle(request: Any, reply: Callable[[Any], None]) -> None:
                self.waiting.append((request, reply))

            draining = self.bootstrap.draining
            await serve_requests(context, items_of, pack_responses, handle, draining=draining)
            self.log.append("session ended")

        add_echo(self.bootstrap.server, session)
        self.channels = ChannelCache()

    async def start(self, drain: Drain) -> Any:
        await self.bootstrap.start()
        await self.bootstrap.set_serving(True)
        self.running = asyncio.create_task(self.bootstrap.run_until_signal(drain))
        self.channel = self.channels.get(self.bootstrap.address)
        await asyncio.sleep(0)
        return request_stream(self.channel)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_drains_in_order_and_answers_what_was_read(number: signal.Signals) -> None:
    async def scenario() -> None:
        server = Draining()
        handed_over = asyncio.Event()

        async def drain() -> None:
            server.log.append(await health_of(server.channel))
            await handed_over.wait()
            server.log.append("handed over")

        stream = await server.start(drain)
        call = asyncio.create_task(stream.call(Request(text="owed")))
        await until(lambda: len(server.waiting) == 1)
        os.kill(os.getpid(), number)
        await until(lambda: server.log == ["NOT_SERVING"])
        request, reply = server.waiting[0]
        reply(echo(request))
        assert (await call).text == "owed"
        await until(lambda: "session ended" in server.log)
        assert not server.running.done(), "the owner has not drained yet"
        handed_over.set()
        await server.running
        assert server.log == ["NOT_SERVING", "session ended", "handed over"]
        await stream.close()
        await server.channels.close()

    asyncio.run(scenario())


def test_owner_that_does_not_drain_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        server = Draining(drain_timeout_ms=50)
        cancelled = asyncio.Event()

        async def drain() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        stream = await server.start(drain)
        call = asyncio.create_task(stream.call(Request()))
        await until(lambda: len(server.waiting) == 1)
        server.bootstrap.request_stop()
        await server.running
        assert cancelled.is_set()
        with pytest.raises(F1Error) as caught:
            await call  # its answer never came; the grace period is over
        assert (caught.value.code, caught.value.ambiguous) == (Code.UNAVAILABLE, True)
        await stream.close()
        await server.channels.close()

    asyncio.run(scenario())
    assert "did not drain" in caplog.text


def test_failing_drain_is_logged_and_the_server_stops(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async def drain() -> None:
            raise OSError("disk")

        server = Draining()
        stream = await server.start(drain)
        server.bootstrap.request_stop()
        await server.running
        await stream.close()
        await server.channels.close()

    asyncio.run(scenario())
    assert "failed to drain" in caplog.text


def test_second_signal_stops_the_waiting() -> None:
    async def scenario() -> None:
        server = Draining(drain_timeout_ms=600_000)
        draining = asyncio.Event()

        async def drain() -> None:
            draining.set()
            await asyncio.Event().wait()

        stream = await server.start(drain)
        call = asyncio.create_task(stream.call(Request()))
        await until(lambda: len(server.waiting) == 1)
        os.kill(os.getpid(), signal.SIGTERM)
        await draining.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        await server.running
        with pytest.raises(F1Error):
            await call
        await stream.close()
        await server.channels.close()

    asyncio.run(scenario())


def test_errors_are_not_lost_between_large_messages() -> None:
    async def scenario() -> None:
        async def single(request: Any, context: Any) -> Any:
            return Response(body=bytes(2 << 20))

        bootstrap = ServerBootstrap(ServerOptions("x", max_message_bytes=1 << 20))
        add_echo(bootstrap.server, single=single)
        await bootstrap.start()
        channels = ChannelCache()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await single_method(channels.get(bootstrap.address))(Request())
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        await channels.close()
        await bootstrap.stop()

    asyncio.run(scenario())
