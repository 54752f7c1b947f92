"""The simulated network: links with latency and cuts, connections that break, streams of frames that keep their order.

What TCP and HTTP/2 promise is kept, and no more:

* Frames of one direction of one stream arrive in order, once, until the connection breaks. Streams of a connection
  are independent of one another.
* A cut link loses packets, but TCP sends them again: frames wait at the cut and arrive after it is healed, unless
  keepalive gives the connection up first. Each side finds that out by itself, so that for a while a server may go on
  with a call that its client has given up, and already repeats elsewhere.
* A process that is killed leaves a kernel behind that resets its connections, after what it had already sent.
  A machine that loses its power sends nothing: only keepalive tells.
* A stopped process keeps its connections until keepalive at the other end gives up; what arrives waits for it.

Methods named as *unordered* are the exception: their stream messages may be lost, doubled and overtaken by later ones,
because the code behind them (Paxos) claims to bear it and reconnecting streams would show it too rarely.
"""

import asyncio
import contextvars
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from google.protobuf import message as protobuf

from spanstore.testing.sim.loop import Domain, VirtualLoop


@dataclass(frozen=True, slots=True)
class LinkProfile:
    """How long a frame travels, in microseconds: ``min_us`` plus an exponential, rarely a spike."""

    min_us: int = 100
    mean_extra_us: int = 150
    spike_per_million: int = 500
    spike_us: int = 20_000

    def draw(self, rng: random.Random) -> int:
        """Draw the latency of one frame."""
        latency = self.min_us
        if self.mean_extra_us:
            latency += int(rng.expovariate(1.0 / self.mean_extra_us))
        if self.spike_per_million and rng.random() * 1_000_000 < self.spike_per_million:
            latency += rng.randrange(self.spike_us + 1)
        return latency


@dataclass(frozen=True, slots=True)
class Loss:
    """What happens to messages of unordered methods, each rate in parts per million."""

    drop: int = 0
    duplicate: int = 0
    reorder: int = 0
    reorder_us: int = 50_000


@dataclass(slots=True)
class NetConfig:
    """Parameters of the network."""

    profile: LinkProfile = field(default_factory=LinkProfile)
    keepalive_us: int = 3_000_000
    connect_timeout_us: int = 1_000_000
    reconnect_backoff_us: int = 100_000
    window_bytes: int = 1 << 18
    unordered_methods: frozenset[str] = frozenset()
    loss: Loss = field(default_factory=Loss)


def stable(serializer: Callable[[Any], bytes] | None) -> Callable[[Any], bytes] | None:
    """Return a serializer with the same bytes in every run: protobuf shuffles the entries of a map from run to run."""
    if serializer is None:
        return None
    plain = serializer

    def serialize(message: Any) -> bytes:
        if isinstance(message, protobuf.Message):
            return message.SerializeToString(deterministic=True)
        return plain(message)

    return serialize


class Listener(Protocol):
    """What listens at an address."""

    domain: Domain

    def accept(self, connection: "Connection") -> None:
        """Take a new connection. Called in the listener's domain."""
        ...

    def open_stream(self, stream: "Stream", opening: "Opening") -> None:
        """Begin a call. Called in the listener's domain."""
        ...


@dataclass(frozen=True, slots=True)
class Opening:
    """The first frame of a call: its metadata and the time left in microseconds, if it has a deadline."""

    metadata: tuple[tuple[str, str | bytes], ...]
    timeout_us: int | None


@dataclass(frozen=True, slots=True)
class Message:
    """One serialised message."""

    data: bytes


@dataclass(frozen=True, slots=True)
class HalfClose:
    """The client sends no more messages."""


@dataclass(frozen=True, slots=True)
class Headers:
    """Initial metadata of the server."""

    metadata: tuple[tuple[str, str | bytes], ...]


@dataclass(frozen=True, slots=True)
class Status:
    """The end of a call as the server says it; ``code`` is the name of a gRPC status code."""

    code: str
    details: str
    trailing: tuple[tuple[str, str | bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Reset:
    """The stream is over without a status: the other side cancelled or is gone."""

    reason: str


Frame = Opening | Message | HalfClose | Headers | Status | Reset
Receiver = Callable[[Frame], None]
Trace = Callable[[str, str, str, str, bytes], None]


class Pipe:
    """One direction of a stream."""

    __slots__ = (
        "_abandoned",
        "_floor_us",
        "_in_flight",
        "_method",
        "_net",
        "_unordered",
        "_waiters",
        "dst",
        "receiver",
        "sealed",
        "src",
        "stalled",
    )

    def __init__(self, net: "Network", src: Domain, dst: Domain, method: str) -> None:
        self._net = net
        self.src = src
        self.dst = dst
        self._method = method
        self._unordered = method in net.config.unordered_methods
        self._floor_us = 0
        self._in_flight = 0
        self._abandoned = False
        self._waiters: list[asyncio.Future[None]] = []
        self.receiver: Receiver | None = None
        self.sealed = False
        self.stalled: list[Frame] = []

    def send(self, frame: Frame) -> None:
        """Put ``frame`` on its way. The dead send nothing, nor does who knows that the connection is lost."""
        if self.src.dead or self.sealed:
            return
        if self._unordered and isinstance(frame, Message):
            self._send_unordered(frame)
            return
        if isinstance(frame, Message):
            self._in_flight += len(frame.data)
        self._schedule(frame, self._net.latency(self.src, self.dst))

    def send_from_kernel(self, frame: Frame) -> None:
        """Send ``frame`` although the process is dead, after what it had sent."""
        self._schedule(frame, self._net.latency(self.src, self.dst))

    def _schedule(self, frame: Frame, latency_us: int) -> None:
        self._floor_us = max(self._floor_us + 1, self._net.loop.now_us + latency_us)
        self._net.at(self._floor_us, self._arrive, frame)

    def _send_unordered(self, frame: Message) -> None:
        net = self._net
        loss, rng = net.config.loss, net.rng
        copies = 1
        if loss.drop and rng.random() * 1_000_000 < loss.drop:
            copies = 0
        elif loss.duplicate and rng.random() * 1_000_000 < loss.duplicate:
            copies = 2
        for _ in range(copies):
            latency = net.latency(self.src, self.dst)
            if loss.reorder and rng.random() * 1_000_000 < loss.reorder:
                net.later(latency + rng.randrange(loss.reorder_us + 1), self._arrive, frame)
            else:
                self._schedule(frame, latency)

    def _arrive(self, frame: Frame) -> None:
        """Hand over to the receiving process, in its domain: a stopped one finds the frame when it goes on."""
        if self.stalled or self._net.is_cut(self.src.name, self.dst.name):
            self.stalled.append(frame)
            return
        if not self.dst.dead:
            self._net.loop.call_soon(self._deliver, frame, context=self.dst.context)

    def _deliver(self, frame: Frame) -> None:
        if self.receiver is not None:
            data = frame.data if isinstance(frame, Message) else b""
            self._net.trace(self.src.name, self.dst.name, self._method, type(frame).__name__, data)
            self.receiver(frame)

    def break_off(self, reason: str) -> None:
        """Tell the receiver, if there still is one, that the connection is gone."""
        if self.receiver is not None:
            self.receiver(Reset(reason))

    def heal(self) -> None:
        """Send again what waited at the cut. Until it is there, what was under way at the healing waits behind it."""
        self._net.later(self._net.latency(self.src, self.dst), self._arrive_again)

    def _arrive_again(self) -> None:
        if self._net.is_cut(self.src.name, self.dst.name):
            return
        frames, self.stalled = self.stalled, []
        for frame in frames:
            self._arrive(frame)

    # -- flow control: a writer waits while too much is under way or unread --

    async def room(self) -> None:
        """Wait until the window has room."""
        window = self._net.config.window_bytes
        while self._in_flight > window and self.receiver is not None and not self._abandoned:
            waiter = self._net.loop.create_future()
            self._waiters.append(waiter)
            await waiter

    def consumed(self, size: int) -> None:
        """Note that the receiver has read ``size`` bytes; the sender hears of it one latency later."""
        if not self._unordered and size:
            self._net.later(self._net.latency(self.dst, self.src), self._credit, size)

    def _credit(self, size: int) -> None:
        self._in_flight -= size
        if self._in_flight <= self._net.config.window_bytes:
            self._wake()

    def seal(self) -> None:
        """Send nothing any more, nor what waits at a cut: the sender's end of the connection is gone."""
        self.sealed = True
        self.stalled.clear()

    def close(self) -> None:
        """Let nothing arrive any more and let no writer wait."""
        self.receiver = None
        self.stalled.clear()
        self._wake()

    def release_writers(self) -> None:
        """Let no writer wait: the sender's half of the call is over."""
        self._abandoned = True
        self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class Stream:
    """One call: a pipe each way."""

    __slots__ = ("connection", "down", "id", "method", "up")

    def __init__(self, connection: "Connection", stream_id: int, method: str) -> None:
        self.connection = connection
        self.id = stream_id
        self.method = method
        net = connection.net
        self.up = Pipe(net, connection.client, connection.server, method)
        self.down = Pipe(net, connection.server, connection.client, method)
        self.up.receiver = self._first_frame

    def _first_frame(self, frame: Frame) -> None:
        """Begin the call at the server, whose half then becomes the receiver.

        What is still under way when the server's end of the connection is lost begins nothing: nobody would end it.
        """
        if isinstance(frame, Opening) and self.connection.server_open:
            self.connection.listener.open_stream(self, frame)

    def end_client(self) -> None:
        """The client's half is over: it hears no more."""
        self.down.close()
        self._forget_if_over()

    def end_server(self) -> None:
        """The server's half is over: it hears no more."""
        self.up.close()
        self._forget_if_over()

    def _forget_if_over(self) -> None:
        if self.up.receiver is None and self.down.receiver is None:
            self.connection.streams.pop(self.id, None)


class Connection:
    """A transport connection between a client's and a server's process. Its streams share its fate."""

    __slots__ = ("client", "client_open", "listener", "net", "on_lost", "server", "server_open", "streams")

    def __init__(self, net: "Network", client: Domain, listener: Listener) -> None:
        self.net = net
        self.client = client
        self.listener = listener
        self.server = listener.domain
        self.streams: dict[int, Stream] = {}
        self.client_open = True
        self.server_open = True
        self.on_lost: Callable[[], None] | None = None

    def open(self, method: str) -> Stream:
        """Make a stream; nothing is sent yet."""
        stream = Stream(self, self.net.next_stream_id(), method)
        self.streams[stream.id] = stream
        return stream

    def touches(self, name: str) -> bool:
        """Tell whether ``name`` is at one of the ends."""
        return name in (self.client.name, self.server.name)

    def lose_client_side(self, reason: str) -> None:
        """Let the client notice that the connection is gone: each of its calls ends, in order, as unavailable."""
        if not self.client_open:
            return
        self.client_open = False
        for stream in list(self.streams.values()):
            if stream.down.receiver is not None:
                self.net.loop.call_soon(stream.down.break_off, reason, context=self.client.context)
            stream.up.seal()
        if self.on_lost is not None:
            self.net.loop.call_soon(self.on_lost, context=self.client.context)
        self._forget_if_over()

    def lose_server_side(self, reason: str) -> None:
        """Let the server notice that the connection is gone: the handlers of its calls are cancelled."""
        if not self.server_open:
            return
        self.server_open = False
        for stream in list(self.streams.values()):
            if stream.up.receiver is not None:
                self.net.loop.call_soon(stream.up.break_off, reason, context=self.server.context)
            stream.down.seal()
        self._forget_if_over()

    def reset_by(self, domain: Domain, reason: str) -> None:
        """Tell the other side, from the kernel of ``domain``, after what was sent: ``domain`` is gone or closed."""
        from_client = domain is self.client
        if from_client:
            self.client_open = False
        else:
            self.server_open = False
        for stream in list(self.streams.values()):
            (stream.up if from_client else stream.down).send_from_kernel(Reset(reason))
        net = self.net
        other = self.lose_server_side if from_client else self.lose_client_side
        peer = self.server if from_client else self.client
        net.after_cut(domain.name, peer.name, other, reason)

    def _forget_if_over(self) -> None:
        if not self.client_open and not self.server_open:
            self.net.connections.pop(self, None)


class Network:
    """All links, listeners and connections."""

    def __init__(self, loop: VirtualLoop, rng: random.Random, config: NetConfig, trace: Trace) -> None:
        self.loop = loop
        self.rng = rng
        self.config = config
        self.trace = trace
        self.profiles: dict[tuple[str, str], LinkProfile] = {}
        self.listeners: dict[str, Listener] = {}
        self.powerless: set[str] = set()
        self._owners: dict[str, str] = {}
        self.connections: dict[Connection, None] = {}
        self._cuts: dict[tuple[str, str], int] = {}
        self._silent: dict[str, int] = {}
        self._after_heal: list[tuple[str, str, Callable[[str], None], str]] = []
        self._stream_id = 0
        # The network is nobody's: what happens in it goes on when the process that caused it stops or dies.
        self._context = contextvars.Context()

    def at(self, when_us: int, callback: Callable[..., object], *args: object) -> None:
        """Do something in the network at ``when_us``."""
        self.loop.call_at_us(when_us, callback, *args, context=self._context)

    def later(self, delay_us: int, callback: Callable[..., object], *args: object) -> None:
        """Do something in the network in ``delay_us``."""
        self.loop.call_at_us(self.loop.now_us + delay_us, callback, *args, context=self._context)

    def next_stream_id(self) -> int:
        """Return a number for a stream."""
        self._stream_id += 1
        return self._stream_id

    def latency(self, src: Domain, dst: Domain) -> int:
        """Draw the latency of one frame from ``src`` to ``dst`` in microseconds."""
        return self.profiles.get((src.name, dst.name), self.config.profile).draw(self.rng)

    # -- connecting --

    def listen(self, address: str, listener: Listener) -> bool:
        """Let ``listener`` take the connections to ``address``. False: somebody else does."""
        if address in self.listeners:
            return False
        self.listeners[address] = listener
        self._owners[address] = listener.domain.name
        return True

    def knock(self, client: Domain, address: str, answer: Callable[[Connection | None], None]) -> None:
        """Try to connect: ``answer`` hears of the connection, or None if it was refused, or nothing at all."""
        owner = self._owners.get(address, "")
        self.after_cut(client.name, owner, lambda _: self._knocked(client, owner, address, answer), "")

    def _knocked(
        self,
        client: Domain,
        owner: str,
        address: str,
        answer: Callable[[Connection | None], None],
    ) -> None:
        listener = self.listeners.get(address)
        if listener is not None:
            # The kernel accepts, but without the process there is no HTTP/2 greeting: a stopped one answers later.
            self.loop.call_soon(self._accept, listener, client, answer, context=listener.domain.context)
        elif owner not in self.powerless:
            self.after_cut(owner, client.name, lambda _: answer(None), "")

    def _accept(self, listener: Listener, client: Domain, answer: Callable[[Connection | None], None]) -> None:
        connection = Connection(self, client, listener)
        self.connections[connection] = None
        listener.accept(connection)
        self.after_cut(listener.domain.name, client.name, lambda _: self._greet(connection, answer), "")

    def _greet(self, connection: Connection, answer: Callable[[Connection | None], None]) -> None:
        if connection.client.dead:
            connection.reset_by(connection.client, "connection reset by peer")
        else:
            answer(connection)

    # -- faults --

    def is_cut(self, src: str, dst: str) -> bool:
        """Tell whether packets from ``src`` to ``dst`` are lost."""
        return (src, dst) in self._cuts

    def cut(self, src: str, dst: str) -> None:
        """Lose all packets from ``src`` to ``dst``; both ends give up after the keepalive time."""
        if (src, dst) in self._cuts or src == dst:
            return
        self._cuts[src, dst] = self.loop.now_us
        self.later(self.config.keepalive_us, self._keepalive_of_cut, src, dst, self.loop.now_us)

    def heal(self, src: str, dst: str) -> None:
        """Let packets from ``src`` to ``dst`` through again."""
        if self._cuts.pop((src, dst), None) is None:
            return
        for connection in list(self.connections):
            for stream in list(connection.streams.values()):
                for pipe in (stream.up, stream.down):
                    if pipe.stalled and pipe.src.name == src and pipe.dst.name == dst:
                        pipe.heal()
        waiting, self._after_heal = self._after_heal, []
        for entry in waiting:
            self.after_cut(*entry)

    def heal_all(self) -> None:
        """Heal every link."""
        for src, dst in sorted(self._cuts):
            self.heal(src, dst)

    def after_cut(self, src: str, dst: str, then: Callable[[str], None], reason: str) -> None:
        """Call ``then(reason)`` when a packet sent now from ``src`` gets to ``dst``."""
        if self.is_cut(src, dst):
            self._after_heal.append((src, dst, then, reason))
        else:
            self.later(self.config.profile.draw(self.rng), then, reason)

    def reset(self, first: str, second: str) -> None:
        """Break all connections between two nodes now, at both ends."""
        for connection in list(self.connections):
            if connection.touches(first) and connection.touches(second):
                self._expire(connection, "connection reset")

    def domain_died(self, domain: Domain, *, silent: bool) -> None:
        """Note the death of a process. ``silent``: its machine is gone too, so nobody says so."""
        self.listeners = {a: listener for a, listener in self.listeners.items() if listener.domain is not domain}
        for connection in list(self.connections):
            if connection.client is not domain and connection.server is not domain:
                continue
            if silent:
                self.later(self.config.keepalive_us, self._expire, connection, "keepalive timed out")
            else:
                connection.reset_by(domain, "connection reset by peer")

    def domain_held(self, domain: Domain) -> None:
        """Note that a process stands still: its peers give up if that lasts."""
        self._silent[domain.name] = self.loop.now_us
        self.later(self.config.keepalive_us, self._keepalive_of_held, domain, self.loop.now_us)

    def _keepalive_of_cut(self, src: str, dst: str, since_us: int) -> None:
        if self._cuts.get((src, dst)) == since_us:
            for connection in list(self.connections):
                if connection.touches(src) and connection.touches(dst):
                    self._expire(connection, "keepalive timed out")

    def _keepalive_of_held(self, domain: Domain, since_us: int) -> None:
        if domain.held and self._silent.get(domain.name) == since_us:
            for connection in list(self.connections):
                if connection.client is domain or connection.server is domain:
                    self._expire(connection, "keepalive timed out")

    def _expire(self, connection: Connection, reason: str) -> None:
        """End a connection at both ends, first at one and up to half a keepalive time later at the other."""
        sides = [connection.lose_client_side, connection.lose_server_side]
        if self.rng.random() < 0.5:
            sides.reverse()
        sides[0](reason)
        self.later(self.rng.randrange(self.config.keepalive_us // 2 + 1), sides[1], reason)
