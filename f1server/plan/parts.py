"""Distributed plans: a DAG of plan parts (F1 section 8.2).

Each part is one SQL query for DuckDB over the rows of its scans and of its inputs, run by several workers at a time;
what it gives goes to the parts that consume it, spread over their workers as each :class:`Output` says. The root part
runs on the server that took the query. Parts are made by :mod:`f1server.plan.spread`, shipped and run by
:mod:`f1server.dist` and ``slavepool``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from f1server.catalog.schema import Schema
from f1server.plan.names import OutColumn
from f1server.plan.prepare import PlannedScan
from f1server.plan.resolve import ProtoFunction

__all__ = ["DistributedPlan", "Output", "Part", "PartScan", "Spread", "Workers"]


class Spread(StrEnum):
    """How the rows of a part are dealt out to the workers of a consumer."""

    HASH = "hash"
    """By the hash of some keys: equal keys meet at one worker."""
    BROADCAST = "broadcast"
    """All rows to every worker."""
    GATHER = "gather"
    """All rows to the one worker of a part that has one (slave or server)."""
    KEEP = "keep"
    """Worker i gives its rows to worker i."""


class Workers(StrEnum):
    """Who runs a part."""

    ALL = "all"
    """Every slave that takes part in the query."""
    ONE = "one"
    """One slave: the first."""
    SERVER = "server"
    """The f1server that took the query: the root part."""


@dataclass(frozen=True, slots=True)
class Output:
    """Where the rows of a part go: the consumer knows them as ``relation``.

    ``keys``: for HASH, SQL expressions over the columns of the part's result whose types are alike on both sides of a
    join. The worker is ``hash(keys...) % workers``.
    """

    consumer: int
    relation: str
    spread: Spread
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class PartScan:
    """A scan of a part. ``divided``: each worker reads its own share of the keys, the border lies between root rows;
    otherwise each worker reads all of it, or what its other scans ask for (``planned.lookup``)."""

    planned: PlannedScan
    divided: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One query over scans and inputs.

    ``sql`` reads the relations of ``scans`` and ``inputs`` (relation name to the id of the part that gives it) and
    uses the parameters ``bound`` by name. The names of its columns are unique. ``outputs`` is empty for the root part
    only. ``operators`` describe it for EXPLAIN, JSON values each.
    """

    id: int
    sql: str
    workers: Workers
    scans: tuple[PartScan, ...] = ()
    inputs: Mapping[str, int] = field(default_factory=dict)
    outputs: tuple[Output, ...] = ()
    bound: Mapping[str, object] = field(default_factory=dict)
    functions: tuple[ProtoFunction, ...] = ()
    operators: tuple[dict[str, object], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class DistributedPlan:
    """The parts of a query, producers before consumers, the root part last. ``columns`` as in BoundQuery."""

    schema: Schema
    parts: tuple[Part, ...]
    columns: tuple[OutColumn, ...] | None
    reason: str = ""
