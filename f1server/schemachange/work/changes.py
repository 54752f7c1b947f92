"""What a batch of rows comes to: the rows that are written anew, and the entries in the indexes that are built.

The same for rows that were read under locks and for rows of a snapshot. In the first case what is found may be written;
in the second it may if the rows are still what they were (:meth:`Changes.preconditions`).
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from f1common.encoding.row import Cell, decode_row, patch_row_with_placeholders
from f1common.errors import Code, F1Error
from f1server.catalog.schema import Schema, Table
from f1server.rows.images import describe_key
from f1server.rows.keys import IndexLayout, row_key, split_row_key
from f1server.rows.locks import locks_carried_over, raised
from f1server.rows.mirrors import MirrorLayout
from f1server.rows.rowcodec import row_of
from f1server.rows.values import Row, Value, shown_all
from f1server.schemachange.work.tablework import TableWork
from spanstore.client import ExpectAbsent, ExpectVersion, Transaction, Version, Write
from spanstore.client.values import Precondition

__all__ = ["Changes", "Fills", "Stored", "change_under_locks", "entry_keys", "stored_row"]

Fills = Mapping[bytes, Mapping[int, Value]]
"""For the key of each row: what the columns that are filled are to have, where they have nothing."""

ReadLocked = Callable[[list[bytes]], Awaitable[Sequence[Version | None]]]


@dataclass(frozen=True, slots=True)
class Stored:
    """A row as it is stored, committed at ``ts``."""

    key: bytes
    primary: tuple[Value, ...]
    value: bytes
    ts: int
    cells: Mapping[int, Cell]

    @property
    def size(self) -> int:
        """Bytes of key and value."""
        return len(self.key) + len(self.value)


def stored_row(schema: Schema, table: Table, key: bytes, value: bytes, ts: int) -> Stored | None:
    """Return a row; None for the key of something else. Raises DATA_CORRUPTION."""
    split = split_row_key(schema, key)
    if split is None or split[0].id != table.id:
        return None
    return Stored(key, split[1], value, ts, decode_row(value))


def entry_keys(where: IndexLayout, row: Row, primary: tuple[Value, ...]) -> dict[bytes, bool]:
    """Encode the keys of the entries that a row is to get, as :meth:`IndexLayout.keys` does.

    What that raises names the row here: KEY_TOO_LONG, DATA_CORRUPTION and others. Who adds an index has not sent it.
    """
    try:
        return where.keys(row, primary)
    except F1Error as error:
        key = describe_key(where.table, primary)
        text = f"{error.message}; this is about the row with {key}. Nothing was changed: mend such rows, then try again"
        raise F1Error(error.code, text, details={**error.details, "table": where.table.name, "key": key}) from error


class Changes:
    """What some rows are changed to, and the entries that they put and leave."""

    def __init__(self, schema: Schema, work: TableWork, snapshot: int) -> None:
        """``snapshot``: rows that are newer have their entries already."""
        self._work = work
        self._snapshot = snapshot
        self._rows: list[Write] = []
        self._seen: dict[bytes, int] = {}
        self.entries = Entries(schema, work.table)

    def add(self, stored: Stored, fills: Mapping[int, Value]) -> None:
        """Take in a row. Raises ALREADY_EXISTS if another one has the same entry of a unique index."""
        work = self._work
        missing = {i: v for i, v in fills.items() if i not in stored.cells and v is not None}
        before = row_of(work.table, stored.primary, stored.cells)
        if work.rewrites and (write := _rewritten(work, stored, missing)) is not None:
            self._rows.append(write)
            self._seen[stored.key] = stored.ts
        if missing:
            for where in work.touched:
                self.entries.leave(where, before, {**before, **missing}, stored.primary)
        if missing or stored.ts <= self._snapshot:
            for where in work.indexes:
                self.entries.put(where, {**before, **missing}, stored)
                self._seen[stored.key] = stored.ts

    def preconditions(self) -> list[Precondition] | None:
        """Return what must hold if the rows were not read under locks; None: only locks can tell."""
        if self.entries.leaves_contended:
            return None
        rows: list[Precondition] = [ExpectVersion(key, ts) for key, ts in self._seen.items()]
        return rows + [ExpectAbsent(key) for key in self.entries.contended_puts]

    def optimistic_writes(self) -> list[Write]:
        """Return the writes of a commit with :meth:`preconditions`."""
        return self._rows + self.entries.settled({})

    async def locked_writes(self, read: ReadLocked) -> list[Write]:
        """Return the writes of a transaction that has the rows locked. Raises ALREADY_EXISTS as :class:`Entries`."""
        return self._rows + await self.entries.under_locks(read)


async def change_under_locks(tx: Transaction, schema: Schema, work: TableWork, fills: Fills, snapshot: int) -> None:
    """Bring rows, and their entries in the indexes that are built, to where the schema wants them."""
    keys = list(fills)
    result = await tx.read(keys, exclusive=work.rewrites)
    changes = Changes(schema, work, snapshot)
    for key, version in zip(keys, result.versions, strict=True):
        if version is None or version.value is None:
            continue
        stored = stored_row(schema, work.table, key, version.value, version.ts)
        if stored is not None:
            changes.add(stored, fills[key])

    async def read(wanted: list[bytes]) -> Sequence[Version | None]:
        return (await tx.read(wanted, exclusive=True)).versions

    for write in await changes.locked_writes(read):
        tx.write(write.key, write.value, value_offsets=write.value_offsets)


def _rewritten(work: TableWork, stored: Stored, missing: Mapping[int, Value]) -> Write | None:
    """Return a row anew if cells are missing in it or to be removed from it. No lock moves by that."""
    cells = stored.cells
    dropped = {i for i in work.gone if i in cells}
    later = raised(work.table, cells, stored.ts, work.moved, work.locks)
    folded = [i for i in work.gone_locks if i in cells]
    if not (missing or dropped or later or folded):
        return None
    changes, leaving = locks_carried_over(work.table, cells, stored.ts, later)
    kept: dict[int, Cell] = {i: value for i, value in missing.items() if value is not None}
    value, offsets = patch_row_with_placeholders(stored.value, {**kept, **changes}, dropped | leaving)
    return Write(stored.key, value, value_offsets=offsets)


class Entries:
    """The entries that a batch of rows puts and leaves, in indexes that are not public yet."""

    def __init__(self, schema: Schema, table: Table) -> None:
        self._schema = schema
        self._table = table
        self._puts: dict[bytes, tuple[IndexLayout, bytes, bool, tuple[Value, ...]]] = {}
        self._left: dict[bytes, tuple[IndexLayout, bool, tuple[Value, ...]]] = {}

    def leave(self, where: IndexLayout, before: Row, after: Row, primary: tuple[Value, ...]) -> None:
        """A row's values have changed: what it had and has no more goes."""
        kept = where.keys(after, primary)
        for key, contended in where.keys(before, primary).items():
            if key not in kept:
                self._left[key] = (where, contended, primary)

    def put(self, where: IndexLayout, row: Row, stored: Stored) -> None:
        """Take in the entries of a row. Raises ALREADY_EXISTS if another row of the batch has the same."""
        primary = stored.primary
        value = where.value_of(row, primary, stored.cells, stored.ts)
        for key, contended in entry_keys(where, row, primary).items():
            other = self._puts.get(key)
            if other is not None and other[3] != primary:
                raise _duplicate(self._table, where, primary, other[3])
            self._puts[key] = (where, value, contended, primary)

    @property
    def contended_puts(self) -> list[bytes]:
        """The entries that another row may have."""
        return sorted(key for key, entry in self._puts.items() if entry[2])

    @property
    def leaves_contended(self) -> bool:
        """Is an entry left that another row may have by now?"""
        return any(contended for _, contended, _ in self._left.values())

    async def under_locks(self, read: ReadLocked) -> list[Write]:
        """Return the writes, once no other row is seen to have an entry that is wanted. Raises ALREADY_EXISTS."""
        contended = {*self.contended_puts, *(key for key, entry in self._left.items() if entry[1])}
        owners: dict[bytes, bytes] = {}
        if contended:
            keys = sorted(contended)
            for key, version in zip(keys, await read(keys), strict=True):
                if version is not None and version.value is not None:
                    where = self._puts[key][0] if key in self._puts else self._left[key][0]
                    owner = where.split(key, version.value)[1]
                    owners[key] = row_key(self._schema, self._table, owner)
        return self.settled(owners)

    def settled(self, owners: Mapping[bytes, bytes]) -> list[Write]:
        """Return the writes; ``owners``: the rows that have contended entries now. Raises ALREADY_EXISTS."""
        found = []
        for key, (where, value, _, primary) in sorted(self._puts.items()):
            owner = owners.get(key, self._row(primary))
            if owner != self._row(primary):
                other = split_row_key(self._schema, owner)
                raise _duplicate(self._table, where, primary, other[1] if other is not None else ())
            found.append(Write(key, value))
        for key, (_, _, primary) in self._left.items():
            if key not in self._puts and owners.get(key, self._row(primary)) == self._row(primary):
                found.append(Write(key, None))
        return found

    def _row(self, primary: tuple[Value, ...]) -> bytes:
        return row_key(self._schema, self._table, primary)


def _duplicate(table: Table, where: IndexLayout, first: Sequence[Value], second: Sequence[Value]) -> F1Error:
    if isinstance(where, MirrorLayout):
        names = ", ".join(column.name for column in where.mirror.key_columns)
        what, details = f"({names}) cannot be the primary key of {table.name}", {"table": table.name}
    else:
        what, details = f"index {where.index.name} cannot be unique", {"index": where.index.name}
    return F1Error(
        Code.ALREADY_EXISTS,
        f"{what}: the rows of {table.name} with {describe_key(table, tuple(second))} and {shown_all(first)} have the "
        "same values in it; nothing was changed. Mend such rows, then try again",
        details=details,
    )
