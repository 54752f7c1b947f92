"""Are the copies of a canonical schema equal, and which is wrong if they are not (schema-change paper, section 4.3)?

One transaction writes all of them (:mod:`f1server.catalog.places`), so a copy that differs from two that are equal was
damaged, or is missing since a place is new. Where no two are equal nobody can say which is right.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from f1server.catalog.codec import decode_schema
from f1server.catalog.places import PLACES, SYSTEM_TABLE, database_key, schema_key
from spanstore.client import ExpectVersion, KeyRange, SpanClient, Version, Write

__all__ = ["Copy", "OddCopy", "all_even", "mend_copies", "odd_copies", "read_copies"]


@dataclass(frozen=True, slots=True)
class Copy:
    """What is at one place: the rows of the schema and of the database, None for one that is not there.

    ``times`` are their timestamps, 0 for one that is not there.
    """

    place: int
    rows: tuple[bytes | None, bytes | None]
    times: tuple[int, int]

    @property
    def name(self) -> str:
        """The place as people call it."""
        return "the meta group's copy" if self.place == SYSTEM_TABLE else f"copy {PLACES.index(self.place) + 1}"


@dataclass(frozen=True, slots=True)
class OddCopy:
    """A copy that differs from what most are, and how; ``right`` None: no two are equal."""

    copy: Copy
    right: Copy | None
    why: str


async def read_copies(client: SpanClient, database: str, timestamp: int = 0) -> list[Copy]:
    """Read all copies at one timestamp, 0: now. Raises what the storage client raises."""
    keys = [key for place in PLACES for key in (schema_key(database, place), database_key(database, place))]
    rows = (await client.read(keys, timestamp=timestamp)).versions
    return [_copy(place, rows[2 * i], rows[2 * i + 1]) for i, place in enumerate(PLACES)]


def _copy(place: int, schema: Version | None, database: Version | None) -> Copy:
    return Copy(place, (_value(schema), _value(database)), (_ts(schema), _ts(database)))


def _value(version: Version | None) -> bytes | None:
    return None if version is None else version.value


def _ts(version: Version | None) -> int:
    return version.ts if version is not None and version.value is not None else 0


def odd_copies(copies: Sequence[Copy]) -> list[OddCopy]:
    """Return those that differ from what at least two are; all of them if no two are equal, or these cannot be read."""
    rows, count = Counter(copy.rows for copy in copies).most_common(1)[0]
    right = next(copy for copy in copies if copy.rows == rows)
    if count < 2 or _unreadable(right):
        return [OddCopy(copy, None, _unreadable(copy) or "no two copies are equal") for copy in copies]
    return [OddCopy(copy, right, _why(copy, right)) for copy in copies if copy.rows != rows]


def _why(copy: Copy, right: Copy) -> str:
    if copy.rows[0] is None or copy.rows[1] is None:
        return "it is missing, wholly or in part"
    if (why := _unreadable(copy)) or right.rows[0] is None:
        return why or "the others are gone: the database was dropped"
    here, there = (decode_schema(row, 0).version for row in (copy.rows[0], right.rows[0]))
    return f"it has version {here}, the others {there}" if here != there else "it differs from the others"


def _unreadable(copy: Copy) -> str:
    if copy.rows[0] is None:
        return ""
    try:
        decode_schema(copy.rows[0], 0)
    except F1Error as error:
        return f"it cannot be read: {error.message}"
    return ""


async def all_even(client: SpanClient, timestamp: int) -> bool:
    """Tell whether at a timestamp the schemas of all databases were the same at all places. Raises as reading does."""
    prefixes = [(place, tuples.encode((place, what))) for place in PLACES for what in ("schema", "database")]
    spans = [KeyRange(prefix, tuples.successor(prefix)) for _, prefix in prefixes]
    found: dict[int, dict[bytes, bytes]] = {place: {} for place in PLACES}
    for (place, _), rows in zip(prefixes, (await client.read([], spans, timestamp=timestamp)).ranges, strict=True):
        found[place] |= {tuples.encode(tuples.decode(row.key)[1:]): row.value for row in rows}
    return all(copies == found[SYSTEM_TABLE] for copies in found.values())


async def mend_copies(client: SpanClient, database: str) -> bool:
    """Write copies that differ as the others are, unless one of them changes meanwhile. False: they still differ."""
    copies = await read_copies(client, database)
    odd = odd_copies(copies)
    if any(one.right is None for one in odd):
        return False
    writes = [
        Write(key, row)
        for one in odd
        if one.right is not None
        for key, row in zip(_keys(database, one.copy.place), one.right.rows, strict=True)
    ]
    expected = [
        ExpectVersion(key, ts)
        for copy in copies
        for key, ts in zip(_keys(database, copy.place), copy.times, strict=True)
    ]
    try:
        if writes:
            await client.commit(writes, expected)
    except F1Error as error:
        if error.code is not Code.ABORTED and not error.ambiguous:
            raise
        return not odd_copies(await read_copies(client, database))
    return True


def _keys(database: str, place: int) -> tuple[bytes, bytes]:
    return schema_key(database, place), database_key(database, place)
