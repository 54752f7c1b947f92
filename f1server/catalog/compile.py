"""The schema compiler: DDL statements, looked up and checked, make the next schema (F1 sections 3.1 to 3.3).

The result is the schema as wanted, everything in it public. How a live database gets there, over which intermediate
states, is the matter of :mod:`f1server.schemachange.steps.diff`.

Ids are drawn for tables first, roots before children: the first range map of a cluster deals root tables with low ids
to its groups in turn.
"""

from collections.abc import Sequence
from dataclasses import replace

from f1common.errors import Code
from f1server.catalog import alter, protos, tables
from f1server.catalog.alterroles import alter_roles
from f1server.catalog.ids import NewId
from f1server.catalog.schema import Schema, Table, View
from f1server.catalog.statements import (
    AlterIndex,
    AlterTable,
    AlterView,
    CreateIndex,
    CreateTable,
    CreateView,
    DropIndex,
    DropTable,
    DropView,
    SchemaStatement,
)
from f1server.catalog.tables import check_new_name
from f1server.catalog.working import WorkingSchema

__all__ = ["NewId", "compile_sources", "compile_statements"]


def compile_statements(schema: Schema, statements: Sequence[SchemaStatement], new_id: NewId) -> Schema:
    """Return ``schema`` after ``statements``, in order; foreign keys may refer to tables that are created later.

    ``new_id`` is called for each id that is needed. Raises F1Error ALREADY_EXISTS, NOT_FOUND, INVALID_ARGUMENT,
    FAILED_PRECONDITION, with the place in the source.
    """
    return _Compiler(schema, new_id).run(statements)


def compile_sources(
    database: str,
    statements: Sequence[SchemaStatement],
    proto_files: Sequence[tuple[str, str]],
    new_id: NewId,
) -> Schema:
    """Compile a description of a whole database, from nothing. Errors as for :func:`compile_statements`."""
    files = tuple(sorted(proto_files))
    empty = Schema(database, proto_files=files, descriptor_set=protos.compile_files(files))
    return compile_statements(empty, statements, new_id)


class _Compiler:
    """The schema while statements are applied to it."""

    def __init__(self, schema: Schema, new_id: NewId) -> None:
        self._work = WorkingSchema(schema, new_id)
        self._table_ids: dict[int, int] = {}

    def run(self, statements: Sequence[SchemaStatement]) -> Schema:
        self._draw_table_ids(statements)
        for position, statement in enumerate(statements):
            match statement:
                case CreateTable():
                    self._create_table(statement, position)
                case CreateIndex():
                    self._work.create_index(statement)
                case CreateView():
                    self._create_view(statement)
                case DropTable():
                    self._drop_tables(statement)
                case DropIndex():
                    self._drop_indexes(statement)
                case DropView():
                    self._drop_views(statement)
                case AlterTable() | AlterIndex() | AlterView():
                    self._work.add_known_foreign_keys()
                    alter.alter(self._work, statement)
                case _:
                    self._work.schema = alter_roles(self._work.schema, statement, self._work.new_id)
        self._work.add_foreign_keys()
        return self._work.schema

    def _draw_table_ids(self, statements: Sequence[SchemaStatement]) -> None:
        known = set(self._work.schema.by_name)
        created = [(i, s) for i, s in enumerate(statements) if isinstance(s, CreateTable)]
        wanted = [(i, s) for i, s in created if not (s.if_not_exists and s.name.lower() in known)]
        for i, _ in sorted(wanted, key=lambda item: (item[1].parent != "", item[0])):
            self._table_ids[i] = self._work.new_id()

    # ------------------------------------------------------------------ tables

    def _create_table(self, statement: CreateTable, position: int) -> None:
        if statement.if_not_exists and statement.name.lower() in self._work.schema.by_name:
            return
        check_new_name(self._work.schema, statement.name, statement.at)
        if statement.as_query:
            raise statement.at.error(Code.FAILED_PRECONDITION, "CREATE TABLE AS needs a server that runs the query")
        table_id = self._table_ids.get(position) or self._work.new_id()
        self._work.put(tables.build_table(self._work.schema, statement, table_id, self._work.new_id))
        for unique in statement.uniques:
            self._work.add_unique(table_id, unique)
        for key in statement.foreign_keys:
            self._work.await_foreign_key(table_id, key)

    def _drop_tables(self, statement: DropTable) -> None:
        going: dict[int, Table] = {}
        for name in statement.names:
            table = self._find_any_table(name, statement)
            if table is not None:
                going[table.id] = table
        for table in list(going.values()):
            for child in self._work.schema.descendants(table):
                if child.id not in going and not statement.cascade:
                    raise statement.at.error(
                        Code.FAILED_PRECONDITION,
                        f"the table {child.name} is interleaved in {table.name}; DROP TABLE ... CASCADE drops both",
                    )
                going[child.id] = child
        self._drop_dependents(going, statement)
        kept = tuple(t for t in self._work.schema.tables if t.id not in going)
        gone = [t.name.lower() for t in going.values()]
        self._work.schema = replace(self._work.schema, tables=kept, dropped=_remember(self._work.schema.dropped, gone))
        self._work.forget_foreign_keys(list(going))

    def _find_any_table(self, name: str, statement: DropTable) -> Table | None:
        """Find a table in whatever state: one whose creation stopped half-way must be droppable."""
        for table in self._work.schema.tables:
            if table.name.lower() == name.lower():
                return table
        if statement.if_exists:
            return None
        if name.lower() in self._work.schema.views_by_name:
            raise statement.at.error(Code.INVALID_ARGUMENT, f"{name} is a view: DROP VIEW drops it")
        return tables.located(statement.at, lambda: self._work.schema.table(name))

    def _drop_dependents(self, going: dict[int, Table], statement: DropTable) -> None:
        for table in self._work.schema.tables:
            referring = [k for k in table.foreign_keys if k.referenced_table_id in going and table.id not in going]
            if referring and not statement.cascade:
                target = going[referring[0].referenced_table_id].name
                raise statement.at.error(
                    Code.FAILED_PRECONDITION,
                    f"the foreign key {referring[0].name} of {table.name} refers to {target}; "
                    "DROP TABLE ... CASCADE drops it too",
                )
            if referring:
                self._work.put(replace(table, foreign_keys=tuple(k for k in table.foreign_keys if k not in referring)))
        self._work.drop_views_of({t.name.lower() for t in going.values()}, statement.cascade, statement.at)

    # ------------------------------------------------------------------ indexes and views

    def _drop_indexes(self, statement: DropIndex) -> None:
        for name in statement.names:
            found = self._work.find_index(name)
            if found is None:
                if statement.if_exists:
                    continue
                raise statement.at.error(Code.NOT_FOUND, f"there is no index {name}")
            self._work.drop_index(*found, statement.cascade, statement.at)

    def _create_view(self, statement: CreateView) -> None:
        exists = statement.name.lower() in self._work.schema.views_by_name
        if exists and statement.if_not_exists:
            return
        replaced = exists and statement.or_replace
        if not replaced:
            check_new_name(self._work.schema, statement.name, statement.at)
        self._work.put_view(View(statement.name, statement.sql), statement.name.lower() if replaced else "")

    def _drop_views(self, statement: DropView) -> None:
        for name in statement.names:
            if name.lower() not in self._work.schema.views_by_name:
                if statement.if_exists:
                    continue
                what = "a table: DROP TABLE drops it" if name.lower() in self._work.schema.by_name else ""
                message = f"{name} is {what}" if what else f"there is no view {name}"
                raise statement.at.error(Code.INVALID_ARGUMENT if what else Code.NOT_FOUND, message)
            self._work.remove_view(name.lower())
        self._work.drop_views_of({name.lower() for name in statement.names}, statement.cascade, statement.at)


def _remember(dropped: tuple[str, ...], names: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted({*dropped, *names}))
