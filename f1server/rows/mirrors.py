"""The rows of a table that moves to another parent or primary key (docs/adr/0005-tables-move-as-mirrors.md).

There are two forms of them. One is public. The other one is its mirror: the same rows, columns and locks under other
keys. To whoever writes, a mirror is a unique index that covers all columns: it passes through the same states, what is
in it follows from the rows of the public form, and its keys are read under exclusive locks before they are written,
since two rows of the public form may want one.

A row says the same about locks in both forms. Written together they have one timestamp; a row that is copied later
says in absolute terms when it changed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from f1common.encoding.row import Cell, decode_row, encode_row, encode_row_with_placeholders
from f1common.errors import Code, F1Error
from f1server.catalog.schema import ElementState, Index, IndexPart, Schema, Table
from f1server.rows import locks
from f1server.rows.images import Image, updated_cells
from f1server.rows.keys import IndexLayout, check_key_length, split_row_key
from f1server.rows.layout import layout, of_schema
from f1server.rows.rowcodec import cells_of, row_of
from f1server.rows.values import Row, Value

__all__ = ["MirrorLayout", "mirror_layout"]


@dataclass(frozen=True)
class MirrorLayout(IndexLayout):
    """The rows of ``mirror`` as entries of the rows of ``table``, its other form.

    ``index`` stands for the mirror's primary key, with the id and the state of the mirror.
    """

    mirror: Table

    @property
    def state(self) -> ElementState:
        """How far the mirror exists."""
        return self.mirror.state

    @cached_property
    def columns(self) -> frozenset[int]:
        """All columns: a row of the mirror is a whole one."""
        return frozenset(self.table.by_id)

    def mirror_key(self, row: Mapping[int, Value]) -> tuple[Value, ...] | None:
        """Return the primary key of the mirror's row; None if it can have none, for a value is NULL."""
        values = tuple(row.get(i) for i in self.mirror.key_column_ids)
        return None if None in values else layout(self.schema, self.mirror).canonical(values)

    def keys(self, row: Mapping[int, Value], key_values: tuple[Value, ...]) -> dict[bytes, bool]:
        """Encode the key of the mirror's row, which another row may want, too. Raises KEY_TOO_LONG."""
        values = self.mirror_key(row)
        if values is None:
            return {}
        key = layout(self.schema, self.mirror).row_key(values)
        check_key_length(key, f"a row of {self.mirror.name}, which is moving to another primary key")
        return {key: True}

    def split(self, key: bytes, value: bytes) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
        """Return the primary keys of a row of the mirror and of the row that it mirrors. Raises DATA_CORRUPTION."""
        found = split_row_key(self.schema, key)
        if found is None or found[0].id != self.mirror.id:
            raise F1Error(Code.DATA_CORRUPTION, f"key {key.hex()} is no row of {self.mirror.name}")
        row = row_of(self.mirror, found[1], decode_row(value))
        return found[1], tuple(row[i] for i in self.table.key_column_ids)

    def value(self, row: Mapping[int, Value], key_values: tuple[Value, ...]) -> bytes:
        """Encode the columns of the mirror's row, without locks: what the row says to its readers."""
        return encode_row(cells_of(self.mirror, row))

    def told(self, value: bytes) -> bytes:
        """Return what of a row of the mirror is the columns' doing: no locks."""
        columns = self.table.by_id
        return encode_row({i: cell for i, cell in decode_row(value).items() if i in columns})

    def other_locks(self, mirror: Mapping[int, Cell], mirror_ts: int, row: Mapping[int, Cell], ts: int) -> list[int]:
        """Return the columns of which the versions of a row in both forms say different times of the last change."""

        pairs = zip(self.lock_times(mirror, mirror_ts, of_mirror=True), self.lock_times(row, ts), strict=True)
        return [i for i, (own, other) in zip(sorted(self.table.by_id), pairs, strict=True) if own != other]

    def lock_times(self, cells: Mapping[int, Cell], ts: int, *, of_mirror: bool = False) -> list[int]:
        """Return when each column, by ascending id, last changed, as a row of either form says that has version ``ts``.

        In microseconds since the epoch.
        """
        table = self.mirror if of_mirror else self.table
        return [locks.lock_value(table, cells, ts, (i,)) for i in sorted(self.table.by_id)]

    def value_of(
        self, row: Mapping[int, Value], key_values: tuple[Value, ...], cells: Mapping[int, Cell], ts: int
    ) -> bytes:
        """Encode the mirror's row of a row that was committed at ``ts``: no lock moves by that."""
        changes, drop = locks.locks_carried_over(self.table, cells, ts)
        kept = {i: cell for i, cell in {**cells, **changes}.items() if i not in drop}
        return encode_row(self._moved(kept, row))

    def row_value(self, image: Image) -> tuple[bytes, tuple[int, ...]]:
        """Encode the mirror's row of a changed one, and where the commit timestamp is to stand in it."""
        row = image.now or {}
        if image.renewed or image.version is None or image.cells is None:
            cells: Mapping[int, Cell] = {**cells_of(self.table, row), **locks.locks_of_insert(self.table)}
        else:
            cells = updated_cells(image, image.cells, image.version.ts)
        value, offsets = encode_row_with_placeholders(self._moved(cells, row))
        return value, tuple(offsets)

    def _moved(self, cells: Mapping[int, Cell], row: Mapping[int, Value]) -> dict[int, Cell]:
        """Return the cells of a row as the mirror has them: those of its key are in the key, those of the other not."""
        own = {i: v for i in self.table.key_column_ids if (v := row.get(i)) is not None}
        return {i: cell for i, cell in {**cells, **own}.items() if i not in self.mirror.key_column_ids}

    def shadows(self, image: Image) -> Iterator[Image]:
        """Return the changes of the mirror's rows that follow from that of a row: one, or two if its key changes.

        In a mirror that is delete-only a row that changes is deleted, whatever changes.
        """
        before = self._shadow(image, image.before)
        now = self._shadow(image, image.now) if self.state > ElementState.DELETE_ONLY else None
        if before is not None and now is not None and before.key == now.key:
            yield replace(now, before=before.before, renewed=image.renewed)
            return
        if before is not None:
            yield replace(before, now=None, assigned=set(), renewed=False)
        if now is not None:
            yield replace(now, before=None, renewed=True)

    def _shadow(self, image: Image, row: Row | None) -> Image | None:
        values = self.mirror_key(row) if row is not None else None
        if values is None:
            return None
        key = layout(self.schema, self.mirror).row_key(values)
        return Image(self.mirror, values, key, None, None, row, row, image.assigned)


def mirror_layout(schema: Schema, table: Table, mirror: Table) -> MirrorLayout:
    """Return how the rows of ``mirror`` follow from those of ``table``."""

    def make() -> MirrorLayout:
        parts = tuple(IndexPart(i) for i in mirror.key_column_ids)
        key = Index(mirror.id, f"{mirror.name}_new_key", parts, unique=True, state=mirror.state)
        return MirrorLayout(schema, table, key, layout(schema, table), mirror)

    return of_schema(schema, ("mirror", table.id, mirror.id), make)
