"""The grammar of ALTER: PostgreSQL's, with locks and options as CREATE TABLE spells them."""

from f1common.errors import Code, F1Error
from f1server.catalog.elements import ElementParser, TableParts
from f1server.catalog.statements import (
    AddCheck,
    AddColumn,
    AddForeignKey,
    AddLock,
    AddUnique,
    Alteration,
    AlterColumnType,
    AlterIndex,
    AlterLock,
    AlterTable,
    AlterView,
    ColumnAction,
    DropColumn,
    DropConstraint,
    DropDefault,
    DropNotNull,
    Position,
    RenameColumn,
    RenameTable,
    SetDefault,
    SetNotNull,
    SetOptions,
    SetPrimaryKey,
    SetTracked,
    TableAction,
)


class AlterParser(ElementParser):
    """Reads ALTER TABLE, ALTER INDEX and ALTER VIEW."""

    def alter(self) -> Alteration:
        """Read what follows ALTER."""
        if self.accept("TABLE"):
            return self._alter_table()
        if self.accept("INDEX"):
            return AlterIndex(*self._renamed_relation("an index"))
        if self.accept("VIEW"):
            return AlterView(*self._renamed_relation("a view"))
        raise self.wrong("expected TABLE, INDEX, VIEW or ROLE after ALTER")

    def _renamed_relation(self, what: str) -> tuple[str, str, bool, Position]:
        if_exists = self.if_exists()
        at = self.here()
        name = self.relation(f"the name of {what}")
        self.expect("RENAME", f"TO: {what} can be renamed, or dropped and created again")
        return name, self._to(), if_exists, at

    def _to(self) -> str:
        self.expect("TO", "and the new name")
        return self.relation("the new name")

    def _alter_table(self) -> AlterTable:
        if_exists = self.if_exists()
        at = self.here()
        name = self.relation("the name of a table")
        if self.sees("RENAME"):
            actions = [self._rename()]
            if self.sees(","):
                raise self.wrong("RENAME stands alone in ALTER TABLE: write one statement for each")
        else:
            actions = self._action()
            while self.accept(","):
                actions += self._action()
        return AlterTable(name, tuple(actions), if_exists, at)

    def _rename(self) -> TableAction:
        self.expect("RENAME", "and what")
        at = self.here()
        if self.sees("TO"):
            return RenameTable(self._to(), at)
        if self.sees("CONSTRAINT"):
            raise self.wrong("constraints keep their names: add one with another name, then drop this one")
        self.accept("COLUMN")
        at = self.here()
        name = self.name("the name of a column, or TO")
        self.expect("TO", "and the new name")
        return RenameColumn(name, self.name("the new name"), at)

    def _action(self) -> list[TableAction]:
        if self.accept("ADD"):
            return self._add()
        if self.accept("DROP"):
            return [self._drop_element()]
        if self.accept("ALTER"):
            return [self._alter_lock() or self._alter_column()]
        at = self.here()
        if self.accept("SET"):
            if self.accept("ON"):
                return [SetOptions(cascade=self.on_delete(), at=at)]
            if self.accept("PRIMARY", "KEY"):
                return [self._set_primary_key(at)]
            return [SetOptions(untracked=self.options("or ON DELETE after SET"), at=at)]
        if self.sees("RENAME"):
            raise self.wrong("RENAME stands alone in ALTER TABLE: write one statement for each")
        raise self.wrong("expected ADD, DROP, ALTER, RENAME or SET")

    def _set_primary_key(self, at: Position) -> SetPrimaryKey:
        key = self.names_in_parentheses("the columns of the primary key")
        if not self.accept("INTERLEAVE"):
            return SetPrimaryKey(key, at=at)
        parts = TableParts()
        self.interleave(parts)
        return SetPrimaryKey(key, parts.parent, parts.parent_key, parts.cascade, at)

    def _add(self) -> list[TableAction]:
        parts, at = TableParts(), self.here()
        if self.constraint_or_lock(parts):
            self._refuse_key(parts, at)
            added: list[TableAction] = [AddUnique(definition) for definition in parts.uniques]
            added += [AddCheck(check) for check in parts.checks]
            added += [AddForeignKey(key) for key in parts.foreign_keys]
            return added + [AddLock(lock) for lock in parts.locks]
        self.accept("COLUMN")
        exists_ok = self.if_not_exists()
        at = self.here()
        self.column(parts)
        self._refuse_key(parts, at)
        (column,) = parts.columns
        if column.renamed_from:
            raise at.error(
                Code.INVALID_ARGUMENT,
                f"RENAMED FROM is for sources; here: RENAME COLUMN {column.renamed_from} TO {column.name}",
            )
        return [AddColumn(column, tuple(parts.uniques), tuple(parts.checks), tuple(parts.foreign_keys), exists_ok, at)]

    def _refuse_key(self, parts: TableParts, at: Position) -> None:
        if parts.key is not None:
            raise at.error(
                Code.FAILED_PRECONDITION,
                "a table keeps the primary key that it was created with; create a new table and copy with "
                "INSERT ... SELECT",
            )

    def _drop_element(self) -> TableAction:
        constraint = self.accept("CONSTRAINT")
        if not constraint:
            self.accept("COLUMN")
        if_exists = self.if_exists()
        at = self.here()
        name = self.name("the name of a constraint" if constraint else "the name of a column, or CONSTRAINT")
        cascade = self.cascade()
        return (DropConstraint if constraint else DropColumn)(name, if_exists, cascade, at)

    def _alter_lock(self) -> AlterLock | None:
        parts = TableParts()
        # A column may be called LOCK: the name of a lock is followed by columns.
        if not self.sees("LOCK") or not self.constraint_or_lock(parts):
            return None
        return AlterLock(parts.locks[0])

    def _alter_column(self) -> ColumnAction:
        self.accept("COLUMN")
        at = self.here()
        name = self.name("the name of a column")
        if self.accept("TYPE") or self.accept("SET", "DATA", "TYPE"):
            changed = AlterColumnType(name, self.type(name), at)
            if self.sees("USING"):
                raise self.wrong("a change of type keeps the stored values: there is no USING")
            return changed
        if self.accept("SET"):
            return self._set(name, at)
        if self.accept("DROP"):
            if self.accept("DEFAULT"):
                return DropDefault(name, at)
            self.expect("NOT", "NULL, or DEFAULT, after DROP")
            self.expect("NULL", "after NOT")
            return DropNotNull(name, at)
        raise self.wrong(f"expected TYPE, SET or DROP after the name of the column {name}")

    def _set(self, name: str, at: Position) -> ColumnAction:
        if self.accept("DEFAULT"):
            return SetDefault(name, self.default(), at)
        if self.accept("TRACKED"):
            return SetTracked(name, untracked=False, at=at)
        if not self.accept("NOT"):
            raise self._no_setting()
        if self.accept("TRACKED"):
            return SetTracked(name, untracked=True, at=at)
        self.expect("NULL", "or TRACKED after NOT")
        return SetNotNull(name, at)

    def _no_setting(self) -> F1Error:
        return self.wrong("expected NOT NULL, DEFAULT, [NOT] TRACKED or DATA TYPE after SET")
