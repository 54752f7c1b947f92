"""The schema compiler: DDL statements, looked up and checked, make the next schema (F1 sections 3.1 to 3.3).

The result is the schema as wanted, everything in it public. How a live database gets there, over which intermediate
states, is the matter of :mod:`f1server.schemachange.diff`.

Ids are drawn for tables first, roots before children: the first range map of a cluster deals root tables with low ids
to its groups in turn.
"""

from collections.abc import Sequence
from dataclasses import replace

from f1common.errors import Code
from f1server.catalog import expressions, protos, tables
from f1server.catalog.schema import Index, IndexPart, Kind, Schema, Table, View
from f1server.catalog.statements import (
    CreateIndex,
    CreateTable,
    CreateView,
    DropIndex,
    DropTable,
    DropView,
    ForeignKeyDef,
    IndexColumn,
    Position,
    SchemaStatement,
)
from f1server.catalog.tables import NewId, check_new_name

__all__ = ["NewId", "compile_sources", "compile_statements"]

MAX_INDEX_PARTS = 16


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
        self._schema = schema
        self._new_id = new_id
        self._table_ids: dict[int, int] = {}
        self._pending: list[tuple[int, ForeignKeyDef]] = []

    def run(self, statements: Sequence[SchemaStatement]) -> Schema:
        self._draw_table_ids(statements)
        for position, statement in enumerate(statements):
            match statement:
                case CreateTable():
                    self._create_table(statement, position)
                case CreateIndex():
                    self._create_index(statement)
                case CreateView():
                    self._create_view(statement)
                case DropTable():
                    self._drop_tables(statement)
                case DropIndex():
                    self._drop_indexes(statement)
                case DropView():
                    self._drop_views(statement)
        self._add_foreign_keys()
        return self._schema

    def _draw_table_ids(self, statements: Sequence[SchemaStatement]) -> None:
        known = set(self._schema.by_name)
        created = [(i, s) for i, s in enumerate(statements) if isinstance(s, CreateTable)]
        wanted = [(i, s) for i, s in created if not (s.if_not_exists and s.name.lower() in known)]
        for i, _ in sorted(wanted, key=lambda item: (item[1].parent != "", item[0])):
            self._table_ids[i] = self._new_id()

    def _put(self, table: Table) -> None:
        others = [t for t in self._schema.tables if t.id != table.id]
        self._schema = replace(self._schema, tables=tuple(sorted([*others, table], key=lambda t: t.id)))

    # ------------------------------------------------------------------ tables

    def _create_table(self, statement: CreateTable, position: int) -> None:
        if statement.if_not_exists and statement.name.lower() in self._schema.by_name:
            return
        check_new_name(self._schema, statement.name, statement.at)
        if statement.as_query:
            raise statement.at.error(Code.FAILED_PRECONDITION, "CREATE TABLE AS needs a server that runs the query")
        table_id = self._table_ids.get(position) or self._new_id()
        self._put(tables.build_table(self._schema, statement, table_id, self._new_id))
        for unique in statement.uniques:
            table = self._schema.by_id[table_id]
            columns = tuple(IndexColumn((name,), unique.at) for name in unique.columns)
            name = unique.name or self._free_name("_".join([table.name, *unique.columns, "key"]))
            local = self._begins_with_root_key(table, unique.columns)
            self._create_index(CreateIndex(name, table.name, columns, unique=True, local=local, at=unique.at))
        self._pending += [(table_id, key) for key in statement.foreign_keys]

    def _begins_with_root_key(self, table: Table, columns: Sequence[str]) -> bool:
        root_key = [c.name.lower() for c in table.key_columns[: len(self._schema.root(table).key_column_ids)]]
        return [name.lower() for name in columns[: len(root_key)]] == root_key

    def _free_name(self, wanted: str) -> str:
        taken = tables.names_taken(self._schema)
        name, n = wanted, 0
        while name.lower() in taken:
            n += 1
            name = f"{wanted}{n}"
        return name

    def _drop_tables(self, statement: DropTable) -> None:
        going: dict[int, Table] = {}
        for name in statement.names:
            table = self._find_any_table(name, statement)
            if table is not None:
                going[table.id] = table
        for table in list(going.values()):
            for child in self._schema.descendants(table):
                if child.id not in going and not statement.cascade:
                    raise statement.at.error(
                        Code.FAILED_PRECONDITION,
                        f"the table {child.name} is interleaved in {table.name}; DROP TABLE ... CASCADE drops both",
                    )
                going[child.id] = child
        self._drop_dependents(going, statement)
        kept = tuple(t for t in self._schema.tables if t.id not in going)
        gone = [t.name.lower() for t in going.values()]
        self._schema = replace(self._schema, tables=kept, dropped=_remember(self._schema.dropped, gone))
        self._pending = [(table_id, key) for table_id, key in self._pending if table_id not in going]

    def _find_any_table(self, name: str, statement: DropTable) -> Table | None:
        """Find a table in whatever state: one whose creation stopped half-way must be droppable."""
        for table in self._schema.tables:
            if table.name.lower() == name.lower():
                return table
        if statement.if_exists:
            return None
        if name.lower() in self._schema.views_by_name:
            raise statement.at.error(Code.INVALID_ARGUMENT, f"{name} is a view: DROP VIEW drops it")
        return tables.located(statement.at, lambda: self._schema.table(name))

    def _drop_dependents(self, going: dict[int, Table], statement: DropTable) -> None:
        for table in self._schema.tables:
            referring = [k for k in table.foreign_keys if k.referenced_table_id in going and table.id not in going]
            if referring and not statement.cascade:
                target = going[referring[0].referenced_table_id].name
                raise statement.at.error(
                    Code.FAILED_PRECONDITION,
                    f"the foreign key {referring[0].name} of {table.name} refers to {target}; "
                    "DROP TABLE ... CASCADE drops it too",
                )
            if referring:
                self._put(replace(table, foreign_keys=tuple(k for k in table.foreign_keys if k not in referring)))
        self._drop_views_of({t.name.lower() for t in going.values()}, statement.cascade, statement.at)

    # ------------------------------------------------------------------ indexes

    def _create_index(self, statement: CreateIndex) -> None:
        if statement.if_not_exists and self._find_index(statement.name) is not None:
            return
        check_new_name(self._schema, statement.name, statement.at)
        table = tables.located(statement.at, lambda: self._schema.table(statement.table))
        parts = tuple(self._index_part(table, column) for column in statement.columns)
        if len(set(parts)) != len(parts):
            raise statement.at.error(Code.INVALID_ARGUMENT, f"the index {statement.name} has a column twice")
        if len(parts) > MAX_INDEX_PARTS:
            raise statement.at.error(Code.INVALID_ARGUMENT, f"an index has at most {MAX_INDEX_PARTS} columns")
        if sum(self._is_repeated(table, part) for part in parts) > 1:
            raise statement.at.error(Code.INVALID_ARGUMENT, "an index has at most one repeated field")
        if statement.local and not self._begins_with_root_key(table, [c.path[0] for c in statement.columns]):
            root_key = ", ".join(c.name for c in table.key_columns[: len(self._schema.root(table).key_column_ids)])
            raise statement.at.error(
                Code.INVALID_ARGUMENT, f"a local index begins with the key of its root table: ({root_key}, ...)"
            )
        storing = tuple(
            tables.located(statement.at, lambda name=name: table.column(name)).id  # type: ignore[misc]
            for name in statement.storing
        )
        in_entry = {p.column_id for p in parts if not p.path} | set(table.key_column_ids)
        index = Index(
            self._new_id(),
            statement.name,
            parts,
            statement.unique,
            statement.local,
            tuple(dict.fromkeys(i for i in storing if i not in in_entry)),
        )
        self._put(replace(table, indexes=(*table.indexes, index)))

    def _index_part(self, table: Table, column: IndexColumn) -> IndexPart:
        found = tables.located(column.at, lambda: table.column(column.path[0]))
        path = column.path[1:]
        shown = ".".join(column.path)
        if found.type.kind is not Kind.PROTO:
            if path:
                raise column.at.error(Code.INVALID_ARGUMENT, f"{found.name} is no proto column: it has no fields")
            return IndexPart(found.id)
        if not path:
            raise column.at.error(
                Code.INVALID_ARGUMENT, f"a proto column is no part of an index; its fields are: {found.name}.field"
            )
        leaf = tables.located(
            column.at, lambda: protos.field_type(protos.registry_of(self._schema), found.type.proto, path)
        )
        if leaf.kind is None:
            raise column.at.error(Code.INVALID_ARGUMENT, f"{shown} is a message or a map, which has no order")
        return IndexPart(found.id, path)

    def _is_repeated(self, table: Table, part: IndexPart) -> bool:
        if not part.path:
            return False
        message = table.by_id[part.column_id].type.proto
        return protos.field_type(protos.registry_of(self._schema), message, part.path).repeated

    def _find_index(self, name: str) -> tuple[Table, Index] | None:
        for table in self._schema.tables:
            for index in table.indexes:
                if index.name.lower() == name.lower():
                    return table, index
        return None

    def _drop_indexes(self, statement: DropIndex) -> None:
        for name in statement.names:
            found = self._find_index(name)
            if found is None:
                if statement.if_exists:
                    continue
                raise statement.at.error(Code.NOT_FOUND, f"there is no index {name}")
            table, index = found
            after = replace(table, indexes=tuple(i for i in table.indexes if i.id != index.id))
            dependents = tables.foreign_keys_without_index(self._schema, after)
            if dependents and not statement.cascade:
                where, key = dependents[0]
                raise statement.at.error(
                    Code.FAILED_PRECONDITION,
                    f"the foreign key {key.name} of {where.name} needs the index {index.name}; CASCADE drops both",
                )
            self._put(after)
            for where, key in dependents:
                holder = self._schema.by_id[where.id]
                self._put(replace(holder, foreign_keys=tuple(k for k in holder.foreign_keys if k.id != key.id)))

    # ------------------------------------------------------------------ views

    def _create_view(self, statement: CreateView) -> None:
        existing = self._schema.views_by_name.get(statement.name.lower())
        if existing is not None and statement.if_not_exists:
            return
        views = self._schema.views
        if existing is not None and statement.or_replace:
            views = tuple(v for v in views if v is not existing)
        else:
            check_new_name(self._schema, statement.name, statement.at)
        added = sorted([*views, View(statement.name, statement.sql)], key=lambda v: v.name.lower())
        self._schema = replace(self._schema, views=tuple(added))

    def _drop_views(self, statement: DropView) -> None:
        for name in statement.names:
            if name.lower() not in self._schema.views_by_name:
                if statement.if_exists:
                    continue
                what = "a table: DROP TABLE drops it" if name.lower() in self._schema.by_name else ""
                message = f"{name} is {what}" if what else f"there is no view {name}"
                raise statement.at.error(Code.INVALID_ARGUMENT if what else Code.NOT_FOUND, message)
            self._remove_view(name.lower())
        self._drop_views_of({name.lower() for name in statement.names}, statement.cascade, statement.at)

    def _drop_views_of(self, names: set[str], cascade: bool, at: Position) -> None:
        """Views that read what is dropped are dropped with it, or keep it from being dropped."""
        for view in self._schema.views:
            if view.name.lower() not in self._schema.views_by_name or view.name.lower() in names:
                continue
            if names.isdisjoint(expressions.relations_used(view.sql)):
                continue
            if not cascade:
                raise at.error(
                    Code.FAILED_PRECONDITION, f"the view {view.name} reads from it; DROP ... CASCADE drops both"
                )
            self._remove_view(view.name.lower())
            self._drop_views_of({view.name.lower()}, cascade, at)

    def _remove_view(self, name: str) -> None:
        self._schema = replace(self._schema, views=tuple(v for v in self._schema.views if v.name.lower() != name))

    # ------------------------------------------------------------------ foreign keys

    def _add_foreign_keys(self) -> None:
        for table_id, definition in self._pending:
            table = self._schema.by_id[table_id]
            key = tables.build_foreign_key(self._schema, table, definition, self._new_id)
            table = replace(table, foreign_keys=(*table.foreign_keys, key))
            self._put(table)
            if not tables.has_prefix_access(table, key.column_ids):
                self._index_foreign_key(table, key.column_ids, definition.at)

    def _index_foreign_key(self, table: Table, column_ids: tuple[int, ...], at: Position) -> None:
        """Whoever deletes a referenced row looks for its referrers: they need an index."""
        names = [table.by_id[i].name for i in column_ids]
        columns = tuple(IndexColumn((name,), at) for name in names)
        name = self._free_name("_".join([table.name, *names, "fkey_idx"]))
        local = self._begins_with_root_key(table, names)
        self._create_index(CreateIndex(name, table.name, columns, local=local, at=at))


def _remember(dropped: tuple[str, ...], names: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted({*dropped, *names}))
