"""Statistics and divisions on real processes: the samples' tables are counted rightly and divided evenly."""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from f1common.clock import Clock, SameHostClock, same_host_offset_us
from f1deploy.samples import adwords, tpch
from f1server.catalog.codec import decode_schema
from f1server.catalog.places import schema_key
from f1server.catalog.schema import Index, Schema, Table
from f1server.dist.statistics import StatisticsCache
from f1server.history.table import with_history
from f1server.plan.parts import PartScan
from f1server.plan.prepare import PlannedScan
from f1server.plan.scans import FieldWanted, TableScan
from f1server.txn.reader import RowReader
from f1server.txn.source import StorageSource
from spanstore.client import KeyRange, SpanClient
from tests.integration.database import Database, running

WORKERS = 3
ORDERS = 3_000
TPCH = """
CREATE TABLE orders (orderkey INT64 NOT NULL, orderdate DATE, totalprice NUMERIC, PRIMARY KEY (orderkey));
CREATE TABLE lineitem (orderkey INT64 NOT NULL, linenumber INT64 NOT NULL, quantity NUMERIC, shipdate DATE,
  PRIMARY KEY (orderkey, linenumber)) INTERLEAVE IN PARENT orders;
"""


@dataclass(frozen=True)
class Loaded:
    """A cluster with the samples, each in a database of its name, and how many rows each table was given."""

    database: Database
    rows: dict[str, dict[str, int]]


def load(database: Database, name: str, sources: list[Path], files: dict[str, Path]) -> dict[str, int]:
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name}")
    database.command("schema", "apply", "--yes", "--database", name, *map(str, sources))
    rows = {}
    for table, path in files.items():
        said = database.command("load", table, str(path), "--database", name)
        (count,) = (line for line in said.splitlines() if f"rows loaded into {table}" in line)
        rows[table] = int(count.split()[0].replace(",", ""))
    return rows


def few_orders(folder: Path) -> dict[str, Path]:
    """Write the first orders of TPC-H and their line items, some of the columns."""
    files = tpch.generate(folder, scale=0.01)
    orders = pq.read_table(files["orders"], columns=["o_orderkey", "o_orderdate", "o_totalprice"]).slice(0, ORDERS)
    items = pq.read_table(files["lineitem"], columns=["l_orderkey", "l_linenumber", "l_quantity", "l_shipdate"])
    items = items.filter(pc.is_in(items.column("l_orderkey"), orders.column("o_orderkey")))
    found = {}
    for name, table in (("orders", orders), ("lineitem", items)):
        found[name] = folder / f"few_{name}.parquet"
        names = [column[2:] for column in table.column_names]  # as they are called in TPCH
        pq.write_table(table.rename_columns(names), found[name])
    return found


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    folder = tmp_path_factory.mktemp("statistics")
    with running(folder) as database:
        files = adwords.generate(folder, clicks=5_000)
        rows = {"adwords": load(database, "adwords", list(adwords.write_sources(folder)), files)}
        (folder / "tpch.sql").write_text(TPCH)
        rows["tpch"] = load(database, "tpch", [folder / "tpch.sql"], few_orders(folder))
        yield Loaded(database, rows)


class Storage:
    """The storage tier of a cluster as an f1server sees it, and the schema of one of its databases."""

    def __init__(self, client: SpanClient, clock: Clock, schema: Schema) -> None:
        self.client = client
        self.schema = schema
        self.cache = StatisticsCache(client, clock, wait_ms=30_000)

    async def share(self, table: Table, index: Index | None, clip: tuple[bytes, bytes]) -> int:
        """The rows that a worker with this share reads."""
        reader = RowReader(self.client, self.schema, timestamp=self.client.strong_timestamp())
        columns = (FieldWanted(table.key_column_ids[-1]),)
        (stream,) = await StorageSource(reader, self.client).scan([TableScan(table, columns, index=index, clip=clip)])
        return sum([batch.num_rows async for batch in stream])


def with_storage(database: Database, name: str, test: Callable[[Storage], Awaitable[None]]) -> None:
    async def run() -> None:
        clock = SameHostClock(same_host_offset_us(database.directory / "clock"))
        client = SpanClient(servers(database), clock=clock, rng=random.SystemRandom())
        try:
            stored = (await client.read([schema_key(name)])).versions[0]
            assert stored is not None
            assert stored.value is not None
            storage = Storage(client, clock, with_history(decode_schema(stored.value, stored.ts)))
            await test(storage)
            await storage.cache.close()
        finally:
            await client.close()

    asyncio.run(run())


def servers(database: Database) -> list[str]:
    status = json.loads(database.command("cluster", "status", "--format", "json", "--dir", str(database.directory)))
    return [process["address"] for process in status if process["kind"] == "spanserver"]


@pytest.mark.parametrize("name", ["adwords", "tpch"])
def test_tables_are_counted(loaded: Loaded, name: str) -> None:
    async def test(storage: Storage) -> None:
        tables = [storage.schema.table(table) for table in loaded.rows[name]]
        known = await storage.cache.fresh(storage.schema, tables)
        found = {table.name: known.table(table) for table in tables}
        assert {table: stats.rows if stats else None for table, stats in found.items()} == loaded.rows[name]
        assert all(10 < stats.row_bytes < 500 for stats in found.values() if stats is not None)

    with_storage(loaded.database, name, test)


@pytest.mark.parametrize(
    ("name", "table", "index"),
    [
        ("adwords", "Keyword", None),
        ("adwords", "AdGroupCreative", None),
        ("adwords", "AdClick", None),
        ("adwords", "AdGroupCreative", "AdGroupCreativeByIds"),
        ("tpch", "orders", None),
        ("tpch", "lineitem", None),
    ],
)
def test_shares_are_even_and_make_the_whole(loaded: Loaded, name: str, table: str, index: str | None) -> None:
    async def test(storage: Storage) -> None:
        wanted = storage.schema.table(table)
        by = next((i for i in wanted.indexes if i.name == index), None)
        scan = PartScan(PlannedScan("", (), TableScan(wanted, (), index=by)))
        division = await storage.cache.division(storage.schema, [scan])
        shares = [await storage.share(wanted, by, clip) for clip in division.clips(scan, WORKERS)]
        assert sum(shares) == loaded.rows[name][table]
        assert max(shares) < 2 * min(shares), shares

    with_storage(loaded.database, name, test)


def test_beyond_the_limit_the_rest_is_estimated(loaded: Loaded) -> None:
    async def test(storage: Storage) -> None:
        orders, lineitem = (storage.schema.table(t) for t in ("orders", "lineitem"))
        paths = [[(orders.id, 1)], [(orders.id, 1), (lineitem.id, 1)]]
        division = await storage.cache.division(storage.schema, [PartScan(PlannedScan("", (), TableScan(orders, ())))])
        (span,) = division.ranges(orders, None, 1)
        sketch = await storage.client.sketch([KeyRange(*span)], tables=paths, max_keys=4_000)
        for total, table in zip(sketch.totals, ("orders", "lineitem"), strict=False):
            assert total.rows == pytest.approx(loaded.rows["tpch"][table], rel=0.1)

    with_storage(loaded.database, "tpch", test)
