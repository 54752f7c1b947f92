"""What the rows say to a change before it is made: rows that break what is wanted, and how much there is to do.

The rows are those of one snapshot, and what is found in them is what :mod:`f1server.check` finds: they are held against
a schema that has, of all constraints, those alone that the change adds (:func:`probe_of`). Columns that the change
fills have their new values already when a row is looked at.

Duplicates have no entries yet by which they could be found. Each part of the rows gives a fingerprint of eight bytes
for each entry of a new unique index that two rows may contend for; whoever has those of all parts sees which of them
are there twice, and asks the parts that have these for the rows. It is the same for foreign keys that refer to what
only a new index makes unique: what they look for must be among its entries.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from f1common.encoding.row import decode_row, patch_row
from f1common.errors import F1Error
from f1server.catalog.schema import Column, ElementState, ForeignKey, Index, LockColumn, Schema, Table
from f1server.check.checker import Checker
from f1server.check.entries import StoredKey, entries_of
from f1server.check.findings import Example, Finding, Kind, Report
from f1server.check.parts import Part
from f1server.check.rows import CheckedRow, RowBatch, shown_values
from f1server.rows.constraints import reference_of, referenced_index
from f1server.rows.defaults import literal_value
from f1server.rows.images import Image, describe
from f1server.rows.keys import check_key_length, index_layout, split_row_key
from f1server.rows.layout import layout
from f1server.rows.values import Row, Value
from f1server.schemachange.steps.diff import Element, Step
from f1server.schemachange.steps.moves import FORM, moving, surveyed
from f1server.schemachange.steps.plan import Task
from f1server.schemachange.steps.states import Work
from f1server.schemachange.work.validation import filled_value

__all__ = ["RowBehind", "Figures", "Probe", "Survey", "Surveyor", "Wanted", "probe_of"]

_SHOWN = frozenset({Kind.NULL, Kind.DANGLING, Kind.CHECK, Kind.UNREADABLE})
"""Findings that keep a change from being made. Others are older than it: ``f1 check`` tells of them."""
_PUBLIC, _WRITE_ONLY = ElementState.PUBLIC, ElementState.WRITE_ONLY
FINGERPRINT_BYTES = 8

Only = Mapping[int, Collection[bytes]] | None
"""By index or foreign key, the fingerprints whose rows are wanted; None: everything but rows is."""


class Defaults(Protocol):
    """SQL over no rows (:class:`f1server.exec.rowwise.RowEvaluator`)."""

    def defaults(self, schema: Schema) -> Callable[[Sequence[str]], Sequence[Value]]:
        """Return an evaluator of expressions over no row."""


@dataclass(slots=True)
class _Concern:
    """What is looked at in the rows of one table."""

    fills: list[Column] = field(default_factory=list)
    indexes: list[Index] = field(default_factory=list)
    references: list[tuple[ForeignKey, Index]] = field(default_factory=list)
    """Foreign keys that look into a new index, and that index."""
    gone: list[Column] = field(default_factory=list)
    unseen: frozenset[int] = frozenset()
    """Columns that are filled and that nothing else of the change looks at: that their values fit is all."""


@dataclass(frozen=True, slots=True)
class _Form:
    """What a table is to move to."""

    schema: Schema
    mirror: Table

    def refuse(self, row: Row) -> None:
        """Raise KEY_TOO_LONG for a row that can have no place there, or no entry in one of the indexes."""
        values = tuple(row.get(i) for i in self.mirror.key_column_ids)
        if None in values:
            return  # that is found elsewhere
        where = layout(self.schema, self.mirror)
        values = where.canonical(values)
        check_key_length(where.row_key(values), f"a row of {self.mirror.name}")
        for index in self.mirror.indexes:
            index_layout(self.schema, self.mirror, index).keys(row, values)


@dataclass(frozen=True, slots=True)
class Probe:
    """The schema that rows are held against, the tables that are looked at, and what moves to what, by id."""

    schema: Schema
    concerns: Mapping[int, _Concern]
    forms: Mapping[int, _Form] = field(default_factory=dict)

    def roots(self) -> list[Table]:
        """Return the roots of the hierarchies in which rows are looked at."""
        ids = {self.schema.root(self.schema.by_id[table_id]).id for table_id in self.concerns}
        return [self.schema.by_id[i] for i in sorted(ids)]


def probe_of(old: Schema, new: Schema, steps: Sequence[Step]) -> Probe:
    """Return what the rows of ``old`` are to be held against before ``steps`` make it ``new``."""
    moves = moving(old, new)
    forms = {} if moves is None else {moves[0].id: _Form(new, moves[1])}
    new = surveyed(old, new)
    tasks = [_surveyed_as(new, task) for step in steps for task in step.tasks]
    concerns = {element.table_id: _Concern() for element, _ in tasks if element.table_id in old.by_id}
    strict: set[int] = set()
    fresh: set[int] = set()
    for element, work in tasks:
        concern = concerns.get(element.table_id)
        if concern is None:
            continue
        _note(concern, old, new, element, work)
        if element.kind == "NOT NULL of":
            strict.add(element.id)
        elif work is Work.VALIDATE:
            fresh.add(element.id)
    built = {index.id: index for concern in concerns.values() for index in concern.indexes}
    tables = [_held_against(old, new, table, strict, fresh) for table in old.tables]
    tables += [table for table in new.tables if table.id not in old.by_id]
    schema = replace(new, tables=tuple(sorted(tables, key=lambda t: t.id)), version=old.version)
    for table_id, concern in concerns.items():
        table = schema.by_id[table_id]
        concern.references = list(_into_new_indexes(schema, table, old, built))
        concern.unseen = frozenset(c.id for c in concern.fills) - _seen(table, concern)
    return Probe(_without_references(schema, concerns), concerns, forms)


def _surveyed_as(new: Schema, task: Task[Element]) -> tuple[Element, Work]:
    """Return what the work for an element is to the rows that there are: a new primary key is a unique index."""
    element = task.element
    if element.kind == FORM and task.work is Work.FILL:
        ids = {index.id: table.id for table in new.tables for index in table.indexes}
        element = Element("index", ids.get(element.table_id, 0), element.table_id, element.name)
    return element, task.work


def _note(concern: _Concern, old: Schema, new: Schema, element: Element, work: Work) -> None:
    match element.kind, work:
        case "column", Work.FILL:
            column = new.by_id[element.table_id].by_id[element.id]
            if column.default_sql:
                concern.fills.append(column)
        case "column", Work.REMOVE:
            concern.gone.append(old.by_id[element.table_id].by_id[element.id])
        case "index", Work.FILL:
            concern.indexes += [i for i in new.by_id[element.table_id].indexes if i.id == element.id]
        case _:
            pass


def _seen(table: Table, concern: _Concern) -> set[int]:
    """Return the columns whose values decide whether a row is in order, or what entries it has."""
    if table.checks:
        return set(table.by_id)
    found = {column.id for column in table.columns if column.not_null}
    for index in concern.indexes:
        found |= {part.column_id for part in index.parts} | set(index.storing)
    return found.union(*(key.column_ids for key in table.foreign_keys))


def _held_against(old: Schema, new: Schema, before: Table, strict: Collection[int], fresh: Collection[int]) -> Table:
    """Return a table with all columns that its rows may have, and of the constraints those that are new."""
    after = new.by_id.get(before.id)
    if after is None:
        columns = tuple(replace(c, state=_PUBLIC, not_null=False) for c in before.columns)
        return replace(before, columns=columns, foreign_keys=(), checks=(), locks=_held_back(before.locks), indexes=())
    gone = [replace(c, not_null=False) for c in before.columns if c.id not in after.by_id]
    columns = tuple(
        replace(c, state=_PUBLIC, not_null=c.id in strict, not_null_state=_PUBLIC) for c in (*gone, *after.columns)
    )
    known = {index.id for index in before.indexes if index.state is _PUBLIC}
    locks = {lock.id: lock for lock in (*before.locks, *after.locks)}
    return replace(
        after,
        state=_PUBLIC,
        columns=columns,
        # Foreign keys of other tables find rows by these. No row is held against them: there is f1 check for that.
        indexes=tuple(replace(i, state=_WRITE_ONLY) for i in after.indexes if i.unique and i.id in known)
        + tuple(replace(i, state=ElementState.ABSENT) for i in after.indexes if i.unique and i.id not in known),
        foreign_keys=tuple(replace(k, state=_PUBLIC) for k in after.foreign_keys if k.id in fresh),
        checks=tuple(replace(c, state=_PUBLIC) for c in after.checks if c.id in fresh),
        locks=_held_back(tuple(locks.values())),
    )


def _held_back(locks: tuple[LockColumn, ...]) -> tuple[LockColumn, ...]:
    return tuple(replace(lock, state=_WRITE_ONLY) for lock in locks)


def _into_new_indexes(
    schema: Schema, table: Table, old: Schema, built: Mapping[int, Index]
) -> Iterator[tuple[ForeignKey, Index]]:
    for foreign in table.foreign_keys:
        if foreign.referenced_table_id in old.by_id:
            index = referenced_index(schema, foreign)
            if index is not None and index.id in built:
                yield foreign, index


def _without_references(schema: Schema, concerns: Mapping[int, _Concern]) -> Schema:
    """Return the schema without the foreign keys that look into new indexes: fingerprints are compared instead."""
    apart = {foreign.id for concern in concerns.values() for foreign, _ in concern.references}
    tables = [
        replace(table, foreign_keys=tuple(k for k in table.foreign_keys if k.id not in apart))
        for table in schema.tables
    ]
    return replace(schema, tables=tuple(tables))


@dataclass(slots=True)
class Figures:
    """What there is of a table: rows, their bytes, and by element the entries to come or the values to go."""

    rows: int = 0
    bytes: int = 0
    elements: dict[str, int] = field(default_factory=dict)

    def count(self, element: str, number: int) -> None:
        """Add to an element."""
        self.elements[element] = self.elements.get(element, 0) + number


@dataclass(frozen=True, slots=True)
class Wanted:
    """Whose fingerprints some are: those of the entries of an index, or of what a foreign key looks for in it."""

    table: str
    name: str
    id: int
    index_id: int


@dataclass(frozen=True, slots=True)
class RowBehind:
    """A row behind a fingerprint: the whole key that was hashed, the row's primary key and its values."""

    of: Wanted
    fingerprint: bytes
    whole: bytes
    example: Example


@dataclass(slots=True)
class Survey:
    """What a part of the rows has to say."""

    report: Report
    figures: dict[int, Figures] = field(default_factory=dict)
    fingerprints: dict[Wanted, bytearray] = field(default_factory=dict)
    rows: list[RowBehind] = field(default_factory=list)


class Surveyor:
    """Looks at parts of the rows; nothing is kept from one to the next."""

    def __init__(self, checker: Checker, evaluators: Callable[[], Defaults]) -> None:
        self._checker = checker
        self._evaluators = evaluators

    async def look(
        self,
        probe: Probe,
        part: Part,
        timestamp: int,
        *,
        examples: int,
        only: Only = None,
    ) -> Survey:
        """Look at a part of a hierarchy as of ``timestamp``, and show ``examples`` of each kind of finding.

        Raises SNAPSHOT_TOO_OLD, and what the storage tier raises.
        """
        survey = Survey(Report(examples))
        lineage: list[bytes] = []
        root = probe.schema.by_id[part.table_id]
        above = {t.id for i in probe.concerns for t in probe.schema.ancestors(probe.schema.by_id[i])}
        async for keys in self._checker.scan(part, timestamp):
            chosen = self._chosen(probe, above, keys, survey)
            batch, findings = await self._checker.judge.rows(probe.schema, root, lineage, chosen, timestamp)
            if only is None:
                survey.report.add(finding for finding in findings if finding.kind in _SHOWN)
            await self._checker.judge.beside(lambda batch=batch: _take_in(probe, batch, survey, only))  # type: ignore[misc]
        return survey

    def _chosen(
        self, probe: Probe, above: Collection[int], keys: Iterable[StoredKey], survey: Survey
    ) -> list[StoredKey]:
        """Return the rows that are looked at, as the change fills them, and those above them; count the former."""
        chosen: list[StoredKey] = []
        unfilled: dict[int, list[int]] = {}
        for stored in keys:
            split = split_row_key(probe.schema, stored.key)
            if split is None or split[0].id not in above:
                continue
            concern = probe.concerns.get(split[0].id)
            if concern is not None:
                figures = survey.figures.setdefault(split[0].id, Figures())
                figures.rows += 1
                figures.bytes += len(stored.key) + len(stored.value)
                if concern.fills:
                    unfilled.setdefault(split[0].id, []).append(len(chosen))
            chosen.append(stored)
        for table_id, places in unfilled.items():
            table = probe.schema.by_id[table_id]
            concern = probe.concerns[table_id]
            for column in concern.fills:
                self._fill(probe.schema, table, column, chosen, places, survey, unseen=column.id in concern.unseen)
        return chosen

    def _fill(
        self,
        schema: Schema,
        table: Table,
        column: Column,
        rows: list[StoredKey],
        places: list[int],
        survey: Survey,
        *,
        unseen: bool,
    ) -> None:
        """Give the rows at some places the value that the change will give them, where they have none.

        ``unseen``: only the first, to see that it can be given.
        """
        lacking = [place for place in places if column.id not in decode_row(rows[place].value)]
        survey.figures[table.id].count(f"column {table.name}.{column.name}", len(lacking))
        if unseen:
            del lacking[1:]
        try:
            values = [filled_value(schema, table, column, value) for value in self._defaults(schema, column, lacking)]
        except F1Error as error:
            text = f"its default does not fit: {error.message}"
            survey.report.add([Finding(Kind.UNREADABLE, table.name, column.name, Example("", text))])
            return
        for place, value in zip(lacking, values, strict=True):
            if value is not None:
                rows[place] = replace(rows[place], value=patch_row(rows[place].value, {column.id: value}))

    def _defaults(self, schema: Schema, column: Column, lacking: Sequence[int]) -> Sequence[Value]:
        literal = literal_value(column.default_sql)
        if literal is not None or not lacking:
            return [literal[0] if literal is not None else None] * len(lacking)
        return self._evaluators().defaults(schema)([column.default_sql] * len(lacking))


def _take_in(probe: Probe, batch: RowBatch, survey: Survey, only: Only) -> None:
    """Count what is to be written and what goes, and take the fingerprints of what is to be unique."""
    for table_id, concern in probe.concerns.items():
        for row in batch.rows.get(table_id, ()):
            for column in concern.gone:
                if row.row.get(column.id) is not None:
                    survey.figures[table_id].count(f"column {row.table.name}.{column.name}", 1)
            if (form := probe.forms.get(table_id)) is not None:
                _take_form(row, form, survey)
            for index in concern.indexes:
                _take_entry(probe, row, index, survey, only)
            for foreign, index in concern.references:
                _take_reference(probe, row, foreign, index, survey, only)


def _take_form(row: CheckedRow, form: _Form, survey: Survey) -> None:
    try:
        form.refuse(row.row)
    except F1Error as error:
        text = f"the row cannot move: {error.message}"
        survey.report.add([Finding(Kind.UNREADABLE, row.table.name, "", Example(row.shown, text))])


def _take_entry(probe: Probe, row: CheckedRow, index: Index, survey: Survey, only: Only) -> None:
    where = index_layout(probe.schema, row.table, index)
    try:
        entries = entries_of(where, row.row, row.key_values)
    except F1Error as error:
        text = f"the row can have no entry: {error.message}"
        survey.report.add([Finding(Kind.UNREADABLE, row.table.name, index.name, Example(row.shown, text))])
        return
    survey.figures[row.table.id].count(f"index {index.name}", len(entries))
    of = Wanted(row.table.name, index.name, index.id, index.id)
    for key, (_, contended) in entries.items():
        if contended:
            _fingerprint(survey, of, key, row, lambda: shown_values(where, row.row), only)


def _take_reference(
    probe: Probe, row: CheckedRow, foreign: ForeignKey, index: Index, survey: Survey, only: Only
) -> None:
    image = Image(row.table, row.key_values, row.key, None, None, None, row.row)
    reference = reference_of(probe.schema, image, foreign)
    if reference is None:
        return

    def text() -> str:
        names = [row.table.by_id[i].name for i in foreign.column_ids]
        return f"{reference.target.name} has no row for {describe(names, reference.values)}"

    of = Wanted(row.table.name, foreign.name, foreign.id, index.id)
    _fingerprint(survey, of, reference.key, row, text, only)


def fingerprint_of(key: bytes) -> bytes:
    """Return the fingerprint of the key of an entry."""
    return hashlib.blake2b(key, digest_size=FINGERPRINT_BYTES).digest()


def _fingerprint(survey: Survey, of: Wanted, key: bytes, row: CheckedRow, text: Callable[[], str], only: Only) -> None:
    fingerprint = fingerprint_of(key)
    if only is None:
        survey.fingerprints.setdefault(of, bytearray()).extend(fingerprint)
    elif fingerprint in only.get(of.id, ()):
        survey.rows.append(RowBehind(of, fingerprint, key, Example(row.shown, text())))
