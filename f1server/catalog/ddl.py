"""The parser of DDL: recursive descent over sqlglot's tokens, so that errors say where and what was expected.

Expressions (DEFAULT, CHECK) and queries (views) are kept as the text that the user wrote. docs/schema.md describes the
language.
"""

from f1common.errors import F1Error
from f1server.catalog.alterations import AlterParser
from f1server.catalog.elements import TableParts
from f1server.catalog.lexer import Lexeme, tokenize
from f1server.catalog.roleddl import RoleParser
from f1server.catalog.statements import (
    CreateDatabase,
    CreateIndex,
    CreateTable,
    CreateView,
    DdlStatement,
    DropDatabase,
    DropIndex,
    DropTable,
    DropView,
    IndexColumn,
)

__all__ = ["is_ddl", "parse_ddl"]

_VERBS = frozenset({"ALTER", "CREATE", "DROP", "GRANT", "REVOKE"})


def parse_ddl(sql: str, file: str = "") -> list[DdlStatement]:
    """Parse DDL statements separated by semicolons.

    Raises F1Error INVALID_ARGUMENT with details ``line`` and ``column`` (and ``file``), FAILED_PRECONDITION for what
    is understood but not possible.
    """
    parser = _Parser(sql, file)
    statements: list[DdlStatement] = []
    while not parser.at_end():
        if not parser.accept(";"):
            statements.append(parser.statement())
            if not parser.at_end():
                parser.expect(";", "between statements")
    return statements


def is_ddl(sql: str) -> bool:
    """Does the text begin as DDL does? Text that is no SQL does not."""
    try:
        first = next((t for t in tokenize(sql) if t.text != ";"), None)
    except F1Error:
        return False
    return first is not None and first.kind is Lexeme.WORD and first.text.upper() in _VERBS


class _Parser(AlterParser, RoleParser):
    """The statements."""

    def statement(self) -> DdlStatement:
        if (found := self.role_statement()) is not None:
            return found
        if self.accept("CREATE"):
            return self._create()
        if self.accept("DROP"):
            return self._drop()
        if self.accept("ALTER"):
            return self.alter()
        raise self.wrong("expected CREATE, ALTER, DROP, GRANT or REVOKE")

    def _create(self) -> DdlStatement:
        or_replace = self.accept("OR", "REPLACE")
        if self.accept("VIEW"):
            return self._create_view(or_replace)
        if or_replace:
            raise self.wrong("expected VIEW after OR REPLACE")
        if self.accept("TABLE"):
            return self._create_table()
        if self.accept("DATABASE"):
            exists_ok = self.if_not_exists()
            at = self.here()
            return CreateDatabase(self.name("the name of a database"), exists_ok, at)
        unique = local = False
        while self.sees("UNIQUE") or self.sees("LOCAL") or self.sees("GLOBAL"):
            word = self.take().text.upper()
            unique, local = unique or word == "UNIQUE", local or word == "LOCAL"
        if self.accept("INDEX"):
            return self._create_index(unique, local)
        raise self.wrong("expected TABLE, INDEX, VIEW, ROLE or DATABASE after CREATE")

    def _if_not_exists(self) -> bool:
        return self.accept("IF", "NOT", "EXISTS")

    # ------------------------------------------------------------------ CREATE TABLE

    def _create_table(self) -> CreateTable:
        exists_ok = self.if_not_exists()
        at = self.here()
        name = self.relation("the name of a table")
        parts = TableParts()
        if self.accept("RENAMED"):
            self.expect("FROM", "after RENAMED")
            parts.renamed_from = self.relation("the former name of the table")
        as_names: tuple[str, ...] = ()
        if not self.sees("AS"):
            if self.sees("(") and self.peek(2).kind is Lexeme.SYMBOL and self.peek(2).text in (",", ")"):
                as_names = self.names_in_parentheses("the names of the columns")
                if not self.sees("AS"):
                    raise self.wrong("expected AS and a query (columns without types)")
            else:
                self.table_elements(parts)
                self._table_suffixes(parts)
        as_query = self._query("AS") if self.sees("AS") else ""
        return CreateTable(
            name,
            tuple(parts.columns),
            parts.key,
            parts.parent,
            parts.cascade,
            tuple(parts.uniques),
            tuple(parts.checks),
            tuple(parts.foreign_keys),
            tuple(parts.locks),
            parts.untracked,
            exists_ok,
            parts.renamed_from,
            as_query,
            as_names,
            at,
            parts.parent_key,
        )

    def _query(self, before: str) -> str:
        self.expect(before, "and a query")
        first = self.peek()
        if first.text.upper() not in {"SELECT", "WITH", "VALUES", "(", "FROM", "TABLE"}:
            raise self.wrong("expected a query")
        while not self.at_end() and not self.sees(";"):
            self.skip_balanced()
        return self.text_since(first)

    def _table_suffixes(self, parts: TableParts) -> None:
        while True:
            comma = self.accept(",")
            at = self.here()
            if self.accept("INTERLEAVE"):
                self.interleave(parts)
            elif self.accept("PRIMARY", "KEY"):
                self.set_key(parts, self.names_in_parentheses("the columns of the primary key"), at)
            elif self.accept("WITH"):
                parts.untracked = self.options("after WITH") or parts.untracked
            elif self.accept("RENAMED"):
                self.expect("FROM", "after RENAMED")
                parts.renamed_from = self.relation("the former name of the table")
            elif comma:
                raise self.wrong("expected INTERLEAVE IN PARENT")
            else:
                return

    # ------------------------------------------------------------------ indexes, views, DROP

    def _create_index(self, unique: bool, local: bool) -> CreateIndex:
        exists_ok = self.if_not_exists()
        at = self.here()
        name = "" if self.sees("ON") else self.relation("the name of an index")
        renamed_from = ""
        if self.accept("RENAMED"):
            self.expect("FROM", "after RENAMED")
            renamed_from = self.relation("the former name of the index")
        self.expect("ON", "and a table")
        table = self.relation("the name of a table")
        if self.accept("USING"):
            self.name("an access method")
        self.expect("(", "and the columns of the index")
        columns = [self._index_column()]
        while self.accept(","):
            columns.append(self._index_column())
        self.expect(")", "or , after the columns of the index")
        storing: tuple[str, ...] = ()
        if self.accept("STORING") or self.accept("INCLUDE"):
            storing = self.names_in_parentheses("the stored columns")
        if self.sees("WHERE"):
            raise self.wrong("an index has entries for all rows (no WHERE)")
        if not name:
            name = "_".join([table, *("_".join(column.path) for column in columns), "idx"])
        return CreateIndex(name, table, tuple(columns), unique, local, storing, exists_ok, at, renamed_from)

    def _index_column(self) -> IndexColumn:
        at = self.here()
        path = [self.name("a column")]
        while self.accept("."):
            path.append(self.name("a field"))
        if self.sees("("):
            raise self.wrong("an index is over columns and fields of proto columns, not over expressions")
        self.order()
        return IndexColumn(tuple(path), at)

    def _create_view(self, or_replace: bool) -> CreateView:
        exists_ok = self.if_not_exists()
        at = self.here()
        name = self.relation("the name of a view")
        columns = self.names_in_parentheses("the names of the columns") if self.sees("(") else ()
        sql = self._query("AS")
        if columns:
            quoted = ", ".join('"' + column.replace('"', '""') + '"' for column in columns)
            sql = f"SELECT * FROM (\n{sql}\n) AS f1_view({quoted})"
        return CreateView(name, sql, or_replace, exists_ok, at)

    def _drop(self) -> DdlStatement:
        if self.accept("DATABASE"):
            if_exists = self.if_exists()
            at = self.here()
            return DropDatabase(self.name("the name of a database"), if_exists, at)
        for word in ("TABLE", "INDEX", "VIEW"):
            if self.accept(word):
                return self._drop_relations(word)
        raise self.wrong("expected TABLE, INDEX, VIEW, ROLE or DATABASE after DROP")

    def _drop_relations(self, word: str) -> DropTable | DropIndex | DropView:
        what = f"the name of {'an index' if word == 'INDEX' else 'a ' + word.lower()}"
        if_exists = self.if_exists()
        at = self.here()
        names = [self.relation(what)]
        while self.accept(","):
            names.append(self.relation(what))
        cascade = self.cascade()
        match word:
            case "TABLE":
                return DropTable(tuple(names), if_exists, cascade, at)
            case "INDEX":
                return DropIndex(tuple(names), if_exists, cascade, at)
            case _:
                return DropView(tuple(names), if_exists, cascade, at)
