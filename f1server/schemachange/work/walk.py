"""The walk over a part of a table's rows, as of a snapshot, and what it writes (schema-change paper, section 4.3).

Every row that is written after the snapshot is right already, since every server has the version of the schema that is
current. So the walk has to write what follows from the rows of the snapshot, unless something newer is there.

*Index entries* follow the Thomas write rule to the letter, key by key: whoever changes a row after the snapshot writes
or deletes its entries, old and new, so an entry whose key has no version above the snapshot is still as the row was
then, and one that has is as somebody newer wanted it. The storage tier tests that under the lock of the entry's key as
it commits (:class:`spanstore.client.NoNewer`). So no row is read again, no row is locked, and a commit concerns
neighbouring keys of one group, which takes one round. Only where two rows may want one key, in unique indexes, is it
not enough that the key has a newer version: such rows are looked at again under locks, one small batch at a time.
If other parts of the walk were done at an earlier snapshot, their entries are no newer than this one, and may be those
of rows that are equal in a unique index: there the keys are looked at first, and those that are taken are left alone.

*Rows* that are written anew, with their entries, are expected to have the version that was scanned; if one has not,
its batch is done again under locks.

A batch commits within the fence that the caller gives (:data:`Fence`), and between batches the walk waits for as long
as :class:`Pace` says.
"""

from bisect import bisect_left
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from operator import attrgetter

from f1common.errors import Code, F1Error
from f1server.rows.layout import layout
from f1server.rows.values import Value
from f1server.schemachange.work.changes import Changes, Fills, Stored, change_under_locks
from f1server.schemachange.work.gathering import Entry, Gathered, StoredRows
from f1server.schemachange.work.purging import purge
from f1server.schemachange.work.sums import Sums, added
from f1server.schemachange.work.validation import RowEvaluators, fills_of, validate
from f1server.schemachange.work.verification import KEYS_FOR_ONE, Verifier
from f1server.schemachange.work.walking import Ended, Fence, Pace, Rest, Tell, Walk, WalkKind, cut, divided, paced
from spanstore.client import STORED_COLUMNS, KeyRange, NoNewer, SpanClient, TableRows, Transaction, Write
from spanstore.client.values import Precondition
from spanstore.placement.range_map import RangeMap

__all__ = ["Walker"]

_SCAN_ROWS = 500
_CHUNK_ROWS = 10_000
_CHUNK_BYTES = 8 << 20
"""Rows that are taken in at once."""
_TELL_ROWS = 500
"""Rows that are read before the next word to whoever watches."""
_LOCKED_ROWS = 50
_SLICE_ROWS = 100
"""Rows that are worked on without letting others use the event loop."""
_TRIES = 4
_AGAIN_S = 0.05
_FENCED_TRIES = 20
_LOOK_S = 0.02
_LOOKS = 500
"""Whether a lease was renewed, which takes half of its life: longer than any that is sensible."""

_key_of = attrgetter("key")

_CHANGED = frozenset({Code.ABORTED, Code.ALREADY_EXISTS, Code.NOT_FOUND})


class Walker:
    """Does walks, over the storage tier. Any number of them at once, of one event loop."""

    def __init__(
        self,
        client: SpanClient,
        evaluators: Callable[[], RowEvaluators],
        fence: Fence,
        pace: Pace,
        sleep: Callable[[float], Awaitable[object]],
    ) -> None:
        """``evaluators`` is asked when rows are at hand."""
        self._client = client
        self._evaluators = evaluators
        self._fence = fence
        self._pace = pace
        self._sleep = sleep

    async def walk(self, walk: Walk, watch: Tell, ended: Ended) -> Sums:
        """Do all of it, lot by lot; what has been done already is not done a second time.

        ``ended`` is told what is left after each lot. Returns what was added up, if anything.

        Raises ALREADY_EXISTS for rows with equal values in a new unique index, FAILED_PRECONDITION for rows that break
        a new constraint, INTERNAL if a verification finds what was not filled or validated, each with rows for example;
        SNAPSHOT_TOO_OLD if the snapshot was not kept; what ``watch`` and the fence raise; and what storage raises.
        """
        rows = size = 0

        async def tell(more_rows: int, more_size: int) -> None:
            nonlocal rows, size
            rows, size = rows + more_rows, size + more_size
            await watch(more_rows, more_size)

        sums: Sums = {}
        left: Walk | None = walk
        while left is not None:
            lot_rows = await self._pace.lot_rows() * KEYS_FOR_ONE.get(walk.kind, 1)
            lot, left = divided(left, lot_rows)
            sums = added(sums, await self._lot(lot, tell))
            if left is not None:
                ended(Rest(left.start, left.end, rows, size, dict(sums)))
        return sums

    async def _lot(self, walk: Walk, watch: Tell) -> Sums:
        match walk.kind:
            case WalkKind.CHANGE:
                await self._change(walk, watch)
            case WalkKind.PURGE:
                await purge(self._client, self._pace, walk, watch)
            case _:
                return await Verifier(self._client, self._evaluators, self._pace, self._sleep).verify(walk, watch)
        return {}

    async def _change(self, walk: Walk, watch: Tell) -> None:
        if walk.work.indexes and not (walk.work.rewrites or walk.work.validates):
            await self._enter_all(walk, watch)
            return
        async for rows in self._chunks(walk):
            if walk.work.rewrites:
                await self._by_batch(rows, lambda some: self._rewrite(walk, some), watch)
            elif walk.work.indexes:
                await self._enter(walk, await self._gather(walk, rows), watch)
            if walk.work.validates:
                counted = not (walk.work.rewrites or walk.work.indexes)
                await self._by_batch(rows, lambda some: self._validate(walk, some), watch, counted=counted)

    async def _by_batch(
        self,
        rows: Sequence[Stored],
        work: Callable[[list[Stored]], Awaitable[None]],
        watch: Tell,
        *,
        counted: bool = True,
    ) -> None:
        for some in cut(rows, lambda row: row.size, self._pace.batch_rows):
            async with paced(self._pace, len(some)):
                await work(some)
            if counted:
                await watch(len(some), _size(some))
            else:
                await watch(0, 0)

    async def _validate(self, walk: Walk, rows: list[Stored]) -> None:
        await validate(self._client, self._evaluators, walk.schema, walk.work, rows, walk.snapshot)

    # ------------------------------------------------------------------ reading

    async def _chunks(self, walk: Walk) -> AsyncGenerator[list[Stored], None]:
        """Yield the rows of the snapshot, many at a time."""
        rows: list[Stored] = []
        size = 0
        async with aclosing(self._rows(walk)) as found:
            async for some in found:
                rows += some.rows
                size += sum(row.size for row in some.rows)
                if len(rows) >= _CHUNK_ROWS or size >= _CHUNK_BYTES:
                    yield rows
                    rows, size = [], 0
        if rows:
            yield rows

    async def _rows(self, walk: Walk) -> AsyncGenerator[StoredRows, None]:
        """Yield the rows of the snapshot, some at a time, letting others use the event loop in between."""
        where = layout(walk.schema, walk.work.table)
        scan = self._client.scan(
            [KeyRange(walk.start, walk.end)],
            STORED_COLUMNS,
            timestamp=walk.snapshot,
            table=TableRows(where.width, where.id_position, where.table.id, where.ids_above),
            batch_rows=_SCAN_ROWS,
        )
        async with aclosing(aiter(scan)) as batches:
            async for batch in batches:
                for start in range(0, batch.num_rows, _SLICE_ROWS):
                    await self._sleep(0)
                    keys, times, values = (c.to_pylist() for c in batch.slice(start, _SLICE_ROWS).columns)
                    yield StoredRows(walk.schema, walk.work.table, keys, times, values)
                await self._pace.ahead(batch.num_rows)

    # ------------------------------------------------------------------ entries alone

    async def _enter_all(self, walk: Walk, watch: Tell) -> None:
        """Write the entries of all rows of the snapshot."""
        gathered, told = Gathered(walk), 0
        async with aclosing(self._rows(walk)) as rows:
            async for some in rows:
                gathered.add_all(some)
                if len(gathered.sizes) >= told + _TELL_ROWS:
                    told = len(gathered.sizes)
                    await watch(0, 0)
                if gathered.full:
                    await self._enter(walk, gathered, watch)
                    gathered, told = Gathered(walk), 0
        if gathered.sizes:
            await self._enter(walk, gathered, watch)

    async def _gather(self, walk: Walk, rows: Sequence[Stored]) -> Gathered:
        gathered = Gathered(walk)
        for position, row in enumerate(rows):
            if position % _SLICE_ROWS == 0:
                await self._sleep(0)
            gathered.add(row)
        return gathered

    async def _enter(self, walk: Walk, gathered: Gathered, watch: Tell) -> None:
        """Write entries, in the order of their keys."""
        plain, contended = gathered.plain, gathered.contended
        count = _Counted(gathered.sizes, gathered.count, watch)
        # Of two rows of the snapshot that want one key, one may be gone by now.
        disputed = [entry.row for found in contended.values() if len(found) > 1 for entry in found]
        ranges = await self._client.range_map()
        for some in self._batches(ranges, sorted(plain, key=_key_of)):
            async with paced(self._pace, len(some)):
                disputed += await self._enter_plain(walk, some)
            await count.add(len(some))
        alone = sorted((found[0] for found in contended.values() if len(found) == 1), key=_key_of)
        for some in self._batches(ranges, alone):
            async with paced(self._pace, len(some)):
                disputed += await self._enter_unique(walk, some)
            await count.add(len(some))
        await self._dispute(walk, disputed, watch)
        await count.end()

    def _batches(self, ranges: RangeMap, entries: Sequence[Entry]) -> Iterator[list[Entry]]:
        """Cut entries in the order of their keys into batches, each of one group as far as the range map is right."""
        if not entries:
            return
        first = 0
        for _, end, _ in ranges.pieces(entries[0].key, entries[-1].key + b"\x00"):
            last = bisect_left(entries, end, first, key=_key_of)
            of_group = entries[first:last]
            yield from cut(of_group, lambda entry: len(entry.key) + len(entry.value), self._pace.batch_rows)
            first = last

    async def _enter_plain(self, walk: Walk, entries: Sequence[Entry]) -> list[bytes]:
        """Write entries that no other row may want; return the keys of rows that only locks can decide about."""
        try:
            await self._commit(walk, _writes(entries), [NoNewer(walk.snapshot, leave_out=True)])
        except F1Error as error:
            if not _is_unknown(error):
                raise
            return [entry.row for entry in entries]
        return []

    async def _enter_unique(self, walk: Walk, entries: Sequence[Entry]) -> list[bytes]:
        """Write entries of unique indexes; return the keys of the rows that only locks can decide about."""
        left, since_ts = list(entries), walk.snapshot
        disputed: list[bytes] = []
        if walk.earlier:
            # An entry of a part that was done at an earlier snapshot does not show by its age what it is.
            left, disputed, since_ts = await self._open(walk, left)
        for _ in range(_TRIES):
            try:
                if left:
                    await self._commit(walk, _writes(left), [NoNewer(since_ts)])
                return disputed
            except F1Error as error:
                if _is_unknown(error):
                    break
                if not _has_changed(error):
                    raise
            left, more, since_ts = await self._open(walk, left)
            disputed += more
        return disputed + [entry.row for entry in left]

    async def _open(self, walk: Walk, entries: Sequence[Entry]) -> tuple[list[Entry], list[bytes], int]:
        """Look at the keys of entries: which are still to be written, for which rows locks have to decide, and when
        that was so. Those of the rest are there."""
        found = await self._client.read([entry.key for entry in entries])
        left: list[Entry] = []
        disputed: list[bytes] = []
        for entry, version in zip(entries, found.versions, strict=True):
            value = None if version is None else version.value
            if value is not None:
                disputed += [] if _is_own(entry, value) else [entry.row]
            elif version is not None and version.ts > walk.snapshot:
                disputed.append(entry.row)
            else:
                left.append(entry)
        return left, disputed, found.timestamp

    async def _dispute(self, walk: Walk, rows: Sequence[bytes], watch: Tell) -> None:
        """Decide under locks about the rows that have some keys."""
        unique = list(dict.fromkeys(rows))
        for first in range(0, len(unique), _LOCKED_ROWS):
            some = unique[first : first + _LOCKED_ROWS]
            async with paced(self._pace, len(some)):
                await self._under_locks(walk, some)
            await watch(0, 0)

    # ------------------------------------------------------------------ rows and their entries

    async def _rewrite(self, walk: Walk, rows: list[Stored]) -> None:
        """Write rows anew, with the entries that change by that."""
        fills = fills_of(self._evaluators, walk.schema, walk.work, rows)
        for some in cut(rows, lambda row: len(row.key) + len(row.value) + _size_of(fills[row.key])):
            await self._rewrite_filled(walk, some, fills)

    async def _rewrite_filled(self, walk: Walk, rows: list[Stored], fills: Fills) -> None:
        changes = Changes(walk.schema, walk.work, walk.snapshot)
        try:
            for row in rows:
                changes.add(row, fills[row.key])
            expected = changes.preconditions()
            writes = changes.optimistic_writes()
            if expected is not None:
                if writes:
                    await self._commit(walk, writes, expected)
                return
        except F1Error as error:
            if not _has_changed(error):
                raise
        for first in range(0, len(rows), _LOCKED_ROWS):
            some = [row.key for row in rows[first : first + _LOCKED_ROWS]]
            await self._under_locks(walk, some, fills)

    async def _under_locks(self, walk: Walk, rows: Sequence[bytes], fills: Fills | None = None) -> None:
        wanted = {key: (fills or {}).get(key, {}) for key in rows}

        async def change(tx: Transaction) -> None:
            await change_under_locks(tx, walk.schema, walk.work, wanted, walk.snapshot)

        async def commit(deadline: Callable[[], int]) -> None:
            await self._client.run(change, deadline=deadline)

        await self._fenced(commit)

    async def _commit(self, walk: Walk, writes: Sequence[Write], expected: Sequence[Precondition]) -> None:
        """Commit, again if it was in somebody's way. Raises what a precondition says that does not hold."""
        for left in range(_TRIES - 1, -1, -1):
            try:
                await self._fenced(lambda deadline: self._client.commit(writes, expected, deadline=deadline()))
                return
            except F1Error as error:
                if not left or error.ambiguous or _has_changed(error) or not error.retryable:
                    raise
            await self._sleep(_AGAIN_S)

    async def _fenced(self, commit: Callable[[Callable[[], int]], Awaitable[object]]) -> None:
        """Commit under the lease on the schema, again when it has been renewed if it ends before the commit does.

        With clocks that are far apart, a lease is of use for a moment after each renewal only.
        """
        for left in range(_FENCED_TRIES - 1, -1, -1):
            async with self._fence() as deadline:
                told = deadline()
                try:
                    await commit(deadline)
                    return
                except F1Error as error:
                    if not left or error.code is not Code.FENCED:
                        raise
            await self._renewed(told)

    async def _renewed(self, told: int) -> None:
        """Wait until the lease ends later than at ``told``, though not for ever: the fence will say what is wrong."""
        for _ in range(_LOOKS):
            await self._sleep(_LOOK_S)
            async with self._fence() as deadline:
                if deadline() > told:
                    return


def _size_of(fills: Mapping[int, Value]) -> int:
    """Return about how many bytes values take: of texts, bytes and messages, which may be large."""
    return sum(len(value) for value in fills.values() if isinstance(value, str | bytes))


class _Counted:
    """Tells of rows as their entries are written."""

    def __init__(self, rows: Sequence[int], entries: int, watch: Tell) -> None:
        """``rows``: the size of each."""
        self._rows = rows
        self._entries = entries
        self._watch = watch
        self._done = 0
        self._told = 0

    async def add(self, entries: int) -> None:
        """So many more entries are written."""
        self._done += entries
        await self._tell(len(self._rows) * self._done // self._entries)

    async def end(self) -> None:
        """All are."""
        await self._tell(len(self._rows))

    async def _tell(self, rows: int) -> None:
        some = self._rows[self._told : rows]
        self._told = rows
        await self._watch(len(some), sum(some))


def _has_changed(error: F1Error) -> bool:
    """Tell whether a commit was refused because something is not what it was at the snapshot; nothing was written."""
    return error.code in _CHANGED and not error.ambiguous and bool(error.details)


def _is_unknown(error: F1Error) -> bool:
    """Tell whether a spanserver of an older version did not know what was asked, in the middle of an upgrade."""
    return error.code is Code.INVALID_ARGUMENT and "precondition" in error.message


def _is_own(entry: Entry, value: bytes) -> bool:
    """Tell whether an entry that is there now is that of the row which wants it: then somebody newer has seen to it."""
    owner = entry.where.split(entry.key, value)[1]
    return entry.where.rows.row_key(owner) == entry.row


def _writes(entries: Sequence[Entry]) -> list[Write]:
    return [Write(entry.key, entry.value) for entry in entries]


def _size(rows: Sequence[Stored]) -> int:
    return sum(row.size for row in rows)
