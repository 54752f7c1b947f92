"""The gRPC face of the master: beats in, lists out, around the registry."""

import asyncio
import itertools
import re
from collections.abc import Callable, Iterable
from typing import Any

from f1common.clock import Clock
from f1common.config import MasterSection
from f1common.errors import Code, F1Error
from f1common.observe.logs import get_logger
from f1common.observe.metrics import Metrics
from f1common.pb import master_pb2 as pb
from f1common.pb import master_pb2_grpc as stubs
from f1common.pb import types_pb2
from f1common.rpc.serving import serve_requests
from f1common.rpc.status import error_to_wire, maps_errors
from f1common.rpc.versions import check_version
from master.registry import Beat, Effects, PoolList, Registry, SlaveIdentity, State

PROTOCOL_VERSION = 1
SERVICE_NAME = "f1.master.Master"

_LONGEST_NAME = 100
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,{_LONGEST_NAME - 1}}}")
_ADDRESS = re.compile(r"[A-Za-z0-9_.:\[\]%-]{1,255}:\d{1,5}")

_STATES = {
    State.LIVE: pb.SlaveEntry.LIVE,
    State.SUSPECT: pb.SlaveEntry.SUSPECT,
    State.DRAINING: pb.SlaveEntry.DRAINING,
}

_log = get_logger(__name__)


class MasterServicer(stubs.MasterServicer):
    """Implements ``f1.master.Master``: the driver of one registry."""

    def __init__(self, registry: Registry, clock: Clock, config: MasterSection, metrics: Metrics) -> None:
        self._registry = registry
        self._clock = clock
        self._keepalive_ms = config.keepalive_ms
        self._links = itertools.count(1)
        self._watchers: dict[int, asyncio.Event] = {}
        self._closing = asyncio.Event()
        self._beats = metrics.counter("master_beats", "Beats taken from slaves.")
        self._slaves = metrics.gauge("master_slaves", "Slaves by state.", ("state",))
        self._watched = metrics.gauge("master_watchers", "f1servers that watch the list.")
        self._told: dict[str, State] = {}

    # ------------------------------------------------------------------ slaves

    @maps_errors
    async def Beat(self, request_iterator: Any, context: Any) -> None:
        """Take the beats of one slave; the end of the stream makes it suspect."""
        link = next(self._links)
        known: list[str] = []

        def handle(beat: pb.Beat, reply: Callable[[pb.BeatReply], None]) -> None:
            found = _beat_from_pb(link, beat)
            if known and known[0] != found.slave.name:
                raise F1Error(Code.INVALID_ARGUMENT, "a stream carries the beats of one slave: open one for each")
            known[:] = [found.slave.name]
            effects = self._registry.beat(found, self._clock.sample().boot_us)
            self._beats.inc()
            self._perform(effects)
            reply(pb.BeatReply(id=beat.id, replaced=effects.replaced))

        try:
            await serve_requests(
                context,
                _unpack,
                lambda replies: pb.BeatReplies(replies=replies),
                handle,
                fail=lambda beat, error: pb.BeatReply(
                    id=beat.id, error=types_pb2.Error(**error_to_wire(error)._asdict())
                ),
                draining=self._closing,
            )
        finally:
            # A master that ends closes all streams itself: that tells nothing about the slaves.
            if not self._closing.is_set():
                self._perform(self._registry.gone(link, self._clock.sample().boot_us))

    # ------------------------------------------------------------------ f1servers

    @maps_errors
    async def Watch(self, request: pb.WatchRequest, context: Any) -> None:
        """Send the list now, on each change, and when there was none for a while."""
        if request.protocol_version:
            check_version(f"f1server {request.server}", request.protocol_version, PROTOCOL_VERSION)
        link = next(self._links)
        news = self._watchers[link] = asyncio.Event()
        self._watched.set(len(self._watchers))
        _log.info("an f1server watches", server=request.server)
        try:
            while not self._closing.is_set():
                news.clear()
                await context.write(self._list())
                try:
                    async with asyncio.timeout(self._keepalive_ms / 1000):
                        await news.wait()
                except TimeoutError:
                    continue
        finally:
            del self._watchers[link]
            self._watched.set(len(self._watchers))

    def _list(self) -> pb.PoolList:
        return list_to_pb(self._registry.snapshot(), self._keepalive_ms)

    # ------------------------------------------------------------------ time

    async def run(self) -> None:
        """Let time pass for the registry, until cancelled."""
        while True:
            now_us = self._clock.sample().boot_us
            self._perform(self._registry.tick(now_us))
            await asyncio.sleep(max(self._registry.next_us() - now_us, 1_000) / 1_000_000)

    def close(self) -> None:
        """End all streams; idempotent."""
        self._closing.set()
        for link in sorted(self._watchers):
            self._watchers[link].set()

    def _perform(self, effects: Effects) -> None:
        if effects.push is None:
            return
        self._tell(effects.push)
        for link in sorted(self._watchers):
            self._watchers[link].set()

    def _tell(self, pool: PoolList) -> None:
        """Log whose state has changed, and count the states."""
        states = {entry.slave.name: entry.state for entry in pool.entries}
        for entry in pool.entries:
            if self._told.get(entry.slave.name) is not entry.state:
                _log.info(f"a slave is {entry.state}", slave=entry.slave.name, why=entry.reason or "it beats")
        for name in sorted(set(self._told) - set(states)):
            _log.info("a slave is forgotten", slave=name)
        self._told = states
        for state in State:
            self._slaves.labels(state=str(state)).set(list(states.values()).count(state))


def _unpack(batch: pb.BeatBatch) -> Iterable[pb.Beat]:
    if batch.protocol_version:
        check_version("the slave", batch.protocol_version, PROTOCOL_VERSION)
    return batch.beats


def _beat_from_pb(link: int, beat: pb.Beat) -> Beat:
    slave = beat.slave
    if not slave.name or not slave.address or not slave.incarnation:
        raise F1Error(Code.INVALID_ARGUMENT, "a beat says the name, address and incarnation of its slave")
    if not _NAME.fullmatch(slave.name) or not _NAME.fullmatch(slave.zone or "a"):
        raise F1Error(Code.INVALID_ARGUMENT, "names of slaves and zones are up to 100 letters, digits, _, . and -")
    if not _ADDRESS.fullmatch(slave.address) or len(slave.version) > _LONGEST_NAME:
        raise F1Error(Code.INVALID_ARGUMENT, f"{slave.address[:50]!r} is no address; a slave says HOST:PORT")
    identity = SlaveIdentity(
        name=slave.name,
        address=slave.address,
        zone=slave.zone,
        incarnation=slave.incarnation,
        started_us=slave.started_us,
        version=slave.version,
        threads=slave.threads,
        memory_bytes=slave.memory_bytes,
    )
    return Beat(link, identity, beat.number, beat.running, beat.lag_us, beat.draining, beat.failing)


def list_to_pb(pool: PoolList, keepalive_ms: int) -> pb.PoolList:
    """Return the list as f1servers get it."""
    return pb.PoolList(
        epoch=pool.epoch,
        version=pool.version,
        settling=pool.settling,
        keepalive_ms=keepalive_ms,
        slaves=[
            pb.SlaveEntry(
                slave=_identity_to_pb(entry.slave),
                state=_STATES[entry.state],
                since_version=entry.since,
                running=entry.running,
                reason=entry.reason,
            )
            for entry in pool.entries
        ],
    )


def _identity_to_pb(slave: SlaveIdentity) -> pb.SlaveIdentity:
    return pb.SlaveIdentity(
        name=slave.name,
        address=slave.address,
        zone=slave.zone,
        version=slave.version,
        incarnation=slave.incarnation,
        started_us=slave.started_us,
        threads=slave.threads,
        memory_bytes=slave.memory_bytes,
    )
