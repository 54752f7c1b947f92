"""The blocking connection against fake servers: DB-API, transactions, reads by key (design section 6)."""

import datetime
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import f1
from f1common.errors import Code, F1Error
from tests.unit.client_f1.fake_server import FakeCluster, fake_cluster, once, schema_bytes

NAIVE = datetime.datetime.fromisoformat("2024-01-01T00:00:00")


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with fake_cluster(2) as running:
        running.put({1: 100, 2: 200, 3: 300})
        yield running


@pytest.fixture
def conn(cluster: FakeCluster) -> Iterator[f1.Connection]:
    with f1.connect(cluster.hosts, autocommit=True, timeout_s=10) as connection:
        yield connection


def test_module_says_what_db_api_asks() -> None:
    assert (f1.apilevel, f1.paramstyle) == ("2.0", "qmark")
    assert f1.threadsafety >= 1
    assert issubclass(f1.IntegrityError, f1.DatabaseError)
    assert issubclass(f1.DatabaseError, f1.Error)
    assert f1.Timestamp(2024, 2, 29, 1, 2, 3) == datetime.datetime(2024, 2, 29, 1, 2, 3, tzinfo=datetime.UTC)
    assert f1.DateFromTicks(0) == datetime.date(1970, 1, 1)


def test_select_gives_rows_and_description(conn: f1.Connection) -> None:
    cursor = conn.execute("SELECT Id, Note, Balance / 3.0 AS third FROM Account WHERE Balance > ? ORDER BY Id", [100])
    assert [item[0] for item in cursor.description or ()] == ["Id", "Note", "third"]
    assert (cursor.description or [])[0][1] == f1.NUMBER
    assert (cursor.description or [])[1][1] == f1.STRING
    assert (cursor.description or [])[0][1] != f1.STRING
    assert cursor.rowcount == -1
    assert cursor.fetchone() == (2, None, pytest.approx(200 / 3))
    assert [row[0] for row in cursor.fetchmany(5)] == [3]
    assert cursor.fetchone() is None
    assert cursor.fetchall() == []


def test_arrow_results(conn: f1.Connection) -> None:
    table = conn.execute("SELECT Id, Balance FROM Account ORDER BY Id").fetch_arrow()
    assert table.to_pydict() == {"Id": [1, 2, 3], "Balance": [100, 200, 300]}
    empty = conn.execute("SELECT Id FROM Account WHERE Id > 5").fetch_arrow()
    assert empty.schema.field("Id").type == pa.int64()
    assert empty.num_rows == 0


def test_rows_come_page_by_page(cluster: FakeCluster, conn: f1.Connection) -> None:
    for server in cluster.servers:
        server.page_rows = 2
    cursor = conn.execute("SELECT range AS n FROM range(7) ORDER BY n")
    assert cursor.fetchmany(3) == [(0,), (1,), (2,)]
    assert cluster.served("fetch") == 1
    assert list(cursor) == [(3,), (4,), (5,), (6,)]
    assert conn.execute("SELECT range AS n FROM range(7) ORDER BY n").fetchall() == [(n,) for n in range(7)]


def test_closing_a_cursor_tells_the_server(cluster: FakeCluster, conn: f1.Connection) -> None:
    for server in cluster.servers:
        server.page_rows = 2
    with conn.cursor() as cursor:
        cursor.execute("SELECT range AS n FROM range(7) ORDER BY n")
    assert cluster.served("close_cursor") == 1
    with pytest.raises(f1.InterfaceError):
        cursor.execute("SELECT 1")


def test_autocommit_dml_is_executed_and_committed(cluster: FakeCluster, conn: f1.Connection) -> None:
    cursor = conn.execute("UPDATE Account SET Balance = Balance + ? WHERE Id = ?", (5, 1))
    assert (cursor.rowcount, cursor.tag) == (1, "UPDATE")
    assert cluster.balances()[1] == 105
    assert (cluster.served("execute"), cluster.served("commit")) == (1, 1)
    assert conn.execute("DELETE FROM Account WHERE Id = ?", [2]).rowcount == 1
    assert 2 not in cluster.balances()
    with pytest.raises(f1.InterfaceError):
        cursor.fetchall()


def test_implicit_transactions(cluster: FakeCluster) -> None:
    with f1.connect(cluster.hosts, timeout_s=10) as conn:
        conn.execute("UPDATE Account SET Balance = Balance + ? WHERE Id = ?", (1, 1))
        assert conn.execute("SELECT Balance FROM Account WHERE Id = 1").fetchone() == (101,)
        assert cluster.balances()[1] == 100
        conn.rollback()
        conn.execute("UPDATE Account SET Balance = Balance + ? WHERE Id = ?", (2, 1))
        committed = conn.commit()
        assert committed.ts > 0
        assert cluster.balances()[1] == 102
        assert not conn.in_transaction
    with f1.connect(cluster.hosts, timeout_s=10) as conn:
        conn.execute("UPDATE Account SET Balance = Balance + ? WHERE Id = ?", (3, 1))
    assert cluster.balances()[1] == 105
    with pytest.raises(ZeroDivisionError), f1.connect(cluster.hosts, timeout_s=10) as conn:
        conn.execute("UPDATE Account SET Balance = Balance + ? WHERE Id = ?", (3, 1))
        raise ZeroDivisionError
    assert cluster.balances()[1] == 105


def test_begin_and_commit_as_statements(cluster: FakeCluster, conn: f1.Connection) -> None:
    conn.execute("BEGIN PESSIMISTIC")
    conn.execute("UPDATE Account SET Balance = Balance + ? WHERE Id = ?", (1, 1))
    assert cluster.balances()[1] == 100
    with pytest.raises(f1.OperationalError, match="open already"):
        conn.execute("begin")
    conn.execute("COMMIT")
    assert cluster.balances()[1] == 101
    assert cluster.served("end") == 1
    conn.execute("BEGIN")
    conn.execute("UPDATE Account SET Balance = Balance + ? WHERE Id = ?", (1, 1))
    conn.execute("ROLLBACK")
    assert cluster.balances()[1] == 101


def test_with_transaction_commits_or_rolls_back(cluster: FakeCluster, conn: f1.Connection) -> None:
    with conn.transaction() as tx:
        (row,) = tx.read("Account", 1)
        tx.update("Account", {"Id": 1, "Balance": row["Balance"] + 1})
        assert tx.execute("SELECT Balance FROM Account WHERE Id = 1").fetchall() == [(101,)]
        tx.insert("Account", {"id": 9, "balance": 9})
        tx.delete("Account", [2, 3])
    assert cluster.balances() == {1: 101, 9: 9}
    with pytest.raises(ValueError, match="no"), conn.transaction() as tx:
        tx.upsert("Account", {"Id": 1, "Balance": 0})
        raise ValueError("no")
    assert cluster.balances() == {1: 101, 9: 9}


def test_conflict_is_raised_in_an_explicit_transaction(cluster: FakeCluster, conn: f1.Connection) -> None:
    with pytest.raises(f1.TransactionAborted) as caught, conn.transaction() as tx:
        tx.read("Account", 1)
        cluster.put({1: 1})
        tx.update("Account", {"Id": 1, "Balance": 2})
    assert caught.value.retryable
    assert not caught.value.ambiguous
    assert isinstance(caught.value, f1.OperationalError)
    assert cluster.balances()[1] == 1


def test_run_runs_again_after_a_conflict(cluster: FakeCluster, conn: f1.Connection) -> None:
    tries = 0

    def work(tx: f1.Transaction) -> str:
        nonlocal tries
        tries += 1
        row = tx.get("Account", 1)
        assert row is not None
        if tries < 3:
            cluster.put({1: tries})
        tx.update("Account", {"Id": 1, "Balance": row["Balance"] + 10})
        return "done"

    assert conn.run(work) == "done"
    assert (tries, cluster.balances()[1]) == (3, 12)
    priorities = {commit.priority_ts for commit in cluster.requests("commit")}
    assert len(priorities) == 1
    assert len({commit.commit_id for commit in cluster.requests("commit")}) == 3


def test_run_takes_locks_when_starved(cluster: FakeCluster, conn: f1.Connection) -> None:
    kinds = []

    def work(tx: f1.Transaction) -> None:
        kinds.append(tx.kind)
        tx.read("Account", 1)
        if tx.kind == "optimistic":
            cluster.put({1: len(kinds)})
        tx.update("Account", {"Id": 1, "Balance": 0})

    conn.run(work)
    assert kinds[-1] == "pessimistic"
    assert set(kinds[:-1]) == {"optimistic"}
    assert cluster.balances()[1] == 0


def test_run_raises_what_is_no_conflict(conn: f1.Connection) -> None:
    tries = []

    def work(tx: f1.Transaction) -> None:
        tries.append(1)
        tx.insert("Account", {"Id": 1})

    with pytest.raises(f1.IntegrityError) as caught:
        conn.run(work)
    assert caught.value.code is Code.ALREADY_EXISTS
    assert len(tries) == 1


def test_snapshot_transactions_only_read(conn: f1.Connection) -> None:
    with conn.transaction(kind="snapshot", timestamp=77) as tx:
        assert len(tx.read("Account")) == 3
        assert tx.read_ts == 77
        with pytest.raises(f1.OperationalError, match="only reads"):
            tx.insert("Account", {"Id": 5})
    with pytest.raises(f1.ProgrammingError, match="no kind"), conn.transaction(kind="magic"):
        pass


def test_reads_by_key(cluster: FakeCluster, conn: f1.Connection) -> None:
    assert conn.get("account", 2) == {"Id": 2, "Balance": 200, "Note": None}
    assert conn.get("Account", (2,), ["Balance"]) == {"Balance": 200}
    assert conn.get("Account", {"id": 7}) is None
    assert [row["id"] for row in conn.read("Account", [3, 1])] == [3, 1]
    assert [row["Id"] for row in conn.read("Account", ranges=[(2, None)])] == [2, 3]
    assert [row["Id"] for row in conn.read("Account", ranges=[(None, 2)])] == [1]
    assert [row["Id"] for row in conn.read("Account", index="ByBalance", prefix=200)] == [2]
    assert conn.read("Account", []) == []
    before = cluster.served("read")
    first, second = conn.read_many([f1.Read("Account", [1]), f1.Read("Account", limit=2)])
    assert ([row["Id"] for row in first], [row["Id"] for row in second]) == ([1], [1, 2])
    assert cluster.served("read") == before + 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: c.get("Acount", 1), "no table Acount; did you mean Account"),
        (lambda c: c.insert("Account", {"Id": 1, "Balanse": 1}), "no column Account.Balanse; did you mean Balance"),
        (lambda c: c.get("Account", "one"), "Account.Id is INT64, and 'one' is none"),
        (lambda c: c.get("Account", (1, 2)), r"a key of Account is \(Id\), not \(1, 2\)"),
        (lambda c: c.insert("Account", {"Balance": 1}), "needs its whole key; Id is missing"),
        (lambda c: c.insert("Account", {"Id": 1, "Note": object()}), "no column holds a object"),
        (lambda c: c.execute("SELECT ?", [NAIVE]), "parameter 1: a datetime needs a time zone"),
        (lambda c: c.execute("SELECT ?", "abc"), "parameters are a sequence"),
        (lambda c: c.execute("SELECT ?", [1 << 70]), "INT64 holds .*parameter 1"),
        (lambda c: c.execute("  "), "empty"),
        (lambda c: c.read("Account", index="Nope", prefix=1), "no index Nope of Account"),
    ],
)
def test_wrong_use_is_told(conn: f1.Connection, call: Any, message: str) -> None:
    with pytest.raises(f1.Error, match=message) as caught:
        call(conn)
    assert "\n" not in str(caught.value)


def test_errors_keep_place_and_class(conn: f1.Connection) -> None:
    with pytest.raises(f1.ProgrammingError) as caught:
        conn.execute("SELEKT 1")
    assert caught.value.details == {"line": "1", "column": "1"}
    assert str(caught.value).startswith("INVALID_ARGUMENT: ")
    with pytest.raises(f1.IntegrityError):
        conn.execute("INSERT INTO Account VALUES (?, ?, ?)", (1, 1, None))
    with pytest.raises(f1.DataError):
        conn.update("Account", {"Id": 77, "Balance": 1})


def test_a_new_column_is_found(cluster: FakeCluster, conn: f1.Connection) -> None:
    conn.insert("Account", {"Id": 20, "Balance": 0})
    cluster.store.schema, cluster.store.schema_version = schema_bytes(4, extra=True), 4
    conn.insert("Account", {"Id": 21, "Balance": 0, "Extra": "new"})
    assert cluster.served("show_schema") == 2


def test_a_table_that_was_made_again_is_written_to(cluster: FakeCluster, conn: f1.Connection) -> None:
    conn.insert("Account", {"Id": 20, "Balance": 0})
    new = {12: 112, 13: 113}
    cluster.store.schema = schema_bytes(4, ids=new)
    cluster.store.schema_version = 4
    cluster.store.columns = {11, *new.values()}
    conn.insert("Account", {"Id": 21, "Balance": 7})
    assert cluster.store.rows[21][1] == {11: 21, 112: 7}
    cluster.store.columns = {11}
    with pytest.raises(f1.ProgrammingError, match="no column 112 any more"):
        conn.insert("Account", {"Id": 22, "Balance": 7})


def test_executemany_sends_rows_together(cluster: FakeCluster, conn: f1.Connection) -> None:
    cursor = conn.cursor()
    rows = ((n, n, f"note {n}") for n in range(100, 550))
    cursor.executemany("INSERT INTO Account (Id, Balance, Note) VALUES (?, ?, ?)", rows)
    assert cursor.rowcount == 450
    assert cluster.served("execute") == 3
    assert cluster.served("commit") == 1
    assert len(cluster.balances()) == 453
    cursor.executemany("UPDATE Account SET Balance = Balance + ? WHERE Id = ?", [(1, 1), (1, 2), (1, 99)])
    assert cursor.rowcount == 2
    with pytest.raises(f1.InterfaceError):
        cursor.executemany("SELECT ?", [(1,)])
    with pytest.raises(f1.IntegrityError):
        cursor.executemany("INSERT INTO Account VALUES (?, ?, ?)", [(900, 1, None), (1, 1, None)])
    assert 900 not in cluster.balances()


def test_ddl_is_no_part_of_a_transaction(cluster: FakeCluster) -> None:
    with f1.connect(cluster.hosts, timeout_s=10) as conn:
        conn.execute("CREATE TABLE T (A INT64 PRIMARY KEY)")
        assert not conn.in_transaction
        conn.execute("DELETE FROM Account WHERE Id = ?", [1])
        with pytest.raises(f1.OperationalError, match=r"has writes.* commit or roll back first"):
            conn.execute("DROP TABLE T")
        conn.rollback()


def test_ddl_is_refused_in_a_transaction_that_was_begun_by_hand(cluster: FakeCluster) -> None:
    with f1.connect(cluster.hosts, timeout_s=10) as conn:
        conn.execute("SELECT 1")
        assert conn.in_transaction
        conn.execute("CREATE TABLE U (A INT64 PRIMARY KEY)")
        conn.rollback()
        conn.execute("BEGIN")
        with pytest.raises(f1.OperationalError, match=r"begun by hand.* commit or roll back first"):
            conn.execute("DROP TABLE U")
        conn.rollback()
        conn.execute("DROP TABLE U")


def test_threads_share_a_connection(cluster: FakeCluster, conn: f1.Connection) -> None:
    failures: list[BaseException] = []

    def work() -> None:
        def add(tx: f1.Transaction) -> None:
            row = tx.get("Account", 1)
            assert row is not None
            tx.update("Account", {"Id": 1, "Balance": row["Balance"] + 1})

        try:
            for _ in range(5):
                conn.run(add)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert cluster.balances()[1] == 120


def test_closed_connections_say_so(cluster: FakeCluster) -> None:
    conn = f1.connect(cluster.hosts)
    conn.close()
    conn.close()
    with pytest.raises(f1.InterfaceError, match="closed"):
        conn.execute("SELECT 1")
    with pytest.raises(f1.InterfaceError, match="closed"):
        conn.cursor()


_FORKS = """
import os, sys, f1

hosts, again = sys.argv[1], sys.argv[2] == "again"
conn = f1.connect(hosts)
for _ in range(10):  # gRPC's own fork handlers crashed one child in three
    conn.execute("SELECT 1")
    child = os.fork()
    if child == 0:
        try:
            (f1.connect(hosts) if again else conn).execute("SELECT 1")
            print("it worked", flush=True)
        except f1.Error as error:
            print(error.code, error, flush=True)
        os._exit(0)
    print("exit", os.waitpid(child, 0)[1], flush=True)
"""


@pytest.mark.parametrize("connection", ["parents", "again"])
def test_a_forked_child_is_told_that_it_cannot_connect(cluster: FakeCluster, connection: str) -> None:
    # A process of its own: gRPC must not have been imported before f1 was.
    command = [sys.executable, "-c", _FORKS, cluster.hosts, connection]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    lines = done.stdout.splitlines()
    assert len([line for line in lines if "FAILED_PRECONDITION" in line and "connect after the fork" in line]) == 10
    assert lines.count("exit 0") == 10


def test_a_busy_server_is_asked_again(cluster: FakeCluster, conn: f1.Connection) -> None:
    cluster.set_fault(once(F1Error(Code.OVERLOADED, "too much to do"), "execute"))
    assert conn.execute("SELECT 1 AS one").fetchall() == [(1,)]
    assert cluster.served("execute") == 2
