"""The client, the shell and the loader against real processes; the developer's guide, run from top to bottom."""

import contextlib
import io
import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

import f1
from f1.cli import GROUP, build, run
from f1deploy.cluster import Cluster, UpOptions
from tests.integration.database import end

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "developers-guide.md"
DOCUMENTED_HOSTS = "127.0.0.1:7400,127.0.0.1:7401"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    running = Cluster(tmp_path_factory.mktemp("client") / "cluster")
    running.up(UpOptions(port=0, slaves=0, groups=2, orchestrator=False))
    yield running
    end(running.directory.path)


@pytest.fixture(scope="module")
def hosts(cluster: Cluster) -> str:
    return ",".join(item.address for item in cluster.status() if item.kind == "f1server")


@pytest.fixture
def database(hosts: str, request: pytest.FixtureRequest) -> str:
    """A database of the test's own."""
    name = f"db_{request.node.name.split('[')[0]}"
    with f1.connect(hosts, autocommit=True) as conn:
        conn.execute(f"CREATE DATABASE {name}")
    return name


def command(*arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(build(entry_points(group=GROUP), arguments), arguments)
    return code, out.getvalue(), err.getvalue()


def test_the_guide_is_true(hosts: str) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) > 10
    printed: list[str] = []
    names: dict[str, Any] = {"print": lambda *values: printed.append(" ".join(map(str, values)))}
    for block in blocks:
        printed.clear()
        exec(compile(block.replace(DOCUMENTED_HOSTS, hosts), str(GUIDE), "exec"), names)
        assert printed == re.findall(r"^ *print\(.*\)  # (.*)$", block, re.MULTILINE)


def test_statements_by_command(hosts: str, database: str) -> None:
    where = ("--host", hosts, "--database", database)
    code, out, err = command(
        "sql",
        *where,
        "-c",
        "CREATE TABLE T (A INT64 NOT NULL, N NUMERIC, B BYTES, PRIMARY KEY (A)); "
        "INSERT INTO T VALUES (1, 1.50, NULL), (2, NULL, 'x')",
    )
    assert (code, err) == (0, "")
    assert out == "CREATE TABLE\nINSERT 2\n"
    code, out, err = command("sql", *where, "--format", "json", "-c", "SELECT * FROM T ORDER BY A")
    assert (code, err) == (0, "")
    assert json.loads(out) == [{"A": 1, "N": "1.5", "B": None}, {"A": 2, "N": None, "B": "eA=="}]
    code, out, err = command("sql", *where, "-c", "SELECT 1;\nSELECT X FROM T")
    assert code == 1
    assert err.startswith("NOT_FOUND: ")
    assert err.endswith("(line 2, column 8)\n")


def test_files_are_loaded(hosts: str, database: str, tmp_path: Path) -> None:
    where = ("--host", hosts, "--database", database)
    (tmp_path / "s.sql").write_text(
        "CREATE TABLE P (A INT64 NOT NULL, PRIMARY KEY (A));"
        "CREATE TABLE C (A INT64 NOT NULL, B INT64 NOT NULL, N NUMERIC CHECK (N >= 0), PRIMARY KEY (A, B))"
        " INTERLEAVE IN PARENT P;"
    )
    assert command("schema", "apply", str(tmp_path / "s.sql"), *where)[0] == 0
    (tmp_path / "p.csv").write_text("A\n" + "".join(f"{a}\n" for a in range(20)))
    (tmp_path / "c.csv").write_text("A,B,N\n" + "".join(f"{a},{b},{b}.5\n" for a in range(20) for b in range(100)))
    for table in ("P", "C"):
        code, _, err = command("load", table, str(tmp_path / f"{table.lower()}.csv"), *where)
        assert (code, err) == (0, "")
    with f1.connect(hosts, database, autocommit=True) as conn:
        assert conn.execute("SELECT count(*), sum(N) FROM C").fetchone() == (2000, Decimal(20 * (4950 + 50)))
    for text, message in (
        ("A,B\n1,200\n99,1\n", r"^FAILED_PRECONDITION: .*bad.csv: line 3: a row of C needs its parent"),
        ("A,B\n1,201\n1,5\n", r"^ALREADY_EXISTS: .*bad.csv: line 3: table C has a row"),
        ("A,B,N\n1,202,-1\n", r"^FAILED_PRECONDITION: .*bad.csv: "),
    ):
        (tmp_path / "bad.csv").write_text(text)
        code, _, err = command("load", "C", str(tmp_path / "bad.csv"), *where)
        assert code == 1
        assert re.match(message, err)
        assert err.endswith("nothing was loaded\n")
    with f1.connect(hosts, database, autocommit=True) as conn:
        assert conn.execute("SELECT count(*) FROM C").fetchone() == (2000,)


class Counters:
    """Clients that each add to a counter of their own until they are stopped."""

    def __init__(self, hosts: str, database: str, clients: int) -> None:
        self.done: Counter[int] = Counter()
        self.failures: list[f1.Error] = []
        self._stop = threading.Event()
        self._where = (hosts, database)
        self._threads = [threading.Thread(target=self._add, args=(number,)) for number in range(clients)]
        with f1.connect(hosts, database, autocommit=True) as conn:
            conn.execute("CREATE TABLE Counter (Id INT64 NOT NULL, N INT64 NOT NULL, PRIMARY KEY (Id))")
            conn.insert("Counter", [{"Id": number, "N": 0} for number in range(clients)])

    def _add(self, number: int) -> None:
        def work(tx: f1.Transaction) -> None:
            row = tx.get("Counter", number)
            assert row is not None
            tx.update("Counter", {"Id": number, "N": row["N"] + 1})

        with f1.connect(*self._where, autocommit=True) as conn:
            while not self._stop.is_set():
                try:
                    if number % 2:
                        conn.run(work)
                    else:
                        conn.execute("UPDATE Counter SET N = N + 1 WHERE Id = ?", (number,))
                    self.done[number] += 1
                except f1.Error as error:
                    self.failures.append(error)

    def __enter__(self) -> "Counters":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def wait_for_more(self, count: int) -> None:
        """Wait until every client has added so many more times."""
        goals = {number: self.done[number] + count for number in range(len(self._threads))}
        for _ in range(1200):
            if all(self.done[number] >= goal for number, goal in goals.items()):
                return
            self._stop.wait(0.05)
        raise AssertionError(f"clients stand still: {dict(self.done)}, {self.failures}")


@pytest.mark.parametrize("name", ["f1-1", "f1-2", "span-a1", "span-b1"])
def test_clients_do_not_notice_that_a_process_is_killed(
    cluster: Cluster, hosts: str, request: pytest.FixtureRequest, name: str
) -> None:
    database = f"counters_{name.replace('-', '_')}"
    with f1.connect(hosts, autocommit=True) as conn:
        conn.execute(f"CREATE DATABASE {database}")
    with Counters(hosts, database, 4) as counters:
        counters.wait_for_more(5)
        cluster.kill(name)
        counters.wait_for_more(10)
        cluster.start(name)
        counters.wait_for_more(5)
    assert counters.failures == []
    with f1.connect(hosts, database, autocommit=True) as conn:
        assert {row["Id"]: row["N"] for row in conn.read("Counter")} == dict(counters.done)
