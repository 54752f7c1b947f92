"""What is to be said of the keys of a hierarchy, batch by batch (pure).

What can be said from a batch alone is said at once (:attr:`RowBatch.findings`). What depends on other rows or on
entries is asked for, in two rounds (:attr:`RowBatch.wanted`, :meth:`RowBatch.disputed`), and :meth:`RowBatch.verdict`
compares when it has been read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from f1common.encoding import tuple as tuples
from f1common.encoding.row import THIS_VERSION, Cell, decode_row
from f1common.encoding.values import Date, Timestamp
from f1common.errors import F1Error
from f1server.catalog.schema import Column, ElementState, Index, Schema, Table
from f1server.catalog.schema import Kind as Type
from f1server.check.entries import (
    EntryBatch,
    Found,
    StoredKey,
    claims,
    entries_of,
    names_no_row,
    owner_of,
    suspect_in,
    unreadable,
)
from f1server.check.findings import Example, Finding, Kind, Stray
from f1server.rows.constraints import Reference, reference_of
from f1server.rows.images import Image, describe, describe_key
from f1server.rows.keys import IndexLayout, index_layout, row_key, split_row_key
from f1server.rows.layout import HISTORY_ID, LOCAL_INDEX_BASE, layout, of_schema
from f1server.rows.locks import DEFAULT_LOCK
from f1server.rows.mirrors import mirror_layout
from f1server.rows.rowcodec import row_of
from f1server.rows.values import Row, Value, shown, shown_all

__all__ = ["CheckedRow", "RowBatch"]

_TYPES: Mapping[Type, type] = {
    Type.BOOL: bool,
    Type.INT64: int,
    Type.DOUBLE: float,
    Type.NUMERIC: Decimal,
    Type.STRING: str,
    Type.BYTES: bytes,
    Type.DATE: Date,
    Type.TIMESTAMP: Timestamp,
    Type.PROTO: bytes,
}


@dataclass(frozen=True, slots=True)
class CheckedRow:
    """A row that could be read."""

    table: Table
    key_values: tuple[Value, ...]
    key: bytes
    row: Row

    @property
    def shown(self) -> str:
        """The primary key as people read it."""
        return describe_key(self.table, self.key_values)


@dataclass(frozen=True, slots=True)
class _Expected:
    """An entry that a row should have."""

    of: CheckedRow
    where: IndexLayout
    key: bytes
    contended: bool


class RowBatch:
    """Some keys of one hierarchy, in their order."""

    def __init__(self, schema: Schema, root: Table, lineage: list[bytes], *, parents: bool = True) -> None:
        """``lineage``: the rows above the next key, as far as they are known; kept up from batch to batch.

        ``parents`` False: whether a row has its parent is not asked.
        """
        self._asks_parents = parents
        self._schema = schema
        self._root = root
        self._lineage = lineage
        self._parents: list[tuple[CheckedRow, Table, bytes]] = []
        self._expected: list[_Expected] = []
        self._references: list[Reference] = []
        self.entries = EntryBatch(schema)
        """The local entries among the keys."""
        self.entry_count = 0
        self.row_count = 0
        self.rows: dict[int, list[CheckedRow]] = {}
        """The rows that could be read, by table."""
        self.findings: list[Finding] = []
        """What could be said at once."""

    @property
    def wanted(self) -> set[bytes]:
        """What must be read for :meth:`disputed` and :meth:`verdict`."""
        keys = {key for _, _, key in self._parents} | {entry.key for entry in self._expected}
        return keys | {reference.key for reference in self._references} | self.entries.wanted

    # ------------------------------------------------------------------ taking keys in

    def add(self, stored: StoredKey) -> None:
        """Take in a key."""
        try:
            split = split_row_key(self._schema, stored.key)
            elements = tuples.decode(stored.key) if split is None else ()
        except F1Error as error:
            self.findings.append(unreadable(self._root.name, "", stored.key, error))
            return
        if split is not None:
            self.row_count += 1
            self._add_row(split[0], split[1], stored)
        else:
            self._add_other(elements, stored)

    def _add_other(self, elements: Sequence[object], stored: StoredKey) -> None:
        """Take in what is no row of a known table."""
        place = 1 + len(self._root.key_column_ids)
        code = elements[place] if len(elements) > place else None
        if code == HISTORY_ID:
            return
        if type(code) is not int or not LOCAL_INDEX_BASE < code < HISTORY_ID:
            text = "a key below this root is of no table: left over from one that was dropped, or that is being dropped"
            self._find_stray(Kind.NO_TABLE, stored, Example(_shown(elements), text))
            return
        self.entry_count += 1
        found = _local_indexes(self._schema, self._root).get(code)
        if found is None:
            text = f"an entry of the index with id {code - LOCAL_INDEX_BASE}, which the schema has not"
            self._find_stray(Kind.NO_INDEX, stored, Example(_shown(elements), text))
        else:
            self.entries.add(*found, stored)

    def _add_row(self, table: Table, key_values: tuple[Value, ...], stored: StoredKey) -> None:
        try:
            cells = decode_row(stored.value)
            row = row_of(table, key_values, cells)
        except F1Error as error:
            self._lineage_of(stored.key)
            self.findings.append(unreadable(table.name, "", stored.key, error))
            return
        checked = CheckedRow(table, key_values, stored.key, row)
        self.rows.setdefault(table.id, []).append(checked)
        if self._asks_parents:
            self._check_parent(checked)
        self._check_columns(checked, cells)
        self._check_locks(checked, cells, stored.ts)
        self._expect_entries(checked)
        self._check_mirror(checked, stored)
        image = Image(table, key_values, stored.key, None, None, None, row)
        for foreign in layout(self._schema, table).foreign_keys:
            if foreign.state is ElementState.PUBLIC and (reference := reference_of(self._schema, image, foreign)):
                self._references.append(reference)

    def _lineage_of(self, key: bytes) -> list[bytes]:
        """Return the rows above a key that are known, and let it be the last."""
        while self._lineage and not key.startswith(self._lineage[-1]):
            self._lineage.pop()
        above = list(self._lineage)
        self._lineage.append(key)
        return above

    def _check_parent(self, checked: CheckedRow) -> None:
        above = self._lineage_of(checked.key)
        where = layout(self._schema, checked.table)
        parent = where.parent
        # Rows of a mirror that nobody enters rows into any more do not keep their parents.
        if parent is not None and not (where.is_mirror and checked.table.state is ElementState.DELETE_ONLY):
            key = row_key(self._schema, parent, checked.key_values[: len(parent.key_column_ids)])
            if key not in above:
                # A part may begin below the parent, whose key comes before all of it.
                self._parents.append((checked, parent, key))

    def _check_columns(self, checked: CheckedRow, cells: Mapping[int, Cell]) -> None:
        table = checked.table
        for column_id in sorted(cells.keys() - _cell_ids(self._schema, table)):
            text = f"a value of the column with id {column_id}, which the schema has not"
            self._find(Kind.NO_COLUMN, checked, "", text)
        for column in table.columns:
            value = checked.row.get(column.id)
            if value is None:
                if column.not_null and column.state is column.not_null_state is ElementState.PUBLIC:
                    self._find(Kind.NULL, checked, column.name, "the column is NOT NULL")
            elif not _has_type(value, column):
                text = f"{shown(value)} is no {column.type.sql()}"
                self._find(Kind.UNREADABLE, checked, column.name, text)

    def _check_locks(self, checked: CheckedRow, cells: Mapping[int, Cell], version_ts: int) -> None:
        """Each public lock column has a timestamp, and no lock one that is later than its version."""
        names = {lock.id: lock.name for lock in checked.table.locks if lock.state is ElementState.PUBLIC}
        for lock_id, name in [*names.items(), (DEFAULT_LOCK, "")]:
            cell = cells.get(lock_id)
            if cell is None:
                if lock_id != DEFAULT_LOCK:
                    self._find(Kind.LOCK, checked, name, "the row has no timestamp of this lock")
            elif cell is not THIS_VERSION and not (isinstance(cell, Timestamp) and cell.us <= version_ts):
                self._find(Kind.LOCK, checked, name, f"the lock holds {cell!r}, the version is of {version_ts}")

    def _expect_entries(self, checked: CheckedRow) -> None:
        for index in layout(self._schema, checked.table).indexes:
            where = index_layout(self._schema, checked.table, index)
            try:
                expected = entries_of(where, checked.row, checked.key_values)
            except F1Error as error:
                self._find(Kind.UNREADABLE, checked, index.name, f"the row can have no entry: {error.message}")
                continue
            # The form that a moving table had stays whole, and its indexes do, as long as it is written to.
            # While a table is dropped its entries go before its rows.
            if index.state is ElementState.PUBLIC and checked.table.state >= ElementState.WRITE_ONLY:
                self._expected += [
                    _Expected(checked, where, key, contended) for key, (_, contended) in expected.items()
                ]

    def _check_mirror(self, checked: CheckedRow, stored: StoredKey) -> None:
        """Take a row of a mirror for an entry of the other form's row; one that was public has all of them."""
        table, other = checked.table, self._schema.forms.get(checked.table.id)
        mirror = layout(self._schema, table).mirror
        if mirror is not None and table.mirror_of == mirror.id and mirror.state is ElementState.WRITE_ONLY:
            where = mirror_layout(self._schema, table, mirror)
            self._expected += [_Expected(checked, where, key, True) for key in where.keys(checked.row, ())]
        elif other is not None and layout(self._schema, table).is_mirror:
            self.entries.add_in(mirror_layout(self._schema, other, table), stored)

    def _find(self, kind: Kind, checked: CheckedRow, element: str, text: str) -> None:
        self.findings.append(Finding(kind, checked.table.name, element, Example(checked.shown, text)))

    def _find_stray(self, kind: Kind, stored: StoredKey, example: Example) -> None:
        self.findings.append(Finding(kind, self._root.name, "", example, Stray(stored.key, stored.ts)))

    # ------------------------------------------------------------------ the verdict

    def disputed(self, found: Found) -> set[bytes]:
        """Return which other rows must be read: those that hold an entry that a row of this batch wants."""
        owners = [self._other_owner(entry, found) for entry in self._expected if entry.contended]
        return {owner[1] for owner in owners if owner is not None}

    def _other_owner(self, entry: _Expected, found: Found) -> tuple[tuple[Value, ...], bytes] | None:
        owner = owner_of(entry.where, entry.key, found.get(entry.key))
        if owner is None:
            return None
        key = row_key(self._schema, entry.where.table, owner)
        return None if key == entry.of.key else (owner, key)

    def verdict(self, found: Found) -> list[Finding]:
        """Return all findings, given everything that was asked for."""
        result = [*self.findings, *self.entries.findings, *self.entries.verdict(found)]
        for checked, parent, key in self._parents:
            if not _is_there(found, key):
                shown = describe_key(parent, checked.key_values[: len(parent.key_column_ids)])
                text = f"its parent in {parent.name}, {shown}, is not there"
                result.append(Finding(Kind.NO_PARENT, checked.table.name, "", Example(checked.shown, text)))
        for entry in self._expected:
            if (finding := self._judge_expected(entry, found)) is not None:
                result.append(finding)
        return result + [_dangling(reference) for reference in self._references if not _is_there(found, reference.key)]

    def _judge_expected(self, entry: _Expected, found: Found) -> Finding | None:
        checked, index = entry.of, entry.where.index
        suspect = suspect_in(entry.where, row_key=checked.key)
        if not _is_there(found, entry.key):
            example = Example(checked.shown, "the row has no entry")
            return Finding(Kind.MISSING_ENTRY, checked.table.name, index.name, example, suspect)
        if entry.contended and names_no_row(entry.where, entry.key, found[entry.key]):
            example = Example(checked.shown, "its entry does not say whose it is")
            return Finding(Kind.MISSING_ENTRY, checked.table.name, index.name, example, suspect)
        other = self._other_owner(entry, found) if entry.contended else None
        if other is None:
            return None
        owner, owner_key = other
        shown = describe_key(checked.table, owner)
        if claims(entry.where, owner, found.get(owner_key), entry.key):
            example = Example(checked.shown, f"the row {shown} has the same {shown_values(entry.where, checked.row)}")
            return Finding(Kind.DUPLICATE, checked.table.name, index.name, example)
        example = Example(checked.shown, f"its entry says that it is of the row {shown}")
        return Finding(Kind.MISSING_ENTRY, checked.table.name, index.name, example, suspect)


def _is_there(found: Found, key: bytes) -> bool:
    version = found.get(key)
    return version is not None and version.value is not None


def _dangling(reference: Reference) -> Finding:
    image = reference.image
    names = [image.table.by_id[i].name for i in reference.foreign.column_ids]
    text = f"{reference.target.name} has no row for {describe(names, reference.values)}"
    example = Example(describe_key(image.table, image.key_values), text)
    return Finding(Kind.DANGLING, image.table.name, reference.foreign.name, example)


def shown_values(where: IndexLayout, row: Row) -> str:
    if any(part.path for part in where.index.parts):
        return "values in it"
    names = [where.table.by_id[part.column_id].name for part in where.index.parts]
    return describe(names, tuple(row.get(part.column_id) for part in where.index.parts))


def _has_type(value: Value, column: Column) -> bool:
    return type(value) is _TYPES[column.type.kind]


def _cell_ids(schema: Schema, table: Table) -> frozenset[int]:
    """The ids that cells of a row may have: those of its columns and locks."""
    return of_schema(
        schema,
        ("cells", table.id),
        lambda: frozenset({DEFAULT_LOCK, *table.by_id, *(lock.id for lock in table.locks)}),
    )


def _local_indexes(schema: Schema, root: Table) -> Mapping[int, tuple[Table, Index]]:
    """The local indexes of a hierarchy, by the element that marks their entries."""
    return of_schema(
        schema,
        ("local indexes", root.id),
        lambda: {
            LOCAL_INDEX_BASE + index.id: (table, index)
            for table in (root, *schema.descendants(root))
            for index in table.indexes
            if index.local and index.state > ElementState.ABSENT
        },
    )


def _shown(elements: Sequence[object]) -> str:
    text = shown_all(elements)
    return text if len(text) <= 200 else text[:197] + "..."
