"""What stands in FROM, and how columns of it are written: the part of name resolution that knows sqlglot's trees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from f1common.errors import Code, check
from f1server.catalog.schema import Kind
from f1server.plan.dialect import function_name, proto_name
from f1server.plan.names import (
    BaseTable,
    Cte,
    FieldSource,
    Origin,
    OutColumn,
    Relation,
    Scope,
    columns_by_name,
    field_path,
    near_miss,
)
from f1server.plan.scans import FieldWanted
from f1server.plan.types import META, UNKNOWN, SqlType, common, infer, of_path

if TYPE_CHECKING:
    from f1server.plan.resolve import Resolver

TABLE_FUNCTIONS = frozenset({"generate_series", "range", "unnest", "json_each", "json_tree", "regexp_split_to_table"})
_OUTPUT_NAMES: tuple[tuple[type[exp.Expr], str], ...] = (
    (exp.Case, "case"),
    (exp.Extract, "extract"),
    (exp.Exists, "exists"),
    (exp.Array, "array"),
    (exp.GroupConcat, "string_agg"),
    (exp.StrPosition, "position"),
    (exp.Explode, "unnest"),
    (exp.Trim, "btrim"),
    (exp.CurrentTimestamp, "now"),
    (exp.Boolean, "bool"),
)


_MOST_RELATIONS = 100
"""Choosing an order for so many joins takes seconds already, and grows with their cube."""

USING_META = "f1_using"
"""Key of ``Expression.meta`` of a join: for each column of USING, the columns of base tables that are equal."""

# ---------------------------------------------------------------------- FROM


def from_clause(resolver: Resolver, node: exp.Select, scope: Scope) -> None:
    """Resolve FROM with its joins, and the conditions of these."""
    joins = list(node.args.get("joins") or ())
    if (start := node.args.get("from_")) is not None:
        _item(resolver, start.this, scope)
    for join in joins:
        _join(resolver, join, scope)
    for lateral in node.args.get("laterals") or ():
        _item(resolver, lateral, scope)


def _join(resolver: Resolver, join: exp.Join, scope: Scope) -> None:
    before = list(scope.relations)
    _item(resolver, join.this, scope)
    scope.padding = scope.padding or str(join.args.get("side") or "").upper() in ("RIGHT", "FULL")
    if join.args.get("method") == "NATURAL":
        scope.natural = True
        for relation in scope.relations:
            for column in list((relation.columns or {}).values()):
                if relation.base is None or not relation.base.table.column(column.name).hidden:
                    use(relation, column.name)
    for name in join.args.get("using") or ():
        scope.merged.add(name.name.lower())
        new = [r for r in scope.relations if r not in before]
        for side in (before, new):
            holders = [r for r in side if r.columns is None or r.column(name.name)]
            if not holders:
                raise resolver.error(
                    name, Code.NOT_FOUND, f"USING: there is no column {name.name} on one side of the join"
                )
            for holder in holders:
                use(holder, name.name)
        places = [o for side in (before, new) for r in side if (o := origin_of(r, name.name)) is not None]
        join.meta.setdefault(USING_META, []).append(tuple(places))
    if (on := join.args.get("on")) is not None:
        resolver.expression(on, scope)


def _item(resolver: Resolver, node: exp.Expr, scope: Scope) -> None:
    """Resolve one thing in FROM and add what it gives to the scope."""
    if isinstance(node, exp.Table):
        _table(resolver, node, scope)
    elif isinstance(node, exp.Subquery) and not isinstance(node.this, exp.Query | exp.Values):
        _joined_tables(resolver, node, scope)
    elif isinstance(node, exp.Subquery):
        columns = resolver.query(node.this, scope if _may_see_siblings(node) else scope.parent, scope.ctes)
        resolver.outer_modifiers(node, columns, scope.parent, scope.ctes) if node.args.get("order") else None
        _derived(resolver, node, columns, scope)
    elif isinstance(node, exp.Values):
        columns = resolver.values(node, Scope(scope, scope.ctes))
        _name_columns(node, [c.name for c in columns], f"values{len(scope.relations)}")
        _derived(resolver, node, columns, scope)
    elif isinstance(node, exp.Unnest | exp.Lateral):
        _function_item(resolver, node, scope)
    else:
        raise resolver.error(node, Code.INVALID_ARGUMENT, "this cannot stand in FROM")
    for join in node.args.get("joins") or ():
        _join(resolver, join, scope)


def _joined_tables(resolver: Resolver, node: exp.Subquery, scope: Scope) -> None:
    """Resolve joins in parentheses; with an alias, they are one relation."""
    if not node.alias:
        _item(resolver, node.this, scope)
        return
    inner = Scope(scope.parent, scope.ctes)
    _item(resolver, node.this, inner)
    columns: list[OutColumn] | None = []
    for relation in inner.relations:
        for column in list((relation.columns or {}).values()):
            use(relation, column.name)
        known = relation.columns is not None and columns is not None
        columns = [*columns, *relation.columns.values()] if known and columns is not None and relation.columns else None
    _derived(resolver, node, columns, scope)


def _may_see_siblings(node: exp.Subquery) -> bool:
    return isinstance(node.parent, exp.Lateral)


def _derived(resolver: Resolver, node: exp.Expr, columns: Sequence[OutColumn] | None, scope: Scope) -> None:
    alias = node.args.get("alias")
    names = [c.name for c in (alias.args.get("columns") or ())] if alias is not None else []
    found = renamed(columns, names)
    if found is not None and len(names) > len(found):
        raise resolver.error(node, Code.INVALID_ARGUMENT, f"{node.alias} has {len(found)} columns, not {len(names)}")
    _add(resolver, scope, Relation(node.alias, columns_by_name(found) if found is not None else None), node)


def _add(resolver: Resolver, scope: Scope, relation: Relation, node: exp.Expr) -> None:
    taken = [r for r in scope.relations if r.alias and r.alias.lower() == relation.alias.lower()]
    if taken and relation.alias:
        raise resolver.error(
            node, Code.INVALID_ARGUMENT, f"the name {relation.alias} is used twice in FROM: give one an alias"
        )
    if len(scope.relations) >= _MOST_RELATIONS:
        text = f"FROM has more than {_MOST_RELATIONS} relations: join some of them in a query of their own, or a table"
        raise resolver.error(node, Code.INVALID_ARGUMENT, text)
    scope.relations.append(relation)


def _table(resolver: Resolver, node: exp.Table, scope: Scope) -> None:
    if not isinstance(node.this, exp.Identifier | exp.Dot):
        _function_item(resolver, node, scope)
        return
    parts = [p for p in name_parts(node) if p.name]
    if len(parts) > 1 and parts[0].name.lower() == "public" and scope.relation("public") is None:
        parts = parts[1:]
    if len(parts) > 1:
        _repeated_field(resolver, node, parts, scope)
        return
    name = parts[0].name
    alias = node.alias or name
    cte = scope.ctes.get(name.lower())
    if cte is not None:
        names = _alias_columns(node)
        columns = renamed(cte.columns, names)
        _add(resolver, scope, Relation(alias, columns_by_name(columns) if columns is not None else None), node)
        return
    table = resolver.schema.by_name.get(name.lower())
    if table is not None:
        relation = resolver.base_table(table, node, alias)
        _add(resolver, scope, relation, node)
        check(relation.base is not None, "a table is a base table")
        _rename_table(node, relation, alias)
        return
    view = resolver.schema.views_by_name.get(name.lower())
    if view is not None:
        query, columns = resolver.view(view)
        names = _alias_columns(node)
        query.set(
            "alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True), columns=[_quoted(n) for n in names])
        )
        query.set("joins", node.args.get("joins"))
        node.replace(query)
        found = renamed(columns, names)
        _add(resolver, scope, Relation(alias, columns_by_name(found) if found is not None else None), node)
        return
    known = [t.name for t in resolver.schema.by_name.values()] + [v.name for v in resolver.schema.views]
    gone = " (one of that name was dropped)" if name.lower() in resolver.schema.dropped else ""
    hint = near_miss(name, [*known, *scope.ctes])
    raise resolver.error(parts[0], Code.NOT_FOUND, f"there is no table {name}{gone}{hint}")


def _rename_table(node: exp.Table, relation: Relation, alias: str) -> None:
    """Let a table node name the relation that its rows will be registered as."""
    base = relation.base
    check(base is not None, "a table is a base table")
    if base is None:
        return
    names = _alias_columns(node)
    node.set("this", exp.to_identifier(base.relation))
    for key in ("db", "catalog", "only"):
        node.set(key, None)
    node.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
    if names:
        for column in base.table.visible:
            base.need(column.id)
        given = [*names, *[c.name for c in base.table.visible][len(names) :]]
        old = relation.columns or {}
        kept = [old[c.name.lower()] for c in base.table.visible]
        relation.columns = columns_by_name([replace(c, name=n) for c, n in zip(kept, given, strict=False)])
        relation.base = None
        node.args["alias"].set("columns", [_quoted(n) for n in given])


def _alias_columns(node: exp.Expr) -> list[str]:
    alias = node.args.get("alias")
    return [c.name for c in (alias.args.get("columns") or ())] if alias is not None else []


def _function_item(resolver: Resolver, node: exp.Expr, scope: Scope) -> None:
    """Resolve a table function, UNNEST or LATERAL; they see what stands before them."""
    lateral_query = isinstance(node, exp.Lateral) and isinstance(node.this, exp.Subquery)
    if lateral_query:
        columns = resolver.query(node.this.this, scope, scope.ctes)
        _derived(resolver, node, columns, scope)
        return
    call = node.this if isinstance(node, exp.Table | exp.Lateral) else node
    name = function_name(call) if not isinstance(call, exp.Unnest | exp.Explode) else "unnest"
    if name not in TABLE_FUNCTIONS:
        raise resolver.error(node, Code.NOT_FOUND, f"there is no table function {name or 'of this kind'}")
    for argument in list(call.iter_expressions()):
        if not isinstance(argument, exp.TableAlias):
            resolver.expression(argument, scope)
    alias = node.alias or name
    names = _alias_columns(node)
    if not names and name in ("generate_series", "range", "unnest"):
        names = [alias]
        ordinality = node.args.get("offset")
        node.set("alias", exp.TableAlias(this=_quoted(alias), columns=[_quoted(alias)]))
        names += [ordinality.name] if isinstance(ordinality, exp.Identifier) else []
    known = columns_by_name([OutColumn(n) for n in names]) if names else None
    if isinstance(node.args.get("offset"), exp.Identifier) and known is not None:
        known.setdefault(node.args["offset"].name.lower(), OutColumn(node.args["offset"].name))
    _add(resolver, scope, Relation(alias, known), node)


def _repeated_field(resolver: Resolver, node: exp.Table, parts: list[exp.Expr], scope: Scope) -> None:
    """Resolve ``alias.column.field...`` or ``column.field...`` used as a table (F1 section 6.4)."""
    relation = scope.relation(parts[0].name)
    rest = parts[1:]
    if relation is None or (relation.field_source is None and relation.column(parts[1].name) is None):
        holders = scope.holders(parts[0].name)
        if len(holders) != 1:
            known = [r.alias for s in scope.outward() for r in s.relations]
            shown = ".".join(p.name for p in parts)
            hint = near_miss(parts[0].name, known)
            raise resolver.error(
                parts[0], Code.NOT_FOUND, f"there is no table {shown}, and {parts[0].name} is no table here{hint}"
            )
        relation, rest = holders[0], parts
    alias = node.alias or parts[-1].name
    source = _field_source(resolver, node, alias, relation, rest)
    resolver.fields.append(source)
    if source.element.lists != 0:
        raise resolver.error(
            parts[-1], Code.INVALID_ARGUMENT, "the path leads through a repeated field: join that one first"
        )
    _add(resolver, scope, Relation(alias, _element_columns(resolver, source), field_source=source), node)


def _field_source(
    resolver: Resolver, node: exp.Table, alias: str, relation: Relation, rest: Sequence[exp.Expr]
) -> FieldSource:
    parent = relation.field_source
    column = None if parent is not None else relation.column(rest[0].name)
    kind = parent.element if parent is not None else (column.type if column is not None else UNKNOWN)
    names = rest if parent is not None else rest[1:]
    if kind.kind is not Kind.PROTO or not names:
        raise resolver.error(
            rest[0], Code.INVALID_ARGUMENT, f"{rest[0].name} is no column of messages: it cannot be joined"
        )
    path = field_path(resolver.registry, kind.proto, names, resolver.text)
    found = of_path(resolver.registry, kind.proto, path)
    if not found.lists:
        raise resolver.error(
            names[-1], Code.INVALID_ARGUMENT, f"the field {names[-1].name} is not repeated: it cannot be joined"
        )
    element = replace(found, lists=found.lists - 1)
    expression: exp.Expr | None = None
    if parent is None and relation.base is None and column is not None:
        expression = qualified(relation.alias, column.name)
    id_ = column_id(relation.base, column.name) if relation.base is not None and column is not None else 0
    return FieldSource(node, alias, id_, path, element, relation.base, relation.alias, parent, expression, kind.proto)


def _element_columns(resolver: Resolver, source: FieldSource) -> dict[str, OutColumn]:
    """Return what ``SELECT *`` shows of the elements of a repeated field."""
    if source.element.kind is not Kind.PROTO:
        return columns_by_name([OutColumn(source.alias, source.element)])
    message = resolver.registry.message_class(source.element.proto).DESCRIPTOR
    return columns_by_name(
        [OutColumn(f.name, of_path(resolver.registry, source.element.proto, (f.name,))) for f in message.fields]
    )


def expand_field(resolver: Resolver, source: FieldSource) -> None:
    """Replace a repeated field in FROM by a query that unnests lists of what is needed of its elements.

    The lists of several fields of the same elements are equally long, so unnesting them side by side pairs them up.
    """
    if not source.items:
        source.need(())
    columns: list[exp.Expr] = []
    for path, name in source.items.items():
        whole = (*source.path, *path)
        kind = of_path(resolver.registry, source.message, whole)
        if source.base is not None:
            values: exp.Expr = qualified(source.owner, source.base.need(source.column_id, whole))
        elif source.parent is not None:
            values = qualified(source.owner, source.parent.need(whole))
        else:
            check(source.expression is not None, "a repeated field is in something")
            function = resolver.function("path", source.message, whole, kind)
            argument = source.expression.copy() if source.expression is not None else exp.null()
            values = exp.Anonymous(this=function.name, expressions=[argument])
        call = exp.Anonymous(this="unnest", expressions=[values])
        columns.append(exp.Alias(this=call, alias=_quoted(name)))
    query = exp.Subquery(this=exp.Select(expressions=columns), alias=exp.TableAlias(this=_quoted(source.alias)))
    lateral = exp.Lateral(this=exp.Subquery(this=query.this), alias=query.args["alias"])
    lateral.set("joins", source.node.args.get("joins"))
    source.node.replace(lateral if not isinstance(source.node.parent, exp.From) else query)


# ---------------------------------------------------------------------- stars


def star(resolver: Resolver, node: exp.Expr, scope: Scope) -> list[OutColumn] | None:
    """Mark everything that ``*`` or ``t.*`` shows as needed and return it, or None if that is not known."""
    only: Relation | None = None
    if isinstance(node, exp.Column):
        only = scope.relation(node.table)
        if only is None:
            known = [r.alias for s in scope.outward() for r in s.relations]
            hint = near_miss(node.table, known)
            raise resolver.error(node, Code.NOT_FOUND, f"there is no table {node.table} in FROM{hint}")
    elif not scope.relations:
        raise resolver.error(node, Code.INVALID_ARGUMENT, "* without FROM")
    resolver.stars.append((node, scope, only))
    shown: list[OutColumn] | None = []
    seen: set[str] = set()
    for relation in [only] if only is not None else scope.relations:
        if relation.columns is None:
            shown = None
            continue
        columns = list(relation.columns.values())
        if relation.base is not None:
            visible = {c.name for c in relation.base.table.visible}
            columns = [c for c in columns if c.name in visible]
        for column in columns:
            use(relation, column.name)
            merged = column.name.lower() in seen and (column.name.lower() in scope.merged or scope.natural)
            seen.add(column.name.lower())
            if shown is not None and not (merged and only is None):
                shown.append(replace(column, origin=origin_of(relation, column.name)))
    inner = node.this if isinstance(node, exp.Column) else node
    left_out = {e.name.lower() for e in inner.args.get("except_") or ()}
    return [c for c in shown if c.name.lower() not in left_out] if shown is not None else None


def trim_star(node: exp.Expr, scope: Scope, only: Relation | None) -> None:
    """Keep out of a star what relations have only because other places need it."""
    extra: list[str] = []
    for relation in [only] if only is not None else scope.relations:
        if relation.base is not None:
            extra += sorted(relation.base.hidden)
        if relation.field_source is not None:
            shown = {c.name for c in (relation.columns or {}).values()}
            extra += sorted(n for n in relation.field_source.items.values() if n not in shown)
    inner = node.this if isinstance(node, exp.Column) else node
    if extra:
        inner.set("except_", [*(inner.args.get("except_") or ()), *[_quoted(name) for name in extra]])


def whole_row(resolver: Resolver, node: exp.Expr, relation: Relation) -> exp.Expr:
    """Resolve the name of a table used as a value: the element of a repeated field, or the row as a struct."""
    source = relation.field_source
    if source is not None:
        return replaced(node, qualified(relation.alias, source.need(())), source.element)
    if relation.columns is None:
        return node
    names = [c.name for c in relation.columns.values()]
    if relation.base is not None:
        names = [c.name for c in relation.base.table.visible]
    pairs: list[exp.Expr] = []
    for name in names:
        use(relation, name)
        pairs.append(exp.PropertyEQ(this=_quoted(name), expression=qualified(relation.alias, name)))
    return replaced(node, exp.Struct(expressions=pairs), UNKNOWN)


# ---------------------------------------------------------------------- columns


def name_parts(node: exp.Expr) -> list[exp.Expr]:
    """Return the names of a column, a path or a table, from left to right."""
    if isinstance(node, exp.Dot):
        return [*name_parts(node.this), *name_parts(node.expression)]
    if isinstance(node, exp.Column | exp.Table):
        keys = ("catalog", "db", "table", "this") if isinstance(node, exp.Column) else ("catalog", "db", "this")
        return [p for key in keys if isinstance(part := node.args.get(key), exp.Expr) for p in name_parts(part)]
    return [node]


def use(relation: Relation, name: str) -> None:
    """Note that a column is needed."""
    if relation.base is not None and relation.column(name) is not None:
        relation.base.need(column_id(relation.base, name))
    elif relation.field_source is not None:
        column = relation.column(name)
        if column is not None and relation.field_source.element.kind is Kind.PROTO:
            relation.field_source.need((column.name,))
        elif column is not None:
            relation.field_source.need(())


def column_id(base: BaseTable, name: str) -> int:
    """Return the id of a column of a table."""
    return base.table.column(name).id


def qualified(alias: str, name: str) -> exp.Column:
    """Return a column with its table."""
    return exp.Column(this=_quoted(name), table=_quoted(alias) if alias else None)


def _quoted(name: str) -> exp.Identifier:
    return exp.Identifier(this=name, quoted=True)


def replaced(node: exp.Expr, found: exp.Expr, kind: SqlType) -> exp.Expr:
    """Put ``found`` in the place of ``node``, with its type."""
    found.meta[META] = kind
    node.replace(found)
    return found


def _name_columns(node: exp.Expr, names: Sequence[str], default: str) -> None:
    """Give a table expression explicit names of its columns."""
    alias = node.args.get("alias")
    given = [c.name for c in (alias.args.get("columns") or ())] if alias is not None else []
    whole = [*given, *names[len(given) :]]
    node.set("alias", exp.TableAlias(this=_quoted(node.alias or default), columns=[_quoted(n) for n in whole]))


def origin_of(relation: Relation, name: str) -> Origin | None:
    """Return which column of a base table a column of a relation is, if that is known."""
    if relation.base is not None and relation.column(name) is not None:
        return Origin(relation.base.number, FieldWanted(column_id(relation.base, name)))
    column = relation.column(name)
    return replace(column.origin, through=True) if column is not None and column.origin is not None else None


def merged_origin(relation: Relation, name: str, scope: Scope) -> Origin | None:
    """Return the origin of a column of USING: that of the left side, unless the join may pad it with NULLs."""
    return None if scope.padding else origin_of(relation, name)


def is_transparent(node: exp.Select) -> bool:
    """May a condition on the output of a SELECT be tested on its input already?"""
    if any(node.args.get(key) for key in ("group", "having", "distinct", "limit", "offset", "qualify", "sample")):
        return False
    return not any(
        isinstance(part, exp.AggFunc | exp.Window | exp.Explode | exp.Anonymous)
        for e in node.expressions
        for part in e.walk()
    )


def opaque(columns: tuple[OutColumn, ...] | None) -> tuple[OutColumn, ...] | None:
    """Return columns on which conditions cannot be tested any earlier."""
    return tuple(replace(c, origin=None) for c in columns) if columns is not None else None


def renamed(columns: Sequence[OutColumn] | None, names: Sequence[str]) -> tuple[OutColumn, ...] | None:
    """Return columns under the names that an alias gives to the first of them."""
    if columns is None:
        return tuple(OutColumn(n) for n in names) if names else None
    kept = [replace(c, name=n) for c, n in zip(columns, names, strict=False)]
    return (*kept, *columns[len(names) :])


def united(left: Sequence[OutColumn], right: Sequence[OutColumn]) -> tuple[OutColumn, ...]:
    """Return the columns of a union: the left names, and types that hold both sides."""
    return tuple(replace(a, type=common((a.type, b.type))) for a, b in zip(left, right, strict=False))


def type_of_column(node: exp.Values, index: int) -> SqlType:
    """Return the type that all values of a column of VALUES have together."""
    return common(infer(row.expressions[index]) for row in node.expressions)


def output_name(node: exp.Expr) -> str:
    """Return the name of a result column as PostgreSQL gives it."""
    if isinstance(node, exp.Alias):
        return str(node.alias)
    if isinstance(node, exp.Column | exp.Dot):
        return name_parts(node)[-1].name
    if isinstance(node, exp.Cast):
        inner = output_name(node.this)
        message = proto_name(node.args.get("to")).rpartition(".")[2]
        return inner if inner != "?column?" else message or node.args["to"].sql("postgres").lower().partition("(")[0]
    if isinstance(node, exp.Paren | exp.Filter | exp.Window | exp.WithinGroup | exp.IgnoreNulls):
        return output_name(node.this)
    if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Select) and node.this.expressions:
        return output_name(node.this.expressions[0])
    for kind, name in _OUTPUT_NAMES:
        if isinstance(node, kind):
            return name
    if isinstance(node, exp.Anonymous):
        return function_name(node)
    if isinstance(node, exp.Func) and not isinstance(node, exp.Connector):
        return node.sql_name().lower()
    return "?column?"


__all__ = ["Cte", "from_clause", "star"]
