"""How quick `f1 load` is, and where the processor time goes: `python bench/load.py [--clicks N] [--format json]`.

Starts a cluster on free ports, makes the AdWords schema and loads generated data, a table at a time. Servers and loader
share the machine. `cpu_us` is the processor time of all processes for one row, from the start of the command to its
end: what starting it costs weighs on small tables.
"""

import argparse
import json
import os
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow.parquet as pq

from f1deploy.bench.local import LocalCluster, local_cluster
from f1deploy.samples import adwords

WORK = {
    "Keyword": "Keyword: three levels deep, a global index, history",
    "AdGroupCreative": "AdGroupCreative: three levels deep, a global index, history",
    "AdClick": "AdClick: a root table, no index, no history",
}
IN_FLIGHT = 8
PARTS = {"loader": "the loader", "f1server": "SQL servers", "spanserver": "storage servers"}


@dataclass(frozen=True, slots=True)
class Row:
    """One table: `ours` is rows a second, `cpu_us` and `parts` microseconds of processor time for a row."""

    work: str
    clients: int
    unit: str
    ours: float
    cpu_us: float
    parts: Mapping[str, float]
    peer: None = None
    peer_name: str = ""
    ratio: None = None


def measure(clicks: int) -> list[Row]:
    with local_cluster("--slaves", "0") as made:
        sources = adwords.write_sources(made.folder)
        made.f1("schema", "apply", "--yes", *(path.name for path in sources))
        paths = adwords.generate(made.folder, clicks=clicks)
        return [row for name, path in paths.items() if (row := load(made, name, path)) is not None]


def load(made: LocalCluster, name: str, path: Path) -> Row | None:
    """Load a table; None if nobody wants to know how quick that was."""
    rows = pq.read_metadata(path).num_rows
    before = made.cpu_s()
    said, loader_s = made.f1("load", name, path.name, "--in-flight", str(IN_FLIGHT))
    if name not in WORK:
        return None
    used = made.cpu_s()
    (rate,) = re.findall(r"\(([\d,]+) rows/s\)", said)
    parts = {kind: (used[kind] - before[kind]) / rows * 1e6 for kind in ("f1server", "spanserver")}
    parts["loader"] = loader_s / rows * 1e6
    return Row(WORK[name], IN_FLIGHT, "rows/s", float(rate.replace(",", "")), sum(parts.values()), parts)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="How quick `f1 load` is.")
    parser.add_argument("--clicks", type=int, default=200_000, help="rows of the largest table (%(default)s)")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    options = parser.parse_args(arguments)
    rows = measure(options.clicks)
    if options.format == "json":
        machine = f"{os.cpu_count()} processors, {platform.machine()}, Python {platform.python_version()}"
        print(json.dumps({"machine": machine, "rows": [asdict(row) for row in rows]}))
        return 0
    for row in rows:
        shares = ", ".join(f"{PARTS[kind]} {row.parts[kind]:.0f}" for kind in PARTS)
        print(f"{row.work}: {row.ours:,.0f} rows/s; {row.cpu_us:.0f} us of processor time for a row ({shares})")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
