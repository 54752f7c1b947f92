"""Rows in a table: what a read by key, one through a global index and an insert cost, the larger the table gets."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from f1deploy.bench.database.figures import Round
from f1deploy.bench.database.rounds import System
from f1deploy.bench.database.systems import our_system
from f1deploy.bench.database.works import Contestant
from f1deploy.bench.growth.clients import DDL, GrowthOpener, id_of, name_of
from f1deploy.bench.growth.curves import Curve, Line, Options, Say, places
from f1deploy.bench.growth.turns import turns
from f1deploy.bench.local import local_cluster

__all__ = ["measure"]

_FIRST = 10_000
_CLIENTS = 8
_WORKS = {"point": "read by key", "index": "read through a global index", "insert": "insert, with its index entry"}
_SETTINGS = "three spanservers, two f1servers, fsync on"


def measure(options: Options, say: Say) -> Curve:
    """Load ever more rows, and measure each time."""
    found: dict[str, list[tuple[float, list[Round]]]] = {work: [] for work in _WORKS}
    with local_cluster("--slaves", "0", "--set", "placement.balance_load=false") as cluster:
        (cluster.folder / "grown.sql").write_text(DDL)
        cluster.f1("schema", "apply", "--yes", "grown.sql")
        loaded = 0
        for size in sizes(options.most_rows):
            say(f"rows: loading up to {size:,}")
            cluster.f1("load", "Grown", str(_write(cluster.folder, loaded, size)), "--in-flight", "8")
            loaded = size
            system = our_system(cluster, GrowthOpener(cluster.hosts, size), _SETTINGS)
            for work, rounds in _at_one_size(system, options, size, say).items():
                found[work].append((float(size), rounds))
    lines: list[Line] = []
    for work, title in _WORKS.items():
        costs = [(size, [one.cpu_us for one in rounds]) for size, rounds in found[work]]
        waits = [(size, [one.p50_ms for one in rounds]) for size, rounds in found[work]]
        lines.append(Line(f"{title}, servers", "us of CPU", places(costs), whole=False))
        lines.append(Line(f"{title}, p50", "ms", places(waits), whole=False))
    return Curve("rows", "Rows in a table", "rows", tuple(lines), f"{system.name}, {_SETTINGS}; {_CLIENTS} clients")


def sizes(most: int) -> list[int]:
    """Return ten thousand, and more by factors of ten up to ``most``; where that leaves one size, ``most``, too."""
    found = [_FIRST]
    while found[-1] * 10 <= most:
        found.append(found[-1] * 10)
    return found if len(found) > 1 else [max(most // 10, 1), most]


def _write(folder: Path, first: int, end: int) -> Path:
    numbers = range(first, end)
    table = pa.table(
        {
            "Id": pa.array([id_of(number) for number in numbers], pa.int64()),
            "Name": [name_of(number) for number in numbers],
            "Amount": pa.array(np.arange(first, end) % 1_000, pa.int64()),
        }
    )
    path = folder / f"grown-{end}.parquet"
    pq.write_table(table, path)
    return path


def _at_one_size(system: System, options: Options, size: int, say: Say) -> dict[str, list[Round]]:
    contestants = [Contestant("f1db", work, f"{title}, {size:,} rows") for work, title in _WORKS.items()]
    return turns(system, contestants, _CLIENTS, options, say)
