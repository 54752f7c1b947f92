"""What must hold of all rows together when a transaction ends: parents, children, foreign keys.

All is checked once, at the end of the transaction, on the last images: the order of the writes does not matter.
Whoever creates a dependency locks what it depends on (the parent, the referenced row), shared; whoever removes that
has it locked exclusively, and the range in which dependents would be.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from f1server.catalog.schema import ElementState, ForeignKey, Index, Schema, Table
from f1server.rows.entries import Entries, ReadKey
from f1server.rows.images import Image, Images, describe, describe_key
from f1server.rows.keys import (
    index_layout,
    index_prefix,
    row_key,
    row_prefix,
    split_index_key,
    split_row_key,
    table_span,
)
from f1server.rows.layout import layout
from f1server.rows.rowcodec import decode_row_value
from f1server.rows.values import Value
from spanstore.client import Version

Range = tuple[bytes, bytes]
Rows = list[tuple[bytes, Version]]


@dataclass(frozen=True, slots=True)
class Reference:
    """A foreign key's values in one row, and where the row that they reference would be found."""

    foreign: ForeignKey
    image: Image
    values: tuple[Value, ...]
    target: Table
    key: bytes
    by_index: Index | None


@dataclass(frozen=True, slots=True)
class Referrers:
    """Values that rows may have referenced and that are gone, and the range in which such rows are found."""

    table: Table
    foreign: ForeignKey
    target: Image
    values: tuple[Value, ...]
    range: Range
    by_index: Index | None


@dataclass(slots=True)
class Constraints:
    """The conditions of one transaction, what must be read for them, and the verdict."""

    schema: Schema
    images: Images
    entries: Entries
    shared: set[bytes] = field(default_factory=set)
    ranges: dict[Range, int] = field(default_factory=dict)
    """Ranges to read, with the number of rows that are enough; 0: all."""
    _parents: list[tuple[Image, Table, bytes]] = field(default_factory=list)
    _children: list[tuple[Image, Table, Range]] = field(default_factory=list)
    _references: list[Reference] = field(default_factory=list)
    _referrers: list[Referrers] = field(default_factory=list)

    def collect(self, changed: Iterable[Image], whole: Iterable[Range]) -> None:
        """Take in all changed rows. ``whole``: ranges that were read completely and are among the images."""
        known = sorted(whole)
        rows = list(changed)
        for image in rows:
            where = layout(self.schema, image.table)
            if where.parent is not None and image.now is not None and image.before is None:
                self._need_parent(image, where.parent)
            if image.before is not None and image.now is None:
                for child in where.children:
                    self._need_no_children(image, child, known)
            if image.now is not None:
                for foreign in where.foreign_keys:
                    self._need_target(image, foreign)
        self._need_no_referrers(rows)

    def _need_parent(self, image: Image, parent: Table) -> None:
        key = layout(self.schema, parent).row_key_again(image.key_values[: len(parent.key_column_ids)])
        self._parents.append((image, parent, key))
        if self.images.find(key) is None:
            self.shared.add(key)

    def _need_no_children(self, image: Image, child: Table, known: list[Range]) -> None:
        prefix = row_prefix(self.schema, child, image.key_values)
        span = (prefix, tuples.successor(prefix))
        self._children.append((image, child, span))
        if not any(start <= span[0] and span[1] <= end for start, end in known):
            self.ranges[span] = 1 + len(self.images.between(*span))

    def _need_target(self, image: Image, foreign: ForeignKey) -> None:
        if image.before is not None and not image.renewed and image.assigned.isdisjoint(foreign.column_ids):
            return
        reference = reference_of(self.schema, image, foreign)
        if reference is None:
            return
        self._references.append(reference)
        if reference.by_index is not None:
            if reference.key not in self.entries.puts and reference.key not in self.entries.gone:
                self.shared.add(reference.key)
        elif self.images.find(reference.key) is None:
            self.shared.add(reference.key)

    def _need_no_referrers(self, rows: list[Image]) -> None:
        for target in rows:
            if target.before is None:
                continue
            for table, foreign in layout(self.schema, target.table).referrers:
                values = tuple(target.before.get(i) for i in foreign.referenced_column_ids)
                if None in values or self._still_there(rows, target, foreign, values):
                    continue
                span, index = find_referrers(self.schema, table, foreign, values)
                self._referrers.append(Referrers(table, foreign, target, values, span, index))
                touched = sum(1 for image in rows if image.table.id == table.id)
                enough = touched + 1 if index is not None else 0
                self.ranges[span] = 0 if enough == 0 or self.ranges.get(span) == 0 else enough

    def _still_there(self, rows: list[Image], target: Image, foreign: ForeignKey, values: tuple[Value, ...]) -> bool:
        """Tell whether a row with these values remains, be it another one."""
        wanted = tuples.encode(values)
        ids = foreign.referenced_column_ids
        if target.now is not None and _encoded(target.now, ids) == wanted:
            return True
        if set(ids) <= set(target.table.key_column_ids):
            return False
        others = (image for image in rows if image.table.id == target.table.id and image.now is not None)
        return any(_encoded(image.now or {}, ids) == wanted for image in others)

    def undecided(self, ranges: Mapping[Range, Rows]) -> set[Range]:
        """Return ranges that were cut short before a child was seen, and ask for them whole.

        That takes rows of a table that was dropped and whose rows are not all deleted yet: nobody sees them any more.
        """
        found: set[Range] = set()
        for _, child, span in self._children:
            limit, rows = self.ranges.get(span, 0), ranges.get(span, [])
            if limit and len(rows) >= limit and not self._has_rows(child, span, rows):
                self.ranges[span] = 0
                found.add(span)
        return found

    # ------------------------------------------------------------------ the verdict

    def verify(self, read: ReadKey, ranges: Mapping[Range, Rows]) -> None:
        """Raise FAILED_PRECONDITION, naming tables and keys, if something does not hold."""
        for image, parent, key in self._parents:
            if not self._row_is_there(key, read):
                raise _no_parent(image, parent)
        for image, child, span in self._children:
            if self._has_rows(child, span, ranges.get(span, [])):
                raise _has_children(image, child)
        for reference in self._references:
            if not self._target_is_there(reference, read):
                raise _no_target(reference)
        for referrers in self._referrers:
            if self._is_referenced(referrers, ranges.get(referrers.range, [])):
                raise _is_referenced(referrers)

    def _row_is_there(self, key: bytes, read: ReadKey) -> bool:
        image = self.images.find(key)
        if image is not None:
            return image.now is not None
        version = read(key)
        return version is not None and version.value is not None

    def _has_rows(self, child: Table, span: Range, rows: Rows) -> bool:
        """Tell whether rows of ``child`` remain; rows below them are the concern of the child that they lost."""
        if any(image.now is not None and image.table.id == child.id for image in self.images.between(*span)):
            return True
        unknown = (split_row_key(self.schema, key) for key, _ in rows if self.images.find(key) is None)
        return any(found is not None and found[0].id == child.id for found in unknown)

    def _target_is_there(self, reference: Reference, read: ReadKey) -> bool:
        if reference.by_index is None:
            return self._row_is_there(reference.key, read)
        if reference.key in self.entries.puts:
            return True
        if reference.key in self.entries.gone:
            return False
        version = read(reference.key)
        return version is not None and version.value is not None

    def _is_referenced(self, referrers: Referrers, rows: Rows) -> bool:
        table, ids = referrers.table, referrers.foreign.column_ids
        wanted = tuples.encode(referrers.values)
        for key, version in rows:
            if referrers.by_index is not None:
                _, key_values = split_index_key(self.schema, table, referrers.by_index, key, version.value or b"")
                image = self.images.find(row_key(self.schema, table, key_values))
                if image is None:
                    return True
            else:
                found = split_row_key(self.schema, key)
                if found is None or found[0].id != table.id:
                    continue
                image = self.images.find(key)
                if image is None:
                    row = decode_row_value(table, found[1], version.value or b"")
                    if _encoded(row, ids) == wanted:
                        return True
                    continue
            if image.now is not None and _encoded(image.now, ids) == wanted:
                return True
        return False


def reference_of(schema: Schema, image: Image, foreign: ForeignKey) -> Reference | None:
    """Return where the row is that ``image`` references; None if a value is NULL: then there need be none."""
    row = image.now or {}
    values = tuple(row.get(i) for i in foreign.column_ids)
    if None in values:
        return None
    target = schema.by_id[foreign.referenced_table_id]
    by_column = dict(zip(foreign.referenced_column_ids, values, strict=True))
    index = referenced_index(schema, foreign)
    if index is None:
        key = row_key(schema, target, [by_column[i] for i in target.key_column_ids])
        return Reference(foreign, image, values, target, key, None)
    keys = index_layout(schema, target, index).keys(by_column, tuple(by_column.get(i) for i in target.key_column_ids))
    return Reference(foreign, image, values, target, next(iter(keys)), index)


def referenced_index(schema: Schema, foreign: ForeignKey) -> Index | None:
    """Return the unique index by which a foreign key finds rows; None: by the primary key.

    Raises FAILED_PRECONDITION if there is none any more.
    """
    target, columns = schema.by_id[foreign.referenced_table_id], set(foreign.referenced_column_ids)
    if columns == set(target.key_column_ids):
        return None
    for index in sorted(target.indexes, key=lambda i: i.id):
        parts = index.parts
        if index.unique and not any(p.path for p in parts) and {p.column_id for p in parts} == columns:
            return index
    raise F1Error(
        Code.FAILED_PRECONDITION,
        f"table {target.name} has lost the unique index that a foreign key references; the schema has changed",
    )


def find_referrers(
    schema: Schema, table: Table, foreign: ForeignKey, values: tuple[Value, ...]
) -> tuple[Range, Index | None]:
    """Return the range in which all rows of ``table`` are that reference ``values``, and the index that it lies in.

    By an index or the primary key that begins with the foreign key's columns; otherwise it is the whole table.
    """
    by_column = dict(zip(foreign.column_ids, values, strict=True))
    width = len(by_column)
    if set(table.key_column_ids[:width]) == set(by_column):
        prefix = row_prefix(schema, table, [by_column[i] for i in table.key_column_ids[:width]])
        return (prefix, tuples.successor(prefix)), None
    for index in sorted(table.indexes, key=lambda i: i.id):
        first = index.parts[:width]
        if (
            index.state is ElementState.PUBLIC
            and {part.column_id for part in first} == set(by_column)
            and not any(part.path for part in first)
            and width >= index_layout(schema, table, index).shared
        ):
            prefix = index_prefix(schema, table, index, [by_column[part.column_id] for part in first])
            return (prefix, tuples.successor(prefix)), index
    return table_span(schema, table), None


def _encoded(row: Mapping[int, Value], column_ids: tuple[int, ...]) -> bytes:
    return tuples.encode([row.get(i) for i in column_ids])


def _no_parent(image: Image, parent: Table) -> F1Error:
    key = describe_key(parent, image.key_values[: len(parent.key_column_ids)])
    return F1Error(
        Code.FAILED_PRECONDITION,
        f"a row of {image.table.name} needs its parent: {parent.name} has no row with {key}; insert that first",
        details={"table": image.table.name, "parent": parent.name, "key": key},
    )


def _has_children(image: Image, child: Table) -> F1Error:
    key = describe_key(image.table, image.key_values)
    return F1Error(
        Code.FAILED_PRECONDITION,
        f"the row of {image.table.name} with {key} has rows of {child.name} below it; delete those first",
        details={"table": image.table.name, "child": child.name, "key": key},
    )


def _no_target(reference: Reference) -> F1Error:
    table, foreign = reference.image.table, reference.foreign
    names = [table.by_id[i].name for i in foreign.column_ids]
    key = describe(names, reference.values)
    return F1Error(
        Code.FAILED_PRECONDITION,
        f"foreign key {foreign.name} of {table.name}: {reference.target.name} has no row for {key}",
        details={"table": table.name, "foreign_key": foreign.name, "key": key},
    )


def _is_referenced(referrers: Referrers) -> F1Error:
    target, foreign = referrers.target.table, referrers.foreign
    key = describe([target.by_id[i].name for i in foreign.referenced_column_ids], referrers.values)
    return F1Error(
        Code.FAILED_PRECONDITION,
        f"rows of {referrers.table.name} still reference {target.name} {key} (foreign key {foreign.name})",
        details={"table": target.name, "foreign_key": foreign.name, "key": key},
    )
