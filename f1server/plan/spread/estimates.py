"""How many rows: rough numbers that decide what is moved, never what the answer is."""

from collections.abc import Iterable

from sqlglot import exp

from f1server.catalog.schema import Table
from f1server.plan.scans import PredicateOp, TableScan
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
    if not spans:
        return rows
    share = _INDEX_SHARE if scan.index is not None else _PREFIX_SHARE
    found = sum(share * rows if span.prefix else _RANGE_SHARE * rows for span in spans)
    return max(1.0, min(rows, found))


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
