"""One attempt to run a distributed query: performs what the scheduler decides, and tells it what happens."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from f1common.errors import Code, F1Error
from f1common.pb import slave_pb2 as pb
from f1common.pb import types_pb2
from f1common.rpc.deadlines import Deadline
from f1common.rpc.status import error_from_exception
from f1server.dist.evaluation import PartEvaluation
from f1server.dist.remote import PROTOCOL_VERSION, RemoteRun, failure_from_pb
from f1server.dist.rows import RowsReader
from f1server.dist.scheduler import Effects, Failure, Scheduler, Worker
from f1server.dist.stats import SERVER, PartStats, ReadStats, RunStats, SentStats
from f1server.dist.topology import ROOT, givers
from f1server.dist.wire import parts_to_pb, schema_to_wire
from f1server.exec.engine import Engine
from f1server.plan.parts import DistributedPlan, PartScan, Workers
from f1server.txn.readset import ReadSetEntry

__all__ = ["WINDOW_BYTES", "Attempt", "Clips", "Order"]

_TICK_S = 0.25
WINDOW_BYTES = 4 << 20

Clips = Callable[[PartScan, int], Sequence[tuple[bytes, bytes]]]
"""For a divided scan and a number of workers: for each worker the raw keys, from the first to below the second, whose
rows it reads. A range that is not ascending is empty. Together they must cover the table."""


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """What is to be run: the same in all attempts."""

    query: bytes
    plan: DistributedPlan
    timestamp: int
    deadline: Deadline
    clips: Clips | None
    window_bytes: int = WINDOW_BYTES
    collect: bool = False

    def starts(self, attempt: int, workers: Sequence[Worker]) -> list[pb.Start]:
        """Return what each worker is told. Raises F1Error INVALID_ARGUMENT, DEADLINE_EXCEEDED."""
        plan = self.plan
        common = pb.Start(
            protocol_version=PROTOCOL_VERSION,
            query=self.query,
            attempt=attempt,
            workers=[worker.address for worker in workers],
            schema=schema_to_wire(plan.schema),
            schema_commit_ts=plan.schema.commit_ts,
            timestamp=self.timestamp,
            timeout_ms=self.deadline.wire_ms(),
            parts=parts_to_pb(plan.parts),
            window_bytes=self.window_bytes,
            collect=self.collect,
        )
        clips = self._clips(len(workers))
        found = []
        for position in range(len(workers)):
            start = pb.Start()
            start.CopyFrom(common)
            start.worker = position
            start.clips.extend(clips[position])
            found.append(start)
        return found

    def _clips(self, workers: int) -> list[list[pb.Clip]]:
        """Return what each worker reads of divided scans; what only one worker runs, it reads as a whole."""
        found: list[list[pb.Clip]] = [[] for _ in range(workers)]
        for part in self.plan.parts:
            for item in part.scans:
                if not item.divided or part.workers is not Workers.ALL:
                    continue
                ranges: Sequence[tuple[bytes, bytes] | None]
                ranges = self.clips(item, workers) if self.clips else [None, *[(b"", b"")] * (workers - 1)]
                for position, span in enumerate(ranges):
                    if span is not None:
                        found[position].append(
                            pb.Clip(
                                part=part.id,
                                relation=item.planned.relation,
                                range=types_pb2.KeyRange(start=span[0], end=span[1]),
                            )
                        )
        return found


class Attempt:
    """Runs once, at some workers. Afterwards nothing runs at them any more; the root part is the caller's to close."""

    def __init__(
        self,
        order: Order,
        scheduler: Scheduler,
        workers: tuple[Worker, ...],
        engine: Engine,
        open_run: Callable[[Worker], Any],
        suspect: Callable[[str, int, str], None],
    ) -> None:
        """``suspect`` tells the pool of a slave that broke off: name, incarnation, why."""
        root = order.plan.parts[-1]
        self.root = PartEvaluation(engine, root, givers(order.plan.parts, root, len(workers), ROOT))
        self._order = order
        self._scheduler = scheduler
        self._number = scheduler.attempt
        self._workers = workers
        self._suspect = suspect
        self._runs = [
            RemoteRun(i, lambda w=worker: open_run(w), self._hear, self._broke)  # type: ignore[misc]
            for i, worker in enumerate(workers)
        ]
        self._readers = [RowsReader(i, self._consumer) for i in range(len(workers))]
        self._over = asyncio.Event()
        self._succeeded = False
        self._error: F1Error | None = None
        self._stats: dict[int, Sequence[pb.PartStats]] = {}
        self.read_set: list[ReadSetEntry] = []
        """What was looked at, if that is collected."""

    async def run(self) -> F1Error | None:
        """Run to the end; returns why the query failed for good, None if it succeeded or is to be tried again."""
        kept = False
        try:
            await self.root.open()
            for run, start in zip(self._runs, self._order.starts(self._number, self._workers), strict=True):
                run.start(start)
            while not self._over.is_set():
                try:
                    async with asyncio.timeout(_TICK_S):
                        await self._over.wait()
                except TimeoutError:
                    self._tick()
            await self._end()
            kept = self._succeeded
        finally:
            await self._end()
            if not kept:
                await self.root.close()
        return self._error

    async def _end(self) -> None:
        await asyncio.gather(*(run.close() for run in self._runs))

    def stats(self) -> RunStats:
        """Return what the parts cost at the slaves."""
        names = [worker.name for worker in self._workers]
        parts = [_part_stats(p, names[i], names) for i, parts in sorted(self._stats.items()) for p in parts]
        return RunStats(self._number, tuple(names), tuple(sorted(parts, key=lambda p: (p.part, p.worker))))

    # ------------------------------------------------------------------ what happens

    def _tick(self) -> None:
        now_us = _now_us()
        for run in self._runs:
            if run.busy:
                self._scheduler.heard(self._number, run.position, now_us)
        self._perform(self._scheduler.tick(now_us))

    async def _hear(self, position: int, reply: pb.RunReply) -> None:
        scheduler, now_us = self._scheduler, _now_us()
        scheduler.heard(self._number, position, now_us)
        if reply.HasField("ready"):
            self._perform(scheduler.ready(self._number, position, now_us))
        if reply.rows:
            await self._take(position, reply.rows)
        if reply.HasField("failed"):
            self._perform(scheduler.failed(self._number, position, failure_from_pb(reply.failed)))
        if reply.HasField("done"):
            self._stats[position] = reply.done.parts
            self.read_set += [ReadSetEntry(r.key, r.ts, r.table, tuple(r.columns)) for r in reply.done.read_set]
            self._perform(scheduler.done(self._number, position, _now_us()))

    async def _take(self, position: int, rows: Sequence[pb.Rows]) -> None:
        """Take rows for the root part over, and let the slave send more."""
        taken = 0
        try:
            for item in rows:
                await self._readers[position].take(item)
                taken += item.ByteSize()
        except Exception as error:
            self._perform(self._scheduler.lost(self._number, error_from_exception(error)))
        else:
            self._runs[position].send(pb.RunRequest(credit_bytes=taken))

    def _consumer(self, part: int) -> PartEvaluation:
        if part != self.root.part.id:
            raise F1Error(Code.INVALID_ARGUMENT, f"part {part} does not run at the f1server")
        return self.root

    def _broke(self, position: int, failure: Failure) -> None:
        self._perform(self._scheduler.failed(self._number, position, failure))

    def _perform(self, effects: Effects) -> None:
        for worker, why in effects.suspect:
            self._suspect(worker.name, worker.incarnation, why)
        if effects.go:
            for run in self._runs:
                run.send(pb.RunRequest(go=pb.Go()))
        if effects.finished:
            self._finish()
        if effects.failed is not None:
            self._error = effects.failed
        if effects.cancel or effects.failed is not None:
            self._over.set()

    def _finish(self) -> None:
        if self.root.complete:
            self._succeeded = True
        else:
            self._error = F1Error(Code.INTERNAL, "all slaves ended before the root part had all its rows")
        self._over.set()


def _now_us() -> int:
    return round(asyncio.get_running_loop().time() * 1_000_000)


def _part_stats(message: pb.PartStats, worker: str, names: Sequence[str]) -> PartStats:
    by_destination: Mapping[int, str] = dict(enumerate([SERVER, *names]))
    return PartStats(
        message.part,
        worker,
        tuple(ReadStats(r.relation, r.scan, r.rows, r.bytes, r.spooled) for r in message.reads),
        tuple(SentStats(s.consumer, by_destination.get(s.destination, "?"), s.rows, s.bytes) for s in message.sent),
        message.rows_out,
        message.scan_us,
        message.input_us,
        message.evaluate_us,
    )
