"""A schema while statements are applied to it: what CREATE, ALTER and DROP share."""

from collections.abc import Sequence
from dataclasses import replace

from f1common.errors import Code, F1Error
from f1server.catalog import expressions, protos, tables
from f1server.catalog.ids import NewId, index_id
from f1server.catalog.schema import ForeignKey, Index, IndexPart, Kind, Schema, Table, View
from f1server.catalog.statements import CreateIndex, ForeignKeyDef, IndexColumn, Position, UniqueDef
from f1server.catalog.tables import check_new_name

MAX_INDEX_PARTS = 16


class WorkingSchema:
    """The schema so far, in ``schema``. Foreign keys wait until the tables that they refer to are there."""

    def __init__(self, schema: Schema, new_id: NewId) -> None:
        self.schema = schema
        self.new_id = new_id
        self._pending: list[tuple[int, ForeignKeyDef]] = []

    def put(self, table: Table) -> None:
        """Add a table, or replace the one with its id."""
        others = [t for t in self.schema.tables if t.id != table.id]
        self.schema = replace(self.schema, tables=tuple(sorted([*others, table], key=lambda t: t.id)))

    # ------------------------------------------------------------------ indexes

    def begins_with_root_key(self, table: Table, columns: Sequence[str]) -> bool:
        """Do these columns begin with the key of the table's root?"""
        root_key = [c.name.lower() for c in table.key_columns[: len(self.schema.root(table).key_column_ids)]]
        return [name.lower() for name in columns[: len(root_key)]] == root_key

    def free_name(self, wanted: str) -> str:
        """Return a name for an index that nothing has yet."""
        taken = tables.names_taken(self.schema)
        name, n = wanted, 0
        while name.lower() in taken:
            n += 1
            name = f"{wanted}{n}"
        return name

    def add_unique(self, table_id: int, definition: UniqueDef) -> None:
        """Create the index of a unique constraint: local if it begins with the key of the root."""
        table = self.schema.by_id[table_id]
        columns = tuple(IndexColumn((name,), definition.at) for name in definition.columns)
        name = definition.name or self.free_name("_".join([table.name, *definition.columns, "key"]))
        local = self.begins_with_root_key(table, definition.columns)
        self.create_index(CreateIndex(name, table.name, columns, unique=True, local=local, at=definition.at))

    def create_index(self, statement: CreateIndex) -> None:
        """Create an index. Raises F1Error as :func:`f1server.catalog.compile.compile_statements`."""
        if statement.if_not_exists and self.find_index(statement.name) is not None:
            return
        if statement.renamed_from:
            raise statement.at.error(
                Code.FAILED_PRECONDITION,
                "RENAMED FROM is for the sources of `f1 schema apply`; here: ALTER INDEX ... RENAME",
            )
        check_new_name(self.schema, statement.name, statement.at)
        table = tables.located(statement.at, lambda: self.schema.table(statement.table))
        parts = tuple(self._index_part(table, column) for column in statement.columns)
        if len(set(parts)) != len(parts):
            raise statement.at.error(Code.INVALID_ARGUMENT, f"the index {statement.name} has a column twice")
        if len(parts) > MAX_INDEX_PARTS:
            raise statement.at.error(Code.INVALID_ARGUMENT, f"an index has at most {MAX_INDEX_PARTS} columns")
        if sum(self._is_repeated(table, part) for part in parts) > 1:
            raise statement.at.error(Code.INVALID_ARGUMENT, "an index has at most one repeated field")
        if statement.local and not self.begins_with_root_key(table, [c.path[0] for c in statement.columns]):
            root_key = ", ".join(c.name for c in table.key_columns[: len(self.schema.root(table).key_column_ids)])
            raise statement.at.error(
                Code.INVALID_ARGUMENT, f"a local index begins with the key of its root table: ({root_key}, ...)"
            )
        storing = tuple(
            tables.located(statement.at, lambda name=name: table.column(name)).id  # type: ignore[misc]
            for name in statement.storing
        )
        in_entry = {p.column_id for p in parts if not p.path} | set(table.key_column_ids)
        index = Index(
            index_id(self.new_id, self.schema.root(table).id, local=statement.local),
            statement.name,
            parts,
            statement.unique,
            statement.local,
            tuple(dict.fromkeys(i for i in storing if i not in in_entry)),
        )
        self.put(replace(table, indexes=(*table.indexes, index)))

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
            column.at, lambda: protos.field_type(protos.registry_of(self.schema), found.type.proto, path)
        )
        if leaf.kind is None:
            raise column.at.error(Code.INVALID_ARGUMENT, f"{shown} is a message or a map, which has no order")
        return IndexPart(found.id, path)

    def _is_repeated(self, table: Table, part: IndexPart) -> bool:
        if not part.path:
            return False
        message = table.by_id[part.column_id].type.proto
        return protos.field_type(protos.registry_of(self.schema), message, part.path).repeated

    def find_index(self, name: str) -> tuple[Table, Index] | None:
        """Find an index by name, in whatever state, and its table."""
        for table in self.schema.tables:
            for index in table.indexes:
                if index.name.lower() == name.lower():
                    return table, index
        return None

    def drop_index(self, table: Table, index: Index, cascade: bool, at: Position) -> None:
        """Remove an index; ``cascade``: with the foreign keys that need it. Raises F1Error FAILED_PRECONDITION."""
        after = replace(table, indexes=tuple(i for i in table.indexes if i.id != index.id))
        dependents = tables.foreign_keys_without_index(self.schema, after)
        if dependents and not cascade:
            where, key = dependents[0]
            raise at.error(
                Code.FAILED_PRECONDITION,
                f"the foreign key {key.name} of {where.name} needs the index {index.name}; CASCADE drops both",
            )
        self.put(after)
        for where, key in dependents:
            self.drop_foreign_key(where.id, key)

    # ------------------------------------------------------------------ views

    def put_view(self, view: View, instead_of: str = "") -> None:
        """Add a view; ``instead_of``: the lower-case name of one that goes."""
        others = [v for v in self.schema.views if v.name.lower() != instead_of]
        self.schema = replace(self.schema, views=tuple(sorted([*others, view], key=lambda v: v.name.lower())))

    def drop_views_of(self, names: set[str], cascade: bool, at: Position) -> None:
        """Views that read what is dropped are dropped with it, or keep it from being dropped."""
        for view in self.schema.views:
            if view.name.lower() not in self.schema.views_by_name or view.name.lower() in names:
                continue
            if names.isdisjoint(expressions.relations_used(view.sql)):
                continue
            if not cascade:
                raise at.error(
                    Code.FAILED_PRECONDITION, f"the view {view.name} reads from it; DROP ... CASCADE drops both"
                )
            self.remove_view(view.name.lower())
            self.drop_views_of({view.name.lower()}, cascade, at)

    def remove_view(self, name: str) -> None:
        """Remove a view; ``name`` in lower case."""
        self.schema = replace(self.schema, views=tuple(v for v in self.schema.views if v.name.lower() != name))

    # ------------------------------------------------------------------ foreign keys

    def await_foreign_key(self, table_id: int, definition: ForeignKeyDef) -> None:
        """Add a foreign key later, when what it refers to is there."""
        self._pending.append((table_id, definition))

    def forget_foreign_keys(self, table_ids: Sequence[int]) -> None:
        """Forget the foreign keys that wait to be added to these tables."""
        self._pending = [(table_id, key) for table_id, key in self._pending if table_id not in table_ids]

    def add_known_foreign_keys(self) -> None:
        """Add those that can be added, so that what follows sees them; the others go on waiting."""
        waiting = []
        for table_id, definition in self._pending:
            try:
                self._add_foreign_key(table_id, definition)
            except F1Error:
                waiting.append((table_id, definition))
        self._pending = waiting

    def add_foreign_keys(self) -> None:
        """Add all that wait. Raises F1Error NOT_FOUND, INVALID_ARGUMENT, ALREADY_EXISTS."""
        for table_id, definition in self._pending:
            self._add_foreign_key(table_id, definition)
        self._pending = []

    def _add_foreign_key(self, table_id: int, definition: ForeignKeyDef) -> None:
        table = self.schema.by_id[table_id]
        key = tables.build_foreign_key(self.schema, table, definition, self.new_id)
        if not tables.has_prefix_access(table, key.column_ids):
            self.index_foreign_key(table, key.column_ids, definition.at)
        table = self.schema.by_id[table_id]
        self.put(replace(table, foreign_keys=(*table.foreign_keys, key)))

    def drop_foreign_key(self, table_id: int, key: ForeignKey) -> None:
        """Remove a foreign key; its index stays."""
        table = self.schema.by_id[table_id]
        self.put(replace(table, foreign_keys=tuple(k for k in table.foreign_keys if k.id != key.id)))

    def index_foreign_key(self, table: Table, column_ids: Sequence[int], at: Position) -> None:
        """Whoever deletes a referenced row looks for its referrers: they need an index."""
        names = [table.by_id[i].name for i in column_ids]
        columns = tuple(IndexColumn((name,), at) for name in names)
        name = self.free_name("_".join([table.name, *names, "fkey_idx"]))
        local = self.begins_with_root_key(table, names)
        self.create_index(CreateIndex(name, table.name, columns, local=local, at=at))
