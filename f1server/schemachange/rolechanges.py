"""Statements about roles beside a schema change that runs or is paused: a version of the schema between two of its own.

Roles and grants have no states and no work on rows, so that nothing of a running change depends on them but the two
schemas in its row: the one that it came from and the one that it leads to, by which its owner plans. One transaction
writes the version with the statements' roles, the row with both schemas after the same statements, and an entry of the
log (docs/adr/0009-roles-change-beside-a-running-change.md). So whatever becomes of the change, and whoever carries it
on, what was granted and revoked meanwhile stays.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from msgspec.structs import replace as with_changes

from f1common.clock import Clock
from f1common.errors import Code, F1Error, check
from f1server.catalog.alterroles import alter_roles
from f1server.catalog.carriedroles import Clash, Made, carried, same_elements
from f1server.catalog.codec import decode_schema, encode_schema
from f1server.catalog.ids import NewId
from f1server.catalog.rolestatements import RoleStatement
from f1server.catalog.schema import Schema
from f1server.catalog.store import SchemaStore
from f1server.schemachange.jobs.convergence import Converge
from f1server.schemachange.jobs.jobs import Job, JobState, JobStore, with_ended
from f1server.schemachange.jobs.ownership import Outdated
from f1server.schemachange.steps.diff import Step, plan_steps
from spanstore.client import Write
from spanstore.client.values import Precondition

__all__ = ["RoleChange", "Waits", "change_roles"]

_AFTERWARDS = frozenset({Code.NOT_FOUND, Code.ALREADY_EXISTS, Code.FAILED_PRECONDITION})
"""Errors of statements that may be right when the change that runs has ended."""
_DRAFT_ID = 1 << 30


class Waits(Exception):
    """The statements have to wait for the change that runs. ``why``: what stands against them now; None: the change."""

    def __init__(self, why: F1Error | None = None) -> None:
        super().__init__()
        self.why = why


class _Ended(Exception):
    """No change runs any more."""


class _Nothing(Exception):
    """Neither the schema nor the change would be another one."""


class _NotNow(Exception):
    """The statements are wrong for the schema as it is."""

    def __init__(self, why: F1Error) -> None:
        super().__init__()
        self.why = why


@dataclass(frozen=True, slots=True)
class RoleChange:
    """Statements about roles only. ``allow`` raises unless who asks may make them under a schema."""

    database: str
    statements: Sequence[RoleStatement]
    allow: Callable[[Schema], object]
    what: str
    server: str
    change_id: bytes = b""


async def change_roles(
    change: RoleChange, store: SchemaStore, jobs: JobStore, clock: Clock, converge: Converge
) -> tuple[Schema, tuple[Step, ...]] | None:
    """Make a change of roles beside the one that runs; return when all servers have it. None: none runs any more.

    Raises Waits, the errors of the statements that would be the same when that one has ended, and what storage raises.
    """
    while True:
        stored = await store.load(change.database)
        # Whoever finds nothing to do has to know as well that nobody works under an older version.
        await converge(change.database, stored.schema.version)
        attempt = _Attempt(change, stored.schema.version, jobs, clock)
        try:
            written, _ = await store.write(change.database, attempt.next_schema, beside=attempt.beside)
        except Outdated:
            continue
        except _Ended:
            return None
        except _Nothing:
            return stored.schema, ()
        except _NotNow as wrong:
            row = await jobs.running(change.database)
            if row is None:
                return None
            if any(_compiles(change.statements, decode_schema(end)) for end in (row.job.goal, row.job.base)):
                raise Waits(wrong.why) from wrong
            raise wrong.why from wrong
        await converge(change.database, written.schema.version)
        return written.schema, attempt.steps


def _compiles(statements: Sequence[RoleStatement], schema: Schema) -> bool:
    try:
        for statement in statements:
            schema = alter_roles(schema, statement, lambda: _DRAFT_ID)
    except F1Error:
        return False
    return True


@dataclass(slots=True)
class _Attempt:
    """One try to write a version, after the one that all servers have."""

    change: RoleChange
    version: int
    jobs: JobStore
    clock: Clock
    made: list[Made] = field(default_factory=list)
    steps: tuple[Step, ...] = ()

    def next_schema(self, schema: Schema, new_id: NewId) -> Schema:
        """Return the schema after the statements. Raises Outdated, and as :func:`change_roles`."""
        if schema.version != self.version:
            raise Outdated
        self.change.allow(schema)
        self.made = []
        after = schema
        try:
            for statement in self.change.statements:
                before, after = after, alter_roles(after, statement, new_id)
                self.made.append(Made(statement, before, after))
        except F1Error as error:
            if error.code in _AFTERWARDS:
                raise _NotNow(error) from error
            raise
        check(same_elements(schema, after), "a statement about roles changes roles and grants")
        self.steps = tuple(plan_steps(schema, after))
        return replace(after, version=schema.version + 1, commit_ts=0, elements_since=schema.elements_version)

    async def beside(self, before: Schema, after: Schema) -> tuple[Sequence[Write], Sequence[Precondition]]:
        """Return what is written with that: the change that runs with other ends, and what there was to log."""
        row, log = await self.jobs.running_and_log(self.change.database)
        if row is None:
            raise _Ended
        job = row.job
        if job.owner and not job.joint:
            raise Waits
        base, goal = decode_schema(job.base), decode_schema(job.goal)
        try:
            ends = carried(self.made, base, ahead=False), carried(self.made, goal, ahead=True)
        except Clash as clash:
            raise Waits from clash
        if not self.steps and ends == (base, goal):
            raise _Nothing
        rewritten = with_changes(job, base=encode_schema(ends[0]), goal=encode_schema(ends[1]))
        return with_ended(row, rewritten, lambda number: self._logged(number, before, after), log)

    def _logged(self, number: int, before: Schema, after: Schema) -> Job:
        change, now = self.change, self.clock.sample().tt.latest
        return Job(
            number,
            change.database,
            change.what,
            encode_schema(before),
            encode_schema(after),
            now,
            state=JobState.DONE,
            owner=change.server,
            ended_ts=now,
            change_id=change.change_id,
        )
