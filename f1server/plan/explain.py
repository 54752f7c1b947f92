"""EXPLAIN: how a statement would run, as JSON (DESIGN section 7) and as text."""

import json
from collections.abc import Mapping
from typing import Any

from f1common.encoding.values import Date, Timestamp
from f1server.catalog.schema import Table
from f1server.plan.dml import BoundDml
from f1server.plan.parts import DistributedPlan, Part, Workers
from f1server.plan.prepare import BoundQuery, PlannedScan
from f1server.plan.scans import FieldWanted, KeySpan, Lookup, TableScan
from f1server.rows.values import Value


def explain(bound: BoundQuery | BoundDml, why: str = "") -> dict[str, Any]:
    """Return the plan of a statement that runs on one server as one object, which json can write. ``why`` it does."""
    operators: list[dict[str, Any]] = []
    query = bound.query if isinstance(bound, BoundDml) else bound
    if query is not None:
        aliases = {r: planned.alias for planned in query.scans for r in planned.relations}
        operators += [_scan(planned, aliases) for planned in query.scans]
        if query.picks is not None:
            operators.append({"operator": "pick", "columns": list(query.picks)})
        else:
            if query.direct is not None:
                picked = {"columns": list(query.direct.picks), "at_most": query.direct.MOST_ROWS}
                operators.append({"operator": "pick", **picked})
            operators.append({"operator": "evaluate", "engine": "duckdb", "sql": query.sql})
        if query.as_of is not None:
            operators.insert(0, {"operator": "as of", "timestamp": query.as_of})
    if isinstance(bound, BoundDml):
        operators += _writes(bound)
    reason = why or "only slaves run a query together"
    if isinstance(bound, BoundDml):
        reason = "statements that write run on one server"
    elif bound.picks is not None:
        reason = "only keys: there is nothing to evaluate"
    return {
        "execution": "central",
        "reason": reason,
        "parts": [{"id": 0, "workers": 1, "inputs": [], "operators": operators}],
    }


def explain_distributed(plan: DistributedPlan, workers: int) -> dict[str, Any]:
    """Return a distributed plan as one object, which json can write. ``workers``: slaves that are alive."""
    return {
        "execution": "distributed",
        "reason": plan.reason,
        "parts": [_part(part, workers) for part in plan.parts],
    }


def _part(part: Part, workers: int) -> dict[str, Any]:
    aliases = {r: s.planned.alias for s in part.scans for r in s.planned.relations}
    operators = [_scan(s.planned, aliases) | {"divided": s.divided} for s in part.scans]
    operators += [dict(operator) for operator in part.operators]
    operators.append({"operator": "evaluate", "engine": "duckdb", "sql": part.sql})
    for output in part.outputs:
        sent: dict[str, Any] = {"operator": "send", "part": output.consumer, "spread": str(output.spread)}
        if output.keys:
            sent["keys"] = list(output.keys)
        operators.append(sent)
    return {
        "id": part.id,
        "where": "f1server" if part.workers is Workers.SERVER else "slaves",
        "workers": workers if part.workers is Workers.ALL else 1,
        "inputs": sorted(set(part.inputs.values())),
        "operators": operators,
    }


def _writes(bound: BoundDml) -> list[dict[str, Any]]:
    prepared = bound.prepared
    found: list[dict[str, Any]] = []
    if prepared.rows is not None:
        found.append({"operator": "values", "rows": len(prepared.rows)})
    write: dict[str, Any] = {"operator": prepared.tag.lower(), "table": prepared.table.name}
    if prepared.columns:
        write["columns"] = [c.name for c in prepared.columns]
    if prepared.conflict is not None:
        names = [i.name if i is not None else "primary key" for i in prepared.conflict.arbiters]
        write["on conflict"] = {"of": names, "do": "update" if prepared.conflict.update is not None else "nothing"}
    found.append(write)
    if bound.returning is not None:
        found.append({"operator": "evaluate", "engine": "duckdb", "sql": bound.returning.sql})
    return found


def _scan(planned: PlannedScan, aliases: Mapping[str, str]) -> dict[str, Any]:
    scan = planned.scan
    found: dict[str, Any] = {"operator": "scan", "table": scan.table.name}
    if planned.alias and planned.alias != scan.table.name:
        found["alias"] = planned.alias
    found["access"] = _access(scan)
    if scan.index is not None:
        found["index"] = scan.index.name
        found["covering"] = scan.covering
    spans = scan.index_spans if scan.index is not None else scan.spans
    if spans:
        found["spans"] = [_span(span) for span in spans[:20]]
        if len(spans) > 20:
            found["span_count"] = len(spans)
    found["columns"] = [_field(scan, wanted) for wanted in scan.columns]
    if planned.lookup is not None:
        found["lookup"] = _lookup(planned.lookup, scan.table, aliases)
    if scan.predicates:
        found["predicates"] = [
            " ".join(
                [_field(scan, p.column), p.op.value.replace("_", " "), ", ".join(_shown(v) for v in p.values)]
            ).strip()
            for p in scan.predicates
        ]
    if scan.limit is not None:
        found["limit"] = scan.limit
    if scan.in_key_order:
        found["order"] = "primary key" if scan.in_key_order > 0 else "primary key, reversed"
    if scan.ancestry is not None:
        found["cluster_join"] = scan.ancestry
    return found


def _lookup(lookup: Lookup, table: Table, aliases: Mapping[str, str]) -> str:
    by = f"index {lookup.index.name}" if lookup.index is not None else "key"
    ids = [p.column_id for p in lookup.index.parts] if lookup.index is not None else list(table.key_column_ids)
    names = [table.by_id[i].name for i in ids[: len(lookup.parts)]]
    return f"by {by} ({', '.join(names)}) from {aliases[lookup.relation]}"


def _access(scan: TableScan) -> str:
    if scan.empty:
        return "empty"
    if scan.index is not None:
        return "index"
    if not scan.spans:
        return "table"
    if scan.is_point:
        return "point"
    return "range" if any(s.lower is not None or s.upper is not None for s in scan.spans) else "prefix"


def _span(span: KeySpan) -> str:
    text = f"({', '.join(_shown(v) for v in span.prefix)})" if span.prefix else ""
    if span.lower is not None:
        text += f" {'>=' if span.lower.inclusive else '>'} {_shown(span.lower.value)}"
    if span.upper is not None:
        text += f" {'<=' if span.upper.inclusive else '<'} {_shown(span.upper.value)}"
    return text.strip()


def _field(scan: TableScan, wanted: FieldWanted) -> str:
    return ".".join((scan.table.by_id[wanted.column_id].name, *wanted.path))


def _shown(value: Value) -> str:
    match value:
        case None:
            return "NULL"
        case str():
            return "'" + (value if len(value) <= 40 else value[:37] + "...").replace("'", "''") + "'"
        case bytes():
            return "0x" + value[:20].hex()
        case Date():
            return value.to_date().isoformat()
        case Timestamp():
            return str(value.to_datetime())
        case _:
            return str(value)


def as_text(plan: dict[str, Any]) -> list[str]:
    """Return a plan as lines for people."""
    lines = [f"{plan['execution']}: {plan['reason']}"]
    for part in plan["parts"]:
        if "where" in part:
            inputs = f", reads {', '.join(f'part {i}' for i in part['inputs'])}" if part["inputs"] else ""
            who = "f1server" if part["where"] == "f1server" else f"{part['workers']} slave(s)"
            lines.append(f"part {part['id']} on {who}{inputs}")
        for operator in part["operators"]:
            lines += _operator_lines(operator)
        lines += [f"  {_measured(one)}" for one in part.get("measured", ())]
    if "measured" in plan:
        lines.append(f"{plan['measured']['rows']:,} rows in {plan['measured']['ms']:,} ms")
    return lines


def _measured(one: Mapping[str, Any]) -> str:
    """Return what a part cost at one worker as a line."""
    read = sum(r["rows"] for r in one["read"])
    text = f"at {one['worker']}: {read:,} rows in, {one['rows']:,} out"
    sent = [f"{s['bytes']:,} bytes to {s['to']}" for s in one["sent"]]
    if sent:
        text += ", " + ", ".join(sent)
    if any(r["spooled"] for r in one["read"]):
        text += ", spilled to disk"
    return f"{text}; scan {one['scan_ms']} ms, input {one['input_ms']} ms, evaluate {one['evaluate_ms']} ms"


def _operator_lines(operator: dict[str, Any]) -> list[str]:
    name = operator["operator"]
    if name == "scan":
        alias = f" as {operator['alias']}" if "alias" in operator else ""
        access = operator["access"]
        if "index" in operator:
            access = f"index {operator['index']}{' (covering)' if operator['covering'] else ''}"
        lines = [f"  scan {operator['table']}{alias} by {access}"]
        for key in ("spans", "span_count", "columns", "lookup", "predicates", "limit", "order", "cluster_join"):
            if key in operator:
                value = operator[key]
                shown = "; ".join(value) if isinstance(value, list) and key != "columns" else value
                shown = ", ".join(shown) if isinstance(shown, list) else shown
                lines.append(f"    {key.replace('_', ' ')}: {shown}")
        return lines
    rest = {k: v for k, v in operator.items() if k not in ("operator", "engine")}
    details = " ".join(f"{k}: {v if isinstance(v, str) else json.dumps(v)}" for k, v in rest.items())
    return [f"  {name} {details}".rstrip()]
