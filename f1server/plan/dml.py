"""INSERT, UPDATE and DELETE become queries for keys and new values; what to write follows from their rows.

UPDATE and DELETE select the primary key, the assigned values and, for RETURNING, the whole row. INSERT takes rows of
constants as they are and everything else from a query. RETURNING, and the assignments of ON CONFLICT, are queries over
rows that are given to DuckDB instead of read (:class:`GivenQuery`).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlglot import exp

from f1common.errors import Code, F1Error
from f1server.catalog.schema import Column, ElementState, Index, Schema, Table
from f1server.plan.constants import Constant, assignable
from f1server.plan.keyed import Keyed, computation, keyed
from f1server.plan.names import at, near_miss
from f1server.plan.prepare import BoundQuery, Prepared, prepare
from f1server.plan.relations import name_parts
from f1server.plan.statements import DmlStatement
from f1server.rows.layout import HISTORY_ID

_EXCLUDED = "excluded"


@dataclass(frozen=True, slots=True)
class Default:
    """The word DEFAULT where a value stands."""


DEFAULT = Default()
Cell = Constant | Default


@dataclass(frozen=True, slots=True, eq=False)
class Conflict:
    """ON CONFLICT. ``arbiters``: what may collide, None is the primary key; ``update``: the query of DO UPDATE.

    That query reads the rows that are there, and the rows ``excluded`` from insertion, and gives the key of the former,
    the values of ``columns``, and whether the condition of WHERE holds.
    """

    arbiters: tuple[Index | None, ...]
    update: Prepared | None = None
    columns: tuple[Column, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class PreparedDml:
    """A statement that writes, for any parameters.

    ``tag``: INSERT, UPSERT, UPDATE or DELETE. ``columns``: targets of the values, in order. INSERT has ``rows`` or a
    ``query`` that gives them. UPDATE and DELETE have a ``query`` that gives the key, the values of ``columns`` (one
    that is in ``defaulted`` has none) and, with ``returning``, then the visible columns of the row. ``keyed``: how they
    go without an evaluator if the condition is a whole key.
    """

    schema: Schema
    tag: str
    table: Table
    columns: tuple[Column, ...]
    query: Prepared | None = None
    rows: tuple[tuple[Cell, ...], ...] | None = None
    defaulted: tuple[Column, ...] = ()
    returning: Prepared | None = None
    conflict: Conflict | None = None
    keyed: Keyed | None = None

    @property
    def names(self) -> set[str]:
        """The tables that it writes to, and the tables and views that it reads."""
        update = self.conflict.update if self.conflict is not None else None
        queries = [query for query in (self.query, self.returning, update) if query is not None]
        return {self.table.name}.union(*(query.names for query in queries))

    def bind(self, params: Sequence[object], now_us: int, rules_off: Collection[str] = ()) -> "BoundDml":
        """Fill in parameters. Raises F1Error INVALID_ARGUMENT."""
        query = self.query.bind(params, now_us, rules_off) if self.query is not None else None
        returning = self.returning.bind(params, now_us, rules_off) if self.returning is not None else None
        conflict = self.conflict.update if self.conflict is not None else None
        # Its two relations are of one table, but different rows are given for them.
        off = {*rules_off, "shared_scan"}
        update = conflict.bind(params, now_us, off) if conflict is not None else None
        return BoundDml(self, tuple(params), now_us, query, returning, update)


@dataclass(frozen=True, slots=True, eq=False)
class BoundDml:
    """A statement that writes, ready to run."""

    prepared: PreparedDml
    params: tuple[object, ...]
    now_us: int
    query: BoundQuery | None
    returning: BoundQuery | None
    update: BoundQuery | None


def prepare_dml(schema: Schema, statement: DmlStatement) -> PreparedDml:
    """Prepare a statement. Raises F1Error NOT_FOUND, INVALID_ARGUMENT, FAILED_PRECONDITION, with the place in the
    text."""
    return _Preparer(schema, statement.sql).prepare(statement)


class _Preparer:
    def __init__(self, schema: Schema, text: str) -> None:
        self._schema = schema
        self._text = text

    def prepare(self, statement: DmlStatement) -> PreparedDml:
        ast = statement.ast.copy()
        if isinstance(ast, exp.Insert):
            return self._insert(ast, statement.upsert)
        if isinstance(ast, exp.Update):
            return self._update(ast)
        return self._delete(ast)

    # ------------------------------------------------------------------ INSERT

    def _insert(self, ast: exp.Insert, upsert: bool) -> PreparedDml:
        target = ast.this.this if isinstance(ast.this, exp.Schema) else ast.this
        table = self._table(target)
        alias = target.alias or table.name
        names = ast.this.expressions if isinstance(ast.this, exp.Schema) else []
        columns = tuple(self._column(table, name) for name in names) or table.visible
        self._unique(columns, names)
        if ast.args.get("overwrite") or ast.args.get("ignore"):
            raise self._error(ast, Code.INVALID_ARGUMENT, "write INSERT ... ON CONFLICT DO NOTHING or DO UPDATE")
        source = ast.args.get("expression")
        returning = self._returning(ast, table, alias)
        conflict = self._conflict(ast, table, alias) if ast.args.get("conflict") else None
        tag = "UPSERT" if upsert else "INSERT"
        if upsert and conflict is not None:
            raise self._error(ast, Code.INVALID_ARGUMENT, "INSERT OR UPDATE has no ON CONFLICT")
        if source is None:
            return PreparedDml(self._schema, tag, table, (), None, ((),), (), returning, conflict)
        rows = self._constant_rows(source, columns, bool(names))
        if rows is not None:
            columns = columns[: len(rows[0])] if rows else columns
            return PreparedDml(self._schema, tag, table, columns, None, rows, (), returning, conflict)
        query, given = self._source_query(ast, source, columns, bool(names))
        return PreparedDml(self._schema, tag, table, given, query, None, (), returning, conflict)

    def _constant_rows(
        self, source: exp.Expr, columns: Sequence[Column], named: bool
    ) -> tuple[tuple[Cell, ...], ...] | None:
        """Return the rows of VALUES if they consist of constants, else None."""
        while isinstance(source, exp.Subquery | exp.Paren):
            source = source.this
        if not isinstance(source, exp.Values):
            return None
        rows: list[tuple[Cell, ...]] = []
        constants = True
        for row in source.expressions:
            cells = row.expressions if isinstance(row, exp.Tuple) else [row]
            self._width(row, len(cells), columns, named)
            found = [DEFAULT if _is_default(cell) else assignable(cell) for cell in cells]
            constants = constants and None not in found
            rows.append(tuple(c for c in found if c is not None))
        if not constants:
            if any(_is_default(cell) for row in source.expressions for cell in row.expressions):
                self._remove_defaults(source, columns)
            return None
        if len({len(row) for row in rows}) > 1:
            raise self._error(source, Code.INVALID_ARGUMENT, "VALUES: all rows must have the same number of values")
        return tuple(rows)

    def _remove_defaults(self, source: exp.Values, columns: Sequence[Column]) -> None:
        """Put the expressions of defaults in the place of the word in rows that are no constants."""
        from f1server.plan.dialect import parse_expression

        for row in source.expressions:
            for column, cell in zip(columns, list(row.expressions), strict=False):
                if _is_default(cell):
                    cell.replace(parse_expression(column.default_sql) if column.default_sql else exp.Null())

    def _width(self, node: exp.Expr, given: int, columns: Sequence[Column], named: bool) -> None:
        if given > len(columns) or (named and given < len(columns)):
            what = "values" if given != 1 else "value"
            raise self._error(node, Code.INVALID_ARGUMENT, f"INSERT has {len(columns)} columns but {given} {what}")

    def _source_query(
        self, ast: exp.Insert, source: exp.Expr, columns: tuple[Column, ...], named: bool
    ) -> tuple[Prepared, tuple[Column, ...]]:
        if (clause := ast.args.get("with_")) is not None:
            ast.set("with_", None)
            inner = source.args.get("with_")
            if inner is not None:
                clause.set("expressions", [*clause.expressions, *inner.expressions])
            source.set("with_", clause)
        source.pop()
        prepared = prepare(self._schema, self._text, source)
        if prepared.columns is not None:
            self._width(ast, len(prepared.columns), columns, named)
            columns = columns[: len(prepared.columns)]
        return prepared, columns

    def _conflict(self, ast: exp.Insert, table: Table, alias: str) -> Conflict:
        clause = ast.args["conflict"]
        action = clause.args["action"].name.upper()
        arbiters = self._arbiters(clause, table)
        if "NOTHING" in action:
            return Conflict(arbiters)
        if len(arbiters) != 1:
            raise self._error(clause, Code.INVALID_ARGUMENT, "ON CONFLICT DO UPDATE needs the columns that may collide")
        columns, values = self._assignments(clause.expressions, table)
        if any(_is_default(value) for value in values):
            raise self._error(clause, Code.INVALID_ARGUMENT, "DO UPDATE SET takes no DEFAULT: write the value")
        arbiter = arbiters[0]
        ids = table.key_column_ids if arbiter is None else tuple(p.column_id for p in arbiter.parts)
        pairs = [
            exp.EQ(this=_column(alias, table.by_id[i].name), expression=_column(_EXCLUDED, table.by_id[i].name))
            for i in ids
        ]
        where = clause.args.get("where")
        holds = where.this if where is not None else exp.true()
        select = exp.Select(
            expressions=[*(_column(alias, c.name) for c in table.key_columns), *values, holds],
            from_=exp.From(this=_aliased(table, alias)),
            joins=[exp.Join(this=_aliased(table, _EXCLUDED), on=exp.and_(*pairs, copy=False))],
        )
        for node in select.expressions:
            _unqualified_means(node, alias)
        return Conflict(arbiters, prepare(self._schema, self._text, select), columns)

    def _arbiters(self, clause: exp.Expr, table: Table) -> tuple[Index | None, ...]:
        """Return the unique indexes that a conflict clause means; None stands for the primary key."""
        unique = [i for i in table.indexes if i.unique and i.state is ElementState.PUBLIC]
        keys = clause.args.get("conflict_keys") or ()
        named = clause.args.get("constraint")
        if named is not None:
            for index in unique:
                if index.name.lower() == named.name.lower():
                    return (index,)
            if named.name.lower() in (f"{table.name.lower()}_pkey", "primary"):
                return (None,)
            hint = near_miss(named.name, [i.name for i in unique])
            raise self._error(named, Code.NOT_FOUND, f"there is no unique index {named.name} on {table.name}{hint}")
        if not keys:
            return (None, *unique)
        wanted = {self._column(table, key.this if isinstance(key, exp.Ordered) else key).id for key in keys}
        if wanted == set(table.key_column_ids):
            return (None,)
        for index in unique:
            if {p.column_id for p in index.parts} == wanted and not any(p.path for p in index.parts):
                return (index,)
        raise self._error(
            clause, Code.INVALID_ARGUMENT, "ON CONFLICT: no primary key or unique index has these columns"
        )

    # ------------------------------------------------------------------ UPDATE, DELETE

    def _update(self, ast: exp.Update) -> PreparedDml:
        if ast.args.get("order") or ast.args.get("limit"):
            raise self._error(ast, Code.INVALID_ARGUMENT, "UPDATE has no ORDER BY and LIMIT: choose the rows in WHERE")
        table = self._table(ast.this)
        alias = ast.this.alias or table.name
        columns, values = self._assignments(ast.expressions, table)
        computed = [(c, v) for c, v in zip(columns, values, strict=True) if not _is_default(v)]
        defaulted = tuple(c for c, v in zip(columns, values, strict=True) if _is_default(v))
        returning = self._returning(ast, table, alias)
        others = [ast.args["from_"].this] if ast.args.get("from_") is not None else []
        # Looked at before the query is prepared, which changes the expressions.
        assigned = [(c, computation(table, alias, v)) for c, v in computed]
        query = self._row_query(ast, table, alias, [v for _, v in computed], others, returning is not None)
        columns = tuple(c for c, _ in computed)
        by_key = keyed(query, assigned) if not defaulted and returning is None else None
        return PreparedDml(self._schema, "UPDATE", table, columns, query, None, defaulted, returning, None, by_key)

    def _delete(self, ast: exp.Expr) -> PreparedDml:
        if ast.args.get("order") or ast.args.get("limit"):
            raise self._error(ast, Code.INVALID_ARGUMENT, "DELETE has no ORDER BY and LIMIT: choose the rows in WHERE")
        table = self._table(ast.this)
        alias = ast.this.alias or table.name
        returning = self._returning(ast, table, alias)
        query = self._row_query(ast, table, alias, [], list(ast.args.get("using") or ()), returning is not None)
        by_key = keyed(query, ()) if returning is None else None
        return PreparedDml(self._schema, "DELETE", table, (), query, None, (), returning, None, by_key)

    def _row_query(
        self,
        ast: exp.Expr,
        table: Table,
        alias: str,
        values: Sequence[exp.Expr],
        others: Sequence[exp.Expr],
        whole: bool,
    ) -> Prepared:
        """Return the query for the rows that a statement changes."""
        selected = [_column(alias, c.name) for c in table.key_columns]
        rest = [_column(alias, c.name) for c in table.visible] if whole else []
        joins: list[exp.Expr] = []
        for item in others:
            more = item.args.get("joins") or []
            item.set("joins", None)
            joins += [exp.Join(this=item), *more]
        select = exp.Select(
            expressions=[*selected, *values, *rest],
            from_=exp.From(this=_aliased(table, alias)),
            with_=ast.args.get("with_"),
            joins=joins,
            where=ast.args.get("where"),
        )
        return prepare(self._schema, self._text, select)

    def _assignments(self, sets: Sequence[exp.Expr], table: Table) -> tuple[tuple[Column, ...], list[exp.Expr]]:
        columns: list[Column] = []
        values: list[exp.Expr] = []
        for assignment in sets:
            if not isinstance(assignment, exp.EQ):
                raise self._error(assignment, Code.INVALID_ARGUMENT, "SET needs column = value")
            targets, given = [assignment.this], [assignment.expression]
            if isinstance(targets[0], exp.Tuple | exp.Paren):
                targets = targets[0].expressions or [targets[0].this]
                given = given[0].expressions if isinstance(given[0], exp.Tuple) else given
                if len(targets) != len(given):
                    message = f"SET has {len(targets)} columns but {len(given)} values"
                    raise self._error(assignment, Code.INVALID_ARGUMENT, message)
            columns += [self._column(table, target) for target in targets]
            values += given
        self._unique(columns, sets)
        return tuple(columns), values

    # ------------------------------------------------------------------ names

    def _returning(self, ast: exp.Expr, table: Table, alias: str) -> Prepared | None:
        clause = ast.args.get("returning")
        if clause is None:
            return None
        select = exp.Select(expressions=clause.expressions, from_=exp.From(this=_aliased(table, alias)))
        return prepare(self._schema, self._text, select)

    def _table(self, node: exp.Expr) -> Table:
        parts = [p for p in name_parts(node) if p.name] if isinstance(node, exp.Table) else []
        if len(parts) == 2 and parts[0].name.lower() == "public":
            parts = parts[1:]
        if len(parts) != 1:
            raise self._error(node, Code.INVALID_ARGUMENT, "expected the name of a table")
        name = parts[0].name
        table = self._schema.by_name.get(name.lower())
        if table is None:
            if name.lower() in self._schema.views_by_name:
                raise self._error(
                    parts[0], Code.FAILED_PRECONDITION, f"{name} is a view: write to the tables that it reads"
                )
            known = [t.name for t in self._schema.by_name.values()]
            raise self._error(parts[0], Code.NOT_FOUND, f"there is no table {name}{near_miss(name, known)}")
        if table.id >= HISTORY_ID:
            raise self._error(parts[0], Code.FAILED_PRECONDITION, f"{name} is read-only")
        return table

    def _column(self, table: Table, node: exp.Expr) -> Column:
        parts = name_parts(node)
        if len(parts) == 2 and parts[0].name.lower() == table.name.lower():
            parts = parts[1:]
        name = parts[-1].name
        if len(parts) > 1:
            message = "fields of a message cannot be set one by one: set the column to a whole message"
            raise self._error(parts[0], Code.INVALID_ARGUMENT, message)
        column = table.by_name.get(name.lower())
        if column is None:
            known = [c.name for c in table.visible]
            raise self._error(node, Code.NOT_FOUND, f"there is no column {table.name}.{name}{near_miss(name, known)}")
        return column

    def _unique(self, columns: Sequence[Column], nodes: Sequence[exp.Expr]) -> None:
        seen: set[int] = set()
        for index, column in enumerate(columns):
            if column.id in seen:
                node = nodes[min(index, len(nodes) - 1)]
                raise self._error(node, Code.INVALID_ARGUMENT, f"the column {column.name} is set twice")
            seen.add(column.id)

    def _error(self, node: exp.Expr, code: Code, message: str) -> F1Error:
        return at(self._text, node, code, message)


def _is_default(node: exp.Expr) -> bool:
    bare = isinstance(node, exp.Var) or (
        isinstance(node, exp.Column) and not node.table and not node.this.args.get("quoted")
    )
    return bare and node.name.upper() == "DEFAULT"


def _column(alias: str, name: str) -> exp.Column:
    return exp.Column(this=exp.Identifier(this=name, quoted=True), table=exp.Identifier(this=alias, quoted=True))


def _aliased(table: Table, alias: str) -> exp.Table:
    name = exp.Identifier(this=table.name, quoted=True)
    return exp.Table(this=name, alias=exp.TableAlias(this=exp.Identifier(this=alias, quoted=True)))


def _unqualified_means(node: exp.Expr, alias: str) -> None:
    """Let column names without a table mean the row that is there, as in DO UPDATE."""
    for column in node.find_all(exp.Column):
        if not column.args.get("table") and column.find_ancestor(exp.Subquery) is None:
            column.set("table", exp.Identifier(this=alias, quoted=True))
