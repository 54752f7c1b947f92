"""Scans are divided between root rows, alike for all tables below a root, without gap or overlap, and evenly."""

import asyncio
import itertools
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from f1common.clock import ManualClock
from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from f1server.catalog.compile import compile_sources
from f1server.catalog.ddl import parse_ddl
from f1server.catalog.schema import Schema
from f1server.dist.division import Division, Figures, keyspace_of
from f1server.dist.statistics import StatisticsCache
from f1server.history.table import with_history
from f1server.plan.parts import PartScan
from f1server.plan.prepare import PlannedScan
from f1server.plan.scans import TableScan
from f1server.plan.statistics import TableStats
from f1server.rows.keys import index_prefix, row_key, table_span
from f1server.rows.layout import HISTORY_ID
from spanstore.client import KeyRange, Segment, Sketch, SpanClient, TableCount

DDL = """
CREATE TABLE Root (A INT64 NOT NULL, B STRING NOT NULL, V INT64, PRIMARY KEY (A, B));
CREATE TABLE Kid (A INT64 NOT NULL, B STRING NOT NULL, C INT64 NOT NULL, V INT64, PRIMARY KEY (A, B, C))
  INTERLEAVE IN PARENT Root;
CREATE TABLE Other (A INT64 NOT NULL, PRIMARY KEY (A));
CREATE INDEX KidByV ON Kid (V);
CREATE LOCAL INDEX KidByVHere ON Kid (A, B, V);
"""


def schema_of(ddl: str) -> Schema:
    ids = itertools.count(64)
    statements: list[Any] = list(parse_ddl(ddl))
    return with_history(compile_sources("d", statements, [], lambda: next(ids)))


SCHEMA = schema_of(DDL)
ROOT, KID, OTHER = (SCHEMA.table(name) for name in ("Root", "Kid", "Other"))
HISTORY = SCHEMA.table("ChangeHistory_Root")
GLOBAL, LOCAL = (next(i for i in KID.indexes if i.local is local) for local in (False, True))
WHOLE = table_span(SCHEMA, ROOT)

roots = st.tuples(st.integers(-300, 300), st.text("ab", max_size=2))
keys = st.one_of(
    roots.map(lambda r: row_key(SCHEMA, ROOT, r)),
    st.tuples(roots, st.integers(0, 300)).map(lambda t: row_key(SCHEMA, KID, (*t[0], t[1]))),
)
counts = st.dictionaries(st.integers(0, 2), st.builds(TableCount, st.integers(1, 1000), st.integers(0, 9)), min_size=1)
sketches = st.dictionaries(keys, counts, max_size=12).map(
    lambda found: Sketch(tuple(Segment(key, found[key]) for key in sorted(found)), 2)
)


def figures(sketch: Sketch) -> Figures:
    return Figures(keyspace_of(SCHEMA, ROOT), (ROOT.id, KID.id), sketch)


@given(sketches, st.integers(1, 7))
def test_ranges_follow_one_another_and_begin_at_root_rows(sketch: Sketch, workers: int) -> None:
    ranges = Division(SCHEMA, [figures(sketch)]).ranges(ROOT, None, workers)
    assert len(ranges) == workers
    assert ranges[0][0] == WHOLE[0]
    assert ranges[-1][1] == WHOLE[1]
    assert all(start <= end for start, end in ranges)
    assert all(a[1] == b[0] for a, b in pairwise(ranges))
    for border in {start for start, _ in ranges} - set(WHOLE):
        table, *key = tuples.decode(border)
        assert table == ROOT.id
        assert len(key) == len(ROOT.key_column_ids)


@given(sketches, st.integers(1, 7))
def test_all_tables_below_a_root_are_divided_alike_and_always_the_same_way(sketch: Sketch, workers: int) -> None:
    division = Division(SCHEMA, [figures(sketch)])
    ranges = division.ranges(ROOT, None, workers)
    assert division.ranges(KID, None, workers) == ranges
    assert division.ranges(KID, LOCAL, workers) == ranges
    assert division.ranges(HISTORY, None, workers) == ranges
    assert Division(SCHEMA, [figures(sketch)]).ranges(KID, None, workers) == ranges
    scan = PartScan(PlannedScan("k", (), TableScan(KID, ())))
    assert division.clips(scan, workers) == ranges


def test_what_is_not_known_goes_to_the_first_worker() -> None:
    division = Division(SCHEMA, [])
    for table, index in ((KID, None), (OTHER, None), (KID, GLOBAL)):
        (first, *rest) = division.ranges(table, index, 3)
        assert first == keyspace_of(SCHEMA, table, index).span
        assert all(start == end for start, end in rest)


@pytest.mark.parametrize("workers", range(1, 8))
def test_even_hierarchies_are_divided_evenly(workers: int) -> None:
    # Twenty roots to a segment, and one root of a thousand segments.
    small = [Segment(row_key(SCHEMA, ROOT, (n * 20, "a")), {0: TableCount(20), 1: TableCount(80)}) for n in range(1000)]
    large = [Segment(row_key(SCHEMA, KID, (50_000, "b", n)), {1: TableCount(100)}) for n in range(1000)]
    for segments, most in ((small, 1.05 / workers), (large + small[:1], 1.0)):
        sketch = Sketch(tuple(sorted(segments, key=lambda s: s.key)), 2)
        ranges = figures(sketch).cut(workers)
        rows = [sum(sum(c.rows for c in s.counts.values()) for s in segments if a <= s.key < b) for a, b in ranges]
        assert max(rows) <= most * sum(rows)


def test_entries_of_an_index_are_divided_at_any_of_them() -> None:
    entries = [index_prefix(SCHEMA, KID, GLOBAL, (v, 1, "x", v)) for v in range(30)]
    sketch = Sketch(tuple(Segment(entry, {0: TableCount(10)}) for entry in entries), 0)
    division = Division(SCHEMA, [Figures(keyspace_of(SCHEMA, KID, GLOBAL), (), sketch)])
    ranges = division.ranges(KID, GLOBAL, 3)
    prefix = index_prefix(SCHEMA, KID, GLOBAL, ())
    assert ranges == [(prefix, entries[10]), (entries[10], entries[20]), (entries[20], prefix + b"\xff")]


# ---------------------------------------------------------------- the cache


class FakeClient:
    """Answers sketches after a while, or not at all."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.in_background: list[bool] = []
        self.paths: list[Any] = []
        self.answer: Sketch | F1Error = Sketch((), 3)
        self.release = asyncio.Event()
        self.release.set()

    async def sketch(
        self, ranges: Sequence[KeyRange], *, tables: Sequence[Any], timeout_s: float, background: bool
    ) -> Sketch:
        self.asked.append(ranges[0].start)
        self.in_background.append(background)
        self.paths.append(tables)
        await self.release.wait()
        if isinstance(self.answer, F1Error):
            raise self.answer
        return self.answer


def counted(rows: int, size: int = 0) -> Sketch:
    return Sketch((Segment(row_key(SCHEMA, ROOT, (1, "x")), {1: TableCount(rows, size)}),), 3)


def with_cache(test: Any, **options: int) -> None:
    async def run() -> None:
        client, clock = FakeClient(), ManualClock()
        cache = StatisticsCache(cast(SpanClient, client), clock, **options)
        await test(cache, client, clock)
        await cache.close()

    asyncio.run(run())


def test_figures_are_fetched_once_for_a_hierarchy_and_kept_for_a_while() -> None:
    async def test(cache: StatisticsCache, client: FakeClient, clock: ManualClock) -> None:
        client.answer = counted(400_000, 4_000_000)
        first, second = await asyncio.gather(cache.fresh(SCHEMA, [ROOT, KID]), cache.fresh(SCHEMA, [KID, HISTORY]))
        assert first.table(KID) == second.table(KID) == TableStats(400_000, 10.0)
        assert first.table(ROOT) == first.table(HISTORY) == TableStats(0, 0.0)
        assert first.table(OTHER) is None
        assert client.asked == [WHOLE[0]]
        kid = ((ROOT.id, 2), (KID.id, 1))
        assert client.paths == [[((ROOT.id, 2),), kid, ((ROOT.id, 2), (HISTORY_ID, 2))]]
        client.answer = counted(500_000)
        clock.advance(59_000_000)
        assert (await cache.fresh(SCHEMA, [KID])).table(KID) == TableStats(400_000, 10.0)
        clock.advance(2_000_000)
        # Who asks goes by what is known while a large table is counted again.
        client.release.clear()
        for _ in range(2):
            assert (await cache.fresh(SCHEMA, [KID])).table(KID) == TableStats(400_000, 10.0)
        client.release.set()
        await asyncio.sleep(0.01)
        assert (await cache.fresh(SCHEMA, [KID])).table(KID) == TableStats(500_000, 0.0)
        assert client.in_background == [False, True]
        # Unless that is very old.
        client.answer = counted(600_000)
        clock.advance(11 * 60_000_000)
        assert (await cache.fresh(SCHEMA, [KID])).table(KID) == TableStats(600_000, 0.0)
        assert client.in_background == [False, True, False]

    with_cache(test)


def test_a_new_table_is_not_unknown_for_long() -> None:
    async def test(cache: StatisticsCache, client: FakeClient, clock: ManualClock) -> None:
        await cache.fresh(SCHEMA, [ROOT])
        wider = schema_of(DDL + "CREATE TABLE New (A INT64, B STRING, D INT64, PRIMARY KEY (A, B, D)) "
                          "INTERLEAVE IN PARENT Root;")  # fmt: skip
        client.answer = Sketch((), 4)
        assert (await cache.fresh(wider, [wider.table("New")])).table(wider.table("New")) == TableStats(0, 0.0)

    with_cache(test)


def test_a_failed_fetch_leaves_what_was_known_and_is_not_repeated_at_once() -> None:
    async def test(cache: StatisticsCache, client: FakeClient, clock: ManualClock) -> None:
        client.answer = F1Error(Code.UNAVAILABLE, "no leader")
        assert (await cache.fresh(SCHEMA, [KID])).table(KID) is None
        assert (await cache.fresh(SCHEMA, [KID])).table(KID) is None
        assert len(client.asked) == 1
        clock.advance(5_000_000)
        client.answer = counted(3)
        assert (await cache.fresh(SCHEMA, [KID])).table(KID) == TableStats(3, 0.0)
        clock.advance(60_000_000)
        client.answer = F1Error(Code.UNAVAILABLE, "no leader")
        assert (await cache.fresh(SCHEMA, [KID])).table(KID) == TableStats(3, 0.0)
        assert len(client.asked) == 3

    with_cache(test)


def test_a_slow_fetch_is_waited_for_once_and_goes_on() -> None:
    async def test(cache: StatisticsCache, client: FakeClient, clock: ManualClock) -> None:
        client.release.clear()
        assert (await cache.fresh(SCHEMA, [KID])).table(KID) is None
        clock.advance(1_000_000)
        assert (await cache.fresh(SCHEMA, [KID])).table(KID) is None
        assert len(client.asked) == 1
        client.answer = counted(9)
        clock.advance(9_000_000)
        client.release.set()
        for _ in range(3):
            await asyncio.sleep(0)
        # It took ten seconds, so it is kept for longer than the time that is configured.
        clock.advance(100_000_000)
        assert (await cache.fresh(SCHEMA, [KID])).table(KID) == TableStats(9, 0.0)
        assert len(client.asked) == 1

    with_cache(test, wait_ms=10)


def test_a_division_asks_for_the_keyspaces_that_are_divided() -> None:
    async def test(cache: StatisticsCache, client: FakeClient, clock: ManualClock) -> None:
        scans = [
            PartScan(PlannedScan("k", (), TableScan(KID, (), index=GLOBAL))),
            PartScan(PlannedScan("r", (), TableScan(ROOT, ()))),
            PartScan(PlannedScan("o", (), TableScan(OTHER, ())), divided=False),
        ]
        division = await cache.division(SCHEMA, scans)
        assert client.asked == [index_prefix(SCHEMA, KID, GLOBAL, ()), WHOLE[0]]
        assert [division.clips(scan, 1) for scan in scans[:2]] == [
            [keyspace_of(SCHEMA, KID, GLOBAL).span],
            [WHOLE],
        ]

    with_cache(test)
