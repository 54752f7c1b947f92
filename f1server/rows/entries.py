"""Index entries of changed rows: which are written and which deleted, from the images before and after.

What an index's state asks for
    DELETE_ONLY: an entry that no longer says what is true is deleted, none is written. WRITE_ONLY: every new version
    of a row writes its entries, changed or not, because the backfill leaves alone all rows that are newer than its
    snapshot. PUBLIC: what differs between the images is written.

    While a unique index is not PUBLIC, two old rows may want one entry (the backfill will find them and fail), so an
    entry is read before it is replaced or deleted: it may be another row's. One that is not there is deleted all the
    same, as in other indexes: the backfill writes no entry whose key has a newer version, and must find one.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from f1common.errors import Code, F1Error
from f1server.catalog.schema import ElementState, Index, Schema
from f1server.rows.images import Image, describe
from f1server.rows.keys import IndexLayout, index_layout, row_key
from f1server.rows.layout import layout
from f1server.rows.mirrors import MirrorLayout, mirror_layout
from f1server.rows.values import Row
from spanstore.client import Version, Write

ReadKey = Callable[[bytes], Version | None]
"""Gives what the storage holds under a key that was asked for."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry that a changed row puts or gives up."""

    where: IndexLayout
    image: Image
    contended: bool
    value: bytes = b""
    offsets: tuple[int, ...] = ()
    """Where the commit timestamp is to stand in the value."""


@dataclass(slots=True)
class Entries:
    """What becomes of the index entries of a transaction, by storage key."""

    schema: Schema
    puts: dict[bytes, Entry] = field(default_factory=dict)
    gone: dict[bytes, Entry] = field(default_factory=dict)
    reads: set[bytes] = field(default_factory=set)
    """Entries of unique indexes to be read, under exclusive locks, before :meth:`verify`."""
    _clash: tuple[bytes, Entry] | None = None
    _fresh: set[bytes] = field(default_factory=set)

    def add(self, image: Image) -> None:
        """Take in a changed row, and what it means for the other form of its table, if that is moving."""
        self._add(image)
        mirror = layout(self.schema, image.table).mirror
        if mirror is not None:
            where = mirror_layout(self.schema, image.table, mirror)
            self._compare(where, image, _of_mirror(where, image, image.before), _of_mirror(where, image, image.now))
            for shadow in where.shadows(image):
                self._add(shadow)

    def _add(self, image: Image) -> None:
        for index in layout(self.schema, image.table).indexes:
            where = index_layout(self.schema, image.table, index)
            settled = where.state is ElementState.PUBLIC or where.state is ElementState.DELETE_ONLY
            kept = image.before is not None and image.now is not None and not image.renewed
            if settled and kept and image.assigned.isdisjoint(where.columns):
                continue
            self._compare(where, image, _of(where, image, image.before), _of(where, image, image.now))

    def _compare(self, where: IndexLayout, image: Image, old: dict[bytes, Entry], new: dict[bytes, Entry]) -> None:
        state = where.state
        for key, entry in old.items():
            after = new.get(key)
            if after is None or (state is ElementState.DELETE_ONLY and after.value != entry.value):
                self.gone[key] = entry
                if entry.contended and state is not ElementState.PUBLIC:
                    self.reads.add(key)
        if state is ElementState.DELETE_ONLY:
            return
        for key, entry in new.items():
            before = old.get(key)
            if state is ElementState.PUBLIC and before is not None and before.value == entry.value:
                continue
            if key in self.puts and self._clash is None:
                self._clash = (key, entry)
            self.puts[key] = entry
            if entry.contended and (before is None or state is not ElementState.PUBLIC):
                self._fresh.add(key)

    def close(self) -> None:
        """Work out :attr:`reads`, when all rows have been added."""
        for key in self._fresh:
            # In a public index the row that gave the entry up is known to have held it.
            if key not in self.gone or self.puts[key].where.state is not ElementState.PUBLIC:
                self.reads.add(key)

    def verify(self, read: ReadKey) -> None:
        """Raise ALREADY_EXISTS if two rows would have the same values in a unique index."""
        if self._clash is not None:
            raise _taken(self._clash[1])
        for key in sorted(self._fresh):
            entry = self.puts[key]
            if key in self.reads and self._holder(key, entry, read) not in (None, entry.image.key):
                raise _taken(entry)

    def _holder(self, key: bytes, entry: Entry, read: ReadKey) -> bytes | None:
        """Return the storage key of the row that holds an entry and keeps it."""
        found = read(key)
        if found is None or found.value is None:
            return None
        _, owner = entry.where.split(key, found.value)
        owner_key = row_key(self.schema, entry.where.table, owner)
        released = self.gone.get(key)
        return None if released is not None and released.image.key == owner_key else owner_key

    def writes(self, read: ReadKey) -> list[Write]:
        """Return the storage writes, after :meth:`verify`."""
        found = [Write(key, entry.value, value_offsets=entry.offsets) for key, entry in self.puts.items()]
        for key, entry in self.gone.items():
            if key not in self.puts and self._is_own(key, entry, read):
                found.append(Write(key, None))
        return found

    def _is_own(self, key: bytes, entry: Entry, read: ReadKey) -> bool:
        if key not in self.reads:
            return True
        stored = read(key)
        if stored is None or stored.value is None:
            # Whoever fills the index from older rows is to find that the key has changed since.
            return entry.where.state is not ElementState.PUBLIC
        return entry.where.split(key, stored.value)[1] == entry.image.key_values


def _of(where: IndexLayout, image: Image, row: Row | None) -> dict[bytes, Entry]:
    if row is None:
        return {}
    value = where.value(row, image.key_values)
    keys = _keys(where, image, row)
    return {key: Entry(where, image, contended, value) for key, contended in keys.items()}


def _of_mirror(where: MirrorLayout, image: Image, row: Row | None) -> dict[bytes, Entry]:
    if row is None:
        return {}
    value, offsets = where.row_value(image) if row is image.now else (b"", ())
    keys = _keys(where, image, row)
    return {key: Entry(where, image, contended, value, offsets) for key, contended in keys.items()}


def _keys(where: IndexLayout, image: Image, row: Row) -> dict[bytes, bool]:
    try:
        return where.keys(row, image.key_values)
    except F1Error as error:
        if row is image.now or error.code is not Code.FAILED_PRECONDITION:
            raise
        # Whoever wrote an enum's number knows a schema in which it has a name: this server does in a moment, too.
        details = {**error.details, "table": where.table.name, "index": where.index.name}
        text = f"{error.message}; another schema may have it: try again"
        raise F1Error(Code.ABORTED, text, details=details) from error


def predicted_reads(schema: Schema, image: Image, row: Row) -> set[bytes]:
    """Return the entries of unique indexes that a new row will have to be alone in."""
    found: set[bytes] = set()
    for index in layout(schema, image.table).unique_indexes:
        keys = index_layout(schema, image.table, index).keys(row, image.key_values)
        found |= {key for key, contended in keys.items() if contended}
    return found


def _taken(entry: Entry) -> F1Error:
    table, index = entry.where.table, entry.where.index
    shown = _describe(index, entry)
    return F1Error(
        Code.ALREADY_EXISTS,
        f"table {table.name} has a row with {shown} already, and index {index.name} is unique",
        details={"table": table.name, "index": index.name, "key": shown},
    )


def _describe(index: Index, entry: Entry) -> str:
    table, row = entry.where.table, entry.image.now or {}
    names = [".".join((table.by_id[part.column_id].name, *part.path)) for part in index.parts]
    if any(part.path for part in index.parts):
        return f"the same ({', '.join(names)})"
    return describe(names, tuple(row.get(part.column_id) for part in index.parts))
