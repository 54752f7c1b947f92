"""The benchmark counts what it should, and its report has the form that others read."""

import asyncio
import random
from array import array
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from f1common.clock import boot_us
from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from spanstore.placement.range_map import spread_tables
from spanstore.tools import load
from spanstore.tools.bench import Measured, Report, _check_total, _row, parse_clients, summary
from spanstore.tools.load import LoadResult, LoadSpec, StoreSpec, quantile_ms
from spanstore.tools.ourstore import account, group_prefixes, row
from spanstore.tools.works import Work


class CountingStore:
    """Does nothing in a millisecond, and fails every tenth time."""

    def __init__(self, total: int = 0) -> None:
        self.performed = 0
        self.closed = False
        self._total = total

    async def prepare(self) -> None: ...

    async def perform(self, work: Work, rng: random.Random) -> None:
        self.performed += 1
        number = self.performed
        await asyncio.sleep(0.001)
        if number % 10 == 0:
            raise F1Error(Code.UNAVAILABLE, "just now")

    async def total(self) -> int:
        return self._total

    async def clean(self) -> None: ...

    async def close(self) -> None:
        self.closed = True

    @property
    def expected_total(self) -> int:
        return 0


def run_against(store: CountingStore, monkeypatch: pytest.MonkeyPatch, begin_us: int, end_us: int) -> LoadResult:
    monkeypatch.setattr(load, "make_store", lambda spec: store)
    spec = LoadSpec(StoreSpec("etcd", ()), "write one row", 3, begin_us, end_us, 1)
    return asyncio.run(load._load(spec))


def test_successes_and_failures_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    store, now = CountingStore(), boot_us()
    result = run_against(store, monkeypatch, now, now + 300_000)
    assert store.closed
    assert result.errors == store.performed // 10
    assert result.first_error == "UNAVAILABLE: just now"
    # Each client's last operation may end after the window.
    assert 0 <= store.performed - result.errors - len(result.latencies_us) <= 3
    assert min(result.latencies_us) >= 1_000


def test_what_ends_before_the_window_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    store, now = CountingStore(), boot_us()
    result = run_against(store, monkeypatch, now + 200_000, now + 100_000)
    assert store.performed > 0
    assert len(result.latencies_us) == 0


@given(st.lists(st.integers(0, 10**6), min_size=1), st.sampled_from([0.0, 0.5, 0.9, 0.99, 1.0]))
def test_a_quantile_is_exceeded_by_no_more_than_its_complement(latencies: list[int], share: float) -> None:
    value = quantile_ms(latencies, share) * 1000
    assert min(abs(value - latency) for latency in latencies) < 0.01
    assert sum(latency > value + 0.01 for latency in latencies) <= (1 - share) * len(latencies)


def test_no_latencies_no_quantile() -> None:
    assert quantile_ms([], 0.5) == 0


def test_results_of_several_processes_add_up() -> None:
    results = [LoadResult(array("q", [1000] * 30), 1, "", 0.5), LoadResult(array("q", [3000] * 10), 2, "E: e", 0.7)]
    found = summary("read one row", results, 2.0, 0.004)
    assert (found.rate, found.p50_ms, found.p99_ms, found.errors) == (20, 1, 3, 3)
    assert (found.first_error, found.load_cpu, found.cpu_us) == ("E: e", 0.6, 100)


def test_nothing_but_failures_is_an_error_that_tells_why() -> None:
    with pytest.raises(F1Error, match="ABORTED: lost"):
        summary("read one row", [LoadResult(array("q"), 3, "ABORTED: lost", 0)], 1.0, None)


def test_money_that_is_lost_fails_the_benchmark() -> None:
    asyncio.run(_check_total(CountingStore(total=0)))
    with pytest.raises(F1Error) as raised:
        asyncio.run(_check_total(CountingStore(total=-1)))
    assert raised.value.code is Code.DATA_CORRUPTION


def test_the_report_has_the_public_keys() -> None:
    ours = Measured(200.0, 1.0, 2.0, 0, "", 0.1, 50.0)
    peer = Measured(100.0, 3.0, 4.0, 0, "", 0.1, None)
    report = Report("a machine", [_row(("read one row", 16), ours, peer), _row(("read one row", 1), ours, None)])
    decoded = msgspec.json.decode(msgspec.json.encode(report))
    assert decoded["machine"] == "a machine"
    first, second = decoded["rows"]
    public = ("work", "clients", "unit", "ours", "peer", "peer_name", "ratio", "cpu_us")
    assert tuple(first[key] for key in public) == ("read one row", 16, "reads/s", 200, 100, "etcd", 2, 50)
    assert tuple(second[key] for key in public) == ("read one row", 1, "reads/s", 200, None, None, None, 50)


def test_numbers_of_clients() -> None:
    assert parse_clients("1,16, 64") == (1, 16, 64)
    for text in ("", "0", "many", "1,,2", "5000"):
        with pytest.raises(F1Error, match="--clients"):
            parse_clients(text)


@pytest.mark.parametrize("groups", [(0,), (0, 1), (0, 1, 2, 3, 4)])
def test_accounts_and_rows_lie_in_the_groups_that_they_are_meant_for(groups: tuple[int, ...]) -> None:
    ranges = spread_tables(groups)
    homes = group_prefixes(ranges)
    wanted = [group for group in groups if group] or [0]
    assert [ranges.group_of(account(home, 999)) for home in homes] == wanted
    assert [ranges.group_of(row(homes, number)) for number in range(len(homes))] == wanted
    keys = sorted(account(home, number) for home in homes for number in range(20))
    assert all(a != b for a, b in pairwise(keys))
    assert all(tuples.decode(key) for key in keys if not key.startswith(b"\x00"))
