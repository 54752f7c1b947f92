"""The benchmark of the database: arithmetic, turns, and that a wrong answer ends it."""

import asyncio
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from f1common.clock import boot_us
from f1common.errors import Code, F1Error
from f1deploy.bench.database import command, systems
from f1deploy.bench.database.clients import ACCOUNTS, BATCH, ROWS, START_BALANCE, F1Client, item, line
from f1deploy.bench.database.figures import Figure, Round, figure
from f1deploy.bench.database.first import first_version
from f1deploy.bench.database.lines import ddl, postgres_ddl
from f1deploy.bench.database.load import SAMPLE, Acknowledged, Driver, Operation, Share, Task, WrongAnswer, run_task
from f1deploy.bench.database.plot import plot
from f1deploy.bench.database.rounds import Rounds
from f1deploy.bench.database.works import CONTESTS, LINES, NAMES, Comparison, Contestant, Goal, chosen, parse_names


def one_round(rate: float, p50_ms: float = 1.0, **more: Any) -> Round:
    return Round(rate, p50_ms, 2 * p50_ms, cpu_us=1e6 / rate, load_us=5.0, **more)


def test_a_figure_is_the_median_of_the_rounds_and_its_ratio_that_of_pairs() -> None:
    ours = [one_round(100, checked=3), one_round(300, errors=1, first_error="E: e"), one_round(200)]
    peer = [one_round(100), one_round(100), one_round(400, checked=7)]
    made = figure("w", 4, "writes/s", ours, peer, peer_name="p", goal=Goal(1.0, True), ran="this")
    assert (made.ours, made.ours_range) == (200, (100, 300))
    assert (made.peer, made.peer_range, made.peer_name) == (100, (100, 400), "p")
    assert (made.ratio, made.ratio_range) == (1, (0.5, 3))  # not 200 by 100: rounds are pairs
    assert (made.goal, made.met, made.rounds, made.ran) == ("at least 1", True, 3, "this")
    assert (made.errors, made.first_error, made.checked, made.peer_checked) == (1, "E: e", 3, 7)
    assert (made.cpu_us, made.load_cpu_us, made.peer_cpu_us) == (5000, 5, 10000)


def test_a_latency_is_compared_as_such() -> None:
    ours, peer = [one_round(100, 3.0)], [one_round(900, 1.0)]
    assert figure("w", 1, "ms, p50", ours, peer, goal=Goal(3, False)).met is True
    made = figure("w", 1, "ms, p50", ours, peer, goal=Goal(2.9, False))
    assert (made.ours, made.peer, made.ratio, made.met) == (3, 1, 3, False)


def test_where_one_operation_is_many_rows_rows_are_counted() -> None:
    made = figure("w", 1, "rows/s", [one_round(10, parts={"f1server": 1000.0})], None, rows=500)
    assert (made.ours, made.cpu_us, made.load_cpu_us, made.parts) == (5000, 200, 0.01, {"f1server": 2})
    assert (made.peer, made.ratio, made.goal, made.met) == (None, None, "", None)


def test_a_figure_has_the_public_keys() -> None:
    decoded = msgspec.json.decode(msgspec.json.encode(figure("w", 4, "tx/s", [one_round(2)], [one_round(1)])))
    public = ("work", "clients", "unit", "ours", "peer", "peer_name", "ratio", "cpu_us")
    assert tuple(decoded)[: len(public)] == public


@given(st.lists(st.tuples(st.floats(1, 1e6), st.floats(1, 1e6)), min_size=1, max_size=9))
def test_a_median_lies_within_its_range(pairs: Sequence[tuple[float, float]]) -> None:
    made = figure("w", 1, "tx/s", [one_round(a) for a, _ in pairs], [one_round(b) for _, b in pairs])
    for value, reach in ((made.ours, made.ours_range), (made.peer, made.peer_range), (made.ratio, made.ratio_range)):
        assert value is not None and reach is not None
        assert reach[0] <= value <= reach[1]


def test_the_goals_are_those_that_were_set() -> None:
    goals = {
        (comparison.name, clients): str(goal)
        for contest in CONTESTS
        for comparison in contest
        for clients, goal in (*comparison.rates.items(), *comparison.p50s.items())
    }
    assert goals["upsert", 64] == "at least 1" and goals["upsert-plain", 64] == "at least 1.5"
    assert goals["read", 64] == "at least 1.5" and goals["read", 256] == "at least 2"
    assert goals["upsert", 1] == goals["read", 1] == "at most 3"
    assert goals["transfer", 16] == "at most 2.2" and goals["select", 1] == "at most 1.3"
    assert goals["rows", 8] == "at least 0.3" and str(LINES["load"]) == "at least 0.15"


def test_works_are_picked_by_name() -> None:
    assert parse_names("") == set(NAMES)
    assert parse_names("read, scan") == {"read", "scan"}
    with pytest.raises(F1Error, match=r"--only takes some of upsert, .*, not reads"):
        parse_names("reads,scan")
    assert [[one.name for one in contest] for contest in chosen({"upsert-plain", "select"})] == [
        ["upsert-plain"],
        ["select"],
    ]


@given(st.integers(1, 300), st.randoms(use_true_random=False), st.integers(1, 400))
def test_no_two_clients_write_the_same_row(clients: int, rng: random.Random, rows: int) -> None:
    rows = max(rows, clients)
    owners: dict[int, int] = {}
    for number in range(clients):
        for _ in range(3):
            key = Share(number, clients, 1).own(rows, rng)
            assert 0 <= key < rows
            assert owners.setdefault(key, number) == number


def test_rows_of_large_transactions_have_numbers_of_their_own() -> None:
    numbers = [
        line(Share(number, 8, run), sent, position)[0]
        for run in (1, 2)
        for number in range(8)
        for sent in (0, 1, 2)
        for position in (0, 1, BATCH - 1)
    ]
    assert len(set(numbers)) == len(numbers)


def test_a_row_with_a_write_under_way_is_not_known() -> None:
    known: Acknowledged[int, str] = Acknowledged()
    for key in range(SAMPLE + 5):
        known.end(key, f"value {key}")
    assert len(known.sample(random.Random(1))) == SAMPLE
    known = Acknowledged()
    known.end(1, "one")
    known.end(2, "two")
    known.begin(2)
    assert known.sample(random.Random(1)) == {1: "one"}


class Forgetful:
    """A connection to a database that loses what it has acknowledged."""

    async def upsert(self, table: str, row: dict[str, Any]) -> int:
        return 1

    async def get(self, table: str, key: int) -> dict[str, Any]:
        return {"Id": key, "Value": item(key + 1)}

    async def read(self, table: str, keys: Sequence[int]) -> list[dict[str, Any]]:
        return [{"Id": key, "Value": b"what was there before"} for key in keys]

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Forgetting:
    async def open(self, work: str, clients: int) -> Driver:
        return F1Client(cast(Any, Forgetful()), work)


@pytest.mark.parametrize("work", ["upsert", "read"])
def test_a_wrong_answer_ends_the_benchmark(work: str) -> None:
    now = boot_us()
    with pytest.raises(F1Error, match="f1db acknowledged") as caught:
        run_task(Task(Forgetting(), work, 0, 2, 2, now, now + 20_000, 1))
    assert caught.value.code is Code.DATA_CORRUPTION


def test_reads_are_compared_in_full() -> None:
    class Right(Forgetful):
        async def get(self, table: str, key: int) -> dict[str, Any]:
            assert 0 <= key < ROWS
            return {"Id": key, "Value": item(key)}

    async def read(connection: Forgetful) -> None:
        await F1Client(cast(Any, connection), "read").operation("read", Share(0, 1, 1), random.Random(1))()

    asyncio.run(read(Right()))
    with pytest.raises(WrongAnswer):
        asyncio.run(read(Forgetful()))


class Ticking:
    """A driver of which each operation takes a millisecond."""

    def operation(self, work: str, share: Share, rng: random.Random) -> Operation:
        async def run() -> None:
            await asyncio.sleep(0.001)

        return run

    async def check(self, rng: random.Random) -> int:
        return 2

    def cpu_s(self) -> float:
        return 0.0

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Where:
    async def open(self, work: str, clients: int) -> Driver:
        return Ticking()


def test_contestants_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    from f1deploy.bench.database import rounds

    monkeypatch.setattr(rounds, "_WARM_UP_US", 1_000)
    system = {name: rounds.System(name, "as it is", Where(), {1: name}) for name in ("f1db", "etcd")}
    ours, other, peer = (Contestant(*of) for of in (("f1db", "a", "A"), ("f1db", "b", "B"), ("etcd", "a", "C")))
    absent = Contestant("PostgreSQL", "a", "D")
    comparisons = [Comparison("a", ours, peer, (3,)), Comparison("b", other, peer, (3,)), Comparison("c", ours, absent)]
    said: list[str] = []
    with ThreadPoolExecutor(1) as pool:
        turns = Rounds(cast(Any, pool), system, seconds=0.05, rounds=2, processes=1, say=said.append)
        made = asyncio.run(turns.contest(comparisons, 3))
    assert [text.split(",")[0] for text in said] == ["f1db: A", "f1db: B", "etcd: C"] * 2
    assert [(one.work, one.peer_name, one.rounds, one.checked) for one in made] == [
        ("A", "etcd: C", 2, 4),
        ("B", "etcd: C", 2, 4),
        ("A", None, 2, 4),
    ]
    assert made[0].ran == "f1db, as it is; etcd, as it is" and made[2].ratio is None


def test_the_plot_is_well_formed_and_shows_every_measurement() -> None:
    figures = [
        msgspec.structs.replace(
            figure(
                f"upsert <{kind}>", clients, "writes/s", [one_round(clients * 10)], [one_round(7)], peer_name="e & d"
            ),
            ran="this & that",
        )
        for kind in ("a", "b")
        for clients in (1, 16, 64)
    ]
    document = ElementTree.fromstring(plot("a <machine>", [*figures, _latency()]))
    marks = [element for element in document.iter() if element.tag.endswith("circle")]
    # Throughput: two works and the peer; latencies: two of each.
    assert len(marks) == 3 * (2 + 1) + 3 * (2 + 1) * 2
    texts = [element.text for element in document.iter() if element.tag.endswith("text")]
    assert {"a <machine>", "this & that", "upsert <a>", "e & d", "64"} <= set(texts)


def _latency() -> Figure:
    return figure("not a rate", 1, "ms, p50", [one_round(1)], None)


@pytest.mark.parametrize(
    ("balances", "wrong"),
    [
        ([START_BALANCE + 5, START_BALANCE - 5], None),
        ([START_BALANCE + 5, START_BALANCE - 4], "hold 2000001 after"),
        ([START_BALANCE, START_BALANCE], "no account has changed"),
    ],
)
def test_transfers_must_move_money_and_lose_none(
    balances: list[int], wrong: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Accounts:
        """A connection and a transaction in one: two accounts as given, all others as they were."""

        def __enter__(self) -> "Accounts":
            return self

        def __exit__(self, *_: object) -> None: ...

        def transaction(self, kind: str) -> "Accounts":
            return self

        def read(self, table: str) -> list[dict[str, int]]:
            rest = [START_BALANCE] * (ACCOUNTS - 1)
            return [{"Balance": held} for held in (*rest, balances[table == "Account2"])]

    monkeypatch.setattr("f1.connect", lambda *_, **__: Accounts())
    if wrong is None:
        systems.check_accounts("here")
        return
    with pytest.raises(F1Error, match=wrong) as caught:
        systems.check_accounts("here")
    assert caught.value.code is Code.DATA_CORRUPTION


@pytest.mark.parametrize("option", ["svg", "first"])
def test_a_path_that_is_not_there_is_told_before_anything_is_measured(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[object] = []
    monkeypatch.setattr(command, "running", lambda *arguments: started.append(arguments))
    with pytest.raises(F1Error) as caught:
        command.command(only="scan", **{option: tmp_path / "nowhere" / "x"})  # type: ignore[arg-type]
    assert caught.value.code is Code.NOT_FOUND
    assert not started


def test_a_first_version_is_a_checkout(tmp_path: Path) -> None:
    with pytest.raises(F1Error, match="is no checkout of f1db") as caught, first_version(tmp_path):
        pass
    assert caught.value.code is Code.NOT_FOUND


def test_both_databases_get_the_same_columns() -> None:
    ours, theirs = ddl("t", history=True), postgres_ddl("t")
    assert "change_history = false" in ddl("t", history=False) and "change_history" not in ours
    assert [part.split()[0] for part in ours.split(", ")] == [
        part.split()[0] for part in theirs.replace("(15, 2)", "").split(", ")
    ]
