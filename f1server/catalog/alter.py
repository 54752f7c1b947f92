"""ALTER in the schema compiler: what a table, an index or a view is wanted to be afterwards.

Elements that stay keep their ids, also under another name. Only public elements are altered: others are being built or
dropped by another change. They can be dropped, if that change was left behind.
"""

import difflib
from dataclasses import replace
from typing import assert_never

from f1common.errors import Code, F1Error
from f1server.catalog import expressions, rewrites, tables
from f1server.catalog.altercolumns import (
    add_column,
    alter_column,
    drop_column,
    refuse_rewrite,
    rename_column,
    visible_by_name,
)
from f1server.catalog.schema import Check, ElementState, ForeignKey, Index, LockColumn, Table
from f1server.catalog.statements import (
    AddCheck,
    AddColumn,
    AddForeignKey,
    AddLock,
    AddUnique,
    Alteration,
    AlterColumnType,
    AlterIndex,
    AlterLock,
    AlterTable,
    AlterView,
    CheckDef,
    CreateTable,
    DropColumn,
    DropConstraint,
    DropDefault,
    DropNotNull,
    LockDef,
    Position,
    RenameColumn,
    RenameTable,
    SetDefault,
    SetNotNull,
    SetOptions,
    SetPrimaryKey,
    SetTracked,
    TableAction,
    UniqueDef,
)
from f1server.catalog.tables import check_new_name
from f1server.catalog.working import WorkingSchema


def alter(work: WorkingSchema, statement: Alteration) -> None:
    """Apply an ALTER.

    Raises F1Error NOT_FOUND, ALREADY_EXISTS, INVALID_ARGUMENT, FAILED_PRECONDITION with the place in the source.
    """
    match statement:
        case AlterTable():
            table = _table(work, statement)
            if table is not None:
                for action in statement.actions:
                    _apply(work, work.schema.by_id[table.id], action)
        case AlterIndex():
            _rename_index(work, statement)
        case AlterView():
            _rename_view(work, statement)
        case _:
            assert_never(statement)


def _table(work: WorkingSchema, statement: AlterTable) -> Table | None:
    lower = statement.name.lower()
    named = [t for t in work.schema.tables if t.name.lower() == lower]
    if not named and lower in work.schema.views_by_name:
        raise statement.at.error(Code.INVALID_ARGUMENT, f"{statement.name} is a view: ALTER VIEW renames it")
    if not named and statement.if_exists:
        return None
    if named and named[0].state is not ElementState.PUBLIC:
        raise _half_done(statement.at, f"the table {named[0].name}")
    return tables.located(statement.at, lambda: work.schema.table(statement.name))


def _half_done(at: Position, what: str) -> F1Error:
    return at.error(
        Code.FAILED_PRECONDITION,
        f"{what} is being created or dropped by another schema change: try again when it is done; DROP removes what "
        "was left behind",
    )


def _apply(work: WorkingSchema, table: Table, action: TableAction) -> None:
    match action:
        case AddColumn():
            _add_column(work, table, action)
        case DropColumn():
            drop_column(work, table, action)
        case AlterColumnType() | SetNotNull() | DropNotNull() | SetDefault() | DropDefault() | SetTracked():
            alter_column(work, table, action)
        case RenameTable():
            _rename_table(work, table, action)
        case RenameColumn():
            rename_column(work, table, action)
        case AddCheck(check):
            _add_check(work, table, check)
        case AddForeignKey(key):
            work.await_foreign_key(table.id, key)
        case AddUnique(unique):
            _add_unique(work, table, unique)
        case AddLock(lock):
            _add_lock(work, table, lock)
        case AlterLock(lock):
            _alter_lock(work, table, lock)
        case DropConstraint():
            _drop_constraint(work, table, action)
        case SetOptions():
            _set_options(work, table, action)
        case SetPrimaryKey():
            _set_primary_key(work, table, action)
        case _:
            assert_never(action)


# Constraints and locks.


def _add_column(work: WorkingSchema, table: Table, action: AddColumn) -> None:
    if not add_column(work, table, action):
        return
    for unique in action.uniques:
        _add_unique(work, work.schema.by_id[table.id], unique)
    for check in action.checks:
        _add_check(work, work.schema.by_id[table.id], check)
    for key in action.foreign_keys:
        work.await_foreign_key(table.id, key)


def _refuse_taken(table: Table, name: str, at: Position) -> None:
    if name.lower() in tables.constraint_names(table):
        raise at.error(Code.ALREADY_EXISTS, f"there is a constraint {name} of {table.name} already")


def _add_check(work: WorkingSchema, table: Table, definition: CheckDef) -> None:
    taken = tables.constraint_names(table)
    check = tables.build_check(table.name, definition, visible_by_name(table), taken, work.new_id)
    work.put(replace(table, checks=(*table.checks, check)))


def _add_unique(work: WorkingSchema, table: Table, definition: UniqueDef) -> None:
    _refuse_taken(table, definition.name, definition.at)
    work.add_unique(table.id, definition)


def _add_lock(work: WorkingSchema, table: Table, definition: LockDef) -> None:
    _refuse_taken(table, definition.name, definition.at)
    by_name = visible_by_name(table)
    lock = tables.build_lock(table.name, definition, by_name, table.key_column_ids, table.locks, work.new_id)
    work.put(replace(table, locks=(*table.locks, lock)))


def _alter_lock(work: WorkingSchema, table: Table, definition: LockDef) -> None:
    """Let a lock cover other columns: it takes them from the locks that they have, and leaves its own to the row's."""
    at = definition.at
    known = next((lock for lock in table.locks if lock.name.lower() == definition.name.lower()), None)
    if known is None:
        raise at.error(Code.NOT_FOUND, f"{table.name} has no lock {definition.name}")
    by_name, key = visible_by_name(table), table.key_column_ids
    wanted = set(tables.build_lock(table.name, definition, by_name, key, (), lambda: known.id).column_ids)
    locks = []
    for lock in table.locks:
        taken = wanted.intersection(lock.column_ids)
        if lock.state is not ElementState.PUBLIC and (lock.id == known.id or taken):
            raise _half_done(at, f"the lock {lock.name}")
        if lock.id == known.id:
            kept = [i for i in lock.column_ids if i in wanted]
            lock = replace(lock, column_ids=(*kept, *sorted(wanted.difference(kept))))
        elif taken:
            lock = replace(lock, column_ids=tuple(i for i in lock.column_ids if i not in taken))
            if not lock.column_ids:
                raise at.error(
                    Code.INVALID_ARGUMENT,
                    f"the lock {lock.name} would cover no column any more: put DROP CONSTRAINT {lock.name} before it",
                )
        locks.append(lock)
    work.put(replace(table, locks=tuple(locks)))


def _drop_constraint(work: WorkingSchema, table: Table, action: DropConstraint) -> None:
    known = tables.constraints(table)
    match next((c for c in known if c.name.lower() == action.name.lower()), None):
        case Index() as index:
            work.drop_index(table, index, action.cascade, action.at)
        case ForeignKey() as key:
            work.drop_foreign_key(table.id, key)
        case Check(check_id):
            work.put(replace(table, checks=tuple(c for c in table.checks if c.id != check_id)))
        case LockColumn(lock_id):
            work.put(replace(table, locks=tuple(lock for lock in table.locks if lock.id != lock_id)))
        case None:
            if not action.if_exists:
                raise _no_constraint(table, action, [c.name for c in known])


def _no_constraint(table: Table, action: DropConstraint, known: list[str]) -> F1Error:
    if action.name.lower() in {index.name.lower() for index in table.indexes}:
        return action.at.error(Code.INVALID_ARGUMENT, f"{action.name} is an index: DROP INDEX drops it")
    by_lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(action.name.lower(), list(by_lower), n=1)
    hint = f"; did you mean {by_lower[close[0]]}?" if close else ""
    return action.at.error(Code.NOT_FOUND, f"{table.name} has no constraint and no lock {action.name}{hint}")


def _set_options(work: WorkingSchema, table: Table, action: SetOptions) -> None:
    if action.cascade is not None and not table.parent_id:
        raise action.at.error(
            Code.INVALID_ARGUMENT, f"{table.name} is not interleaved in a table whose rows could be deleted"
        )
    cascade = table.cascade if action.cascade is None else action.cascade
    untracked = table.untracked if action.untracked is None else action.untracked
    work.put(replace(table, cascade=cascade, untracked=untracked))


def _set_primary_key(work: WorkingSchema, table: Table, action: SetPrimaryKey) -> None:
    """Give a table another place: its rows get other keys. Local indexes become global ones if they cannot stay."""
    parent = tables.located(action.at, lambda: work.schema.table(action.parent)) if action.parent else None
    by_name = visible_by_name(table)
    key = tables.find_columns(table.name, action.at, action.key, by_name, "the primary key")
    form = CreateTable(table.name, key=action.key, parent=action.parent, at=action.at, parent_key=action.parent_key)
    tables.check_key(form, parent, key)
    if parent is not None and len(work.schema.ancestors(parent)) >= tables.MAX_DEPTH:
        raise action.at.error(Code.INVALID_ARGUMENT, f"tables are interleaved at most {tables.MAX_DEPTH} deep")
    if parent is not None and table in work.schema.ancestors(parent):
        raise action.at.error(Code.INVALID_ARGUMENT, f"{parent.name} is {table.name}, or interleaved in it")
    key_ids = tuple(column.id for column in key)
    moved = replace(
        table,
        parent_id=parent.id if parent is not None else 0,
        key_column_ids=key_ids,
        cascade=action.cascade,
        columns=tuple(tables.required(c) if c.id in key_ids else c for c in table.columns),
    )
    work.put(moved)
    root_width = len(work.schema.root(moved).key_column_ids)
    root_key = [(i, ()) for i in key_ids[:root_width]]
    indexes = tuple(
        replace(
            index,
            local=index.local and [(p.column_id, p.path) for p in index.parts[:root_width]] == root_key,
            storing=tuple(i for i in index.storing if i not in key_ids),
        )
        for index in table.indexes
    )
    work.put(replace(moved, indexes=indexes))


# Renames.


def _check_rename(work: WorkingSchema, old: str, new: str, at: Position) -> None:
    """Another spelling of its own name is free."""
    if old.lower() != new.lower():
        check_new_name(work.schema, new, at)


def _rename_table(work: WorkingSchema, table: Table, action: RenameTable) -> None:
    _check_rename(work, table.name, action.to, action.at)
    columns = set(visible_by_name(table))
    checks = []
    for check in table.checks:
        sql = rewrites.check_with_table(check.sql, columns, table.name, action.to)
        if sql is None:
            raise refuse_rewrite(action.at, check, table)
        checks.append(replace(check, sql=sql))
    work.put(replace(table, name=action.to, checks=tuple(checks)))
    _rename_in_views(work, table.name, action.to, action.at)


def _rename_in_views(work: WorkingSchema, old: str, new: str, at: Position) -> None:
    if old.lower() == new.lower():
        return
    for view in work.schema.views:
        if old.lower() not in expressions.relations_used(view.sql):
            continue
        sql = rewrites.view_with_relation(view.sql, old, new)
        if sql is None:
            raise at.error(
                Code.FAILED_PRECONDITION,
                f"the view {view.name} reads from {old} in a way that cannot be rewritten; drop it, rename, and "
                "create it again",
            )
        work.put_view(replace(view, sql=sql), view.name.lower())


def _rename_index(work: WorkingSchema, statement: AlterIndex) -> None:
    found = work.find_index(statement.name)
    if found is None:
        if statement.if_exists:
            return
        raise statement.at.error(Code.NOT_FOUND, f"there is no index {statement.name}")
    table, index = found
    if index.state is not ElementState.PUBLIC:
        raise _half_done(statement.at, f"the index {index.name}")
    _check_rename(work, index.name, statement.to, statement.at)
    if index.unique and statement.to.lower() != index.name.lower():
        _refuse_taken(table, statement.to, statement.at)
    renamed = replace(index, name=statement.to)
    work.put(replace(table, indexes=tuple(renamed if i.id == index.id else i for i in table.indexes)))


def _rename_view(work: WorkingSchema, statement: AlterView) -> None:
    view = work.schema.views_by_name.get(statement.name.lower())
    if view is None:
        if statement.if_exists:
            return
        is_table = statement.name.lower() in work.schema.by_name
        message = f"{statement.name} is a table: ALTER TABLE alters it" if is_table else ""
        raise statement.at.error(
            Code.INVALID_ARGUMENT if is_table else Code.NOT_FOUND, message or f"there is no view {statement.name}"
        )
    _check_rename(work, view.name, statement.to, statement.at)
    work.put_view(replace(view, name=statement.to), view.name.lower())
    _rename_in_views(work, view.name, statement.to, statement.at)
