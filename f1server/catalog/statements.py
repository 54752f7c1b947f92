"""What DDL says, before names are looked up: the output of :mod:`f1server.catalog.ddl`."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from f1common.errors import Code
from f1server.catalog.position import NOWHERE as NOWHERE
from f1server.catalog.position import Position as Position
from f1server.catalog.rolestatements import RoleStatement
from f1server.catalog.schema import ColumnType


@dataclass(frozen=True, slots=True)
class Reference:
    """``REFERENCES table (columns)``; no columns: the primary key."""

    table: str
    columns: tuple[str, ...] = ()
    at: Position = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class CheckDef:
    """``CHECK (sql)``; no name: one is made."""

    sql: str
    name: str = ""
    at: Position = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class UniqueDef:
    """``UNIQUE (columns)``."""

    columns: tuple[str, ...]
    name: str = ""
    at: Position = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class ForeignKeyDef:
    """``FOREIGN KEY (columns) REFERENCES ...``."""

    columns: tuple[str, ...]
    references: Reference
    name: str = ""
    at: Position = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class LockDef:
    """``LOCK name (columns)``: these columns are covered by a lock of their own (F1 section 5.1)."""

    name: str
    columns: tuple[str, ...]
    at: Position = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class ColumnDef:
    """A column of CREATE TABLE; its inline constraints were moved to the table, NOT NULL and DEFAULT excepted."""

    name: str
    type: ColumnType
    not_null: bool = False
    default_sql: str = ""
    untracked: bool = False
    renamed_from: str = ""
    at: Position = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class CreateTable:
    """CREATE TABLE. ``key`` None: no primary key. ``as_query``: CREATE TABLE AS, with ``as_names`` for its columns.

    ``parent_key``: which columns hold the parent's key, if they are not named as the parent's.
    """

    name: str
    columns: tuple[ColumnDef, ...] = ()
    key: tuple[str, ...] | None = None
    parent: str = ""
    cascade: bool = False
    uniques: tuple[UniqueDef, ...] = ()
    checks: tuple[CheckDef, ...] = ()
    foreign_keys: tuple[ForeignKeyDef, ...] = ()
    locks: tuple[LockDef, ...] = ()
    untracked: bool = False
    if_not_exists: bool = False
    renamed_from: str = ""
    as_query: str = ""
    as_names: tuple[str, ...] = ()
    at: Position = field(default=NOWHERE, compare=False)
    parent_key: tuple[str, ...] = ()


def with_query_columns(statement: CreateTable, result: Sequence[tuple[str, ColumnType]]) -> CreateTable:
    """Return CREATE TABLE AS as the CREATE TABLE that must come first, given name and type of its query's columns.

    The columns that the statement declares keep their types and constraints; names that it gives replace the query's.
    Raises F1Error INVALID_ARGUMENT if it names or declares more or fewer columns than the query has.
    """
    declared = len(statement.columns) or len(statement.as_names) or len(result)
    if declared != len(result):
        raise statement.at.error(
            Code.INVALID_ARGUMENT, f"{statement.name} has {declared} columns, its query has {len(result)}"
        )
    columns = statement.columns
    if not columns:
        names = statement.as_names or tuple(name for name, _ in result)
        columns = tuple(ColumnDef(name, kind, at=statement.at) for name, (_, kind) in zip(names, result, strict=True))
    return replace(statement, columns=columns, as_query="", as_names=())


@dataclass(frozen=True, slots=True)
class IndexColumn:
    """A column, or a path into a proto column: the column's name and the fields."""

    path: tuple[str, ...]
    at: Position = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class CreateIndex:
    """CREATE INDEX."""

    name: str
    table: str
    columns: tuple[IndexColumn, ...]
    unique: bool = False
    local: bool = False
    storing: tuple[str, ...] = ()
    if_not_exists: bool = False
    at: Position = field(default=NOWHERE, compare=False)
    renamed_from: str = ""


@dataclass(frozen=True, slots=True)
class CreateView:
    """CREATE VIEW; with names for its columns, ``sql`` is wrapped already."""

    name: str
    sql: str
    or_replace: bool = False
    if_not_exists: bool = False
    at: Position = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class CreateDatabase:
    """CREATE DATABASE."""

    name: str
    if_not_exists: bool = False
    at: Position = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class DropTable:
    """DROP TABLE."""

    names: tuple[str, ...]
    if_exists: bool = False
    cascade: bool = False
    at: Position = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class DropIndex:
    """DROP INDEX."""

    names: tuple[str, ...]
    if_exists: bool = False
    cascade: bool = False
    at: Position = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class DropView:
    """DROP VIEW."""

    names: tuple[str, ...]
    if_exists: bool = False
    cascade: bool = False
    at: Position = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class DropDatabase:
    """DROP DATABASE."""

    name: str
    if_exists: bool = False
    at: Position = field(default=NOWHERE, compare=False)


# ALTER. A table's actions are applied in the order in which they are written.


@dataclass(frozen=True, slots=True)
class AddColumn:
    """ADD COLUMN, with the constraints that stand behind the column."""

    column: ColumnDef
    uniques: tuple[UniqueDef, ...] = ()
    checks: tuple[CheckDef, ...] = ()
    foreign_keys: tuple[ForeignKeyDef, ...] = ()
    if_not_exists: bool = False
    at: Position = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class DropColumn:
    """DROP COLUMN; ``cascade``: with the indexes, constraints, locks and views that use it."""

    name: str
    if_exists: bool = False
    cascade: bool = False
    at: Position = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class AlterColumnType:
    """ALTER COLUMN ... TYPE."""

    name: str
    type: ColumnType
    at: Position = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class SetNotNull:
    """ALTER COLUMN ... SET NOT NULL."""

    name: str
    at: Position = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class DropNotNull:
    """ALTER COLUMN ... DROP NOT NULL."""

    name: str
    at: Position = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class SetDefault:
    """ALTER COLUMN ... SET DEFAULT: for rows that are inserted from now on."""

    name: str
    sql: str
    at: Position = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class DropDefault:
    """ALTER COLUMN ... DROP DEFAULT."""

    name: str
    at: Position = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class SetTracked:
    """ALTER COLUMN ... SET TRACKED, SET NOT TRACKED: is the column part of the change history?"""

    name: str
    untracked: bool
    at: Position = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class RenameTable:
    """RENAME TO."""

    to: str
    at: Position = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """RENAME COLUMN ... TO."""

    name: str
    to: str
    at: Position = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class AddCheck:
    """ADD CHECK."""

    definition: CheckDef


@dataclass(frozen=True, slots=True)
class AddForeignKey:
    """ADD FOREIGN KEY."""

    definition: ForeignKeyDef


@dataclass(frozen=True, slots=True)
class AddUnique:
    """ADD UNIQUE."""

    definition: UniqueDef


@dataclass(frozen=True, slots=True)
class AddLock:
    """ADD LOCK."""

    definition: LockDef


@dataclass(frozen=True, slots=True)
class AlterLock:
    """ALTER LOCK: the columns that a lock covers from now on, which other locks no longer do."""

    definition: LockDef


@dataclass(frozen=True, slots=True)
class DropConstraint:
    """DROP CONSTRAINT: a check, a foreign key, a unique constraint or a lock; ``cascade``: what needs it, too."""

    name: str
    if_exists: bool = False
    cascade: bool = False
    at: Position = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class SetOptions:
    """SET (change_history = ...), SET ON DELETE ...; None: stays as it is."""

    cascade: bool | None = None
    untracked: bool | None = None
    at: Position = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class SetPrimaryKey:
    """SET PRIMARY KEY, with or without INTERLEAVE IN PARENT: the table moves. ``parent_key`` as in CreateTable."""

    key: tuple[str, ...]
    parent: str = ""
    parent_key: tuple[str, ...] = ()
    cascade: bool = False
    at: Position = field(default=NOWHERE, compare=False)


ColumnAction = AlterColumnType | SetNotNull | DropNotNull | SetDefault | DropDefault | SetTracked
"""What ALTER COLUMN does to one column."""

TableAction = (
    AddColumn
    | DropColumn
    | ColumnAction
    | RenameTable
    | RenameColumn
    | AddCheck
    | AddForeignKey
    | AddUnique
    | AddLock
    | AlterLock
    | DropConstraint
    | SetOptions
    | SetPrimaryKey
)


@dataclass(frozen=True, slots=True)
class AlterTable:
    """ALTER TABLE."""

    name: str
    actions: tuple[TableAction, ...]
    if_exists: bool = False
    at: Position = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class AlterIndex:
    """ALTER INDEX ... RENAME TO."""

    name: str
    to: str
    if_exists: bool = False
    at: Position = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class AlterView:
    """ALTER VIEW ... RENAME TO."""

    name: str
    to: str
    if_exists: bool = False
    at: Position = field(default=NOWHERE, compare=False)


Alteration = AlterTable | AlterIndex | AlterView

RelationStatement = CreateTable | CreateIndex | CreateView | DropTable | DropIndex | DropView | Alteration
"""Statements about tables, their elements and views."""

SchemaStatement = RelationStatement | RoleStatement
"""Statements that change the schema of one database."""

DdlStatement = SchemaStatement | CreateDatabase | DropDatabase
