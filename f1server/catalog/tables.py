"""How the schema compiler builds one table, and a foreign key; the rules that both and the compiler use."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from f1common.errors import Code, F1Error
from f1server.catalog import expressions, protos
from f1server.catalog.ids import NewId
from f1server.catalog.schema import (
    Check,
    Column,
    ColumnType,
    ElementState,
    ForeignKey,
    Index,
    Kind,
    LockColumn,
    Schema,
    Table,
)
from f1server.catalog.statements import CheckDef, ColumnDef, CreateTable, ForeignKeyDef, LockDef, Position, UniqueDef
from f1server.catalog.types import HIDDEN_KEY, RESERVED_PREFIX

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
    refuse_reserved(name, at)
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


def refuse_reserved(name: str, at: Position) -> None:
    """Raise F1Error INVALID_ARGUMENT for a name that is the database's own."""
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
    columns = [build_column(schema, definition, new_id) for definition in statement.columns]
    _refuse_twins([(d.name, d.at) for d in statement.columns], "column")
    _refuse_twins(_named_constraints(statement), "constraint")
    by_name = {column.name.lower(): column for column in columns}
    if statement.key is None:
        key, hidden = _hidden_key(statement, parent, by_name, new_id)
        columns.append(hidden)
    else:
        key = find_columns(statement.name, statement.at, statement.key, by_name, "the primary key")
    check_key(statement, parent, key)
    key_ids = tuple(column.id for column in key)
    columns = [required(c) if c.id in key_ids else c for c in columns]
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
    return at.error(
        Code.FAILED_PRECONDITION,
        "RENAMED FROM is for the sources of `f1 schema apply`; here: ALTER TABLE ... RENAME",
    )


def build_column(schema: Schema, definition: ColumnDef, new_id: NewId) -> Column:
    """Build a column. Raises F1Error NOT_FOUND, INVALID_ARGUMENT with the place in the source."""
    refuse_reserved(definition.name, definition.at)
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


def required(column: Column) -> Column:
    """Return the column with NOT NULL."""
    return replace(column, not_null=True)


def _refuse_twins(names: Sequence[tuple[str, Position]], what: str, where: str = "") -> None:
    seen: set[str] = set()
    for name, at in names:
        if name.lower() in seen:
            raise at.error(
                Code.INVALID_ARGUMENT, f"there are two {what}s {name}{where} (upper and lower case are the same)"
            )
        seen.add(name.lower())


def find_columns(
    table: str, at: Position, names: Sequence[str], by_name: Mapping[str, Column], where: str
) -> list[Column]:
    """Return columns by name. Raises F1Error NOT_FOUND, INVALID_ARGUMENT for one that is named twice."""
    for name in names:
        if name.lower() not in by_name:
            raise at.error(Code.NOT_FOUND, f"{where} names {name}, which is no column of {table}")
    _refuse_twins([(name, at) for name in names], "column", f" in {where}")
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


def check_key(statement: CreateTable, parent: Table | None, key: Sequence[Column]) -> None:
    """Raise F1Error INVALID_ARGUMENT for what can be no primary key, or none of a table below ``parent``."""
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


# Constraints and locks, whose names are one space in each table.


def constraints(table: Table) -> tuple[Check | ForeignKey | LockColumn | Index, ...]:
    """Return the table's checks, foreign keys, locks and unique indexes, in whatever state."""
    unique = [index for index in table.indexes if index.unique]
    return (*table.checks, *table.foreign_keys, *table.locks, *unique)


def constraint_names(table: Table) -> set[str]:
    """Return the names of the table's :func:`constraints`, in lower case."""
    return {constraint.name.lower() for constraint in constraints(table)}


def _named_constraints(statement: CreateTable) -> list[tuple[str, Position]]:
    definitions: tuple[CheckDef | ForeignKeyDef | UniqueDef | LockDef, ...] = (
        *statement.checks,
        *statement.foreign_keys,
        *statement.uniques,
        *statement.locks,
    )
    return [(definition.name, definition.at) for definition in definitions if definition.name]


def _build_checks(statement: CreateTable, by_name: Mapping[str, Column], new_id: NewId) -> tuple[Check, ...]:
    taken = {name.lower() for name, _ in _named_constraints(statement)}
    checks: list[Check] = []
    for definition in statement.checks:
        checks.append(build_check(statement.name, definition, by_name, () if definition.name else taken, new_id))
        taken.add(checks[-1].name.lower())
    return tuple(checks)


def build_check(
    table: str, definition: CheckDef, by_name: Mapping[str, Column], taken: Collection[str], new_id: NewId
) -> Check:
    """Build a check; ``by_name``: the table's columns by lower-case name, ``taken``: names of its constraints.

    Raises F1Error ALREADY_EXISTS, NOT_FOUND, INVALID_ARGUMENT with the place in the source.
    """
    if definition.name.lower() in taken:
        raise definition.at.error(Code.ALREADY_EXISTS, f"there is a constraint {definition.name} already")
    _check_condition(table, definition, by_name)
    return Check(new_id(), definition.name or _free_constraint(taken, f"{table}_check"), definition.sql)


def _check_condition(table: str, definition: CheckDef, by_name: Mapping[str, Column]) -> None:
    references = located(definition.at, lambda: expressions.column_references(definition.sql, "the CHECK"))
    for reference in references:
        parts = reference[expressions.column_part(reference, table, by_name) :]
        column = by_name.get(parts[0].lower())
        if column is None:
            raise definition.at.error(
                Code.NOT_FOUND, f"the CHECK uses {'.'.join(reference)}, which is no column of {table}"
            )
        if len(parts) > 1 and column.type.kind is not Kind.PROTO:
            raise definition.at.error(Code.INVALID_ARGUMENT, f"{column.name} is no proto column: it has no fields")


def _build_locks(
    statement: CreateTable, by_name: Mapping[str, Column], key_ids: Sequence[int], new_id: NewId
) -> tuple[LockColumn, ...]:
    locks: list[LockColumn] = []
    for definition in statement.locks:
        locks.append(build_lock(statement.name, definition, by_name, key_ids, locks, new_id))
    return tuple(locks)


def build_lock(
    table: str,
    definition: LockDef,
    by_name: Mapping[str, Column],
    key_ids: Sequence[int],
    others: Sequence[LockColumn],
    new_id: NewId,
) -> LockColumn:
    """Build a lock beside ``others``. Raises F1Error NOT_FOUND, INVALID_ARGUMENT with the place in the source."""
    refuse_reserved(definition.name, definition.at)
    if definition.name.lower() in by_name:
        raise definition.at.error(Code.INVALID_ARGUMENT, f"the lock {definition.name} has the name of a column")
    columns = find_columns(table, definition.at, definition.columns, by_name, f"the lock {definition.name}")
    for column in columns:
        if column.id in key_ids:
            raise definition.at.error(Code.INVALID_ARGUMENT, f"{column.name} is part of the key, which never changes")
        cover = next((lock.name for lock in others if column.id in lock.column_ids), "")
        if cover:
            raise definition.at.error(
                Code.INVALID_ARGUMENT, f"a column has one lock: {column.name} not {cover} and {definition.name}"
            )
    return LockColumn(new_id(), definition.name, tuple(column.id for column in columns))


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
    order = referenced_key(target, pairs)
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
    taken = constraint_names(table)
    if definition.name.lower() in taken:
        raise definition.at.error(Code.ALREADY_EXISTS, f"there is a constraint {definition.name} already")
    name = definition.name or _free_constraint(taken, "_".join([table.name, *(c.name for c in own), "fkey"]))
    return ForeignKey(new_id(), name, tuple(pairs[i].id for i in order), target.id, order)


def referenced_key(target: Table, column_ids: Collection[int]) -> tuple[int, ...] | None:
    """Return the key of ``target`` that consists of these columns, in its order; None: they are no key."""
    candidates = [target.key_column_ids]
    candidates += [
        tuple(p.column_id for p in i.parts)
        for i in target.indexes
        if i.unique and i.state is ElementState.PUBLIC and not any(p.path for p in i.parts)
    ]
    return next((key for key in candidates if len(key) == len(column_ids) and set(key) == set(column_ids)), None)


def _free_constraint(taken: Collection[str], wanted: str) -> str:
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
            if referenced_key(table, key.referenced_column_ids) is None:
                lost.append((holder, key))
    return lost
