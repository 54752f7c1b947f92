"""How many rows a second one scan process decodes: ``python bench/scans.py [ROWS]``. No cluster, a new environment."""

import asyncio
import sys
import tempfile
from pathlib import Path

from f1common.clock import boot_us
from f1common.encoding import tuple as tuples
from f1common.encoding.row import encode_row
from spanstore.engine.base import WriteBatch
from spanstore.engine.lmdb_engine import LmdbEngine
from spanstore.mvcc.versions import put_version
from spanstore.scan.plan import Column, ColumnType, Operator, Predicate, ScanPlan, Source
from spanstore.scan.pool import ScanPool

_GROUP = 1
_MAP_BYTES = 4 << 30
_BATCH = 20_000
_COLUMNS = (
    Column("id", ColumnType.INT64, Source.KEY_PART, 1),
    Column("n", ColumnType.INT64, Source.CELL, 1),
    Column("text", ColumnType.STRING, Source.CELL, 2),
    Column("x", ColumnType.DOUBLE, Source.CELL, 3),
)
_EVERYTHING = ScanPlan(group=_GROUP, timestamp=20, ranges=((b"\x01", b"\xff"),), columns=_COLUMNS)
_ONE_PERCENT = Predicate(1, Operator.LT, (tuples.encode((1,)),))


async def fill(engine: LmdbEngine, rows: int) -> None:
    """Write rows of five cells, about 70 bytes each."""
    for low in range(0, rows, _BATCH):
        batch = WriteBatch()
        for i in range(low, min(rows, low + _BATCH)):
            value = encode_row({1: i % 100, 2: f"name of row {i}", 3: i * 0.5, 4: i % 7, 5: "text that no scan wants"})
            put_version(batch, _GROUP, tuples.encode((1, i)), 10, value)
        await engine.commit(batch)


async def measure(pool: ScanPool, plan: ScanPlan, rows: int, what: str) -> None:
    """Run one scan and print what it took."""
    begin = boot_us()
    run = await pool.open(plan)
    found = sent = 0
    last = False
    while not last:
        chunk = await run.next()
        found, sent, last = found + chunk.rows, sent + len(chunk.ipc), chunk.last
    seconds = (boot_us() - begin) / 1e6
    print(f"{what:24} {rows / seconds:10,.0f} rows/s read {found:10,} rows given {sent / seconds / 1e6:8.1f} MB/s")


async def main(rows: int) -> None:
    """Measure a few shapes of scans, after one that starts the process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        engine = LmdbEngine.open(path, cluster="bench", server="bench", map_bytes=_MAP_BYTES)
        pool = ScanPool(path, processes=1, map_bytes=_MAP_BYTES, reader_check=engine.reader_check)
        await fill(engine, rows)
        columns = _COLUMNS
        count = ScanPlan(group=_GROUP, timestamp=20, ranges=_EVERYTHING.ranges, columns=())
        two = ScanPlan(group=_GROUP, timestamp=20, ranges=_EVERYTHING.ranges, columns=columns[1:3])
        some = ScanPlan(
            group=_GROUP, timestamp=20, ranges=_EVERYTHING.ranges, columns=columns, predicates=(_ONE_PERCENT,)
        )
        for plan, what in (
            (_EVERYTHING, "(starting the process)"),
            (_EVERYTHING, "a key part, three cells"),
            (two, "two cells"),
            (some, "one row of a hundred"),
            (count, "no columns"),
        ):
            await measure(pool, plan, rows, what)
        await pool.close()
        await engine.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000))
