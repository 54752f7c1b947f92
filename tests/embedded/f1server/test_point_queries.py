"""SELECT of a row by its key on the short way: it says what the long way says, and is taken where it may be."""

import datetime
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest

from f1.servers import Resend
from f1common.encoding.row import encode_row
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from f1server.points import PointQueries
from f1server.testing.database import Database, with_database
from tests.embedded.f1server.test_access import T, code_of, given, rows

DDL = (
    "CREATE TABLE P (D DOUBLE NOT NULL, N NUMERIC NOT NULL, S STRING NOT NULL, I INT64, B BOOL, "
    "X NUMERIC(10, 2), Z NUMERIC(29, 0), PRIMARY KEY (D, N, S))",
    "CREATE TABLE T (At TIMESTAMP NOT NULL, Day DATE NOT NULL, Y BYTES NOT NULL, V STRING, PRIMARY KEY (At, Day, Y))",
    "CREATE TABLE A (Id INT64 NOT NULL, V INT64, W STRING, PRIMARY KEY (Id))",
    "CREATE TABLE Kid (Id INT64 NOT NULL, K INT64 NOT NULL, V STRING, PRIMARY KEY (Id, K)) INTERLEAVE IN PARENT A",
)
_NOON = datetime.datetime(2026, 2, 28, 12, 0, 0, 500_000, datetime.UTC)

_SHORT: list[tuple[str, Sequence[object]]] = [
    ("SELECT V, W FROM A WHERE Id = ?", (1,)),
    ("SELECT V, W FROM A WHERE Id = ?", (2,)),
    ("SELECT V, W FROM A WHERE Id = ?", (99,)),
    ("SELECT * FROM A WHERE Id = ?", (Decimal(1),)),
    ("SELECT W AS x, Id, W FROM A AS a WHERE a.Id = -(-1)", ()),
    ("SELECT Id FROM A WHERE 1 = Id", ()),
    ("SELECT V FROM A WHERE (Id) = CAST(? AS BIGINT)", ("1",)),
    ("SELECT V FROM A WHERE Id = '1'", ()),
    ("SELECT V FROM Kid WHERE K = ? AND Id = ?", (7, 1)),
    ("SELECT S, I, D FROM P WHERE S = ? AND N = ? AND D = ?", ("a", Decimal("1.50"), -0.0)),
    ("SELECT N, X, Z FROM P WHERE D = 0 AND N = 1.5 AND S = 'a'", ()),
    ("SELECT * FROM P WHERE D = ? AND N = ? AND S = ?", (0.0, Decimal("2"), "b")),
    ("SELECT * FROM T WHERE Y = ? AND Day = ? AND At = ?", (b"\x00\xff", _NOON.date(), _NOON)),
    ("SELECT V FROM T WHERE Y = ? AND Day = '2026-02-28' AND At = '2026-02-28 12:00:00.5+00'", (b"\x00\xff",)),
]
_LONG: list[tuple[str, Sequence[object]]] = [
    ("SELECT S, B, D FROM P WHERE D = ? AND N = ? AND S = ?", (0, 1.5, "a")),
    ("SELECT V FROM A WHERE Id = ?", (None,)),
    ("SELECT V FROM A WHERE Id = ?", (1.5,)),
    ("SELECT V FROM A WHERE Id = 1 AND Id = 2", ()),
    ("SELECT V FROM A WHERE Id = 1 AND V = 10", ()),
    ("SELECT V FROM A WHERE Id = 1 OR Id = 2", ()),
    ("SELECT V FROM A WHERE Id IN (1)", ()),
    ("SELECT V FROM A WHERE Id >= 2", ()),
    ("SELECT DISTINCT V FROM A WHERE Id = 1", ()),
    ("SELECT V FROM A WHERE Id = 1 LIMIT 0", ()),
    ("SELECT V FROM A WHERE Id = 1 ORDER BY Id LIMIT 0", ()),
    ("SELECT V FROM A WHERE Id = 1 AND V = Id", ()),
    ("SELECT V FROM A WHERE Id = 1 AND Id = 1", ()),
    ("SELECT Id FROM A WHERE V = 10", ()),
    ("SELECT V + 1 FROM A WHERE Id = 1", ()),
    ("SELECT count(*) FROM A WHERE Id = 1", ()),
    ("SELECT V FROM Kid WHERE Id = 1", ()),
    ("SELECT A.V FROM A JOIN Kid USING (Id) WHERE A.Id = 1", ()),
    ("SELECT /*+ distributed */ V FROM A WHERE Id = 1", ()),
]
_WRONG: list[tuple[str, Sequence[object]]] = [
    ("SELECT V FROM A WHERE Id = ?", ()),
    ("SELECT V FROM A WHERE Id = ?", ("x",)),
    ("SELECT V FROM A WHERE Id = 1 AS OF 0", ()),
    ("SELECT I FROM P WHERE D = 0 AND N = CAST(1.5 AS NUMERIC) AND S = ?", ("x" * 600,)),
]


class _Ways:
    """Counts the statements that were answered on the short way; it can be closed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.short = 0
        self.closed = False
        run = PointQueries.run

        async def counted(points: PointQueries, *args: Any) -> Any:
            answer = None if self.closed else await run(points, *args)
            self.short += answer is not None
            return answer

        monkeypatch.setattr(PointQueries, "run", counted)


async def _said(db: Database, sql: str, params: Sequence[object]) -> str:
    try:
        cursor = await db.conn.execute(sql, params)
    except F1Error as error:
        return f"{error.code} {error.message} {error.details}"
    told = f"{cursor.description} {cursor.rowcount} {await cursor.fetchall()!r}"
    return f"{told} {(await (await db.conn.execute(sql, params)).fetch_arrow()).schema}"


async def _filled(db: Database) -> None:
    await db.conn.insert("A", [{"Id": 1, "V": 10, "W": "w"}, {"Id": 2, "V": None, "W": ""}])
    await db.conn.insert("Kid", [{"Id": 1, "K": 7, "V": "kid"}, {"Id": 1, "K": 8, "V": "other"}])
    await db.conn.insert(
        "P", {"D": -0.0, "N": Decimal("1.5"), "S": "a", "I": 1, "B": True, "X": Decimal("0.10"), "Z": Decimal(10**28)}
    )
    await db.conn.insert("P", {"D": 0.0, "N": 2, "S": "b", "X": -7})
    await db.conn.insert("T", {"At": _NOON, "Day": _NOON.date(), "Y": b"\x00\xff", "V": "at noon"})


@pytest.mark.parametrize(
    ("asked", "is_short"), [(_SHORT, True), (_LONG, False), (_WRONG, False)], ids=["short", "long", "wrong"]
)
def test_both_ways_say_the_same(
    monkeypatch: pytest.MonkeyPatch, asked: list[tuple[str, Sequence[object]]], is_short: bool
) -> None:
    ways = _Ways(monkeypatch)

    async def body(db: Database) -> None:
        await _filled(db)
        for sql, params in asked:
            ways.closed = True
            expected = await _said(db, sql, params)
            ways.closed, ways.short = False, 0
            for _ in range(2):  # asked twice, each time
                assert await _said(db, sql, params) == expected, sql
            assert ways.short == (4 if is_short else 0), (sql, params, expected)

    with_database(body, *DDL, f1servers=1)


def test_transactions_and_the_past_go_the_long_way(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = _Ways(monkeypatch)

    async def body(db: Database) -> None:
        await _filled(db)
        sql = "SELECT V FROM A WHERE Id = 1"
        assert [await db.rows(sql) for _ in range(2)] == [[(10,)]] * 2
        assert ways.short == 1
        async with db.conn.transaction() as tx:
            await tx.execute("UPDATE A SET V = 11 WHERE Id = 1")
            assert await (await tx.execute(sql)).fetchall() == [(11,)]
        async with db.conn.transaction("pessimistic") as tx:
            assert await (await tx.execute(sql)).fetchall() == [(11,)]
        assert ways.short == 1
        assert await db.rows(sql) == [(11,)]
        assert ways.short == 2
        # Writes that come with a statement are seen, whatever it says of its transaction.
        schema = (await db.process().leases.current("default")).schema
        key = encode_row({schema.table("A").column("Id").id: 1})
        gone = pb.LogicalWrite(kind=pb.LogicalWrite.DELETE, table="A", key=key, schema_version=schema.version)
        execute = pb.Execute(sql=sql, txn=pb.TxnContext(writes=[gone]), few_as_rows=True)
        reply, _ = await db.conn.session.execute(execute, db.conn.session.deadline(), Resend.ALWAYS)
        assert not reply.rows and ways.short == 2
        # Nothing is told of a form that its table had not yet.
        monkeypatch.setitem(vars(schema), "indexes_since", db.conn.session.servers.now_us() + 10_000_000)
        assert await db.rows(sql) == [(11,)]
        assert ways.short == 2

    with_database(body, *DDL, f1servers=1)


def test_it_knows_the_schema_and_the_rights_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = _Ways(monkeypatch)

    async def body(db: Database) -> None:
        await _filled(db)
        for _ in range(2):
            assert await db.rows("SELECT * FROM A WHERE Id = 1") == [(1, 10, "w")]
        await db.ddl("ALTER TABLE A DROP COLUMN W", "ALTER TABLE A ADD COLUMN X INT64 DEFAULT 5")
        for _ in range(3):
            assert await db.rows("SELECT * FROM A WHERE Id = 1") == [(1, 10, 5)]
        with pytest.raises(F1Error):
            await db.rows("SELECT W FROM A WHERE Id = 1")
        assert ways.short >= 2
        await db.ddl("DROP TABLE Kid", "DROP TABLE A")
        with pytest.raises(F1Error):
            await db.rows("SELECT * FROM A WHERE Id = 1")

    with_database(body, *DDL)


def test_it_asks_for_the_right_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = _Ways(monkeypatch)

    async def body(db: Database) -> None:
        boss, app = await given(db, "GRANT SELECT ON T TO app")
        await boss.insert("T", {"A": 1, "B": 2})
        sql = "SELECT B FROM T WHERE A = 1"
        assert [await rows(app, sql) for _ in range(3)] == [[(2,)]] * 3
        assert ways.short >= 1
        await boss.execute("REVOKE SELECT ON T FROM app")
        assert await rows(boss, sql) == [(2,)]
        assert await code_of(app.execute(sql)) is Code.PERMISSION_DENIED

    with_database(body, T, f1servers=1)
