"""Schema changes to test with: one of every kind, the tables they change, and users who know what must be there."""

import asyncio
import contextlib
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import f1
from f1common.errors import Code, F1Error
from f1server.schemachange.work import gathering, purging, tablewalk, walk, walking

__all__ = [
    "CASES",
    "COUNTER",
    "LAYOUTS",
    "PROTO",
    "SHARED",
    "STATIC",
    "Case",
    "Layout",
    "Writer",
    "cross",
    "plain",
    "small_batches",
]

STATIC = 900
"""The number of the first of four rows that no writer touches."""
SHARED = 950
"""The number of the first of four rows that all writers write and delete."""
COUNTER = 990
"""The number of the row whose column N all writers count up."""


@dataclass(frozen=True, slots=True)
class Case:
    """A change: what is there before (beside the tables), and the statement.

    ``everywhere``: values that all rows of R but the shared ones have afterwards, by column. ``naughty``: values that
    the change forbids, or only allows, which writers try too.
    """

    name: str
    change: str
    before: tuple[str, ...] = ()
    everywhere: Mapping[str, Any] = field(default_factory=dict)
    naughty: Mapping[str, Any] = field(default_factory=dict)
    moves: bool = False
    """Rows get other keys: transactions that are open have to be run again."""

    def undone(self, name: str, change: str) -> "Case":
        """Return the case of the way back."""
        return Case(
            name, change, (*self.before, self.change) if self.moves else (self.change,), {}, self.naughty, self.moves
        )


def _both(case: Case, name: str, change: str) -> tuple[Case, Case]:
    return case, case.undone(name, change)


CASES: Mapping[str, Case] = {
    case.name: case
    for case in (
        *_both(Case("index", "CREATE INDEX X ON R (V)"), "drop index", "DROP INDEX X"),
        *_both(Case("local index", "CREATE LOCAL INDEX X ON R (A, V)"), "drop local index", "DROP INDEX X"),
        *_both(
            Case("unique index", "CREATE UNIQUE INDEX X ON R (U)", naughty={"U": STATIC}),
            "drop unique index",
            "DROP INDEX X",
        ),
        *_both(Case("index on a field", "CREATE INDEX X ON R (M.f)"), "drop index on a field", "DROP INDEX X"),
        *_both(Case("column", "ALTER TABLE R ADD COLUMN W INT64"), "drop column", "ALTER TABLE R DROP COLUMN W"),
        *_both(
            Case("default", "ALTER TABLE R ADD COLUMN W INT64 DEFAULT 7", everywhere={"W": 7}),
            "drop filled column",
            "ALTER TABLE R DROP COLUMN W",
        ),
        *_both(
            Case("required column", "ALTER TABLE R ADD COLUMN W INT64 NOT NULL DEFAULT 7", everywhere={"W": 7}),
            "drop required column",
            "ALTER TABLE R DROP COLUMN W",
        ),
        *_both(
            Case("not null", "ALTER TABLE R ALTER COLUMN V SET NOT NULL", naughty={"V": None}),
            "drop not null",
            "ALTER TABLE R ALTER COLUMN V DROP NOT NULL",
        ),
        *_both(
            Case("check", "ALTER TABLE R ADD CONSTRAINT X CHECK (V >= 0)", naughty={"V": -1}),
            "drop check",
            "ALTER TABLE R DROP CONSTRAINT X",
        ),
        *_both(
            Case(
                "foreign key", "ALTER TABLE R ADD CONSTRAINT X FOREIGN KEY (V) REFERENCES Other (K)", naughty={"V": 77}
            ),
            "drop foreign key",
            "ALTER TABLE R DROP CONSTRAINT X",
        ),
        *_both(
            Case("unique constraint", "ALTER TABLE R ADD CONSTRAINT X UNIQUE (U)", naughty={"U": STATIC}),
            "drop unique constraint",
            "ALTER TABLE R DROP CONSTRAINT X",
        ),
        *_both(Case("lock", "ALTER TABLE R ADD LOCK X (N)"), "drop lock", "ALTER TABLE R DROP CONSTRAINT X"),
        *_both(
            Case(
                "table",
                "CREATE TABLE Kid ({keys}, D INT64, V INT64, PRIMARY KEY ({key}, D)) "
                "INTERLEAVE IN PARENT R ON DELETE CASCADE; CREATE LOCAL INDEX KidByV ON Kid (A, V)",
            ),
            "drop table",
            "DROP TABLE Kid",
        ),
        *_both(
            Case(
                "another parent",
                "ALTER TABLE R SET PRIMARY KEY ({key}){elsewhere}",
                ("CREATE UNIQUE INDEX X ON R (U, A); CREATE LOCAL INDEX Y ON R (A, V); ALTER TABLE R ADD LOCK L (N)",),
                moves=True,
            ),
            "the parent of before",
            "ALTER TABLE R SET PRIMARY KEY ({key}){here}",
        ),
        Case(
            "another key",
            "ALTER TABLE R SET PRIMARY KEY ({key}, U){here}",
            ("CREATE INDEX X ON R (V)",),
            naughty={"U": None},
            moves=True,
        ),
        Case("more in a lock", "ALTER TABLE R ALTER LOCK X (V, N)", ("ALTER TABLE R ADD LOCK X (V)",)),
        Case("less in a lock", "ALTER TABLE R ALTER LOCK X (V)", ("ALTER TABLE R ADD LOCK X (V, N)",)),
        Case("another lock", "ALTER TABLE R ALTER LOCK Y (U, N)", ("ALTER TABLE R ADD LOCK X (V, N), ADD LOCK Y (U)",)),
        Case("rename column", "ALTER TABLE R RENAME COLUMN Z TO Y", everywhere={"Y": 5}),
        Case("rename table", "ALTER TABLE Other RENAME TO Another"),
        Case("wider type", "ALTER TABLE R ALTER COLUMN S TYPE VARCHAR(50)", naughty={"S": "longer"}),
        Case(
            "many",
            "ALTER TABLE R ADD COLUMN W INT64 NOT NULL DEFAULT 7, ADD CONSTRAINT X CHECK (V >= 0), ADD LOCK L (N), "
            "ADD CONSTRAINT Q UNIQUE (U); CREATE INDEX RW ON R (W, V)",
            everywhere={"W": 7},
        ),
    )
}

PROTO = 'syntax = "proto3"; package t; message M { int64 f = 1; }'
_COLUMNS = "V INT64, U INT64, N INT64, S VARCHAR(5), M PROTO<t.M>, Z INT64"


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the rows of R are: their key columns, and the tables above."""

    keys: tuple[str, ...]

    def ddl(self, text: str) -> str:
        """Put the key columns in."""
        places = ("", " INTERLEAVE IN PARENT Above ON DELETE CASCADE")
        if len(self.keys) > 1:
            places = (" INTERLEAVE IN PARENT Mid", "")
        return text.format(
            keys=", ".join(f"{k} INT64 NOT NULL" for k in self.keys),
            key=", ".join(self.keys),
            here=places[0],
            elsewhere=places[1],
        )

    @property
    def tables(self) -> list[str]:
        """CREATE TABLE statements."""
        if len(self.keys) == 1:
            return [
                "CREATE TABLE Above (A INT64 NOT NULL, PRIMARY KEY (A))",
                self.ddl(f"CREATE TABLE R ({{keys}}, {_COLUMNS}, PRIMARY KEY ({{key}}))"),
            ]
        return [
            "CREATE TABLE Root (A INT64 NOT NULL, PRIMARY KEY (A))",
            "CREATE TABLE Mid (A INT64 NOT NULL, B INT64 NOT NULL, PRIMARY KEY (A, B)) INTERLEAVE IN PARENT Root",
            self.ddl(f"CREATE TABLE R ({{keys}}, {_COLUMNS}, PRIMARY KEY ({{key}})) INTERLEAVE IN PARENT Mid"),
        ]

    def key(self, number: int) -> dict[str, int]:
        """Return the key of a row."""
        return {"A": number} if len(self.keys) == 1 else {"A": number % 2, "B": 1, "C": number}


LAYOUTS: Mapping[str, Layout] = {"flat": Layout(("A",)), "interleaved": Layout(("A", "B", "C"))}


class Writer:
    """Somebody who writes through one server: rows of their own, whose contents they know, and shared ones.

    Shared rows are where a server that knows of an element meets one that does not.
    """

    def __init__(self, number: int, layout: Layout, case: Case, rng: random.Random, *, naughty: bool) -> None:
        """``naughty``: now and then they try what the change forbids."""
        self._base = 100 * (number + 1)
        self._layout = layout
        self._rng = rng
        self._naughty = case.naughty if naughty else {}
        self._children = any("Kid" in text for text in (*case.before, case.change))
        self._moves = case.moves
        self.pause_s = 0.1
        self.rows: dict[int, dict[str, Any]] = {}
        """What is in their own rows, by number."""
        self.added = 0
        """Increments of the counter that were acknowledged, and others that may have happened."""
        self.perhaps = 0

    @property
    def numbers(self) -> range:
        """Of the rows that they may write alone."""
        return range(self._base, self._base + 7)

    def fresh(self, number: int, *, naughty: bool = True) -> dict[str, Any]:
        """Make the values of a row."""
        values: dict[str, Any] = {"V": self._rng.randrange(10), "U": number, "N": 0, "S": "short"}
        values |= {"M": bytes([8, self._rng.randrange(100)]), "Z": 5}
        if naughty and self._naughty and self._rng.random() < 0.1:
            values |= self._naughty
        return values

    async def begin(self, conn: f1.aio.Connection) -> None:
        """Insert the first rows."""
        for number in range(self._base, self._base + 4):
            self.rows[number] = self.fresh(number, naughty=False)
            await conn.insert("R", self._layout.key(number) | self.rows[number])

    async def run(self, conn: f1.aio.Connection, ended: asyncio.Event) -> None:
        """Insert, update, delete and count, until it has ended. Raises INTERNAL; other errors are part of the game."""
        while not ended.is_set():
            number = self._rng.choice(self.numbers)
            try:
                await self._once(conn, number)
            except F1Error as error:
                if error.code is Code.INTERNAL:
                    raise
                if error.ambiguous:
                    await self._settle(conn, number)
            await asyncio.sleep(self.pause_s * (0.5 + self._rng.random()))

    async def _once(self, conn: f1.aio.Connection, number: int) -> None:
        chosen = self._rng.random()
        if chosen < 0.2:
            await self._count(conn)
        elif chosen < 0.5:
            await self._share(conn, SHARED + self._rng.randrange(4))
        elif chosen < 0.65 and self._children and number in self.rows:
            await conn.upsert("Kid", self._layout.key(number) | {"D": self._rng.randrange(3), "V": number})
        else:
            await self._write(conn, number)

    async def _share(self, conn: f1.aio.Connection, number: int) -> None:
        key = self._layout.key(number)
        if self._rng.random() < 0.4:
            await self._delete(conn, key)
        else:
            # Columns that are being renamed are named by none.
            await conn.upsert("R", key | {name: v for name, v in self.fresh(number).items() if name != "Z"})

    async def _write(self, conn: f1.aio.Connection, number: int) -> None:
        key, values = self._layout.key(number), self.fresh(number)
        if number not in self.rows:
            await conn.insert("R", key | values)
            self.rows[number] = values
        elif self._rng.random() < 0.3:
            await self._delete(conn, key)
            del self.rows[number]
        elif self._rng.random() < 0.3:
            await self._rekey(conn, number, self._rng.choice(self.numbers))
        else:
            some = {name: values[name] for name in ("V", "M", "S") + (() if self._moves else ("U",))}
            if self._moves:
                sets = ", ".join(f"{name} = ?" for name in some)
                await conn.execute(f"UPDATE R SET {sets} WHERE {_named(key)}", (*some.values(), *key.values()))
            else:
                await conn.update("R", key | some)
            self.rows[number] = self.rows[number] | some

    async def _rekey(self, conn: f1.aio.Connection, number: int, other: int) -> None:
        """Give a row the key of another number, if there is none with that."""
        if other in self.rows:
            return
        key, new = self._layout.key(number), self._layout.key(other) | {"U": other}
        sets = ", ".join(f"{name} = ?" for name in new)
        try:
            await conn.execute(f"UPDATE R SET {sets} WHERE {_named(key)}", (*new.values(), *key.values()))
            self.rows[other] = self.rows.pop(number) | {"U": other}
        except F1Error as error:
            if error.ambiguous:
                await self._settle(conn, other)
            raise

    async def _delete(self, conn: f1.aio.Connection, key: Mapping[str, Any]) -> None:
        """Delete a row by its key; where that is changing, by the columns that the key had."""
        if self._moves:
            await conn.execute(f"DELETE FROM R WHERE {_named(key)}", tuple(key.values()))
        else:
            await conn.delete("R", tuple(key.values()))

    async def _count(self, conn: f1.aio.Connection) -> None:
        key = self._layout.key(COUNTER)
        try:
            async with conn.transaction("optimistic") as tx:
                if self._moves:
                    await tx.execute(f"UPDATE R SET N = N + 1 WHERE {_named(key)}", tuple(key.values()))
                else:
                    row = await tx.get("R", tuple(key.values()), columns=["N"])
                    if row is None:
                        raise AssertionError("the counter is gone")
                    await tx.update("R", key | {"N": row["N"] + 1})
            self.added += 1
        except F1Error as error:
            self.perhaps += error.ambiguous
            if error.code is Code.INTERNAL:
                raise

    async def _settle(self, conn: f1.aio.Connection, number: int) -> None:
        """Find out what became of a write without an answer: nobody else writes this row."""
        names = ["V", "U", "N", "S", "M"]
        key = self._layout.key(number)
        while True:
            await asyncio.sleep(0.5)
            try:
                if self._moves:
                    sql = f"SELECT {', '.join(names)} FROM R WHERE {_named(key)}"
                    row = await (await conn.execute(sql, tuple(key.values()))).fetchone()
                    found = None if row is None else dict(zip(names, row, strict=True))
                else:
                    found = await conn.get("R", tuple(key.values()), columns=names)
                break
            except F1Error:
                continue
        if found is None:
            self.rows.pop(number, None)
        else:
            self.rows[number] = {name: plain(found[name]) for name in names} | {"Z": 5}


async def cross(
    conns: Sequence[f1.aio.Connection], writer: Writer, layout: Layout, rng: random.Random, ended: asyncio.Event
) -> None:
    """Let two servers at a time write one shared row after the other, until it has ended: they may differ in versions.

    What one has entered another deletes or changes; that is where a server that knows of an element too early, or
    forgets it too late, leaves what nobody removes.
    """
    while not ended.is_set():
        row = layout.key(SHARED + 10 + rng.randrange(12))
        first, second = rng.sample(conns, 2)
        for conn in (first, second):
            try:
                if conn is second and rng.random() < 0.6:
                    await conn.delete("R", tuple(row.values()))
                else:
                    values = writer.fresh(list(row.values())[-1])
                    await conn.upsert("R", row | {name: value for name, value in values.items() if name != "Z"})
            except F1Error as error:
                if error.code is Code.INTERNAL:
                    raise
                await asyncio.sleep(0.05)
        await asyncio.sleep(0.01 * rng.random())


@contextlib.contextmanager
def small_batches() -> Iterator[None]:
    """Let the work on data go in batches of a few rows, so that few rows make many, and many partitions of a table."""
    with (
        patch.object(purging, "_CHUNK", 3),
        patch.object(walk, "_CHUNK_ROWS", 6),
        patch.object(walk, "_SLICE_ROWS", 3),
        patch.object(gathering, "_SORTED_ENTRIES", 6),
        patch.object(walking, "_COMMIT_ROWS", 3),
        patch.object(walk, "_LOCKED_ROWS", 2),
        patch.object(tablewalk, "ROWS_EACH", 8),
        patch.object(tablewalk, "SEGMENT_ROWS", 3),
        patch.object(walking, "SEGMENT_ROWS", 3),
    ):
        yield


def _named(key: Mapping[str, Any]) -> str:
    """Return the condition that a row has these values, to be bound in this order."""
    return " AND ".join(f"{name} = ?" for name in key)


def plain(value: Any) -> Any:
    """Return a value as it was written: messages as bytes."""
    return value.SerializeToString() if hasattr(value, "SerializeToString") else value
