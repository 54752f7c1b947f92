"""How scans are divided among workers: which raw keys each of them reads (F1 section 8.2).

The borders lie between root rows, so that a root row, all its descendants, their local indexes and its change history
are in one share; and they are the same for all tables below one root, so that what is joined along a hierarchy is
already at one worker. Entries of a global index lie apart from the rows and are divided for themselves.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from f1common.encoding import tuple as tuples
from f1common.errors import F1Error
from f1server.catalog.schema import Index, Schema, Table
from f1server.history.table import is_history_table, root_of_history
from f1server.plan.parts import PartScan
from f1server.plan.statistics import TableStats
from f1server.rows.keys import index_prefix, table_span
from f1server.rows.layout import layout
from spanstore.client import Sketch

__all__ = ["Division", "Figures", "Keyspace", "keyspace_of"]

Span = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Keyspace:
    """What is divided as one: the hierarchy of a root table, or (``index``) the entries of a global index."""

    span: Span
    root: Table
    index: int = 0

    @property
    def id(self) -> tuple[int, int]:
        """What tells it from others, in all databases of the cluster."""
        return self.root.id, self.index


def keyspace_of(schema: Schema, table: Table, index: Index | None = None) -> Keyspace:
    """Return where a scan of ``table``, by ``index`` if one is given, reads first."""
    if is_history_table(table):
        table = root_of_history(schema, table)
    root = layout(schema, table).root
    if index is not None and not index.local:
        prefix = index_prefix(schema, table, index, ())
        return Keyspace((prefix, tuples.successor(prefix)), root, index.id)
    return Keyspace(table_span(schema, root), root)


@dataclass(frozen=True)
class Figures:
    """What a sketch of a keyspace says; ``table_ids`` names the tables that it tells apart, in its order."""

    keyspace: Keyspace
    table_ids: tuple[int, ...]
    sketch: Sketch

    @cached_property
    def tables(self) -> Mapping[int, TableStats]:
        """What each table has, by its id."""
        return {
            table_id: TableStats(count.rows, count.bytes / count.rows if count.rows else 0.0)
            for table_id, count in zip(self.table_ids, self.sketch.totals, strict=False)
        }

    @cached_property
    def borders(self) -> tuple[tuple[bytes, ...], tuple[int, ...], int]:
        """Return the keys at which the keyspace may be cut, ascending, how much lies before each, and the whole.

        Rows count, of whichever table; in an index, or where there is no row of a known table, all keys do.
        """
        totals = self.sketch.totals
        counted = range(len(totals) - 1) if any(count.rows for count in totals[:-1]) else range(len(totals))
        keys: list[bytes] = []
        before: list[int] = []
        passed = 0
        for segment in self.sketch.segments:
            border = self._border(segment.key)
            if border is not None and (not keys or border > keys[-1]):
                keys.append(border)
                before.append(passed)
            passed += sum(count.rows for table, count in segment.counts.items() if table in counted)
        return tuple(keys), tuple(before), passed

    def _border(self, key: bytes) -> bytes | None:
        """Return where the directory of ``key`` begins, or, in an index, the key itself; None for what is no row's."""
        if self.keyspace.index:
            return key
        try:
            _, end = tuples.decode_prefix(key, 1 + len(self.keyspace.root.key_column_ids))
        except F1Error:
            return None
        return key[:end]

    def cut(self, workers: int) -> list[Span]:
        """Return as many ranges, about equal, that cover the keyspace in order without gap or overlap.

        Where there is too little to divide some are empty: they end where they begin.
        """
        keys, before, whole = self.borders
        start, end = self.keyspace.span
        cuts = [start]
        for worker in range(1, workers):
            cuts.append(max(cuts[-1], self._nearest(keys, before, whole * worker / workers)))
        cuts.append(end)
        return list(pairwise(cuts))

    def _nearest(self, keys: tuple[bytes, ...], before: tuple[int, ...], wanted: float) -> bytes:
        place = bisect_left(before, wanted)
        around = [i for i in (place - 1, place) if 0 <= i < len(keys)]
        if not around:
            return self.keyspace.span[0]
        return keys[min(around, key=lambda i: abs(before[i] - wanted))]


class Division:
    """How the scans of one query are divided: one for the whole query, so that equal keys are at equal workers."""

    def __init__(self, schema: Schema, known: Iterable[Figures]) -> None:
        """Take what is known; a keyspace of which nothing is known goes to the first worker as a whole."""
        self._schema = schema
        self._known = {figures.keyspace.id: figures for figures in known}
        self._cuts: dict[tuple[tuple[int, int], int], list[Span]] = {}

    def ranges(self, table: Table, index: Index | None, workers: int) -> list[Span]:
        """Return the range of raw keys that each of ``workers`` reads of ``table``, or of the entries of ``index``."""
        keyspace = keyspace_of(self._schema, table, index)
        wanted = (keyspace.id, workers)
        if wanted not in self._cuts:
            figures = self._known.get(keyspace.id)
            start, end = keyspace.span
            rest = [(end, end)] * (workers - 1)
            self._cuts[wanted] = figures.cut(workers) if figures is not None else [(start, end), *rest]
        return self._cuts[wanted]

    def clips(self, scan: PartScan, workers: int) -> list[Span]:
        """Return the ``clip`` of each worker for a divided scan: what the coordinator asks for."""
        wanted = scan.planned.scan
        return self.ranges(wanted.table, wanted.index, workers)
