"""Slaves: whether more of them share a query evenly, and what each costs."""

import json
import statistics
import time
from collections.abc import Sequence
from typing import Any

import f1
from f1common.clock import boot_us
from f1common.errors import Code, F1Error
from f1deploy.bench.database.clients import F1Opener
from f1deploy.bench.database.lines import ddl
from f1deploy.bench.database.systems import our_system
from f1deploy.bench.growth.curves import Curve, Line, Options, Say, places
from f1deploy.bench.local import LocalCluster, cpu_of_trees, local_cluster
from f1deploy.samples import tpch

__all__ = ["balance", "measure"]

_COUNTS = (1, 2, 3, 4)
_SCALE = 0.01
_WAIT_US = 60_000_000
_QUERY = (
    "/*+ DISTRIBUTED */ SELECT a.l_returnflag, count(*), sum(b.l_extendedprice) FROM line AS a "
    "JOIN line AS b ON a.l_partkey = b.l_partkey WHERE a.l_linenumber = 1 GROUP BY a.l_returnflag ORDER BY 1"
)
_SETTINGS = "three spanservers, one f1server"


def measure(options: Options, say: Say) -> Curve:
    """Join a table with itself over four slaves, then over three, and so on: one after the other is stopped."""
    costs: list[tuple[float, list[float]]] = []
    fragments: list[tuple[float, list[float]]] = []
    shares: list[tuple[float, list[float]]] = []
    waits: list[tuple[float, list[float]]] = []
    answers: set[str] = set()
    with (
        local_cluster("--f1servers", "1", "--slaves", str(max(_COUNTS))) as cluster,
        f1.connect(cluster.hosts, autocommit=True, timeout_s=600.0) as connection,
    ):
        name = our_system(cluster, F1Opener(cluster.hosts), _SETTINGS).name
        say("slaves: loading lineitem")
        _load(cluster, connection)
        for count in reversed(_COUNTS):
            say(f"slaves: {count}")
            for slave in _slaves(cluster)[count:]:
                cluster.cluster("kill", str(slave["name"]))
            evaluated = _wait_for(connection, count)
            answers.add(str(connection.execute(_QUERY).fetchall()))
            rounds = [_round(cluster, connection, options.seconds) for _ in range(options.rounds)]
            costs.append((count, [sum(used) * 1000 for used, _ in rounds]))
            fragments.append((count, [sum(used) / evaluated * 1000 for used, _ in rounds]))
            shares.append((count, [balance(used) for used, _ in rounds]))
            waits.append((count, [took_s * 1000 for _, took_s in rounds]))
    if len(answers) != 1:
        raise F1Error(Code.DATA_CORRUPTION, f"the answer depends on the number of slaves: {sorted(answers)}")
    lines = (
        Line("all slaves, each with its fragments", "ms of CPU a query", places(costs), whole=True),
        Line("a fragment at a slave", "ms of CPU", places(fragments), whole=False),
        Line("busiest slave by the mean", "times", places(shares), whole=False),
        Line("a query on the clock", "ms", places(waits), whole=False),
    )
    return Curve(
        "slaves", "Slaves", "slaves", lines, f"{name}, {_SETTINGS}; lineitem at scale {_SCALE:g} joined with itself"
    )


def balance(used: Sequence[float]) -> float:
    """Return how many times the mean the busiest one used; 1 is even."""
    mean = statistics.mean(used)
    return max(used) / mean if mean else 1.0


def _load(cluster: LocalCluster, connection: f1.Connection) -> None:
    path = tpch.generate(cluster.folder / "tpch", scale=_SCALE)["lineitem"]
    connection.execute(ddl("line", history=False))
    cluster.f1("load", "line", str(path), "--in-flight", "8")


def _slaves(cluster: LocalCluster) -> list[dict[str, Any]]:
    """Return the slaves that run, in order of their names."""
    found = [one for one in cluster.servers() if one["kind"] == "slave" and one["state"] == "running"]
    return sorted(found, key=lambda one: str(one["name"]))


def _wait_for(connection: f1.Connection, slaves: int) -> int:
    """Wait until queries are evaluated by so many slaves; return at how many places: parts, each at some slaves.

    Raises F1Error UNAVAILABLE if that does not happen.
    """
    end_us = boot_us() + _WAIT_US
    while boot_us() < end_us:
        ((said,),) = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {_QUERY}").fetchall()
        parts = json.loads(said)["parts"]
        at = [str(one["worker"]) for part in parts for one in part.get("measured", ())]
        evaluated = [worker for worker in at if worker != "f1server"]
        if len(set(evaluated)) == slaves:
            return len(evaluated)
        time.sleep(0.5)
    raise F1Error(
        Code.UNAVAILABLE, f"queries are not evaluated by {slaves} slaves within a minute, but at {sorted(set(at))}"
    )


def _round(cluster: LocalCluster, connection: f1.Connection, seconds: float) -> tuple[list[float], float]:
    """Run the query for so long, once at least; return what one took: the processor time of each slave, and on the
    clock, in seconds. One alone is over before the system's ticks tell shares apart."""
    pids = [int(server["pid"]) for server in _slaves(cluster)]
    before, began_us, times = cpu_of_trees(pids), boot_us(), 0
    while not times or boot_us() - began_us < seconds * 1e6:
        connection.execute(_QUERY).fetchall()
        times += 1
    took_s = (boot_us() - began_us) / 1e6
    after = cpu_of_trees(pids)
    return [(after[pid] - before[pid]) / times for pid in pids], took_s / times
