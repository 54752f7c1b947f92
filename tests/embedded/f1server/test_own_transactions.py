"""Statements that write and are transactions of their own: those that say which row they write go with their commit."""

import asyncio
import datetime
from collections.abc import Sequence
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

import f1
from f1.transactions import Transaction
from f1.values import encode_params
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from f1server.catalog.leases import SchemaLeases
from f1server.outcomes import Outcomes
from f1server.session import Frontend
from f1server.testing.database import Database, with_database
from f1server.txn.committer import Committer

DDL = (
    "CREATE TABLE A (Id INT64 NOT NULL, V INT64, W STRING DEFAULT 'w', PRIMARY KEY (Id))",
    "CREATE TABLE P (D DOUBLE NOT NULL, N NUMERIC NOT NULL, At TIMESTAMP NOT NULL, V INT64, PRIMARY KEY (D, N, At))",
    "CREATE TABLE K (Id INT64 NOT NULL, B INT64 NOT NULL DEFAULT 7, V INT64, PRIMARY KEY (Id, B)) "
    "INTERLEAVE IN PARENT A",
    "CREATE TABLE H (V INT64)",
    "CREATE UNIQUE INDEX AV ON A (V)",
)
_NOON = datetime.datetime(2026, 2, 28, 12, 0, 0, 500_000, datetime.UTC)

_GOES: list[tuple[str, Sequence[object]]] = [
    ("INSERT INTO A (Id, V) VALUES (?, ?)", (5, 50)),
    ("INSERT INTO A (Id, V, W) VALUES (6, 60, 'x')", ()),
    ("UPDATE A SET V = V + ? WHERE Id = ?", (1, 1)),
    ("UPDATE A SET V = NULL, W = 'y' WHERE 2 = Id", ()),
    ("UPDATE A SET Id = 9 WHERE Id = 6", ()),
    ("INSERT INTO P VALUES (?, ?, ?, 1)", (-0.0, Decimal("1.50"), _NOON)),
    ("UPDATE P SET V = V - 1 WHERE D = ? AND N = ? AND At = ?", (0.0, Decimal("1.5"), _NOON)),
    ("DELETE FROM P WHERE At = ? AND N = 1.5 AND D = 0", (_NOON,)),
    ("INSERT INTO K (Id, B) VALUES (1, 1)", ()),
    ("DELETE FROM K WHERE Id = 1 AND B = 1", ()),
    ("DELETE FROM A WHERE Id = 5", ()),
]
_STAYS: list[tuple[str, Sequence[object]]] = [
    ("UPDATE A SET V = V + 100 WHERE Id < 3", ()),
    ("UPDATE A SET V = (SELECT max(Id) FROM A) WHERE Id = 1", ()),
    ("INSERT INTO A (Id, V) VALUES (11, 11), (12, 12)", ()),
    ("INSERT INTO A (Id, V) SELECT Id + 20, Id + 20 FROM A WHERE Id = 1", ()),
    ("INSERT INTO A (Id, V) VALUES (1, 1) ON CONFLICT DO NOTHING", ()),
    ("INSERT INTO A (Id, V) VALUES (31, 31) RETURNING Id, W", ()),
    ("UPDATE A SET V = 5000 WHERE Id = 1 RETURNING V", ()),
    ("INSERT INTO K (Id, V) VALUES (1, 1)", ()),
    ("INSERT INTO H VALUES (1)", ()),
]
_WRONG: list[tuple[str, Sequence[object]]] = [
    ("INSERT INTO A (Id, V) VALUES (1, 77)", ()),
    ("INSERT INTO A (Id, V) VALUES (88, 20)", ()),
    ("INSERT INTO A (Id, V) VALUES (?, ?)", ("x", 1)),
    ("INSERT INTO K (Id, B) VALUES (404, 1)", ()),
    ("UPDATE A SET V = ? WHERE Id = ?", (1 << 63, 1)),
    ("UPDATE A SET V = ? WHERE Id = ?", (20, 1)),
    ("UPDATE A SET V = 1 WHERE Id = ?", ()),
    ("DELETE FROM Nowhere WHERE Id = 1", ()),
]


class _Seen:
    """Requests of the client, by kind; the next answer to one of them may be lost."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kinds: list[str] = []
        self.lose: tuple[str, str] | None = None
        for kind in ("execute", "commit", "outcome"):
            monkeypatch.setattr(Frontend, kind, self._noted(kind, getattr(Frontend, kind)))

    def _noted(self, kind: str, serve: Any) -> Any:
        async def noted(*args: Any, **more: Any) -> Any:
            self.kinds.append(kind)
            lose = ""
            if self.lose is not None and self.lose[0] == kind:
                lose, self.lose = self.lose[1], None
            if lose == "before":
                raise F1Error(Code.UNAVAILABLE, "the server is gone", ambiguous=True)
            answer = await serve(*args, **more)
            if lose == "after":
                raise F1Error(Code.UNAVAILABLE, "the server is gone", ambiguous=True)
            return answer

        return noted

    def take(self) -> list[str]:
        kinds, self.kinds = self.kinds, []
        return kinds


async def _filled(db: Database) -> None:
    await db.conn.insert("A", [{"Id": i, "V": 10 * i} for i in (1, 2, 3)])


async def _everything(db: Database) -> list[Any]:
    found = [await db.rows(f"SELECT * FROM {table} ORDER BY 1, 2") for table in ("A", "P", "K")]
    return [*found, await db.rows("SELECT count(*), sum(V) FROM H")]


async def _said(work: Any) -> str:
    try:
        cursor = await work
    except f1.Error as error:
        return f"{error.code} {error.message} {error.details}"
    rows = await cursor.fetchall() if cursor.description else None
    return f"{cursor.rowcount} {cursor.tag} {cursor.description} {rows}"


async def _execute_in(sql: str, params: Sequence[object], tx: Transaction) -> Any:
    return await tx.execute(sql, params)


async def _in_turn(db: Database, *, alone: bool) -> list[tuple[str, list[Any]]]:
    found = []
    for sql, params in (*_GOES, *_STAYS, *_WRONG):
        if alone:
            said = await _said(db.conn.execute(sql, params))
        else:
            said = await _said(db.conn.run(partial(_execute_in, sql, params)))
        found.append((said, await _everything(db)))
    return found


def test_they_do_and_say_what_they_do_with_a_commit_of_their_own() -> None:
    found: list[Any] = []
    for alone in (True, False):

        async def body(db: Database, alone: bool = alone) -> None:
            await _filled(db)
            found.append(await _in_turn(db, alone=alone))

        with_database(body, *DDL)
    for (sql, _), with_it, without in zip((*_GOES, *_STAYS, *_WRONG), *found, strict=True):
        assert with_it == without, sql


@pytest.mark.parametrize(("asked", "goes"), [(_GOES, True), (_STAYS, False)], ids=["goes", "stays"])
@pytest.mark.parametrize("lose", ["", "before", "after"])
def test_each_happens_once(
    monkeypatch: pytest.MonkeyPatch, asked: list[tuple[str, Sequence[object]]], goes: bool, lose: str
) -> None:
    """Also if the answer is lost: with a commit that may have happened nothing is sent twice before that is known."""
    seen = _Seen(monkeypatch)
    found: list[Any] = []
    for fault in ("", lose):

        async def body(db: Database, fault: str = fault) -> None:
            await _filled(db)
            states = []
            for sql, params in asked:
                seen.lose = ("execute", fault) if fault else None
                seen.take()
                said = await _said(db.conn.execute(sql, params))
                kinds = seen.take()
                again = ["execute", "outcome"] + (["execute"] if fault == "before" or not goes else [])
                wanted = again if fault else ["execute"]
                if not goes and "ON CONFLICT" not in sql:
                    wanted = [*wanted, "commit"]
                assert kinds == wanted, (sql, said)
                states.append((said.partition(" None ")[0], await _everything(db)))
            found.append(states)

        with_database(body, *DDL)
    assert found[0] == found[1]


def test_a_broken_outcome_would_do_it_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: Any) -> None:
        return None

    monkeypatch.setattr(Committer, "outcome", never)
    with pytest.raises(AssertionError):
        test_each_happens_once(monkeypatch, _GOES, True, "after")


def _execute(sql: str, params: Sequence[object], **name: Any) -> pb.Execute:
    return pb.Execute(sql=sql, params=encode_params(params), txn=pb.TxnContext(kind=pb.OPTIMISTIC), **name)


def test_who_asks_for_the_outcome_first_decides() -> None:
    async def body(db: Database) -> None:
        await _filled(db)
        frontend = db.process().frontend
        now = db.process().client.strong_timestamp()
        sql, params = _GOES[2]
        name: dict[str, Any] = {"commit_id": b"0123456789", "created_ts": now}
        asked = pb.Outcome(statement=_execute(sql, params), **name)
        assert not (await frontend.outcome("default", asked)).committed
        with pytest.raises(F1Error) as caught:
            await frontend.execute("default", _execute(sql, params, **name))
        assert caught.value.code is Code.ABORTED and not caught.value.ambiguous
        assert await db.rows("SELECT V FROM A WHERE Id = 1") == [(10,)]
        name["commit_id"] = b"9876543210"
        reply = await frontend.execute("default", _execute(sql, params, **name))
        assert reply.commit_ts and not reply.writes and not reply.read_set and reply.rows_affected == 1
        told = await frontend.outcome("default", pb.Outcome(statement=_execute(sql, params), **name))
        assert (told.committed, told.commit_ts, told.tag) == (True, reply.commit_ts, "UPDATE")
        assert await db.rows("SELECT V FROM A WHERE Id = 1") == [(11,)]

    with_database(body, *DDL)


@pytest.mark.parametrize(
    "changes",
    [
        ["ALTER TABLE A RENAME TO B"],
        ["ALTER TABLE A SET PRIMARY KEY (W, Id)"],
        ["DROP TABLE A CASCADE"],
        ["ALTER TABLE A RENAME TO B", DDL[0], "INSERT INTO A (Id, V) VALUES (1, 11)"],
    ],
)
def test_changes_of_the_schema_since_do_not_hide_a_commit(monkeypatch: pytest.MonkeyPatch, changes: list[str]) -> None:
    seen = _Seen(monkeypatch)

    async def body(db: Database) -> None:
        await db.conn.insert("A", {"Id": 1, "V": 10, "W": "w"})
        tell = Outcomes.tell

        async def changed(self: Outcomes, *args: Any) -> Any:
            monkeypatch.setattr(Outcomes, "tell", tell)
            await db.ddl(*changes)
            return await tell(self, *args)

        monkeypatch.setattr(Outcomes, "tell", changed)
        seen.lose = ("execute", "after")
        assert (await db.conn.execute("UPDATE A SET V = V + 1 WHERE Id = 1")).rowcount == 1
        if "DROP" not in changes[0]:
            assert await db.rows(f"SELECT V FROM {'B' if 'RENAME' in changes[0] else 'A'}") == [(11,)]

    with_database(body, *DDL[:1])


def test_nobody_guesses_which_of_two_rows_a_statement_was_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server that ran it may have been one version of the schema behind: its A may have been the first one."""
    seen = _Seen(monkeypatch)

    async def body(db: Database) -> None:
        await db.ddl("ALTER TABLE A RENAME TO B", DDL[0])
        await _filled(db)
        seen.lose = ("execute", "after")
        with pytest.raises(f1.Error) as caught:
            await db.conn.execute("UPDATE A SET V = V + 1 WHERE Id = 1")
        assert caught.value.code is Code.UNKNOWN_OUTCOME
        assert await db.rows("SELECT V FROM A WHERE Id = 1") == [(11,)]

    with_database(body, *DDL[:1])


def test_who_is_ahead_with_the_schema_knows_a_commit_under_the_version_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server that ran the statement did not know yet that its table is called otherwise."""
    seen = _Seen(monkeypatch)

    async def body(db: Database) -> None:
        await _filled(db)
        behind, servers = db.process(1), db.conn._session.servers
        pick = servers.pick
        there = next(s for s in servers.all if s.address == db.nodes.host(db.nodes.names[1]))
        monkeypatch.setattr(servers, "pick", lambda avoid=(), **more: pick(avoid, **more) if avoid else there)

        async def deaf(*_: Any) -> int:
            raise F1Error(Code.UNAVAILABLE, "nobody told me")

        monkeypatch.setattr(db.frontend(1), "catch_up", deaf)
        first = await db.at(0)
        change = db.env.spawn(first.execute("ALTER TABLE A RENAME TO B"))
        await _until_known(db.process(0).leases, "B", "V")
        assert behind.leases.status()[0][1] < db.process(0).leases.status()[0][1]
        await asyncio.sleep(0.02)  # the statement's name is later than the version that it does not run under
        seen.take()
        seen.lose = ("execute", "after")
        assert (await db.conn.execute("UPDATE A SET V = V + 1 WHERE Id = 1")).rowcount == 1
        assert seen.take() == ["execute", "outcome"]
        await change
        assert await db.rows("SELECT V FROM B WHERE Id = 1") == [(11,)]

    with_database(body, DDL[0])


_BRINGS = [
    ("ALTER TABLE A RENAME TO B", "UPDATE B SET V = V + 1 WHERE Id = 1", "B", "V"),
    ("ALTER TABLE A RENAME COLUMN V TO U", "UPDATE A SET U = U + 1 WHERE Id = 1", "A", "U"),
    ("ALTER TABLE A RENAME COLUMN Id TO I", "UPDATE A SET V = V + 1 WHERE I = 1", "A", "I"),
    ("ALTER TABLE A ADD COLUMN U INT64 DEFAULT 10", "UPDATE A SET U = U + 1 WHERE Id = 1", "A", "U"),
]


async def _until_known(leases: SchemaLeases, table: str, column: str) -> None:
    while True:
        async with leases.use("default") as leased:
            found = leased.schema.by_name.get(table.lower())
        if found is not None and column in (c.name for c in found.visible):
            return
        await asyncio.sleep(0.002)


@pytest.mark.parametrize(("ddl", "sql", "table", "column"), _BRINGS)
@pytest.mark.parametrize("seed", [1, 2])
def test_who_is_behind_with_the_schema_knows_a_commit_under_the_next_version(
    monkeypatch: pytest.MonkeyPatch, ddl: str, sql: str, table: str, column: str, seed: int
) -> None:
    """A name that has just come is known to the server that ran the statement, and not to the one that is asked."""
    seen = _Seen(monkeypatch)

    async def body(db: Database) -> None:
        await _filled(db)
        first, servers = await db.at(0), db.conn._session.servers
        pick = servers.pick
        here = next(s for s in servers.all if s.address == db.nodes.host(db.nodes.names[0]))
        monkeypatch.setattr(servers, "pick", lambda avoid=(), **more: pick(avoid, **more) if avoid else here)

        async def deaf(*_: Any) -> int:
            raise F1Error(Code.UNAVAILABLE, "nobody told me")

        monkeypatch.setattr(db.frontend(1), "catch_up", deaf)
        change = db.env.spawn(first.execute(ddl))
        await _until_known(db.process(0).leases, table, column)
        assert db.process(1).leases.status()[0][1] < db.process(0).leases.status()[0][1]
        seen.take()
        seen.lose = ("execute", "after")
        assert (await db.conn.execute(sql)).rowcount == 1
        assert seen.take() == ["execute", "outcome"]
        await change
        assert any(11 in row for row in await db.rows(f"SELECT * FROM {table}"))

    with_database(body, DDL[0], seed=seed)


@pytest.mark.parametrize(("ddl", "sql", "table"), [brings[:3] for brings in _BRINGS])
def test_what_runs_late_under_a_later_schema_is_not_committed(ddl: str, sql: str, table: str) -> None:
    """A server stood still with the statement: nobody who was asked meanwhile could know what it was going to mean."""

    async def body(db: Database) -> None:
        await _filled(db)
        frontend = db.process().frontend
        name: dict[str, Any] = {"commit_id": b"0123456789", "created_ts": db.process().client.strong_timestamp()}
        asked = pb.Outcome(statement=_execute(sql, ()), **name)
        assert not (await frontend.outcome("default", asked)).committed
        await db.ddl(ddl)
        reply = await frontend.execute("default", _execute(sql, (), **name))
        assert not reply.commit_ts and len(reply.writes) == 1
        assert not any(11 in row for row in await db.rows(f"SELECT * FROM {table}"))

    with_database(body, DDL[0])


def test_what_has_a_name_of_the_future_is_not_committed() -> None:
    """More versions of the schema may come until then, and whoever is asked meanwhile does not know them."""

    async def body(db: Database) -> None:
        await _filled(db)
        now = db.process().client.strong_timestamp()
        for ahead_us in (0, 1_000_000):
            execute = _execute(*_GOES[2], commit_id=b"0123456789", created_ts=now + ahead_us)
            reply = await db.process().frontend.execute("default", execute)
            assert bool(reply.commit_ts) is not bool(ahead_us) and bool(reply.writes) is bool(ahead_us)
        assert await db.rows("SELECT V FROM A WHERE Id = 1") == [(11,)]

    with_database(body, *DDL)


def test_who_is_asked_about_a_later_time_waits_for_it() -> None:
    async def body(db: Database) -> None:
        await _filled(db)
        process = db.process()
        sql, params = _GOES[2]
        now = process.client.strong_timestamp()
        for ahead_us, code in ((1_000_000, ""), (3_600_000_000, Code.CLOCK_SKEW)):
            created_ts = now + ahead_us
            asked = pb.Outcome(statement=_execute(sql, params), commit_id=b"0123456789", created_ts=created_ts)
            try:
                assert not (await process.frontend.outcome("default", asked)).committed
                assert process.client.strong_timestamp() > created_ts
            except F1Error as error:
                assert error.code is code, error
            else:
                assert not code

    with_database(body, *DDL)


@pytest.mark.parametrize(
    "sql", ["", ";", "SELECT 1", "DELETE FROM A; DELETE FROM A", "DELETE FROM A WHERE", "(" * 5_000]
)
def test_no_commit_comes_with_what_is_no_statement_that_writes(sql: str) -> None:
    async def body(db: Database) -> None:
        now = db.process().client.strong_timestamp()
        asked = pb.Outcome(statement=pb.Execute(sql=sql), commit_id=b"0123456789", created_ts=now)
        assert not (await db.process().frontend.outcome("default", asked)).committed

    with_database(body, *DDL)


def test_many_at_once_count_each() -> None:
    async def body(db: Database) -> None:
        await _filled(db)

        async def work(number: int) -> None:
            conn = await db.at(number % 2)
            for _ in range(10):
                await conn.execute("UPDATE A SET V = V + 1 WHERE Id = ?", (1 + number % 2,))

        await asyncio.gather(*(db.env.spawn(work(n)) for n in range(8)))
        assert await db.rows("SELECT V FROM A WHERE Id < 3 ORDER BY Id") == [(50,), (60,)]

    with_database(body, DDL[0])


@pytest.mark.parametrize(
    "execute",
    [
        pb.Execute(sql="DELETE FROM A WHERE Id = 1", commit_id=b"12345678", txn=pb.TxnContext(kind=pb.AUTOCOMMIT)),
        pb.Execute(sql="DELETE FROM A WHERE Id = 1", commit_id=b"1234567", txn=pb.TxnContext(kind=pb.OPTIMISTIC)),
        pb.Execute(
            sql="DELETE FROM A WHERE Id = 1", commit_id=b"12345678", txn=pb.TxnContext(kind=pb.OPTIMISTIC, read_ts=5)
        ),
    ],
)
def test_commits_come_with_whole_transactions_only(execute: pb.Execute) -> None:
    async def body(db: Database) -> None:
        await _filled(db)
        with pytest.raises(F1Error) as caught:
            await db.process().frontend.execute("default", execute)
        assert caught.value.code is Code.INVALID_ARGUMENT
        assert len(await db.rows("SELECT Id FROM A")) == 3

    with_database(body, *DDL)
