"""Schema changes as rows of the meta group: what is wanted, how far it is, and who carries it out.

At most one change of a database runs at a time: its row, ``(0, "schema_job", database)``, holds the schema before it
and the schema that is wanted, both with all ids, so that anybody can go on with it at any moment
(:func:`f1server.schemachange.steps.diff.plan_steps` finds the next step from wherever the elements are). When it has
ended its row moves to ``(0, "schema_job_log", database, number)``.

Ownership is a lease: the owner writes the row again and again, and whoever finds it older than the lease takes the job
over by writing it. Every version of the schema that a job writes expects the row as its owner last wrote it, so an
owner that was replaced and does not know it writes none (F1's schema-change paper, section 4.4, leaves this to the
process that runs the change).
"""

import builtins
from collections.abc import Callable, Sequence
from enum import StrEnum

import msgspec

from f1common.clock import Clock
from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from f1server.catalog.codec import decode_schema
from f1server.catalog.schema import ElementState
from f1server.catalog.store import SYSTEM_TABLE, StorageClient
from spanstore.client import ExpectVersion, KeyRange, Version, Write
from spanstore.client.values import Precondition

__all__ = ["ENDED", "Job", "JobRow", "JobState", "JobStore", "Order", "encode_job", "job_key", "log_key", "with_ended"]

OWNER_LEASE_US = 6_000_000
_KEPT = 100
_ATTEMPTS = 20


class JobState(StrEnum):
    """How far a job is."""

    RUNNING = "running"
    PAUSED = "paused"
    """Nobody carries it on until it is resumed. Every server keeps the schema as it is, which is a consistent one."""
    UNDOING = "undoing"
    """It failed or was cancelled; the elements go back to where they were."""
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDED = frozenset({JobState.DONE, JobState.FAILED, JobState.CANCELLED})


class Order(StrEnum):
    """What somebody wants of the owner of a job."""

    NONE = ""
    PAUSE = "pause"
    CANCEL = "cancel"


class Job(msgspec.Struct, frozen=True, array_like=True):
    """One change. ``base`` and ``goal`` are stored schemas; ``what`` is for people. Times are microseconds.

    ``reorganised``: the version of the elements under which the work on data is done. ``no_return``: data of dropped
    elements may be gone, so that it only goes on. ``step`` says what it does or waits for, ``rows`` how many rows it
    has worked on under the current version of those foreseen (:class:`f1server.schemachange.jobs.progress.Progress`),
    ``bytes`` how many it has worked on. ``rows_total`` is an estimate of how many there are to fill, verify and remove,
    ``left_ms`` of how long the rest takes; both are 0 while nobody knows. ``step_number`` of ``steps``
    versions, as they are planned, is the one that it is at; 0 of 0 while it goes back. ``worked_rows`` were worked on
    in ``worked_ms``, under all versions: so fast is a change on these machines. ``back``: it was going back when it was
    paused. ``change_id``: the name that the client gave it who asked for it, by which others can be asked how it ended.
    ``owned_ts``: when its owner last wrote the row, if others have since; 0: it was the last. ``joint``: its owner
    knows that others may write roles into ``base`` and ``goal``; owners of older builds do not. ``gives_way``: what it
    was dropping of constraints does not return as it goes back, for rows break them by now. ``keeps_data``: it fails
    rather than drop a table or a column that holds data.
    """

    number: int
    database: str
    what: str
    base: builtins.bytes
    goal: builtins.bytes
    created_ts: int
    state: JobState = JobState.RUNNING
    order: Order = Order.NONE
    owner: str = ""
    epoch: int = 0
    reorganised: int = 0
    no_return: bool = False
    step: str = ""
    rows: int = 0
    error_code: str = ""
    error: str = ""
    rows_total: int = 0
    bytes: int = 0
    left_ms: int = 0
    step_number: int = 0
    steps: int = 0
    ended_ts: int = 0
    worked_rows: int = 0
    worked_ms: int = 0
    back: bool = False
    change_id: builtins.bytes = b""
    owned_ts: int = 0
    joint: bool = False
    gives_way: bool = False
    keeps_data: bool = False

    def same_ends(self, other: "Job") -> bool:
        """Tell whether both lead from the same schema to the same one."""
        return (self.base, self.goal) == (other.base, other.goal)

    @property
    def ended(self) -> bool:
        """Tell whether nothing more will happen."""
        return self.state in ENDED

    def failure(self) -> F1Error | None:
        """Return why it failed, None if it did not."""
        if self.state is JobState.CANCELLED:
            return F1Error(Code.CANCELLED, f"schema change {self.number} was cancelled")
        return F1Error(Code(self.error_code), self.error) if self.state is JobState.FAILED else None


class JobRow(msgspec.Struct, frozen=True):
    """A job and the version of its row."""

    job: Job
    ts: int

    @property
    def unchanged(self) -> Precondition:
        """What a commit of the owner expects."""
        return ExpectVersion(job_key(self.job.database), self.ts)

    @property
    def owned_ts(self) -> int:
        """When its owner last wrote the row."""
        return self.job.owned_ts or self.ts

    def is_left(self, now_earliest: int) -> bool:
        """Tell whether its owner is gone, as far as the clock can tell."""
        return not self.job.owner or now_earliest > self.owned_ts + OWNER_LEASE_US


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Job)


def job_key(database: str) -> bytes:
    """Return the key of the row of a database's running change."""
    return tuples.encode((SYSTEM_TABLE, "schema_job", database))


def log_key(database: str, number: int) -> bytes:
    """Return the key of the row of a change that has ended."""
    return tuples.encode((SYSTEM_TABLE, "schema_job_log", database, number))


def _range_of(*elements: str) -> KeyRange:
    prefix = tuples.encode((SYSTEM_TABLE, *elements))
    return KeyRange(prefix, tuples.successor(prefix))


def encode_job(job: Job) -> bytes:
    """Return the value of a job's row."""
    return _ENCODER.encode(job)


def _row_of(version: Version | None) -> JobRow | None:
    return None if version is None or version.value is None else JobRow(_decode(version.value), version.ts)


def with_ended(
    row: JobRow, job: Job, ended: Callable[[int], Job], log: Sequence[Job]
) -> tuple[Sequence[Write], Sequence[Precondition]]:
    """Return what a commit writes and expects that changes a running job and logs one that has ended beside it.

    ``ended`` makes the latter, whose number it is given.
    """
    other = ended(_number_after(log, row))
    kept = msgspec.structs.replace(job, owned_ts=row.owned_ts)
    writes = [Write(job_key(job.database), encode_job(kept)), *_logged(other, log)]
    return writes, [row.unchanged, ExpectVersion(log_key(other.database, other.number), 0)]


def _number_after(log: Sequence[Job], running: JobRow | None) -> int:
    numbers = [job.number for job in log] + ([running.job.number] if running else [])
    return max(numbers, default=0) + 1


def _logged(job: Job, log: Sequence[Job]) -> list[Write]:
    """Return what puts a change that has ended into the log, from which those go that ended first."""
    old = sorted(log, key=lambda other: (other.ended_ts, other.number))[:-_KEPT]
    return [
        Write(log_key(job.database, job.number), encode_job(job)),
        *(Write(log_key(job.database, gone.number), None) for gone in old),
    ]


def _decode(data: bytes) -> Job:
    try:
        return _DECODER.decode(data)
    except msgspec.MsgspecError as error:
        raise F1Error(Code.DATA_CORRUPTION, f"the row of a schema change cannot be read: {error}") from error


class JobStore:
    """Reads and writes these rows."""

    def __init__(self, client: StorageClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def running(self, database: str) -> JobRow | None:
        """Return the change of a database that has not ended, if there is one."""
        return _row_of((await self._client.read([job_key(database)])).versions[0])

    async def way_back(self, database: str) -> tuple[frozenset[int], Precondition]:
        """Return the columns whose values the change that runs may not lose, and what holds as long as that is so.

        Those that were there before it, until it begins to remove data. What is expected may fail to hold for other
        reasons. Raises ABORTED if no change runs.
        """
        row = await self.running(database)
        if row is None:
            raise F1Error(Code.ABORTED, "the change of the schema has ended meanwhile; run it again")
        kept = frozenset[int]()
        if not row.job.no_return:
            tables = decode_schema(row.job.base, 0).tables
            kept = frozenset(c.id for t in tables for c in t.columns if c.state is ElementState.PUBLIC)
        return kept, row.unchanged

    async def all_running(self) -> list[JobRow]:
        """Return the changes of all databases that have not ended."""
        found = await self._client.read([], [_range_of("schema_job")])
        return [JobRow(_decode(row.value), row.ts) for row in found.ranges[0]]

    async def ended(self, database: str, number: int) -> Job | None:
        """Return a change that has ended."""
        version = (await self._client.read([log_key(database, number)])).versions[0]
        return None if version is None or version.value is None else _decode(version.value)

    async def log(self, database: str) -> list[Job]:
        """Return the changes of a database that have ended, oldest first."""
        found = await self._client.read([], [_range_of("schema_job_log", database)])
        return [_decode(row.value) for row in found.ranges[0]]

    async def next_number(self, database: str) -> int:
        """Return a number above those of all changes of a database."""
        running = await self.running(database)
        return _number_after(await self.log(database), running)

    async def put(self, row: JobRow, job: Job) -> JobRow:
        """Write a job anew. Raises ABORTED if the row is not as it was read; an ambiguous end is looked up."""
        writes = [Write(job_key(job.database), encode_job(job))]
        commit_id = self._client.new_commit_id(writes[0].key)
        try:
            ts = await self._client.commit(writes, [row.unchanged], commit_id=commit_id)
        except F1Error as error:
            if not error.ambiguous:
                raise
            decision = await self._client.outcome(commit_id, timeout_s=20.0)
            if not decision.committed:
                raise F1Error(Code.ABORTED, "the job was not written; read it again", retryable=True) from error
            ts = decision.ts
        return JobRow(job, ts)

    async def end(self, row: JobRow, job: Job) -> None:
        """Move a job that has ended to the log. Raises as :meth:`put`."""
        writes = [Write(job_key(job.database), None), *_logged(job, await self.log(job.database))]
        await self._client.commit(writes, [row.unchanged])

    async def running_and_log(self, database: str) -> tuple[JobRow | None, list[Job]]:
        """Return both by one read: the sooner a commit that expects the row follows, the rarer its owner is first."""
        found = await self._client.read([job_key(database)], [_range_of("schema_job_log", database)])
        return _row_of(found.versions[0]), [_decode(row.value) for row in found.ranges[0]]

    async def change(self, database: str, number: int, edit: Callable[[Job], Job]) -> Job:
        """Change the row of a running job, whoever owns it. Raises NOT_FOUND, what ``edit`` raises, ABORTED."""
        for _ in range(_ATTEMPTS):
            row = await self.running(database)
            if row is None or row.job.number != number:
                ended = await self.ended(database, number)
                state = "is not known" if ended is None else f"has ended: it is {ended.state}"
                raise F1Error(Code.NOT_FOUND, f"schema change {number} of {database} {state}")
            try:
                return (await self.put(row, msgspec.structs.replace(edit(row.job), owned_ts=row.owned_ts))).job
            except F1Error as error:
                if error.code is not Code.ABORTED:
                    raise
        raise F1Error(Code.ABORTED, "the job changes all the time; retry")
