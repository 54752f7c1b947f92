"""`f1 check` against real processes: damage that was planted is found and repaired while the database is written to."""

import contextlib
import io
import json
import threading
from collections.abc import Iterator
from importlib.metadata import EntryPoint

import pytest

import f1
from f1.cli import GROUP, build, run
from f1common.encoding.row import encode_row
from f1common.pb import f1_pb2 as pb
from f1server.catalog.codec import decode_schema
from f1server.catalog.schema import Schema
from f1server.rows.keys import index_key, row_key
from spanstore.client import SpanClient, Write
from spanstore.tools.target import from_directory
from tests.integration.database import Database, running

ROWS = 6_000
DDL = [
    "CREATE TABLE Customer (C INT64, Name STRING NOT NULL, PRIMARY KEY (C))",
    "CREATE UNIQUE INDEX ByName ON Customer (Name)",
    "CREATE TABLE Campaign (C INT64, K INT64, Budget INT64 CHECK (Budget >= 0), PRIMARY KEY (C, K))"
    " INTERLEAVE IN PARENT Customer",
    "CREATE LOCAL INDEX ByBudget ON Campaign (C, Budget)",
    "CREATE INDEX Everywhere ON Campaign (Budget) STORING (K)",
]
COMMAND = EntryPoint("check", "f1.commands.check:command", GROUP)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    folder = tmp_path_factory.mktemp("check")
    with running(folder, "--groups", "3") as started:
        with started.connect() as conn:
            for statement in DDL:
                conn.execute(statement)
        lines = ["C,Name", *(f"{c},customer {c}" for c in range(1000))]
        (folder / "customers.csv").write_text("\n".join(lines))
        lines = ["C,K,Budget", *(f"{n % 1000},{n // 1000},{n}" for n in range(ROWS))]
        (folder / "campaigns.csv").write_text("\n".join(lines))
        started.command("load", "Customer", str(folder / "customers.csv"))
        started.command("load", "Campaign", str(folder / "campaigns.csv"))
        yield started


def check(database: Database, *arguments: str) -> tuple[int, str, str]:
    """Run the command; return its exit code, output and error output."""
    words = ["check", "--host", database.hosts, *arguments]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(build([COMMAND], words), words)
    return code, out.getvalue(), err.getvalue()


def plant(database: Database, *writes: tuple[bytes, bytes | None]) -> None:
    async def work(client: SpanClient) -> None:
        await client.commit([Write(key, value) for key, value in writes])

    from_directory(database.directory).run(work)


def schema_of(conn: f1.Connection) -> Schema:
    reply: pb.ShowSchemaReply = conn._call(conn._aio.session.show_schema())
    return decode_schema(reply.schema)


def entry(schema: Schema, table: str, index: str, key: tuple[int, ...], **values: object) -> bytes:
    of = schema.table(table)
    row = {of.column(name).id: value for name, value in values.items()}
    row |= dict(zip(of.key_column_ids, key, strict=True))
    (found,) = index_key(schema, of, of.index(index), row, key)  # type: ignore[arg-type]
    return found


def test_a_database_in_use_has_no_findings(database: Database) -> None:
    """Rows, entries and parents change under the check all the time."""
    stop = threading.Event()
    changes: list[int] = []

    def write(own: int) -> None:
        with database.connect() as conn:
            done = 0
            while not stop.is_set():
                c = 1000 + own * 100 + done % 7
                with contextlib.suppress(f1.IntegrityError):
                    conn.execute("INSERT INTO Customer VALUES (?, ?)", (c, f"new {own} {done}"))
                    conn.execute("INSERT INTO Campaign VALUES (?, 1, ?)", (c, done))
                conn.execute("UPDATE Campaign SET Budget = Budget + 1 WHERE C = ?", (own * 17 + done % 50,))
                if done % 7 == 6:
                    conn.execute("DELETE FROM Campaign WHERE C >= ? AND C < ?", (1000 + own * 100, 1100 + own * 100))
                    conn.execute("DELETE FROM Customer WHERE C >= ? AND C < ?", (1000 + own * 100, 1100 + own * 100))
                done += 1
            changes.append(done)

    writers = [threading.Thread(target=write, args=(own,)) for own in range(2)]
    for writer in writers:
        writer.start()
    try:
        for arguments in ([], ["--repair"], ["--parallel", "1"]):
            code, out, err = check(database, "--format", "json", *arguments)
            document = json.loads(out)
            assert (code, err, document["findings"], document["consistent"]) == (0, "", [], True)
            assert document["rows"] >= ROWS + 1000
            assert document["entries"] >= 2 * ROWS + 1000
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    assert len(changes) == 2 and min(changes) > 5


def test_planted_damage_is_found_and_repaired(database: Database) -> None:
    with database.connect() as conn:
        schema = schema_of(conn)
        conn.execute("INSERT INTO Customer VALUES (5000, 'damaged')")
        conn.execute("INSERT INTO Campaign VALUES (5000, 1, 7), (5000, 2, 8)")
        campaign = schema.table("Campaign")
        budget = campaign.column("Budget").id
        plant(
            database,
            (entry(schema, "Campaign", "Everywhere", (5000, 1), Budget=7), None),
            (entry(schema, "Campaign", "ByBudget", (5000, 1), Budget=70), encode_row({})),
            (
                entry(schema, "Customer", "ByName", (5001,), Name="nobody"),
                encode_row({schema.table("Customer").key_column_ids[0]: 5001}),
            ),
            (row_key(schema, campaign, (5002, 1)), encode_row({budget: -5})),
        )
        code, out, err = check(database)
        assert code == 1
        assert err.startswith("DATA_CORRUPTION: 7 findings; --repair may put right 5 index entries")
        assert "no parent in Campaign:\n  (C, K) = (5002, 1): its parent in Customer, (C) = (5002), is not there" in out
        code, out, err = check(database, "--repair", "--format", "json")
        assert (code, err.split(";")[0].split(" need")[0]) == (1, "DATA_CORRUPTION: 2 findings")
        summary = [
            (f["clause"], f["kind"], f["element"], f["count"], f["repaired"]) for f in json.loads(out)["findings"]
        ]
        assert summary == [
            (1, "no parent", "", 1, 0),
            (4, "missing entry", "ByBudget", 1, 1),
            (4, "missing entry", "Everywhere", 2, 2),
            (5, "orphan entry", "ByName", 1, 1),
            (5, "wrong entry", "ByBudget", 1, 1),
            (6, "check", "Campaign_check", 1, 0),
        ]
        conn.execute("INSERT INTO Customer VALUES (5002, 'parent again')")
        conn.execute("UPDATE Campaign SET Budget = 5 WHERE C = 5002")
        code, out, _ = check(database)
        assert code == 0
        assert out.startswith("Nothing is wrong with ")
        assert conn.execute("SELECT K FROM Campaign WHERE Budget = 7 AND C = 5000").fetchall() == [(1,)]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["Custom"], "NOT_FOUND: there is no table Custom; did you mean Customer?"),
        (["--database", "nowhere"], "NOT_FOUND: there is no database nowhere"),
        (["--parallel", "0"], "INVALID_ARGUMENT: Invalid value for '--parallel'"),
        (["--format", "xml"], "INVALID_ARGUMENT: Invalid value for '--format'"),
    ],
)
def test_bad_input(database: Database, arguments: list[str], error: str) -> None:
    code, out, err = check(database, *arguments)
    assert (code, out) == (1, "")
    assert err.startswith(error)


def test_checks_go_on_when_a_server_dies(database: Database) -> None:
    """Its parts are done by the others: checks follow each other, so that one of them is under way when it dies."""
    where = ("--dir", str(database.directory))
    status = json.loads(database.command("cluster", "status", "--format", "json", *where))
    name = next(process["name"] for process in status if process["kind"] == "f1server")
    results: list[tuple[int, str, str]] = []
    dead = threading.Event()

    def checks() -> None:
        while True:
            last = dead.is_set()
            results.append(check(database, "--format", "json"))
            if last:
                return

    checking = threading.Thread(target=checks)
    checking.start()
    try:
        database.command("cluster", "kill", name, *where)
    finally:
        dead.set()
        checking.join()
        database.command("cluster", "start", name, *where)
    assert len(results) >= 2
    for code, out, err in results:
        assert (code, err) == (0, "")
        assert json.loads(out)["rows"] >= ROWS + 1000
