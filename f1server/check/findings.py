"""What a check finds, counted without bound and shown with a few examples."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

__all__ = ["Clause", "Copies", "Example", "Finding", "Group", "Kind", "Report", "Stray", "Suspect"]


class Clause(IntEnum):
    """The clauses of definition 4 of the schema-change paper."""

    VALUES_HAVE_ROWS = 1
    REQUIRED_VALUES = 2
    ENTRIES_HAVE_INDEXES = 3
    INDEXES_COMPLETE = 4
    ENTRIES_VALID = 5
    CONSTRAINTS_HONOURED = 6
    NOTHING_UNKNOWN = 7


class Kind(StrEnum):
    """What is wrong."""

    NO_TABLE = "no table"
    NO_PARENT = "no parent"
    NO_COLUMN = "no column"
    NULL = "null"
    LOCK = "lock"
    NO_INDEX = "no index"
    MISSING_ENTRY = "missing entry"
    ORPHAN_ENTRY = "orphan entry"
    WRONG_ENTRY = "wrong entry"
    DUPLICATE = "duplicate"
    DANGLING = "dangling reference"
    CHECK = "check"
    UNREADABLE = "unreadable"
    COPY = "schema copy"


CLAUSES = {
    Kind.NO_TABLE: Clause.VALUES_HAVE_ROWS,
    Kind.NO_PARENT: Clause.VALUES_HAVE_ROWS,
    Kind.NO_COLUMN: Clause.VALUES_HAVE_ROWS,
    Kind.NULL: Clause.REQUIRED_VALUES,
    Kind.LOCK: Clause.REQUIRED_VALUES,
    Kind.NO_INDEX: Clause.ENTRIES_HAVE_INDEXES,
    Kind.MISSING_ENTRY: Clause.INDEXES_COMPLETE,
    Kind.ORPHAN_ENTRY: Clause.ENTRIES_VALID,
    Kind.WRONG_ENTRY: Clause.ENTRIES_VALID,
    Kind.DUPLICATE: Clause.CONSTRAINTS_HONOURED,
    Kind.DANGLING: Clause.CONSTRAINTS_HONOURED,
    Kind.CHECK: Clause.CONSTRAINTS_HONOURED,
    Kind.UNREADABLE: Clause.NOTHING_UNKNOWN,
    Kind.COPY: Clause.NOTHING_UNKNOWN,
}


@dataclass(frozen=True, slots=True)
class Example:
    """Where it is wrong: a key as people read it, and what is there."""

    key: str
    message: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong. ``element`` is the column, index or constraint concerned; empty: the table itself.

    ``repair``: what a repair looks at again, if there may be one.
    """

    kind: Kind
    table: str
    element: str
    example: Example
    repair: "Suspect | Stray | Copies | None" = None


@dataclass(frozen=True, slots=True)
class Suspect:
    """An index of which a row's entries, or one entry, may be wrong: ``row_key`` or ``entry_key`` is a storage key."""

    table_id: int
    index_id: int
    row_key: bytes = b""
    entry_key: bytes = b""


@dataclass(frozen=True, slots=True)
class Stray:
    """A key that belongs to nothing, in the version that was committed at ``ts``."""

    key: bytes
    ts: int


@dataclass(frozen=True, slots=True)
class Copies:
    """The copies of the schema of a database, of which one differs from the others."""

    database: str


@dataclass(slots=True)
class Group:
    """All findings of one kind in one element."""

    kind: Kind
    table: str
    element: str
    count: int = 0
    repaired: int = 0
    examples: list[Example] = field(default_factory=list)


class Report:
    """Findings by kind and element, with at most ``examples`` examples of each, and what was looked at."""

    def __init__(self, examples: int) -> None:
        self._examples = examples
        self._groups: dict[tuple[Kind, str, str], Group] = {}
        self.rows = 0
        self.entries = 0

    def add(self, findings: Iterable[Finding], *, repaired: bool = False) -> None:
        """Count findings."""
        for finding in findings:
            place = (finding.kind, finding.table, finding.element)
            group = self._groups.setdefault(place, Group(*place))
            group.count += 1
            group.repaired += repaired
            if len(group.examples) < self._examples:
                group.examples.append(finding.example)

    def __iter__(self) -> Iterator[Group]:
        """The groups, by clause."""
        return iter(sorted(self._groups.values(), key=lambda g: (CLAUSES[g.kind], g.kind, g.table, g.element)))
