"""How long the queries of TPC-H take: `python bench/tpch.py [--scale S] [--shape flat|nested] [--format json]`.

Starts a cluster with two slaves on free ports, loads generated data, and runs each query centrally and over the slaves,
in turn, as often as `--times` says; the median counts. The peer is DuckDB, in one process over the Parquet files: it
reads columns, keeps no versions and sends nothing, so it says what evaluation alone costs. Everything shares the
machine.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import duckdb

import f1
from f1deploy.bench.local import local_cluster
from f1deploy.samples import tpch


@dataclass(frozen=True, slots=True)
class Row:
    """One query: `ours` and `central_ms` are milliseconds over slaves and on the f1server, `peer` DuckDB's.

    `moved_kib` went from one process to another; `rows_in` are rows that the f1server got.
    """

    work: str
    clients: int
    unit: str
    ours: float
    central_ms: float
    moved_kib: float
    rows_in: int
    peer: float
    peer_name: str
    ratio: float


def measure(scale: float, shape: str, times: int) -> list[Row]:
    with local_cluster("--slaves", "2") as made:
        files = tpch.generate(made.folder / "data", scale=scale)
        (made.folder / "tpch.sql").write_text(tpch.ddl(shape))
        made.f1("schema", "apply", "--yes", "tpch.sql")
        for name in tpch.TABLES:
            made.f1("load", name, str(files[name]))
        with f1.connect(made.hosts, autocommit=True, timeout_s=600) as ours, duckdb.connect() as peer:
            for name, path in files.items():
                peer.from_parquet(str(path)).create_view(name)
            texts = tpch.queries(scale)
            return [query(ours, peer, f"Q{number}", text, times) for number, text in texts.items()]


def query(ours: f1.Connection, peer: Any, name: str, text: str, times: int) -> Row:
    def run(hint: str) -> Callable[[], object]:
        return lambda: ours.execute(f"{hint} {text}").fetchall()

    def duck() -> object:
        return peer.sql(text).fetchall()

    works = {"slaves": run("/*+ DISTRIBUTED */"), "central": run("/*+ CENTRAL */"), "duckdb": duck}
    taken: dict[str, list[float]] = {work: [] for work in works}
    for _ in range(times):
        for work, call in works.items():
            began = time.perf_counter()
            call()
            taken[work].append((time.perf_counter() - began) * 1000)
    medians = {work: statistics.median(values) for work, values in taken.items()}
    moved, rows_in = traffic(ours, text)
    ratio = medians["duckdb"] / medians["slaves"]
    return Row(
        name, 1, "ms", medians["slaves"], medians["central"], moved / 1024, rows_in, medians["duckdb"], "DuckDB", ratio
    )


def traffic(ours: f1.Connection, text: str) -> tuple[int, int]:
    """Return the bytes that a query sends from one process to another, and the rows that the f1server gets."""
    ((said,),) = ours.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) /*+ DISTRIBUTED */ {text}").fetchall()
    measured: list[Mapping[str, Any]] = [one for part in json.loads(said)["parts"] for one in part.get("measured", ())]
    moved = sum(s["bytes"] for one in measured for s in one["sent"] if s["to"] != one["worker"])
    return moved, sum(read["rows"] for one in measured if one["worker"] == "f1server" for read in one["read"])


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="How long the queries of TPC-H take.")
    parser.add_argument("--scale", type=float, default=0.05, help="1 is six million line items (%(default)s)")
    parser.add_argument("--shape", choices=tpch.SHAPES, default="nested", help="(%(default)s)")
    parser.add_argument("--times", type=int, default=3, help="runs of each query (%(default)s)")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    options = parser.parse_args(arguments)
    rows = measure(options.scale, options.shape, options.times)
    if options.format == "json":
        machine = f"{os.cpu_count()} processors, {platform.machine()}, Python {platform.python_version()}"
        print(json.dumps({"machine": machine, "rows": [asdict(row) for row in rows]}))
        return 0
    print("query  slaves ms  central ms  DuckDB ms  moved KiB  rows at the f1server")
    for row in rows:
        figures = (
            f"{row.ours:9,.0f}  {row.central_ms:10,.0f}  {row.peer:9,.0f}  {row.moved_kib:9,.0f}  {row.rows_in:6,}"
        )
        print(f"{row.work:5}  {figures}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
