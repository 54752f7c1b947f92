"""How far walks are, durably, so that whoever carries a change on does not begin again.

A walk over a table is noted as a row of the meta group, ``(0, "schema_walk", database, table id, kind)``: the
snapshot at which it runs, where the table is divided, which partitions are done, and what is left of those that are
under way, as of some seconds ago at most. What is noted as done is so for
ever, under the version of the schema it was done under: every row of the snapshot has what it needs, and every row that
was written later got it from its writer. So the rest may be done at another snapshot, as long as that is later than the
last write under an older version. Any strong read is that, once all servers have the version: an owner takes snapshots
only then, and leases end by timestamps, not by clocks.

The snapshot is pinned while the walk goes on. When nobody has refreshed the pin for long, because the change is paused
say, versions may be gone, and what is left is done at a new snapshot.
"""

from collections.abc import Callable, Mapping

import msgspec

from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from f1server.catalog.store import SYSTEM_TABLE
from f1server.schemachange.work.sums import EntrySum, Sums, added
from f1server.schemachange.work.walking import Rest
from spanstore.client import ExpectVersion, KeyRange, SpanClient, Write

__all__ = ["WalkState", "WalkStore"]

_ATTEMPTS = 20

Place = tuple[int, int]
"""The id of a table or index, and what for: 0 to fill and validate rows, 1 to remove cells, 2 to verify rows, 3 to
verify entries, 4 to delete rows and entries, 5 to add up the entries of rows, 6 to add up entries that are there."""


class WalkState(msgspec.Struct, frozen=True, array_like=True):
    """A walk for change ``job`` under ``version`` of the elements, as of ``snapshot``, which a pin keeps readable.

    ``what`` is a checksum of the work. Partition i goes from border i to i + 1 and has about ``rows[i]`` rows; in
    ``done`` its byte is 1 if it is done. ``rows_done`` and ``bytes_done`` are those of the partitions that are done,
    and ``sums`` is what was added up in them: count and total by id of the index. ``rests`` is what is left of others
    of which some is done. ``earlier``: what is done may have been done at earlier snapshots.
    """

    job: int
    version: int
    what: int
    snapshot: int
    pin: str
    borders: tuple[bytes, ...]
    rows: tuple[int, ...]
    done: bytes
    rows_done: int = 0
    bytes_done: int = 0
    sums: dict[int, tuple[int, int]] = {}
    rests: dict[int, Rest] = {}
    earlier: bool = False

    def with_done(self, number: int, rows: int, size: int, sums: Sums) -> "WalkState":
        """Return this with one more partition done, which had so many rows and bytes."""
        if self.done[number]:
            return self
        done = self.done[:number] + b"\x01" + self.done[number + 1 :]
        total = added(self.summed, sums)
        return msgspec.structs.replace(
            self,
            done=done,
            rows_done=self.rows_done + rows,
            bytes_done=self.bytes_done + size,
            sums={index_id: (found.count, found.total) for index_id, found in sorted(total.items())},
            rests={other: rest for other, rest in self.rests.items() if other != number},
        )

    def with_rests(self, rests: Mapping[int, Rest]) -> "WalkState":
        """Return this with less left of some partitions; what is known of the others, or further, stays."""
        less = {
            number: rest
            for number, rest in rests.items()
            if not self.done[number] and _is_less(rest, self.rests.get(number))
        }
        return msgspec.structs.replace(self, rests={**self.rests, **less})

    def begun_again(self, snapshot: int) -> "WalkState":
        """Return this with nothing done, at another snapshot: sums are of one snapshot, or worth nothing."""
        return msgspec.structs.replace(
            self, snapshot=snapshot, done=bytes(len(self.done)), rows_done=0, bytes_done=0, sums={}, rests={}
        )

    @property
    def worked(self) -> tuple[int, int]:
        """How many rows and bytes are done, those of partitions under way among them."""
        rests = self.rests.values()
        return self.rows_done + sum(rest.rows for rest in rests), self.bytes_done + sum(rest.size for rest in rests)

    @property
    def summed(self) -> Sums:
        """What was added up."""
        return {index_id: EntrySum(*found) for index_id, found in self.sums.items()}

    def same(self, other: "WalkState") -> bool:
        """Tell whether both are of the same walk."""
        return (self.job, self.version, self.what) == (other.job, other.version, other.what)

    @property
    def left(self) -> list[int]:
        """The partitions that are not done."""
        return [number for number, done in enumerate(self.done) if not done]


def _is_less(rest: Rest, known: Rest | None) -> bool:
    return known is None or (rest.start >= known.start and rest.end <= known.end)


class WalkStore:
    """Reads and writes these rows."""

    def __init__(self, client: SpanClient) -> None:
        self._client = client

    async def begin(self, database: str, place: Place, state: WalkState) -> WalkState:
        """Note a walk, unless one of the same change and version is noted: return that one then."""

        def edit(found: WalkState | None) -> WalkState:
            return found if found is not None and found.same(state) else state

        return await self._edit(_key(database, place), edit)

    async def change(self, database: str, place: Place, edit: Callable[[WalkState], WalkState]) -> WalkState:
        """Change what is noted of a walk. Raises ABORTED if nothing is: somebody else has ended it."""

        def checked(found: WalkState | None) -> WalkState:
            if found is None:
                raise F1Error(Code.ABORTED, "the walk was ended by another server", retryable=True)
            return edit(found)

        return await self._edit(_key(database, place), checked)

    async def clear(self, database: str) -> list[WalkState]:
        """Forget all walks of a database, and return them: they are done, or given up."""
        prefix = tuples.encode((SYSTEM_TABLE, "schema_walk", database))
        (rows,) = (await self._client.read(ranges=[KeyRange(prefix, tuples.successor(prefix))])).ranges
        if rows:
            await self._client.commit([Write(row.key, None) for row in rows])
        return [_decoded(row.value) for row in rows]

    async def _edit(self, key: bytes, edit: Callable[[WalkState | None], WalkState]) -> WalkState:
        for _ in range(_ATTEMPTS):
            found, ts = await self._read(key)
            state = edit(found)
            if state == found:
                return state
            try:
                await self._client.commit([Write(key, msgspec.msgpack.encode(state))], [ExpectVersion(key, ts)])
                return state
            except F1Error as error:
                # After an ambiguous end it is read again as well: each edit may be made twice.
                if error.code is not Code.ABORTED and not error.ambiguous:
                    raise
        raise F1Error(Code.ABORTED, "how far the walk is changes all the time; retry", retryable=True)

    async def _read(self, key: bytes) -> tuple[WalkState | None, int]:
        version = (await self._client.read([key])).versions[0]
        if version is None or version.value is None:
            return None, 0
        return _decoded(version.value), version.ts


def _decoded(data: bytes) -> WalkState:
    try:
        return msgspec.msgpack.decode(data, type=WalkState)
    except msgspec.MsgspecError as error:
        raise F1Error(Code.DATA_CORRUPTION, f"how far a walk is cannot be read: {error}") from error


def _key(database: str, place: Place) -> bytes:
    return tuples.encode((SYSTEM_TABLE, "schema_walk", database, *place))
