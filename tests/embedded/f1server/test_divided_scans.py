"""Clipped scans: what several workers read of a divided scan is together what one reads, each row once (F1, 8.2)."""

import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import f1server.txn.source
from f1common.encoding import tuple as tuples
from f1server.catalog.schema import Index, Schema, Table
from f1server.dist.division import Division
from f1server.dist.statistics import StatisticsCache
from f1server.history.table import with_history
from f1server.plan.parts import PartScan
from f1server.plan.prepare import PlannedScan
from f1server.plan.scans import Bound, FieldWanted, KeySpan, PredicateOp, SimplePredicate, TableScan
from f1server.rows.keys import split_row_key, table_span
from f1server.rows.values import Value
from f1server.rows.writes import LogicalWrite, WriteKind
from f1server.testing.database import Database, with_database
from f1server.txn.reader import RowReader
from f1server.txn.source import StorageSource
from spanstore.client import KeyRange, Write

KINDS: dict[str, list[Any]] = {
    "INT64": [-(2**63), -300, -1, 0, 1, 127, 128, 255, 256, 70_000, 2**63 - 1],
    "STRING": ["", "a", "aa", "a\x00b", "a\x01", "b", "é", "zz"],
    "BYTES": [b"", b"\x00", b"\x00\x01", b"a", b"\xff", b"\xff\xff"],
    "DOUBLE": [float("-inf"), -1.5, 0.0, 1e-300, 2.0, 1e300, float("inf")],
    "NUMERIC": [Decimal(-5), Decimal("-0.000000001"), Decimal(0), Decimal("1.5"), Decimal(10**20)],
    "DATE": [date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(2013, 8, 26), date(9999, 12, 31)],
    "TIMESTAMP": [datetime(y, 1, 2, tzinfo=UTC) for y in (1900, 1969, 1971, 2013, 2400)],
    "BOOL": [False, True],
}
WORKERS = ((1, 4, 7), (2, 5), (3, 6))
"""Numbers of workers: each scan is divided among some of them, in turn."""


def ddl(kind: str) -> list[str]:
    key = f"A {kind} NOT NULL, B INT64 NOT NULL"
    return [
        f"CREATE TABLE Root{kind} ({key}, V INT64, PRIMARY KEY (A, B))",
        f"CREATE TABLE Kid{kind} ({key}, C INT64 NOT NULL, V INT64, W STRING, PRIMARY KEY (A, B, C)) "
        f"INTERLEAVE IN PARENT Root{kind}",
        f"CREATE TABLE Grand{kind} ({key}, C INT64 NOT NULL, D STRING NOT NULL, PRIMARY KEY (A, B, C, D)) "
        f"INTERLEAVE IN PARENT Kid{kind}",
        f"CREATE INDEX KidV{kind} ON Kid{kind} (V, W)",
        f"CREATE INDEX KidW{kind} ON Kid{kind} (W) STORING (V)",
        f"CREATE LOCAL INDEX KidHere{kind} ON Kid{kind} (A, B, V)",
    ]


async def fill(db: Database, kind: str, rng: random.Random) -> None:
    """Rows below roots with keys of a kind: many, few and no children."""
    roots = [(a, b) for a in KINDS[kind] for b in rng.sample(range(-2, 9), rng.randint(1, 4))]
    kids = [(*root, c) for root in roots for c in rng.sample(range(20), rng.choice((0, 1, 3, 9)))]
    grand = [(*kid, d) for kid in kids for d in rng.sample("abcde", rng.randint(0, 3))]
    await db.conn.insert(f"Root{kind}", [{"A": a, "B": b, "V": b % 3} for a, b in roots])
    rows = [{"A": a, "B": b, "C": c, "V": rng.choice((None, 1, 2, 3)), "W": rng.choice("xyz")} for a, b, c in kids]
    await db.conn.insert(f"Kid{kind}", rows)
    await db.conn.insert(f"Grand{kind}", [{"A": a, "B": b, "C": c, "D": d} for a, b, c, d in grand])


class Reading:
    """Scans of one database at one timestamp."""

    def __init__(self, db: Database, schema: Schema, own: Sequence[LogicalWrite] = ()) -> None:
        self.db = db
        self.schema = schema
        self.own = own
        self.timestamp = db.storage.strong_timestamp()
        self._workers = itertools.cycle(WORKERS)

    def table(self, name: str) -> Table:
        return self.schema.table(name)

    async def rows(self, *scans: TableScan) -> list[Counter[str]]:
        """What a worker reads for scans that it makes together."""
        reader = RowReader(self.db.storage, self.schema, timestamp=self.timestamp, filled=self.own)
        streams = await StorageSource(reader, self.db.storage).scan(list(scans))
        return [await self._counted(stream) for stream in streams]

    @staticmethod
    async def _counted(stream: AsyncIterator[pa.RecordBatch]) -> Counter[str]:
        return Counter([repr(tuple(row.values())) async for batch in stream for row in batch.to_pylist()])

    async def check(self, division: Division, *scans: TableScan) -> int:
        """Compare all workers' shares with the whole; tell how many rows the whole has."""
        whole = await self.rows(*scans)
        for workers in next(self._workers):
            shares = [division.ranges(scan.table, scan.index, workers) for scan in scans]
            found: list[Counter[str]] = [Counter() for _ in scans]
            for worker in range(workers):
                clipped = [replace(scan, clip=share[worker]) for scan, share in zip(scans, shares, strict=True)]
                for total, part in zip(found, await self.rows(*clipped), strict=True):
                    total.update(part)
            assert found == whole, (workers, [scan.table.name for scan in scans])
        return sum(map(Counter.total, whole))


def everything(table: Table, **rest: Any) -> TableScan:
    return TableScan(table, tuple(FieldWanted(column.id) for column in table.columns), **rest)


def scans_of(reading: Reading, kind: str, keys: list[tuple[Value, ...]], rng: random.Random) -> list[TableScan]:
    """Scans of each access path over tables whose roots have these keys."""
    root, kid, grand = (reading.table(f"{name}{kind}") for name in ("Root", "Kid", "Grand"))
    by_v, by_w, here = (next(i for i in kid.indexes if i.name == f"{n}{kind}") for n in ("KidV", "KidW", "KidHere"))
    some = [rng.choice(keys) for _ in range(5)]
    low, high = sorted((some[0][0], some[1][0]), key=lambda value: tuples.encode([value]))
    between = KeySpan((), Bound(low, True), Bound(high, rng.random() < 0.5))
    v = next(c for c in kid.columns if c.name == "V")
    covered = tuple(FieldWanted(i) for i in (*kid.key_column_ids, *(p.column_id for p in by_w.parts), v.id))
    scans = [everything(table) for table in (root, kid, grand, reading.table(f"ChangeHistory_Root{kind}"))]
    scans += [
        everything(table, spans=spans)
        for table in (root, kid, grand)
        for spans in (
            tuple(KeySpan((key[0],)) for key in some),
            tuple(KeySpan(key) for key in some),
            (between,),
            (KeySpan((some[2][0],), Bound(0, False), None), KeySpan((some[3][0],), None, Bound(4, True))),
        )
    ]
    scans += [
        everything(kid, predicates=(SimplePredicate(FieldWanted(v.id), PredicateOp.GE, (2,)),)),
        everything(kid, index=by_v),
        everything(kid, index=by_v, index_spans=(KeySpan((1,)), KeySpan((None,)))),
        everything(kid, index=by_v, index_spans=(KeySpan((), Bound(1, False), Bound(3, True)),)),
        everything(kid, index=here, index_spans=tuple(KeySpan((*key, 2)) for key in keys)),
        TableScan(kid, covered, index=by_w, index_spans=(KeySpan((), Bound("x", False), None),), covering=True),
        everything(root, empty=True),
    ]
    return scans


async def schema_of(db: Database) -> Schema:
    return with_history((await db.process().leases.current("default")).schema)


async def keys_of(db: Database, schema: Schema, name: str) -> list[tuple[Value, ...]]:
    found = await db.storage.read([], [KeyRange(*table_span(schema, schema.table(name)))])
    split = [split_row_key(schema, row.key) for row in found.ranges[0]]
    return [values for each in split if each is not None for table, values in [each] if table.name == name]


async def division_of(db: Database, schema: Schema, scans: Sequence[TableScan]) -> Division:
    cache = StatisticsCache(db.storage, db.env.clock)
    division = await cache.division(schema, [PartScan(PlannedScan("", (), scan)) for scan in scans])
    await cache.close()
    return division


@pytest.mark.parametrize("kind", KINDS)
def test_shares_make_the_whole_for_each_access_path(kind: str) -> None:
    async def body(db: Database) -> None:
        rng = random.Random(kind)
        await fill(db, kind, rng)
        schema = await schema_of(db)
        reading = Reading(db, schema)
        keys = await keys_of(db, schema, f"Root{kind}")
        scans = scans_of(reading, kind, keys, rng)
        division = await division_of(db, schema, scans)
        assert sum([await reading.check(division, scan) > 0 for scan in scans]) >= len(scans) * 2 // 3
        cluster = [
            everything(reading.table(f"{name}{kind}"), spans=(KeySpan(keys[0][:1]), KeySpan(keys[-1][:1])), ancestry=1)
            for name in ("Root", "Kid", "Grand")
        ]
        assert await reading.check(division, *cluster) > 0
        if kind != "BOOL":
            ranges = division.ranges(reading.table(f"Kid{kind}"), None, 3)
            assert all(start < end for start, end in ranges), "nothing was divided"

    with_database(body, *ddl(kind))


def test_own_writes_are_in_one_share_each() -> None:
    async def body(db: Database) -> None:
        rng = random.Random(1)
        await fill(db, "INT64", rng)
        schema = await schema_of(db)
        root, kid = schema.table("RootINT64"), schema.table("KidINT64")
        (a, b) = root.key_column_ids
        kids = await keys_of(db, schema, "KidINT64")
        own = [
            *(LogicalWrite(WriteKind.INSERT, root.name, {a: n, b: 50}) for n in range(-500, 500, 100)),
            *(
                LogicalWrite(
                    WriteKind.UPDATE,
                    kid.name,
                    dict(zip(kid.key_column_ids, key, strict=True)),
                    {next(c.id for c in kid.columns if c.name == "V"): 2},
                )
                for key in kids[::3]
            ),
            *(
                LogicalWrite(WriteKind.DELETE, kid.name, dict(zip(kid.key_column_ids, key, strict=True)))
                for key in kids[1::3]
            ),
        ]
        reading = Reading(db, schema, own)
        scans = scans_of(reading, "INT64", await keys_of(db, schema, "RootINT64"), rng)
        division = await division_of(db, schema, scans)
        for scan in scans:
            await reading.check(division, scan)

    with_database(body, *ddl("INT64"))


def test_many_spans_are_read_in_bulk_and_clipped_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f1server.txn.source, "_SMALL_SPANS", 2)

    async def body(db: Database) -> None:
        rng = random.Random(2)
        await fill(db, "STRING", rng)
        schema = await schema_of(db)
        reading = Reading(db, schema)
        keys = await keys_of(db, schema, "RootSTRING")
        scans = [
            everything(schema.table(name), spans=tuple(KeySpan(key[:width]) for key in keys[::2]))
            for name in ("KidSTRING", "GrandSTRING")
            for width in (1, 2)
        ]
        division = await division_of(db, schema, scans)
        for scan in scans:
            assert await reading.check(division, scan) > 0

    with_database(body, *ddl("STRING"))


def test_a_row_with_several_entries_is_in_one_share() -> None:
    proto = 'syntax = "proto2"; package t; message Info { repeated int64 feature = 1; }'
    tables = (
        "CREATE TABLE Customer (Id INT64 NOT NULL, Info PROTO<t.Info>, PRIMARY KEY (Id)); "
        "CREATE INDEX ByFeature ON Customer (Info.feature)"
    )

    async def body(db: Database) -> None:
        await db.conn.apply_schema({"t.proto": proto, "schema.sql": tables})
        schema = await schema_of(db)
        customer = schema.table("Customer")
        index: Index = customer.indexes[0]
        rng = random.Random(3)
        for n in range(60):
            features = rng.sample(range(30), rng.randint(0, 4))
            info = b"".join(bytes((8, feature)) for feature in features)
            await db.conn.insert("Customer", [{"Id": n, "Info": info}])
        reading = Reading(db, schema)
        scans = [
            everything(customer, index=index),
            everything(customer, index=index, index_spans=(KeySpan((), Bound(5, True), Bound(20, False)),)),
            everything(customer, index=index, index_spans=tuple(KeySpan((n,)) for n in (3, 4, 20, 28))),
        ]
        division = await division_of(db, schema, scans)
        for scan in scans:
            assert await reading.check(division, scan) > 5

    with_database(body)


def test_statistics_of_the_simulated_cluster() -> None:
    async def body(db: Database) -> None:
        await fill(db, "INT64", random.Random(5))
        schema = await schema_of(db)
        names = ("RootINT64", "KidINT64", "GrandINT64")
        rows = [(await db.rows(f"SELECT count(*) FROM {name}"))[0][0] for name in names]
        cache = StatisticsCache(db.storage, db.env.clock)
        known = await cache.fresh(schema, [schema.table(name) for name in names])
        found = [known.table(schema.table(name)) for name in names]
        assert [stats.rows if stats is not None else None for stats in found] == rows
        history = known.table(schema.table("ChangeHistory_RootINT64"))
        assert history is not None
        assert history.rows > 0
        # A row that is deleted counts no more.
        (start, _) = table_span(schema, schema.table(names[0]))
        first = (await db.storage.read([], [KeyRange(start, start + b"\xff", 1)])).ranges[0][0].key
        await db.storage.commit([Write(first, None)])
        again = await StatisticsCache(db.storage, db.env.clock).fresh(schema, [schema.table(names[0])])
        stats = again.table(schema.table(names[0]))
        assert stats is not None
        assert stats.rows == rows[0] - 1

    with_database(body, *ddl("INT64"))
