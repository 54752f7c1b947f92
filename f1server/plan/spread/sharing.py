"""Reads a table once for all places of a part that read the same rows of it, with the columns of all of them."""

from collections.abc import Hashable, Sequence
from dataclasses import replace

from f1server.plan.parts import PartScan
from f1server.plan.prepare import PlannedScan, ScanView
from f1server.plan.scans import FieldWanted


def shared(scans: Sequence[PartScan]) -> tuple[PartScan, ...]:
    """Return the scans of a part, those of the same rows of one table made one."""
    groups: dict[Hashable, list[PartScan]] = {}
    for number, item in enumerate(scans):
        groups.setdefault(_rows_of(item, number), []).append(item)
    return tuple(group[0] if len(group) == 1 else _one(group) for group in groups.values())


def _rows_of(item: PartScan, number: int) -> Hashable:
    """Return what says which rows a scan reads; scans that are looked up or limited are each their own."""
    scan = item.planned.scan
    if item.planned.lookup is not None or item.planned.views or scan.limit is not None:
        return number
    index = scan.index.id if scan.index is not None else 0
    predicates = repr(scan.predicates)
    return (scan.table.id, index, repr(scan.spans), repr(scan.index_spans), predicates, scan.empty, item.divided)


def _one(group: Sequence[PartScan]) -> PartScan:
    first = group[0].planned
    columns: dict[FieldWanted, str] = {}
    for item in group:
        for wanted in item.planned.scan.columns:
            columns.setdefault(wanted, f"c{len(columns)}")
    views = tuple(_view(item.planned, columns) for item in group)
    covering = all(item.planned.scan.covering for item in group)
    scan = replace(first.scan, columns=tuple(columns), covering=covering)
    alias = ", ".join(item.planned.alias for item in group)
    planned = PlannedScan(f"{first.relation}_s", tuple(columns.values()), scan, alias, None, views)
    return PartScan(planned, group[0].divided)


def _view(planned: PlannedScan, columns: dict[FieldWanted, str]) -> ScanView:
    pairs = zip(planned.scan.columns, planned.names, strict=True)
    return ScanView(planned.relation, tuple((columns[wanted], name) for wanted, name in pairs))
