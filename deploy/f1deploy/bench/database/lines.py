"""Whole tables: TPC-H's lineitem loaded and added up, beside PostgreSQL's COPY and DuckDB.

Each round has a table of its own, which is loaded, then read once: from rows as they are stored, of which nothing can
be left from an earlier query. The sums of all systems have to be the same.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import msgspec

import f1
from f1common.clock import boot_us
from f1common.errors import Code, F1Error
from f1deploy.bench.database.figures import Figure, Round, figure
from f1deploy.bench.database.first import FirstVersion
from f1deploy.bench.database.rounds import System
from f1deploy.bench.database.systems import Running
from f1deploy.bench.database.works import LINES
from f1deploy.bench.postgres import Postgres
from f1deploy.samples import tpch
from spanstore.tools.load import own_cpu_s

__all__ = ["ddl", "measure_lines", "postgres_ddl"]

_COLUMNS = (
    ("l_orderkey", "INT64"),
    ("l_partkey", "INT64"),
    ("l_suppkey", "INT64"),
    ("l_linenumber", "INT64"),
    ("l_quantity", "NUMERIC"),
    ("l_extendedprice", "NUMERIC"),
    ("l_discount", "NUMERIC"),
    ("l_tax", "NUMERIC"),
    ("l_returnflag", "STRING"),
    ("l_linestatus", "STRING"),
    ("l_shipdate", "DATE"),
    ("l_commitdate", "DATE"),
    ("l_receiptdate", "DATE"),
    ("l_shipinstruct", "STRING"),
    ("l_shipmode", "STRING"),
    ("l_comment", "STRING"),
)
_NAMES = ", ".join(name for name, _ in _COLUMNS)
_POSTGRES_TYPES = {"INT64": "bigint", "NUMERIC": "numeric(15, 2)", "STRING": "text", "DATE": "date"}
_KEY = "PRIMARY KEY (l_orderkey, l_linenumber)"
_SUM = "SELECT count(*), sum(l_extendedprice) FROM {table}"
_LOAD = "f1 load of lineitem"
_SCAN = "scan of lineitem with a sum"

Say = Callable[[str], object]


def ddl(table: str, *, history: bool) -> str:
    """Return the statement that makes a table of lines on its own, of which each is a root row."""
    columns = ", ".join(f"{name} {kind} NOT NULL" for name, kind in _COLUMNS)
    return f"CREATE TABLE {table} ({columns}, {_KEY})" + ("" if history else " WITH (change_history = false)")


def postgres_ddl(table: str) -> str:
    """Return the same for PostgreSQL."""
    columns = ", ".join(f"{name} {_POSTGRES_TYPES[kind]} NOT NULL" for name, kind in _COLUMNS)
    return f"CREATE TABLE {table} ({columns}, {_KEY})"


@dataclass(frozen=True, slots=True)
class _Source:
    """The rows: as Parquet for ours and DuckDB, as CSV for PostgreSQL; their number and sum."""

    parquet: Path
    csv: Path
    rows: int
    total: Decimal


@dataclass(frozen=True, slots=True)
class _Found:
    """Rounds by work, rows a second."""

    ours: dict[str, list[Round]]
    copies: list[Round]
    scans: list[Round]
    duckdb: list[Round]
    first: list[Round]


def measure_lines(
    up: Running, names: frozenset[str], *, scale: float, rounds: int, first: FirstVersion | None, say: Say
) -> list[Figure]:
    """Measure those of ``load``, ``load-plain`` and ``scan`` that are named; scans beside the ``first`` version's.

    Raises F1Error NOT_FOUND without the generator, DATA_CORRUPTION if sums differ.
    """
    wanted = [name for name in LINES if name in names]
    if not wanted:
        return []
    say("generating lineitem")
    source = _generate(up.cluster.folder, scale)
    loads = [name for name in wanted if name != "scan"] or ["load-plain"]
    found = _Found({name: [] for name in loads}, [], [], [], [])
    with f1.connect(up.cluster.hosts, autocommit=True, timeout_s=600.0) as connection:
        _wake(connection)
        for number in range(rounds):
            for name in loads:
                say(f"f1db: {name}, round {number + 1} of {rounds}")
                table = f"line_{name.replace('-', '_')}_{number}"
                connection.execute(ddl(table, history=name == "load"))
                found.ours[name].append(_load(up, table, source))
            if up.postgres is not None and wanted != ["scan"]:
                say(f"PostgreSQL: COPY, round {number + 1} of {rounds}")
                found.copies.append(_copy(up, up.postgres, f"line_{number}", source))
            if "scan" in wanted:
                say(f"scan, round {number + 1} of {rounds}")
                found.scans.append(_scan(up, connection, table, source))
                found.duckdb.append(_duckdb(source))
                if first is not None:
                    say(f"{first.name}: scan, round {number + 1} of {rounds}")
                    found.first.append(_scan_first(first, f"line_{number}", source))
    return _figures(up, wanted, found, source, first)


def _wake(connection: f1.Connection) -> None:
    """Have the processes started that read whole tables: each server's, by the first queries of what it leads."""
    for table in ("Item", "Tracked", "Plain", "Account1", "Account2", "Directory"):
        connection.execute(f"SELECT count(*), sum(Id) FROM {table}").fetchall()


def _generate(folder: Path, scale: float) -> _Source:
    parquet = tpch.generate(folder / "tpch", scale=scale)["lineitem"]
    csv = folder / "lineitem.csv"
    with duckdb.connect() as connection:
        connection.execute(f"COPY (SELECT {_NAMES} FROM '{parquet}') TO '{csv}' (HEADER)")
        (found,) = connection.execute(_SUM.format(table=f"'{parquet}'")).fetchall()
    return _Source(parquet, csv, int(found[0]), Decimal(found[1]))


def _load(up: Running, table: str, source: _Source) -> Round:
    system = up.systems["f1db"]
    before, began_us = system.cpu_s(), boot_us()
    said, loader_s = up.cluster.f1("load", table, str(source.parquet))
    made = _round(source, began_us, _spent(system, before), loader_s)
    # What it says of itself: without the second that Python takes to start, which psql does not take.
    (rate,) = re.findall(r"\(([\d,]+) rows/s\)", said)
    return msgspec.structs.replace(made, rate=float(rate.replace(",", "")))


def _copy(up: Running, server: Postgres, table: str, source: _Source) -> Round:
    system = up.systems["PostgreSQL"]
    server.run(postgres_ddl(table))
    before, began_us = system.cpu_s(), boot_us()
    server.run(f"COPY {table} ({_NAMES}) FROM STDIN (FORMAT csv, HEADER)", stdin=source.csv)
    made = _round(source, began_us, _spent(system, before), 0.0)
    count, total = server.ask(_SUM.format(table=table)).split("|")
    _check("PostgreSQL", source, (int(count), Decimal(total)))
    return made


def _scan(up: Running, connection: f1.Connection, table: str, source: _Source) -> Round:
    system = up.systems["f1db"]
    before, began_us = system.cpu_s(), boot_us()
    (found,) = connection.execute(_SUM.format(table=table)).fetchall()
    made = _round(source, began_us, _spent(system, before), 0.0)
    _check("f1db", source, found)
    return made


def _scan_first(first: FirstVersion, table: str, source: _Source) -> Round:
    first.f1("sql", "-c", ddl(table, history=False))
    first.f1("load", table, str(source.parquet))
    # As with ours, the processes that read whole tables run already.
    first.query(f"SELECT count(*) AS n FROM {table} WHERE l_orderkey < 10")
    before, began_us = first.cpu_s(), boot_us()
    (found,) = first.query(f"SELECT count(*) AS n, sum(l_extendedprice) AS total FROM {table}")
    made = _round(source, began_us, {first.name: first.cpu_s() - before}, 0.0)
    _check(first.name, source, (int(str(found["n"])), Decimal(str(found["total"]))))
    return made


def _duckdb(source: _Source) -> Round:
    before, began_us = own_cpu_s(), boot_us()
    with duckdb.connect() as connection:
        (found,) = connection.execute(_SUM.format(table=f"'{source.parquet}'")).fetchall()
    made = _round(source, began_us, {"DuckDB": own_cpu_s() - before}, 0.0)
    _check("DuckDB", source, found)
    return made


def _spent(system: System, before: Mapping[str, float]) -> dict[str, float]:
    """Return the processor time of a system since then, in seconds by kind of process."""
    return {kind: spent - before[kind] for kind, spent in system.cpu_s().items()}


def _check(system: str, source: _Source, found: Sequence[Any]) -> None:
    if tuple(found) != (source.rows, source.total):
        text = f"{system} finds {found[0]} rows with a sum of {found[1]}, not {source.rows} with {source.total}"
        raise F1Error(Code.DATA_CORRUPTION, text)


def _round(source: _Source, began_us: int, cpu_s: Mapping[str, float], load_s: float) -> Round:
    took_s = (boot_us() - began_us) / 1_000_000
    return Round(
        rate=source.rows / took_s,
        p50_ms=took_s * 1000,
        p99_ms=took_s * 1000,
        cpu_us=sum(cpu_s.values()) / source.rows * 1_000_000,
        parts={kind: spent / source.rows * 1_000_000 for kind, spent in cpu_s.items()},
        load_us=load_s / source.rows * 1_000_000,
        checked=source.rows,
    )


def _figures(
    up: Running, wanted: Sequence[str], found: _Found, source: _Source, first: FirstVersion | None
) -> list[Figure]:
    ran = f"{up.systems['f1db'].name}, {up.systems['f1db'].settings}; {source.rows:,} rows"
    made: list[Figure] = []
    for name in wanted:
        if name == "scan":
            continue
        work = f"{_LOAD}, {'change history' if name == 'load' else 'no history'}"
        system = up.systems.get("PostgreSQL")
        peer = "" if system is None else f"{system.name}: COPY"
        beside = "" if system is None else f"; {system.name}, {system.settings}"
        ours = found.ours[name]
        goal = LINES[name]
        made.append(figure(work, 1, "rows/s", ours, found.copies, peer_name=peer, goal=goal, ran=ran + beside))
    if "scan" in wanted:
        duck = f"DuckDB {duckdb.__version__} over Parquet"
        made.append(figure(_SCAN, 1, "rows/s", found.scans, found.duckdb, peer_name=duck, ran=ran))
        own, theirs = ([_per_core(one) for one in rounds] for rounds in (found.scans, found.duckdb))
        made.append(figure(_SCAN, 1, "rows/s a core", own, theirs, peer_name=duck, ran=ran))
        if first is not None:
            goal, early = LINES["scan"], [_per_core(one) for one in found.first]
            made.append(figure(_SCAN, 1, "rows/s a core", own, early, peer_name=first.name, goal=goal, ran=ran))
    return made


def _per_core(one: Round) -> Round:
    """Count rows by seconds of processor time instead of the clock's; below a tick of the system nobody can tell."""
    return Round(
        1_000_000 / max(one.cpu_us, 1e-3), one.p50_ms, one.p99_ms, one.cpu_us, one.load_us, checked=one.checked
    )
