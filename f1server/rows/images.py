"""Rows while a transaction changes them: the image before, the image now, and how writes lead from one to the other."""

from bisect import bisect_left
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import msgspec

from f1common.encoding import tuple as tuples
from f1common.encoding.row import Cell, decode_row, encode_row_with_placeholders, patch_row_with_placeholders
from f1common.errors import Code, F1Error, check
from f1server.catalog.schema import Column, ElementState, Schema, Table
from f1server.rows import locks
from f1server.rows.coerce import coerce_row
from f1server.rows.keys import check_key_length
from f1server.rows.layout import layout, of_schema
from f1server.rows.rowcodec import cells_of, row_of
from f1server.rows.values import Row, Value, shown_all
from f1server.rows.writes import LogicalWrite, WriteKind
from spanstore.client import Version, Write


@dataclass(slots=True)
class Image:
    """One row. ``now`` None: there is none (any more). Row dictionaries are replaced, never changed in place."""

    table: Table
    key_values: tuple[Value, ...]
    key: bytes
    version: Version | None
    cells: Mapping[int, Cell] | None
    before: Row | None
    now: Row | None
    assigned: set[int] = field(default_factory=set)
    renewed: bool = False
    """The row was inserted by this transaction, perhaps after a deletion: nothing of an old version is carried over."""

    @property
    def changed(self) -> bool:
        """Whether a new version must be written."""
        if self.now is None or self.before is None:
            return self.now is not self.before
        return self.renewed or bool(self.assigned)


class Effect(msgspec.Struct, frozen=True, gc=False):
    """What one logical write did, for RETURNING: the row before it and after it; both None: nothing."""

    table: Table
    before: Row | None
    after: Row | None


class Prepared(msgspec.Struct, frozen=True, gc=False):
    """A logical write, checked and with its keys encoded. ``moved_to``: the key that an UPDATE gives the row."""

    write: LogicalWrite
    table: Table
    key_values: tuple[Value, ...]
    key: bytes
    columns: Row
    defaults: Row
    moved_to: tuple[tuple[Value, ...], bytes] | None = None


def prepare(schema: Schema, write: LogicalWrite) -> Prepared:
    """Check a write against the schema: names, types, NOT NULL of what is given, the length of keys.

    Raises NOT_FOUND, INVALID_ARGUMENT, OUT_OF_RANGE, KEY_TOO_LONG.
    """
    table = schema.table(write.table)
    where = layout(schema, table)
    key_row = coerce_row(schema, table, write.key)
    gone = _gone_defaults(table, write)
    columns = coerce_row(schema, table, _without(write.columns, gone))
    defaults = coerce_row(schema, table, _without(write.defaults, gone)) if write.defaults else {}
    inserts = write.kind is not WriteKind.UPDATE
    if inserts:
        key_row = {**{i: columns[i] for i in table.key_column_ids if i in columns}, **key_row}
    key_values = _key_values(table, key_row)
    key = where.row_key(key_values)
    check_key_length(key, f"a row of {table.name}")
    moved_to = None
    if not inserts and any(i in columns for i in table.key_column_ids):
        new_values = _key_values(table, {**key_row, **columns})
        new_key = where.row_key(new_values)
        if new_key != key:
            check_key_length(new_key, f"a row of {table.name}")
            moved_to = (where.canonical(new_values), new_key)
    rest = {i: v for i, v in columns.items() if i not in table.key_column_ids}
    _check_columns(schema, table, write.kind, rest)
    return Prepared(write, table, where.canonical(key_values), key, rest, defaults, moved_to)


def _gone_defaults(table: Table, write: LogicalWrite) -> set[int]:
    """Return the columns that got their defaults, since nobody gave a value, and have been dropped meanwhile."""
    known = table.by_id
    return {i for i in write.defaults if i not in known or known[i].state < ElementState.WRITE_ONLY}


def _without(values: Mapping[int, Value], gone: set[int]) -> Mapping[int, Value]:
    return {i: v for i, v in values.items() if i not in gone} if gone else values


def _key_values(table: Table, row: Row) -> tuple[Value, ...]:
    values = []
    for column in table.key_columns:
        value = row.get(column.id)
        if value is None:
            raise _is_null(table, column)
        values.append(value)
    return tuple(values)


def _check_columns(schema: Schema, table: Table, kind: WriteKind, columns: Row) -> None:
    for column_id, value in columns.items():
        column = table.by_id[column_id]
        if column.state < ElementState.WRITE_ONLY:
            raise F1Error(Code.NOT_FOUND, f"column {table.name}.{column.name} is not there; the schema has changed")
        if value is None and column.not_null:
            raise _is_null(table, column)
    if kind is WriteKind.INSERT:
        check_complete(schema, table, columns)


def check_complete(schema: Schema, table: Table, row: Row) -> None:
    """Refuse a new row without a value for a column that needs one. Raises INVALID_ARGUMENT."""
    for column in _required(schema, table):
        if row.get(column.id) is None:
            raise _is_null(table, column)


def _required(schema: Schema, table: Table) -> tuple[Column, ...]:
    def find() -> tuple[Column, ...]:
        return tuple(
            c
            for c in table.columns
            if c.not_null
            and c.id not in table.key_column_ids
            and (c.state is ElementState.PUBLIC or (c.state is ElementState.WRITE_ONLY and c.default_sql))
        )

    return of_schema(schema, ("required", table.id), find)


def _is_null(table: Table, column: Column) -> F1Error:
    return F1Error(
        Code.INVALID_ARGUMENT,
        f"column {table.name}.{column.name} is NOT NULL and needs a value",
        details={"table": table.name, "column": column.name},
    )


class Images:
    """All rows that a transaction touches, and the writes that it makes on them, one after the other."""

    def __init__(self, schema: Schema, kept: Collection[int] = ()) -> None:
        """``kept``: columns whose values a row with a new key takes along though they are being dropped."""
        self._schema = schema
        self._kept = kept
        self._images: dict[bytes, Image] = {}
        self._keys: list[bytes] | None = None  # in order, once somebody has asked
        self.unfilled_ts = 0
        """When the newest row was written that got a default because it has a new key; 0: none did."""

    def load(self, table: Table, key_values: tuple[Value, ...], key: bytes, version: Version | None) -> None:
        """Take in the stored version of a row, once. Raises DATA_CORRUPTION."""
        if key in self._images:
            return
        cells = decode_row(version.value) if version is not None and version.value is not None else None
        row = row_of(table, key_values, cells) if cells is not None else None
        self._keys = None
        self._images[key] = Image(table, key_values, key, version if row is not None else None, cells, row, row)

    def find(self, key: bytes) -> Image | None:
        """Return the image of a row if the transaction has touched or read it."""
        return self._images.get(key)

    def all(self) -> list[Image]:
        """Return all images in key order."""
        return [self._images[key] for key in self._ordered()]

    def between(self, start: bytes, end: bytes) -> list[Image]:
        """Return the images of a range in key order."""
        keys = self._ordered()
        return [self._images[key] for key in keys[bisect_left(keys, start) : bisect_left(keys, end)]]

    def _ordered(self) -> list[bytes]:
        if self._keys is None:
            self._keys = sorted(self._images)
        return self._keys

    def apply(self, prepared: Prepared) -> Effect:
        """Do one write. Raises ALREADY_EXISTS, NOT_FOUND, INVALID_ARGUMENT (NOT NULL)."""
        image = self._images[prepared.key]
        before = image.now
        match prepared.write.kind:
            case WriteKind.INSERT:
                self._insert(image, prepared.columns)
            case WriteKind.UPSERT if before is None:
                row = {**prepared.defaults, **prepared.columns}
                check_complete(self._schema, prepared.table, row)
                self._insert(image, row)
            case WriteKind.UPDATE | WriteKind.UPSERT if before is not None:
                if prepared.moved_to is not None:
                    image = self._move(image, prepared, prepared.moved_to)
                else:
                    image.now = {**before, **prepared.columns}
                    image.assigned |= prepared.columns.keys()
            case WriteKind.DELETE if before is not None:
                self._delete(image)
                self._cascade(image)
                return Effect(prepared.table, before, None)
            case _:
                if prepared.write.must_exist:
                    raise missing_row(prepared.table, prepared.key_values)
        return Effect(prepared.table, before, image.now)

    def _insert(self, image: Image, columns: Row) -> None:
        table = image.table
        if image.now is not None:
            key = describe_key(table, image.key_values)
            raise F1Error(
                Code.ALREADY_EXISTS,
                f"table {table.name} has a row with {key} already",
                details={"table": table.name, "key": key},
            )
        row: Row = dict.fromkeys(table.by_id)
        row.update(zip(table.key_column_ids, image.key_values, strict=True))
        row.update(columns)
        image.now = row
        image.assigned = set()
        image.renewed = True

    def _delete(self, image: Image) -> None:
        image.now = None
        image.assigned = set()
        image.renewed = False

    def _move(self, image: Image, prepared: Prepared, moved_to: tuple[tuple[Value, ...], bytes]) -> Image:
        """Change a row's key: a delete and an insert. Children stay behind, and block it at the end."""
        target = self._images[moved_to[1]]
        check(image.now is not None, "only a row that is there is moved")
        table = image.table
        kept = {
            i: v for i, v in (image.now or {}).items() if i not in table.key_column_ids and self._stays(table.by_id[i])
        }
        lacking = {
            i: value
            for i, value in prepared.defaults.items()
            if value is not None and kept.get(i) is None and table.by_id[i].state is ElementState.WRITE_ONLY
        }
        if lacking and image.version is not None:
            self.unfilled_ts = max(self.unfilled_ts, image.version.ts)
        self._delete(image)
        try:
            self._insert(target, {**kept, **lacking, **prepared.columns})
        except F1Error as error:
            raise F1Error(
                error.code, f"{error.message}: an update would move one there", details=error.details
            ) from None
        return target

    def _stays(self, column: Column) -> bool:
        return column.state >= ElementState.WRITE_ONLY or (column.returns and column.id in self._kept)

    def _cascade(self, image: Image) -> None:
        cascading = layout(self._schema, image.table).cascading
        if cascading:
            for below in self.between(image.key, tuples.successor(image.key)):
                if below.table.id in cascading and below.now is not None:
                    self._delete(below)


def storage_write(image: Image) -> Write:
    """Return the write that makes a changed image true: the new version is built from the one that was read."""
    if image.now is None:
        return Write(image.key, None)
    table = image.table
    if image.renewed or image.version is None or image.cells is None:
        value, offsets = encode_row_with_placeholders({**cells_of(table, image.now), **locks.locks_of_insert(table)})
    else:
        set_locks, drop = locks.locks_of_update(table, image.cells, image.version.ts, image.assigned)
        changes: dict[int, Cell] = {i: v for i in image.assigned if (v := image.now[i]) is not None}
        drop |= {i for i in image.assigned if image.now[i] is None}
        value, offsets = patch_row_with_placeholders(image.version.value or b"", {**changes, **set_locks}, drop)
    return Write(image.key, value, value_offsets=offsets)


def updated_cells(image: Image, cells: Mapping[int, Cell], version_ts: int) -> dict[int, Cell]:
    """Return all cells of the new version of a row that had ``cells`` in its version of ``version_ts``."""
    now = image.now or {}
    set_locks, drop = locks.locks_of_update(image.table, cells, version_ts, image.assigned)
    changes: dict[int, Cell] = {i: v for i in image.assigned if (v := now[i]) is not None}
    drop |= {i for i in image.assigned if now[i] is None}
    return {i: cell for i, cell in {**cells, **changes, **set_locks}.items() if i not in drop}


def missing_row(table: Table, key_values: tuple[Value, ...]) -> F1Error:
    """Return the error that there is no such row."""
    key = describe_key(table, key_values)
    return F1Error(
        Code.NOT_FOUND, f"table {table.name} has no row with {key}", details={"table": table.name, "key": key}
    )


def describe_key(table: Table, key_values: tuple[Value, ...]) -> str:
    """Return ``(CustomerId, CampaignId) = (1, 7)``."""
    return describe([column.name for column in table.key_columns if not column.hidden], key_values)


def describe(names: list[str], values: tuple[Value, ...]) -> str:
    """Return names and values as PostgreSQL shows a key."""
    return f"({', '.join(names)}) = {shown_all(values[: len(names)])}" if names else "a generated key"
