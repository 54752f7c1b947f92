"""Rows that are inserted by columns: in one round where nothing needs a look, else as if they had come one by one."""

import asyncio
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from f1common.errors import Code, F1Error
from f1server.rows.columns import PlannedRows, plan_rows
from f1server.testing.checks import check_consistency
from f1server.testing.database import Database, with_database
from f1server.txn import committer
from spanstore.client import Transaction

DDL = (
    "CREATE TABLE R (Id INT64 NOT NULL, Price DECIMAL(9, 2), Note STRING, PRIMARY KEY (Id))",
    "CREATE TABLE C (Id INT64 NOT NULL, K STRING NOT NULL, V INT64, PRIMARY KEY (Id, K)) INTERLEAVE IN PARENT R",
    "CREATE TABLE X (Id INT64 NOT NULL, V INT64, W INT64 DEFAULT 7, PRIMARY KEY (Id))",
    "CREATE INDEX XByV ON X (V)",
    "CREATE TABLE U (Id INT64 NOT NULL, Code STRING, V INT64, PRIMARY KEY (Id))",
    "CREATE UNIQUE INDEX UByCode ON U (Code)",
    "CREATE INDEX UByV ON U (V) STORING (Code)",
)
MANY = 40


class Plans:
    """Counts what was planned by columns, and what had to be looked at one by one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: list[bool] = []

        def noting(*args: Any) -> PlannedRows | None:
            planned = plan_rows(*args)
            self.found.append(planned is not None)
            return planned

        monkeypatch.setattr(committer, "plan_rows", noting)

    def taken(self) -> list[bool]:
        found, self.found = self.found, []
        return found


def roots(first: int, count: int = MANY) -> list[dict[str, Any]]:
    return [{"Id": n, "Price": Decimal(n), "Note": f"n{n}" if n % 2 else None} for n in range(first, first + count)]


def children(root: int, first: int = 0) -> list[dict[str, Any]]:
    return [{"Id": root, "K": f"k{n:03}", "V": n} for n in range(first, first + MANY)]


def run(body: Callable[[Database, Plans], Any], f1servers: int = 1) -> None:
    monkeypatch = pytest.MonkeyPatch()
    with monkeypatch.context() as patched:
        plans = Plans(patched)
        with_database(lambda db: body(db, plans), *DDL, f1servers=f1servers)


def test_rows_are_there_with_their_history() -> None:
    async def body(db: Database, plans: Plans) -> None:
        conn = await db.at(0)
        assert await conn.insert("R", list(reversed(roots(1)))) == MANY
        assert await conn.insert("C", children(3)) == MANY
        assert plans.taken() == [True, True]
        assert await db.rows("SELECT count(*), sum(Price), count(Note), min(Note) FROM R") == [
            (MANY, Decimal(MANY * (MANY + 1) // 2), MANY // 2, "n1")
        ]
        assert await db.rows("SELECT K, V FROM C WHERE Id = 3 AND K >= 'k038' ORDER BY K") == [
            ("k038", 38),
            ("k039", 39),
        ]
        await asyncio.sleep(2.0)  # history is read up to the safe timestamp
        batches, _ = await conn.read_changes("R", 3)
        assert [[change.kind for change in batch.changes] for batch in batches] == [["INSERT"], ["INSERT"] * MANY]
        assert batches[0].changes[0].after == {"Price": Decimal(3), "Note": "n3"}
        assert batches[1].changes[5].after == {"V": 5}
        # The first batch of a transaction with many roots names them all, and the others name that one.
        (first,), _ = await conn.read_changes("R", 1)
        assert (first.other_roots, batches[0].other_roots, batches[1].other_roots) == (MANY - 1, MANY - 1, 0)
        assert await check_consistency(db.conn) == []

    run(body)


def test_what_is_wrong_with_a_row_is_told_and_none_is_inserted() -> None:
    async def body(db: Database, plans: Plans) -> None:
        conn = await db.at(0)
        await conn.insert("R", roots(10, 1))
        wrong = [
            ("R", roots(0), Code.ALREADY_EXISTS, "(Id) = (10)"),
            ("R", [*roots(100), *roots(105, 1)], Code.ALREADY_EXISTS, "(Id) = (105)"),
            ("C", children(99), Code.FAILED_PRECONDITION, "C"),
            ("R", [{"Id": n, "Price": Decimal(10) ** 7, "Note": ""} for n in range(MANY)], Code.OUT_OF_RANGE, "Price"),
            ("R", [{"Id": n or None, "Price": None, "Note": ""} for n in range(MANY)], Code.INVALID_ARGUMENT, "Id"),
        ]
        for table, rows, code, text in wrong:
            with pytest.raises(F1Error) as refused:
                await conn.insert(table, rows)
            assert refused.value.code is code
            assert text in refused.value.message
        assert plans.taken() == [True, False, True, False, False]
        assert await db.rows("SELECT Id FROM R") == [(10,)]
        assert await db.rows("SELECT count(*) FROM C") == [(0,)]
        assert await check_consistency(db.conn) == []

    run(body)


def test_the_row_whose_values_are_wrong_is_named() -> None:
    async def body(db: Database, plans: Plans) -> None:
        conn = await db.at(0)
        for column, value in (("Price", Decimal(10) ** 7), ("Id", None)):
            rows = [{**row, column: value} if n == 30 else row for n, row in enumerate(roots(0))]
            with pytest.raises(F1Error) as refused:
                await conn.insert("R", rows)
            assert refused.value.details["write"] == "30"
        for position in (0, 30):
            rows = [{**row, "Id": "a text" if n == position else row["Id"]} for n, row in enumerate(roots(0))]
            with pytest.raises(F1Error) as refused:
                await conn.insert("R", rows)
            assert refused.value.details["write"] == str(position)
        keys = [{"Id": 1, "K": "k" * (600 if n == 5 else 1) + str(n), "V": 0} for n in range(MANY)]
        with pytest.raises(F1Error) as refused:
            await conn.insert("C", keys)
        assert (refused.value.code, refused.value.details["write"]) == (Code.KEY_TOO_LONG, "5")

    run(body)


def test_tables_with_more_to_do_take_rows_one_by_one() -> None:
    async def body(db: Database, plans: Plans) -> None:
        conn = await db.at(0)
        await conn.insert("X", [{"Id": n, "V": n % 5} for n in range(MANY)])
        assert plans.taken() == [False]
        assert await db.rows("SELECT count(*), sum(W) FROM X WHERE V = 3") == [(MANY // 5, 7 * MANY // 5)]
        await conn.insert("R", [{"Id": n, "Price": Decimal("1.005"), "Note": ""} for n in range(MANY)])
        assert await db.rows("SELECT DISTINCT Price FROM R") == [(Decimal("1.01"),)]
        assert await check_consistency(db.conn) == []

    run(body)


def test_index_entries_are_made_by_columns() -> None:
    async def body(db: Database, plans: Plans) -> None:
        conn = await db.at(0)
        rows = [{"Id": n, "Code": None if n % 4 == 0 else f"c{n}", "V": n % 5} for n in range(MANY)]
        await conn.insert("U", rows)
        await conn.insert("X", [{"Id": n, "V": n % 5, "W": n} for n in range(MANY)])
        assert plans.taken() == [True, True]
        assert await db.rows("SELECT count(*), min(Code) FROM U WHERE V = 3") == [(MANY // 5, "c13")]
        assert await db.rows("SELECT Id FROM U WHERE Code = 'c7'") == [(7,)]
        assert await db.rows("SELECT count(*) FROM X WHERE V = 3") == [(MANY // 5,)]
        more = [{"Id": 100 + n, "Code": f"d{n}", "V": 0} for n in range(MANY)]
        for taken in ("c7", "d3"):  # by a row that is there, and by one of the same insert
            with pytest.raises(F1Error) as refused:
                await conn.insert("U", [*more, {"Id": 200, "Code": taken, "V": 0}])
            assert refused.value.code is Code.ALREADY_EXISTS
            assert f"(Code) = ('{taken}')" in refused.value.message
        assert plans.taken() == [True, False]
        await conn.insert("U", [*more, {"Id": 200, "Code": None, "V": 0}])
        assert await db.rows("SELECT count(*), count(Code) FROM U") == [(2 * MANY + 1, 7 * MANY // 4)]
        assert await check_consistency(db.conn) == []

    run(body)


def test_of_two_that_insert_the_same_rows_one_does() -> None:
    async def body(db: Database, plans: Plans) -> None:
        connections = [await db.at(n % 2) for n in range(6)]
        done = await asyncio.gather(
            *(conn.insert("R", roots(10 * n)) for n, conn in enumerate(connections)), return_exceptions=True
        )
        failures = [error for error in done if isinstance(error, BaseException)]
        assert all(isinstance(error, F1Error) and error.code is Code.ALREADY_EXISTS for error in failures)
        assert failures
        assert await db.rows("SELECT count(*) FROM R") == [(MANY * (len(done) - len(failures)),)]
        assert await check_consistency(db.conn) == []

    run(body, f1servers=2)


def test_a_parent_that_goes_at_the_same_time() -> None:
    async def body(db: Database, plans: Plans) -> None:
        conn, other = await db.at(0), await db.at(1)
        await conn.insert("R", roots(0))
        for root in range(12):
            await asyncio.gather(conn.insert("C", children(root)), other.delete("R", [root]), return_exceptions=True)
        orphans = await db.rows("SELECT count(*) FROM C WHERE Id NOT IN (SELECT Id FROM R)")
        assert orphans == [(0,)]
        assert await check_consistency(db.conn) == []

    run(body, f1servers=2)


def test_columns_that_come_meanwhile_get_their_defaults() -> None:
    async def body(db: Database, plans: Plans) -> None:
        conn = await db.at(0)
        await conn.insert("R", roots(0))  # the client knows the table now
        await db.ddl("ALTER TABLE R ADD COLUMN Extra INT64 NOT NULL DEFAULT 5")
        await conn.insert("R", roots(100))
        assert plans.taken() == [True, False]
        await db.ddl("ALTER TABLE R DROP COLUMN Note")
        with pytest.raises(F1Error) as refused:
            await conn.insert("R", roots(200))
        assert refused.value.code is Code.NOT_FOUND
        assert await db.rows("SELECT count(*), sum(Extra) FROM R") == [(2 * MANY, 10 * MANY)]
        assert await check_consistency(db.conn) == []

    run(body)


def test_an_attempt_that_fails_for_another_reason_is_repeated_by_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = Transaction.commit
    failed: list[Transaction] = []

    async def losing(tx: Transaction, **more: Any) -> int:
        if not failed and tx.size > 1_000:
            failed.append(tx)
            raise F1Error(Code.FENCED, "too late")
        return await commit(tx, **more)

    async def body(db: Database, plans: Plans) -> None:
        conn = await db.at(0)
        monkeypatch.setattr(Transaction, "commit", losing)
        assert await conn.insert("R", roots(0)) == MANY
        assert (plans.taken(), len(failed)) == ([True, True], 1)
        assert await db.rows("SELECT count(*) FROM R") == [(MANY,)]
        assert await check_consistency(db.conn) == []

    run(body)
