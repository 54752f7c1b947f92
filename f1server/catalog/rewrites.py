"""SQL in the schema when what it names is renamed or dropped: does it use a column, and what does it say afterwards?

Texts stay as they were written, but for the names: these are replaced where sqlglot says that they stand. A rewritten
text must mean the same as before. Where that cannot be seen, the caller is told (None), and refuses.
"""

from collections.abc import Collection, Mapping, Sequence

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from f1server.catalog.expressions import column_part, relations_used
from f1server.catalog.lexer import tokenize

_BEFORE = "SELECT ("


def check_uses(sql: str, table: str, columns: Collection[str], column: str) -> bool:
    """Does a check of ``table``, with these columns (in lower case), name the column?"""
    return column.lower() in (_resolved(sql, table, columns) or [column.lower()])


def check_with_column(sql: str, table: str, columns: Collection[str], old: str, new: str) -> str | None:
    """Return a check of ``table`` after the column ``old`` was renamed; ``columns`` in lower case, ``old`` included."""
    edits = []
    for node in _columns(sql) or []:
        part = node.parts[column_part([p.name for p in node.parts], table, columns)]
        if part.name.lower() == old.lower():
            edits.append((part, _quoted(new)))
    rewritten = _edited(sql, edits, _BEFORE)
    before = _resolved(sql, table, columns)
    after = _resolved(rewritten, table, {new.lower() if c == old.lower() else c for c in columns})
    renamed = before and [new.lower() if c == old.lower() else c for c in before]
    return rewritten if after is not None and after == renamed else None


def check_with_table(sql: str, columns: Collection[str], old: str, new: str) -> str | None:
    """Return a check after its table ``old`` was renamed; ``columns`` are the table's, in lower case."""
    edits = []
    for node in _columns(sql) or []:
        if column_part([p.name for p in node.parts], old, columns):
            edits.append((node.parts[0], _quoted(new)))
    rewritten = _edited(sql, edits, _BEFORE)
    before, after = _resolved(sql, old, columns), _resolved(rewritten, new, columns)
    return rewritten if after is not None and after == before else None


def canonical(check: str) -> str:
    """Return a check in one way of writing: two texts for one may differ in layout, quotes and the case of names."""
    query = _parsed(f"{_BEFORE}{check})")
    if query is None:
        return check
    for identifier in query.find_all(exp.Identifier):
        identifier.set("this", identifier.name.lower())
        identifier.set("quoted", True)
    return query.sql(dialect="postgres", comments=False)


def view_uses(sql: str, column: str) -> bool:
    """May a view that reads a table depend on a column of this name? By its name, by * or by a natural join."""
    query = _parsed(sql)
    if query is None:
        return True
    if any(identifier.name.lower() == column.lower() for identifier in query.find_all(exp.Identifier)):
        return True
    if any(not isinstance(star.parent, exp.Count) for star in query.find_all(exp.Star)):
        return True
    if any(join.args.get("method") for join in query.find_all(exp.Join)):
        return True
    if query.find(exp.Columns) is not None:
        return True
    # A table's name in place of a column is its whole row.
    relations = relations_used(sql) | {alias.name.lower() for alias in query.find_all(exp.TableAlias)}
    return any(reference.name.lower() in relations for reference in _columns_of(query))


def view_with_relation(sql: str, old: str, new: str) -> str | None:
    """Return a view's query after a table or view that it reads was renamed; it keeps the old name inside the query."""
    query = _parsed(sql)
    words = {token.text.lower() for token in tokenize(sql)}
    # PROTO JOIN and AS OF are not PostgreSQL's, and are read as something else.
    if query is None or "proto" in words or {"as", "of"} <= words:
        return None
    named = {with_.alias.lower() for with_ in query.find_all(exp.CTE)}
    if named & {old.lower(), new.lower()} or any(c.parts[0].name.lower() == "public" for c in _columns_of(query)):
        return None
    edits = []
    for table in query.find_all(exp.Table):
        if table.name.lower() == old.lower():
            if not isinstance(table.this, exp.Identifier):
                return None
            alias = "" if table.alias else f" AS {_quoted(table.name)}"
            edits.append((table.this, _quoted(new) + alias))
    rewritten = _edited(sql, edits)
    expected = {new.lower() if name == old.lower() else name for name in relations_used(sql)}
    return rewritten if _parsed(rewritten) is not None and relations_used(rewritten) == expected else None


def view_by_ids(sql: str, ids: Mapping[str, int]) -> str:
    """Return a view's query with tables by their ids instead of their names (in lower case): the same whatever they are
    called. A text that cannot be read so stays as it is."""
    query = _parsed(sql)
    if query is None or query.find(exp.CTE) is not None:
        return sql
    for table in list(query.find_all(exp.Table)):
        found = ids.get(table.name.lower())
        if found is None or len(table.parts) > 1 or not isinstance(table.this, exp.Identifier):
            return sql
        alias = table.args.get("alias") or exp.TableAlias(this=table.this.copy())
        alias.set("this", exp.to_identifier(alias.name.lower(), quoted=True))
        table.set("alias", alias)
        table.set("this", exp.to_identifier(str(found), quoted=True))
    return query.sql(dialect="postgres")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _parsed(sql: str) -> exp.Expr | None:
    try:
        return sqlglot.parse_one(sql, dialect="postgres")
    except (SqlglotError, RecursionError):
        return None


def _columns_of(query: exp.Expr) -> list[exp.Column]:
    return list(query.find_all(exp.Column))


def _columns(check: str) -> list[exp.Column] | None:
    query = _parsed(f"{_BEFORE}{check})")
    return None if query is None else _columns_of(query)


def _resolved(check: str, table: str, columns: Collection[str]) -> list[str] | None:
    """Return which columns a check names, in order; None if it cannot be read or names others."""
    found = []
    for node in _columns(check) or []:
        parts = [part.name for part in node.parts]
        found.append(parts[column_part(parts, table, columns)].lower())
    return found if _columns(check) is not None and set(found) <= set(columns) else None


def _edited(sql: str, edits: Sequence[tuple[exp.Expr, str]], before: str = "") -> str:
    text = before + sql
    for node, replacement in sorted(edits, key=lambda edit: -int(edit[0].meta["start"])):
        text = text[: node.meta["start"]] + replacement + text[node.meta["end"] + 1 :]
    return text[len(before) :]
