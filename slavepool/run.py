"""One run of a query at one slave: its parts, whom they give rows to, and who gives rows to them."""

import asyncio
from collections.abc import Callable
from typing import Any

from f1common.errors import Code, F1Error
from f1common.pb import slave_pb2 as pb
from f1common.rpc.batches import DEFAULT_LIMITS, END_OF_STREAM
from f1common.rpc.status import error_from_exception
from f1server.dist.dealing import Dealer, Share, cut
from f1server.dist.evaluation import PartEvaluation
from f1server.dist.rows import RowsReader, batch_rows, last_rows, schema_rows
from f1server.dist.topology import ROOT, givers
from f1server.exec.engine import Engine
from f1server.exec.source import Source
from f1server.plan.parts import Output, Part
from f1server.txn.reader import RowReader
from slavepool.assignment import Assignment
from slavepool.links import Link
from slavepool.outbox import Outbox
from slavepool.tally import Tally

__all__ = ["SlaveRun"]

_MESSAGE_BYTES = 1 << 20
# Rows share their message with little else.
_MAX_BYTES = DEFAULT_LIMITS.max_message_bytes - (2 << 20)
PROTOCOL_VERSION = 1


class SlaveRun:
    """Runs the parts of one assignment. It fails of whatever goes wrong first, and nothing is tried again here."""

    def __init__(
        self,
        assignment: Assignment,
        engine: Engine,
        source: Callable[[], Source],
        open_exchange: Callable[[str], Any],
        *,
        batch_rows: int,
    ) -> None:
        """``source`` gives what a part reads tables from; ``open_exchange`` calls the slave at an address."""
        self.assignment = assignment
        self.failed: asyncio.Future[pb.Failed] = asyncio.get_running_loop().create_future()
        """Set with the first thing that went wrong."""
        self.rows_for_root = Outbox(assignment.window_bytes)
        self.tally = Tally(assignment)
        self.readers: list[RowReader] = []
        """What parts read with, if what they look at is to be noted."""
        self._engine = engine
        self._source = source
        self._open_exchange = open_exchange
        self._batch_rows = batch_rows
        self._links: dict[int, Link] = {}
        self._evaluations = {part.id: self._evaluation(part) for part in assignment.own_parts}
        self._givers: set[int] = set()
        self._receiving: set[asyncio.Task[None]] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self.ended = asyncio.Event()
        """Set when the run is closed, by whomever."""

    def _evaluation(self, part: Part) -> PartEvaluation:
        a = self.assignment
        return PartEvaluation(self._engine, part, givers(a.parts, part, len(a.workers), a.position))

    async def open(self) -> None:
        """Get ready to take rows from other workers."""
        for evaluation in self._evaluations.values():
            await evaluation.open()

    async def work(self) -> list[pb.PartStats]:
        """Run all parts to their end, until others have taken over what they gave. Raises F1Error."""
        self._tasks = [
            asyncio.create_task(self._run_part(evaluation), name=f"part {part_id}")
            for part_id, evaluation in self._evaluations.items()
        ]
        try:
            if self._tasks:
                await asyncio.wait(self._tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in self._tasks:
                if task.done():
                    task.result()
            await self.rows_for_root.drained()
            for link in list(self._links.values()):
                await link.flushed()
        finally:
            for task in self._tasks:
                task.cancel()
        return self.tally.to_pb(self._evaluations)

    def read_set(self) -> list[pb.ReadRow]:
        """Return what the parts have looked at, as far as it is noted."""
        return [
            pb.ReadRow(key=e.key, ts=e.ts, table=e.table, columns=e.columns)
            for reader in self.readers
            for e in reader.read_set.values()
        ]

    def fail(self, error: F1Error, blamed: int | None = None) -> None:
        """Note why the run cannot succeed; ``blamed``: a worker that could not be reached."""
        if not self.failed.done():
            self.failed.set_result(failed_to_pb(error, blamed))

    async def close(self) -> None:
        """End everything and give everything back. Idempotent."""
        self.ended.set()
        error = F1Error(Code.CANCELLED, "the query has ended here")
        self.rows_for_root.fail(error)
        tasks = [*self._tasks, *self._receiving]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*(link.close() for link in self._links.values()))
        await asyncio.gather(*tasks, return_exceptions=True)
        for evaluation in self._evaluations.values():
            await evaluation.close()
        self.failed.cancel()

    # ------------------------------------------------------------------ rows that go

    async def _run_part(self, evaluation: PartEvaluation) -> None:
        a = self.assignment
        dealer = Dealer(evaluation.part, a.parts, len(a.workers), a.position)
        await evaluation.fill(a.schema, a.scans(evaluation.part), self._source())
        schema = dealer.schema(await evaluation.query(dealer.sql))
        targets = [(output, to) for output, all_to in dealer.routes for to in all_to]
        for output, to in targets:
            await self._give(output, to, schema, None, False)
        while (batch := await evaluation.next_batch(self._batch_rows)) is not None:
            for piece in cut(batch, self._batch_rows, _MESSAGE_BYTES):
                for share in dealer.deal(piece):
                    await self._share(evaluation.part.id, schema, share)
        for output, to in targets:
            await self._give(output, to, schema, None, True)

    async def _share(self, part: int, schema: Any, share: Share) -> None:
        size = await self._give(share.output, share.destination, schema, share.batch, False)
        self.tally.sent(part, share.output.consumer, share.destination, share.batch.num_rows, size)

    async def _give(self, output: Output, to: int, schema: Any, batch: Any, last: bool) -> int:
        """Give a worker a schema (``batch`` None), rows, or the news that there are no more; return the bytes."""
        if to == self.assignment.position:
            await self._consumer(output.consumer).take(output.relation, to, schema, batch, last)
            return batch.nbytes if batch is not None else 0
        if last:
            rows = last_rows(output)
        else:
            rows = schema_rows(output, schema) if batch is None else batch_rows(output, batch)
        if rows.ByteSize() > _MAX_BYTES:
            text = f"a row of about {rows.ByteSize():,} bytes is too large to be sent from one worker to another"
            raise F1Error(Code.OUT_OF_RANGE, text)
        if to == ROOT:
            return await self.rows_for_root.put(rows)
        return await self._link(to).send(rows)

    def _link(self, to: int) -> Link:
        link = self._links.get(to)
        if link is None:
            a = self.assignment
            hello = pb.Hello(
                protocol_version=PROTOCOL_VERSION,
                query=a.query,
                attempt=a.attempt,
                from_worker=a.position,
                to_worker=to,
            )
            link = self._links[to] = Link(
                lambda: self._open_exchange(a.workers[to]),
                hello,
                a.window_bytes,
                lambda error: self.fail(error, to),
            )
        return link

    # ------------------------------------------------------------------ rows that come

    def _consumer(self, part: int) -> PartEvaluation:
        found = self._evaluations.get(part)
        if found is None:
            raise F1Error(Code.INVALID_ARGUMENT, f"part {part} does not run at this worker")
        return found

    async def receive(self, giver: int, context: Any) -> None:
        """Take what another worker sends on a stream, until it or the run ends.

        Raises F1Error: INVALID_ARGUMENT for no other worker, ALREADY_EXISTS for one that has a stream.
        """
        if not 0 <= giver < len(self.assignment.workers) or giver == self.assignment.position:
            raise F1Error(Code.INVALID_ARGUMENT, f"this run gets no rows from a worker {giver}")
        if giver in self._givers:
            # The rows of both would count. Whoever lost a stream tries again with the whole query.
            raise F1Error(Code.ALREADY_EXISTS, f"worker {giver} gives its rows by another stream")
        self._givers.add(giver)
        task = asyncio.create_task(self._receive(giver, context), name=f"rows from worker {giver}")
        self._receiving.add(task)
        task.add_done_callback(self._receiving.discard)
        try:
            await asyncio.wait((task,))
        finally:
            # Said before anything is waited for: a handler that is cancelled here waits for nothing more.
            task.cancel()
            if not self.ended.is_set() and any(e.awaits(giver) for e in self._evaluations.values()):
                self.fail(F1Error(Code.UNAVAILABLE, f"worker {giver} broke off"), giver)
            await asyncio.gather(task, return_exceptions=True)

    async def _receive(self, giver: int, context: Any) -> None:
        reader = RowsReader(giver, self._consumer)
        await context.write(pb.ExchangeReply(credit_bytes=0))
        while (message := await context.read()) is not END_OF_STREAM:
            taken = 0
            for rows in message.rows:
                try:
                    await reader.take(rows)
                except Exception as error:
                    self.fail(error_from_exception(error))
                    return await _until_closed(self.ended)
                taken += rows.ByteSize()
            await context.write(pb.ExchangeReply(credit_bytes=taken))


async def _until_closed(ended: asyncio.Event) -> None:
    """Keep a stream open whose rows cannot be taken: its sender is not at fault, and must not think that we are."""
    await ended.wait()


def failed_to_pb(error: F1Error, blamed: int | None) -> pb.Failed:
    """Return the message that tells the f1server of a failure."""
    message = pb.Failed(blamed=0 if blamed is None else blamed + 1)
    message.error.code = error.code.value
    message.error.message = error.message
    message.error.retryable = error.retryable
    for key, value in error.details.items():
        message.error.details[key] = value
    return message
