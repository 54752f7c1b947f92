"""What statements and commits need: which privileges on which tables. Views count as what they read."""

from collections.abc import Iterable, Iterator, Sequence

from sqlglot import exp

from f1common.errors import Code, F1Error
from f1server.access.rights import Rights
from f1server.catalog.roles import Privilege
from f1server.catalog.schema import Schema, Table
from f1server.plan.dml import PreparedDml
from f1server.plan.prepare import Prepared
from f1server.plan.statements import DmlStatement
from f1server.rows.keys import split_row_key
from f1server.rows.writes import LogicalWrite, WriteKind

__all__ = ["require_dml", "require_query", "require_read_set", "require_writes"]

_WRITES = {
    WriteKind.INSERT: Privilege.INSERT,
    WriteKind.UPDATE: Privilege.UPDATE,
    WriteKind.DELETE: Privilege.DELETE,
    WriteKind.UPSERT: Privilege.INSERT | Privilege.UPDATE,
}
_SELECT = Privilege.SELECT


def require_query(rights: Rights, query: Prepared) -> None:
    """Raise PERMISSION_DENIED unless the role may read all tables of a query; to lock their rows, change them, too."""
    if rights.unlimited:
        return
    for base in query.tables:
        rights.require(base.table, _SELECT | Privilege.UPDATE if query.locking else _SELECT)


def require_dml(rights: Rights, statement: DmlStatement, plan: PreparedDml) -> None:
    """Raise PERMISSION_DENIED unless the role may run a statement that writes.

    As in PostgreSQL, a statement that looks at values of the table that it changes needs SELECT on it: by WHERE, in
    the values that it sets, or by RETURNING. Rows that go with their parent are no matter of the role's.
    """
    if rights.unlimited:
        return
    for table, privileges in _needs(statement, plan):
        rights.require(table, privileges)


def _needs(statement: DmlStatement, plan: PreparedDml) -> Iterator[tuple[Table, Privilege]]:
    target = plan.table
    yield target, _WRITES[WriteKind[plan.tag]]
    queries = [q for q in (plan.query, plan.returning) if q is not None]
    if plan.conflict is not None and plan.conflict.update is not None:
        yield target, Privilege.UPDATE
        queries.append(plan.conflict.update)
    if _looks_at_target(statement.ast, plan):
        yield target, _SELECT
    for query in queries:
        yield from ((base.table, _SELECT) for base in query.tables if base.table.id != target.id)


def _looks_at_target(ast: exp.Expr, plan: PreparedDml) -> bool:
    places = [base for base in plan.query.tables if base.table.id == plan.table.id] if plan.query is not None else []
    if plan.returning is not None or (plan.conflict is not None and plan.conflict.update is not None):
        return True
    if plan.tag in ("INSERT", "UPSERT"):
        return bool(places)
    # UPDATE and DELETE read their target in one place anyway.
    if len(places) > 1 or any(ast.args.get(part) for part in ("where", "from_", "using")):
        return True
    values = [item.expression for item in ast.expressions] if isinstance(ast, exp.Update) else []
    return any(not _is_default(column) for value in values for column in value.find_all(exp.Column))


def _is_default(column: exp.Column) -> bool:
    return not column.table and column.name.upper() == "DEFAULT"


def require_writes(rights: Rights, schema: Schema, writes: Iterable[LogicalWrite]) -> None:
    """Raise PERMISSION_DENIED unless the role may make all these writes, NOT_FOUND for a table that is not there."""
    if rights.unlimited:
        return
    for name, kind in sorted({(write.table, write.kind) for write in writes}):
        rights.require(schema.table(name), _WRITES[kind])


def require_read_set(rights: Rights, schema: Schema, keys: Sequence[bytes]) -> None:
    """Raise PERMISSION_DENIED unless the role has to do with the tables of all rows that a commit is to find unchanged.

    Whether it does tells of the rows. Statements put rows into read sets that they change without looking at them, so
    any privilege will do.
    """
    if rights.unlimited:
        return
    for key in keys:
        split = split_row_key(schema, key)
        if split is None:
            raise F1Error(Code.INVALID_ARGUMENT, "a read set names what is no row")
        if not rights.touches(split[0].id):
            rights.require(split[0], _SELECT)
