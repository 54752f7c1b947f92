"""What ALTER TABLE does to columns (F1 sections 3.1 to 3.3)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from f1common.errors import Code, F1Error
from f1server.catalog import expressions, rewrites, tables
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
    View,
)
from f1server.catalog.statements import (
    AddColumn,
    AlterColumnType,
    ColumnAction,
    DropColumn,
    DropDefault,
    DropNotNull,
    Position,
    RenameColumn,
    SetDefault,
    SetNotNull,
    SetTracked,
)
from f1server.catalog.working import WorkingSchema

_COPY = "create a new table and copy with INSERT ... SELECT"


def visible_by_name(table: Table) -> dict[str, Column]:
    """Return the columns that statements may name, by lower-case name."""
    return {column.name.lower(): column for column in table.visible}


def _put_column(work: WorkingSchema, table: Table, column: Column) -> None:
    work.put(replace(table, columns=tuple(column if c.id == column.id else c for c in table.columns)))


def _find(table: Table, name: str, at: Position) -> Column:
    """Find a column that may be altered. Raises F1Error NOT_FOUND, FAILED_PRECONDITION, INVALID_ARGUMENT."""
    column = tables.located(at, lambda: _any_state(table, name) or table.column(name))
    if column.hidden:
        raise at.error(Code.INVALID_ARGUMENT, f"{column.name} is the key that the server makes: it stays as it is")
    if column.state is not ElementState.PUBLIC:
        raise at.error(Code.FAILED_PRECONDITION, _half_done(table, column))
    return column


def _any_state(table: Table, name: str) -> Column | None:
    """Find a column in whatever state; the public one if an older one of the name is being dropped."""
    named = [column for column in table.columns if column.name.lower() == name.lower()]
    return max(named, key=lambda column: column.state, default=None)


def _half_done(table: Table, column: Column) -> str:
    return (
        f"{table.name}.{column.name} is being added or dropped by another schema change: try again when it is done; "
        f"DROP COLUMN {column.name} removes one that was left behind"
    )


def _check_new_column(table: Table, name: str, at: Position) -> None:
    tables.refuse_reserved(name, at)
    other = _any_state(table, name)
    if other is not None and other.state is not ElementState.PUBLIC:
        raise at.error(Code.FAILED_PRECONDITION, _half_done(table, other))
    if other is not None:
        raise at.error(Code.ALREADY_EXISTS, f"there is a column {table.name}.{other.name} already")
    if name.lower() in {lock.name.lower() for lock in table.locks}:
        raise at.error(Code.ALREADY_EXISTS, f"{table.name} has a lock {name}: a column needs another name")


# ADD COLUMN.


def add_column(work: WorkingSchema, table: Table, action: AddColumn) -> bool:
    """Add a column at the end, without its constraints; return False if there is one and IF NOT EXISTS was said."""
    definition = action.column
    existing = _any_state(table, definition.name)
    if action.if_not_exists and existing is not None and existing.state is ElementState.PUBLIC:
        return False
    _check_new_column(table, definition.name, definition.at)
    if len(table.columns) >= tables.MAX_COLUMNS:
        raise action.at.error(Code.INVALID_ARGUMENT, f"a table has at most {tables.MAX_COLUMNS} columns")
    column = tables.build_column(work.schema, definition, work.new_id)
    work.put(replace(table, columns=(*table.columns, column)))
    return True


# ALTER COLUMN.


def alter_column(work: WorkingSchema, table: Table, action: ColumnAction) -> None:
    """Change a column. Raises F1Error NOT_FOUND, INVALID_ARGUMENT, FAILED_PRECONDITION with the place."""
    column = _find(table, action.name, action.at)
    match action:
        case AlterColumnType():
            _set_type(work, table, column, action)
        case SetNotNull():
            _put_column(work, table, replace(column, not_null=True))
        case DropNotNull():
            if column.id in table.key_column_ids:
                raise action.at.error(
                    Code.FAILED_PRECONDITION, f"{column.name} is part of the primary key, which is NOT NULL"
                )
            _put_column(work, table, replace(column, not_null=False))
        case SetDefault():
            what = f"the default of {column.name}"
            tables.located(action.at, lambda: expressions.check_default(action.sql, column.type.kind, what))
            _put_column(work, table, replace(column, default_sql=action.sql))
        case DropDefault():
            _put_column(work, table, replace(column, default_sql=""))
        case SetTracked():
            _put_column(work, table, replace(column, untracked=action.untracked))
        case _:
            assert_never(action)


def _set_type(work: WorkingSchema, table: Table, column: Column, action: AlterColumnType) -> None:
    """Widen a column's type; in a key, with the columns of children that hold it."""
    if not widens(column.type, action.type):
        raise action.at.error(
            Code.FAILED_PRECONDITION,
            f"{table.name}.{column.name} is {column.type.sql()}, which does not become {action.type.sql()}: only more "
            "characters of VARCHAR, and more digits before the point of DECIMAL, keep the stored values as they are; "
            "add a column of the new type, copy with UPDATE, and drop this one",
        )
    parent = work.schema.by_id[table.parent_id] if table.parent_id else None
    position = table.key_column_ids.index(column.id) if column.id in table.key_column_ids else None
    if parent is not None and position is not None and position < len(parent.key_column_ids):
        if column.type == action.type:
            return
        raise action.at.error(
            Code.FAILED_PRECONDITION,
            f"{column.name} holds a part of the key of {parent.name}: alter it in {work.schema.root(table).name}, and "
            "the tables below follow",
        )
    _put_column(work, table, replace(column, type=action.type))
    for below in work.schema.descendants(table) if position is not None else ():
        held = below.key_columns[position or 0]
        _put_column(work, below, replace(held, type=action.type))


def widens(old: ColumnType, new: ColumnType) -> bool:
    """Is every value of the old type one of the new type, stored as the same bytes and shown as the same text?"""
    if old == new:
        return True
    if old.kind is not new.kind:
        return False
    if old.kind is Kind.STRING:
        return old.max_length > 0 and (not new.max_length or new.max_length >= old.max_length)
    if old.kind is Kind.NUMERIC:
        return 0 < old.precision <= new.precision and old.scale == new.scale
    return False


# RENAME COLUMN.


def rename_column(work: WorkingSchema, table: Table, action: RenameColumn) -> None:
    """Rename a column, also in checks. Raises F1Error FAILED_PRECONDITION for what cannot be rewritten."""
    column = _find(table, action.name, action.at)
    if action.to.lower() != column.name.lower():
        _check_new_column(table, action.to, action.at)
    users = _views_using(work.schema, table, column)
    if users:
        names = ", ".join(view.name for view in users)
        raise action.at.error(
            Code.FAILED_PRECONDITION,
            f"{table.name}.{column.name} is used by the views {names}; drop them, rename, and create them again",
        )
    columns = set(visible_by_name(table))
    checks = []
    for check in table.checks:
        sql = rewrites.check_with_column(check.sql, table.name, columns, column.name, action.to)
        if sql is None:
            raise refuse_rewrite(action.at, check, table)
        checks.append(replace(check, sql=sql))
    renamed = replace(table, checks=tuple(checks))
    _put_column(work, renamed, replace(column, name=action.to))


def refuse_rewrite(at: Position, check: Check, table: Table) -> F1Error:
    """Return the error of a rename that a check stands against."""
    return at.error(
        Code.FAILED_PRECONDITION,
        f"the check {check.name} of {table.name} would mean something else; drop it, rename, and add it again",
    )


# DROP COLUMN.


@dataclass(frozen=True, slots=True)
class _Users:
    """What goes with a column."""

    indexes: Sequence[Index]
    checks: Sequence[Check]
    locks: Sequence[LockColumn]
    foreign_keys: Sequence[tuple[Table, ForeignKey]]
    views: Sequence[View]

    def shown(self) -> str:
        names = [f"the index {index.name}" for index in self.indexes]
        names += [f"the check {check.name}" for check in self.checks]
        names += [f"the lock {lock.name}" for lock in self.locks]
        names += [f"the foreign key {key.name} of {holder.name}" for holder, key in self.foreign_keys]
        return ", ".join(names + [f"the view {view.name}" for view in self.views])


def drop_column(work: WorkingSchema, table: Table, action: DropColumn) -> None:
    """Remove a column, whatever its state. Raises F1Error NOT_FOUND, INVALID_ARGUMENT, FAILED_PRECONDITION."""
    column = _any_state(table, action.name)
    if column is None and action.if_exists:
        return
    if column is None or column.state is ElementState.PUBLIC:
        column = _find(table, action.name, action.at)
    if column.id in table.key_column_ids:
        raise action.at.error(
            Code.FAILED_PRECONDITION, f"{column.name} is part of the primary key of {table.name}, which stays; {_COPY}"
        )
    if table.visible == (column,):
        raise action.at.error(
            Code.FAILED_PRECONDITION, f"{column.name} is the only column of {table.name}; DROP TABLE drops both"
        )
    users = _users(work.schema, table, column)
    if users.shown() and not action.cascade:
        raise action.at.error(
            Code.FAILED_PRECONDITION,
            f"{table.name}.{column.name} is used by {users.shown()}; DROP COLUMN {column.name} CASCADE drops all of it",
        )
    _remove(work, table, column, users, action.at)


def _remove(work: WorkingSchema, table: Table, column: Column, users: _Users, at: Position) -> None:
    for holder, key in users.foreign_keys:
        work.drop_foreign_key(holder.id, key)
    table = work.schema.by_id[table.id]
    after = replace(
        table,
        columns=tuple(c for c in table.columns if c.id != column.id),
        indexes=tuple(i for i in table.indexes if i not in users.indexes),
        checks=tuple(c for c in table.checks if c not in users.checks),
        locks=tuple(x for x in table.locks if x not in users.locks),
    )
    lost = tables.foreign_keys_without_index(work.schema, after)
    work.put(after)
    for holder, key in lost:
        target = work.schema.by_id[key.referenced_table_id]
        if tables.referenced_key(target, key.referenced_column_ids) is None:
            work.drop_foreign_key(holder.id, key)
        else:
            # Its index had the column beside its own: it needs another one.
            work.index_foreign_key(work.schema.by_id[holder.id], key.column_ids, at)
    for view in users.views:
        work.remove_view(view.name.lower())
        work.drop_views_of({view.name.lower()}, True, at)


def _users(schema: Schema, table: Table, column: Column) -> _Users:
    columns = set(visible_by_name(table)) | {column.name.lower()}
    indexes = [
        index
        for index in table.indexes
        if column.id in index.storing or any(part.column_id == column.id for part in index.parts)
    ]
    # A column that is not public has no part in checks and views: the name in them is of another one.
    public = column.state is ElementState.PUBLIC
    return _Users(
        indexes,
        [c for c in table.checks if public and rewrites.check_uses(c.sql, table.name, columns, column.name)],
        [lock for lock in table.locks if column.id in lock.column_ids],
        [(holder, key) for holder in schema.tables for key in holder.foreign_keys if _uses(holder, key, table, column)],
        _views_using(schema, table, column) if public else [],
    )


def _uses(holder: Table, key: ForeignKey, table: Table, column: Column) -> bool:
    own = holder.id == table.id and column.id in key.column_ids
    return own or (key.referenced_table_id == table.id and column.id in key.referenced_column_ids)


def _views_using(schema: Schema, table: Table, column: Column) -> list[View]:
    reading = [v for v in schema.views if table.name.lower() in expressions.relations_used(v.sql)]
    return [view for view in reading if rewrites.view_uses(view.sql, column.name)]
