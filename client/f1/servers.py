"""The f1servers that a client may talk to: which one is next, and what is sent again when one fails.

Every server can do everything, so a client prefers the nearest that works and goes to another one when it does not.
What may be sent a second time is the caller's to say (:class:`Resend`): reads always, commits never once they were
handed over. All tasks of a process that use the same addresses share one stream to each server, and so its messages.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from enum import Enum
from typing import Any

from f1.logins import Login
from f1common.clock import BoundedClock, Clock
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from f1common.pb import f1_pb2_grpc
from f1common.rpc.backoff import Backoff
from f1common.rpc.channels import ChannelCache, ChannelFactory, insecure_channel_factory
from f1common.rpc.deadlines import Deadline
from f1common.rpc.direct.dialling import direct_channel_factory
from f1common.rpc.direct.methods import CLIENT_METHODS
from f1common.rpc.status import error_from_wire
from f1common.rpc.streams import RequestStream

PROTOCOL_VERSION = 1

_GIVE_UP_S = 20.0
"""How long a request goes on trying when no server at all can be reached, in seconds."""
_PING_TIMEOUT_S = 2.0
_MEASURE_AGAIN_S = 10.0
_MEASURE_FAR_AGAIN_S = 1.0
"""Of a server that is left out for being far: one ping that came late must not keep all work from it."""
_DOWN_INITIAL_MS, _DOWN_CAP_MS = 200, 5_000
_RETRY_INITIAL_MS, _RETRY_CAP_MS = 10, 500
_TOGETHER = 32
"""So many small requests go to one server before others get some: they share its messages."""
_TOGETHER_S = 1.0
_STILL_S = 0.05
"""A server that has not answered for so long while something waits there gets no more of them."""
# Servers within this factor and margin of the nearest one count as near: work is spread over them.
_NEAR_FACTOR, _NEAR_MARGIN_S = 2.0, 0.005
_US = 1_000_000

_OF_THE_SERVER = frozenset({Code.UNAVAILABLE, Code.VERSION_MISMATCH, Code.UNAUTHENTICATED})
_PASSING = frozenset({Code.UNAVAILABLE, Code.OVERLOADED, Code.NOT_LEADER, Code.WRONG_RANGE})


Stream = RequestStream[pb.Request, pb.Response]


class Resend(Enum):
    """When a request may be sent again, to the same server or another."""

    ALWAYS = "always"
    UNLESS_AMBIGUOUS = "unless it may have taken effect"
    NEVER = "never"


def parse_hosts(hosts: str | Iterable[str]) -> tuple[str, ...]:
    """Split ``host:port,...``. Raises F1Error INVALID_ARGUMENT."""
    parts = hosts.split(",") if isinstance(hosts, str) else list(hosts)
    addresses: list[str] = []
    for part in (part.strip() for part in parts):
        if not part:
            continue
        name, _, port = part.rpartition(":")
        if not name or not port.isdigit() or not 0 < int(port) < 65536:
            raise F1Error(Code.INVALID_ARGUMENT, f"{part!r} is no address; write HOST:PORT,HOST:PORT")
        addresses.append(f"{name}:{port}")
    if not addresses:
        raise F1Error(Code.INVALID_ARGUMENT, "no address of an f1server is given; write HOST:PORT,HOST:PORT")
    return tuple(dict.fromkeys(addresses))


def ends_within(deadline: Deadline, delay_s: float) -> bool:
    """Tell whether the deadline has passed by the end of a wait."""
    remaining_s = deadline.remaining_s()
    return remaining_s is not None and remaining_s <= delay_s


class Server:
    """One f1server as the client knows it."""

    def __init__(
        self,
        address: str,
        open_stream: "Callable[[], Stream]",
        rng: random.Random,
        log_in: "Callable[[Deadline], Awaitable[bytes]] | None" = None,
        forget: Callable[[bytes], None] | None = None,
    ) -> None:
        """``log_in`` sees that there is a token before a call, ``forget`` is told of one that was refused."""
        self.address = address
        self._log_in = log_in
        self._forget = forget
        self.name = ""
        self.zone = ""
        self.latency_s: float | None = None
        self.measured_s = 0.0
        self.reached = False
        """Whether it answered a ping yet."""
        self.in_flight = 0
        self.heard_s = 0.0
        """When it answered last, or began to have something to answer."""
        self.error: F1Error | None = None
        """Why it is avoided; None: it is not."""
        self._open_stream = open_stream
        self._stream = open_stream()
        self._closing: dict[asyncio.Task[None], None] = {}
        self.down_until_s = 0.0
        self._backoff = Backoff(_DOWN_INITIAL_MS, _DOWN_CAP_MS, 2, rng)
        self.probe: asyncio.Task[None] | None = None

    async def call(self, request: pb.Request, deadline: Deadline) -> pb.Response:
        """Send a request once. Raises F1Error, the server's own or the stream's."""
        if self._log_in is None or self._forget is None:
            return await self._call(request, deadline)
        token = await self._log_in(deadline)
        try:
            return await self._call(request, deadline)
        except F1Error as error:
            if error.code is not Code.UNAUTHENTICATED:
                raise
        # The token is not good any more, and the request was not looked at: a new login may help.
        self._forget(token)
        await self._log_in(deadline)
        return await self._call(request, deadline)

    async def _call(self, request: pb.Request, deadline: Deadline) -> pb.Response:
        left_s, left_ms = deadline.left()
        request.timeout_ms = min(left_ms, (1 << 32) - 1)
        if not self.in_flight:
            self.heard_s = asyncio.get_running_loop().time()
        self.in_flight += 1
        try:
            response = await self._stream.call(request, left_s)
            self.heard_s = asyncio.get_running_loop().time()
        except F1Error as error:
            if error.code in _OF_THE_SERVER:
                self.avoid(error)
            raise
        except asyncio.CancelledError:
            if self.in_flight == 1 and request.WhichOneof("body") in ("execute", "fetch"):
                self._hang_up()
            raise
        finally:
            self.in_flight -= 1
        self.error = None
        if response.WhichOneof("body") == "error":
            wire = response.error
            raise error_from_wire(wire.code, wire.message, wire.retryable, wire.ambiguous, wire.details)
        return response

    def _hang_up(self) -> None:
        """End the stream, which nobody else needs now: the server stops the work that nobody waits for any more."""
        closing = asyncio.create_task(self._stream.close())
        self._closing[closing] = None
        closing.add_done_callback(lambda task: self._closing.pop(task, None))
        self._stream = self._open_stream()

    def has_room(self, now_s: float) -> bool:
        """Tell whether small requests that go together may go on to go here."""
        still = self.in_flight and now_s - self.heard_s > _STILL_S
        return self.error is None and self.in_flight < _TOGETHER and not still

    def avoid(self, error: F1Error) -> None:
        """Prefer other servers for a while."""
        self.error = error
        self.down_until_s = asyncio.get_running_loop().time() + self._backoff.next_s()

    def recovered(self) -> None:
        """Count this server among the healthy again."""
        self.error = None
        self.reached = True
        self._backoff.reset()

    @property
    def worth_a_try(self) -> bool:
        """Whether a server that failed has been left alone for long enough."""
        return asyncio.get_running_loop().time() >= self.down_until_s

    async def close(self) -> None:
        """End the stream and the probe."""
        if self.probe is not None:
            self.probe.cancel()
            await asyncio.gather(self.probe, return_exceptions=True)
        await asyncio.gather(*self._closing, return_exceptions=True)
        await self._stream.close()


class Servers:
    """The f1servers of one cluster. Lives on one event loop."""

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        rng: random.Random,
        channel_factory: ChannelFactory | None = None,
        clock: Clock | None = None,
        login: Login | None = None,
    ) -> None:
        """Make the streams; nothing is sent before the first call. ``login``: who asks, if somebody has to say."""
        self._login = login
        self._rng = rng
        self._clock = clock if clock is not None else BoundedClock(0)
        self._offset_us: int | None = None
        self._channels = ChannelCache(
            channel_factory or direct_channel_factory(insecure_channel_factory(), CLIENT_METHODS)
        )
        self._answered = asyncio.Event()
        self._favourite: Server | None = None
        self._favourite_until_s = 0.0
        self.all: tuple[Server, ...] = tuple(self._server(address) for address in addresses)

    def _server(self, address: str) -> Server:
        def open_call() -> Any:
            stub: Any = f1_pb2_grpc.F1ServerStub(self._channels.get(address))
            return stub.Session()

        def open_stream() -> Stream:
            return RequestStream(
                open_call,
                lambda requests: pb.ClientBatch(
                    requests=requests,
                    protocol_version=PROTOCOL_VERSION,
                    token=b"" if self._login is None else self._login.token,
                ),
                lambda batch: batch.responses,
                rng=self._rng,
                name=f"f1server {address}",
            )

        login = self._login
        if login is None:
            return Server(address, open_stream, self._rng)

        async def log_in(deadline: Deadline) -> bytes:
            try:
                return await login.ensure(f1_pb2_grpc.F1ServerStub(self._channels.get(address)), deadline)
            except TimeoutError:
                raise F1Error(Code.DEADLINE_EXCEEDED, "the login took too long", retryable=True) from None

        return Server(address, open_stream, self._rng, log_in, login.forget)

    def stub(self, server: Server) -> Any:
        """Return the stub for the calls that are no part of a session."""
        return f1_pb2_grpc.F1ServerStub(self._channels.get(server.address))

    async def close(self) -> None:
        """End all streams and connections. Idempotent."""
        for server in self.all:
            await server.close()
        if self._login is not None:
            await self._login.close()
        await self._channels.close()

    def now_us(self) -> int:
        """Return the time as the servers have it: this machine's wall clock may be wrong, its boot clock is not."""
        now = self._clock.sample()
        return now.tt.latest if self._offset_us is None else now.boot_us + self._offset_us

    async def connect(self, deadline: Deadline) -> None:
        """Find a server that answers. Raises F1Error UNAVAILABLE, or why each refuses, when the deadline passes."""
        backoff = self._retry_backoff()
        while True:
            self._answered.clear()
            probes = [self._start_probe(server) for server in self.all]
            answered = asyncio.ensure_future(self._answered.wait())
            everybody = asyncio.gather(*probes, return_exceptions=True)
            try:
                await asyncio.wait((answered, everybody), return_when=asyncio.FIRST_COMPLETED)
            finally:
                answered.cancel()
            if any(server.reached and server.error is None for server in self.all):
                return  # the slower ones go on: they tell which server is how near
            refusal = next((s.error for s in self.all if s.error and s.error.code is not Code.UNAVAILABLE), None)
            if refusal is not None and refusal.code in _OF_THE_SERVER:
                raise refusal
            delay_s = backoff.next_s()
            if ends_within(deadline, delay_s):
                raise self._nobody()
            await asyncio.sleep(delay_s)

    def _start_probe(self, server: Server) -> asyncio.Task[None]:
        if server.probe is None or server.probe.done():
            server.probe = asyncio.create_task(self._probe(server), name=f"probe of {server.address}")
        return server.probe

    async def _probe(self, server: Server) -> None:
        loop = asyncio.get_running_loop()
        cold = server.error is not None or not server.reached
        try:
            if cold:
                await self._ping(server)  # how long a connection takes to make does not count
            started_s = loop.time()
            response = await self._ping(server)
        except F1Error as error:
            server.avoid(error)
            return
        took_s = loop.time() - started_s
        server.latency_s = took_s if cold or server.latency_s is None else 0.5 * (server.latency_s + took_s)
        server.measured_s = loop.time()
        if response.now:
            self._offset_us = response.now + int(took_s * _US) // 2 - self._clock.sample().boot_us

    async def _ping(self, server: Server) -> pb.PingReply:
        response = await server.call(pb.Request(ping=pb.Ping()), Deadline.after(_PING_TIMEOUT_S))
        server.name, server.zone = response.ping.server, response.ping.zone
        server.recovered()
        self._answered.set()
        return response.ping

    def _nobody(self) -> F1Error:
        # What the transport says last is the cause: "Connection refused".
        reasons = "; ".join(
            f"{s.address}: {s.error.message.rsplit(': ', 1)[-1] if s.error else 'no answer'}" for s in self.all
        )
        return F1Error(Code.UNAVAILABLE, f"no f1server answers ({reasons}); is the cluster up?")

    def pick(self, avoid: Collection[Server] = (), *, small: bool = False) -> Server:
        """Return the server to ask next: a near one that works and has little to do.

        A ``small`` request goes where the last one went, for a while, so that they share messages: two streams with
        half of the requests each cost nearly twice as much.
        """
        if not small or avoid:
            return self._pick(avoid)
        now_s = asyncio.get_running_loop().time()
        favourite = self._favourite
        if favourite is None or now_s >= self._favourite_until_s or not favourite.has_room(now_s):
            favourite = self._favourite = self._pick(avoid)
            self._favourite_until_s = now_s + _TOGETHER_S
        return favourite

    def _pick(self, avoid: Collection[Server]) -> Server:
        candidates: Sequence[Server] = self.all
        if avoid:
            avoided = set(avoid)
            candidates = [server for server in self.all if server not in avoided] or self.all
        healthy = [server for server in candidates if server.error is None]
        if not healthy:
            return min(candidates, key=lambda server: (server.down_until_s, server.address))
        loop_s = asyncio.get_running_loop().time()
        known = [server.latency_s for server in healthy if server.latency_s is not None]
        limit = min(known) * _NEAR_FACTOR + _NEAR_MARGIN_S if known else 0.0
        near = [server for server in healthy if server.latency_s is not None and server.latency_s <= limit] or healthy
        for server in self.all:
            stale = loop_s - server.measured_s > (_MEASURE_AGAIN_S if server in near else _MEASURE_FAR_AGAIN_S)
            if server.worth_a_try if server.error is not None else stale:
                self._start_probe(server)
        fewest = min(server.in_flight for server in near)
        idle = [server for server in near if server.in_flight == fewest]
        return idle[0] if len(idle) == 1 else self._rng.choice(idle)

    def _retry_backoff(self) -> Backoff:
        return Backoff(_RETRY_INITIAL_MS, _RETRY_CAP_MS, 2, self._rng)

    async def call(
        self,
        make: Callable[[], pb.Request],
        deadline: Deadline,
        resend: Resend,
        *,
        avoid: Server | None = None,
        small: bool = False,
    ) -> tuple[pb.Response, Server]:
        """Send a request to some server, and again as ``resend`` allows; return the answer and who gave it.

        ``avoid`` is asked last; ``small``: as for :meth:`pick`. Raises F1Error: DEADLINE_EXCEEDED, or the last failure
        when the deadline has passed; what the server says at once unless it passes by itself (UNAVAILABLE, ...).
        """
        backoff: Backoff | None = None
        tried = [avoid] if avoid is not None else []
        lost_s: float | None = None
        while True:
            server = self.pick(tried, small=small)
            try:
                return await server.call(make(), deadline), server
            except F1Error as error:
                if not _may_resend(error, resend):
                    raise
                tried.append(server)
                loop = asyncio.get_running_loop()
                everywhere = len(set(tried)) >= len(self.all)
                if everywhere and error.code not in _PASSING:
                    raise
                if everywhere or error.code is Code.OVERLOADED:
                    tried.clear()
                    if any(known.error is None for known in self.all):
                        lost_s = None
                    elif lost_s is None:
                        lost_s = loop.time()
                    elif loop.time() - lost_s > _GIVE_UP_S and not error.ambiguous:
                        # A statement may take long, but nobody is there to work on it.
                        raise self._nobody() from error
                    backoff = backoff or self._retry_backoff()
                    delay_s = backoff.next_s()
                    if ends_within(deadline, delay_s):
                        if error.code is Code.UNAVAILABLE and not error.ambiguous:
                            raise self._nobody() from error
                        raise
                    await asyncio.sleep(delay_s)


def _may_resend(error: F1Error, resend: Resend) -> bool:
    if error.code not in _PASSING | _OF_THE_SERVER:
        return False
    match resend:
        case Resend.ALWAYS:
            return True
        case Resend.UNLESS_AMBIGUOUS:
            return not error.ambiguous
        case Resend.NEVER:
            return False
