"""The parser of DDL: recursive descent over sqlglot's tokens, so that errors say where and what was expected.

Expressions (DEFAULT, CHECK) and queries (views) are kept as the text that the user wrote. docs/schema.md describes the
language.
"""

from dataclasses import dataclass, field, replace

from f1common.errors import Code, F1Error
from f1server.catalog.lexer import Lexeme, Token, position, tokenize
from f1server.catalog.schema import ColumnType, Kind
from f1server.catalog.statements import (
    CheckDef,
    ColumnDef,
    CreateDatabase,
    CreateIndex,
    CreateTable,
    CreateView,
    DdlStatement,
    DropDatabase,
    DropIndex,
    DropTable,
    DropView,
    ForeignKeyDef,
    IndexColumn,
    LockDef,
    Position,
    Reference,
    UniqueDef,
)
from f1server.catalog.types import column_type

__all__ = ["is_ddl", "parse_ddl"]

_MAX_NAME = 128
_CONSTRAINTS = frozenset({"PRIMARY", "UNIQUE", "CHECK", "FOREIGN", "CONSTRAINT"})
_AFTER_DEFAULT = frozenset(
    {
        "NOT",
        "NULL",
        "PRIMARY",
        "UNIQUE",
        "CHECK",
        "REFERENCES",
        "CONSTRAINT",
        "RENAMED",
        "DEFAULT",
        "GENERATED",
        "COLLATE",
    }
)
_OPEN = {"(": ")", "[": "]", "{": "}"}
_LATER = "comes with online schema change; until then create a new table and copy with INSERT ... SELECT"


def parse_ddl(sql: str, file: str = "") -> list[DdlStatement]:
    """Parse DDL statements separated by semicolons.

    Raises F1Error INVALID_ARGUMENT with details ``line`` and ``column`` (and ``file``), FAILED_PRECONDITION for
    statements that are understood but not possible yet.
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
    return first is not None and first.kind is Lexeme.WORD and first.text.upper() in {"CREATE", "DROP", "ALTER"}


@dataclass(slots=True)
class _TableParts:
    """A CREATE TABLE while its parts are read."""

    columns: list[ColumnDef] = field(default_factory=list)
    key: tuple[str, ...] | None = None
    uniques: list[UniqueDef] = field(default_factory=list)
    checks: list[CheckDef] = field(default_factory=list)
    foreign_keys: list[ForeignKeyDef] = field(default_factory=list)
    locks: list[LockDef] = field(default_factory=list)
    parent: str = ""
    parent_key: tuple[str, ...] = ()
    cascade: bool = False
    untracked: bool = False
    renamed_from: str = ""


class _Cursor:
    """A place in the tokens."""

    def __init__(self, text: str, file: str) -> None:
        self._text = text
        self._file = file
        self._tokens = tokenize(text, file)
        self._at = 0

    def peek(self, ahead: int = 0) -> Token:
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)]

    def take(self) -> Token:
        token = self.peek()
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def at_end(self) -> bool:
        return self.peek().kind is Lexeme.END

    def sees(self, *expected: str) -> bool:
        """Are the next tokens these keywords or symbols?"""
        return all(self._is(self.peek(i), text) for i, text in enumerate(expected))

    @staticmethod
    def _is(token: Token, text: str) -> bool:
        if text[0].isalpha():
            return token.kind is Lexeme.WORD and token.text.upper() == text
        return token.kind is Lexeme.SYMBOL and token.text == text

    def accept(self, *expected: str) -> bool:
        if not self.sees(*expected):
            return False
        for _ in expected:
            self.take()
        return True

    def expect(self, expected: str, where: str) -> Token:
        if not self.sees(expected):
            raise self.wrong(f"expected {expected} {where}")
        return self.take()

    def here(self) -> Position:
        return position(self._text, self.peek().start, self._file)

    def wrong(self, message: str) -> F1Error:
        return self.here().error(Code.INVALID_ARGUMENT, f"{message}, found {self.peek().shown()}")

    def not_yet(self, message: str) -> F1Error:
        return self.here().error(Code.FAILED_PRECONDITION, message)

    def text_since(self, first: Token) -> str:
        last = self._tokens[self._at - 1]
        return self._text[first.start : last.end]

    def name(self, what: str) -> str:
        token = self.peek()
        if token.kind not in (Lexeme.WORD, Lexeme.QUOTED) or not token.text:
            raise self.wrong(f"expected {what}")
        if len(token.text) > _MAX_NAME or "\x00" in token.text:
            raise self.wrong(f"a name has at most {_MAX_NAME} characters")
        self.take()
        return token.text

    def relation(self, what: str) -> str:
        """Read the name of a table, view or index; the schema ``public`` of PostgreSQL is accepted before it."""
        if self.sees("PUBLIC", "."):
            self.take()
            self.take()
        name = self.name(what)
        if self.sees("."):
            raise self.wrong(f"{what} has no schema before it")
        return name

    def skip_balanced(self) -> None:
        """Pass over one token, or over everything in parentheses if it opens some."""
        token = self.take()
        closing = _OPEN.get(token.text) if token.kind is Lexeme.SYMBOL else None
        while closing is not None and not self.accept(closing):
            if self.at_end():
                raise self.wrong(f"expected {closing}")
            self.skip_balanced()

    def in_parentheses(self, what: str) -> str:
        """Read a text in parentheses, which must not be empty, and return it without them."""
        self.expect("(", f"before {what}")
        first = self.peek()
        while not self.sees(")"):
            if self.at_end() or self.sees(";"):
                raise self.wrong(f"expected ) after {what}")
            self.skip_balanced()
        if self.peek() is first:
            raise self.wrong(f"expected {what}")
        text = self.text_since(first)
        self.take()
        return text

    def names_in_parentheses(self, what: str) -> tuple[str, ...]:
        self.expect("(", f"before {what}")
        names = [self.name("a column")]
        self._order()
        while self.accept(","):
            names.append(self.name("a column"))
            self._order()
        self.expect(")", f"or , after {what}")
        return tuple(names)

    def _order(self) -> None:
        # Keys and indexes are read in both directions: the order that is asked for changes nothing.
        if not self.accept("ASC"):
            self.accept("DESC")
        if self.accept("NULLS") and not self.accept("FIRST"):
            self.expect("LAST", "or FIRST after NULLS")


class _Parser(_Cursor):
    """The statements."""

    def statement(self) -> DdlStatement:
        if self.accept("CREATE"):
            return self._create()
        if self.accept("DROP"):
            return self._drop()
        if self.sees("ALTER"):
            raise self.not_yet(f"ALTER {_LATER}")
        raise self.wrong("expected CREATE or DROP")

    def _create(self) -> DdlStatement:
        or_replace = self.accept("OR", "REPLACE")
        if self.accept("VIEW"):
            return self._create_view(or_replace)
        if or_replace:
            raise self.wrong("expected VIEW after OR REPLACE")
        if self.accept("TABLE"):
            return self._create_table()
        if self.accept("DATABASE"):
            exists_ok = self._if_not_exists()
            at = self.here()
            return CreateDatabase(self.name("the name of a database"), exists_ok, at)
        unique = local = False
        while self.sees("UNIQUE") or self.sees("LOCAL") or self.sees("GLOBAL"):
            word = self.take().text.upper()
            unique, local = unique or word == "UNIQUE", local or word == "LOCAL"
        if self.accept("INDEX"):
            return self._create_index(unique, local)
        raise self.wrong("expected TABLE, INDEX, VIEW or DATABASE after CREATE")

    def _if_not_exists(self) -> bool:
        return self.accept("IF", "NOT", "EXISTS")

    # ------------------------------------------------------------------ CREATE TABLE

    def _create_table(self) -> CreateTable:
        exists_ok = self._if_not_exists()
        at = self.here()
        name = self.relation("the name of a table")
        parts = _TableParts()
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
                self._table_elements(parts)
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

    def _table_elements(self, parts: _TableParts) -> None:
        self.expect("(", "and the columns")
        while not self.sees(")"):
            self._table_element(parts)
            if not self.accept(","):
                break
        if not self.accept(")"):
            raise self.wrong("expected , or ) in the list of columns")

    def _table_element(self, parts: _TableParts) -> None:
        # LOCK and CHECK may also be names of columns: what follows tells.
        if self.sees("LOCK") and self.peek(2).text == "(" and self.peek(1).text.upper() not in ("VARCHAR", "CHAR"):
            self.take()
            at = self.here()
            name = self.name("the name of the lock")
            parts.locks.append(LockDef(name, self.names_in_parentheses("the columns of the lock"), at))
            return
        word = self.peek().text.upper() if self.peek().kind is Lexeme.WORD else ""
        if word in _CONSTRAINTS:
            self._table_constraint(parts)
        else:
            self._column(parts)

    def _constraint_name(self) -> str:
        return self.name("the name of the constraint") if self.accept("CONSTRAINT") else ""

    def _table_constraint(self, parts: _TableParts) -> None:
        name = self._constraint_name()
        at = self.here()
        if self.accept("PRIMARY"):
            self.expect("KEY", "after PRIMARY")
            self._set_key(parts, self.names_in_parentheses("the columns of the primary key"), at)
        elif self.accept("UNIQUE"):
            parts.uniques.append(UniqueDef(self.names_in_parentheses("the unique columns"), name, at))
        elif self.accept("CHECK"):
            parts.checks.append(CheckDef(self.in_parentheses("a condition"), name, at))
        elif self.accept("FOREIGN"):
            self.expect("KEY", "after FOREIGN")
            columns = self.names_in_parentheses("the referencing columns")
            parts.foreign_keys.append(ForeignKeyDef(columns, self._references(), name, at))
        else:
            raise self.wrong("expected PRIMARY KEY, UNIQUE, CHECK or FOREIGN KEY")

    def _set_key(self, parts: _TableParts, columns: tuple[str, ...], at: Position) -> None:
        if parts.key is not None:
            raise at.error(Code.INVALID_ARGUMENT, "a table has one primary key")
        parts.key = columns

    def _references(self) -> Reference:
        self.expect("REFERENCES", "and a table")
        at = self.here()
        table = self.relation("the referenced table")
        columns = self.names_in_parentheses("the referenced columns") if self.sees("(") else ()
        while self.sees("ON") or self.sees("MATCH") or self.sees("NOT", "DEFERRABLE") or self.sees("DEFERRABLE"):
            self._reference_option()
        return Reference(table, columns, at)

    def _reference_option(self) -> None:
        if self.accept("NOT", "DEFERRABLE") or self.accept("MATCH", "SIMPLE"):
            return
        if self.accept("ON"):
            if not self.accept("DELETE"):
                self.expect("UPDATE", "or DELETE after ON")
            if self.accept("RESTRICT") or self.accept("NO", "ACTION"):
                return
        raise self.wrong(
            "foreign keys refuse what would break them (NO ACTION); INTERLEAVE IN PARENT ... ON DELETE CASCADE deletes"
        )

    def _table_suffixes(self, parts: _TableParts) -> None:
        while True:
            comma = self.accept(",")
            at = self.here()
            if self.accept("INTERLEAVE"):
                self._interleave(parts)
            elif self.accept("PRIMARY", "KEY"):
                self._set_key(parts, self.names_in_parentheses("the columns of the primary key"), at)
            elif self.accept("WITH"):
                self._options(parts)
            elif self.accept("RENAMED"):
                self.expect("FROM", "after RENAMED")
                parts.renamed_from = self.relation("the former name of the table")
            elif comma:
                raise self.wrong("expected INTERLEAVE IN PARENT")
            else:
                return

    def _interleave(self, parts: _TableParts) -> None:
        self.expect("IN", "after INTERLEAVE")
        self.expect("PARENT", "after INTERLEAVE IN")
        parts.parent = self.relation("the name of the parent table")
        parts.parent_key = self.names_in_parentheses("the columns of the parent's key") if self.sees("(") else ()
        if self.accept("ON"):
            self.expect("DELETE", "after ON")
            if self.accept("CASCADE"):
                parts.cascade = True
            elif not self.accept("NO", "ACTION"):
                raise self.wrong("expected CASCADE or NO ACTION")

    def _options(self, parts: _TableParts) -> None:
        self.expect("(", "after WITH")
        while True:
            option = self.name("an option")
            if option.lower() != "change_history":
                raise self.wrong(f"there is no option {option} of tables; the one option is change_history")
            self.expect("=", "after change_history")
            if self.accept("FALSE"):
                parts.untracked = True
            else:
                self.expect("TRUE", "or FALSE for change_history")
            if not self.accept(","):
                break
        self.expect(")", "after the options")

    # ------------------------------------------------------------------ columns

    def _column(self, parts: _TableParts) -> None:
        at = self.here()
        name = self.name("a column or a constraint")
        column = ColumnDef(name, self._type(name), at=at)
        while True:
            changed = self._column_option(column, parts)
            if changed is None:
                break
            column = changed
        parts.columns.append(column)

    def _column_option(self, column: ColumnDef, parts: _TableParts) -> ColumnDef | None:
        """Read one thing that follows a type, and return the column with it; None: nothing does."""
        constraint = self._constraint_name()
        at = self.here()
        if self.accept("NOT"):
            if self.accept("TRACKED"):
                return replace(column, untracked=True)
            self.expect("NULL", "or TRACKED after NOT")
            return replace(column, not_null=True)
        if self.accept("NULL"):
            return column
        if self.accept("DEFAULT"):
            return replace(column, default_sql=self._default())
        if self.accept("PRIMARY"):
            self.expect("KEY", "after PRIMARY")
            self._order()
            self._set_key(parts, (column.name,), at)
        elif self.accept("UNIQUE"):
            parts.uniques.append(UniqueDef((column.name,), constraint, at))
        elif self.accept("CHECK"):
            parts.checks.append(CheckDef(self.in_parentheses("a condition"), constraint, at))
        elif self.sees("REFERENCES"):
            parts.foreign_keys.append(ForeignKeyDef((column.name,), self._references(), constraint, at))
        elif self.accept("RENAMED"):
            self.expect("FROM", "after RENAMED")
            return replace(column, renamed_from=self.name("the former name of the column"))
        elif constraint:
            raise self.wrong("expected NOT NULL, PRIMARY KEY, UNIQUE, CHECK or REFERENCES")
        elif not (self.sees(",") or self.sees(")")):
            raise self._unknown_option(column)
        else:
            return None
        return column

    def _unknown_option(self, column: ColumnDef) -> F1Error:
        if self.sees("GENERATED") or self.sees("AUTO_INCREMENT") or self.sees("IDENTITY"):
            return self.wrong("generated columns are not supported: give the value, or a DEFAULT")
        if self.sees("COLLATE"):
            return self.wrong("collations are not supported: text is compared by code point")
        return self.wrong(
            f"expected NOT NULL, DEFAULT, PRIMARY KEY, UNIQUE, CHECK, REFERENCES, NOT TRACKED, a comma or ) "
            f"after the type of {column.name}"
        )

    def _default(self) -> str:
        first = self.peek()
        while not (self.at_end() or self.sees(",") or self.sees(")") or self.sees(";")):
            token = self.peek()
            if token is not first and token.kind is Lexeme.WORD and token.text.upper() in _AFTER_DEFAULT:
                break
            self.skip_balanced()
        if self.peek() is first:
            raise self.wrong("expected a value after DEFAULT")
        return self.text_since(first)

    def _type(self, column: str) -> ColumnType:
        at = self.here()
        if self.peek().kind is not Lexeme.WORD:
            raise self.wrong(f"expected the type of {column}")
        if self.sees("ARRAY"):
            raise self._no_arrays()
        if self.accept("PROTO"):
            return self._proto_type()
        word = self.take().text
        if word.upper() == "DOUBLE" and self.accept("PRECISION"):
            word = "DOUBLE PRECISION"
        elif word.upper() in ("CHARACTER", "CHAR") and self.accept("VARYING"):
            word = "CHARACTER VARYING"
        arguments = self._type_arguments()
        if word.upper() == "TIMESTAMP" and (self.sees("WITH", "TIME") or self.sees("WITHOUT", "TIME")):
            self.take()
            self.take()
            self.expect("ZONE", "after TIME")
        if self.sees("["):
            raise self._no_arrays()
        try:
            return column_type(word, arguments)
        except F1Error as error:
            raise at.error(error.code, error.message) from None

    def _type_arguments(self) -> list[int]:
        if not self.accept("(") or self.accept("MAX", ")"):
            return []
        arguments: list[int] = []
        while True:
            token = self.peek()
            if token.kind is not Lexeme.NUMBER or not token.text.isdecimal() or len(token.text) > 9:
                raise self.wrong("expected a whole number")
            arguments.append(int(self.take().text))
            if not self.accept(","):
                break
        self.expect(")", "after the number")
        return arguments

    def _proto_type(self) -> ColumnType:
        self.expect("<", "after PROTO, as in PROTO<package.Message>")
        parts = [self.name("the full name of a message type")]
        while self.accept("."):
            parts.append(self.name("the full name of a message type"))
        self.expect(">", "after the name of the message type")
        return ColumnType(Kind.PROTO, proto=".".join(parts))

    def _no_arrays(self) -> F1Error:
        return self.wrong("there are no arrays: use a repeated field of a proto column, or an interleaved table")

    # ------------------------------------------------------------------ indexes, views, DROP

    def _create_index(self, unique: bool, local: bool) -> CreateIndex:
        exists_ok = self._if_not_exists()
        at = self.here()
        name = "" if self.sees("ON") else self.relation("the name of an index")
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
        return CreateIndex(name, table, tuple(columns), unique, local, storing, exists_ok, at)

    def _index_column(self) -> IndexColumn:
        at = self.here()
        path = [self.name("a column")]
        while self.accept("."):
            path.append(self.name("a field"))
        if self.sees("("):
            raise self.wrong("an index is over columns and fields of proto columns, not over expressions")
        self._order()
        return IndexColumn(tuple(path), at)

    def _create_view(self, or_replace: bool) -> CreateView:
        exists_ok = self._if_not_exists()
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
            if_exists = self.accept("IF", "EXISTS")
            at = self.here()
            return DropDatabase(self.name("the name of a database"), if_exists, at)
        for word in ("TABLE", "INDEX", "VIEW"):
            if self.accept(word):
                return self._drop_relations(word)
        raise self.wrong("expected TABLE, INDEX, VIEW or DATABASE after DROP")

    def _drop_relations(self, word: str) -> DropTable | DropIndex | DropView:
        what = f"the name of {'an index' if word == 'INDEX' else 'a ' + word.lower()}"
        if_exists = self.accept("IF", "EXISTS")
        at = self.here()
        names = [self.relation(what)]
        while self.accept(","):
            names.append(self.relation(what))
        cascade = self.accept("CASCADE")
        if not cascade:
            self.accept("RESTRICT")
        match word:
            case "TABLE":
                return DropTable(tuple(names), if_exists, cascade, at)
            case "INDEX":
                return DropIndex(tuple(names), if_exists, cascade, at)
            case _:
                return DropView(tuple(names), if_exists, cascade, at)
