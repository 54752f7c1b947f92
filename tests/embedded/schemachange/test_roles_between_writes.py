"""Roles change before each of the writes of a schema change, one after the other: what it was about to write is old."""

import asyncio

import pytest

from f1common.errors import Code, F1Error
from f1server.catalog.roles import Privilege
from f1server.catalog.schema import Schema
from f1server.schemachange.jobs.jobs import JobState
from f1server.testing.change_faults import between_writes
from f1server.testing.changes import small_batches
from f1server.testing.database import Database, with_database
from tests.embedded.f1server.test_divided_walks import check

TABLES = [
    "CREATE TABLE Above (A INT64 NOT NULL, PRIMARY KEY (A))",
    "CREATE TABLE R (A INT64 NOT NULL, V INT64, U INT64, PRIMARY KEY (A))",
]
CASES = {
    "an index": ("CREATE INDEX X ON R (V)", JobState.DONE),
    "a unique index that fails": ("CREATE UNIQUE INDEX X ON R (V)", JobState.FAILED),
    "a table that moves": ("ALTER TABLE R SET PRIMARY KEY (A) INTERLEAVE IN PARENT Above", JobState.DONE),
    "a column that goes": ("ALTER TABLE R DROP COLUMN U", JobState.DONE),
}
QUICK = "a column that goes"
ROWS = 9


def privileges(schema: Schema, role: str) -> set[Privilege]:
    """Return what a role may do with each form of R."""
    number = schema.roles_by_name[role].id
    tables = [table for table in schema.tables if table.name == "R"]
    return {
        next((grant.privileges for grant in table.grants if grant.role_id == number), Privilege(0)) for table in tables
    }


def play(change: str, state: JobState, point: int) -> bool:
    """Run a change; before the owner's write ``point`` roles change. False: it makes fewer."""
    reached: list[int] = []
    title = " ".join(change.split()[: 4 if "UNIQUE" in change else 3]).replace("UNIQUE ", "")

    async def body(db: Database) -> None:
        await db.conn.insert("Above", [{"A": a} for a in range(ROWS)])
        await db.conn.insert("R", [{"A": a, "V": a % (ROWS - 1), "U": a} for a in range(ROWS)])
        await db.ddl("CREATE ROLE app", "CREATE ROLE other", "GRANT SELECT, INSERT ON R TO app")
        first, second = await db.at(0), await db.at(1)
        roles: list[asyncio.Task[None]] = []

        async def change_roles() -> None:
            for text in ("REVOKE INSERT ON R FROM app", "GRANT DELETE ON R TO app", "GRANT app TO other"):
                await second.execute(text)

        async def before(server: str, number: int) -> None:
            if server != "f1-a":
                return
            reached.append(number)
            if len(reached) == point + 1:
                roles.append(db.env.spawn(change_roles()))
                await asyncio.shield(roles[0])  # who was about to write may give up

        with between_writes(db, before):
            try:
                await first.execute(change)
            except F1Error as error:
                assert error.code is Code.ALREADY_EXISTS and state is JobState.FAILED
        await asyncio.gather(*roles)  # the last write may be for a lease, when the change has ended
        for number in range(2):
            schema = await db.process(number).leases.refresh("default")
            if roles:
                assert privileges(schema, "app") == {Privilege.SELECT | Privilege.DELETE}
                assert schema.role("other").member_of == (schema.role("app").id,)
        states = [job.state for job in await db.process()._changes.listed("default") if job.what == title]
        assert states == [state]
        await check(db)

    with small_batches():
        with_database(body, *TABLES, lease_ms=1_000)
    return len(reached) > point


@pytest.mark.parametrize(
    "name", [QUICK, *(pytest.param(name, marks=pytest.mark.long) for name in CASES if name != QUICK)]
)
def test_at_each_write(name: str) -> None:
    change, state = CASES[name]
    points = 0
    while play(change, state, points):
        points += 1
    assert points > 5
