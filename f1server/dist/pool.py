"""The pool of slaves as an f1server has it: the master's list, watched for as long as the server lives."""

import asyncio
import random

from f1common.clock import Clock
from f1common.errors import Code, F1Error
from f1common.observe.logs import get_logger
from f1common.observe.metrics import Metrics
from f1common.pb import f1_pb2
from f1common.pb import master_pb2 as pb
from f1common.pb import master_pb2_grpc as stubs
from f1common.rpc.backoff import Backoff
from f1common.rpc.channels import ChannelCache
from f1common.rpc.status import error_from_exception
from f1server.dist.view import PoolView, Slave, SlaveState, SlaveView, Version

__all__ = ["Slave", "SlavePool"]

PROTOCOL_VERSION = 1

# Until the master has said how long it may be silent.
_FIRST_LIST_S = 3.0
_MISSED_KEEPALIVES = 3
_BACKOFF_MS = (20, 500, 2)

_STATES = {
    pb.SlaveEntry.LIVE: SlaveState.LIVE,
    pb.SlaveEntry.SUSPECT: SlaveState.SUSPECT,
    pb.SlaveEntry.DRAINING: SlaveState.DRAINING,
}

_log = get_logger(__name__)


class SlavePool:
    """The slaves that queries may be spread over.

    The last list is kept while the master is away. A slave that a query found dead or hung is to be reported with
    :meth:`suspect`: that is how one is avoided that the master does not know to be gone. Without a master the pool is
    empty. For one event loop; nothing here waits but :meth:`close`.
    """

    def __init__(
        self,
        master: str,
        *,
        server: str,
        clock: Clock,
        channels: ChannelCache,
        rng: random.Random,
        metrics: Metrics | None = None,
    ) -> None:
        """``master`` is its address, ``host:port``, or empty; ``server`` is the name of this f1server."""
        self._master = master
        self._server = server
        self._clock = clock
        self._channels = channels
        self._rng = rng
        self._view = PoolView()
        self._watching: asyncio.Task[None] | None = None
        self.connected = False
        """Whether the master's lists arrive."""
        metrics = metrics or Metrics()
        self._live_slaves = metrics.gauge("pool_live_slaves", "Slaves that queries may be spread over.")
        self._lists = metrics.counter("pool_lists", "Lists taken from the master.")
        self._breaks = metrics.counter("pool_master_lost", "How often the master was lost.")
        self._suspected = metrics.counter("pool_suspected", "How often this server found that a slave does not answer.")

    def start(self) -> None:
        """Begin to watch the master."""
        if self._master:
            self._watching = asyncio.create_task(self._run(), name="watch the master")

    async def close(self) -> None:
        """Stop watching; the pool stays as it is. Idempotent."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
            self._watching = None

    @property
    def version(self) -> Version:
        """The master's epoch and the version of its list that this server has."""
        return self._view.version

    def live(self) -> tuple[Slave, ...]:
        """Return the slaves that work may be given to, by name."""
        return self._view.live(self._now_us())

    def suspect(self, name: str, incarnation: int, reason: str) -> None:
        """Avoid a slave that was found dead or hung, until the master sees it return or for five seconds.

        Says nothing about another run of the slave: what is known to be replaced is not reported against its successor.
        """
        if self._view.suspect(name, incarnation, reason, self._now_us()):
            _log.warning("a slave does not answer and is avoided", slave=name, reason=reason)
            self._suspected.inc()
            self._live_slaves.set(len(self.live()))

    def status(self) -> f1_pb2.PoolStatus | None:
        """Return what operators want to see; None without a master."""
        if not self._master:
            return None
        epoch, version = self._view.version
        return f1_pb2.PoolStatus(
            master=self._master,
            connected=self.connected,
            epoch=epoch,
            version=version,
            slaves=[_status_of(view) for view in self._view.all(self._now_us())],
        )

    # ------------------------------------------------------------------ the watch

    async def _run(self) -> None:
        backoff = Backoff(*_BACKOFF_MS, self._rng)
        while True:
            try:
                await self._watch(backoff)
                reason = "it ended the stream"
            except Exception as error:
                reason = error_from_exception(error).message
            if self.connected:
                self.connected = False
                self._breaks.inc()
                _log.warning("the master is away; the last list is kept", master=self._master, reason=reason)
            await asyncio.sleep(backoff.next_s())

    async def _watch(self, backoff: Backoff) -> None:
        """Take lists from one stream until it breaks or falls silent. Raises what ended it."""
        stub = stubs.MasterStub(self._channels.get(self._master))
        call = stub.Watch(pb.WatchRequest(server=self._server, protocol_version=PROTOCOL_VERSION))
        lists = aiter(call)
        patience_s = _FIRST_LIST_S
        try:
            while True:
                try:
                    async with asyncio.timeout(patience_s):
                        news = await anext(lists, None)
                except TimeoutError:
                    raise F1Error(Code.UNAVAILABLE, f"it was silent for {patience_s:g} s") from None
                if news is None:
                    return
                backoff.reset()
                patience_s = _MISSED_KEEPALIVES * news.keepalive_ms / 1000
                self._take(news)
        finally:
            call.cancel()

    def _take(self, news: pb.PoolList) -> None:
        if not self.connected:
            self.connected = True
            _log.info("the master is there", master=self._master)
        version = (news.epoch, news.version)
        views = [_view_of(news.epoch, entry) for entry in news.slaves if entry.state in _STATES]
        if self._view.take(version, news.settling, views, self._now_us()):
            self._lists.inc()
            self._live_slaves.set(len(self.live()))

    def _now_us(self) -> int:
        return self._clock.sample().boot_us


def _view_of(epoch: int, entry: pb.SlaveEntry) -> SlaveView:
    slave = entry.slave
    return SlaveView(
        slave=Slave(slave.name, slave.address, slave.incarnation, slave.zone, slave.threads, slave.memory_bytes),
        state=_STATES[entry.state],
        since=(epoch, entry.since_version),
        running=entry.running,
        program=slave.version,
        reason=entry.reason,
    )


def _status_of(view: SlaveView) -> f1_pb2.PoolSlave:
    return f1_pb2.PoolSlave(
        name=view.slave.name,
        zone=view.slave.zone,
        address=view.slave.address,
        state="avoided" if view.avoided and view.state is SlaveState.LIVE else str(view.state),
        reason=view.avoided or view.reason,
        running=view.running,
        version=view.program,
        incarnation=view.slave.incarnation,
    )
