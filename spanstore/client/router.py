"""Where to send what: range map, leader hints, one stream to each server, and the retries that are always safe.

A request is sent again only when that cannot change what happens: reads at any time, and messages of a transaction
because the storage tier recognises a commit id and attempt that it has seen. Whoever calls learns through
``Sent.repeated`` whether more than one copy may be on its way, since then a refusal by one server is not the last word.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from f1common.errors import Code, F1Error
from f1common.pb import spanstore_pb2 as pb
from f1common.pb import spanstore_pb2_grpc as stubs
from f1common.rpc.backoff import Backoff
from f1common.rpc.channels import ChannelCache
from f1common.rpc.status import error_from_wire
from f1common.rpc.streams import RequestStream
from spanstore.client.foreground import Foreground
from spanstore.placement.range_map import Range, RangeMap

PROTOCOL_VERSION = 2
"""What clients speak, to servers of this version and those near it."""

T = TypeVar("T")
Message = TypeVar("Message", pb.Request, pb.ScanRequest)

Stream = RequestStream[pb.Request, pb.Response]

_ELSEWHERE = (Code.NOT_LEADER, Code.UNAVAILABLE, Code.OVERLOADED, Code.CANCELLED, Code.VERSION_MISMATCH)
_ATTEMPT_S = 2.0
_NEAR_S = 0.3
"""How long a near replica may take before the leader is asked: longer than it takes to hear of a heartbeat."""
_SHUN_S = 2.0
"""For how long a replica that took longer is not asked again."""
_DOUBT_S = 1.0
"""Who has not answered for so long may be cut off, and is asked last until it answers; so is who broke a stream off."""
_LIFE_S = 0.3
"""How long a server that is in doubt may take to give a sign of life."""
_UPGRADED_S = 60.0
"""For how long nothing is sent that a server of an older version did not understand."""
_LONGEST_MS = (1 << 31) - 1


def made(make: Callable[[], Message]) -> Message:
    """Return the message that ``make`` builds. Raises INVALID_ARGUMENT for a number that no field of it takes."""
    try:
        return make()
    except (ValueError, TypeError) as error:
        raise F1Error(Code.INVALID_ARGUMENT, f"the request cannot be sent: {error}") from error


@dataclass(slots=True)
class Sent:
    """What became of a request on its way: how many copies were handed over and never answered."""

    unanswered: int = 0

    @property
    def repeated(self) -> bool:
        """Tell whether a copy may still arrive somewhere after the answer."""
        return self.unanswered > 0


@dataclass(slots=True)
class _Map:
    ranges: RangeMap
    voters: dict[int, list[str]]
    readers: dict[int, list[str]]
    addresses: dict[str, str]
    zones: dict[str, str]


class Router:
    """Shared by everything that one client does."""

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        channels: ChannelCache,
        rng: random.Random,
        zone: str = "",
        background: bool = False,
    ) -> None:
        """Take the addresses of one or more spanservers to begin with. Nothing is sent before the first request.

        ``background``: nobody waits for what is asked.

        ``zone`` is where the client runs: of the replicas that can answer, one in it is asked first.
        """
        if not addresses:
            raise F1Error(Code.INVALID_ARGUMENT, "a client needs the address of at least one spanserver")
        self._bootstrap = list(addresses)
        self._channels = channels
        self._rng = rng
        self._zone = zone
        self._streams: dict[str, Stream] = {}
        self._map: _Map | None = None
        self._leaders: dict[int, str] = {}
        self._shunned_until: dict[str, float] = {}
        self._doubted: set[str] = set()
        self._refreshing: asyncio.Task[_Map] | None = None
        self.background = background
        self.foreground = Foreground(lambda: asyncio.get_running_loop().time())
        """How users are served, as the answers tell if this is in the background."""
        self._packs_from = self._bundles_from = 0.0

    # ------------------------------------------------------------------ servers of an older version

    def packs(self) -> bool:
        """Tell whether writes of many rows may be sent together (``TxnWork.puts``)."""
        return not self._packs_from or asyncio.get_running_loop().time() >= self._packs_from

    def pack_later(self) -> None:
        """A server did not know them so: the cluster is being upgraded."""
        self._packs_from = asyncio.get_running_loop().time() + _UPGRADED_S

    def bundles(self) -> bool:
        """Tell whether commits may be sent together (``Request.bundle``)."""
        return not self._bundles_from or asyncio.get_running_loop().time() >= self._bundles_from

    def bundle_later(self) -> None:
        """A server did not know them so: the cluster is being upgraded."""
        self._bundles_from = asyncio.get_running_loop().time() + _UPGRADED_S

    # ------------------------------------------------------------------ the map

    async def range_map(self, timeout_s: float = 10.0, *, refresh: bool = False) -> RangeMap:
        """Return the range map, from the cache if it is known. Raises UNAVAILABLE when no server has one in time."""
        if self._map is None or refresh:
            await self._refresh(timeout_s)
        return self._known().ranges

    async def _refresh(self, timeout_s: float) -> None:
        """Fetch the map once, however many callers want it now."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._fetch(timeout_s), name="range map")
        self._map = await asyncio.shield(self._refreshing)

    async def _fetch(self, timeout_s: float) -> _Map:
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        backoff = Backoff(10, 200, 2, self._rng)
        addresses = list(dict.fromkeys([*(self._map.addresses.values() if self._map else ()), *self._bootstrap]))
        self._rng.shuffle(addresses)
        addresses.sort(key=self._doubted.__contains__)
        last = F1Error(Code.UNAVAILABLE, "no spanserver answered")
        while True:
            for address in addresses:
                remaining = end - loop.time()
                if remaining <= 0:
                    raise F1Error(
                        Code.UNAVAILABLE,
                        f"no range map from {', '.join(sorted(addresses))}: {last.message}; "
                        "check that the cluster is up (f1 cluster status)",
                    )
                try:
                    response = await self._call(address, pb.Request(range_map=pb.RangeMap()), min(1.0, remaining))
                    return self._read_map(response.range_map)
                except F1Error as error:
                    last = error
            await asyncio.sleep(min(backoff.next_s(), max(0.0, end - loop.time())))

    def _read_map(self, reply: pb.RangeMapReply) -> _Map:
        # A member may be at a server that is not known: one that was removed, or that has not registered yet.
        known = {server.name for server in reply.servers}
        for group in reply.groups:
            if group.leader in known and group.group not in self._leaders:
                self._leaders[group.group] = group.leader
        ranges = RangeMap((Range(r.start, r.end, r.group) for r in reply.ranges), reply.version)
        if self._map is not None and self._map.ranges.version > ranges.version:
            ranges = self._map.ranges  # that server is behind
        # A group is never gone again: a server that does not know it is behind.
        voters = {} if self._map is None else self._map.voters
        readers = {} if self._map is None else self._map.readers
        return _Map(
            ranges,
            {**voters, **{g.group: [v for v in g.voters if v in known] for g in reply.groups}},
            {**readers, **{g.group: [r for r in g.readers if r in known] for g in reply.groups}},
            {s.name: s.address for s in reply.servers},
            {s.name: s.zone for s in reply.servers},
        )

    async def with_map(self, work: Callable[[RangeMap, float], Awaitable[T]], timeout_s: float) -> T:
        """Do ``work`` with the range map and the time that is left, again with a newer map while it is called wrong.

        A range that is on its way to another group has no owner for a moment. ``work`` is repeated after WRONG_RANGE
        that is not ambiguous only. Raises that after ``timeout_s``, and whatever else ``work`` raises.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        backoff = Backoff(5, 200, 1.6, self._rng)
        ranges_map, pause_s = await self.range_map(timeout_s), 0.0
        while True:
            try:
                return await work(ranges_map, max(0.001, end - loop.time()))
            except F1Error as error:
                if error.code is not Code.WRONG_RANGE or error.ambiguous or loop.time() + pause_s >= end:
                    raise
            # At first the map may simply be old.
            await asyncio.sleep(pause_s)
            pause_s = backoff.next_s()
            ranges_map = await self.range_map(max(0.001, end - loop.time()), refresh=True)

    def _known(self) -> _Map:
        if self._map is None:
            raise F1Error(Code.UNAVAILABLE, "the range map is not known yet")
        return self._map

    def group_of(self, key: bytes) -> int | None:
        """Return the group that owns a key as far as is known; None before the map was read."""
        return None if self._map is None else self._map.ranges.group_of(key)

    def readers(self, group: int) -> list[str]:
        """Return the servers with a read-only replica of ``group``."""
        return self._known().readers.get(group, [])

    def servers(self) -> dict[str, str]:
        """Return the addresses of all known servers by name."""
        return dict(self._known().addresses)

    def groups(self) -> set[int]:
        """Return the numbers of all known groups."""
        return set(self._known().voters)

    async def learn_of(self, groups: Iterable[int], timeout_s: float) -> None:
        """Find out where groups are that exist for certain. Raises UNAVAILABLE if no server tells in time."""
        end = asyncio.get_running_loop().time() + timeout_s
        backoff = Backoff(20, 200, 2, self._rng)
        while missing := sorted(set(groups) - self.groups()):
            left_s = end - asyncio.get_running_loop().time()
            if left_s <= 0:
                text = f"no spanserver says yet where group {', '.join(map(str, missing))} is"
                raise F1Error(Code.UNAVAILABLE, f"{text}; retry", retryable=True)
            await self._refresh(left_s)
            if not set(groups) <= self.groups():
                await asyncio.sleep(backoff.next_s())

    # ------------------------------------------------------------------ requests

    async def send(
        self,
        group: int,
        make: Callable[[], pb.Request],
        timeout_s: float,
        *,
        sent: Sent | None = None,
        retry_ambiguous: bool = True,
    ) -> pb.Response:
        """Send a request to the leader of ``group`` until it answers, and return its answer.

        ``make`` builds the message for each copy. Goes on to other servers while they say NOT_LEADER or cannot be
        reached. ``retry_ambiguous=False`` raises as soon as a copy may have had an effect without an answer.
        Raises what the leader answered, or UNAVAILABLE / DEADLINE_EXCEEDED (ambiguous if a copy was handed over).
        """
        await self._find(group, timeout_s)
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        backoff = Backoff(5, 200, 1.6, self._rng)
        counter = sent if sent is not None else Sent()
        ambiguous = False
        asked: set[str] = set()
        server = self._leaders.get(group) or self._any_voter(group)
        if self._known().addresses.get(server) in self._doubted:
            server = self._any_voter(group, besides=server)
        while True:
            request = made(make)
            request.group = group
            remaining = end - loop.time()
            # The server may work on it as long as the caller waits, less the time for saying why it could not; a copy
            # sent meanwhile joins the first.
            request.timeout_ms = max(1, int(min(remaining * 950, _LONGEST_MS)))
            attempt_s = min(remaining, _ATTEMPT_S) if retry_ambiguous else remaining
            try:
                response = await self._call(self._address(server), request, attempt_s)
                # A replica that does not lead may answer a read, later than the leader would have.
                leader = response.read.leader
                self._leaders[group] = leader if leader in self._known().addresses else server
                return response
            except F1Error as error:
                if error.ambiguous:
                    ambiguous = True
                    counter.unanswered += 1
                server = await self._next(group, server, error, ambiguous, retry_ambiguous, end, backoff, asked)

    async def _find(self, group: int, timeout_s: float) -> None:
        """Read the map if it is not known, or does not have ``group``, which may have been founded since."""
        if self._map is None or group not in self._map.voters:
            await self._refresh(timeout_s)

    async def _next(
        self,
        group: int,
        server: str,
        error: F1Error,
        ambiguous: bool,
        retry_ambiguous: bool,
        end: float,
        backoff: Backoff,
        asked: set[str],
    ) -> str:
        """Return the server to try next, after a pause if that makes sense, or raise what there is to say.

        ``asked``: who was asked since the last pause. Hints of an election may lead in a circle.
        """
        loop = asyncio.get_running_loop()
        final = error.code not in _ELSEWHERE and error.code not in (Code.WRONG_RANGE, Code.DEADLINE_EXCEEDED)
        if error.code in (Code.DATA_CORRUPTION, Code.DISK_FULL) and error.retryable:
            final = False  # one replica's disk: the others have their own
        if final or "holder" in error.details or error.code is Code.WRONG_RANGE or (ambiguous and not retry_ambiguous):
            raise error
        if loop.time() >= end:
            text = f"group {group} did not answer in time; last: {error}"
            raise F1Error(Code.DEADLINE_EXCEEDED, text, ambiguous=ambiguous)
        hint = error.details.get("leader", "")
        asked.add(server)
        if "no_replica" in error.details:
            # The group's members have changed since the map was read.
            await self._refresh(max(0.1, end - loop.time()))
        if hint and hint != server and await self._can_lead(hint, group):
            self._leaders[group] = hint
            if hint not in asked:
                return hint
        else:
            self._leaders.pop(group, None)
            hint = self._any_voter(group, besides=server)
        asked.clear()
        await asyncio.sleep(min(backoff.next_s(), max(0.0, end - loop.time())))
        return hint

    async def _can_lead(self, server: str, group: int) -> bool:
        """Tell whether to believe that a server leads. Followers of one that is cut off say so until it is replaced."""
        address = self._known().addresses.get(server)
        if address in self._doubted:
            request = pb.Request(group=group, safe_time=pb.SafeTime())
            with suppress(F1Error):  # an error is a sign of life, too
                await self.send_to(server, request, _LIFE_S)
        return address is not None and address not in self._doubted

    async def send_near(self, group: int, make: Callable[[], pb.Request], timeout_s: float) -> pb.Response:
        """Send a read that any replica can answer: to a near one, for a moment, then as :meth:`send`.

        Raises what :meth:`send` raises, and what a near replica says for good, such as SNAPSHOT_TOO_OLD.
        """
        await self._find(group, timeout_s)
        server, now_s = self.nearest(group), asyncio.get_running_loop().time()
        if self._shunned_until.get(server, 0.0) <= now_s:
            request = made(make)
            request.group = group
            try:
                return await self.send_to(server, request, min(timeout_s, _NEAR_S))
            except F1Error as error:
                elsewhere = error.code in _ELSEWHERE or "no_replica" in error.details
                if not elsewhere and error.code is not Code.DEADLINE_EXCEEDED:
                    raise
                self._shunned_until[server] = now_s + _SHUN_S
        return await self.send(group, make, timeout_s)

    def nearest(self, group: int) -> str:
        """Return a replica of ``group`` in the client's zone, or any if there is none; read-only ones come first."""
        known = self._known()
        readers, voters = self.readers(group), known.voters.get(group, [])
        for replicas in (readers, voters):
            near = [name for name in replicas if self._zone and known.zones.get(name) == self._zone]
            if near:
                return self._rng.choice(near)
        return self._rng.choice(readers) if readers else self._any_voter(group)

    # ------------------------------------------------------------------ calls that are streams themselves

    def pick(self, group: int, *, leader: bool = True) -> str:
        """Return the server to ask: the leader of ``group`` as far as it is known, else the nearest replica."""
        return (self._leaders.get(group) if leader else "") or self.nearest(group)

    def stub(self, server: str) -> stubs.SpanServerStub:
        """Return the stub for calls to a named server."""
        return stubs.SpanServerStub(self._channels.get(self._address(server)))

    async def elsewhere(self, group: int, server: str, error: F1Error, end: float, backoff: Backoff) -> str:
        """Return where to repeat a read that ``server`` failed, after a pause if that makes sense.

        Raises ``error`` if it is final, WRONG_RANGE included, DEADLINE_EXCEEDED at ``end`` (of the loop's time).
        """
        return await self._next(group, server, error, False, True, end, backoff, set())

    async def send_to(self, server: str, request: pb.Request, timeout_s: float) -> pb.Response:
        """Send a request to one named server, once."""
        request.timeout_ms = max(1, int(min(timeout_s * 1000, _LONGEST_MS)))
        return await self._call(self._address(server), request, timeout_s)

    def _any_voter(self, group: int, besides: str = "") -> str:
        voters = self._known().voters.get(group)
        if not voters:
            raise F1Error(Code.WRONG_RANGE, f"there is no group {group}; refresh the range map", retryable=True)
        others = [v for v in voters if v != besides] or voters
        return self._rng.choice([v for v in others if self._known().addresses.get(v) not in self._doubted] or others)

    def _address(self, server: str) -> str:
        address = self._known().addresses.get(server)
        if address is None:
            raise F1Error(Code.UNAVAILABLE, f"{server} is no server of the cluster any more", retryable=True)
        return address

    async def _call(self, address: str, request: pb.Request, timeout_s: float) -> pb.Response:
        request.background = self.background
        try:
            response = await self._stream(address).call(request, timeout_s)
        except F1Error as error:
            if error.code is Code.UNAVAILABLE or (error.code is Code.DEADLINE_EXCEEDED and timeout_s >= _DOUBT_S):
                self._doubted.add(address)
            raise
        self._doubted.discard(address)
        if response.HasField("foreground"):
            self.foreground.hear(address, response.foreground)
        if response.WhichOneof("body") == "error":
            e = response.error
            raise error_from_wire(e.code, e.message, e.retryable, e.ambiguous, dict(e.details))
        return response

    def _stream(self, address: str) -> Stream:
        stream = self._streams.get(address)
        if stream is None:
            stub = stubs.SpanServerStub(self._channels.get(address))
            stream = RequestStream(
                lambda: stub.Session(),
                lambda requests: pb.ClientBatch(requests=requests),
                lambda batch: batch.responses,
                rng=random.Random(self._rng.random()),
                hello=lambda: pb.ClientBatch(protocol_version=PROTOCOL_VERSION),
                name=address,
            )
            self._streams[address] = stream
        return stream

    async def close(self) -> None:
        """End all streams; requests in flight fail with CANCELLED."""
        if self._refreshing is not None:
            self._refreshing.cancel()
        for address in sorted(self._streams):
            await self._streams[address].close()
