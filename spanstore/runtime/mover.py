"""Carrying out moves of ranges: one task in every spanserver, at work in the one that leads the meta group.

Leadership of the meta group is what the ownership of a job rests on; its row says who carries it out and is changed by
expected version only, so that one who has been replaced and does not know it changes nothing. What he still asks of the
groups does no harm: their logs decide what counts (:mod:`spanstore.placement.holdings`).
"""

import asyncio
import logging
import random
from collections import Counter
from dataclasses import dataclass

from msgspec.structs import replace

from f1common.errors import Code, F1Error, InvariantViolation
from f1common.rpc.backoff import Backoff
from spanstore.client.client import SpanClient
from spanstore.client.groups import read_directory
from spanstore.client.placement import stored_map
from spanstore.client.values import ExpectVersion, Precondition, Write
from spanstore.placement import copying
from spanstore.placement.copying import Copy
from spanstore.placement.jobs import (
    FIRST_JOB_KEY,
    JOBS_END,
    JobState,
    MoveJob,
    decode_job,
    encode_job,
    job_key,
    source_of,
)
from spanstore.placement.range_map import META_GROUP, RANGE_MAP_KEY
from spanstore.runtime.move_calls import MoveCalls
from spanstore.runtime.spanserver import SpanServer
from spanstore.txn.commands import CopyStage, Progress

_log = logging.getLogger(__name__)

_PERIOD_S = 0.1
_RENEW_PIECES = 16
"""Pieces between two looks at the row of a job that copies: it may have been cancelled, or taken over."""


_REVOCABLE = frozenset({JobState.PENDING, JobState.COPYING, JobState.CEDING})
"""In which the old group has not given the range up, as far as is known."""


class _Replaced(Exception):
    """Somebody else carries the job on, or should."""


@dataclass(frozen=True, slots=True)
class _Row:
    """A job as its row says, and the version of the row."""

    job: MoveJob
    ts: int

    @property
    def unchanged(self) -> Precondition:
        return ExpectVersion(job_key(self.job.number), self.ts)


class Mover:
    """The mover of one spanserver."""

    def __init__(
        self, server: SpanServer, client: SpanClient, calls: MoveCalls, rng: random.Random, patience_us: int
    ) -> None:
        """``patience_us``: a job that comes no further for so long is given up, if it still can be."""
        self._server = server
        self._client = client
        self._calls = calls
        self._patience_us = patience_us
        self._open_from = FIRST_JOB_KEY
        """All jobs before this key have ended, and stay so: numbers ascend."""
        self._shipped: tuple[int, int] = (0, 0)  # the last piece: of which job, and when
        self.ended: Counter[JobState] = Counter()
        """How many jobs this mover has brought to which end."""
        self._backoff = Backoff(50, 2_000, 1.7, rng)

    async def run(self) -> None:
        """Carry out jobs while this server leads the meta group, until cancelled."""
        backoff = self._backoff
        while True:
            await asyncio.sleep(_PERIOD_S)
            try:
                number = self._next_job()
                if number is not None:
                    await self._carry_out(number)
                backoff.reset()
            except _Replaced:
                continue
            except InvariantViolation:
                raise
            except F1Error as error:
                _log.warning("a range job waits: %s", error)
                await asyncio.sleep(backoff.next_s())

    def _leads(self) -> bool:
        meta = self._server.groups.get(META_GROUP)
        return meta is not None and meta.is_serving_leader()

    def _next_job(self) -> int | None:
        """Return the oldest job that has not ended, as the replica here knows it."""
        if not self._leads():
            return None
        for key, value in self._server.stored_rows(META_GROUP, [(self._open_from, JOBS_END)]) or []:
            job = decode_job(value)
            if not job.ended:
                return job.number
            self._open_from = key + b"\x00"
        return None

    async def _carry_out(self, number: int) -> None:
        """Take a job to its end. Raises _Replaced, and F1Error for what may go better later."""
        row = await self._read(number)
        if row.job.ended:
            return
        if row.job.owner != self._server.name:
            row = await self._change(row, owner=self._server.name, epoch=row.job.epoch + 1)
        while not row.job.ended:
            try:
                row = await self._step(row)
            except F1Error as error:
                given_up = await self._given_up(number, error)
                if given_up is None:
                    await self._complain(number, error)
                    raise
                row = given_up

    async def _given_up(self, number: int, error: F1Error) -> _Row | None:
        """Begin to undo a job that has come no further for long, if the range can still stay where it is."""
        row = await self._read(number)
        shipped_ts = self._shipped[1] if self._shipped[0] == number else 0
        idle_us = self._client.strong_timestamp() - max(row.job.progress_ts, shipped_ts)
        if row.job.state not in _REVOCABLE or row.job.owner != self._server.name or idle_us < self._patience_us:
            return None
        _log.error("job %d is given up: %s", number, error)
        text = f"it came no further for {idle_us // 1_000_000} s: {error.message}"
        return await self._change(row, state=JobState.CANCELLING, message=text)

    async def _step(self, row: _Row) -> _Row:
        job = row.job
        if job.cancel and job.state in _REVOCABLE:
            return await self._change(row, state=JobState.CANCELLING)
        match job.state:
            case JobState.PENDING:
                return await self._start(row)
            case JobState.COPYING:
                return await self._copy_while_served(row)
            case JobState.CEDING | JobState.OWNING:
                return await self._hand_over(row)
            case JobState.CLEANING:
                return await self._clean(row, job.source, JobState.DONE)
            case JobState.CANCELLING:
                return await self._cancel(row)
            case _:
                raise _Replaced

    # ------------------------------------------------------------------ the steps

    async def _start(self, row: _Row) -> _Row:
        job = row.job
        ranges, _ = await stored_map(self._client)
        try:
            groups = self._client.groups() | (await read_directory(self._client)).groups.keys()
            source = source_of(ranges, groups, job.start, job.end, job.target)
        except F1Error as error:
            return await self._change(row, state=JobState.CANCELLED, message=error.message)
        if source == job.target:
            return await self._change(row, state=JobState.DONE, message="the group owned the range already")
        return await self._change(row, state=JobState.COPYING, source=source)

    async def _copy_while_served(self, row: _Row) -> _Row:
        """Ship passes until little is missing."""
        copy = await self._clear_leftovers(row.job, await self._begun(row.job))
        for piece in range(1, 1 << 62):
            if copying.caught_up(copy.progress) or copy.progress.stage >= CopyStage.LAST_ROWS:
                break
            copy = await self._ship(row.job, copy)
            if piece % _RENEW_PIECES == 0:
                row = await self._change(row, rows=copy.progress.total)
                if row.job.cancel:
                    return row
        return await self._change(row, state=JobState.CEDING, rows=copy.progress.total)

    async def _hand_over(self, row: _Row) -> _Row:
        """Have the old group give the range up, ship the rest, have it owned, and tell everybody.

        No row is written in between: nobody serves the range meanwhile, and the groups' logs know how far it is.
        """
        job = row.job
        floor_ts, earliest_ts, mark_ts = await self._calls.cede(job)
        copy = await self._calls.begin(job)
        if copy is not None:
            await self._ship_the_rest(job, copy, earliest_ts)
            await self._calls.own(job, floor_ts, mark_ts)
        ranges, unchanged = await stored_map(self._client)
        changed = ranges.assign(job.start, job.end, job.target)
        also = [Write(RANGE_MAP_KEY, changed.encode())]
        return await self._change(row, also, [unchanged], state=JobState.CLEANING, message="")

    async def _ship_the_rest(self, job: MoveJob, copy: Copy, earliest_ts: int) -> Copy:
        if copy.progress.stage < CopyStage.LAST_ROWS:
            copy = self._going_on(await self._calls.stage(job, copy, copying.begin_last(copy.progress)))
        while copy.progress.stage is not CopyStage.READY:
            copy = await self._ship(job, copy, earliest_ts)
        return copy

    async def _clean(self, row: _Row, group: int, state: JobState) -> _Row:
        while not await self._calls.clear_after(row.job, group):
            self._check_leading()
        return await self._change(row, state=state)

    async def _cancel(self, row: _Row) -> _Row:
        job = row.job
        end = JobState.CANCELLED if job.cancel else JobState.FAILED
        if job.source < 0:
            return await self._change(row, state=end)
        if not await self._calls.abandon(job, job.source):
            return await self._change(row, state=JobState.OWNING, message="it came too late to be cancelled")
        await self._calls.abandon(job, job.target)
        return await self._clean(row, job.target, end)

    # ------------------------------------------------------------------ pieces

    async def _begun(self, job: MoveJob) -> Copy:
        return self._going_on(await self._calls.begin(job))

    async def _clear_leftovers(self, job: MoveJob, copy: Copy) -> Copy:
        while copy.progress.stage is CopyStage.CLEARING:
            copy = self._going_on(await self._calls.clear_before(job, copy))
        return copy

    async def _ship(self, job: MoveJob, copy: Copy, ceded_ts: int = 0) -> Copy:
        """Ship the next piece that has something in it, or the end of a pass."""
        progress: Progress = copy.progress
        while True:
            piece = await self._calls.export(job, copying.wanted(progress, ceded_ts))
            after = copying.after_piece(progress, piece.timestamp, len(piece.items), piece.resume, piece.done)
            if piece.items or piece.done:
                self._shipped = (job.number, self._client.strong_timestamp())
                return self._going_on(await self._calls.stage(job, copy, after, piece))
            # Nothing to log: where to go on is remembered here only.
            progress = after

    def _going_on(self, copy: Copy | None) -> Copy:
        """Stop if the move has ended in the new group, or if this server leads no more."""
        self._check_leading()
        if copy is None:
            raise _Replaced
        return copy

    def _check_leading(self) -> None:
        if not self._leads():
            raise _Replaced

    # ------------------------------------------------------------------ rows

    async def _read(self, number: int) -> _Row:
        version = (await self._client.read([job_key(number)])).versions[0]
        if version is None or version.value is None:
            raise _Replaced
        return _Row(decode_job(version.value), version.ts)

    async def _change(
        self,
        row: _Row,
        writes: list[Write] | None = None,
        expected: list[Precondition] | None = None,
        **changes: object,
    ) -> _Row:
        """Change a job, with other writes. A request to cancel that came meanwhile stays. Raises _Replaced."""
        self._check_leading()
        while True:
            now_ts = self._client.strong_timestamp()
            progress_ts = row.job.progress_ts if changes.keys() == {"message"} else now_ts
            job = replace(row.job, **changes, updated_ts=now_ts, progress_ts=progress_ts)
            write = Write(job_key(job.number), encode_job(job))
            try:
                ts = await self._client.commit([write, *(writes or ())], [row.unchanged, *(expected or ())])
                self.ended[job.state] += job.ended
                return _Row(job, ts)
            except F1Error as error:
                if error.code is not Code.ABORTED:
                    raise
            now = await self._read(row.job.number)
            if not _only_cancelled(row.job, now.job):
                raise _Replaced
            if now.job == row.job:
                raise F1Error(Code.UNAVAILABLE, "the range map changed meanwhile; it is read again")
            row = now

    async def _complain(self, number: int, error: F1Error) -> None:
        """Let the row say what the job waits for, unless it says why it was given up."""
        row = await self._read(number)
        if row.job.state is JobState.CANCELLING:
            return
        if row.job.owner == self._server.name and row.job.message != error.message:
            await self._change(row, message=error.message)


def _only_cancelled(before: MoveJob, after: MoveJob) -> bool:
    return replace(after, cancel=before.cancel) == before
