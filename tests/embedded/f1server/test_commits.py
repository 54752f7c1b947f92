"""Commits at f1servers: one outcome for each commit id, retries inside the server, the schema that they are under."""

import asyncio
import random
from collections.abc import Mapping

import pytest

from f1common.encoding.row import Cell, encode_row
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from f1server.testing.checks import check_indexes
from f1server.testing.database import Database, with_database

R = "CREATE TABLE R (A INT64 NOT NULL, V INT64, PRIMARY KEY (A))"
S = R.replace("TABLE R", "TABLE S")
E = "CREATE TABLE E (At TIMESTAMP NOT NULL DEFAULT now(), N INT64, PRIMARY KEY (At))"
H = "CREATE TABLE H (N INT64)"
U = "CREATE TABLE U (Id STRING NOT NULL DEFAULT gen_random_uuid(), N INT64, PRIMARY KEY (Id))"


class Committing:
    """Sends commits and questions to servers as the library does, but where and when a test wants."""

    def __init__(self, db: Database, seed: int = 1) -> None:
        self.db = db
        self._rng = random.Random(seed)

    async def write(self, table: str, values: Mapping[str, Cell], kind: str = "UPSERT") -> pb.LogicalWrite:
        found = (await self.db.process().leases.current("default")).schema.table(table)
        cells = {found.column(name).id: value for name, value in values.items()}
        key = {i: v for i, v in cells.items() if i in found.key_column_ids}
        rest = {i: v for i, v in cells.items() if i not in found.key_column_ids}
        return pb.LogicalWrite(kind=kind, table=table, key=encode_row(key), columns=encode_row(rest))

    def commit(self, *writes: pb.LogicalWrite) -> pb.Commit:
        now = self.db.env.clock.sample().tt.latest
        return pb.Commit(writes=writes, commit_id=self._rng.randbytes(16), created_ts=now)

    async def send(self, commit: pb.Commit, server: int = 0) -> int:
        """Returns the commit timestamp."""
        return int((await self.db.on(server, self.db.frontend(server).commit("default", commit))).commit_ts)

    async def ask(self, commit: pb.Commit, server: int = 1) -> int | None:
        """Returns the commit timestamp, None if it never commits."""
        question = pb.Outcome(commit_id=commit.commit_id, created_ts=commit.created_ts, first_write=commit.writes[0])
        reply = await self.db.on(server, self.db.frontend(server).outcome("default", question))
        return reply.commit_ts if reply.committed else None


def test_a_question_before_the_commit_ends_it() -> None:
    async def body(db: Database) -> None:
        clerk = Committing(db)
        commit = clerk.commit(await clerk.write("R", {"A": 1, "V": 1}))
        assert await clerk.ask(commit) is None
        started_us = db.world.now_us()
        with pytest.raises(F1Error) as caught:
            await clerk.send(commit)
        assert caught.value.code is Code.ABORTED
        # It does not try for long what cannot be.
        assert db.world.now_us() - started_us < 500_000
        assert await db.rows("SELECT * FROM R") == []

    with_database(body, R)


def test_a_question_after_the_commit_tells_when() -> None:
    async def body(db: Database) -> None:
        clerk = Committing(db)
        commit = clerk.commit(await clerk.write("R", {"A": 1, "V": 1}))
        ts = await clerk.send(commit)
        assert ts
        assert await clerk.ask(commit) == ts == await clerk.ask(commit, 0)
        # Sent once more by mistake it does not happen again.
        other = pb.Commit(writes=[await clerk.write("R", {"A": 1, "V": 2})])
        other.commit_id, other.created_ts = commit.commit_id, commit.created_ts
        assert await clerk.send(other, 1) == ts
        assert await db.rows("SELECT V FROM R") == [(1,)]

    with_database(body, R)


@pytest.mark.parametrize("table", ["R", "H"])
def test_the_outcome_does_not_depend_on_what_the_table_is_called_by_now(table: str) -> None:
    """Or a commit would be made twice, where its table was renamed before its client asked."""

    async def body(db: Database) -> None:
        clerk = Committing(db)
        commit = clerk.commit(await clerk.write(table, {"A": 1, "V": 1} if table == "R" else {"N": 1}, "INSERT"))
        ts = await clerk.send(commit)
        await db.ddl(f"ALTER TABLE {table} RENAME TO Other")
        assert await clerk.ask(commit) == ts
        await db.ddl(f"ALTER TABLE S RENAME TO {table}")
        assert await clerk.ask(commit) == ts

    with_database(body, R, S, H)


@pytest.mark.parametrize("delay_us", range(0, 3_000, 150))
def test_a_question_during_the_commit_and_its_answer_agree(delay_us: int) -> None:
    """Rows of two groups, so that the commit takes two phases."""

    async def body(db: Database) -> None:
        clerk = Committing(db)
        commit = clerk.commit(await clerk.write("R", {"A": 1, "V": 1}), await clerk.write("S", {"A": 1, "V": 1}))

        async def ask() -> int | None:
            await db.world.sleep_us(delay_us)
            return await clerk.ask(commit)

        sent, said = await asyncio.gather(clerk.send(commit), ask(), return_exceptions=True)
        assert not isinstance(said, BaseException)
        rows = await db.rows("SELECT V FROM R UNION ALL SELECT V FROM S")
        if said is None:
            assert isinstance(sent, F1Error)
            assert sent.code is Code.ABORTED
            assert rows == []
        else:
            assert sent == said
            assert rows == [(1,), (1,)]

    with_database(body, R, S, seed=delay_us + 1)


@pytest.mark.parametrize(("table", "ddl"), [("E", E), ("H", H), ("U", U)])
def test_the_outcome_does_not_depend_on_defaults_of_keys(table: str, ddl: str) -> None:
    """Another server works out another key, and must find the commit all the same: or rows were inserted twice."""

    async def body(db: Database) -> None:
        clerk = Committing(db)
        commit = clerk.commit(await clerk.write(table, {"N": 1}, "INSERT"))
        ts = await clerk.send(commit)
        await asyncio.sleep(0.5)
        assert await clerk.ask(commit) == ts
        never = clerk.commit(await clerk.write(table, {"N": 2}, "INSERT"))
        assert await clerk.ask(never) is None
        with pytest.raises(F1Error):
            await clerk.send(never)
        assert await db.rows(f"SELECT N FROM {table}") == [(1,)]

    with_database(body, ddl)


def test_too_old_commits_are_told_to_be_too_old() -> None:
    async def body(db: Database) -> None:
        clerk = Committing(db)
        commit = clerk.commit(await clerk.write("R", {"A": 1, "V": 1}))
        commit.created_ts -= 2 * 3_600 * 1_000_000
        for work in (clerk.ask(commit), clerk.send(commit)):
            with pytest.raises(F1Error) as caught:
                await work
            assert caught.value.code is Code.EXPIRED

    with_database(body, R)


def test_a_commit_that_meets_an_unknown_table_looks_for_a_newer_schema() -> None:
    """The change is made through another server, whose message has not arrived."""

    async def body(db: Database) -> None:
        clerk = Committing(db)
        await db.conn.insert("R", {"A": 1, "V": 1})
        await db.process(1).leases.current("default")
        db.world.cut("f1-a", "f1-b")
        first = await db.at(0)
        change = asyncio.create_task(first.execute("CREATE TABLE New (A INT64 NOT NULL, V INT64, PRIMARY KEY (A))"))
        await asyncio.sleep(0.5)
        assert not change.done()
        commit = clerk.commit(await clerk.write("New", {"A": 1, "V": 1}))
        assert await clerk.send(commit, 1)
        await change
        assert await db.rows("SELECT V FROM New") == [(1,)]
        with pytest.raises(F1Error) as caught:
            await clerk.send(clerk.commit(pb.LogicalWrite(table="Never", key=encode_row({1: 1}))), 1)
        assert caught.value.code is Code.NOT_FOUND

    with_database(body, R)


def test_a_server_that_was_frozen_past_its_lease_commits_under_the_new_schema() -> None:
    """Its commit was planned without the index, and waits for a lock while the index is made."""

    async def body(db: Database) -> None:
        await db.conn.insert("R", [{"A": a, "V": a} for a in range(3)])
        clerk = Committing(db)
        holder = await db.at(1, autocommit=False)
        await holder.begin("pessimistic")
        await holder.execute("SELECT * FROM R WHERE A = 9 FOR UPDATE")
        late = asyncio.create_task(clerk.send(clerk.commit(await clerk.write("R", {"A": 9, "V": 7}))))
        await asyncio.sleep(0.2)
        assert not late.done()
        db.world.pause("f1-a")
        second = await db.at(1)
        await second.execute("CREATE INDEX RV ON R (V)")
        await holder.rollback()
        await asyncio.sleep(0.2)
        db.world.resume("f1-a")
        assert await late
        assert await db.rows("SELECT A FROM R WHERE V = 7") == [(9,)]
        schema = (await db.process(1).leases.current("default")).schema
        assert not await check_indexes(db.storage, schema, db.storage.strong_timestamp())

    with_database(body, R)


@pytest.mark.parametrize("kind", ["INSERT", "UPSERT"])
@pytest.mark.parametrize("column", ["D INT64 DEFAULT 5", "D INT64 NOT NULL DEFAULT 5"])
def test_a_commit_that_is_planned_again_takes_the_defaults_of_new_columns(column: str, kind: str) -> None:
    """Its defaults were filled in before there was the column; the rows that were there have been filled meanwhile."""

    async def body(db: Database) -> None:
        await db.conn.insert("R", [{"A": a, "V": a} for a in range(3)])
        clerk = Committing(db)
        holder = await db.at(1, autocommit=False)
        await holder.begin("pessimistic")
        await holder.execute("SELECT * FROM R WHERE A = 9 FOR UPDATE")
        late = asyncio.create_task(clerk.send(clerk.commit(await clerk.write("R", {"A": 9, "V": 7}, kind))))
        await asyncio.sleep(0.2)
        assert not late.done()
        db.world.pause("f1-a")
        second = await db.at(1)
        await second.execute(f"ALTER TABLE R ADD COLUMN {column}")
        await holder.rollback()
        await asyncio.sleep(0.2)
        db.world.resume("f1-a")
        assert await late
        assert await db.rows("SELECT V, D FROM R WHERE A = 9") == [(7, 5)]

    with_database(body, R)


def test_many_clients_increment_one_row() -> None:
    """Retries inside the server and in the library: no update is lost and everybody gets through."""

    async def body(db: Database) -> None:
        await db.conn.insert("R", {"A": 1, "V": 0})
        conns = [await db.at(number % 2) for number in range(16)]

        async def increment(number: int) -> None:
            for _ in range(3):
                if number % 3:
                    await conns[number].execute("UPDATE R SET V = V + 1 WHERE A = 1")
                else:
                    request = pb.Execute(sql="UPDATE R SET V = V + 1 WHERE A = 1")
                    await db.on(number % 2, db.frontend(number % 2).execute("default", request))

        await asyncio.gather(*(increment(number) for number in range(16)))
        assert await db.rows("SELECT V FROM R") == [(48,)]

    with_database(body, R)
