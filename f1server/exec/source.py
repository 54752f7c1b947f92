"""Where rows come from: what the engine asks of the transaction that it runs in."""

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Protocol

from f1server.plan.scans import Bound, Direct, FieldWanted, KeySpan, PredicateOp, SimplePredicate, TableScan
from f1server.rows.values import Row

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Bound",
    "Direct",
    "FieldWanted",
    "KeySpan",
    "PointSource",
    "PredicateOp",
    "SimplePredicate",
    "Source",
    "TableScan",
]


class Source(Protocol):
    """Gives the rows of tables, all at one timestamp, with the transaction's own writes laid over them."""

    async def scan(self, scans: Sequence[TableScan]) -> "list[AsyncIterator[pa.RecordBatch]]":
        """Start the scans of one statement; the answers are in their order.

        The columns of the batches are those of ``scan.columns``, in that order, with the types of
        :func:`f1server.exec.arrow_types.type_of` (names do not matter). Each row comes once. Spans of the primary key
        are kept exactly, and so is ``in_key_order``; rows that fail predicates, or lie outside ``index_spans``, are
        allowed. Raises F1Error.
        """
        ...


class PointSource(Source, Protocol):
    """A source that also gives rows as they are."""

    async def by_key(self, scan: TableScan) -> list[Row] | None:
        """Return the rows of a scan of keys, in their order; None if it is about something else. Raises F1Error."""
        ...

    def batch(self, scan: TableScan, rows: Sequence[Row]) -> "pa.RecordBatch":
        """Return such rows as a batch of the scan."""
        ...
