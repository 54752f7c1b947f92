"""Looks up every name of a query: tables become relations that are to be read, paths into protos become columns of
them.

The tree is changed in place, and only as far as our dialect demands: tables get the names under which their rows will
be registered, columns are qualified where that changes nothing, paths and repeated fields are replaced. What a name
means that is not ours (a column of a table function, say) is left to DuckDB.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from f1common.encoding.proto import ProtoRegistry
from f1common.errors import Code, F1Error
from f1server.catalog.protos import registry_of
from f1server.catalog.schema import Kind, Schema, Table, View
from f1server.plan import relations
from f1server.plan.grouping import admit_dependent_columns
from f1server.plan.names import (
    COLUMN_META,
    BaseTable,
    Cte,
    FieldSource,
    Origin,
    OutColumn,
    Relation,
    Scope,
    at,
    columns_by_name,
    field_path,
    near_miss,
)
from f1server.plan.scans import FieldWanted
from f1server.plan.types import META, UNKNOWN, SqlType, infer, infer_all, of_column, of_path

_MAX_VIEW_DEPTH = 32


def function_name(schema: Schema, action: str, message: str, path: tuple[str, ...]) -> str:
    """Return the name of a function: DuckDB's are everybody's, so it says what it does, under which descriptors."""
    said = "\0".join((action, message, *path)).encode()
    return f"f1_proto_{hashlib.blake2b(said + bytes(1) + schema.descriptor_set, digest_size=12).hexdigest()}"


@dataclass(frozen=True, slots=True)
class ProtoFunction:
    """A function that DuckDB gets for a query: reads ``path`` of messages, or converts them. Equal names, equal
    meaning.

    ``action``: path, to_json, or parse (text to bytes). ``result`` is what it gives.
    """

    name: str
    action: str
    message: str
    path: tuple[str, ...]
    result: SqlType


_LEAVES = (exp.Column, exp.Query, exp.Values, exp.Lambda)


def _is_path(node: exp.Expr) -> bool:
    """Is this a column with a path after it?"""
    return isinstance(node, exp.Dot) and node.find(exp.Column) is not None and node.find(exp.Func) is None


@dataclass(slots=True, eq=False)
class Resolver:
    """Resolves one statement. ``text`` is what places in errors refer to."""

    schema: Schema
    text: str
    tables: list[BaseTable] = field(default_factory=list)
    fields: list[FieldSource] = field(default_factory=list)
    functions: dict[tuple[str, str, tuple[str, ...]], ProtoFunction] = field(default_factory=dict)
    stars: list[tuple[exp.Expr, Scope, Relation | None]] = field(default_factory=list)
    selects: list[tuple[exp.Select, Scope]] = field(default_factory=list)
    views: dict[str, View] = field(default_factory=dict)
    view_depth: int = 0

    @property
    def registry(self) -> ProtoRegistry:
        """The message types of the schema."""
        return registry_of(self.schema)

    def error(self, node: exp.Expr, code: Code, message: str) -> F1Error:
        """Return an error that points at an expression; inside a view there is no place to point at."""
        return F1Error(code, message) if self.view_depth else at(self.text, node, code, message)

    # ------------------------------------------------------------------ queries

    def query(self, node: exp.Expr, parent: Scope | None, ctes: Mapping[str, Cte]) -> tuple[OutColumn, ...] | None:
        """Resolve a query and return its output columns, or None if they are not known."""
        ctes = self.with_clause(node, parent, ctes)
        if isinstance(node, exp.Select):
            return self.select(node, parent, ctes)
        if isinstance(node, exp.SetOperation):
            return self.set_operation(node, parent, ctes)
        if isinstance(node, exp.Values):
            return self.values(node, Scope(parent, ctes))
        if isinstance(node, exp.Subquery | exp.Paren):
            columns = self.query(node.this, parent, ctes)
            self.outer_modifiers(node, columns, parent, ctes)
            return relations.opaque(columns) if node.args.get("limit") or node.args.get("offset") else columns
        raise self.error(node, Code.INVALID_ARGUMENT, "expected a query")

    def with_clause(self, node: exp.Expr, parent: Scope | None, ctes: Mapping[str, Cte]) -> Mapping[str, Cte]:
        """Resolve the queries of WITH and return what is in view after it."""
        clause = node.args.get("with_")
        if clause is None:
            return ctes
        found = dict(ctes)
        for cte in clause.expressions:
            name = cte.alias
            inner = dict(found)
            names = [c.name for c in cte.args["alias"].args.get("columns") or ()]
            if clause.args.get("recursive"):
                inner[name.lower()] = Cte(self.recursive_columns(cte.this, names))
            if not isinstance(cte.this, exp.Query | exp.Values):
                raise self.error(
                    cte, Code.INVALID_ARGUMENT, f"WITH {name} is no query: statements that write are not possible there"
                )
            columns = self.query(cte.this, parent, inner)
            if columns is not None and len(names) > len(columns):
                message = f"WITH {name} has {len(columns)} columns, not {len(names)}"
                raise self.error(cte, Code.INVALID_ARGUMENT, message)
            found[name.lower()] = Cte(relations.opaque(relations.renamed(columns, names)))
        return found

    def recursive_columns(self, query: exp.Expr, names: Sequence[str]) -> tuple[OutColumn, ...] | None:
        """Return the columns of a recursive query as its own body sees them."""
        if names:
            return tuple(OutColumn(name) for name in names)
        first = query.unnest()
        while isinstance(first, exp.SetOperation):
            first = first.this.unnest()
        if not isinstance(first, exp.Select) or any(e.find(exp.Star) for e in first.expressions):
            return None
        return tuple(OutColumn(relations.output_name(e)) for e in first.expressions)

    def set_operation(
        self, node: exp.SetOperation, parent: Scope | None, ctes: Mapping[str, Cte]
    ) -> tuple[OutColumn, ...] | None:
        """Resolve both sides; the names are those of the left one."""
        left = self.query(node.this, parent, ctes)
        right = self.query(node.expression, parent, ctes)
        if left is not None and right is not None and len(left) != len(right) and not node.args.get("by_name"):
            what = type(node).__name__.upper()
            message = f"the sides of {what} have {len(left)} and {len(right)} columns"
            raise self.error(node, Code.INVALID_ARGUMENT, message)
        if left is not None and right is not None:
            left = relations.united(left, right)
        self.outer_modifiers(node, left, parent, ctes)
        return relations.opaque(left)

    def outer_modifiers(
        self, node: exp.Expr, columns: tuple[OutColumn, ...] | None, parent: Scope | None, ctes: Mapping[str, Cte]
    ) -> None:
        """Resolve ORDER BY and LIMIT of a union or of a query in parentheses: they see its output."""
        output = columns_by_name(columns) if columns is not None else None
        scope = Scope(parent, ctes, [Relation("", output)])
        for key in ("order", "limit", "offset"):
            part = node.args.get(key)
            if part is not None:
                self.expression(part, scope)

    def values(self, node: exp.Values, scope: Scope) -> tuple[OutColumn, ...]:
        """Resolve VALUES; its columns are column1, column2 and so on."""
        width = len(node.expressions[0].expressions) if node.expressions else 0
        for row in node.expressions:
            if len(row.expressions) != width:
                raise self.error(row, Code.INVALID_ARGUMENT, "VALUES: all rows must have the same number of values")
            self.expression(row, scope)
        return tuple(OutColumn(f"column{i + 1}", relations.type_of_column(node, i)) for i in range(width))

    def select(self, node: exp.Select, parent: Scope | None, ctes: Mapping[str, Cte]) -> tuple[OutColumn, ...] | None:
        """Resolve one SELECT."""
        scope = Scope(parent, ctes)
        self.selects.append((node, scope))
        relations.from_clause(self, node, scope)
        for key in ("where",):
            if part := node.args.get(key):
                self.expression(part, scope)
        output: list[OutColumn] | None = []
        for projection in list(node.expressions):
            output = self.projection(projection, scope, output)
        scope.aliases = columns_by_name(
            [OutColumn(p.alias, infer(p)) for p in node.expressions if isinstance(p, exp.Alias)]
        )
        for key in ("distinct", "group", "having", "qualify", "windows", "order", "limit", "offset", "sample"):
            part = node.args.get(key)
            for one in part if isinstance(part, list) else [part]:
                if isinstance(one, exp.Expr):
                    self.expression(one, scope, order=key == "order")
        self.distinct_order(node)
        admit_dependent_columns(node, scope)
        if output is not None and not relations.is_transparent(node):
            output = [replace(column, origin=None) for column in output]
        return tuple(output) if output is not None else None

    def distinct_order(self, node: exp.Select) -> None:
        """Refuse SELECT DISTINCT ... ORDER BY something that is not selected: the order would be arbitrary."""
        distinct, order = node.args.get("distinct"), node.args.get("order")
        if distinct is None or distinct.args.get("on") is not None or order is None:
            return
        selected = {p.sql() for p in node.expressions} | {p.unalias().sql() for p in node.expressions}
        names = {relations.output_name(p).lower() for p in node.expressions}
        for ordered in order.expressions:
            wanted = ordered.this if isinstance(ordered, exp.Ordered) else ordered
            bare = isinstance(wanted, exp.Column) and wanted.name.lower() in names
            if not (isinstance(wanted, exp.Literal) or bare or wanted.sql() in selected or node.is_star):
                message = "SELECT DISTINCT: what ORDER BY sorts by must be selected"
                raise self.error(wanted, Code.INVALID_ARGUMENT, message)

    def projection(self, node: exp.Expr, scope: Scope, output: list[OutColumn] | None) -> list[OutColumn] | None:
        """Resolve one item of a select list and append what it gives to ``output``."""
        star = isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star))
        if star:
            found = relations.star(self, node, scope)
            return None if found is None or output is None else [*output, *found]
        name = relations.output_name(node)
        inner = node.this if isinstance(node, exp.Alias) else node
        resolved = self.expression(inner, scope)
        infer_all(resolved)
        if output is not None:
            origin = resolved.meta.get(COLUMN_META) if isinstance(resolved, exp.Column) and resolved.meta else None
            output.append(OutColumn(name, infer(resolved), origin))
        if not isinstance(node, exp.Alias) and name and (not isinstance(resolved, exp.Column) or resolved.name != name):
            # Copies would copy what name resolution noted at the nodes, so the node itself moves.
            alias = exp.Alias(alias=exp.to_identifier(name, quoted=True))
            resolved.replace(alias)
            alias.set("this", resolved)
        return output

    # ------------------------------------------------------------------ expressions

    def expression(self, node: exp.Expr, scope: Scope, order: bool = False) -> exp.Expr:
        """Resolve the names in an expression; return what stands in its place."""
        if isinstance(node, exp.Column):
            return self.column(node, scope, order)
        if _is_path(node):
            return self.column(node, scope, order)
        if isinstance(node, exp.Query | exp.Values) and not isinstance(node, exp.Table):
            self.query(node, scope, scope.ctes)
            return node
        if isinstance(node, exp.Lambda):
            return node
        return self.inner(node, scope, order)

    def inner(self, root: exp.Expr, scope: Scope, order: bool) -> exp.Expr:
        """Resolve what is inside an expression. No recursion: sums and conditions may be thousands of terms long."""
        casts: list[exp.Cast] = []
        todo = [(root, order)]
        while todo:
            node, ordering = todo.pop()
            if node is not root and (isinstance(node, _LEAVES) or _is_path(node)):
                self.expression(node, scope, ordering)
                continue
            if isinstance(node, exp.Cast):
                casts.append(node)
            bare = isinstance(node, exp.Order | exp.Ordered)
            for child in node.iter_expressions():
                if not isinstance(child, exp.Star) or isinstance(node, exp.Tuple):
                    todo.append((child, ordering and bare))
        found = root
        for cast in reversed(casts):
            replaced = self.cast(cast)
            found = replaced if cast is root else found
        return found

    def column(self, node: exp.Expr, scope: Scope, order: bool) -> exp.Expr:
        """Resolve a column or a path; return the expression that replaces it."""
        parts = relations.name_parts(node)
        if len(parts) == 1 and order and parts[0].name.lower() in scope.aliases:
            node.meta[META] = scope.aliases[parts[0].name.lower()].type
            return node
        if len(parts) > 1:
            if parts[0].name.lower() == "public" and len(parts) > 2 and scope.relation("public") is None:
                parts = parts[1:]
            relation = scope.relation(parts[0].name)
            if relation is not None and (relation.columns is None or relation.column(parts[1].name) is not None):
                return self.column_of(node, relation, parts[1], parts[2:], scope)
            if relation is not None and relation.field_source is not None:
                return self.field_of(node, relation, relation.field_source, parts[1:])
            holders = scope.holders(parts[0].name)
            if relation is not None and not holders:
                known = [c.name for c in (relation.columns or {}).values()]
                hint = near_miss(parts[1].name, known)
                raise self.error(parts[1], Code.NOT_FOUND, f"there is no column {parts[0].name}.{parts[1].name}{hint}")
        return self.unqualified(node, parts, scope)

    def unqualified(self, node: exp.Expr, parts: list[exp.Expr], scope: Scope) -> exp.Expr:
        """Resolve a name without a table before it, with the path that follows."""
        name = parts[0].name
        holders = scope.holders(name)
        if len(holders) > 1 and not scope.merges(name):
            tables = " and ".join(h.alias for h in holders[:2])
            raise self.error(node, Code.INVALID_ARGUMENT, f"the column {name} is ambiguous: it is in {tables}")
        if len(holders) == 1:
            return self.column_of(node, holders[0], parts[0], parts[1:], scope, qualified=False)
        if holders:
            for holder in holders:
                relations.use(holder, name)
            first = holders[0].columns[name.lower()] if holders[0].columns else OutColumn(name)
            node.meta[META] = first.type
            origin = relations.merged_origin(holders[0], name, scope)
            if origin is not None and len(parts) == 1:
                node.meta[COLUMN_META] = origin
            return node
        relation = scope.relation(name)
        if relation is not None and len(parts) == 1:
            return relations.whole_row(self, node, relation)
        if any(name.lower() in s.aliases for s in scope.outward()) or scope.open:
            return node
        what = f"there is no column {name}" if len(parts) == 1 else f"there is no table or column {name} here"
        raise self.error(parts[0], Code.NOT_FOUND, what + near_miss(name, scope.known_names()))

    def column_of(
        self,
        node: exp.Expr,
        relation: Relation,
        name: exp.Expr,
        rest: Sequence[exp.Expr],
        scope: Scope,
        qualified: bool = True,
    ) -> exp.Expr:
        """Resolve a column of a relation and the path into it."""
        column = relation.column(name.name)
        if column is None:
            return node
        if relation.field_source is not None and relation.field_source.element.kind is not Kind.PROTO and not rest:
            return relations.whole_row(self, node, relation)
        if relation.field_source is not None:
            return self.field_of(node, relation, relation.field_source, [name, *rest])
        if column.type.kind is not Kind.PROTO or not rest:
            relations.use(relation, name.name)
            target = node
            while isinstance(target, exp.Dot):
                target = target.this
            target.meta[META] = column.type if not rest else UNKNOWN
            if relation.base is not None and not rest:
                wanted = FieldWanted(relations.column_id(relation.base, column.name))
                target.meta[COLUMN_META] = Origin(relation.base.number, wanted)
            elif column.origin is not None and not rest:
                target.meta[COLUMN_META] = replace(column.origin, through=True)
            if not qualified and not rest and relation.alias and not scope.shadowed(relation):
                target.set("table", exp.to_identifier(relation.alias, quoted=True))
            node.meta[META] = target.meta[META]
            return node
        if column.type.lists:
            raise self.error(
                name, Code.INVALID_ARGUMENT, f"{name.name} is repeated: use PROTO JOIN to reach into its elements"
            )
        path = field_path(self.registry, column.type.proto, rest, self.text)
        result = of_path(self.registry, column.type.proto, path)
        if relation.base is not None:
            column_id = relations.column_id(relation.base, column.name)
            found: exp.Expr = relations.qualified(relation.alias, relation.base.need(column_id, path))
            found.meta[COLUMN_META] = Origin(relation.base.number, FieldWanted(column_id, path))
        else:
            function = self.function("path", column.type.proto, path, result)
            found = exp.Anonymous(this=function.name, expressions=[relations.qualified(relation.alias, column.name)])
        return relations.replaced(node, found, result)

    def field_of(self, node: exp.Expr, relation: Relation, source: FieldSource, rest: Sequence[exp.Expr]) -> exp.Expr:
        """Resolve a path into the elements of a repeated field."""
        if source.element.kind is not Kind.PROTO:
            raise self.error(rest[0], Code.INVALID_ARGUMENT, f"{relation.alias} has no fields")
        path = field_path(self.registry, source.element.proto, rest, self.text)
        result = of_path(self.registry, source.element.proto, path)
        return relations.replaced(node, relations.qualified(relation.alias, source.need(path)), result)

    def cast(self, node: exp.Cast) -> exp.Expr:
        """Convert between messages and text; other casts are left to :mod:`f1server.plan.duckdb_sql`."""
        target, operand = infer(node), infer(node.this)
        if target.kind is Kind.PROTO and not target.lists:
            self.registry.message_class(target.proto)
            if isinstance(node.this, exp.Parameter):
                node.this.meta["f1_proto"] = target.proto
                return relations.replaced(node, node.this, target)
            if operand.kind is Kind.STRING:
                function = self.function("parse", target.proto, (), target)
            elif operand.kind is Kind.PROTO and operand.proto != target.proto:
                raise self.error(node, Code.INVALID_ARGUMENT, f"a {operand.proto} is no {target.proto}")
            else:
                function = self.function("check", target.proto, (), target)
        elif operand.kind is Kind.PROTO and not operand.lists and target.kind is Kind.STRING:
            function = self.function("to_json", operand.proto, (), target)
        else:
            return node
        call = exp.Anonymous(this=function.name)
        operand_node = node.this
        relations.replaced(node, call, target)
        call.set("expressions", [operand_node])
        return call

    def function(self, action: str, message: str, path: tuple[str, ...], result: SqlType) -> ProtoFunction:
        """Return the function that does this, made once for a statement."""
        key = (action, message, path)
        found = self.functions.get(key)
        if found is None:
            name = function_name(self.schema, action, message, path)
            found = self.functions[key] = ProtoFunction(name, action, message, path, result)
        return found

    # ------------------------------------------------------------------ tables

    def base_table(self, table: Table, node: exp.Table, alias: str) -> Relation:
        """Return the relation of a table of the schema."""
        base = BaseTable(len(self.tables), table, node, alias)
        self.tables.append(base)
        columns = columns_by_name([OutColumn(c.name, of_column(c)) for c in table.visible])
        for column in table.by_name.values():
            columns.setdefault(column.name.lower(), OutColumn(column.name, of_column(column)))
        return Relation(alias, columns, base)

    def view(self, view: View) -> tuple[exp.Expr, tuple[OutColumn, ...] | None]:
        """Return the query of a view, resolved, and its columns."""
        from f1server.plan.statements import QueryStatement, parse

        if self.view_depth >= _MAX_VIEW_DEPTH:
            raise F1Error(
                Code.INVALID_ARGUMENT, f"views are nested more than {_MAX_VIEW_DEPTH} deep, or in a circle: {view.name}"
            )
        self.views[view.name] = view
        (statement,) = parse(view.sql)
        if not isinstance(statement, QueryStatement) or statement.as_of is not None:
            raise F1Error(Code.INVALID_ARGUMENT, f"the view {view.name} is no query")
        inner = exp.Subquery(this=statement.ast.copy())
        self.view_depth += 1
        try:
            columns = self.query(inner.this, None, {})
        except F1Error as error:
            raise F1Error(error.code, f"in the view {view.name}: {error.message}") from error
        finally:
            self.view_depth -= 1
        return inner, columns

    def finish(self) -> None:
        """Put in place what could only be known after all names: repeated fields, and what stars leave out."""
        for source in reversed(self.fields):
            relations.expand_field(self, source)
        for node, scope, only in self.stars:
            relations.trim_star(node, scope, only)
        for base in self.tables:
            if not base.needed:
                base.need(base.table.key_column_ids[0])
