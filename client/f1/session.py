"""What a connection says to f1servers, and the one place that knows when something may be said twice.

* Reads, and statements of optimistic transactions, change nothing at a server: they are sent again elsewhere at will.
* A commit has an id and is sent to one server once. If the client loses touch with that server it asks any server for
  the outcome, and the answer ends the commit: it happened, or it never will, and then it is sent again under a new id.
  So is a statement that is a transaction by itself, with which its commit goes.
* DDL is sent again only if it certainly did nothing.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from google.protobuf.message import Message

from f1.metadata import Metadata
from f1.newrows import NewRows
from f1.servers import Resend, Server, Servers, ends_within
from f1common.errors import Code, F1Error, check
from f1common.ids import new_id
from f1common.pb import f1_pb2 as pb
from f1common.rpc.backoff import Backoff
from f1common.rpc.deadlines import Deadline

T = TypeVar("T")

FIRST_ANSWER_BYTES = 4 << 20
NEXT_ANSWER_BYTES = 8 << 20

# How long a client goes on asking what became of a commit after the time for the commit itself is over.
_FOLLOW_S = 60.0
"""How long a server is asked for the end of a schema change before it is asked again whether one runs."""
_CHANGE_GRACE_S = 5.0
"""How long somebody is asked for a schema change that nobody knows."""
_OUTCOME_GRACE_S = 20.0
_WAITS_BEHIND = "waits_behind"
"""The detail of an error that says behind which schema change one waits that was not begun."""
_BEHIND_S = 3.0
"""How long a server may go on with an older version of the schema than another one has answered with."""
_PAST_SCHEMAS = 8
SMALL = 16
"""Rows of a request that may share its message with others."""
_ELSEWHERE = frozenset({Code.UNAVAILABLE, Code.OVERLOADED, Code.NOT_LEADER, Code.WRONG_RANGE})


@dataclass(frozen=True, slots=True)
class Committed:
    """When a transaction committed, in microseconds since the Unix epoch; 0: it had nothing to commit."""

    ts: int
    rows_affected: int


class _Name(NamedTuple):
    """What names a commit, and how old its transaction is."""

    commit_id: bytes
    created_ts: int
    priority_ts: int


class Session:
    """One database of one cluster, for any number of connections. Lives on one event loop."""

    def __init__(self, servers: Servers, database: str, rng: random.Random, timeout_s: float) -> None:
        self.servers = servers
        self.database = database
        self.rng = rng
        self.timeout_s = timeout_s
        self.message_classes: dict[str, type[Message]] = {}
        self._knows_insert_rows = True
        self._metadata: Metadata | None = None
        self._reading_metadata: asyncio.Task[Metadata] | None = None
        self._past: dict[int, Metadata] = {}

    def deadline(self, timeout_s: float | None = None) -> Deadline:
        """Return the deadline of a request that begins now."""
        return Deadline.after(self.timeout_s if timeout_s is None else timeout_s)

    def backoff(self) -> Backoff:
        """Return the waits between two tries of something that failed."""
        return Backoff(5, 500, 2, self.rng)

    def _request(self) -> pb.Request:
        return pb.Request(database=self.database)

    # ------------------------------------------------------------------------------------------------ statements

    async def execute(
        self, execute: pb.Execute, deadline: Deadline, resend: Resend, server: Server | None = None
    ) -> tuple[pb.ExecuteReply, Server]:
        """Run a statement; ``server`` is where it must run, if that matters."""
        if not execute.max_bytes:
            execute.max_bytes = FIRST_ANSWER_BYTES

        def make() -> pb.Request:
            request = self._request()
            request.execute.CopyFrom(execute)
            return request

        response, where = await self._send(make, deadline, resend, server)
        self._notice_version(response.execute.schema_version)
        return response.execute, where

    async def _send(
        self,
        make: Callable[[], pb.Request],
        deadline: Deadline,
        resend: Resend,
        server: Server | None,
        *,
        small: bool = False,
    ) -> tuple[pb.Response, Server]:
        if server is not None:
            return await server.call(make(), deadline), server
        return await self.servers.call(make, deadline, resend, small=small)

    async def fetch(self, server: Server, cursor: bytes, deadline: Deadline) -> pb.FetchReply:
        """Return more rows of a result. The cursor lives at ``server`` alone."""
        request = self._request()
        request.fetch.cursor = cursor
        request.fetch.max_bytes = NEXT_ANSWER_BYTES
        return (await server.call(request, deadline)).fetch

    async def close_cursor(self, server: Server, cursor: bytes) -> None:
        """Tell the server that the rest is not wanted. A server that cannot be told forgets by itself."""
        request = self._request()
        request.close_cursor.cursor = cursor
        try:
            await server.call(request, Deadline.after(1.0))
        except F1Error:
            return

    async def read(
        self, read: pb.Read, deadline: Deadline, server: Server | None = None, *, small: bool = False
    ) -> pb.ReadReply:
        """Read rows of any tables in one round; ``small``: a few by their keys."""

        def make() -> pb.Request:
            request = self._request()
            request.read.CopyFrom(read)
            return request

        response, _ = await self._send(make, deadline, Resend.ALWAYS, server, small=small)
        check(len(response.read.results) == len(read.reads), "a server answers every read of a request")
        self._notice_version(response.read.schema_version)
        return response.read

    # ------------------------------------------------------------------------------------------------ commits

    async def commit(
        self,
        writes: Sequence[pb.LogicalWrite],
        read_set: Sequence[pb.ReadSetEntry],
        read_ts: int,
        *,
        priority_ts: int = 0,
        schemas: Sequence[int] = (),
        deadline: Deadline,
    ) -> Committed:
        """Commit exactly once. Raises F1Error: ABORTED and others if nothing was written, UNKNOWN_OUTCOME."""

        def make(name: _Name) -> pb.Request:
            request = self._request()
            commit = request.commit
            commit.writes.extend(writes)
            commit.read_set.extend(read_set)
            commit.read_ts = read_ts
            commit.schemas.extend(schemas)
            commit.commit_id, commit.created_ts, commit.priority_ts = name
            return request

        return await self._commit_once(make, lambda: writes[0], len(writes), priority_ts, deadline)

    async def insert_rows(self, new: NewRows, *, priority_ts: int = 0, deadline: Deadline) -> Committed:
        """Insert rows in a transaction of their own, exactly once, as :meth:`commit` does it."""
        arrow = b""

        def make(name: _Name) -> pb.Request:
            nonlocal arrow
            arrow = arrow or new.arrow()
            request = self._request()
            insert = request.insert_rows
            insert.table, insert.arrow, insert.schema_version = new.table, arrow, new.schema_version
            insert.commit_id, insert.created_ts, insert.priority_ts = name
            return request

        if self._knows_insert_rows:
            try:
                return await self._commit_once(make, new.first, len(new), priority_ts, deadline)
            except F1Error as error:
                if error.code is not Code.INVALID_ARGUMENT or "unknown kind" not in error.message:
                    raise
                self._knows_insert_rows = False  # an older server: nothing was written
        return await self.commit(new.writes(), (), 0, priority_ts=priority_ts, deadline=deadline)

    async def execute_alone(
        self, execute: pb.Execute, *, priority_ts: int = 0, deadline: Deadline
    ) -> tuple[pb.ExecuteReply, Server]:
        """Run a statement that is all of an optimistic transaction, and commit it if the server can, exactly once.

        If the answer has no ``commit_ts``, nothing was committed, and it is that of any statement. Raises F1Error as
        :meth:`commit`.
        """
        execute.max_bytes = execute.max_bytes or FIRST_ANSWER_BYTES

        def make(name: _Name) -> pb.Request:
            request = self._request()
            request.execute.CopyFrom(execute)
            request.execute.commit_id, request.execute.created_ts, request.execute.priority_ts = name
            return request

        def question() -> pb.Outcome:
            return pb.Outcome(statement=pb.Execute(sql=execute.sql, params=execute.params))

        response, outcome, server = await self._once(make, question, 1, priority_ts, deadline)
        if response is None:
            reply = pb.ExecuteReply(tag=outcome.tag, rows_affected=1, commit_ts=outcome.commit_ts)
        else:
            reply = response.execute
            self._notice_version(reply.schema_version)
        return reply, server

    async def _commit_once(
        self,
        make: Callable[[_Name], pb.Request],
        first: Callable[[], pb.LogicalWrite],
        rows: int,
        priority_ts: int,
        deadline: Deadline,
    ) -> Committed:
        """Send a request that commits until it certainly did, or did not; ``first``: the write that names it."""
        response, outcome, _ = await self._once(
            make, lambda: pb.Outcome(first_write=first()), rows, priority_ts, deadline
        )
        if response is None:
            return Committed(outcome.commit_ts, rows)
        reply: pb.CommitReply = getattr(response, str(response.WhichOneof("body")))
        return Committed(reply.commit_ts, reply.rows_affected)

    async def _once(
        self,
        make: Callable[[_Name], pb.Request],
        question: Callable[[], pb.Outcome],
        rows: int,
        priority_ts: int,
        deadline: Deadline,
    ) -> tuple[pb.Response | None, pb.OutcomeReply, Server]:
        """Send a request until it was certainly carried out, or not; ``question``: how to ask what became of it.

        Returns the answer, or None if it was lost: then what became of the commit, which happened.
        """
        backoff = self.backoff()
        lost: Server | None = None
        while True:
            created_ts = self.servers.now_us()
            priority_ts = priority_ts or created_ts
            name = _Name(new_id(self.rng), created_ts, priority_ts)
            request = make(name)
            server = self.servers.pick([lost] if lost is not None else [], small=rows <= SMALL)
            try:
                return await server.call(request, deadline), pb.OutcomeReply(), server
            except F1Error as error:
                lost = server
                if error.ambiguous:
                    outcome = await self._outcome(name, question(), deadline, server, error)
                    if outcome.committed:
                        return None, outcome, server
                elif error.code not in _ELSEWHERE:
                    raise
                delay_s = backoff.next_s()
                if ends_within(deadline, delay_s):
                    raise _not_committed(error) from error
            await asyncio.sleep(delay_s)

    async def _outcome(
        self, name: _Name, question: pb.Outcome, deadline: Deadline, lost: Server, cause: F1Error
    ) -> pb.OutcomeReply:
        """Ask until somebody knows what became of a commit; after that it is decided for ever."""
        question.commit_id, question.created_ts = name.commit_id, name.created_ts

        def make() -> pb.Request:
            request = self._request()
            request.outcome.CopyFrom(question)
            return request

        patience = Deadline.after(_OUTCOME_GRACE_S + (deadline.remaining_s() or 0.0))
        backoff = self.backoff()
        while True:
            try:
                response, _ = await self.servers.call(make, patience, Resend.ALWAYS, avoid=lost)
                return response.outcome
            except F1Error as error:
                delay_s = backoff.next_s()
                if ends_within(patience, delay_s) or not (error.retryable or error.ambiguous):
                    text = f"the commit may have happened or not ({cause.message}), and nobody could tell: {error}"
                    details = {"commit_id": name.commit_id.hex(), "created_ts": str(name.created_ts)}
                    raise F1Error(Code.UNKNOWN_OUTCOME, text, details=details) from error
            await asyncio.sleep(delay_s)

    # ------------------------------------------------------------------------------------------------ pessimistic

    async def begin(self, kind: int, priority_ts: int, deadline: Deadline) -> tuple[pb.BeginReply, Server]:
        """Begin a transaction that a server holds. A begin that got lost ends by itself, idle."""

        def make() -> pb.Request:
            request = self._request()
            request.begin.kind = kind  # type: ignore[assignment]
            request.begin.priority_ts = priority_ts
            return request

        response, server = await self.servers.call(make, deadline, Resend.ALWAYS)
        return response.begin, server

    async def end(
        self, server: Server, handle: bytes, writes: Sequence[pb.LogicalWrite], deadline: Deadline, *, commit: bool
    ) -> pb.EndReply:
        """Commit or roll back a transaction that ``server`` holds. Sent once."""
        request = self._request()
        request.end.handle = handle
        request.end.commit = commit
        request.end.writes.extend(writes)
        return (await server.call(request, deadline)).end

    # ------------------------------------------------------------------------------------------------ schema

    def _notice_version(self, version: int) -> None:
        if self._metadata is not None and version > self._metadata.version:
            self._metadata = None

    @property
    def known_version(self) -> int | None:
        """The version of the schema that writes are made with, None if it has not been read."""
        return None if self._metadata is None else self._metadata.version

    def heed(self, error: F1Error) -> None:
        """Forget the schema if writes or reads were refused because they were made with an older one."""
        if error.details.get("conflict") == "schema":
            self.forget_metadata()

    def forget_metadata(self) -> None:
        """Read the schema again before it is used the next time."""
        self._metadata = None

    async def metadata(self, *, fresh: bool = False) -> Metadata:
        """Return the schema of the database; ``fresh``: as a server has it now."""
        if self._metadata is not None and not fresh:
            return self._metadata
        if self._reading_metadata is None or self._reading_metadata.done():
            self._reading_metadata = asyncio.create_task(self._read_metadata(), name="reading the schema")
        return await asyncio.shield(self._reading_metadata)

    async def metadata_since(self, version: int) -> Metadata:
        """Return the schema as a server has it that has this version at least; another one may be a moment behind."""
        metadata = await self.metadata()
        backoff, patience = self.backoff(), Deadline.after(_BEHIND_S)
        while metadata.version < version:
            delay_s = backoff.next_s()
            if ends_within(patience, delay_s):
                break
            await asyncio.sleep(delay_s)
            metadata = await self.metadata(fresh=True)
        return metadata

    async def metadata_at(self, timestamp: int, *, fresh: bool = False) -> Metadata:
        """Return the schema as a snapshot at ``timestamp``, in microseconds since 1970, is read with it.

        Without ``fresh``, perhaps one that has a newer version of before then, of which this client does not know yet.
        """
        if (known := self._past.get(timestamp)) is not None:
            return known
        if not fresh and (newest := await self.metadata()).since <= timestamp:
            return newest
        known = Metadata(await self.show_schema(timestamp=timestamp), of_the_past=True)
        while len(self._past) >= _PAST_SCHEMAS:
            del self._past[next(iter(self._past))]
        self._past[timestamp] = known
        return known

    async def _read_metadata(self) -> Metadata:
        self._metadata = Metadata(await self.show_schema())
        return self._metadata

    async def show_schema(self, *, with_protos: bool = False, timestamp: int = 0) -> pb.ShowSchemaReply:
        """Return the schema as a server has it; ``timestamp``: as a snapshot at that time is read with it."""

        def make() -> pb.Request:
            request = self._request()
            request.show_schema.with_protos = with_protos
            request.show_schema.timestamp = timestamp
            return request

        response, _ = await self.servers.call(make, self.deadline(), Resend.ALWAYS)
        return response.show_schema

    async def apply_schema(self, apply: pb.ApplySchema, timeout_s: float) -> pb.ApplySchemaReply:
        """Make the database what the files describe, or tell what that would take (``dry_run``)."""

        def make() -> pb.Request:
            request = self._request()
            request.apply_schema.CopyFrom(apply)
            return request

        resend = Resend.ALWAYS if apply.dry_run else Resend.UNLESS_AMBIGUOUS
        apply.change_id = b"" if apply.dry_run else new_id(self.rng)
        turn = _Turn(timeout_s)
        try:
            reply = (await turn.comes(lambda deadline: self.servers.call(make, deadline, resend)))[0].apply_schema
        except F1Error as error:
            if apply.dry_run or not _is_unknown(error):
                raise
            followed, _ = await self.follow_change(apply.change_id, error, turn.deadline)
            reply = pb.ApplySchemaReply(steps=followed.steps, version=followed.schema_version)
        if not apply.dry_run:
            self._metadata = None
        return reply

    async def execute_ddl(self, execute: pb.Execute, timeout_s: float) -> tuple[pb.ExecuteReply, Server]:
        """Run a DDL statement; if its server is lost, wait for the end of the schema change through another one.

        Raises what the change fails with; UNKNOWN_OUTCOME if nobody knows how it ended.
        """
        execute.change_id = new_id(self.rng)
        turn = _Turn(timeout_s)
        try:
            answer = await turn.comes(lambda deadline: self.execute(execute, deadline, Resend.UNLESS_AMBIGUOUS))
        except F1Error as error:
            if not _is_unknown(error):
                raise
            followed, server = await self.follow_change(execute.change_id, error, turn.deadline)
            tag = " ".join(followed.jobs[0].what.split()[:2])
            answer = pb.ExecuteReply(tag=tag, schema_version=followed.schema_version), server
        self._metadata = None
        return answer

    async def follow_change(
        self, change_id: bytes, cause: F1Error, deadline: Deadline
    ) -> tuple[pb.SchemaJobsReply, Server]:
        """Wait until a schema change has ended that this client asked for, at any server; ``cause``: why it must ask.

        While a change runs it is waited for beyond ``deadline``. Raises what the change failed with; DEADLINE_EXCEEDED
        if it is paused; UNKNOWN_OUTCOME if nobody knows it, or nobody tells in time.
        """

        def make() -> pb.Request:
            request = self._request()
            request.schema_jobs.order = pb.SchemaJobs.FOLLOW
            request.schema_jobs.change_id = change_id
            return request

        patience = Deadline.after(_CHANGE_GRACE_S)
        backoff = self.backoff()
        asked_last = False
        while True:
            try:
                response, server = await self.servers.call(make, deadline, Resend.ALWAYS)
                return response.schema_jobs, server
            except F1Error as error:
                if "schema_change" in error.details:
                    raise
                if error.code is Code.DEADLINE_EXCEEDED and not asked_last:
                    running = await self._change_that_runs(cause)
                    asked_last = running == 0  # it has just ended, or nobody will ever tell
                    if running is not None:
                        deadline = Deadline.after(_FOLLOW_S)
                delay_s = backoff.next_s()
                # What the lost server has sent may still arrive; a server that cannot ask the storage tier asks again.
                unknown = error.code is Code.NOT_FOUND and not ends_within(patience, delay_s)
                if not (unknown or error.code is Code.DEADLINE_EXCEEDED) or ends_within(deadline, delay_s):
                    behind = await self._change_that_runs(cause) if error.code is Code.NOT_FOUND else None
                    waits = f", and may wait behind schema change {behind}, which runs" if behind else ""
                    what = f"the schema may have changed or not ({cause.message}){waits}"
                    text = f"{what}; look at it before doing it again"
                    raise F1Error(Code.UNKNOWN_OUTCOME, text, details=cause.details) from error
            await asyncio.sleep(delay_s)

    async def _change_that_runs(self, cause: F1Error) -> int | None:
        """Return the number of the schema change that runs, 0 if none does, None if nobody tells.

        Raises DEADLINE_EXCEEDED, ambiguous, if it is paused: who knows for how long.
        """
        try:
            jobs = (await self.schema_jobs(pb.SchemaJobs())).jobs
        except F1Error:
            return None
        for job in jobs:
            if job.state == "paused":
                number = str(job.number)
                text = (
                    f"schema change {number} is paused ({cause.message}): `f1 schema resume {number}` has it go on, "
                    f"`f1 schema cancel {number}` takes it back"
                )
                details = {"schema_change": number}
                raise F1Error(Code.DEADLINE_EXCEEDED, text, retryable=False, ambiguous=True, details=details)
        return max((job.number for job in jobs if job.state in ("running", "undoing")), default=0)

    async def plan_schema(self, plan: pb.PlanSchema, timeout_s: float) -> pb.PlanSchemaReply:
        """Do one step of the plan of a change, at any server. Each may be done again."""

        def make() -> pb.Request:
            request = self._request()
            request.plan_schema.CopyFrom(plan)
            return request

        response, _ = await self.servers.call(make, Deadline.after(timeout_s), Resend.ALWAYS)
        return response.plan_schema

    async def schema_jobs(self, order: pb.SchemaJobs) -> pb.SchemaJobsReply:
        """List the changes of the schema, or give an order about one; each order may be given again."""

        def make() -> pb.Request:
            request = self._request()
            request.schema_jobs.CopyFrom(order)
            return request

        response, _ = await self.servers.call(make, self.deadline(), Resend.ALWAYS)
        return response.schema_jobs

    async def read_changes(self, read: pb.ReadChanges) -> pb.ReadChangesReply:
        """Return change batches in the order of their commits."""

        def make() -> pb.Request:
            request = self._request()
            request.read_changes.CopyFrom(read)
            return request

        response, _ = await self.servers.call(make, self.deadline(), Resend.ALWAYS)
        return response.read_changes

    async def check(self, step: pb.Check, timeout_s: float) -> pb.CheckReply:
        """Do one step of a check of the database, at any server. Each may be done again."""

        def make() -> pb.Request:
            request = self._request()
            request.check.CopyFrom(step)
            return request

        response, _ = await self.servers.call(make, Deadline.after(timeout_s), Resend.ALWAYS)
        return response.check


class _Turn:
    """When a schema change may begin: one at a time runs in a database."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self.deadline = Deadline.after(timeout_s)

    async def comes(self, ask: Callable[[Deadline], Awaitable[T]]) -> T:
        """Ask, and again as long as the answer is that another change is in front and that nothing was begun."""
        while True:
            try:
                return await ask(self.deadline)
            except F1Error as error:
                if _WAITS_BEHIND not in error.details:
                    raise
            self.deadline = Deadline.after(self._timeout_s)


def _is_unknown(error: F1Error) -> bool:
    """Tell whether a schema change may have been begun."""
    return error.ambiguous or error.code is Code.DEADLINE_EXCEEDED


def _not_committed(error: F1Error) -> F1Error:
    text = f"the time is over and nothing was committed; the last try ended with {error}"
    return F1Error(Code.DEADLINE_EXCEEDED, text, retryable=True)
