"""A schema as DDL text, which compiles to the same schema again (ids, and what is being built, excepted)."""

from f1server.catalog.roles import names_of
from f1server.catalog.schema import Column, ElementState, ForeignKey, Index, Schema, Table

__all__ = ["quoted", "render_index", "render_schema", "render_table", "render_view"]

_WORDS = frozenset(
    {
        *("primary", "unique", "check", "foreign", "constraint", "lock", "as", "public", "proto", "array"),
        *("select", "from", "where", "table", "index", "view", "not", "null", "true", "false"),
    }
)


def render_schema(schema: Schema) -> str:
    """Return the DDL of all tables (parents first), their indexes, the views, the roles and what these may do."""
    public = sorted(schema.by_name.values(), key=lambda t: (len(schema.ancestors(t)), t.id))
    parts = [render_table(schema, table) for table in public]
    parts += [render_index(table, index) for table in public for index in public_indexes(table)]
    parts += [render_view(view.name, view.sql) for view in schema.views]
    parts += _roles(schema)
    parts += [text for table in public for text in _grants(schema, table)]
    return "\n".join(parts)


def _roles(schema: Schema) -> list[str]:
    """Return CREATE ROLE of all roles, without passwords, and what belongs to no table."""
    names = {role.id: quoted(role.name) for role in schema.roles}
    flags = [" LOGIN" * role.login + " SUPERUSER" * role.superuser for role in schema.roles]
    parts = [f"CREATE ROLE {names[r.id]}{text};" for r, text in zip(schema.roles, flags, strict=True)]
    parts += [f"GRANT {names[number]} TO {names[r.id]};" for r in schema.roles for number in r.member_of]
    return parts + [f"GRANT CREATE ON SCHEMA TO {names[r.id]};" for r in schema.roles if r.create]


def _grants(schema: Schema, table: Table) -> list[str]:
    """Return GRANT for what roles may do with a table."""
    names = {role.id: quoted(role.name) for role in schema.roles}
    return [
        f"GRANT {', '.join(names_of(grant.privileges))} ON TABLE {quoted(table.name)} TO {names[grant.role_id]};"
        for grant in table.grants
        if grant.role_id in names
    ]


def render_table(schema: Schema, table: Table) -> str:
    """Return CREATE TABLE, without its indexes."""
    lines = [_column(column) for column in table.visible]
    if not any(column.hidden for column in table.key_columns):
        lines.append(f"PRIMARY KEY ({_names(table, table.key_column_ids)})")
    for key in table.foreign_keys:
        if key.state is ElementState.PUBLIC:
            lines.append(_foreign_key(schema, table, key))
    for check in table.checks:
        if check.state is ElementState.PUBLIC:
            lines.append(f"CONSTRAINT {quoted(check.name)} CHECK ({check.sql})")
    for lock in table.locks:
        if lock.state is ElementState.PUBLIC:
            lines.append(f"LOCK {quoted(lock.name)} ({_names(table, lock.column_ids)})")
    text = f"CREATE TABLE {quoted(table.name)} (\n  " + ",\n  ".join(lines) + "\n)"
    if table.parent_id:
        parent = schema.by_id[table.parent_id]
        own = table.key_columns[: len(parent.key_columns)]
        text += f" INTERLEAVE IN PARENT {quoted(parent.name)}"
        if [c.name.lower() for c in own] != [c.name.lower() for c in parent.key_columns]:
            text += f" ({', '.join(quoted(c.name) for c in own)})"
        text += " ON DELETE CASCADE" if table.cascade else ""
    if table.untracked:
        text += " WITH (change_history = false)"
    return text + ";"


def render_index(table: Table, index: Index) -> str:
    """Return CREATE INDEX."""
    words = ["CREATE", *(["UNIQUE"] if index.unique else []), *(["LOCAL"] if index.local else []), "INDEX"]
    parts = [
        ".".join([quoted(table.by_id[part.column_id].name), *(quoted(name) for name in part.path)])
        for part in index.parts
    ]
    text = f"{' '.join(words)} {quoted(index.name)} ON {quoted(table.name)} ({', '.join(parts)})"
    if index.storing:
        text += f" STORING ({_names(table, index.storing)})"
    return text + ";"


def render_view(name: str, sql: str) -> str:
    """Return CREATE VIEW."""
    return f"CREATE VIEW {quoted(name)} AS\n{sql}\n;"


def public_indexes(table: Table) -> list[Index]:
    """Return the indexes that may be read, by id."""
    return sorted((i for i in table.indexes if i.state is ElementState.PUBLIC), key=lambda i: i.id)


def quoted(name: str) -> str:
    """Return a name as DDL needs it: quoted unless it is a plain word that means nothing else there."""
    plain = name.isascii() and name.isidentifier() and name.lower() not in _WORDS
    return name if plain else '"' + name.replace('"', '""') + '"'


def _column(column: Column) -> str:
    text = f"{quoted(column.name)} {column.type.sql()}"
    text += " NOT NULL" if column.not_null else ""
    text += f" DEFAULT {column.default_sql}" if column.default_sql else ""
    return text + (" NOT TRACKED" if column.untracked else "")


def _names(table: Table, ids: tuple[int, ...]) -> str:
    return ", ".join(quoted(table.by_id[i].name) for i in ids)


def _foreign_key(schema: Schema, table: Table, key: ForeignKey) -> str:
    target = schema.by_id[key.referenced_table_id]
    own, theirs = _names(table, key.column_ids), _names(target, key.referenced_column_ids)
    return f"CONSTRAINT {quoted(key.name)} FOREIGN KEY ({own}) REFERENCES {quoted(target.name)} ({theirs})"
