"""Where a change goes back to that fails or is cancelled: all but what cannot be taken back.

New fields of messages are there from the first version on, for elements may lie over them, and so users may have
written values of them. If the number of such a field were free again, another field could get it, and would read these
values. So the .proto files stay. Columns become wider with the last version only, but somebody may cancel just then.

A constraint that was being dropped is enforced again, unless rows break it by now.
"""

from dataclasses import replace

from f1server.catalog import protos
from f1server.catalog.schema import Column, ElementState, Schema, Table
from f1server.schemachange.steps.diff import widens

__all__ = ["way_back"]

PUBLIC = ElementState.PUBLIC


def way_back(schema: Schema, base: Schema, *, gives_way: bool = False) -> tuple[Schema, str]:
    """Return what a change that came from ``base`` goes back to, and what of it stays, for people (empty: nothing).

    ``gives_way``: constraints that it was dropping go, since rows break one of them by now.
    """
    stays: list[str] = []
    if gives_way:
        base = replace(base, tables=tuple(_without_dropped(table, schema.by_id.get(table.id)) for table in base.tables))
    tables = []
    for table in base.tables:
        now = schema.by_id.get(table.id)
        tables.append(table if now is None else _as_wide(table, now, stays))
    base = replace(base, tables=tuple(tables))
    if gone := _fields_gone(schema, base):
        base = replace(base, proto_files=schema.proto_files, descriptor_set=schema.descriptor_set)
        stays.append(f"the .proto files stay as they were set, values may have been written: else {'; '.join(gone)}")
    return base, "; ".join(stays)


def _without_dropped(table: Table, now: Table | None) -> Table:
    if now is None:
        return table
    enforced = {e.id for part in (now.checks, now.foreign_keys, now.indexes) for e in part if e.state is PUBLIC}
    required = {c.id for c in now.columns if c.not_null and c.not_null_state is PUBLIC}
    columns = tuple(c if c.id in required or not c.not_null else replace(c, not_null=False) for c in table.columns)
    return replace(
        table,
        columns=columns,
        checks=tuple(c for c in table.checks if c.id in enforced),
        foreign_keys=tuple(k for k in table.foreign_keys if k.id in enforced),
        indexes=tuple(i for i in table.indexes if i.id in enforced or not i.unique),
    )


def _as_wide(table: Table, now: Table, stays: list[str]) -> Table:
    def wide(column: Column) -> Column:
        known = now.by_id.get(column.id)
        if known is None or widens(known.type, column.type):
            return column
        stays.append(f"{table.name}.{column.name} stays {known.type.sql()}: types only become wider")
        return replace(column, type=known.type)

    return replace(table, columns=tuple(wide(column) for column in table.columns))


def _fields_gone(schema: Schema, base: Schema) -> list[str]:
    """Say which fields of messages in use ``base`` does not have; nothing if messages that it uses are gone by now."""
    used = protos.used_messages(base)
    known = protos.registry_of(schema).message_names
    if schema.descriptor_set == base.descriptor_set or not set(used).issubset(known):
        return []
    return protos.incompatibilities(schema.descriptor_set, base.descriptor_set, used)
