"""Roles that change beside schema changes: admins who grant and revoke, users who commit by the rights that they have.

An admin's statement makes one fact true or false: a grant, a membership, CREATE, a role, a login. What admins remember
of that is all that is known here of rights (:class:`Fact`), so that it shows what real servers forget or bring back:

* no commit of a user lies between the return of a REVOKE, by which they have no right to it, and the next GRANT;
* every version of the schema has each fact as the last statement about it left it, whatever other changes wrote, took
  back or carried on meanwhile (:meth:`Roles.judge`).
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import f1
from f1common.errors import Code, F1Error
from f1server.catalog.roles import Privilege
from f1server.catalog.schema import Schema
from f1server.testing.changes import SHARED, Layout, Writer
from f1server.txn.committer import CommitRequest, Committed, Committer
from spanstore.testing.checkers import Violation

__all__ = ["ADMIN", "MAKER", "PASSWORD", "PREPARED", "USERS", "Fact", "Roles", "facts"]

PASSWORD = "a word"
ADMIN, MAKER = "admin", "maker"
"""A superuser, and who changes the schema without being one."""

USERS = ("direct", "member")
"""One whose right to write R is its own, and one who has it by a group."""
_WRITE = Privilege.INSERT | Privilege.UPDATE

PREPARED = (
    f"CREATE ROLE {ADMIN} LOGIN SUPERUSER PASSWORD '{PASSWORD}'",
    f"CREATE ROLE {MAKER} LOGIN PASSWORD '{PASSWORD}'",
    f"GRANT CREATE ON SCHEMA TO {MAKER}",
    f"GRANT ALL ON ALL TABLES TO {MAKER}",
    *(f"CREATE ROLE {user} LOGIN PASSWORD '{PASSWORD}'" for user in USERS),
    "CREATE ROLE crowd",
    "CREATE ROLE idle",
)
"""What there is of roles in the beginning."""


@dataclass(slots=True)
class Fact:
    """Something about roles that one admin makes true and false, by statements that may be made again.

    ``seen``: what a schema says of it, once for each form of the table that it is about.
    """

    true: str
    false: str
    seen: Callable[[Schema], Sequence[bool]]
    value: bool = False
    spans: list[tuple[int, int, bool]] = field(default_factory=list)
    """Times during which it was known to be true or false: from the end of a statement to the beginning of the next."""
    since: int = 0

    def at(self, timestamp: int) -> bool | None:
        """Return what it was at a time; None: a statement was under way."""
        return next((value for start, end, value in self.spans if start < timestamp < end), None)

    def begin(self, now: int) -> str:
        """Return the statement that makes it the opposite."""
        self.spans.append((self.since, now, self.value))
        return self.false if self.value else self.true

    def ended(self, now: int) -> None:
        """The statement has returned."""
        self.value, self.since = not self.value, now


def _grants(role: str, privileges: Privilege) -> Callable[[Schema], Sequence[bool]]:
    def seen(schema: Schema) -> list[bool]:
        number = schema.roles_by_name[role].id
        return [
            any(grant.role_id == number and privileges & grant.privileges == privileges for grant in table.grants)
            for table in schema.tables
            if table.name == "R"
        ]

    return seen


def facts() -> list[Fact]:
    """Return all facts; what commits of users follow from comes first (:meth:`Roles.may`)."""
    return [
        Fact(
            "GRANT INSERT, UPDATE ON R TO direct", "REVOKE INSERT, UPDATE ON R FROM direct", _grants("direct", _WRITE)
        ),
        Fact("GRANT INSERT, UPDATE ON R TO crowd", "REVOKE INSERT, UPDATE ON R FROM crowd", _grants("crowd", _WRITE)),
        Fact(
            "GRANT crowd TO member",
            "REVOKE crowd FROM member",
            lambda schema: [schema.roles_by_name["crowd"].id in schema.roles_by_name["member"].member_of],
        ),
        Fact("GRANT SELECT ON R TO direct", "REVOKE SELECT ON R FROM direct", _grants("direct", Privilege.SELECT)),
        Fact(
            "CREATE ROLE IF NOT EXISTS guest",
            "DROP ROLE IF EXISTS guest",
            lambda schema: ["guest" in schema.roles_by_name],
        ),
        Fact(
            "GRANT CREATE ON SCHEMA TO idle",
            "REVOKE CREATE ON SCHEMA FROM idle",
            lambda schema: [schema.roles_by_name["idle"].create],
        ),
        Fact("ALTER ROLE idle LOGIN", "ALTER ROLE idle NOLOGIN", lambda schema: [schema.roles_by_name["idle"].login]),
    ]


class Roles:
    """Admins and users of one run."""

    def __init__(self, layout: Layout, values: Writer, rng: random.Random, now: Callable[[], int]) -> None:
        """``values`` makes what users write; ``now`` tells the true time."""
        self._layout = layout
        self._values = values
        self._rng = rng
        self._now = now
        self.facts = facts()
        self.commits: list[tuple[int, str]] = []
        """When who committed."""
        self.made = 0
        self.slowest_s = 0.0

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Note the commits of users at all f1servers; let logins be the same in each run of a seed."""
        original = Committer.commit

        async def commit(committer: Committer, database: str, request: CommitRequest, *args: Any) -> Committed:
            done = await original(committer, database, request, *args)
            if request.caller.name in USERS and request.writes:
                self.commits.append((done.ts, request.caller.name))
            return done

        nonces = random.Random(self._rng.random())
        with patch.object(Committer, "commit", commit), patch("f1.logins.secret_bytes", nonces.randbytes):
            yield

    def start(self) -> None:
        """What was prepared is there: what the facts say is known from now on."""
        for fact in self.facts:
            fact.since = self._now()

    # ------------------------------------------------------------------ what they do

    async def admin(self, number: int, of: int, conn: f1.aio.Connection, over: Callable[[], bool]) -> None:
        """Make some facts true and false, until it is over. Raises INTERNAL; other errors are part of the game."""
        mine = self.facts[number::of]
        while not over():
            fact = self._rng.choice(mine)
            statement = fact.begin(self._now())
            began_us = self._now()
            while not await self._said(conn, statement):
                await asyncio.sleep(0.2)
            fact.ended(self._now())
            self.made += 1
            self.slowest_s = max(self.slowest_s, (self._now() - began_us) / 1e6)
            await asyncio.sleep(self._rng.random() * 0.5)

    async def _said(self, conn: f1.aio.Connection, statement: str) -> bool:
        try:
            await conn.execute(statement)
        except F1Error as error:
            if error.code is Code.INTERNAL:
                raise
            return False
        return True

    async def user(
        self, name: str, connect: Callable[[str, int], Awaitable[f1.aio.Connection]], servers: int, ended: asyncio.Event
    ) -> None:
        """Write shared rows, at any server, whether that is allowed or not. Raises INTERNAL."""
        conns = [await connect(name, number) for number in range(servers)]
        while not ended.is_set():
            row = self._layout.key(SHARED + 10 + self._rng.randrange(12))
            values = self._values.fresh(list(row.values())[-1], naughty=False)
            with contextlib.suppress(f1.Error):
                await self._rng.choice(conns).upsert("R", row | {n: v for n, v in values.items() if n != "Z"})
            await asyncio.sleep(self._rng.random() * 0.1)

    # ------------------------------------------------------------------ verdict

    def may(self, name: str, timestamp: int) -> bool | None:
        """Tell whether a user could write R at a time; None: perhaps."""
        direct, crowd, member = (fact.at(timestamp) for fact in self.facts[:3])
        if name == "direct":
            return direct
        if crowd is False or member is False:
            return False
        return True if crowd and member else None

    def judge(self, schemas: Sequence[tuple[int, Schema]]) -> list[Violation]:
        """Compare with (timestamp, schema) of every version."""
        now = self._now()
        for fact in self.facts:
            fact.spans.append((fact.since, now, fact.value))
        found = [
            Violation("rights", f"{name} committed at {ts}, without a right to")
            for ts, name in self.commits
            if self.may(name, ts) is False
        ]
        for ts, schema in [*schemas, (now - 1, schemas[-1][1])]:
            for fact in self.facts:
                wanted, seen = fact.at(ts), fact.seen(schema)
                if wanted is not None and set(seen) - {wanted}:
                    last = fact.true if wanted else fact.false
                    found.append(
                        Violation("roles", f"version {schema.version} at {ts} is not as after {last!r}: {seen}")
                    )
        return found
