"""The beats of a slave: at least one every ``slave.heartbeat_ms``, to the master, for as long as the process lives.

A beat is made on the event loop that serves the parts of queries, never by a thread of its own: a process that stands
still or whose loop is stuck must fall silent. What the loop cannot see, such as a work thread that is stuck, the parts
say themselves (:class:`Vitals`), and the master treats a slave that is *failing* like a silent one.

Each beat says everything, so that there is no registration that could be lost: a new master, or the same one after a
break of the stream, knows the slave with the next beat. Without a master the beats go on into nothing, and the stream
is opened again and again with a back-off (:class:`f1common.rpc.streams.RequestStream`).
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

from f1common.errors import F1Error
from f1common.observe.logs import get_logger
from f1common.observe.metrics import Metrics
from f1common.pb import master_pb2 as pb
from f1common.pb import master_pb2_grpc as stubs
from f1common.rpc.channels import ChannelCache
from f1common.rpc.status import error_from_wire
from f1common.rpc.streams import RequestStream

PROTOCOL_VERSION = 1

# After a beat that was lost with its stream: soon enough that the master need not think the slave dead.
_RETRY_S = 0.05

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Vitals:
    """How the slave's work goes: requests of queries that run now, and why it cannot work, if it cannot."""

    running: int = 0
    failing: str = ""


class Heartbeat:
    """Beats to one master. Takes time from the event loop alone."""

    def __init__(
        self,
        master: str,
        slave: pb.SlaveIdentity,
        *,
        period_ms: int,
        channels: ChannelCache,
        rng: random.Random,
        vitals: Callable[[], Vitals],
        metrics: Metrics,
    ) -> None:
        """``master`` is its address; ``vitals`` is asked at each beat and must not block."""
        stub = stubs.MasterStub(channels.get(master))
        self._stream: RequestStream[pb.Beat, pb.BeatReply] = RequestStream(
            lambda: stub.Beat(),
            lambda beats: pb.BeatBatch(beats=beats),
            lambda batch: batch.replies,
            rng=rng,
            hello=lambda: pb.BeatBatch(protocol_version=PROTOCOL_VERSION),
            name=f"the master at {master}",
        )
        self._slave = slave
        self._period_s = period_ms / 1000
        self._vitals = vitals
        self._number = 0
        self._draining = False
        self._beating: asyncio.Task[None] | None = None
        self._sent = metrics.counter("slave_beats", "Beats that the master has answered.")
        self._lost = metrics.counter("slave_beats_lost", "Beats without an answer in time.")
        self._lag = metrics.histogram("slave_loop_lag_seconds", "How late the event loop gets to a beat.")
        self.known = asyncio.Event()
        """Set while the master answers."""
        self.replaced = asyncio.Event()
        """Set when a later process has this one's name: it must end."""

    def start(self) -> None:
        """Begin to beat."""
        self._beating = asyncio.create_task(self._run(), name="heartbeat")

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        planned_s = loop.time()
        while True:
            lag_s = max(loop.time() - planned_s, 0.0)
            self._lag.observe(lag_s)
            # From when this one left: a loop that was late does not make up for it with a volley.
            planned_s = loop.time() + self._period_s
            if not await self._beat(lag_s):
                planned_s = min(planned_s, loop.time() + _RETRY_S)
            await asyncio.sleep(planned_s - loop.time())

    async def _beat(self, lag_s: float) -> bool:
        """Send one beat and wait for its answer, but not longer than a period; return whether there was one."""
        self._number += 1
        vitals = self._vitals()
        beat = pb.Beat(
            slave=self._slave,
            number=self._number,
            running=vitals.running,
            lag_us=int(lag_s * 1_000_000),
            draining=self._draining,
            failing=vitals.failing,
        )
        try:
            reply = await self._stream.call(beat, timeout_s=self._period_s)
            if reply.HasField("error"):
                e = reply.error
                raise error_from_wire(e.code, e.message, e.retryable, e.ambiguous, e.details)
        except F1Error as error:
            self._lost.inc()
            if self.known.is_set():
                _log.warning("the master does not answer", reason=error.message)
            self.known.clear()
            return False
        self._sent.inc()
        if not self.known.is_set():
            _log.info("the master answers")
        self.known.set()
        if reply.replaced:
            self.replaced.set()
        return True

    async def drain(self) -> None:
        """Tell the master that this slave wants no new queries; returns when it knows, or after one period without it.

        The beats go on until :meth:`close`, whose end of the stream makes the master forget the slave.
        """
        self._draining = True
        await self._beat(0.0)

    async def close(self) -> None:
        """Fall silent."""
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)
        await self._stream.close()
