"""Users delete parents while a table moves into their hierarchy or out of it, on servers at neighbouring versions.

No row is lost and none is left without its parent: docs/adr/0005, the foreign keys that a moving table has for a while.
"""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

import f1
from f1.checking import check_database
from f1common.errors import Code, F1Error
from f1server.catalog.schema import ElementState, Schema, Table
from f1server.schemachange.steps import moves
from f1server.testing.continuous import ContinuousCheck
from f1server.testing.database import Database, with_database

CUSTOMER = "CREATE TABLE Customer (CustomerId INT64, PRIMARY KEY (CustomerId))"
FLAT = "CREATE TABLE Campaign (CampaignId INT64, CustomerId INT64, PRIMARY KEY (CampaignId))"
BELOW = (
    "CREATE TABLE Campaign (CustomerId INT64, CampaignId INT64, PRIMARY KEY (CustomerId, CampaignId)) "
    "INTERLEAVE IN PARENT Customer ON DELETE {}"
)
BY_CUSTOMER = "CREATE INDEX ByCustomer ON Campaign (CustomerId)"
INTO = "ALTER TABLE Campaign SET PRIMARY KEY (CustomerId, CampaignId) INTERLEAVE IN PARENT Customer ON DELETE {}"
OUT = "ALTER TABLE Campaign SET PRIMARY KEY (CampaignId)"
PARENTS = 6


class WrongError(AssertionError):
    """Rows are not what they must be."""


@dataclass
class User:
    """Enters and deletes rows of both tables on two servers, one after the other, and knows what must be there."""

    db: Database
    conns: Sequence[f1.aio.Connection]
    into: bool
    rng: random.Random
    rows: dict[int, int] = field(default_factory=dict)
    """The customers of the campaigns."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    neighbours: int = 0
    """How often a customer was deleted, or could not be, while the servers had different versions."""
    deleted: int = 0
    refused: int = 0
    _next: int = 0

    async def begin(self) -> None:
        """Enter the first rows."""
        await self.db.conn.insert("Customer", [{"CustomerId": c} for c in range(PARENTS)])
        for customer in range(PARENTS):
            await self.enter(self.db.conn, customer)

    async def run(self) -> None:
        """Go on until it has ended. Raises WrongError."""
        while not self.ended.is_set():
            customer = self.rng.randrange(PARENTS)
            if self.rng.random() < 0.4:
                await self.enter(self.rng.choice(self.conns), customer)
            elif await self.guarded():
                await self.remove(self.rng.choice(self.conns), customer)
            await asyncio.sleep(0.1 * self.rng.random())

    async def enter(self, conn: f1.aio.Connection, customer: int) -> None:
        """Enter a campaign, or take one away."""
        there = [campaign for campaign, of in self.rows.items() if of == customer]
        if there and self.rng.random() < 0.6:
            sql = "DELETE FROM Campaign WHERE CampaignId = ? AND CustomerId = ?"
            await _again(conn, sql, there[0], customer)
            del self.rows[there[0]]
            return
        self._next += 1
        await _again(conn, "INSERT INTO Campaign (CampaignId, CustomerId) VALUES (?, ?)", self._next, customer)
        self.rows[self._next] = customer

    async def remove(self, conn: f1.aio.Connection, customer: int) -> None:
        """Delete a customer, look at what became of the campaigns, and enter the customer again."""
        versions = {schema.version for schema in await self._schemas()}
        self.neighbours += len(versions) > 1
        try:
            await _again(conn, "DELETE FROM Customer WHERE CustomerId = ?", customer)
        except F1Error as error:
            if error.code is not Code.FAILED_PRECONDITION:
                raise
            self.refused += 1
            if customer not in self.rows.values():
                raise WrongError(f"{customer} has no rows: {error}") from error
            return
        self.deleted += 1
        await self._look(customer)
        await _again(self.conns[self.rng.randrange(2)], "INSERT INTO Customer VALUES (?)", customer)

    async def _look(self, customer: int) -> None:
        wanted = {campaign for campaign, of in self.rows.items() if of == customer}
        found = []
        for conn in self.conns:
            rows = await (
                await _again(conn, "SELECT CampaignId FROM Campaign WHERE CustomerId = ?", customer)
            ).fetchall()
            found.append({int(row[0]) for row in rows})
        if found[0] != found[1]:
            raise WrongError(f"of {wanted} one server finds {found[0]}, the other {found[1]}")
        if not found[0]:
            if wanted and not any(_cascades(schema) for schema in await self._schemas()):
                raise WrongError(f"the rows {wanted} are lost")
            self.rows = {campaign: of for campaign, of in self.rows.items() if of != customer}
        elif found[0] != wanted:
            raise WrongError(f"of {wanted} there are {found[0]}")
        elif await self.guarded():
            raise WrongError(f"{wanted} have no parent")

    async def guarded(self) -> bool:
        """Is it the database's affair, on all servers, that campaigns have customers?"""
        return all(_guarded(schema, self.into) for schema in await self._schemas())

    async def _schemas(self) -> list[Schema]:
        return [(await self.db.process(n).leases.current("default")).schema for n in range(2)]


async def _again(conn: f1.aio.Connection, sql: str, *values: object) -> f1.aio.Cursor:
    while True:
        try:
            return await conn.execute(sql, values)
        except F1Error as error:
            if not error.retryable:
                raise
            await asyncio.sleep(0.05)


def _guarded(schema: Schema, into: bool) -> bool:
    table = schema.table("Campaign")
    other = schema.forms.get(table.id)
    if into:
        return other is not None or table.parent_id != 0
    return table.parent_id != 0 or (other is not None and other.state >= ElementState.WRITE_ONLY)


def _cascades(schema: Schema) -> bool:
    table = schema.table("Campaign")
    forms: list[Table | None] = [table, schema.forms.get(table.id)]
    return any(form is not None and form.parent_id != 0 and form.cascade for form in forms)


def deaf(db: Database) -> None:
    """Nobody tells the servers of a new version: they find out when they renew their leases."""

    async def lost(address: str, database: str, version: int) -> object:
        raise F1Error(Code.UNAVAILABLE, "the message was lost")

    for number in (0, 1):
        db.process(number)._changes._nudge = lost


def move(into: bool, action: str, seed: int) -> User:
    """Move the table while a user works; return the user. Raises WrongError, AssertionError for findings."""
    statement = INTO.format(action) if into else OUT
    ddl = (CUSTOMER, FLAT, BY_CUSTOMER) if into else (CUSTOMER, BELOW.format(action), BY_CUSTOMER)

    async def body(db: Database) -> User:
        deaf(db)
        user = User(db, [await db.at(0), await db.at(1)], into, random.Random(f"{seed}/{into}/{action}"))
        await user.begin()
        since = db.storage.strong_timestamp()
        working = db.env.spawn(user.run())
        changing = db.env.spawn(db.conn.execute(statement))
        await asyncio.wait([working, changing], return_when=asyncio.FIRST_COMPLETED)
        user.ended.set()
        await working
        await changing
        if dict(await db.rows("SELECT CampaignId, CustomerId FROM Campaign")) != user.rows:
            raise WrongError("rows are lost, or there are too many")
        checker = ContinuousCheck(
            db.storage, db.env.clock, db.env.rng, lambda schema: db.process(1)._sql.evaluators().checks(schema)
        )
        found = await checker.versions(since)
        assert not found, found
        result = await check_database(db.conn.session, [], repair=False, examples=5)
        assert not result.findings, result.findings
        return user

    return with_database(body, *ddl, seed=seed, lease_ms=1_000)


@pytest.mark.parametrize("action", ["CASCADE", pytest.param("NO ACTION", marks=pytest.mark.long)])
@pytest.mark.parametrize("into", [True, False], ids=["into", "out"])
def test_no_row_is_lost_and_none_loses_its_parent(into: bool, action: str) -> None:
    user = move(into, action, 1)
    assert user.neighbours > 10
    assert user.deleted > 10
    assert user.refused


@pytest.mark.parametrize("action", ["CASCADE", pytest.param("NO ACTION", marks=pytest.mark.long)])
@pytest.mark.parametrize("into", [True, pytest.param(False, marks=pytest.mark.long)], ids=["into", "out"])
def test_without_the_foreign_keys_of_the_meantime_rows_lose_their_parents(
    monkeypatch: pytest.MonkeyPatch, into: bool, action: str
) -> None:
    monkeypatch.setattr(moves, "_key_to_parent", lambda *_: None)
    with pytest.raises((WrongError, AssertionError)):
        move(into, action, 1)
