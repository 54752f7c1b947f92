"""How the schema compiler builds one table, and a foreign key; the rules that both and the compiler use."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from f1common.errors import Code, F1Error
from f1server.catalog import expressions, protos
from f1server.catalog.schema import (
    Check,
    Column,
    ColumnType,
    ElementState,
    ForeignKey,
    Kind,
    LockColumn,
    Schema,
    Table,
)
from f1server.catalog.statements import CheckDef, ColumnDef, CreateTable, ForeignKeyDef, LockDef, Position
from f1server.catalog.types import HIDDEN_KEY, RESERVED_PREFIX

NewId = Callable[[], int]
"""Draws an id that was never used in the cluster."""

T = TypeVar("T")

MAX_COLUMNS = 1000
MAX_KEY_COLUMNS = 16
MAX_DEPTH = 16


def located(at: Position, call: Callable[[], T]) -> T:
    """Call, and give an error that comes out the place ``at``."""
    try:
        return call()
    except F1Error as error:
        raise at.error(error.code, error.message) from None


def names_taken(schema: Schema) -> set[str]:
    """Return the names of all tables, indexes and views, in whatever state, in lower case: they share one space."""
    names = {v.name.lower() for v in schema.views}
    for table in schema.tables:
        names.add(table.name.lower())
        names.update(index.name.lower() for index in table.indexes)
    return names


def check_new_name(schema: Schema, name: str, at: Position) -> None:
    """Raise F1Error ALREADY_EXISTS for a name that is taken, INVALID_ARGUMENT for a reserved one."""
    _refuse_reserved(name, at)
    lower = name.lower()
    if lower not in names_taken(schema):
        return
    if lower in schema.views_by_name:
        what = "view"
    elif lower in {t.name.lower() for t in schema.tables}:
        what = "table"
    else:
        what = "index"
    hint = "" if lower in schema.by_name or what == "view" else _half_built(schema, lower)
    raise at.error(Code.ALREADY_EXISTS, f"there is a {what} {name} already{hint}".replace("a index", "an index"))


def _half_built(schema: Schema, lower: str) -> str:
    states = [t.state for t in schema.tables if t.name.lower() == lower]
    states += [i.state for t in schema.tables for i in t.indexes if i.name.lower() == lower]
    ready = all(state is ElementState.PUBLIC for state in states)
    return "" if ready else ", which is being built or dropped; DROP removes one that was left behind"


def _refuse_reserved(name: str, at: Position) -> None:
    if name.lower().startswith(RESERVED_PREFIX):
        raise at.error(Code.INVALID_ARGUMENT, f"names that begin with {RESERVED_PREFIX} are reserved: {name}")


def build_table(schema: Schema, statement: CreateTable, table_id: int, new_id: NewId) -> Table:
    """Build the table of a CREATE TABLE, without its unique indexes and foreign keys.

    Raises F1Error NOT_FOUND, INVALID_ARGUMENT, FAILED_PRECONDITION with the place in the source.
    """
    if statement.renamed_from:
        raise _no_renames(statement.at)
    if not statement.columns:
        raise statement.at.error(Code.INVALID_ARGUMENT, f"the table {statement.name} has no columns")
    if len(statement.columns) > MAX_COLUMNS:
        raise statement.at.error(Code.INVALID_ARGUMENT, f"a table has at most {MAX_COLUMNS} columns")
    parent = located(statement.at, lambda: schema.table(statement.parent)) if statement.parent else None
    if parent is not None and len(schema.ancestors(parent)) >= MAX_DEPTH:
        raise statement.at.error(Code.INVALID_ARGUMENT, f"tables are interleaved at most {MAX_DEPTH} deep")
    columns = [_build_column(schema, definition, new_id) for definition in statement.columns]
    _refuse_twins([(d.name, d.at) for d in statement.columns], "column")
    by_name = {column.name.lower(): column for column in columns}
    if statement.key is None:
        key, hidden = _hidden_key(statement, parent, by_name, new_id)
        columns.append(hidden)
    else:
        key = _find_columns(statement, statement.key, by_name, "the primary key")
    _check_key(statement, parent, key)
    key_ids = tuple(column.id for column in key)
    columns = [_required(c) if c.id in key_ids else c for c in columns]
    return Table(
        id=table_id,
        name=statement.name,
        parent_id=parent.id if parent else 0,
        columns=tuple(columns),
        key_column_ids=key_ids,
        cascade=statement.cascade,
        checks=_build_checks(statement, by_name, new_id),
        locks=_build_locks(statement, by_name, key_ids, new_id),
        untracked=statement.untracked,
    )


def _no_renames(at: Position) -> F1Error:
    return at.error(Code.FAILED_PRECONDITION, "RENAMED FROM: renames come with online schema change")


def _build_column(schema: Schema, definition: ColumnDef, new_id: NewId) -> Column:
    _refuse_reserved(definition.name, definition.at)
    if definition.renamed_from:
        raise _no_renames(definition.at)
    if definition.type.kind is Kind.PROTO:
        located(definition.at, lambda: protos.require_message(schema, definition.type.proto))
    if definition.default_sql:
        what = f"the default of {definition.name}"
        located(
            definition.at,
            lambda: expressions.check_default(definition.default_sql, definition.type.kind, what),
        )
    return Column(
        id=new_id(),
        name=definition.name,
        type=definition.type,
        not_null=definition.not_null,
        default_sql=definition.default_sql,
        untracked=definition.untracked,
    )


def _required(column: Column) -> Column:
    return replace(column, not_null=True)


def _refuse_twins(names: Sequence[tuple[str, Position]], what: str, where: str = "") -> None:
    seen: set[str] = set()
    for name, at in names:
        if name.lower() in seen:
            raise at.error(
                Code.INVALID_ARGUMENT, f"there are two {what}s {name}{where} (upper and lower case are the same)"
            )
        seen.add(name.lower())


def _find_columns(statement: CreateTable, names: Sequence[str], by_name: dict[str, Column], where: str) -> list[Column]:
    for name in names:
        if name.lower() not in by_name:
            raise statement.at.error(Code.NOT_FOUND, f"{where} names {name}, which is no column of {statement.name}")
    _refuse_twins([(name, statement.at) for name in names], "column", f" in {where}")
    return [by_name[name.lower()] for name in names]


def _hidden_key(
    statement: CreateTable, parent: Table | None, by_name: dict[str, Column], new_id: NewId
) -> tuple[list[Column], Column]:
    """The key of a table without one: the parent's, and a column of values that :func:`types.hidden_key` makes."""
    above = _names_of_parent_key(statement, parent) if parent else []
    missing = [name for name in above if name.lower() not in by_name]
    if missing:
        raise statement.at.error(
            Code.INVALID_ARGUMENT,
            f"{statement.name} is interleaved in {statement.parent} and needs the columns of its key: "
            + ", ".join(missing),
        )
    hidden = Column(new_id(), HIDDEN_KEY, ColumnType(Kind.BYTES), not_null=True, hidden=True, untracked=True)
    return [*(by_name[name.lower()] for name in above), hidden], hidden


def _names_of_parent_key(statement: CreateTable, parent: Table) -> list[str]:
    """Return what the columns that hold the parent's key are called here."""
    names = list(statement.parent_key) or [c.name for c in parent.key_columns]
    if len(names) != len(parent.key_columns):
        theirs = ", ".join(c.name for c in parent.key_columns)
        raise statement.at.error(
            Code.INVALID_ARGUMENT,
            f"INTERLEAVE IN PARENT {parent.name} names {len(names)} columns, its key has {len(parent.key_columns)} "
            f"({theirs})",
        )
    return names


def _check_key(statement: CreateTable, parent: Table | None, key: Sequence[Column]) -> None:
    if len(key) > MAX_KEY_COLUMNS:
        raise statement.at.error(Code.INVALID_ARGUMENT, f"a primary key has at most {MAX_KEY_COLUMNS} columns")
    for column in key:
        if column.type.kind is Kind.PROTO:
            raise statement.at.error(
                Code.INVALID_ARGUMENT, f"{column.name} is a proto column, which cannot be part of the primary key"
            )
    if parent is None:
        return
    if any(column.hidden for column in parent.key_columns):
        raise statement.at.error(
            Code.INVALID_ARGUMENT, f"{parent.name} has no primary key: nothing can be interleaved in it"
        )
    names = _names_of_parent_key(statement, parent)
    for position, (above, name) in enumerate(zip(parent.key_columns, names, strict=True)):
        own = key[position] if position < len(key) else None
        if own is None or own.name.lower() != name.lower():
            wanted = ", ".join(names)
            raise statement.at.error(
                Code.INVALID_ARGUMENT,
                f"the primary key of {statement.name} must begin with that of {parent.name}: ({wanted}, ...)",
            )
        if own.type != above.type:
            raise statement.at.error(
                Code.INVALID_ARGUMENT,
                f"the key column {own.name} is {own.type.sql()}, but {above.type.sql()} in the parent {parent.name}",
            )


def _build_checks(statement: CreateTable, by_name: dict[str, Column], new_id: NewId) -> tuple[Check, ...]:
    taken = {definition.name.lower() for definition in statement.checks if definition.name}
    _refuse_twins([(d.name, d.at) for d in statement.checks if d.name], "constraint")
    checks: list[Check] = []
    for definition in statement.checks:
        name, n = definition.name or f"{statement.name}_check", 0
        while not definition.name and name.lower() in taken:
            n += 1
            name = f"{statement.name}_check{n}"
        taken.add(name.lower())
        _check_condition(statement, definition, by_name)
        checks.append(Check(new_id(), name, definition.sql))
    return tuple(checks)


def _check_condition(statement: CreateTable, definition: CheckDef, by_name: dict[str, Column]) -> None:
    references = located(definition.at, lambda: expressions.column_references(definition.sql, "the CHECK"))
    for reference in references:
        qualified = len(reference) > 1 and reference[0].lower() == statement.name.lower()
        parts = reference[1:] if qualified and reference[0].lower() not in by_name else reference
        column = by_name.get(parts[0].lower())
        if column is None:
            raise definition.at.error(
                Code.NOT_FOUND, f"the CHECK uses {'.'.join(reference)}, which is no column of {statement.name}"
            )
        if len(parts) > 1 and column.type.kind is not Kind.PROTO:
            raise definition.at.error(Code.INVALID_ARGUMENT, f"{column.name} is no proto column: it has no fields")


def _build_locks(
    statement: CreateTable, by_name: dict[str, Column], key_ids: Sequence[int], new_id: NewId
) -> tuple[LockColumn, ...]:
    _refuse_twins([(definition.name, definition.at) for definition in statement.locks], "lock")
    covered: dict[int, str] = {}
    locks: list[LockColumn] = []
    for definition in statement.locks:
        locks.append(LockColumn(new_id(), definition.name, _lock_columns(statement, definition, by_name, key_ids)))
        for column_id in locks[-1].column_ids:
            if column_id in covered:
                raise definition.at.error(
                    Code.INVALID_ARGUMENT,
                    f"a column has one lock: not {covered[column_id]} and {definition.name}",
                )
            covered[column_id] = definition.name
    return tuple(locks)


def _lock_columns(
    statement: CreateTable, definition: LockDef, by_name: dict[str, Column], key_ids: Sequence[int]
) -> tuple[int, ...]:
    _refuse_reserved(definition.name, definition.at)
    if definition.name.lower() in by_name:
        raise definition.at.error(Code.INVALID_ARGUMENT, f"the lock {definition.name} has the name of a column")
    columns = _find_columns(statement, definition.columns, by_name, f"the lock {definition.name}")
    for column in columns:
        if column.id in key_ids:
            raise definition.at.error(Code.INVALID_ARGUMENT, f"{column.name} is part of the key, which never changes")
    return tuple(column.id for column in columns)


# Foreign keys.


def build_foreign_key(schema: Schema, table: Table, definition: ForeignKeyDef, new_id: NewId) -> ForeignKey:
    """Build a foreign key; its columns stand in the order of the key that it refers to.

    Raises F1Error NOT_FOUND, INVALID_ARGUMENT with the place in the source.
    """
    target = located(definition.references.at, lambda: schema.table(definition.references.table))
    own = [located(definition.at, lambda name=name: table.column(name)) for name in definition.columns]  # type: ignore[misc]
    names = definition.references.columns or tuple(c.name for c in target.key_columns if not c.hidden)
    theirs = [located(definition.references.at, lambda name=name: target.column(name)) for name in names]  # type: ignore[misc]
    if len(own) != len(theirs):
        raise definition.at.error(
            Code.INVALID_ARGUMENT, f"the foreign key has {len(own)} columns, what it refers to has {len(theirs)}"
        )
    pairs = {b.id: a for a, b in zip(own, theirs, strict=True)}
    if len(pairs) != len(own) or len({a.id for a in own}) != len(own):
        raise definition.at.error(Code.INVALID_ARGUMENT, "a foreign key has a column twice")
    order = _referenced_key(target, pairs)
    if order is None:
        shown = ", ".join(c.name for c in theirs)
        raise definition.at.error(
            Code.INVALID_ARGUMENT,
            f"({shown}) is neither the primary key of {target.name} nor the columns of a unique index of it",
        )
    for column_id in order:
        a, b = pairs[column_id], target.by_id[column_id]
        if a.type.kind is not b.type.kind:
            raise definition.at.error(
                Code.INVALID_ARGUMENT,
                f"{table.name}.{a.name} is {a.type.sql()}, but {target.name}.{b.name} is {b.type.sql()}",
            )
    name = definition.name or _free_constraint(table, "_".join([table.name, *(c.name for c in own), "fkey"]))
    if definition.name and name.lower() in {key.name.lower() for key in table.foreign_keys}:
        raise definition.at.error(Code.ALREADY_EXISTS, f"there are two constraints {name}")
    return ForeignKey(new_id(), name, tuple(pairs[i].id for i in order), target.id, order)


def _referenced_key(target: Table, pairs: dict[int, Column]) -> tuple[int, ...] | None:
    candidates = [target.key_column_ids]
    candidates += [
        tuple(p.column_id for p in i.parts)
        for i in target.indexes
        if i.unique and i.state is ElementState.PUBLIC and not any(p.path for p in i.parts)
    ]
    return next((key for key in candidates if len(key) == len(pairs) and set(key) == set(pairs)), None)


def _free_constraint(table: Table, wanted: str) -> str:
    taken = {key.name.lower() for key in table.foreign_keys}
    name, n = wanted, 0
    while name.lower() in taken:
        n += 1
        name = f"{wanted}{n}"
    return name


def has_prefix_access(table: Table, column_ids: Sequence[int]) -> bool:
    """Can the rows with given values of these columns be found by a prefix of the primary key or of an index?"""
    wanted = tuple(column_ids)
    if table.key_column_ids[: len(wanted)] == wanted:
        return True
    return any(
        tuple(p.column_id for p in index.parts[: len(wanted)]) == wanted
        and not any(p.path for p in index.parts[: len(wanted)])
        for index in table.indexes
    )


def foreign_keys_without_index(schema: Schema, table: Table) -> list[tuple[Table, ForeignKey]]:
    """Return the foreign keys, with their tables, that would lose an index that they need if ``table`` were so."""
    lost = [(table, key) for key in table.foreign_keys if not has_prefix_access(table, key.column_ids)]
    for other in schema.tables:
        holder = table if other.id == table.id else other
        for key in holder.foreign_keys:
            if key.referenced_table_id != table.id or (holder, key) in lost:
                continue
            targets = {i: table.by_id[i] for i in key.referenced_column_ids}
            if _referenced_key(table, targets) is None:
                lost.append((holder, key))
    return lost
