"""Brings a query that is rewritten for DuckDB into a form that can be cut into parts.

Every relation gets an alias that no other relation of the statement has, every column is written with it, ``*``, USING,
and numbers and names of the select list in GROUP BY and ORDER BY are spelled out. What cannot be spelled out is not
spread: :class:`Unspreadable`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from f1server.catalog.protos import registry_of
from f1server.catalog.schema import Schema
from f1server.plan.names import BaseTable
from f1server.plan.relations import output_name
from f1server.plan.types import META, UNKNOWN, SqlType, infer, of_column, of_path

OUTPUT = "f1_out"
"""Prefix of columns without table that stand in ORDER BY for columns of the select list, by number from 0."""

_SELECT_KEYS = frozenset(
    {"expressions", "from_", "joins", "laterals", "where", "group", "having", "order", "limit", "offset", "distinct"}
    | {"with_", "windows", "locks", "hint"}
)
_DONE = "f1_normal"
"""Key of ``Expression.meta`` of a column that is written with its relation."""
_SIDES = ("", "LEFT", "RIGHT", "FULL")


class Unspreadable(Exception):
    """A query that runs on the f1server alone; the text says why."""


@dataclass(frozen=True, slots=True)
class Named:
    """A column of a relation as DuckDB knows it. ``shown``: what the statement calls it, if that is something else."""

    name: str
    type: SqlType = UNKNOWN
    shown: str = ""

    @property
    def written(self) -> str:
        """What the statement calls it."""
        return self.shown or self.name


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """A relation in FROM: a base table (``table``: its number), a query of WITH (``cte``), or something else."""

    alias: str
    columns: tuple[Named, ...]
    table: int | None = None
    cte: int | None = None

    def find(self, name: str) -> list[Named]:
        """Return the columns of that name, in any case."""
        return [c for c in self.columns if c.written.lower() == name.lower()]


@dataclass(slots=True, eq=False)
class _Scope:
    parent: "_Scope | None"
    items: list[Item] = field(default_factory=list)
    merged: dict[str, exp.Expr] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Normal:
    """A query in normal form: the tree, what its aliases are, and the queries of WITH by number."""

    schema: Schema
    tables: Mapping[int, BaseTable]
    items: dict[str, Item] = field(default_factory=dict)
    ctes: list[tuple[exp.Expr, tuple[Named, ...]]] = field(default_factory=list)
    _names: dict[str, str] = field(default_factory=dict)
    """What the statement calls the relations, in lower case."""

    def query(
        self, node: exp.Expr, scope: "_Scope | None" = None, ctes: Mapping[str, int] | None = None
    ) -> tuple[Named, ...]:
        """Bring a query into normal form, in place; return its columns. Raises Unspreadable."""
        ctes = self._with(node, scope, ctes or {})
        if isinstance(node, exp.Subquery | exp.Paren):
            if any(node.args.get(key) for key in ("order", "limit", "offset")):
                raise Unspreadable("a query in parentheses with ORDER BY or LIMIT of its own")
            return self.query(node.this, scope, ctes)
        if isinstance(node, exp.SetOperation):
            return self._set_operation(node, scope, ctes)
        if isinstance(node, exp.Select):
            return self._select(node, scope, ctes)
        raise Unspreadable(f"{type(node).__name__.upper()} as a query")

    def _with(self, node: exp.Expr, scope: "_Scope | None", ctes: Mapping[str, int]) -> Mapping[str, int]:
        clause = node.args.get("with_")
        if clause is None:
            return ctes
        if clause.args.get("recursive"):
            raise Unspreadable("WITH RECURSIVE")
        found = dict(ctes)
        for cte in clause.expressions:
            columns = self.query(cte.this, scope, found)
            names = [c.name for c in cte.args["alias"].args.get("columns") or ()]
            columns = tuple(Named(names[i] if i < len(names) else c.name, c.type) for i, c in enumerate(columns))
            found[cte.alias.lower()] = len(self.ctes)
            self.ctes.append((cte.this, columns))
        node.set("with_", None)
        return found

    def _set_operation(
        self, node: exp.SetOperation, scope: "_Scope | None", ctes: Mapping[str, int]
    ) -> tuple[Named, ...]:
        if node.args.get("by_name") or node.args.get("on"):
            raise Unspreadable("UNION BY NAME")
        left = self.query(node.this, scope, ctes)
        right = self.query(node.expression, scope, ctes)
        if len(left) != len(right):
            raise Unspreadable("the sides of a union differ")
        columns = tuple(
            Named(a.name, a.type if a.type == b.type else UNKNOWN) for a, b in zip(left, right, strict=True)
        )
        order = node.args.get("order")
        for ordered in order.expressions if order is not None else ():
            self._output_reference(ordered, columns)
        return columns

    # ------------------------------------------------------------------ SELECT

    def _select(self, node: exp.Select, outer: "_Scope | None", ctes: Mapping[str, int]) -> tuple[Named, ...]:
        extra = sorted(key for key, value in node.args.items() if value and key not in _SELECT_KEYS)
        if extra:
            raise Unspreadable(f"SELECT with {extra[0].strip('_').upper()}")
        if node.args.get("windows"):
            raise Unspreadable("named windows")
        scope = _Scope(outer)
        if (start := node.args.get("from_")) is not None:
            self._item(start.this, scope, ctes)
        for join in node.args.get("joins") or ():
            self._join(join, scope, ctes)
        if node.args.get("laterals"):
            raise Unspreadable("LATERAL outside of joins")
        self._expand_stars(node, scope)
        for projection in node.expressions:
            self._expression(projection, scope, ctes)
        if (where := node.args.get("where")) is not None:
            self._expression(where, scope, ctes)
        columns = tuple(Named(output_name(p), infer(p)) for p in node.expressions)
        self._group(node, scope, ctes)
        if (having := node.args.get("having")) is not None:
            self._aliases_inside(having, node, scope)
            self._expression(having, scope, ctes)
        self._order(node, scope, ctes, columns)
        if (distinct := node.args.get("distinct")) is not None and distinct.args.get("on") is not None:
            raise Unspreadable("DISTINCT ON")
        return columns

    def _group(self, node: exp.Select, scope: _Scope, ctes: Mapping[str, int]) -> None:
        group = node.args.get("group")
        if group is None:
            return
        if any(group.args.get(key) for key in ("rollup", "cube", "grouping_sets", "all", "totals")):
            raise Unspreadable("GROUPING SETS, ROLLUP and CUBE")
        if any(isinstance(part, exp.Rollup | exp.Cube | exp.GroupingSets) for part in group.expressions):
            raise Unspreadable("GROUPING SETS, ROLLUP and CUBE")
        for part in list(group.expressions):
            at = self._selected(part, node, scope)
            if at is not None:
                part.replace(node.expressions[at].unalias().copy())
            else:
                self._expression(part, scope, ctes)

    def _selected(self, part: exp.Expr, node: exp.Select, scope: _Scope) -> int | None:
        """Return which item of the select list a part of GROUP BY names, by number or alias; columns go first."""
        if isinstance(part, exp.Literal) and not part.is_string:
            number = int(part.name)
            if not 1 <= number <= len(node.expressions):
                raise Unspreadable("GROUP BY a number that is no column")
            return number - 1
        if isinstance(part, exp.Cast) and isinstance(part.this, exp.Literal):
            raise Unspreadable("GROUP BY a constant")
        if not isinstance(part, exp.Column) or part.table or any(i.find(part.name) for i in scope.items):
            return None
        return self._named_output(part.name, node)

    @staticmethod
    def _named_output(name: str, node: exp.Select) -> int | None:
        found = [i for i, p in enumerate(node.expressions) if p.alias_or_name.lower() == name.lower()]
        return found[0] if len(found) == 1 else None

    def _aliases_inside(self, root: exp.Expr, node: exp.Select, scope: _Scope) -> None:
        """Spell out aliases of the select list that DuckDB allows in HAVING."""
        for column in list(root.find_all(exp.Column)):
            if column.table or any(i.find(column.name) for i in scope.items):
                continue
            if (at := self._named_output(column.name, node)) is not None:
                column.replace(exp.Paren(this=node.expressions[at].unalias().copy()))

    def _order(self, node: exp.Select, scope: _Scope, ctes: Mapping[str, int], columns: Sequence[Named]) -> None:
        order = node.args.get("order")
        for ordered in order.expressions if order is not None else ():
            part = ordered.this
            if isinstance(part, exp.Column) and not part.table and self._named_output(part.name, node) is None:
                self._expression(ordered, scope, ctes)
            elif (isinstance(part, exp.Column) and not part.table) or isinstance(part, exp.Literal):
                self._output_reference(ordered, columns)
            else:
                self._aliases_inside(ordered, node, scope)
                self._expression(ordered, scope, ctes)

    @staticmethod
    def _output_reference(ordered: exp.Expr, columns: Sequence[Named]) -> None:
        part = ordered.this
        if isinstance(part, exp.Literal) and not part.is_string and 1 <= int(part.name) <= len(columns):
            at = int(part.name) - 1
        else:
            found = [
                i
                for i, c in enumerate(columns)
                if isinstance(part, exp.Column) and not part.table and c.name.lower() == part.name.lower()
            ]
            if len(found) != 1:
                raise Unspreadable("ORDER BY something that is no column of the result")
            at = found[0]
        reference = exp.column(f"{OUTPUT}{at}", quoted=True)
        reference.meta[META] = columns[at].type
        part.replace(reference)

    # ------------------------------------------------------------------ FROM

    def _join(self, join: exp.Join, scope: _Scope, ctes: Mapping[str, int]) -> None:
        side = str(join.args.get("side") or "").upper()
        kind = str(join.args.get("kind") or "").upper()
        if side not in _SIDES or kind not in ("", "INNER", "OUTER", "CROSS") or join.args.get("method"):
            raise Unspreadable(f"{join.args.get('method') or kind or side} JOIN")
        left = list(scope.items)
        self._item(join.this, scope, ctes)
        right = [i for i in scope.items if i not in left]
        using = join.args.get("using")
        if using:
            self._using(join, [name.name for name in using], scope, left, right)
        elif (on := join.args.get("on")) is not None:
            self._expression(on, scope, ctes)

    def _using(self, join: exp.Join, names: list[str], scope: _Scope, left: list[Item], right: list[Item]) -> None:
        side = str(join.args.get("side") or "").upper()
        conditions: list[exp.Expr] = []
        for name in names:
            mine = scope.merged.get(name.lower())
            if mine is None:
                mine = self._one_of(left, name)
            theirs = self._one_of(right, name)
            conditions.append(exp.EQ(this=mine.copy(), expression=theirs.copy()))
            merged: exp.Expr = theirs if side == "RIGHT" else mine
            if side == "FULL":
                merged = exp.Coalesce(this=mine.copy(), expressions=[theirs.copy()])
                merged.meta[META] = infer(mine)
            scope.merged[name.lower()] = merged
        join.set("using", None)
        join.set("on", exp.and_(*conditions))

    @staticmethod
    def _one_of(items: Sequence[Item], name: str) -> exp.Expr:
        found = [(item, c) for item in items for c in item.find(name)]
        if len(found) != 1:
            raise Unspreadable(f"USING ({name}): the column is not in one relation of each side")
        return reference(found[0][0].alias, found[0][1])

    def _item(self, node: exp.Expr, scope: _Scope, ctes: Mapping[str, int]) -> None:
        alias = f"r{len(self.items)}"
        self._names[alias] = node.alias_or_name.lower()
        if node.args.get("joins"):
            raise Unspreadable("joins in parentheses")
        if isinstance(node, exp.Table):
            item = self._table(node, alias, ctes)
        elif isinstance(node, exp.Subquery) and isinstance(node.this, exp.Query):
            # Where a repeated field stands first in FROM, the query sees what is around it.
            self.items[alias] = Item(alias, ())  # keeps the alias
            columns = self.query(node.this, scope.parent, ctes)
            item = Item(alias, _renamed(columns, _column_names(node)))
        elif isinstance(node, exp.Lateral) and isinstance(node.this, exp.Subquery):
            self.items[alias] = Item(alias, ())
            columns = self.query(node.this.this, scope, ctes)
            item = Item(alias, _renamed(columns, _column_names(node)))
        else:
            raise Unspreadable("a table function or VALUES in FROM")
        self.items[alias] = item
        node.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True), columns=_kept_names(node, item)))
        scope.items.append(item)

    def _table(self, node: exp.Table, alias: str, ctes: Mapping[str, int]) -> Item:
        name = node.name
        if not isinstance(node.this, exp.Identifier) or any(node.args.get(k) for k in ("db", "catalog", "pivots")):
            raise Unspreadable("a table function in FROM")
        given = _column_names(node)
        if name.lower() in ctes:
            number = ctes[name.lower()]
            return Item(alias, _renamed(self.ctes[number][1], given), cte=number)
        base = self.tables.get(int(name[4:])) if name.startswith("f1_t") and name[4:].isdecimal() else None
        if base is None:
            raise Unspreadable(f"the relation {name}")
        registry = registry_of(self.schema)
        columns = []
        for wanted, column_name in base.in_order().items():
            column = base.table.by_id[wanted.column_id]
            kind = of_path(registry, column.type.proto, wanted.path) if wanted.path else of_column(column)
            columns.append(Named(column_name, kind))
        return Item(alias, _renamed(tuple(columns), given), table=base.number)

    # ------------------------------------------------------------------ expressions

    def _expand_stars(self, node: exp.Select, scope: _Scope) -> None:
        found: list[exp.Expr] = []
        for projection in node.expressions:
            bare = isinstance(projection, exp.Star)
            if not bare and not (isinstance(projection, exp.Column) and isinstance(projection.this, exp.Star)):
                found.append(projection)
                continue
            inner = projection if bare else projection.this
            if any(inner.args.get(key) for key in ("replace", "rename")):
                raise Unspreadable("* with REPLACE or RENAME")
            left_out = {e.name.lower() for e in inner.args.get("except_") or ()}
            items = scope.items if bare else self._aliased(projection.table, scope)
            seen: set[str] = set()
            for item in items:
                for column in item.columns:
                    name = column.written.lower()
                    if name in left_out or (bare and name in scope.merged and name in seen):
                        continue
                    seen.add(name)
                    whole = (
                        scope.merged[name].copy() if bare and name in scope.merged else reference(item.alias, column)
                    )
                    found.append(exp.alias_(whole, column.written, quoted=True))
        node.set("expressions", found)

    def _aliased(self, name: str, scope: _Scope) -> list[Item]:
        found = [item for item in scope.items if self._written(item) == name.lower()]
        if len(found) != 1:
            raise Unspreadable(f"{name}.*")
        return found

    def _expression(self, root: exp.Expr, scope: _Scope, ctes: Mapping[str, int]) -> None:
        todo = [root]
        while todo:
            node = todo.pop()
            if isinstance(node, exp.Column):
                self._column(node, scope)
            elif isinstance(node, exp.Query) and not isinstance(node, exp.Table):
                self.query(node, scope, ctes)
            elif isinstance(node, exp.Lambda):
                raise Unspreadable("a lambda")
            else:
                todo += list(node.iter_expressions())

    def _column(self, node: exp.Column, scope: _Scope) -> None:
        if node.meta.get(_DONE):
            return
        if isinstance(node.this, exp.Star):
            raise Unspreadable("* inside an expression")
        if node.args.get("db"):
            raise Unspreadable("a path that DuckDB resolves")
        at: _Scope | None = scope
        while at is not None:
            if not node.table and (merged := at.merged.get(node.name.lower())) is not None:
                found = merged.copy()
                found.meta[META] = infer(merged)
                node.replace(found)
                return
            items = self._aliased_or_none(node.table, at) if node.table else at.items
            holders = [(item, column) for item in items for column in item.find(node.name)]
            if len(holders) == 1:
                item, column = holders[0]
                known = node.meta.get(META)
                node.set("table", exp.to_identifier(item.alias, quoted=True))
                node.set("this", exp.to_identifier(column.name, quoted=True))
                if not isinstance(known, SqlType) or known.kind is None:
                    node.meta[META] = column.type
                node.meta[_DONE] = True
                return
            if holders:
                raise Unspreadable(f"the column {node.name} is in several relations")
            at = at.parent
        raise Unspreadable(f"the column {node.sql('duckdb')} is not resolved here")

    def _aliased_or_none(self, name: str, scope: _Scope) -> list[Item]:
        return [item for item in scope.items if self._written(item) == name.lower()]

    def _written(self, item: Item) -> str:
        return self._names.get(item.alias, "")


def reference(alias: str, column: Named) -> exp.Column:
    """Return a column of a relation."""
    found = exp.column(column.name, table=alias, quoted=True)
    found.meta[META] = column.type
    found.meta[_DONE] = True
    return found


def _column_names(node: exp.Expr) -> list[str]:
    alias = node.args.get("alias")
    return [c.name for c in (alias.args.get("columns") or ())] if alias is not None else []


def _renamed(columns: Sequence[Named], names: Sequence[str]) -> tuple[Named, ...]:
    """Return columns under the names that are given; those of one name are told apart by others."""
    found: list[Named] = []
    taken: set[str] = set()
    for i, column in enumerate(columns):
        name = names[i] if i < len(names) else column.written
        twin = name.lower() in taken
        found.append(Named(f"f1_{i}_{name}", column.type, name) if twin else Named(name, column.type))
        taken.add(name.lower())
    return tuple(found)


def _kept_names(node: exp.Expr, item: Item) -> list[exp.Expr]:
    if not _column_names(node) and not any(c.shown for c in item.columns):
        return []
    return [exp.to_identifier(c.name, quoted=True) for c in item.columns]
