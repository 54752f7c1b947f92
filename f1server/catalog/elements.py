"""The grammar of what a table consists of, for CREATE and ALTER: columns with types and options, constraints, locks."""

from dataclasses import dataclass, field, replace

from f1common.errors import Code, F1Error
from f1server.catalog.cursor import Cursor
from f1server.catalog.lexer import Lexeme
from f1server.catalog.schema import ColumnType, Kind
from f1server.catalog.statements import (
    CheckDef,
    ColumnDef,
    ForeignKeyDef,
    LockDef,
    Position,
    Reference,
    UniqueDef,
)
from f1server.catalog.types import column_type

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


@dataclass(slots=True)
class TableParts:
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


class ElementParser(Cursor):
    """Reads the elements of a table."""

    def table_elements(self, parts: TableParts) -> None:
        self.expect("(", "and the columns")
        while not self.sees(")"):
            self._table_element(parts)
            if not self.accept(","):
                break
        if not self.accept(")"):
            raise self.wrong("expected , or ) in the list of columns")

    def _table_element(self, parts: TableParts) -> None:
        if not self.constraint_or_lock(parts):
            self.column(parts)

    def constraint_or_lock(self, parts: TableParts) -> bool:
        """Read a constraint or a lock if there is one here."""
        # LOCK may also be the name of a column: what follows tells.
        if self.sees("LOCK") and self.peek(2).text == "(" and self.peek(1).text.upper() not in ("VARCHAR", "CHAR"):
            self.take()
            at = self.here()
            name = self.name("the name of the lock")
            parts.locks.append(LockDef(name, self.names_in_parentheses("the columns of the lock"), at))
            return True
        if self.peek().kind is not Lexeme.WORD or self.peek().text.upper() not in _CONSTRAINTS:
            return False
        self._table_constraint(parts)
        return True

    def _constraint_name(self) -> str:
        return self.name("the name of the constraint") if self.accept("CONSTRAINT") else ""

    def _table_constraint(self, parts: TableParts) -> None:
        name = self._constraint_name()
        at = self.here()
        if self.accept("PRIMARY"):
            self.expect("KEY", "after PRIMARY")
            self.set_key(parts, self.names_in_parentheses("the columns of the primary key"), at)
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

    def set_key(self, parts: TableParts, columns: tuple[str, ...], at: Position) -> None:
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

    def options(self, where: str) -> bool:
        """Read ``(change_history = ...)`` and return whether the table is untracked."""
        untracked = False
        self.expect("(", where)
        while True:
            option = self.name("an option")
            if option.lower() != "change_history":
                raise self.wrong(f"there is no option {option} of tables; the one option is change_history")
            self.expect("=", "after change_history")
            untracked = self.accept("FALSE")
            if not untracked:
                self.expect("TRUE", "or FALSE for change_history")
            if not self.accept(","):
                break
        self.expect(")", "after the options")
        return untracked

    def interleave(self, parts: TableParts) -> None:
        """Read what follows INTERLEAVE."""
        self.expect("IN", "after INTERLEAVE")
        self.expect("PARENT", "after INTERLEAVE IN")
        parts.parent = self.relation("the name of the parent table")
        parts.parent_key = self.names_in_parentheses("the columns of the parent's key") if self.sees("(") else ()
        if self.accept("ON"):
            parts.cascade = self.on_delete()

    def on_delete(self) -> bool:
        """Read ``DELETE CASCADE`` or ``DELETE NO ACTION`` after ON and return whether it cascades."""
        self.expect("DELETE", "after ON")
        if self.accept("CASCADE"):
            return True
        if not self.accept("NO", "ACTION"):
            raise self.wrong("expected CASCADE or NO ACTION")
        return False

    # ------------------------------------------------------------------ columns

    def column(self, parts: TableParts) -> None:
        at = self.here()
        name = self.name("a column or a constraint")
        column = ColumnDef(name, self.type(name), at=at)
        while True:
            changed = self._column_option(column, parts)
            if changed is None:
                break
            column = changed
        parts.columns.append(column)

    def _column_option(self, column: ColumnDef, parts: TableParts) -> ColumnDef | None:
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
            return replace(column, default_sql=self.default())
        if self.accept("PRIMARY"):
            self.expect("KEY", "after PRIMARY")
            self.order()
            self.set_key(parts, (column.name,), at)
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
        elif not (self.sees(",") or self.sees(")") or self.sees(";") or self.at_end()):
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

    def default(self) -> str:
        first = self.peek()
        while not (self.at_end() or self.sees(",") or self.sees(")") or self.sees(";")):
            token = self.peek()
            if token is not first and token.kind is Lexeme.WORD and token.text.upper() in _AFTER_DEFAULT:
                break
            self.skip_balanced()
        if self.peek() is first:
            raise self.wrong("expected a value after DEFAULT")
        return self.text_since(first)

    def type(self, column: str) -> ColumnType:
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
