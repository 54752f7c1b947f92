"""``f1 load``: what is loaded, in how many transactions, and what bad files get (issue 3)."""

import datetime
from collections.abc import Iterator
from decimal import Decimal
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from f1.cli import GROUP, build, run
from f1.loading.loader import Progress
from f1.loading.readers import Chunk, open_source
from f1.loading.writes import Batch, WriteMaker
from f1.metadata import Metadata
from f1.newrows import NewRows, cells_of
from f1common.encoding.proto import compile_protos
from f1common.encoding.row import decode_row
from f1common.encoding.values import Date, Timestamp
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from f1common.pb import schema_pb2
from tests.unit.client_f1.fake_server import FakeCluster, FakeServer, fake_cluster, once

PROTO = 'syntax = "proto3"; package p; message M { string a = 1; }'
KINDS = ("INT64", "BOOL", "DOUBLE", "NUMERIC", "STRING", "BYTES", "DATE", "TIMESTAMP", "PROTO")


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with fake_cluster(2) as running:
        yield running


def load(cluster: FakeCluster, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    full = ["load", "Account", *arguments, "--host", cluster.hosts]
    code = run(build(entry_points(group=GROUP), full), full)
    out, err = capsys.readouterr()
    return code, out, err


def csv_file(folder: Path, text: str) -> str:
    path = folder / "rows.csv"
    path.write_text(text)
    return str(path)


def every_type() -> Metadata:
    """A table with a column of each type, named like it; the key is the INT64."""
    columns = [
        schema_pb2.Column(
            id=i,
            name=f"C_{kind}",
            type=schema_pb2.ColumnType(kind=kind, proto="p.M" if kind == "PROTO" else ""),
            state=schema_pb2.PUBLIC,
            not_null=i == 1,
        )
        for i, kind in enumerate(KINDS, 1)
    ]
    table = schema_pb2.Table(id=10, name="T", columns=columns, key_column_ids=[1], state=schema_pb2.PUBLIC)
    child = schema_pb2.Table(
        id=20,
        name="Child",
        parent_id=10,
        columns=[columns[0], columns[4]],
        key_column_ids=[1, 5],
        state=schema_pb2.PUBLIC,
    )
    schema = schema_pb2.Schema(version=9, tables=[table, child], descriptor_set=compile_protos({"p.proto": PROTO}))
    return Metadata(pb.ShowSchemaReply(version=9, schema=schema.SerializeToString()))


def batch_of(insert: pb.InsertRows) -> pa.RecordBatch:
    with pa.ipc.open_stream(insert.arrow) as reader:
        return reader.read_next_batch()


def cells(metadata: Metadata, path: Path) -> list[dict[int, Any]]:
    table = metadata.table("T")
    found = []
    for chunk in open_source(path, metadata, table).chunks():
        maker = WriteMaker(metadata, table, chunk.columns, pb.LogicalWrite.INSERT, 0)
        for batch in maker.batches(chunk, 100):
            found += [{**decode_row(w.key), **decode_row(w.columns)} for w in batch.writes]
    return found


def test_a_csv_file_is_loaded_in_small_transactions(
    cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "".join(f'{n},{n * 10},"note ""{n}"""\n' for n in range(1200))
    code, out, err = load(cluster, capsys, csv_file(tmp_path, "id,Balance,NOTE\n" + rows))
    assert (code, err) == (0, "")
    assert out.startswith("1,200 rows loaded into Account in ")
    assert len(cluster.balances()) == 1200
    assert cluster.store.rows[7][1][13] == 'note "7"'
    assert cluster.served("insert_rows") == 3
    assert sorted(batch_of(insert).num_rows for insert in cluster.requests("insert_rows")) == [200, 500, 500]


def test_null_and_empty_text_and_missing_columns(
    cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert load(cluster, capsys, csv_file(tmp_path, 'Id,Note\n1,\n2,""\n3,\\N\n'))[0] == 0
    assert [cluster.store.rows[key][1][13] for key in (1, 2, 3)] == [None, "", None]
    assert "12" not in batch_of(cluster.requests("insert_rows")[0]).schema.names


def test_a_parquet_file_is_loaded(cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.parquet"
    table = pa.table({"Id": pa.array([3, 1, 2], pa.int32()), "Note": pa.array(["c", None, "b"]).dictionary_encode()})
    pa.parquet.write_table(table, path)
    assert load(cluster, capsys, str(path), "--rows", "2")[0] == 0
    assert {key: row[13] for key, (_, row) in cluster.store.rows.items()} == {1: None, 2: "b", 3: "c"}
    assert cluster.served("insert_rows") == 2


def test_loading_again_needs_upsert(cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = csv_file(tmp_path, "Id,Balance\n1,1\n2,2\n")
    assert load(cluster, capsys, file)[0] == 0
    code, out, err = load(cluster, capsys, file)
    assert (code, out) == (1, "")
    assert err.startswith("ALREADY_EXISTS: ")
    assert "nothing was loaded" in err
    assert load(cluster, capsys, file, "--upsert")[0] == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Id,Balance\n1,1\n2,x\n", "rows.csv: line 3: column Balance is INT64, and 'x' is none"),
        ('Id,Note\n1,"a\nb"\nx,c\n', "rows.csv: line 4: column Id is INT64, and 'x' is none"),
        ("Id,Balance\n1,1\n2\n", "rows.csv: line 3: 1 field where the header names 2 columns"),
        ("Id,Balance\n1,1,1\n", "rows.csv: line 2: 3 fields where the header names 2 columns"),
        ("Id,Balanse\n1,1\n", "no column Account.Balanse; did you mean Balance"),
        ("Id,id\n1,1\n", "column Id is there twice"),
        ("Balance\n1\n", "the file lacks Id of the primary key of Account"),
        ("", "the file is empty"),
    ],
)
def test_bad_files_are_one_line_with_the_place(
    cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    code, out, err = load(cluster, capsys, csv_file(tmp_path, text))
    assert (code, out) == (1, "")
    assert message in err
    assert err.count("\n") == 1
    assert "nothing was loaded" in err
    assert cluster.balances() == {}


def test_what_was_loaded_before_a_failure_is_told_exactly(
    cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.put({250: 1})
    rows = "".join(f"{n},1\n" for n in range(1000))
    code, _, err = load(cluster, capsys, csv_file(tmp_path, "Id,Balance\n" + rows), "--rows", "100", "--in-flight", "1")
    assert code == 1
    assert "200 rows were loaded, among them the first 200" in err
    assert len(cluster.balances()) == 201


def test_servers_that_die_do_not_matter(
    cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.set_fault(once("die after", "insert_rows"))
    rows = "".join(f"{n},1\n" for n in range(3000))
    code, out, err = load(cluster, capsys, csv_file(tmp_path, "Id,Balance\n" + rows), "--rows", "100")
    assert (code, err) == (0, "")
    assert out.startswith("3,000 rows")
    assert len(cluster.balances()) == 3000


def test_conflicts_are_tried_again(cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.set_fault(once(F1Error(Code.ABORTED, "lost a race"), "insert_rows"))
    assert load(cluster, capsys, csv_file(tmp_path, "Id,Balance\n1,1\n"))[0] == 0
    assert cluster.served("insert_rows") == 2


def test_a_server_that_knows_no_columns_gets_the_rows_one_by_one(
    cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def older(_: FakeServer, request: pb.Request) -> F1Error | None:
        text = "a request of an unknown kind; is the client newer?"
        return F1Error(Code.INVALID_ARGUMENT, text) if request.WhichOneof("body") == "insert_rows" else None

    cluster.set_fault(older)
    path = csv_file(tmp_path, "Id,Balance\n" + "".join(f"{n},{n}\n" for n in range(50)))
    code, _, err = load(cluster, capsys, path, "--rows", "10", "--in-flight", "1")
    assert (code, err, len(cluster.balances())) == (0, "", 50)
    assert (cluster.served("insert_rows"), cluster.served("commit")) == (1, 5)


def test_a_server_that_refuses_rows_is_believed(
    cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.set_fault(once(F1Error(Code.INVALID_ARGUMENT, "column Balance cannot be that"), "insert_rows"))
    code, _, err = load(cluster, capsys, csv_file(tmp_path, "Id,Balance\n1,1\n"))
    assert (code, cluster.served("commit"), cluster.balances()) == (1, 0, {})
    assert "column Balance cannot be that" in err


def test_a_row_that_the_server_refuses_is_named_by_its_line(
    cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = csv_file(tmp_path, "Id,Balance\n" + "".join(f"{100 - n},{n}\n" for n in range(50)))
    # Rows are sent by their keys: the fourth is the fourth from the end of the file.
    error = F1Error(Code.OUT_OF_RANGE, "column Balance holds less", details={"write": "3"})
    cluster.set_fault(once(error, "insert_rows"))
    code, _, err = load(cluster, capsys, path)
    assert code == 1
    assert "line 48: column Balance holds less" in err


def test_an_unknown_outcome_is_told(cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def fault(_: FakeServer, request: pb.Request) -> F1Error | None:
        kind = request.WhichOneof("body")
        if kind == "insert_rows":
            return F1Error(Code.UNKNOWN_OUTCOME, "lost")
        return F1Error(Code.EXPIRED, "too long ago") if kind == "outcome" else None

    cluster.set_fault(fault)
    code, _, err = load(cluster, capsys, csv_file(tmp_path, "Id,Balance\n1,1\n2,2\n"))
    assert code == 1
    assert err.startswith("UNKNOWN_OUTCOME: ")
    assert "2 more may have been" in err


def test_every_type_from_csv(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        ",".join(f"C_{kind}" for kind in KINDS)
        + '\n1,true,1.5e3,12.50,text,\\x00ff,2024-02-29,2024-02-29 12:00:00,"{""a"": ""x""}"\n'
        + "2,0,NaN,-1,é,plain,1969-12-31,1969-12-31T23:59:59.5+01:00,\\x0a0179\n3,,,,,,,,\n"
    )
    first, second, third = cells(every_type(), path)
    noon = datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC)
    assert first == {
        1: 1,
        2: True,
        3: 1500.0,
        4: Decimal("12.5"),
        5: "text",
        6: b"\x00\xff",
        7: Date.of(datetime.date(2024, 2, 29)),
        8: Timestamp.of(noon),
        9: b"\n\x01x",
    }
    assert second[3] != second[3]
    assert second[6] == b"plain"
    assert second[7] == Date(-1)
    assert second[8] == Timestamp(-3_600_500_000)
    assert second[9] == b"\n\x01y"
    assert third == {1: 3, **dict.fromkeys(range(2, 10))}


def test_every_type_from_parquet(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    moment = datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC)
    pa.parquet.write_table(
        pa.table(
            {
                "C_INT64": pa.array([1], pa.int16()),
                "C_NUMERIC": pa.array([Decimal("1.25")], pa.decimal128(10, 2)),
                "C_DOUBLE": pa.array([1.5], pa.float32()),
                "C_STRING": pa.array(["s"], pa.large_string()),
                "C_TIMESTAMP": pa.array([moment.replace(tzinfo=None)], pa.timestamp("ns")),
                "C_DATE": pa.array([datetime.date(2024, 1, 1)]),
                "C_PROTO": pa.array([b"\n\x01x"]),
            }
        ),
        path,
    )
    (row,) = cells(every_type(), path)
    assert (row[1], row[4], row[3], row[5]) == (1, Decimal("1.25"), 1.5, "s")
    assert (row[8], row[7], row[9]) == (Timestamp.of(moment), Date.of(datetime.date(2024, 1, 1)), b"\n\x01x")


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("C_INT64", "1.5"),
        ("C_INT64", "9223372036854775808"),
        ("C_BOOL", "maybe"),
        ("C_NUMERIC", "1e40"),
        ("C_DATE", "2024-02-30"),
        ("C_TIMESTAMP", "noon"),
        ("C_BYTES", "\\xzz"),
        ("C_PROTO", "{"),
    ],
)
def test_values_that_are_none_of_their_type(tmp_path: Path, column: str, value: str) -> None:
    metadata = every_type()
    path = tmp_path / "t.csv"
    path.write_text(f"{column}\n\n{value}\n")
    with pytest.raises(F1Error, match=f"line 3: column {column} is ") as caught:
        list(open_source(path, metadata, metadata.table("T")).chunks())
    assert "\n" not in str(caught.value)


def test_transactions_end_where_directories_end() -> None:
    metadata = every_type()
    table = metadata.table("Child")
    rows = [(root, f"{i}") for root in (1, 2, 3, 4) for i in range({1: 3, 2: 3, 3: 20, 4: 1}[root])]
    chunk = Chunk(table.columns, (pa.array([r for r, _ in rows]), pa.array([t for _, t in rows])), 0)
    maker = WriteMaker(metadata, table, table.columns, pb.LogicalWrite.INSERT, 1)
    batches = list(maker.batches(chunk, 8))
    roots = [[key[0] for key in batch.keys] for batch in batches]
    assert [set(found) for found in roots] == [{1, 2}, {3}, {3}, {3, 4}]
    assert [len(found) for found in roots] == [6, 8, 8, 5]
    assert sorted(row for batch in batches for row in batch.rows) == list(range(len(rows)))


def test_large_rows_make_small_transactions() -> None:
    metadata = every_type()
    table = metadata.table("T")
    columns = (table.column("C_INT64"), table.column("C_BYTES"))
    chunk = Chunk(columns, (pa.array(range(7)), pa.array([b"x" * (1 << 20)] * 6 + [b"x" * (3 << 20)])), 0)
    batches = list(WriteMaker(metadata, table, columns, pb.LogicalWrite.INSERT, 0).batches(chunk, 500))
    assert [batch.rows for batch in batches] == [(0,), (1,), (2,), (3,), (4,), (5,), (6,)]
    small = Chunk(columns, (pa.array(range(7)), pa.array([b"x" * (1 << 19)] * 7)), 0)
    batches = list(WriteMaker(metadata, table, columns, pb.LogicalWrite.INSERT, 0).batches(small, 500))
    assert [len(batch.rows) for batch in batches] == [3, 3, 1]


def test_text_that_is_no_utf_8(tmp_path: Path) -> None:
    metadata = every_type()
    path = tmp_path / "t.csv"
    path.write_bytes(b"C_INT64,C_STRING\n1,a\n2,\xff\xfe\n")
    with pytest.raises(F1Error, match=r"t.csv: row 2: .*UTF8") as caught:
        list(open_source(path, metadata, metadata.table("T")).chunks())
    assert "\n" not in str(caught.value)


def test_progress_knows_the_first_missing_row() -> None:
    progress = Progress()

    def batch(*rows: int) -> Batch:
        return Batch(NewRows("T", [1], [1], [pa.array(rows)], 1), rows, ())

    progress.done(batch(2, 3))
    assert (progress.rows, progress.first_missing) == (2, 0)
    progress.done(batch(0, 1))
    assert (progress.rows, progress.first_missing) == (4, 4)


def test_arrays_become_cells() -> None:
    assert cells_of(pa.array([datetime.date(1970, 1, 2), None])) == [Date(1), None]
    assert cells_of(pa.array([None, 5], pa.timestamp("us", tz="UTC"))) == [None, Timestamp(5)]
