"""How a server process begins and ends: a port, health, reflection, metrics, and a graceful drain on a signal.

The order of a drain matters. First the process says NOT_SERVING, so that clients and load balancers go elsewhere;
then its streams stop reading and answer what they have read (they watch :attr:`ServerBootstrap.draining`); then the
owner hands over what it leads and flushes; only then does the server stop, which cancels what is left after the
grace period. A second signal skips the waiting.
"""

import asyncio
import errno
import signal
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from f1common.errors import Code, F1Error, check
from f1common.observe.logs import get_logger
from f1common.observe.metrics import Metrics, MetricsEndpoint
from f1common.rpc.channels import DEFAULT_MAX_MESSAGE_BYTES, Options, transport_options

_log = get_logger(__name__)

_HIGHEST_PORT = 65535


def server_options(max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES) -> Options:
    """Return the gRPC options of a server.

    Port sharing is off: a second server on a port would silently take half of the connections. Clients may ping as
    often as ours do.
    """
    return (
        *transport_options(max_message_bytes),
        ("grpc.so_reuseport", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 500),
        ("grpc.http2.max_ping_strikes", 0),
    )


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Where and how a server listens.

    ``port`` and ``metrics_port`` 0 let the system choose; ``metrics_port`` None means no metrics endpoint.
    ``drain_timeout_ms`` bounds the owner's drain, and again what streams may take after it.
    """

    name: str
    host: str = "127.0.0.1"
    port: int = 0
    metrics_port: int | None = None
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    drain_timeout_ms: int = 3000


class ServerBootstrap:
    """One gRPC server with health, reflection and metrics; servicers are added to :attr:`server` before the start."""

    def __init__(
        self,
        options: ServerOptions,
        *,
        service_names: Sequence[str] = (),
        metrics: Metrics | None = None,
        server_factory: Callable[[Options], Any] | None = None,
    ) -> None:
        """Make a server that does not listen yet. Needs a running event loop.

        ``service_names`` are the full names for reflection. ``server_factory`` makes the server from gRPC options, by
        default one of ``grpc.aio``.
        """
        self._options = options
        self._metrics = metrics
        self._endpoint: MetricsEndpoint | None = None
        grpc_options = server_options(options.max_message_bytes)
        self.server: Any = (
            server_factory(grpc_options) if server_factory is not None else grpc.aio.server(options=grpc_options)
        )
        self.draining = asyncio.Event()
        """Set when the drain begins; streams pass it to ``serve_requests``."""
        self.port = 0
        """The port that the server listens on, once started."""
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]  # the stubs lack it
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self.server)
        names = [*service_names, health.SERVICE_NAME, reflection.SERVICE_NAME]
        # Not enable_server_reflection: that looks at the server's class, and the server may be of another kind.
        reflector = reflection.aio.ReflectionServicer(names)  # type: ignore[attr-defined]  # the stubs lack it
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(reflector, self.server)

    @property
    def address(self) -> str:
        """The address to reach the server at, ``host:port``."""
        return _join(self._options.host, self.port)

    @property
    def metrics_port(self) -> int | None:
        """The port of the metrics endpoint, None without one."""
        return None if self._endpoint is None else self._endpoint.port

    async def start(self) -> int:
        """Listen, NOT_SERVING until the owner says otherwise; returns the port.

        Raises F1Error PORT_IN_USE, or INVALID_ARGUMENT for a host or port that cannot be listened on.
        """
        options = self._options
        await self.set_serving(False)
        # Metrics first: a port that grpc has bound is not freed by stopping a server that never started.
        if self._metrics is not None and options.metrics_port is not None:
            self._endpoint = self._metrics.serve(options.host, options.metrics_port)
        try:
            self.port = _listen(self.server, options.host, options.port)
            await self.server.start()
        except BaseException:
            self._close_endpoint()
            raise
        _log.info("listening", server=options.name, address=self.address)
        return self.port

    async def set_serving(self, serving: bool, part: str = "") -> None:
        """Say to health checks whether this server, or a ``part`` of it by name, is well.

        During a drain it stays NOT_SERVING.
        """
        states = health_pb2.HealthCheckResponse
        await self._health.set(part, states.SERVING if serving else states.NOT_SERVING)

    def request_stop(self) -> None:
        """Begin to drain, as a first SIGTERM does; called again, stop waiting, as a second one does."""
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()

    async def run_until_signal(self, drain: Callable[[], Awaitable[None]] | None = None) -> None:
        """Serve until SIGTERM, SIGINT or :meth:`request_stop`, then drain and stop."""
        loop = asyncio.get_running_loop()
        signals = (signal.SIGTERM, signal.SIGINT)
        for number in signals:
            loop.add_signal_handler(number, self.request_stop)
        try:
            await self._stop.wait()
            await self.stop(drain)
        finally:
            for number in signals:
                loop.remove_signal_handler(number)

    async def stop(self, drain: Callable[[], Awaitable[None]] | None = None) -> None:
        """Drain and stop. ``drain`` is the owner's part, given ``drain_timeout_ms``; its failure is logged."""
        grace_s = self._options.drain_timeout_ms / 1000
        self._stop.set()
        await self._health.enter_graceful_shutdown()
        self.draining.set()
        if drain is not None:
            await self._patiently(_owner_drain(drain, grace_s, self._options.name))
        # Health watchers and metrics have nothing to finish; the grace is for streams that still owe answers.
        stopping = self.server.stop(0.0 if self._hurry.is_set() else grace_s)
        await self._patiently(stopping)
        await self.server.stop(None)
        self._close_endpoint()

    def _close_endpoint(self) -> None:
        if self._endpoint is not None:
            self._endpoint.close()
            self._endpoint = None

    async def _patiently(self, work: Awaitable[None]) -> None:
        """Await ``work`` unless a second signal comes first."""
        task = asyncio.ensure_future(work)
        hurry = asyncio.create_task(self._hurry.wait())
        try:
            await asyncio.wait((task, hurry), return_when=asyncio.FIRST_COMPLETED)
        finally:
            hurry.cancel()
            task.cancel()
            await asyncio.gather(task, hurry, return_exceptions=True)


async def _owner_drain(drain: Callable[[], Awaitable[None]], timeout_s: float, name: str) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await drain()
    except TimeoutError:
        _log.warning("did not drain in time and stops anyway", server=name, timeout_s=timeout_s)
    except Exception as error:
        _log.error("failed to drain and stops anyway", exc=error, server=name)


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _listen(server: Any, host: str, port: int) -> int:
    if not 0 <= port <= _HIGHEST_PORT:
        raise F1Error(Code.INVALID_ARGUMENT, f"a port is a number from 0 to {_HIGHEST_PORT}, not {port}")
    try:
        bound = int(server.add_insecure_port(_join(host, port)))
    except RuntimeError as error:
        # The transport does not say why; trying it ourselves does.
        raise bind_error(host, port, _try_bind(host, port)) from error
    check(bound > 0, "a server that listens has a port")
    return bound


def _try_bind(host: str, port: int) -> OSError:
    try:
        family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, number) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen()
    except OSError as error:
        return error
    return OSError(errno.EADDRINUSE, "it was in use a moment ago")


def bind_error(host: str, port: int, error: OSError) -> F1Error:
    """Return the error that tells what to do about ``error``, met while binding ``host`` and ``port``."""
    where = _join(host, port)
    if error.errno == errno.EADDRINUSE:
        text = (
            f"port {port} on {host} is in use by another process; stop that process (`ss -ltnp 'sport = :{port}'` "
            "names it) or configure another port"
        )
        return F1Error(Code.PORT_IN_USE, text, details={"host": host, "port": str(port)})
    if error.errno == errno.EACCES:
        return F1Error(Code.INVALID_ARGUMENT, f"this user may not listen on {where}; choose a port above 1023")
    return F1Error(Code.INVALID_ARGUMENT, f"cannot listen on {where}: {error.strerror or error}")
