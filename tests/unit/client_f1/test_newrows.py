"""Inserts of many rows go by columns as long as they are all that a transaction does."""

import datetime
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import f1
from f1.newrows import MANY, NewRows, cells_of, new_rows
from f1common.encoding.row import decode_row
from f1common.encoding.values import Date, Timestamp
from f1common.errors import Code, F1Error
from tests.unit.client_f1.fake_server import FakeCluster, fake_cluster
from tests.unit.client_f1.test_loading import every_type

ROWS: list[dict[str, Any]] = [{"Id": n, "Balance": 10 * n, "Note": f"n{n}"} for n in range(100, 100 + MANY)]


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with fake_cluster(2) as running:
        yield running


@pytest.fixture
def conn(cluster: FakeCluster) -> Iterator[f1.Connection]:
    with f1.connect(cluster.hosts, autocommit=True, timeout_s=10) as connection:
        yield connection


def kinds(cluster: FakeCluster) -> list[str]:
    """Return what came to any of the servers, sorted: which of them is asked is the client's choice."""
    return sorted(kind for server in cluster.servers for kind in server.served if kind in ("commit", "insert_rows"))


def test_many_rows_go_by_columns_and_few_one_by_one(cluster: FakeCluster, conn: f1.Connection) -> None:
    assert conn.insert("Account", ROWS) == MANY
    assert kinds(cluster) == ["insert_rows"]
    assert conn.insert("account", [{"id": 1, "Balance": 1, "note": None}]) == 1
    assert kinds(cluster) == ["commit", "insert_rows"]
    assert {100 + n: 1000 + 10 * n for n in range(MANY)}.items() <= cluster.balances().items()
    assert cluster.store.rows[100][1][13] == "n100"


def test_a_transaction_that_goes_on_sees_its_rows(cluster: FakeCluster, conn: f1.Connection) -> None:
    with conn.transaction() as tx:
        tx.insert("Account", ROWS)
        assert tx.get("Account", 105) is not None
    with conn.transaction() as tx:
        tx.insert("Account", [{**row, "Id": row["Id"] + 1000} for row in ROWS])
        tx.update("Account", {"Id": 1100, "Balance": 7})
    with conn.transaction() as tx:
        tx.insert("Account", [{**row, "Id": row["Id"] + 2000} for row in ROWS])
        tx.insert("Account", [{**row, "Id": row["Id"] + 3000} for row in ROWS])
    assert kinds(cluster) == ["commit"] * 3
    assert len(cluster.balances()) >= 4 * MANY
    assert cluster.balances()[1100] == 7


def test_what_was_read_before_is_validated(cluster: FakeCluster, conn: f1.Connection) -> None:
    cluster.put({1: 1})
    with conn.transaction() as tx:
        tx.get("Account", 1)
        tx.insert("Account", ROWS)
    assert kinds(cluster) == ["commit"]


def test_a_transaction_that_is_rolled_back_inserts_nothing(cluster: FakeCluster, conn: f1.Connection) -> None:
    before = cluster.balances()
    conn.begin()
    conn.insert("Account", ROWS)
    conn.rollback()
    assert (kinds(cluster), cluster.balances()) == ([], before)


def test_duplicates_are_refused_with_all_rows(cluster: FakeCluster, conn: f1.Connection) -> None:
    cluster.put({110: 1})
    with pytest.raises(f1.IntegrityError):
        conn.insert("Account", ROWS)
    assert 101 not in cluster.balances()


@pytest.mark.parametrize(
    "row",
    [{"Id": 500}, {"Id": 500, "Balance": 1, "Note": 7}, {"Id": 500, "Balance": True, "Note": ""}, {}],
    ids=["fewer columns", "another type", "a truth value", "nothing"],
)
def test_rows_of_several_forms_go_one_by_one(row: dict[str, Any]) -> None:
    metadata = every_type()
    rows = [{"C_INT64": n, "C_STRING": "a"} for n in range(5)]
    odd = {{"Id": "C_INT64", "Balance": "C_INT64", "Note": "C_STRING"}[key]: value for key, value in row.items()}
    assert new_rows(metadata, "T", rows) is not None
    assert new_rows(metadata, "T", [*rows, odd]) is None
    assert new_rows(metadata, "T", [odd, *rows]) is None


def test_every_type_by_columns() -> None:
    moment = datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC)
    row = {
        "C_INT64": 1,
        "C_BOOL": True,
        "C_DOUBLE": 1.5,
        "C_STRING": "é",
        "C_BYTES": b"\0",
        "C_DATE": datetime.date(2024, 2, 29),
        "C_TIMESTAMP": moment,
    }
    found = new_rows(every_type(), "T", [row, {**dict.fromkeys(row), "C_INT64": 2}])
    assert found is not None
    first, second = ({**decode_row(w.key), **decode_row(w.columns)} for w in found.writes())
    day = Date.of(datetime.date(2024, 2, 29))
    assert list(first.values()) == [1, True, 1.5, "é", b"\0", day, Timestamp.of(moment)]
    assert set(second.values()) == {2, None}
    assert found.first() == found.writes()[0]


@pytest.mark.parametrize(
    "row",
    [
        {"C_INT64": 1, "C_NUMERIC": Decimal("1.5")},
        {"C_INT64": 1, "C_PROTO": b""},
        {"C_INT64": 2**63},
        {"C_INT64": 1, "C_STRING": "\ud800"},
        {"C_INT64": 1, "C_TIMESTAMP": datetime.datetime(2024, 1, 1)},  # noqa: DTZ001  that it has no zone is the point
        {"C_INT64": 1, "C_STRING": object()},
        {"C_INT64": 1, "c_int64": 2},
        {"C_STRING": "a row without its key"},
        {"C_INT64": 1, "C_TIMESTAMP": Timestamp(2**63 - 1)},
    ],
)
def test_what_needs_a_look_goes_one_by_one(row: dict[str, Any]) -> None:
    assert new_rows(every_type(), "T", [row]) is None


def test_unknown_names_are_errors() -> None:
    for table, row in (("Nothing", {"C_INT64": 1}), ("T", {"Nothing": 1})):
        with pytest.raises(F1Error) as refused:
            new_rows(every_type(), table, [row])
        assert refused.value.code is Code.NOT_FOUND


def test_arrow_has_one_batch_with_columns_by_id() -> None:
    new = NewRows("T", [1], [1, 5], [pa.array([1, 2]).slice(1, 1), pa.array(["a"])], 3)
    with pa.ipc.open_stream(new.arrow()) as reader:
        table = reader.read_all()
    assert table.to_pydict() == {"1": [2], "5": ["a"]}
    assert cells_of(table.column("5").chunk(0)) == ["a"]
