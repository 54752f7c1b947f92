"""How many rows: rough numbers that decide what is moved, never what the answer is."""

from collections.abc import Iterable

from sqlglot import exp

from f1server.catalog.schema import Table
from f1server.plan.scans import KeySpan, PredicateOp, TableScan
from f1server.plan.statistics import Statistics

UNKNOWN_ROWS = 1_000_000.0
"""What a table without statistics is taken for: large."""

_SHARE = {
    PredicateOp.EQ: 0.05,
    PredicateOp.IN: 0.1,
    PredicateOp.NE: 0.9,
    PredicateOp.IS_NULL: 0.1,
    PredicateOp.IS_NOT_NULL: 0.9,
}
_RANGE_SHARE = 0.35
_PREFIX_SHARE = 0.001
_INDEX_SHARE = 0.01


def table_rows(statistics: Statistics, table: Table) -> float:
    """Return the rows of a table."""
    known = statistics.table(table)
    return float(known.rows) if known is not None else UNKNOWN_ROWS


def examined_rows(statistics: Statistics, scan: TableScan) -> float:
    """Return how many rows a scan looks at."""
    if scan.empty:
        return 0.0
    rows = table_rows(statistics, scan.table)
    if scan.is_point:
        return min(rows, float(len(scan.spans)))
    spans = scan.index_spans if scan.index is not None else scan.spans
    found = min(rows, sum(_within(scan, span, rows) for span in spans)) if spans else rows
    if scan.limit is not None and not scan.predicates:
        found = min(found, float(scan.limit))
    return max(1.0, found)


def _within(scan: TableScan, span: KeySpan, rows: float) -> float:
    """Return about how many of ``rows`` lie in a span: never more than whole numbers between its bounds allow for."""
    share = (_INDEX_SHARE if scan.index is not None else _PREFIX_SHARE) * rows
    found = share if span.prefix else _RANGE_SHARE * rows
    if span.lower is None or span.upper is None:
        return found
    low, high = span.lower.value, span.upper.value
    if type(low) is not int or type(high) is not int:
        return found
    values = max(high - low + 1.0, 0.0)
    whole_key = scan.index is None and len(span.prefix) + 1 == len(scan.table.key_column_ids)
    return min(found, values if whole_key else values * share)


def scanned_rows(statistics: Statistics, scan: TableScan) -> float:
    """Return how many rows a scan gives."""
    found = examined_rows(statistics, scan)
    for predicate in scan.predicates:
        found *= _SHARE.get(predicate.op, _RANGE_SHARE)
    found = max(found, 1.0) if not scan.empty else 0.0
    return found if scan.limit is None else min(found, float(scan.limit))


def filtered(rows: float, conjuncts: Iterable[exp.Expr]) -> float:
    """Return the rows that pass conditions that storage does not test."""
    for conjunct in list(conjuncts)[:3]:
        rows *= 0.1 if isinstance(conjunct.unnest(), exp.EQ | exp.Like) else 0.5
    return max(rows, 1.0)
