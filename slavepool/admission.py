"""What a slave asks of a start before it holds anything for it. Pure.

Planners make no other plans than those that pass; a message that is damaged, of another version or a stranger's is
answered INVALID_ARGUMENT here, instead of failing somewhere in the middle as if this slave had a defect.
"""

import re
from collections.abc import Sequence

from f1common.errors import Code, F1Error, InvariantViolation
from f1server.catalog.protos import registry_of
from f1server.catalog.schema import Kind, Schema
from f1server.dist.topology import check_parts
from f1server.exec.arrow_types import narrowed, sql_type
from f1server.plan.parts import Part, Spread
from f1server.plan.prepare import PlannedScan
from f1server.plan.resolve import ProtoFunction, function_name
from f1server.plan.scans import FieldWanted, KeySpan, PredicateOp, TableScan
from f1server.plan.types import SqlType, of_path
from f1server.rows.keys import table_span
from f1server.rows.layout import layout

__all__ = ["admit"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_INT64_MAX = (1 << 63) - 1
_DAMAGED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What reading an inconsistent schema or plan raises."""
_NO_VALUES = (PredicateOp.IS_NULL, PredicateOp.IS_NOT_NULL)


def admit(schema: Schema, parts: Sequence[Part]) -> None:
    """Check that parts can be run under a schema as far as that shows before. Raises F1Error INVALID_ARGUMENT."""
    try:
        check_parts(parts)
    except InvariantViolation as error:
        raise _refused(error.message) from error
    for part in parts:
        try:
            _check_part(schema, part)
        except _DAMAGED as error:
            raise _refused(f"part {part.id} does not fit its schema: {error!r}") from error


def _refused(why: str) -> F1Error:
    return F1Error(
        Code.INVALID_ARGUMENT, f"the parts of a query make no sense: {why}; is the f1server of this version?"
    )


def _require(condition: object, why: str) -> None:
    if not condition:
        raise _refused(why)


def _check_part(schema: Schema, part: Part) -> None:
    names = [*part.inputs, *(name for item in part.scans for name in _relations(item.planned))]
    _require(len(set(names)) == len(names), f"part {part.id} has two relations of one name")
    _require(all(_NAME.fullmatch(name) for name in names), f"part {part.id} has a relation without a plain name")
    for output in part.outputs:
        _require(
            output.spread is Spread.HASH or not output.keys, f"part {part.id} hashes what is not dealt out by hash"
        )
    for function in part.functions:
        _check_function(schema, function)
    for item in part.scans:
        _check_scan(schema, item.planned)
    _check_lookups([item.planned for item in part.scans])


def _check_function(schema: Schema, function: ProtoFunction) -> None:
    """A function outlives its query, so that one under a wrong name would be a trap for the next."""
    right = function_name(schema, function.action, function.message, function.path)
    _require(function.name == right, f"the function {function.name} does not do what its name says")
    registry = registry_of(schema)
    registry.message_class(function.message)
    match function.action:
        case "path":
            expected = of_path(registry, function.message, function.path)
        case "to_json":
            expected = SqlType(Kind.STRING)
        case "parse" | "check":
            expected = SqlType(Kind.PROTO, proto=function.message)
        case _:
            raise _refused(f"there is no function that does {function.action!r}")
    result = function.result
    _require((result.kind, result.lists) == (expected.kind, expected.lists), f"{function.name} gives another type")


def _relations(planned: PlannedScan) -> list[str]:
    return [planned.relation, *(view.relation for view in planned.views)]


def _check_scan(schema: Schema, planned: PlannedScan) -> None:
    scan, table = planned.scan, planned.scan.table
    what = f"the scan {planned.relation}"
    _require(scan.columns, f"{what} reads no column")
    _require(len(planned.names) == len(scan.columns), f"{what} has as many names as columns")
    _require(len(set(planned.names)) == len(planned.names), f"{what} has two columns of one name")
    for view in planned.views:
        _require(all(there in planned.names for there, _ in view.columns), f"{what} has a view of other columns")
    for wanted in scan.columns:
        narrowed(sql_type(schema, table, wanted))
    layout(schema, table)
    table_span(schema, table)
    _check_spans(f"{what} by key", scan.spans, len(table.key_column_ids))
    width = len(scan.index.parts) + len(table.key_column_ids) if scan.index is not None else 0
    _check_spans(f"{what} by index", scan.index_spans, width)
    _check_predicates(what, scan)
    ordered = scan.in_key_order in (-1, 1) and len(scan.spans) <= 1
    _require(ordered or not scan.in_key_order, f"{what} has no order")
    _require(scan.limit is None or scan.limit <= _INT64_MAX, f"{what} has a limit that is no number of rows")


def _check_spans(what: str, spans: Sequence[KeySpan], width: int) -> None:
    for span in spans:
        bounded = span.lower is not None or span.upper is not None
        _require(len(span.prefix) + bounded <= width, f"{what} asks for more key parts than there are")
        span.encoded()


def _check_predicates(what: str, scan: TableScan) -> None:
    for predicate in scan.predicates:
        column = predicate.column
        _require(not column.path and column.column_id in scan.table.by_id, f"{what} tests a column that is not there")
        count = len(predicate.values)
        fits = predicate.op is PredicateOp.IN or count == (0 if predicate.op in _NO_VALUES else 1)
        _require(fits, f"{what} compares a column with {count} values")


def _check_lookups(scans: Sequence[PlannedScan]) -> None:
    """Scans that wait for the rows of others do not wait for each other, and ask for columns that those have."""
    columns: dict[str, tuple[FieldWanted, ...]] = {}
    waiting = list(scans)
    while waiting:
        ready = [s for s in waiting if s.lookup is None or s.lookup.relation in columns]
        _require(ready, "lookups wait for each other, or for a scan that is not there")
        waiting = [s for s in waiting if s not in ready]
        for planned in ready:
            if planned.lookup is not None:
                parts, has = planned.lookup.parts, columns[planned.lookup.relation]
                _require(all(isinstance(p, tuple) or p in has for p in parts), "a lookup by a column that is not read")
                index = planned.lookup.index
                width = len(index.parts) if index is not None else len(planned.scan.table.key_column_ids)
                _require(0 < len(parts) <= width, "a lookup by as many parts as the key has, or fewer")
        for planned in ready:
            columns.update(dict.fromkeys(planned.relations, planned.scan.columns))
