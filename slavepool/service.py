"""The gRPC face of a slave that runs parts of queries: ``f1.slave.Slave``."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from f1common.config import SlaveSection
from f1common.errors import Code, F1Error
from f1common.observe.metrics import Metrics
from f1common.pb import slave_pb2 as pb
from f1common.pb import slave_pb2_grpc as stubs
from f1common.rpc.batches import END_OF_STREAM
from f1common.rpc.channels import ChannelCache
from f1common.rpc.status import maps_errors
from f1common.rpc.versions import check_version
from f1server.exec.duck import DuckConfig
from f1server.exec.engine import Engine
from f1server.exec.source import Source
from f1server.exec.spill import spill_folder
from f1server.txn.reader import RowReader
from f1server.txn.source import StorageSource
from slavepool.assignment import Assignment, SchemaCache, assignment_from_pb
from slavepool.ducks import Ducks
from slavepool.heartbeat import Vitals
from slavepool.reorganising import Walks
from slavepool.run import PROTOCOL_VERSION, SlaveRun
from slavepool.run_session import serve_run, to_the_end
from spanstore.client import SpanClient

__all__ = ["SERVICE_NAME", "PartService"]

SERVICE_NAME = "f1.slave.Slave"
_MIB = 1 << 20
_DRAIN_STEP_S = 0.05
_DRAIN_S = 30.0


class PartService(stubs.SlaveServicer):
    """Runs parts of queries; a service of :class:`slavepool.process.SlaveProcess`."""

    def __init__(
        self,
        section: SlaveSection,
        client: SpanClient,
        channels: ChannelCache,
        *,
        metrics: Metrics | None = None,
        inline: bool = False,
        source: Callable[[Assignment], Source] | None = None,
        walks: Walks | None = None,
    ) -> None:
        """``inline``: evaluate in place instead of on threads, as the simulator must. ``source``: what parts read
        tables from, if not the storage tier. ``walks``: what works on rows for schema changes; None: nothing does."""
        self._client = client
        self._source = source or self._storage
        self._channels = channels
        self._batch_rows = section.batch_rows
        most = max(1, section.memory_mib // section.query_memory_mib)
        self._executor = None if inline else ThreadPoolExecutor(most + section.threads, thread_name_prefix="part")
        config = DuckConfig(
            memory_mb=section.query_memory_mib,
            threads=1 if inline else section.threads,
            temp_dir=spill_folder(),
            # Rows on their way into DuckDB are not in its books.
            spool_bytes=min(DuckConfig().spool_bytes, section.query_memory_mib * _MIB // 16),
        )
        self._walks = walks
        self._ducks = Ducks(config, self._executor, most)
        self._schemas = SchemaCache()
        self._runs: dict[tuple[bytes, int], SlaveRun] = {}
        self._draining = False
        metrics = metrics or Metrics()
        self._running = metrics.gauge("slave_queries_running", "Queries of which parts run here now.")
        self._sent = metrics.counter("slave_exchange_bytes", "Bytes of rows sent to other processes.")

    # ------------------------------------------------------------------ a service of the process

    def register(self, server: Any) -> None:
        """Register the servicer on a ``grpc.aio`` server (or one like it)."""
        stubs.add_SlaveServicer_to_server(self, server)

    @property
    def running(self) -> int:
        """How many queries hold anything here."""
        return len(self._runs)

    def vitals(self) -> Vitals:
        """Tell how the work goes."""
        return Vitals(len(self._runs))

    async def drain(self) -> None:
        """Take no more queries, and let the running ones end. Walks go on at other slaves."""
        self._draining = True
        if self._walks is not None:
            await self._walks.close()
        for _ in range(round(_DRAIN_S / _DRAIN_STEP_S)):
            if not self._runs:
                return
            await asyncio.sleep(_DRAIN_STEP_S)

    async def close(self) -> None:
        """Free everything."""
        self._draining = True
        if self._walks is not None:
            await self._walks.close()
        for run in list(self._runs.values()):
            await run.close()
        self._ducks.close()
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)

    # ------------------------------------------------------------------ calls

    @maps_errors
    async def Run(self, request_iterator: Any, context: Any) -> None:
        """Run the parts of one query, for as long as the f1server keeps the stream open."""
        first = await context.read()
        if first is END_OF_STREAM:
            return
        if self._draining:
            raise F1Error(Code.UNAVAILABLE, "this slave is about to end; use another one")
        check_version("the f1server", first.start.protocol_version, PROTOCOL_VERSION)
        assignment = assignment_from_pb(first.start, self._schemas)
        if assignment.key in self._runs:
            raise F1Error(Code.ALREADY_EXISTS, "this attempt of the query runs here already")
        async with self._ducks.one() as duck:
            run = SlaveRun(
                assignment,
                Engine(duck),
                partial(self._source, assignment),
                lambda address: stubs.SlaveStub(self._channels.get(address)).Exchange(),
                batch_rows=self._batch_rows,
            )
            self._runs[assignment.key] = run
            self._running.set(len(self._runs))
            try:
                await serve_run(run, context)
            finally:
                self._sent.inc(run.tally.sent_bytes)
                if run.failed.done():
                    self._ducks.condemn(duck)
                await to_the_end(self._forget(run))

    @maps_errors
    async def Reorganise(self, request_iterator: Any, context: Any) -> None:
        """Work on rows for a schema change, for as long as the f1server keeps the stream open."""
        if self._draining or self._walks is None:
            raise F1Error(Code.UNAVAILABLE, "this slave does not work on rows; use another one")
        await self._walks.serve(context)

    async def _forget(self, run: SlaveRun) -> None:
        await run.close()
        del self._runs[run.assignment.key]
        self._running.set(len(self._runs))

    def _storage(self, assignment: Assignment) -> Source:
        collect = assignment.collect
        reader = RowReader(self._client, assignment.schema, timestamp=assignment.timestamp, collect=collect)
        if collect:
            self._runs[assignment.key].readers.append(reader)
        return StorageSource(reader, self._client)

    @maps_errors
    async def Exchange(self, request_iterator: Any, context: Any) -> None:
        """Take rows of one query from another slave."""
        first = await context.read()
        if first is END_OF_STREAM:
            return
        hello: pb.Hello = first.hello
        check_version("the other slave", hello.protocol_version, PROTOCOL_VERSION)
        run = self._runs.get((hello.query, hello.attempt))
        if run is None or run.assignment.position != hello.to_worker:
            raise F1Error(Code.NOT_FOUND, "no such query runs at this slave")
        await run.receive(hello.from_worker, context)
