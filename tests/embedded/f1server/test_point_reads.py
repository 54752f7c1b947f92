"""Reads of one row outside of a transaction: in the form of few rows, and together with others."""

import asyncio
import datetime
import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest

from f1.nosql import Read, table_read
from f1.results import ResultSet, Rows, dicts_of
from f1.servers import Resend
from f1.session import Session
from f1.values import encode_params
from f1common.encoding.row import encode_row
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from f1common.pb import spanstore_pb2 as pb_span
from f1common.rpc.deadlines import Deadline
from f1server.exec.engine import Engine
from f1server.rows.keys import row_key
from f1server.testing.database import Database, with_database
from f1server.txn import together
from spanstore.client import SpanClient, Write
from spanstore.client.twophase import Plan, Share

DDL = (
    "CREATE TABLE P (D DOUBLE NOT NULL, N NUMERIC NOT NULL, S STRING NOT NULL, "
    "B BOOL, I INT64, F DOUBLE, X NUMERIC(10, 2), T STRING, Y BYTES, Day DATE, At TIMESTAMP, PRIMARY KEY (D, N, S))",
    "CREATE TABLE Kid (D DOUBLE NOT NULL, N NUMERIC NOT NULL, S STRING NOT NULL, K INT64 NOT NULL, V STRING, "
    "PRIMARY KEY (D, N, S, K)) INTERLEAVE IN PARENT P",
    "CREATE TABLE A (Id INT64 NOT NULL, V INT64, PRIMARY KEY (Id))",
)
_NAMES = ("D", "N", "S", "B", "I", "F", "X", "T", "Y", "Day", "At")
_NOON = datetime.datetime(2026, 2, 28, 12, 0, 0, 500_000, datetime.UTC)
_FIRST = datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)
_ROWS = (
    (-0.0, Decimal("1.50"), "a", True, 1, 2.5, Decimal("10.50"), "text", b"\x00\xff", _NOON.date(), _NOON),
    (0.5, 100, "b", False, -1, 1e308, Decimal("-0.01"), "", b"", _FIRST.date(), _FIRST),
    (1e300, Decimal("-0.000000001"), "", None, None, None, None, None, None, None, None),
)


_PROTO = 'syntax = "proto3"; package x; message M { string name = 1; }'
_MESSAGE = b"\n\x02ab"


async def _both(db: Database, read: Read) -> tuple[list[Any], list[Any]]:
    """Return what a read gives as few rows and as an Arrow stream."""
    session = db.conn.session
    message = table_read(await session.metadata(), read)
    found = []
    for few in (True, False):
        reply = await session.read(pb.Read(reads=[message], few_as_rows=few), session.deadline())
        assert bool(reply.results[0].arrow) is not few
        found.append(dicts_of(reply.results[0], session))
    return found[0], found[1]


def test_few_rows_are_what_they_are_in_an_arrow_stream() -> None:
    async def body(db: Database) -> None:
        await db.conn.insert("P", [dict(zip(_NAMES, values, strict=True)) for values in _ROWS])
        for read in (
            Read("P", [(0.0, 1.5, "a")]),
            Read("P", [(-0.0, 1, "a")]),
            Read("P", [(0.5, 100, "b")], ["S", "X", "D"]),
            Read("P", [(1e300, Decimal("-0.000000001"), "")]),
            Read("P"),
        ):
            few, arrow = await _both(db, read)
            assert [[(n, type(v), repr(v)) for n, v in row.items()] for row in few] == [
                [(n, type(v), repr(v)) for n, v in row.items()] for row in arrow
            ]
        everything, _ = await _both(db, Read("P"))
        assert len(everything) == 3
        # Its key is given back as a scan gives it, however it was asked for: 0.0 and 1.5.
        point, _ = await _both(db, Read("P", [(-0.0, Decimal("1.50"), "a")]))
        (scanned,) = (row for row in everything if row["S"] == "a")
        assert repr(point[0]) == repr(scanned)
        assert await _both(db, Read("P", [(7.0, 7, "")])) == ([], [])

    with_database(body, *DDL)


def test_a_select_of_a_row_by_key_is_what_it_is_in_an_arrow_stream() -> None:
    async def body(db: Database) -> None:
        await db.conn.insert("P", [dict(zip(_NAMES, values, strict=True)) for values in _ROWS])
        schema = "CREATE TABLE Q (Id INT64 NOT NULL, M PROTO<x.M>, D DOUBLE, PRIMARY KEY (Id));"
        sources = {"q.sql": "\n".join(f"{sql};" for sql in DDL) + schema, "x.proto": _PROTO}
        await db.conn.apply_schema(sources)
        await db.conn.insert("Q", {"Id": 1, "M": _MESSAGE, "D": -0.0})
        session = db.conn.session
        shapes = {
            "SELECT S, B, I, F, T, Y, Day, At, D FROM P WHERE D = ? AND N = ? AND S = ?": True,
            "SELECT At, At, I AS again FROM P AS p WHERE p.D = ? AND p.N = ? AND p.S = ?": True,
            "SELECT I FROM P WHERE D = ? AND N = ? AND S = ? AND D > -5": False,
            "SELECT * FROM P WHERE D = ? AND N = ? AND S = ?": True,
            "SELECT X, N, X AS again FROM P WHERE D = ? AND N = ? AND S = ?": True,
            "SELECT I + 1 FROM P WHERE D = ? AND N = ? AND S = ?": False,
        }
        asked: list[tuple[str, bool, Sequence[object]]] = [
            (sql, few, row[:3]) for sql, few in shapes.items() for row in _ROWS
        ]
        asked += [("SELECT M, D, Id FROM Q WHERE Id = ?", True, (1,)), ("SELECT M.name FROM Q WHERE Id = 1", False, ())]
        for text, as_few, key in asked:
            found = []
            for few in (True, False):
                autocommit = pb.TxnContext(kind=pb.AUTOCOMMIT)
                execute = pb.Execute(sql=text, params=encode_params(key), txn=autocommit, few_as_rows=few)
                for way in (_all, _one_by_one, _table):
                    answer = await session.execute(execute, session.deadline(), Resend.ALWAYS)
                    assert bool(answer[0].rows) is (few and as_few), text
                    found.append(await way(Rows(ResultSet(session, answer))))
            assert found[:3] == found[3:], text
            assert found[0] == found[1]
        nothing = await db.conn.execute("SELECT I, T FROM P WHERE D = 7 AND N = 7 AND S = ''")
        assert (await nothing.fetch_arrow()).schema.names == ["I", "T"]

    with_database(body, *DDL)


async def _all(rows: Rows) -> list[str]:
    return [repr(row) for row in await rows.fetchall()]


async def _one_by_one(rows: Rows) -> list[str]:
    found = []
    while (row := await rows.fetchone()) is not None:
        found.append(repr(row))
    return found


async def _table(rows: Rows) -> list[str]:
    table = await rows.fetch_arrow()
    return [str(table.schema), repr(table.to_pydict())]


def test_a_select_by_key_in_a_transaction_notes_what_it_saw() -> None:
    async def body(db: Database) -> None:
        await db.conn.insert("A", [{"Id": 1, "V": 10}, {"Id": 2, "V": 20}])
        await asyncio.sleep(20)  # snapshots are of the past
        session = db.conn.session
        for kind, noted in ((pb.OPTIMISTIC, 1), (pb.SNAPSHOT, 0), (pb.AUTOCOMMIT, 0)):
            for number in (1, 3):
                seen = []
                for few in (True, False):
                    execute = pb.Execute(
                        sql="SELECT V FROM A WHERE Id = ?",
                        params=encode_params([number]),
                        txn=pb.TxnContext(kind=kind),
                        few_as_rows=few,
                    )
                    reply, _ = await session.execute(execute, session.deadline(), Resend.ALWAYS)
                    assert bool(reply.rows) is (few and number == 1)
                    assert reply.read_ts > 0 and len(reply.read_set) == noted
                    seen.append([(entry.key, entry.ts, tuple(entry.columns)) for entry in reply.read_set])
                assert seen[0] == seen[1]

    with_database(body, *DDL)


@pytest.mark.parametrize("kind", ["optimistic", "pessimistic", "snapshot"])
def test_a_select_by_key_in_a_transaction_is_answered_as_cells(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    found: list[object] = []
    run_point = Engine.run_point

    async def noted(engine: Engine, *arguments: Any) -> Any:
        result = await run_point(engine, *arguments)
        found.append(result and len(result.cells))
        return result

    monkeypatch.setattr(Engine, "run_point", noted)

    async def body(db: Database) -> None:
        await db.conn.insert("A", [{"Id": 1, "V": 10}, {"Id": 2, "V": 20}])
        await asyncio.sleep(20)  # snapshots are of the past
        async with db.conn.transaction(kind) as tx:
            assert await (await tx.execute("SELECT V FROM A WHERE Id = 1")).fetchall() == [(10,)]
            assert await (await tx.execute("SELECT V FROM A WHERE Id = 3")).fetchall() == []
            assert found == [1, 0]
            if kind != "snapshot":
                await tx.execute("UPDATE A SET V = V + 1 WHERE Id = 1")
                assert await (await tx.execute("SELECT V FROM A WHERE Id = 1")).fetchall() == [(11,)]

        async def taken(tx: Any) -> None:
            (row,) = await (await tx.execute("SELECT V FROM A WHERE Id = 2")).fetchall()
            if kind == "optimistic" and row == (20,):
                await db.conn.update("A", {"Id": 2, "V": 21})  # what was read is no more when it commits
            await tx.upsert("A", {"Id": 4, "V": row[0]})

        if kind != "snapshot":
            await db.conn.run(taken, kind=kind)
            assert await db.rows("SELECT V FROM A WHERE Id = 4") == [(21 if kind == "optimistic" else 20,)]

    with_database(body, *DDL)


def test_many_rows_come_as_an_arrow_stream() -> None:
    async def body(db: Database) -> None:
        await db.conn.insert("A", [{"Id": i, "V": i} for i in range(40)])
        session = db.conn.session
        for count in (32, 33):
            message = table_read(await session.metadata(), Read("A", list(range(count))))
            reply = await session.read(pb.Read(reads=[message], few_as_rows=True), session.deadline())
            assert bool(reply.results[0].arrow) is (count == 33)
            assert [row["V"] for row in dicts_of(reply.results[0], session)] == list(range(count))

    with_database(body, *DDL)


def test_timestamp_is_that_of_the_read_and_within_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(db: Database) -> None:
        await db.conn.insert("A", {"Id": 1, "V": 1})
        conn = await db.at(0)
        session = conn.session
        read = pb.Read(reads=[table_read(await session.metadata(), Read("A", [1]))])
        select = pb.Execute(sql="SELECT V FROM A WHERE Id = 1", few_as_rows=True)
        await session.execute(select, session.deadline(), Resend.ALWAYS)  # from now on it has no plan of its own
        at = [0]

        async def answer(key: bytes) -> tuple[int, None]:
            return at[0], None

        runner = db.process()._sql
        monkeypatch.setattr(runner.together, "read", answer)
        at[0] = session.servers.now_us() + 1_234
        assert (await session.read(read, session.deadline())).read_ts == at[0]
        reply, _ = await session.execute(select, session.deadline(), Resend.ALWAYS)
        assert reply.read_ts == at[0]
        # What the schema promises holds as long as the lease: a server that stood still may not answer.
        at[0] += 3_600_000_000
        for asked in (session.read(read, Deadline.after(1.0)), _execute(session, select)):
            with pytest.raises(F1Error) as caught:
                await asked
            assert caught.value.code in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED)

    with_database(body, *DDL, f1servers=1)


async def _execute(session: Session, select: pb.Execute) -> object:
    return await session.execute(select, Deadline.after(1.0), Resend.ALWAYS)


def test_bad_keys_and_names_are_told() -> None:
    async def body(db: Database) -> None:
        session = db.conn.session
        for table, key, code in (("A", b"\x00\x01\x02", Code.INVALID_ARGUMENT), ("Nope", b"", Code.NOT_FOUND)):
            message = pb.TableRead(table=table, keys=pb.KeySet(keys=[key]))
            with pytest.raises(F1Error) as caught:
                await session.read(pb.Read(reads=[message], few_as_rows=True), session.deadline())
            assert caught.value.code is code
        with pytest.raises(F1Error) as caught:
            await db.conn.get("A", 1, ["Nope"])
        assert caught.value.code is Code.NOT_FOUND

    with_database(body, *DDL)


class Counted:
    """Counts the requests of a server's reads, and what keys they are about."""

    def __init__(self, client: SpanClient, monkeypatch: pytest.MonkeyPatch) -> None:
        self.together: list[Sequence[bytes]] = []
        self.alone = 0
        apart, read = client.read_apart, client.read

        async def read_apart(keys: Sequence[bytes], *args: Any, **kwargs: Any) -> Any:
            self.together.append(keys)
            return await apart(keys, *args, **kwargs)

        async def read_one(*args: Any, **kwargs: Any) -> Any:
            self.alone += 1
            return await read(*args, **kwargs)

        monkeypatch.setattr(client, "read_apart", read_apart)
        monkeypatch.setattr(client, "read", read_one)


def test_reads_that_arrive_together_are_one_request_to_each_group(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(db: Database) -> None:
        await db.conn.insert("A", [{"Id": i, "V": -i} for i in range(60)])
        conn = await db.at(0)
        await conn.get("A", 0)
        counted = Counted(db.process().client, monkeypatch)
        asked = [random.Random(i).randrange(70) for i in range(200)]
        rows = await asyncio.gather(*(conn.get("A", i) for i in asked))
        assert [row and row["V"] for row in rows] == [-i if i < 60 else None for i in asked]
        assert counted.alone == 0 and sum(map(len, counted.together)) == len(set(asked))
        assert len(counted.together) <= 6  # how many messages of requests there were

        # The same by statements that commit by themselves.
        counted.together.clear()
        sql = "SELECT V FROM A WHERE Id = ?"
        cursors = await asyncio.gather(*(conn.execute(sql, (i,)) for i in asked))
        found = [await cursor.fetchall() for cursor in cursors]
        assert found == [[(-i,)] if i < 60 else [] for i in asked]
        assert sum(map(len, counted.together)) == len(set(asked)) and len(counted.together) <= 6
        # And what reads more than a row, or in a transaction, does it at one moment.
        assert counted.alone == 0
        async with conn.transaction() as tx:
            assert await (await tx.execute(sql, (7,))).fetchall() == [(-7,)]
        assert counted.alone == 1

        # More than a request takes: several.
        counted.together.clear()
        monkeypatch.setattr(together, "MAX_KEYS", 10)
        rows = await asyncio.gather(*(conn.get("A", i) for i in range(60)))
        assert [row and row["V"] for row in rows] == [-i for i in range(60)]
        assert {len(keys) for keys in counted.together} == {10}

    with_database(body, *DDL, f1servers=1)


def test_row_of_an_undecided_transaction_holds_up_nobody_else() -> None:
    async def body(db: Database) -> None:
        await db.conn.insert("A", [{"Id": i, "V": 0} for i in range(5)])
        conn = await db.at(0)
        await conn.get("A", 0)
        seen: list[int] = []

        async def get(i: int) -> Any:
            (row,) = await conn.read("A", i)
            seen.append(i)
            return row["V"]

        schema = (await db.process().leases.current("default")).schema
        key = row_key(schema, schema.table("A"), [3])
        router = db.storage._router
        await db.storage.read([key])
        group = db.storage.group_of(key)
        assert group is not None
        # Its coordinator is the other group, and decides nothing as long as nobody asks it.
        pieces = (await db.storage.range_map()).pieces(b"\x01", b"\xff")
        identity = db.storage.new_commit_id(next(start for start, _, owner in pieces if owner == 3 - group))
        shares = {group: Share([Write(key, encode_row({2: 9}))])}
        now = identity.created_ts
        plan = Plan(identity, 1, now, 3 - group, shares, now + 60_000_000, 0)
        prepare = pb_span.Prepare(work=plan.work(group), coordinator_group=3 - group)
        await router.send(group, lambda: pb_span.Request(prepare=prepare), 5.0)
        asked = [asyncio.create_task(get(i)) for i in range(5)]
        while len(seen) < 4:
            await asyncio.sleep(0.001)
        assert sorted(seen) == [0, 1, 2, 4]
        decide = pb_span.Decide(txn=plan.txn(), commit=False)
        await router.send(group, lambda: pb_span.Request(decide=decide), 5.0)
        assert await asyncio.gather(*asked) == [0] * 5

    with_database(body, *DDL, f1servers=1)


def test_what_one_row_fails_with_is_no_other_readers_concern(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(db: Database) -> None:
        await db.conn.insert("A", [{"Id": i, "V": i} for i in range(5)])
        conn = await db.at(0)
        await conn.get("A", 0)
        client = db.process().client
        apart, read = client.read_apart, client.read
        schema = (await db.process().leases.current("default")).schema
        damaged = row_key(schema, schema.table("A"), [3])

        def broken(keys: Sequence[bytes]) -> None:
            if damaged in keys:
                raise F1Error(Code.DATA_CORRUPTION, "told to say so")

        async def read_apart(keys: Sequence[bytes], *args: Any, **kwargs: Any) -> Any:
            broken(keys)
            return await apart(keys, *args, **kwargs)

        async def read_one(keys: Sequence[bytes], *args: Any, **kwargs: Any) -> Any:
            broken(keys)
            return await read(keys, *args, **kwargs)

        monkeypatch.setattr(client, "read_apart", read_apart)
        monkeypatch.setattr(client, "read", read_one)
        rows = await asyncio.gather(*(conn.get("A", i) for i in range(5)), return_exceptions=True)
        codes = [row.code if isinstance(row, F1Error) else row["V"] for row in rows]  # type: ignore[index]
        assert codes == [0, 1, 2, Code.DATA_CORRUPTION, 4]

    with_database(body, *DDL, f1servers=1)
