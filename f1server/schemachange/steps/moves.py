"""Tables that move to another parent or another primary key: the versions in which they do.

docs/adr/0005-tables-move-as-mirrors.md says why. A table that moves has two forms, T as it was and M as it will be,
with the same columns and locks and with ids of their own. From any states of both, to either of them alone:

======= ============== ============== ==================================================================================
version T              M              work
======= ============== ============== ==================================================================================
        public                        NOT NULL of M's key, a foreign key to M's parent: a round of its own
1       public         delete-only
2       public         write-only     fill M from T; then the indexes of M, by the rows of M, as those of any table
3       write-only     public         none: until here the change can be taken back
4       delete-only    public         remove the rows of T
5       absent         public         then NOT NULL of T's key may go
======= ============== ============== ==================================================================================

T has a foreign key to the parent of M, and M one to that of T, for as long as the other form may be written to: no
server deletes a parent below which another one finds, or writes, rows of the form that it knows.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from f1common.errors import Code, F1Error
from f1server.catalog.ids import NewId, index_id
from f1server.catalog.schema import Column, ElementState, ForeignKey, Index, IndexPart, Schema, Table
from f1server.catalog.tables import constraint_names, has_prefix_access
from f1server.schemachange.steps.edits import AddTable, Edit, ElementTo, Part, TableTo
from f1server.schemachange.steps.states import Work

__all__ = ["FORM", "FormMove", "Round", "Version", "is_move", "mirrored", "moving", "stages", "surveyed"]

FORM = "form of"
"""The kind of element that a form of a moving table is."""

_ABSENT, _PUBLIC = ElementState.ABSENT, ElementState.PUBLIC
_DELETE_ONLY, _WRITE_ONLY = ElementState.DELETE_ONLY, ElementState.WRITE_ONLY


@dataclass(frozen=True, slots=True)
class FormMove:
    """A form of a table from one state to another."""

    table: Table
    before: ElementState
    after: ElementState


@dataclass(frozen=True, slots=True)
class Version:
    """A version of the schema, or none if there are no ``edits``, and the work when every server has it.

    ``final``: once it is written there is no way back.
    """

    moves: tuple[FormMove, ...] = ()
    edits: tuple[Edit, ...] = ()
    work: tuple[Table, Work] | None = None
    final: bool = False


@dataclass(frozen=True, slots=True)
class Round:
    """What happens to other elements, as if no table moved."""

    before: Schema
    after: Schema


# ------------------------------------------------------------------ what is wanted


def mirrored(old: Schema, wanted: Schema, new_id: NewId) -> Schema:
    """Return ``wanted`` with new ids for the table in it that has another parent or primary key than in ``old``.

    Raises F1Error FAILED_PRECONDITION for a table that cannot be moved, and if something else changes, too.
    """
    pairs = [(old.by_id[t.id], t) for t in wanted.tables if t.id in old.by_id and _differs(old.by_id[t.id], t)]
    if not pairs:
        return wanted
    before, after = pairs[0]
    reasons = list(_reasons(old, wanted, before, after))
    if len(pairs) > 1:
        reasons.append(f"{pairs[1][1].name} moves, too: move one table after the other")
    if not reasons:
        mirror = _mirror(old, wanted, before, after, new_id)
        reasons += _unreachable(old, before, mirror)
    if reasons:
        text = f"{after.name} would get another parent or another primary key, and cannot be moved: "
        raise F1Error(Code.FAILED_PRECONDITION, text + "; ".join(reasons), details={"table": after.name})
    tables = [t for t in wanted.tables if t.id != before.id]
    return replace(wanted, tables=tuple(sorted([*tables, mirror], key=lambda t: t.id)))


def _differs(before: Table, after: Table) -> bool:
    return (before.parent_id, before.key_column_ids) != (after.parent_id, after.key_column_ids)


def _mirror(old: Schema, wanted: Schema, before: Table, after: Table, new_id: NewId) -> Table:
    root = old.root(before)
    own_anchor = before.key_column_ids[: len(root.key_column_ids)]
    table_id = new_id()
    new_root = wanted.root(after).id if after.parent_id else table_id
    return replace(
        after,
        id=table_id,
        columns=tuple(replace(c, former_names=before.by_id[c.id].former_names) for c in after.columns),
        indexes=tuple(
            replace(index, id=index_id(new_id, new_root, local=index.local), readable_from=0) for index in after.indexes
        ),
        foreign_keys=before.foreign_keys,
        checks=before.checks,
        locks=before.locks,
        dual=before.dual,
        mirror_of=before.id,
        readable_from=0,
        anchor_id=before.anchor_id or root.id,
        anchor_column_ids=before.anchor_column_ids or own_anchor,
    )


def _reasons(old: Schema, wanted: Schema, before: Table, after: Table) -> Iterator[str]:
    if before.state is not _PUBLIC or before.id in old.forms:
        yield "another schema change of it was left half done; apply the form that it has now, which takes that back"
    if any(c.hidden for table in (before, after) for c in table.key_columns):
        yield "it has, or would have, no primary key of its own"
    for table in old.tables:
        if table.parent_id == before.id:
            yield f"{table.name} is interleaved in it: move that out first, and below it again afterwards"
    for table in wanted.tables:
        if table.parent_id == before.id and table.id not in old.by_id:
            yield f"{table.name} is to be interleaved in it: create that afterwards"
        for key in table.foreign_keys:
            if key.referenced_table_id == before.id:
                text = f"the foreign key {key.name} of {table.name} refers to it"
                yield f"{text}: drop that first, and add it again afterwards"
    for lock in after.locks:
        if not set(lock.column_ids).isdisjoint(after.key_column_ids):
            yield f"the lock {lock.name} covers a column of the new key: let it cover others first"
    parent = old.by_id.get(after.parent_id)
    if after.parent_id and (parent is None or parent.state is not _PUBLIC):
        yield "its new parent is not there yet: create that first"
    # Tables that move as well, and new ones above or below, are told of apart.
    told = {f"the table {t.name}" for t in wanted.tables if t.id in old.by_id and _differs(old.by_id[t.id], t)}
    new = [t for t in wanted.tables if t.id not in old.by_id]
    told |= {f"the table {t.name}" for t in new if t.id == after.parent_id or t.parent_id == before.id}
    keys = {*before.key_column_ids, *after.key_column_ids}
    others = sorted(_changed(_others(old, before, keys), _others(wanted, after, keys)) - told)
    if others:
        what = ", ".join(others)
        yield f"{what} would change at the same time: apply the move alone, and the rest before or after it"


def _others(schema: Schema, moving: Table, keys: set[int]) -> Mapping[str, object]:
    """Return all of a schema that must stay as it is while a table moves, by what it is.

    NOT NULL comes and goes with the primary key. In other columns it would hold in the mirror before any row was held
    against it.
    """
    free = {i: replace(c, not_null=False, not_null_state=_PUBLIC) for i, c in moving.by_id.items() if i in keys}
    there: dict[str, object] = {
        "its name": moving.name,
        "its grants": moving.grants,
        "what is tracked of it": moving.untracked,
        "the .proto files": (schema.proto_files, schema.descriptor_set),
        "the roles": schema.roles,
    }
    there |= {f"the table {t.name}": t for t in schema.tables if t.id != moving.id}
    there |= {f"the view {view.name}": view for view in schema.views}
    there |= {f"the column {column.name}": free.get(column.id, column) for column in moving.columns}
    there |= {f"the index {index.name}": (index.parts, index.unique) for index in moving.indexes}
    there |= {f"the constraint {key.name}": key.id for key in moving.foreign_keys}
    there |= {f"the constraint {check.name}": check.id for check in moving.checks}
    return there | {f"the lock {lock.name}": (lock.id, set(lock.column_ids)) for lock in moving.locks}


def _changed(before: Mapping[str, object], after: Mapping[str, object]) -> set[str]:
    """Return what is there in one of them only, or not the same in both. Names in other letters are the same."""
    absent = object()
    old, new = ({what.lower(): value for what, value in side.items()} for side in (before, after))
    return {what for what in (*before, *after) if old.get(what.lower(), absent) != new.get(what.lower(), absent)}


def _unreachable(schema: Schema, before: Table, mirror: Table) -> Iterator[str]:
    """While a table moves, each form has a foreign key to the parent of the other, by which its rows must be found."""
    for table, other in ((before, mirror), (mirror, before)):
        key = _key_to_parent(schema, table, other)
        if key is not None and not has_prefix_access(table, key.column_ids):
            names = ", ".join(table.by_id[i].name for i in key.column_ids)
            yield f"it needs an index that begins with ({names}), at least until it has moved"


def _key_to_parent(schema: Schema, of: Table, other: Table) -> ForeignKey | None:
    """Return the foreign key by which rows of one form have the parents that they need in the other form.

    None if they have them anyway. Its id is that of the mirror, which no other foreign key has.
    """
    if not other.parent_id:
        return None
    parent = schema.by_id[other.parent_id]
    columns = other.key_column_ids[: len(parent.key_column_ids)]
    if of.parent_id == other.parent_id and of.key_column_ids[: len(columns)] == columns:
        return None
    mirror = of if of.mirror_of == other.id else other
    others = replace(of, foreign_keys=tuple(key for key in of.foreign_keys if key.id != mirror.id))
    name, taken = f"{of.name}_moves", constraint_names(others)
    while name.lower() in taken:
        name += "_"
    return ForeignKey(mirror.id, name, columns, parent.id, parent.key_column_ids)


# ------------------------------------------------------------------ the versions


def is_move(old: Schema, new: Schema) -> bool:
    """Does a table move on the way from ``old`` to ``new``, forwards or back?"""
    return moving(old, new) is not None


def moving(old: Schema, new: Schema) -> tuple[Table, Table, bool] | None:
    """Return a moving table as it was and as it will be, and whether it is to move; None if none moves."""
    for table in new.tables:
        if table.mirror_of in old.by_id and table.mirror_of not in new.by_id:
            return old.by_id[table.mirror_of], table, True
    for table in old.tables:
        if table.mirror_of in new.by_id and table.id not in new.by_id:
            return new.by_id[table.mirror_of], table, False
    return None


def stages(old: Schema, new: Schema) -> Iterator[Version | Round]:
    """Yield how a table moves from the states that its forms have in ``old``, to what it is in ``new``.

    Raises F1Error FAILED_PRECONDITION if it is to go back and has lost rows of the form that it had.
    """
    pair = moving(old, new)
    if pair is not None:
        table, mirror, forwards = pair
        yield from _Forwards(old, new, table, mirror).stages() if forwards else _back(old, new, table, mirror)


class _Forwards:
    """From a table as it is to its mirror."""

    def __init__(self, old: Schema, new: Schema, table: Table, mirror: Table) -> None:
        self._now = old
        self._new = new
        self._table = _ready(old, table, mirror)
        self._mirror = _filled(old, table, mirror)

    def stages(self) -> Iterator[Version | Round]:
        """Yield what is left to be done."""
        table = self._now.by_id[self._table.id]
        if table.state is _PUBLIC:
            yield self._round(self._table)
            yield from self._fill()
            yield self._switch()
            table = self._now.by_id[table.id]
        if table.state is _DELETE_ONLY:
            yield Version(work=(table, Work.REMOVE))
        else:
            yield self._leave(table)
        yield self._to((FormMove(table, _DELETE_ONLY, _ABSENT),))
        yield Round(self._now, self._new)

    def _fill(self) -> Iterator[Version | Round]:
        """Make the mirror, with its rows, then the entries of its indexes by these rows."""
        known = self._now.by_id.get(self._mirror.id)
        bare = replace(self._mirror, state=_DELETE_ONLY, indexes=())
        if known is None:
            self._now = _put(self._now, bare)
            yield Version((FormMove(bare, _ABSENT, _DELETE_ONLY),), (AddTable(bare),))
            known = bare
        filled = (known, Work.FILL)
        if known.state is _DELETE_ONLY:
            yield self._to((FormMove(known, _DELETE_ONLY, _WRITE_ONLY),), filled)
        elif not known.indexes:
            yield Version(work=filled)
        yield self._round(replace(self._mirror, state=_WRITE_ONLY))

    def _switch(self) -> Version:
        table, mirror = self._now.by_id[self._table.id], self._now.by_id[self._mirror.id]
        return self._to((FormMove(mirror, _WRITE_ONLY, _PUBLIC), FormMove(table, _PUBLIC, _WRITE_ONLY)))

    def _leave(self, table: Table) -> Version:
        """The old form is left: nobody has to keep it whole any more."""
        mirror = self._now.by_id[self._mirror.id]
        links = [key for key in mirror.foreign_keys if key.id == mirror.id]
        edits = tuple(ElementTo(Part.FOREIGN_KEY, mirror.id, key.id, key.name, _ABSENT) for key in links)
        kept = tuple(key for key in mirror.foreign_keys if key.id != mirror.id)
        self._now = _put(self._now, replace(mirror, foreign_keys=kept))
        left = self._to((FormMove(table, _WRITE_ONLY, _DELETE_ONLY),), (table, Work.REMOVE))
        return replace(left, edits=(*left.edits, *edits), final=True)

    def _round(self, wanted: Table) -> Round:
        before = self._now
        self._now = _put(before, wanted)
        return Round(before, self._now)

    def _to(self, moves: tuple[FormMove, ...], work: tuple[Table, Work] | None = None) -> Version:
        self._now, version = _moved(self._now, moves, work)
        return version


def _back(old: Schema, new: Schema, table: Table, mirror: Table) -> Iterator[Version | Round]:
    """Yield the way back from a mirror to the table that it was made of."""
    now = old
    had = now.by_id[table.id]
    if had.state < _WRITE_ONLY:
        text = f"{table.name} has moved: it goes on to its new form, and can be moved back afterwards"
        raise F1Error(Code.FAILED_PRECONDITION, text)
    if had.state is _WRITE_ONLY:
        now, version = _moved(now, (FormMove(had, _WRITE_ONLY, _PUBLIC), FormMove(mirror, _PUBLIC, _WRITE_ONLY)))
        yield version
    mirror = now.by_id[mirror.id]
    removal = (mirror, Work.REMOVE)
    if mirror.state is _WRITE_ONLY:
        now, version = _moved(now, (FormMove(mirror, _WRITE_ONLY, _DELETE_ONLY),), removal)
        yield version
    else:
        yield Version(work=removal)
    now, version = _moved(now, (FormMove(mirror, _DELETE_ONLY, _ABSENT),))
    yield version
    yield Round(now, new)


def _moved(
    schema: Schema, moves: tuple[FormMove, ...], work: tuple[Table, Work] | None = None
) -> tuple[Schema, Version]:
    edits = tuple(TableTo(move.table.id, move.table.name, move.after) for move in moves)
    for move in moves:
        gone = replace(schema, tables=tuple(t for t in schema.tables if t.id != move.table.id))
        schema = gone if move.after is _ABSENT else _put(gone, replace(schema.by_id[move.table.id], state=move.after))
    return schema, Version(moves, edits, work)


def _put(schema: Schema, table: Table) -> Schema:
    others = [t for t in schema.tables if t.id != table.id]
    return replace(schema, tables=tuple(sorted([*others, table], key=lambda t: t.id)))


def _ready(schema: Schema, table: Table, mirror: Table) -> Table:
    """Return a table that is ready to be mirrored: rows have all of the mirror's key, and parents there."""
    link = _key_to_parent(schema, table, mirror)
    known = tuple(key for key in table.foreign_keys if key.id != mirror.id)
    columns = tuple(_strict(c) if c.id in mirror.key_column_ids else c for c in table.columns)
    return replace(table, columns=columns, foreign_keys=(*known, *([link] if link is not None else ())))


def _filled(schema: Schema, table: Table, mirror: Table) -> Table:
    """Return the mirror as it is while both forms are written: rows have all of the old key, and parents there."""
    link = _key_to_parent(schema, mirror, table)
    columns = tuple(_strict(c) if c.id in table.key_column_ids else c for c in mirror.columns)
    return replace(mirror, columns=columns, foreign_keys=(*mirror.foreign_keys, *([link] if link is not None else ())))


def _strict(column: Column) -> Column:
    return replace(column, not_null=True, not_null_state=_PUBLIC)


def surveyed(old: Schema, new: Schema) -> Schema:
    """Return ``new`` with a table that moves as rows of its old form are held against it, before anything is done.

    Its new primary key is a unique index there, with the id of the mirror.
    """
    pair = moving(old, new)
    if pair is None:
        return new
    table, mirror, _ = pair
    key = Index(mirror.id, f"{mirror.name}_new_key", tuple(IndexPart(i) for i in mirror.key_column_ids), unique=True)
    ready = _ready(old, table, mirror)
    kept = replace(new, tables=tuple(t for t in new.tables if t.id != mirror.id))
    return _put(kept, replace(ready, indexes=(*ready.indexes, key)))
