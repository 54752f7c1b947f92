"""From a prepared query to a distributed plan, or the reason why it runs on the f1server alone."""

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from f1server.history.table import is_history_table
from f1server.plan.duckdb_sql import gaps, sql_of
from f1server.plan.parts import DistributedPlan, Output, Part, PartScan, Spread, Workers
from f1server.plan.prepare import BoundQuery, PlannedScan, Prepared, message_bytes, planned_scans
from f1server.plan.spread.blocks import plan_select
from f1server.plan.spread.builder import Builder
from f1server.plan.spread.estimates import examined_rows
from f1server.plan.spread.joins import JoinOptions
from f1server.plan.spread.normal import Normal, Unspreadable
from f1server.plan.spread.queries import Planner, Sealed
from f1server.plan.spread.relation import Draft, Exchange
from f1server.plan.spread.sharing import shared
from f1server.plan.statistics import Statistics

RULES_OFF = ("lookup_join", "cluster_join", "shared_scan", "point_read")
"""Rules that choose for one server what parts choose for themselves."""


def examined(query: BoundQuery, statistics: Statistics) -> float:
    """Return about how many rows the scans of a query look at; a lookup counts as the few rows that it should be."""
    return sum(
        examined_rows(statistics, planned.scan) if planned.lookup is None else float(planned.lookup.limit) / 10
        for planned in query.scans
    )


def is_short(query: BoundQuery) -> bool:
    """Does a query read every table by key, by what another one asks for, or by the beginning of a key or index?"""
    return all(_is_limited(planned) for planned in query.scans)


def _is_limited(planned: PlannedScan) -> bool:
    scan = planned.scan
    spans = scan.index_spans if scan.index is not None else scan.spans
    return scan.empty or planned.lookup is not None or (bool(spans) and all(span.prefix for span in spans))


def spread(
    query: Prepared,
    params: Sequence[object],
    now_us: int,
    statistics: Statistics,
    joins: JoinOptions,
    rules_off: Sequence[str] = (),
) -> DistributedPlan:
    """Plan a query over slaves. Raises Unspreadable, with the reason; F1Error for parameters as ``Prepared.bind``."""
    if query.locking:
        raise Unspreadable("SELECT ... FOR UPDATE takes locks")
    if not query.tables:
        raise Unspreadable("no table is read")
    if any(is_history_table(base.table) for base in query.tables):
        raise Unspreadable("change history is read")
    tree = query.tree.copy()
    normal = Normal(query.schema, {base.number: base for base in query.tables})
    columns = normal.query(tree)
    planning = query.plan(params, now_us, {*RULES_OFF, *rules_off})
    scans = dict(zip((p.number for p in planning.tables), planned_scans(planning.tables), strict=True))
    planner = Planner(normal, scans, statistics, joins, plan_select)
    for item in normal.items.values():
        if item.cte is not None:
            planner.uses[item.cte] = planner.uses.get(item.cte, 0) + 1
    sealed = planner.query(tree)
    root = _root(planner, sealed, [c.name for c in columns])
    drafts = [*planner.builder.drafts, root]
    parts = tuple(_part(draft, query, params, now_us) for draft in drafts if draft is root or _is_read(draft))
    return DistributedPlan(query.schema, parts, query.columns, "")


def _is_read(draft: Draft) -> bool:
    return any(exchange.consumer is not None for exchange in draft.outputs)


def _root(planner: Planner, sealed: Sealed, names: Sequence[str]) -> Draft:
    """Gather the rows at the f1server, in order."""
    builder: Builder = planner.builder
    moved = builder.close(planner.topped(sealed), sealed.refs, Spread.GATHER)
    columns = [
        exp.alias_(moved.map[ref].copy(), name, quoted=True) for ref, name in zip(sealed.outputs, names, strict=True)
    ]
    select = moved.select(columns)
    planner.tail(select, moved, sealed, sealed.limit, sealed.offset)
    draft = Draft(len(builder.drafts) + 1, select, Workers.SERVER, [], list(moved.inputs), list(moved.operators))
    for exchange in draft.inputs:
        exchange.consumer = draft
    if sealed.order:
        draft.operators.append({"operator": "sort", "by": [str(o.sql("duckdb")) for o in sealed.order]})
    if sealed.limit is not None or sealed.offset is not None:
        draft.operators.append({"operator": "limit"})
    return draft


def _part(draft: Draft, query: Prepared, params: Sequence[object], now_us: int) -> Part:
    sql, bound = gaps(sql_of(draft.select)).fill(
        params, now_us, lambda name, value: message_bytes(query.schema, name, value)
    )
    functions = tuple(function for function in query.functions if function.name in sql.lower())
    return Part(
        draft.number,
        sql,
        draft.workers,
        shared([_owned(scan, draft) for scan in draft.scans]),
        {exchange.relation: exchange.producer.number for exchange in draft.inputs},
        tuple(_output(exchange) for exchange in draft.outputs if exchange.consumer is not None),
        bound,
        functions,
        tuple(draft.operators),
    )


def _owned(scan: PartScan, draft: Draft) -> PartScan:
    """One worker alone reads all of a table."""
    return replace(scan, divided=scan.divided and draft.workers is Workers.ALL)


def _output(exchange: Exchange) -> Output:
    keys = tuple(sql_of(key) for key in exchange.keys)
    consumer = exchange.consumer.number if exchange.consumer is not None else 0
    return Output(consumer, exchange.relation, exchange.spread, keys)


__all__ = ["Unspreadable", "examined", "is_short", "spread"]
