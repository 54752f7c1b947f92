"""Dealing out the rows of a part to the workers that consume them.

DuckDB itself computes the hash that chooses a worker, in the part's own query, so that the exchange and DuckDB's joins
and groups agree on which values are equal: -0.0 and 0.0, all NaNs, NULL as a group of its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from f1server.dist.topology import destinations
from f1server.plan.parts import Output, Part, Spread

__all__ = ["Dealer", "Share", "cut", "plain_batch", "plain_schema"]

_MARK = "f1_to"


@dataclass(frozen=True, slots=True)
class Share:
    """Rows of an output for one worker."""

    output: Output
    destination: int
    batch: Any


class Dealer:
    """Deals out what one worker's run of a part gives."""

    def __init__(self, part: Part, parts: Sequence[Part], workers: int, position: int) -> None:
        by_id = {p.id: p for p in parts}
        self._part = part
        self.routes: tuple[tuple[Output, tuple[int, ...]], ...] = tuple(
            (output, destinations(output, by_id[output.consumer], workers, position)) for output in part.outputs
        )
        """Each output, and whom its rows go to."""
        self._hashed = {
            number: keys
            for number, (output, to) in enumerate(self.routes)
            if output.spread is Spread.HASH and len(to) > 1 and (keys := ", ".join(output.keys))
        }

    @property
    def sql(self) -> str:
        """The part's query, with a column behind its own for each output that is dealt out by hash."""
        if not self._hashed:
            return self._part.sql
        marks = [
            f"CAST(hash({keys}) % {len(self.routes[number][1])} AS INTEGER) AS {_MARK}{number}"
            for number, keys in self._hashed.items()
        ]
        return f"SELECT *, {', '.join(marks)} FROM ({self._part.sql}) AS f1_part"

    def schema(self, found: Any) -> Any:
        """Return the schema of what is given, from that of the query's result."""
        return plain_schema(pa.schema(list(found)[: len(found) - len(self._hashed)]))

    def deal(self, batch: Any) -> Iterator[Share]:
        """Return who gets which rows of a batch of the query's result; nobody gets none."""
        own = batch.num_columns - len(self._hashed)
        rows = plain_batch(batch.select(range(own)))
        marks: Mapping[int, Any] = {n: batch.column(own + i) for i, n in enumerate(self._hashed)}
        for number, (output, to) in enumerate(self.routes):
            if number in marks:
                for destination, share in zip(to, _by_number(rows, marks[number], len(to)), strict=True):
                    if share.num_rows:
                        yield Share(output, destination, share)
            elif rows.num_rows:
                # Without a hash there is one destination, or each gets all.
                for destination in to:
                    yield Share(output, destination, rows)


def _by_number(rows: Any, numbers: Any, count: int) -> list[Any]:
    """Return the rows for each number below ``count``, each share in memory of its own: most are soon given away."""
    found = numbers.to_numpy(zero_copy_only=False)
    borders = np.concatenate(([0], np.cumsum(np.bincount(found, minlength=count))))
    order = pa.array(np.argsort(found, kind="stable"))
    return [rows.take(order.slice(low, high - low)) for low, high in pairwise(borders.tolist())]


def cut(batch: Any, max_rows: int, max_bytes: int) -> Iterator[Any]:
    """Cut a batch into pieces of at most ``max_rows`` rows and about ``max_bytes`` bytes, one row at least."""
    if batch.nbytes > max_bytes:
        # Long values are spread unevenly: halving finds the pieces that are too large.
        max_rows = min(max_rows, max(1, batch.num_rows // 2))
    if batch.num_rows <= max_rows:
        yield batch
        return
    for start in range(0, batch.num_rows, max_rows):
        piece = batch.slice(start, max_rows)
        if piece.num_rows > 1 and piece.nbytes > max_bytes:
            yield from cut(piece, max_rows, max_bytes)
        else:
            yield piece


def plain_schema(schema: Any) -> Any:
    """Return a schema whose record batches stand alone: without dictionaries, which travel apart."""
    return pa.schema([f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in schema])


def plain_batch(batch: Any) -> Any:
    """Give a batch the schema of :func:`plain_schema`."""
    schema = plain_schema(batch.schema)
    if schema.equals(batch.schema):
        return batch
    columns = [c if c.type == f.type else c.cast(f.type) for c, f in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
