"""A transaction's own writes laid over what it reads: statements see what earlier ones did."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from f1server.catalog.schema import Schema, Table
from f1server.rows.images import Image
from f1server.rows.planner import WritePlanner
from f1server.rows.values import Row
from f1server.rows.writes import LogicalWrite
from spanstore.client import KeyRange, ReadResult, Version

Fetch = Callable[[Sequence[bytes], Sequence[KeyRange]], Awaitable[ReadResult]]
"""Reads rows at the transaction's timestamp, or under its locks."""


class Overlay:
    """The rows that a transaction has written, as it sees them now. Built anew for each statement."""

    def __init__(self, images: Mapping[bytes, Image]) -> None:
        self._images = images
        self._by_table: dict[int, list[Image]] = {}
        for image in images.values():
            self._by_table.setdefault(image.table.id, []).append(image)

    def touches(self, table: Table) -> bool:
        """Tell whether any row of ``table`` was written."""
        return table.id in self._by_table

    def hides(self, key: bytes) -> bool:
        """Tell whether the stored row with this key must not be shown: the transaction wrote it."""
        return key in self._images

    def rows(self, table: Table) -> list[tuple[bytes, Row]]:
        """Return the rows of ``table`` that were written and are there now, by key."""
        found = [(i.key, i.now) for i in self._by_table.get(table.id, ()) if i.now is not None]
        return sorted(found, key=lambda item: item[0])


NOTHING = Overlay({})


async def build(schema: Schema, filled: Sequence[LogicalWrite], fetch: Fetch) -> Overlay:
    """Apply the writes to the rows that they meet.

    Raises what the writes do wrong already (ALREADY_EXISTS, NOT_FOUND, INVALID_ARGUMENT), and what ``fetch`` raises.
    """
    if not filled:
        return NOTHING
    planner = WritePlanner(schema, filled)
    first = planner.first_needs
    keys = sorted(first.rows)
    spans = sorted(first.ranges)
    result = await fetch(keys, [KeyRange(start, end) for start, end in spans])
    ranges = {
        span: [(row.key, Version(row.ts, row.value)) for row in rows]
        for span, rows in zip(spans, result.ranges, strict=True)
    }
    planner.give(dict(zip(keys, result.versions, strict=True)), ranges)
    return Overlay({image.key: image for image in planner.images().all() if image.changed})
