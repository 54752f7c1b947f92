"""Schema changes as users ask for them: DDL statements, or sources that describe a whole database.

A change becomes a job (:mod:`f1server.schemachange.jobs`), which the server that was asked carries out, and any other
when that one dies. The job's owner looks at the schema as it is, plans the next step towards the goal, waits until
every server has the current version, then does the work on data that is due, or writes the next version; and again,
until nothing is left to do (schema-change paper, sections 3 and 4). So there is nothing to be resumed but the job's
row: the schema itself says how far it is. If rows do not honour what is new, or somebody cancels the change, the same
steps lead back, unless data of dropped elements may be gone already.

DDL returns when the job has ended: then every server that can still commit or answer has the new schema.

Statements about roles do not wait for a job that runs (:mod:`f1server.schemachange.rolechanges`).
"""

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from f1common.clock import Clock
from f1common.errors import Code, F1Error
from f1server.access.rights import EVERYBODY, Caller, rights_of
from f1server.catalog.alterroles import with_creator
from f1server.catalog.codec import decode_schema, encode_schema
from f1server.catalog.compile import compile_statements
from f1server.catalog.dropped import Dropped
from f1server.catalog.ids import NewId
from f1server.catalog.leases import SchemaLeases
from f1server.catalog.readable import readable_from
from f1server.catalog.rolestatements import RoleStatement
from f1server.catalog.schema import Schema
from f1server.catalog.statements import CreateDatabase, DdlStatement, DropDatabase, SchemaStatement
from f1server.catalog.store import DEFAULT_DATABASE, SchemaStore, Sleep, Stored
from f1server.schemachange.jobs.convergence import LONGEST_POLL_S, POLL_S, Nudge, converge
from f1server.schemachange.jobs.course import as_ended, place_of, taken_by, towards
from f1server.schemachange.jobs.datawork import DataWork
from f1server.schemachange.jobs.jobs import Job, JobRow, JobState, JobStore, Order, encode_job, job_key, log_key
from f1server.schemachange.jobs.ownership import GaveUp, Lost, Outdated, Owner, Paused, Turned
from f1server.schemachange.jobs.patience import Patience
from f1server.schemachange.jobs.progress import Progress
from f1server.schemachange.jobs.removals import Removals
from f1server.schemachange.jobs.wording import but_for, refuse_behind_paused, title_of, under_way
from f1server.schemachange.rolechanges import RoleChange, Waits, change_roles
from f1server.schemachange.steps.diff import Element, Step, dropped, losing, plan_steps, summary
from f1server.schemachange.steps.edits import advance
from f1server.schemachange.steps.moves import mirrored
from f1server.schemachange.steps.plan import Task
from f1server.schemachange.steps.sources import Sources
from f1server.schemachange.steps.states import Work
from f1server.schemachange.work.dealing import PASSING
from spanstore.client import Write
from spanstore.client.values import Precondition

__all__ = ["Applied", "DataWork", "Nudge", "SchemaChanges"]

LOG = logging.getLogger(__name__)

_KEEPER_S = 2.0
_REPLICATE_ROUNDS = 15
_REMOVAL_ROUNDS = 5
_RETRY_S = 0.5
_PASSING = PASSING | {Code.SNAPSHOT_TOO_OLD}
"""Errors after which work on data is simply tried again."""
_BROKEN = {Code.FAILED_PRECONDITION, Code.ALREADY_EXISTS}
"""What is said if rows break a constraint."""


@dataclass(frozen=True, slots=True)
class Applied:
    """What a change did, or would do."""

    schema: Schema
    steps: tuple[Step, ...]


class SchemaChanges:
    """Makes changes, for one server."""

    def __init__(
        self,
        store: SchemaStore,
        jobs: JobStore,
        leases: SchemaLeases,
        clock: Clock,
        *,
        work: DataWork,
        nudge: Nudge,
        try_expressions: Callable[[Schema, Schema], None] = lambda old, new: None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """Take the parts. ``try_expressions`` raises for what of the second schema nobody could evaluate."""
        self._store = store
        self._jobs = jobs
        self._leases = leases
        self._clock = clock
        self._work = work
        self._nudge = nudge
        self._try = try_expressions
        self._sleep = sleep
        self._mine: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._removals = Removals(store.dropped, leases.server, clock, self._purge, sleep)

    async def apply_ddl(
        self,
        database: str,
        statements: Sequence[DdlStatement],
        caller: Caller = EVERYBODY,
        *,
        change_id: bytes = b"",
    ) -> Applied:
        """Execute statements for a role; neighbours that concern one schema are one change, which ``change_id`` names.

        Raises F1Error with the place in the source: ALREADY_EXISTS, NOT_FOUND, INVALID_ARGUMENT, FAILED_PRECONDITION;
        PERMISSION_DENIED, and what storage raises.
        """
        if any(isinstance(s, CreateDatabase | DropDatabase) for s in statements):
            await self._allow_databases(database, caller)
        done = Applied(Schema(database), ())
        batch: list[SchemaStatement] = []
        for statement in statements:
            if isinstance(statement, CreateDatabase | DropDatabase):
                done = await self._statements(database, batch, done, caller, change_id)
                batch = []
                await self._database_statement(statement)
            else:
                batch.append(statement)
        return await self._statements(database, batch, done, caller, change_id)

    async def _statements(
        self, database: str, batch: Sequence[SchemaStatement], done: Applied, caller: Caller, change_id: bytes
    ) -> Applied:
        if not batch:
            return done
        what = "; ".join(map(title_of, batch))

        def compiled(schema: Schema, new_id: NewId) -> Schema:
            rights = rights_of(schema, caller)
            rights.require_ddl(batch)
            return with_creator(schema, compile_statements(schema, batch, new_id), rights.creator)

        def allow(schema: Schema) -> None:
            rights_of(schema, caller).require_ddl(batch)

        roles = [statement for statement in batch if isinstance(statement, RoleStatement)]
        beside = None
        if len(roles) == len(batch):
            beside = RoleChange(database, roles, allow, what, self._leases.server, change_id)
        now = await self._change(database, compiled, what, change_id=change_id, beside=beside)
        return Applied(now.schema, (*done.steps, *now.steps))

    async def _allow_databases(self, database: str, caller: Caller) -> None:
        """Raise PERMISSION_DENIED unless the role is a superuser of the default database: those are of all."""
        rights = rights_of((await self._leases.current(database)).schema, caller)
        if rights.role_id:
            rights.require_superuser("a statement about databases")
            if database != DEFAULT_DATABASE:
                text = f"databases are made and dropped by superusers of the database {DEFAULT_DATABASE}"
                raise F1Error(Code.PERMISSION_DENIED, text)

    async def apply_sources(
        self,
        database: str,
        sql_files: Sequence[tuple[str, str]],
        proto_files: Sequence[tuple[str, str]],
        *,
        dry_run: bool = False,
        allow_data_loss: bool = False,
        caller: Caller = EVERYBODY,
        change_id: bytes = b"",
    ) -> Applied:
        """Make the database what (name, text) sources say, and drop what they lack; ``dry_run``: only say how.

        Raises as :meth:`apply_ddl`, FAILED_PRECONDITION also if rows would be lost without ``allow_data_loss``.
        """
        sources = Sources(sql_files, proto_files)
        rights_of((await self._store.load(database)).schema, caller).require_sources(sources.state_roles)
        current, planned = await self._planned(database, sources, waits=not dry_run)
        if dry_run:
            return Applied(current, tuple(planned))
        lost = None if allow_data_loss else dropped(planned)
        if lost is not None:
            await self._refuse_loss(current, lost)

        def compiled(schema: Schema, new_id: NewId) -> Schema:
            rights = rights_of(schema, caller)
            rights.require_sources(sources.state_roles)
            return with_creator(schema, sources.wanted(schema, new_id), rights.creator)

        return await self._change(database, compiled, may_drop=lost, change_id=change_id)

    async def _planned(self, database: str, sources: Sources, *, waits: bool) -> tuple[Schema, list[Step]]:
        """Plan what sources take. A change that runs is waited for: what it has half done is no ground to plan on."""
        self._leases.release_task()
        patience = Patience()
        while True:
            number = await self._jobs.next_number(database)
            running = await self._jobs.running(database)
            if running is not None and waits:
                await patience.behind(running.job, self._outcome(running.job, refuse_behind_paused))
                continue
            current = (await self._store.load(database)).schema
            try:
                draft = sources.draft(current)
                self._try(current, draft)
                return current, plan_steps(current, draft)
            except F1Error as error:
                if await self._jobs.next_number(database) == number:
                    raise under_way(running.job, error) if running is not None else error from None

    async def _refuse_loss(self, schema: Schema, elements: Sequence[Element]) -> None:
        full = []
        for element in elements:
            table = schema.by_id[element.table_id]
            column = table.by_id[element.id] if element.kind == "column" else None
            if await self._work.has_rows(schema, table, column):
                full.append(str(element))
        if full:
            raise F1Error(
                Code.FAILED_PRECONDITION,
                f"the sources lack what holds data: {', '.join(full)}; --allow-data-loss drops it",
            )

    # ------------------------------------------------------------------ databases

    async def _database_statement(self, statement: CreateDatabase | DropDatabase) -> None:
        if isinstance(statement, CreateDatabase):
            await self._store.create_database(statement.name, exists_ok=statement.if_not_exists)
            return
        if statement.name == DEFAULT_DATABASE:
            raise statement.at.error(Code.INVALID_ARGUMENT, f"the database {DEFAULT_DATABASE} always exists")
        self._leases.release_task()
        try:
            await self._store.drop_database(statement.name, self._leases.server)
        except F1Error as error:
            if error.code is Code.NOT_FOUND and statement.if_exists:
                return
            raise
        await self._removals.remove(statement.name)

    async def _purge(self, gone: Dropped) -> None:
        await self._converge(gone.database, gone.version)
        await self._work.purge(gone.schema, gone.schema.tables)

    # ------------------------------------------------------------------ jobs

    async def _change(
        self,
        database: str,
        compiled: Callable[[Schema, NewId], Schema],
        what: str = "",
        *,
        may_drop: Sequence[Element] | None = None,
        change_id: bytes = b"",
        beside: RoleChange | None = None,
    ) -> Applied:
        """Begin a change and return when it has ended. One that runs is waited for, or this goes ``beside`` it.

        ``what`` names it in lists, by default what its steps do. ``may_drop``: the tables and columns that it may drop,
        if they hold no data when nobody can write them any more.
        """
        self._leases.release_task()
        steps: list[Step] = []
        jobs: list[Job] = []

        def begin(schema: Schema, new_id: NewId) -> Write | None:
            wanted = compiled(schema, new_id)
            self._try(schema, wanted)
            goal = mirrored(schema, wanted, new_id)
            steps[:] = plan_steps(schema, goal)
            if not steps:
                return None
            if may_drop is not None and not set(dropped(steps)) <= set(may_drop):
                raise F1Error(Code.ABORTED, "tables or columns were added at the same time; retry")
            created = self._clock.sample().tt.latest
            base, end = encode_schema(schema), encode_schema(goal)
            me = self._leases.server
            title = what or f"sources: {summary(steps)}"
            job = Job(number, database, title, base, end, created, owner=me, epoch=1, change_id=change_id)
            jobs[:] = [replace(job, joint=True, keeps_data=may_drop is not None)]
            return Write(job_key(database), encode_job(jobs[0]))

        await self._store.load(database)
        patience = Patience()
        while True:
            number = await self._jobs.next_number(database)  # first, so that it tells of changes that begin from now on
            running = await self._jobs.running(database)
            if running is not None:
                if (done := await self._beside(running.job, beside, patience)) is not None:
                    return done
                continue
            try:
                stored, ts = await self._store.begin(database, begin, absent=[log_key(database, number)])
            except F1Error as error:
                # What stands against it may be a change that another server has begun, and what that has half done.
                if error.ambiguous or await self._jobs.next_number(database) == number:
                    raise
                continue
            if ts:
                break
            if not steps and await self._jobs.next_number(database) == number:
                return Applied(stored.schema, ())
        self._start(JobRow(jobs[0], ts))
        job = await self._outcome(jobs[0])
        failure = job.failure()
        if failure is not None:
            raise failure
        return Applied((await self._store.load(database)).schema, tuple(steps))

    async def _beside(self, running: Job, change: RoleChange | None, patience: Patience) -> Applied | None:
        """Make a change beside the one that runs if that can be; else return None when that one has ended."""
        why: F1Error | None = None
        if change is not None:
            try:
                made = await change_roles(change, self._store, self._jobs, self._clock, self._converge)
            except Waits as waits:
                why = waits.why
            else:
                return None if made is None else Applied(*made)
        await patience.behind(running, self._outcome(running, lambda job: refuse_behind_paused(job, why)))
        return None

    async def _outcome(self, job: Job, may_wait: Callable[[Job], None] = lambda _: None) -> Job:
        """Return a job when it has ended, if ``may_wait`` raises nothing; carry it out if it is nobody else's."""
        pause = POLL_S
        while True:
            row = await self._jobs.running(job.database)
            if row is None or row.job.number != job.number:
                ended = await self._jobs.ended(job.database, job.number)
                if ended is None:
                    raise F1Error(Code.UNAVAILABLE, f"schema change {job.number} ended long ago, nobody knows how")
                return ended
            may_wait(row.job)
            task = self._mine.get((job.database, job.number)) or await self._take(row)
            if task is not None:
                await asyncio.wait((task,))
                if not task.cancelled() and task.exception() is not None:
                    raise task.exception()  # type: ignore[misc]
            else:
                await self._sleep(pause)
                pause = min(pause * 1.5, LONGEST_POLL_S)

    async def _take(self, row: JobRow) -> "asyncio.Task[None] | None":
        """Begin to carry out a job whose owner is gone; None: it is another's, or paused."""
        job = row.job
        if job.state is JobState.PAUSED or not row.is_left(self._clock.sample().tt.earliest):
            return None
        try:
            row = await self._jobs.put(row, taken_by(self._leases.server, job))
        except F1Error as error:
            if error.code is Code.ABORTED:
                return None
            raise
        LOG.info("schema change %d of %s is carried on here", job.number, job.database)
        return self._start(row)

    def _start(self, row: JobRow) -> "asyncio.Task[None]":
        key = (row.job.database, row.job.number)
        task = asyncio.create_task(self._carry_out(row), name=f"schema change {row.job.number}")
        self._mine[key] = task
        task.add_done_callback(lambda _: self._mine.pop(key, None))
        return task

    async def keep(self) -> None:
        """Carry on what servers that are gone have left, until cancelled; see that schemas have their copies."""
        for rounds in itertools.count():
            await self._sleep(_KEEPER_S)
            try:  # whatever fails in a round, the next one does the rest
                if not rounds % _REPLICATE_ROUNDS and (made := await self._store.replicate()):
                    LOG.info("the schemas of %s have copies now", ", ".join(made))
                if rounds % _REMOVAL_ROUNDS == 1:
                    await self._removals.go_on()
                for row in await self._jobs.all_running():
                    if (row.job.database, row.job.number) not in self._mine:
                        await self._take(row)
            except F1Error as error:
                LOG.debug("schema changes cannot be looked at: %s", error)

    async def close(self) -> None:
        """Leave what runs here to others."""
        tasks = list(self._mine.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, self._removals.close(), return_exceptions=True)

    async def order(self, database: str, number: int, order: Order) -> Job:
        """Have a change paused or cancelled. Raises NOT_FOUND, FAILED_PRECONDITION if it only goes on."""

        def edit(job: Job) -> Job:
            if order is Order.CANCEL and job.no_return:
                text = f"schema change {number} removes what was dropped: it can no longer be cancelled"
                raise F1Error(Code.FAILED_PRECONDITION, text)
            if job.state is JobState.PAUSED:
                return job if order is Order.PAUSE else replace(job, state=JobState.UNDOING, reorganised=0, owner="")
            # Who has cancelled it has been promised that it goes back.
            return job if job.order is Order.CANCEL else replace(job, order=order)

        return await self._jobs.change(database, number, edit)

    async def resume(self, database: str, number: int) -> Job:
        """Have a change go on that is paused, or is to be. Raises NOT_FOUND, FAILED_PRECONDITION."""

        def edit(job: Job) -> Job:
            if job.order is Order.PAUSE:
                return replace(job, order=Order.NONE)
            if job.state is not JobState.PAUSED:
                does = "goes back" if job.order or job.state is JobState.UNDOING else f"is {job.state}"
                raise F1Error(Code.FAILED_PRECONDITION, f"schema change {number} {does}, it is not paused")
            return replace(job, state=JobState.UNDOING if job.back else JobState.RUNNING, owner="")

        return await self._jobs.change(database, number, edit)

    async def follow(self, database: str, change_id: bytes) -> tuple[Job, Applied]:
        """Return the change that a client asked for under this name, anywhere, when it has ended, and what it did.

        Raises the error that it failed with, whose details have ``schema_change``; NOT_FOUND if nobody knows it.
        """
        found = [job for job in await self.listed(database) if change_id and job.change_id == change_id]
        if not found:
            raise F1Error(
                Code.NOT_FOUND, f"no schema change of {database} has this name; it was not begun, or long ago"
            )
        self._leases.release_task()
        job = await self._outcome(found[-1])
        # What was changed beside another change is noted as ended before all servers have it.
        await self._converge(database, decode_schema(job.goal).version)
        failure = job.failure()
        if failure is not None:
            details = {**failure.details, "schema_change": str(job.number)}
            raise F1Error(failure.code, failure.message, retryable=False, details=details)
        steps = plan_steps(decode_schema(job.base, 0), decode_schema(job.goal, 0))
        return job, Applied((await self._store.load(database)).schema, tuple(steps))

    async def listed(self, database: str) -> list[Job]:
        """Return the changes of a database, oldest first: those that have ended, and the one that runs."""
        running = await self._jobs.running(database)
        found = [*await self._jobs.log(database), *([running.job] if running else [])]
        return sorted(found, key=lambda job: job.number)

    # ------------------------------------------------------------------ carrying out

    async def _carry_out(self, row: JobRow) -> None:
        """Bring a job to its end, or leave it to others."""
        owner = Owner(self._jobs, row)
        try:
            while not await self._try_to_end(owner):
                pass
        except (Lost, Paused):
            return

    async def _try_to_end(self, owner: Owner) -> bool:
        """Take steps to the end; False: roles were changed meanwhile, so look again. Raises Lost, Paused."""
        beat = asyncio.create_task(owner.beat(), name="owner of a schema change")
        try:
            end = await self._drive(owner)
        finally:
            beat.cancel()
            await asyncio.gather(beat, return_exceptions=True)
        try:
            await self._finish(owner, end)
        except Outdated:
            return False
        return True

    async def _drive(self, owner: Owner) -> Job:
        """Take steps until there are none left; return the job as it ended. Raises Lost, Paused."""
        while True:
            try:
                if await self._step(owner):
                    return as_ended(owner.job)
            except Turned:
                LOG.info("schema change %d is taken back", owner.job.number)
            except Outdated:
                LOG.info("schema change %d goes on with other roles", owner.job.number)
            except F1Error as error:
                try:
                    await self._failed(owner, error)
                except GaveUp as given_up:
                    code, message = given_up.args
                    return replace(owner.job, state=JobState.FAILED, error_code=code, error=message)

    async def _step(self, owner: Owner) -> bool:
        """Do what comes next; True if nothing is left to do."""
        await owner.obey()
        job = owner.job
        schema = (await self._store.load(job.database)).schema
        goal = await towards(owner, schema)
        steps = plan_steps(schema, goal)
        owner.place = place_of(job, len(steps))
        owner.step = f"waits until all servers have version {schema.version}"
        await self._converge(job.database, schema.version, owner)
        if steps and not steps[0].edits:
            if job.reorganised != schema.elements_version:
                await self._reorganise(owner, schema, steps[0].tasks)
            steps = steps[1:]
        if not steps:
            # If roles were changed since, not all servers have the version that they were changed in.
            return owner.job.same_ends(job)
        owner.place = place_of(job, len(steps))
        owner.step = f"writes version {schema.version + 1}"
        if steps[0].final and job.state is not JobState.UNDOING:
            await owner.pass_no_return()
        await self._write(owner, job, schema, steps[0])
        return False

    async def _write(self, owner: Owner, planned: Job, planned_under: Schema, step: Step) -> Stored:
        def next_schema(schema: Schema, _: NewId) -> Schema:
            if schema.version != planned_under.version:
                raise Outdated
            now_us = self._clock.sample().tt.latest
            back = planned.state is JobState.UNDOING
            return readable_from(schema, advance(schema, step.edits, back=back), now_us)

        async def fence(_: Schema, __: Schema) -> tuple[Sequence[Write], Sequence[Precondition]]:
            return (), (await owner.fence(planned),)

        stored, _ = await self._store.write(owner.job.database, next_schema, beside=fence)
        LOG.info("schema change %d wrote version %d: %s", owner.job.number, stored.schema.version, "; ".join(step.what))
        return stored

    async def _reorganise(self, owner: Owner, schema: Schema, tasks: Sequence[Task[Element]]) -> None:
        """Do the work on data. What may fail comes first; from the first removal on there is no way back."""
        began_us = self._clock.sample().boot_us
        watch = Progress(owner, self._clock)
        careful = [task for task in tasks if task.work is not Work.REMOVE]
        removals = [task for task in tasks if task.work is Work.REMOVE]
        await self._work.foresee(schema, tasks, watch)
        if careful:
            owner.step = "fills and validates: " + ", ".join(str(task.element) for task in careful)
            await self._work.run(schema, careful, watch)
            owner.step = "verifies: " + ", ".join(str(task.element) for task in careful)
            await self._work.verify(schema, careful, watch)
        if removals:
            if owner.job.state is not JobState.UNDOING:
                if owner.job.keeps_data and not owner.job.no_return:
                    owner.step = "sees that no data are lost"
                    await self._refuse_loss(schema, losing(removals))
                await owner.pass_no_return()
            owner.step = "removes: " + ", ".join(str(task.element) for task in removals)
            await self._work.run(schema, removals, watch)
        watch.end()
        await owner.update(
            reorganised=schema.elements_version,
            worked_rows=owner.job.worked_rows + watch.worked,
            worked_ms=owner.job.worked_ms + (self._clock.sample().boot_us - began_us) // 1000,
        )
        await self._work.forget(owner.job.database)

    async def _failed(self, owner: Owner, error: F1Error) -> None:
        """Decide what an error means: try again, go back, or give up. Raises Lost."""
        job = owner.job
        if error.retryable or error.ambiguous or error.code in _PASSING:
            LOG.warning("schema change %d waits: %s", job.number, error)
            owner.step = f"tries again: {error.message}"
            await self._sleep(_RETRY_S)
            return
        LOG.warning("schema change %d fails: %s", job.number, error)
        back = job.state is JobState.UNDOING
        if back and not job.error_code and error.code is not Code.NOT_FOUND:
            # Rows break a constraint that was dropped and is to return (:mod:`f1server.schemachange.steps.plan`).
            text = f"it could not be taken back, so it went on: {error.message}"
            await owner.update(state=JobState.RUNNING, reorganised=0, error=text)
            return
        if back and not job.gives_way and error.code in _BROKEN:
            why = error.message.partition("; nothing")[0]
            text = but_for(job.error, f"what it had dropped stays dropped, and need not be dropped again: {why}")
            await owner.update(gives_way=True, reorganised=0, error=text)
            return
        if back or job.no_return or error.code is Code.NOT_FOUND:
            message = job.error if job.error_code else error.message
            if back:
                message += f" (and it was not taken back wholly: {error.message})"
            raise GaveUp(job.error_code or error.code.value, message) from error
        await owner.update(state=JobState.UNDOING, reorganised=0, error_code=error.code.value, error=error.message)

    async def _finish(self, owner: Owner, end: Job) -> None:
        """Move the row to the log. Raises Lost, and Outdated if roles were changed since it came to its end."""
        ended = replace(end, step="", order=Order.NONE, ended_ts=self._clock.sample().tt.latest)
        while True:
            if not owner.job.same_ends(end):
                raise Outdated
            try:
                await self._work.forget(end.database)
                await self._jobs.end(owner.row, ended)
                return
            except F1Error as error:
                if error.code not in _PASSING and not error.ambiguous:
                    raise
            await self._sleep(POLL_S)
            await owner.look()

    # ------------------------------------------------------------------ other servers

    async def _converge(self, database: str, version: int, owner: Owner | None = None) -> None:
        """Wait until nobody can commit under a version below ``version`` any more. Raises as ``owner`` obeys."""
        parts = self._store, self._leases, self._clock, self._nudge, self._sleep
        await converge(*parts, database=database, version=version, owner=owner)
