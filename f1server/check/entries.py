"""What is to be said of index entries, batch by batch: whose they are, and whether that row should have them (pure)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from f1common.encoding.row import Cell, decode_row, encode_row
from f1common.errors import F1Error
from f1server.catalog.schema import Index, Schema, Table
from f1server.check.findings import Example, Finding, Kind, Suspect
from f1server.rows.images import describe, describe_key
from f1server.rows.keys import IndexLayout, index_layout, row_key
from f1server.rows.mirrors import MirrorLayout
from f1server.rows.rowcodec import decode_row_value
from f1server.rows.values import Row, Value
from spanstore.client import Version

__all__ = [
    "EntryBatch",
    "Found",
    "StoredKey",
    "claims",
    "entries_of",
    "names_no_row",
    "owner_of",
    "row_in",
    "suspect_in",
    "unreadable",
]

Found = Mapping[bytes, Version | None]
"""What the storage tier holds under keys that were asked for."""


@dataclass(frozen=True, slots=True)
class StoredKey:
    """One key with its newest version as of the check's timestamp."""

    key: bytes
    ts: int
    value: bytes


@dataclass(frozen=True, slots=True)
class _Owned:
    """An entry and the row that it names."""

    where: IndexLayout
    stored: StoredKey
    values: tuple[Value, ...]
    owner: tuple[Value, ...]
    owner_key: bytes


class EntryBatch:
    """Some entries of any indexes."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._entries: list[_Owned] = []
        self.findings: list[Finding] = []
        """What could be said at once."""

    @property
    def wanted(self) -> set[bytes]:
        """The rows that must be read for :meth:`verdict`."""
        return {entry.owner_key for entry in self._entries}

    def add(self, table: Table, index: Index, stored: StoredKey) -> None:
        """Take in an entry."""
        self.add_in(index_layout(self._schema, table, index), stored)

    def add_in(self, where: IndexLayout, stored: StoredKey) -> None:
        """Take in an entry of an index, or a row of a mirror, which is one of all columns."""
        try:
            values, owner = where.split(stored.key, stored.value)
            owner_key = row_key(self._schema, where.table, owner)
        except F1Error as error:
            nobodys = names_no_row(where, stored.key, Version(stored.ts, stored.value))
            suspect = suspect_in(where, entry_key=stored.key) if nobodys else None
            self.findings.append(unreadable(where.table.name, where.index.name, stored.key, error, suspect))
            return
        self._entries.append(_Owned(where, stored, values, owner, owner_key))

    def verdict(self, found: Found) -> list[Finding]:
        """Return what is wrong with the entries, given the rows."""
        return [finding for entry in self._entries if (finding := self._judge(entry, found)) is not None]

    def _judge(self, entry: _Owned, found: Found) -> Finding | None:
        where, stored = entry.where, entry.stored
        row = row_in(where.table, entry.owner, found.get(entry.owner_key))
        if row is None:
            return _wrong(Kind.ORPHAN_ENTRY, entry, "there is no such row")
        try:
            expected = entries_of(where, row, entry.owner)
        except F1Error:
            return None  # the row itself is reported
        if stored.key not in expected:
            return _wrong(Kind.WRONG_ENTRY, entry, "the row has other values")
        wanted = expected[stored.key][0]
        try:
            told = where.told(stored.value)
            if told != wanted:
                text = _different(where.table, decode_row(told), decode_row(wanted), row)
                return _wrong(Kind.WRONG_ENTRY, entry, text)
        except F1Error as error:
            return _wrong(Kind.WRONG_ENTRY, entry, f"what it stores cannot be read: {error.message}")
        return _judge_locks(entry, where, found) if isinstance(where, MirrorLayout) else None


def _judge_locks(entry: _Owned, where: MirrorLayout, found: Found) -> Finding | None:
    """Hold the locks of a row of a mirror against those of its other form, which is there."""
    version = found[entry.owner_key]
    if version is None or version.value is None:
        return None
    try:
        own, other = decode_row(entry.stored.value), decode_row(version.value)
        different = where.other_locks(own, entry.stored.ts, other, version.ts)
    except F1Error:
        return None  # the row itself is reported
    if not different:
        return None
    names = ", ".join(where.table.by_id[i].name for i in different)
    return _wrong(Kind.LOCK, entry, f"its locks and those of the row tell other times of the last change of {names}")


def entries_of(
    where: IndexLayout, row: Mapping[int, Value], key_values: tuple[Value, ...]
) -> dict[bytes, tuple[bytes, bool]]:
    """Return the entries that a row should have, by key: value, and whether another row may want the same key.

    Raises F1Error for a row that can have none: KEY_TOO_LONG, OUT_OF_RANGE, DATA_CORRUPTION.
    """
    value = where.value(row, key_values)
    return {key: (value, contended) for key, contended in where.keys(row, key_values).items()}


def owner_of(where: IndexLayout, key: bytes, version: Version | None) -> tuple[Value, ...] | None:
    """Return the primary key of the row that an entry names; None if there is no entry or it names none."""
    if version is None or version.value is None:
        return None
    try:
        return where.split(key, version.value)[1]
    except F1Error:
        return None


def names_no_row(where: IndexLayout, key: bytes, version: Version | None) -> bool:
    """Tell whether a value does not say whose entry it is, under a key that an entry of the index may have."""
    if version is None or version.value is None or owner_of(where, key, version) is not None:
        return False
    value = encode_row(dict.fromkeys(where.table.key_column_ids, 0))
    return owner_of(where, key, Version(version.ts, value)) is not None


def claims(where: IndexLayout, owner: tuple[Value, ...], version: Version | None, key: bytes) -> bool:
    """Tell whether the row ``owner`` is there and should have the entry ``key``."""
    row = row_in(where.table, owner, version)
    try:
        return row is not None and key in entries_of(where, row, owner)
    except F1Error:
        return False


def row_in(table: Table, key_values: Sequence[Value], version: Version | None) -> Row | None:
    """Return the row in a version, None if there is none. Columns of a row that cannot be read are NULL."""
    if version is None or version.value is None:
        return None
    try:
        return decode_row_value(table, key_values, version.value)
    except F1Error:
        return {**dict.fromkeys(table.by_id), **dict(zip(table.key_column_ids, key_values, strict=True))}


def unreadable(table: str, element: str, key: bytes, error: F1Error, suspect: Suspect | None = None) -> Finding:
    """Return the finding that a key or value is not what can be there."""
    return Finding(Kind.UNREADABLE, table, element, Example(key.hex(), error.message), suspect)


def _wrong(kind: Kind, entry: _Owned, what: str) -> Finding:
    where = entry.where
    suspect = suspect_in(where, entry_key=entry.stored.key)
    key = describe_key(where.table, entry.owner)
    text = f"entry {_values(where, entry.values)} of this row: {what}"
    return Finding(kind, where.table.name, where.index.name, Example(key, text), suspect)


def suspect_in(where: IndexLayout, *, entry_key: bytes = b"", row_key: bytes = b"") -> Suspect | None:
    """Return what is to be looked at again, to repair an entry; None for rows of a mirror, which nobody repairs."""
    if isinstance(where, MirrorLayout):
        return None
    return Suspect(where.table.id, where.index.id, entry_key=entry_key, row_key=row_key)


def _values(where: IndexLayout, values: Sequence[Value]) -> str:
    names = [".".join((where.table.by_id[part.column_id].name, *part.path)) for part in where.index.parts]
    return describe(names, tuple(values))


def _different(table: Table, told: Mapping[int, Cell], wanted: Mapping[int, Cell], row: Row) -> str:
    """Say in which columns what an entry stores differs from what it should, as the row has that."""
    ids = [i for i in sorted(told.keys() | wanted.keys()) if told.get(i) != wanted.get(i)]
    known = [i for i in ids if i in table.by_id]
    if not known:
        return f"it stores the columns {ids}, which the table has not" if ids else "it is written in another form"
    names = [table.by_id[i].name for i in known]
    there, should = tuple(told.get(i) for i in known), tuple(row.get(i) for i in known)
    return f"it stores {describe(names, there)}, the row has {describe(names, should)}"  # type: ignore[arg-type]
