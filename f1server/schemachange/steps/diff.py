"""From one schema to another: which elements come, go and change, and the versions of the schema in which they do.

The order of states is figure 3 of the schema-change paper (:mod:`f1server.schemachange.steps.states`); here it is
applied to real elements. A change is planned anew from whatever states its elements have reached, so a change that
was cut short goes on, or goes back, by the same function.

Some constraints need two rounds. A constraint over columns that are only coming, such as NOT NULL without a default,
cannot be enforced before servers can set these columns: it comes in a round of its own, after them. A constraint over
columns that go must be gone before they are. Whoever writes under either of two neighbouring versions then keeps what
both promise. What goes and has data goes in the last round, for after a removal there is no way back.

A column that comes under another lock is covered by both for a while (section 3.4), whether these locks stay, come or
go; the steps of its coverage are those of an element of their own.

What appears at once: a table that nobody relies on has no rows, so that all of it may be public from the beginning;
names, defaults, options and new fields of messages, because the rows that are stored stay as they are. Wider types come
with the last version: until then the change may fail, and a type that rows make use of does not become narrower again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from f1common.errors import Code, F1Error
from f1server.catalog import protos
from f1server.catalog.expressions import column_references
from f1server.catalog.roles import names_of
from f1server.catalog.schema import Check, Column, ColumnType, ElementState, ForeignKey, Kind, Schema, Table
from f1server.rows.locks import DEFAULT_LOCK, coverage
from f1server.schemachange.steps.edits import (
    AddElement,
    AddTable,
    CoverageTo,
    Edit,
    EditElement,
    EditTable,
    ElementTo,
    NotNullTo,
    Part,
    SetGrants,
    SetProtos,
    SetRoles,
    SetViews,
    TableTo,
    advance,
    options,
)
from f1server.schemachange.steps.moves import FORM, Round, Version, is_move, stages
from f1server.schemachange.steps.plan import Change, Move, SchemaVersion, Task, plan
from f1server.schemachange.steps.states import Coverage, ElementClass, State, Work

__all__ = ["Element", "Step", "dropped", "losing", "plan_steps", "summary", "widens"]

_SHOWN = 5

_ABSENT, _PUBLIC = ElementState.ABSENT, ElementState.PUBLIC
_WORDS = {
    Part.COLUMN: "column",
    Part.INDEX: "index",
    Part.FOREIGN_KEY: "foreign key",
    Part.CHECK: "check",
    Part.LOCK: "lock",
}
_TABLE = "table"
_NOT_NULL = "NOT NULL of"
_COVERAGE = "lock coverage of"


@dataclass(frozen=True, slots=True)
class Element:
    """What names an element: its kind, its table and its id there (0: the table itself).

    Of the coverage of a column, ``lock`` is the cell id of the lock that is to cover it.
    """

    kind: str
    table_id: int
    id: int = 0
    name: str = ""
    lock: int = DEFAULT_LOCK

    def __str__(self) -> str:
        """Return it for people."""
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class Step:
    """One version of the schema, and the work on data that is done when every server has it.

    No ``edits``: there is only the work, under the version that is current. ``what`` says the edits for people: first
    what happens ``at_once``, then the ``moves`` of elements between states.
    """

    what: tuple[str, ...] = ()
    edits: tuple[Edit, ...] = ()
    tasks: tuple[Task[Element], ...] = ()
    moves: tuple[Move[Element], ...] = ()
    final: bool = False
    """When it has been made there is no way back."""

    @property
    def at_once(self) -> tuple[str, ...]:
        """What of the edits needs no states."""
        moves = {_describe(move) for move in self.moves}
        return tuple(text for text in self.what if text not in moves)

    @property
    def loses_data(self) -> bool:
        """Are rows, or values of columns, deleted?"""
        return bool(losing(self.tasks))


def plan_steps(old: Schema, new: Schema) -> list[Step]:
    """Return the steps from ``old`` to ``new``, whose elements have the same ids where they are the same.

    Raises F1Error FAILED_PRECONDITION with all reasons if something is asked for that cannot be done.
    """
    if is_move(old, new):
        return [step for stage in stages(old, new) for step in _of_stage(stage)]
    reasons = _reasons(old, new)
    if reasons:
        raise F1Error(Code.FAILED_PRECONDITION, "this cannot be changed: " + "; ".join(reasons))
    narrow = _with_types_of(old, new)
    first, last = _without_leaving(old, narrow), _without_coming(old, narrow)
    last = replace(last, views=first.views, proto_files=new.proto_files, descriptor_set=new.descriptor_set)
    steps = _Round(old, first).steps() + _rounds(first, last, replace(narrow, views=first.views))
    return _with_views(_with_wider_types(steps, narrow, new), old, new)


def _rounds(first: Schema, last: Schema, goal: Schema) -> list[Step]:
    """Return the steps by way of ``last``. Rows may stand against a second round: data are removed in it only."""
    if not _Round(last, goal).steps():
        return _Round(first, last).steps()
    steps = _Round(first, last, removes=False).steps()
    reached = first
    for step in steps:
        reached = advance(reached, step.edits)
    return steps + _Round(reached, goal).steps()


def _of_stage(stage: Round | Version) -> list[Step]:
    """Return the steps of a part of the way of a table that moves."""
    if isinstance(stage, Round):
        return _Round(stage.before, stage.after).steps()
    moves = tuple(Move(_form(move.table), move.before, move.after) for move in stage.moves)
    tasks = (Task(_form(stage.work[0]), stage.work[1]),) if stage.work is not None else ()
    return [Step(tuple(_describe(move) for move in moves), stage.edits, tasks, moves, stage.final)]


def _form(table: Table) -> Element:
    key = ", ".join(column.name for column in table.key_columns)
    return Element(FORM, table.id, name=f"{table.name} ({key})")


def summary(steps: Sequence[Step]) -> str:
    """Return what some steps do, in some words: ``+ index ByName, - column R.V, rename table A to B and 3 more``."""
    goals = {move.element: move for step in steps for move in step.moves}
    texts = [text for step in steps for text in step.at_once]
    texts += [f"{'-' if move.after is _ABSENT else '+'} {element}" for element, move in goals.items()]
    shown, rest = texts[:_SHOWN], len(texts) - _SHOWN
    return ", ".join(shown) + (f" and {rest} more" if rest > 0 else "")


def dropped(steps: Sequence[Step]) -> list[Element]:
    """Return the tables and columns whose values some steps remove."""
    return losing([task for step in steps for task in step.tasks])


def losing(tasks: Sequence[Task[Element]]) -> list[Element]:
    """Return the tables and columns whose values some tasks remove."""
    removed = [task.element for task in tasks if task.work is Work.REMOVE]
    return [element for element in removed if element.kind in (_TABLE, _WORDS[Part.COLUMN])]


# ------------------------------------------------------------------ rounds


def _without_leaving(old: Schema, new: Schema) -> Schema:
    """Return ``old`` without the constraints that go and lie over columns that go too."""
    tables = []
    for table in old.tables:
        after = new.by_id.get(table.id)
        if after is None:
            tables.append(table)
            continue
        going = {c.id for c in table.columns if c.id not in after.by_id}
        kept_checks = tuple(c for c in table.checks if _kept(c, after.checks) or not _over(table, c, going))
        kept_keys = tuple(k for k in table.foreign_keys if _kept(k, after.foreign_keys) or not _over(table, k, going))
        columns = tuple(_nullable(c) if c.id in going and _needs_value(c) else c for c in table.columns)
        tables.append(replace(table, checks=kept_checks, foreign_keys=kept_keys, columns=columns))
    return replace(old, tables=tuple(tables))


def _without_coming(old: Schema, new: Schema) -> Schema:
    """Return ``new`` without the constraints that come and rely on columns or indexes that only come too."""
    tables = []
    for table in new.tables:
        before = old.by_id.get(table.id)
        if before is None:
            tables.append(table)
            continue
        ready = {c.id for c in before.columns if c.state is _PUBLIC}
        coming = table.by_id.keys() - ready
        checks = tuple(c for c in table.checks if _kept(c, before.checks) or not _over(table, c, coming))
        keys = tuple(
            k
            for k in table.foreign_keys
            if _kept(k, before.foreign_keys) or not (_over(table, k, coming) or _target_is_new(k, old))
        )
        columns = tuple(_nullable(c) if c.id in coming and _needs_value(c) else c for c in table.columns)
        tables.append(replace(table, checks=checks, foreign_keys=keys, columns=columns))
    return replace(new, tables=tuple(tables))


def _kept(element: Any, others: Iterable[Any]) -> bool:
    return any(element.id == other.id for other in others)


def _over(table: Table, constraint: Check | ForeignKey, column_ids: Iterable[int]) -> bool:
    """Tell whether a constraint is about some of the columns."""
    if isinstance(constraint, ForeignKey):
        return not set(constraint.column_ids).isdisjoint(column_ids)
    references = column_references(constraint.sql, f"check {constraint.name}")
    named = {part.lower() for parts in references for part in parts}
    return any(table.by_id[i].name.lower() in named for i in column_ids)


def _target_is_new(key: ForeignKey, old: Schema) -> bool:
    """Tell whether what a foreign key refers to does not enforce it yet: columns, or a unique index over them."""
    target = old.by_id.get(key.referenced_table_id)
    if target is None or key.referenced_column_ids == target.key_column_ids:
        return False
    wanted = set(key.referenced_column_ids)
    unique = [i for i in target.indexes if i.unique and i.state is _PUBLIC]
    return not any({part.column_id for part in index.parts} == wanted for index in unique)


def _needs_value(column: Column) -> bool:
    return column.not_null and not column.default_sql


def _nullable(column: Column) -> Column:
    return replace(column, not_null=False, not_null_state=_PUBLIC)


def _with_types_of(old: Schema, new: Schema) -> Schema:
    """Return ``new`` with the types that columns have in ``old``, and with their defaults, which may need the wider."""

    def kept(column: Column, known: Column | None) -> Column:
        if known is None or known.type == column.type:
            return column
        return replace(column, type=known.type, default_sql=known.default_sql)

    had = [(table, old.by_id.get(table.id)) for table in new.tables]
    tables = (
        table if known is None else replace(table, columns=tuple(kept(c, known.by_id.get(c.id)) for c in table.columns))
        for table, known in had
    )
    return replace(new, tables=tuple(tables))


def _with_wider_types(steps: list[Step], narrow: Schema, new: Schema) -> list[Step]:
    """Add that columns become wider: with the last version, when nothing can fail any more."""
    columns = [(table, column) for table in new.tables for column in table.columns]
    for table, column in columns:
        known = narrow.by_id[table.id].by_id[column.id]
        if known.type != column.type:
            steps, number = _written(steps, -1)
            edit = EditElement(Part.COLUMN, table.id, known, column)
            steps[number] = _more(steps[number], edit, f"alter column {table.name}.{column.name}")
    return steps


def _written(steps: list[Step], which: int) -> tuple[list[Step], int]:
    """Return the steps, at least one of which writes a version, and the place of the first (0) or last (-1) one."""
    written = [n for n, step in enumerate(steps) if step.edits]
    return (list(steps), written[which]) if written else ([Step(), *steps], 0)


def _with_views(steps: list[Step], old: Schema, new: Schema) -> list[Step]:
    """Add what happens to views: they go with the first version that is written, and come with the last."""
    gone = tuple(sorted(set(old.views_by_name) - set(new.views_by_name)))
    fresh = tuple(v for v in new.views if old.views_by_name.get(v.name.lower()) != v)
    if gone:
        steps, number = _written(steps, 0)
        steps[number] = _more(steps[number], SetViews(gone, ()), "drop view " + ", ".join(gone))
    if fresh:
        steps, number = _written(steps, -1)
        text = "create view " + ", ".join(v.name for v in fresh)
        steps[number] = _more(steps[number], SetViews((), fresh), text)
    return steps


def _more(step: Step, edit: Edit, what: str) -> Step:
    return replace(step, edits=(*step.edits, edit), what=(*step.what, what) if what else step.what)


class _Round:
    """The steps of one round: at most three versions, as in figure 3.

    Unless it ``removes`` data, elements that go stay delete-only.
    """

    def __init__(self, old: Schema, new: Schema, *, removes: bool = True) -> None:
        self._old, self._new, self._removes = old, new, removes
        self._changes: list[Change[Element]] = []
        self._new_elements: dict[Element, Edit] = {}
        """How an element that is not there yet is made, in its first state."""
        self._at_once: list[tuple[Edit, str]] = []
        added = [t for t in new.tables if t.id not in old.by_id]
        dropped = [t for t in old.tables if t.id not in new.by_id]
        self._late = _reliant(added, old)
        self._protos()
        if old.roles != new.roles:
            self._at_once.append((SetRoles(old.roles, new.roles), _roles_text(old, new)))
        for table in added:
            self._add_table(table)
        for table in dropped:
            self._change(Element(_TABLE, table.id, name=table.name), ElementClass.OPTIONAL, table.state, _ABSENT)
        for table in new.tables:
            if table.id in old.by_id:
                self._table(old.by_id[table.id], table)

    def steps(self) -> list[Step]:
        """Return the steps; versions in which nothing happens are left out."""
        steps: list[Step] = []
        for item in plan(self._changes):
            if isinstance(item, SchemaVersion):
                version = self._version(item)
                steps += [version] if version.edits else []
            elif tasks := tuple(task for task in item.tasks if self._removes or task.work is not Work.REMOVE):
                steps = [*steps[:-1], replace(steps[-1], tasks=tasks)] if steps else [Step(tasks=tasks)]
        if self._at_once:
            edits, texts = zip(*self._at_once, strict=True)
            what = tuple(text for text in texts if text)
            first = bool(steps) and bool(steps[0].edits)
            head = steps[0] if first else Step()
            merged = replace(head, edits=(*edits, *head.edits), what=(*what, *head.what))
            steps = [merged, *steps[first:]]
        return steps

    def _version(self, version: SchemaVersion[Element]) -> Step:
        moves = tuple(move for move in version.moves if self._removes or not _is_last(move))
        return Step(tuple(map(_describe, moves)), tuple(map(self._edit, moves)), moves=moves)

    def _edit(self, move: Move[Element]) -> Edit:
        element = move.element
        if isinstance(move.after, Coverage):
            had = coverage(self._old.by_id[element.table_id])[element.id]
            locks = {element.lock, *had} if move.after is Coverage.BOTH else {element.lock}
            return CoverageTo(element.table_id, element.id, element.name, tuple(sorted(locks)))
        state = _element_state(move.after)
        if move.before is _ABSENT and element in self._new_elements:
            return _made_in(self._new_elements[element], state)
        if element.kind == _TABLE:
            return TableTo(element.table_id, element.name, state)
        if element.kind == _NOT_NULL:
            return NotNullTo(element.table_id, element.id, element.name, state)
        part = next(part for part, word in _WORDS.items() if word == element.kind)
        return ElementTo(part, element.table_id, element.id, element.name, state)

    def _change(self, element: Element, kind: ElementClass, now: State, goal: State) -> None:
        if now is not goal:
            self._changes.append(Change(element, kind, now, goal))

    def _protos(self) -> None:
        old, new = self._old, self._new
        if (old.proto_files, old.descriptor_set) != (new.proto_files, new.descriptor_set):
            names = ", ".join(name for name, _ in new.proto_files) or "none"
            self._at_once.append((SetProtos(new.proto_files, new.descriptor_set), f"set the .proto files: {names}"))

    def _add_table(self, table: Table) -> None:
        if table.id not in self._late:
            self._at_once.append((AddTable(table), f"create table {table.name}"))
            return
        element = Element(_TABLE, table.id, name=table.name)
        self._new_elements[element] = AddTable(table)
        self._change(element, ElementClass.OPTIONAL, _ABSENT, _PUBLIC)

    def _table(self, before: Table, after: Table) -> None:
        self._change(Element(_TABLE, after.id, name=after.name), ElementClass.OPTIONAL, before.state, after.state)
        if options(before) != options(after):
            self._at_once.append((EditTable(before, after), _altered("table", before, after, before.name, after.name)))
        if before.grants != after.grants:
            text = f"set the grants on {after.name}: {_grants_text(self._new, after)}"
            self._at_once.append((SetGrants(after.id, after.name, before.grants, after.grants), text))
        for part in Part:
            self._elements(part, before, after)
        self._coverage(before, after)
        for column in after.columns:
            known = before.by_id.get(column.id)
            if known is not None and known.state is _PUBLIC:
                element = Element(_NOT_NULL, after.id, column.id, f"{after.name}.{column.name}")
                self._change(element, ElementClass.CONSTRAINT, _not_null_of(known), _not_null_of(column))

    def _coverage(self, before: Table, after: Table) -> None:
        """Have the columns of a table come under other locks (section 3.4)."""
        had, has = coverage(before), coverage(after)
        public = {DEFAULT_LOCK, *(lock.id for lock in after.locks if lock.state is _PUBLIC)}
        for column in after.columns:
            locks = has[column.id]
            goal = next((lock for lock in locks if lock in public), locks[0])
            name = f"{after.name}.{column.name}"
            if column.id not in before.by_id:
                if goal in {lock.id for lock in before.locks}:
                    self._at_once.append((CoverageTo(after.id, column.id, name, (goal,)), ""))
            elif had[column.id] != locks:
                now = Coverage.BOTH if goal in had[column.id] else Coverage.OLD
                element = Element(_COVERAGE, after.id, column.id, name, goal)
                self._change(element, ElementClass.COVERAGE, now, Coverage.NEW)

    def _elements(self, part: Part, before: Table, after: Table) -> None:
        had = {e.id: e for e in getattr(before, part)}
        has = {e.id: e for e in getattr(after, part)}
        for number, item in has.items():
            element = Element(_WORDS[part], after.id, number, _name(part, after, item))
            known = had.get(number)
            if known is None:
                self._new_elements[element] = AddElement(part, after.id, item)
            elif _without_state(known) != _without_state(item) and part is not Part.LOCK:
                _check_kept(part, element, known, item)
                names = _name(part, before, known), _name(part, after, item)
                self._at_once.append(
                    (EditElement(part, after.id, known, item), _altered(_WORDS[part], known, item, *names))
                )
            self._change(element, _class_of(part, item), _ABSENT if known is None else known.state, item.state)
        for number, item in had.items():
            if number not in has:
                element = Element(_WORDS[part], before.id, number, _name(part, before, item))
                self._change(element, _class_of(part, item), item.state, _ABSENT)


def _check_kept(part: Part, element: Element, known: Any, item: Any) -> None:
    """Refuse another definition under the same id: the states are those of one definition.

    The condition of a check is written anew when a column or table in it gets another name, and means the same.
    """
    kept = replace(_without_state(known), name=item.name)
    if part is Part.CHECK:
        kept = replace(kept, sql=item.sql)
    if part is not Part.COLUMN and kept != _without_state(item):
        raise F1Error(Code.INTERNAL, f"{element} has another definition and the same id")


def _altered(word: str, before: Any, after: Any, old: str, new: str) -> str:
    """Return what is done to an element that stays: it gets another name, or it is altered, or both."""
    rename = f"rename {word} {old} to {after.name}" if before.name != after.name else ""
    if isinstance(before, Table):
        others = options(replace(before, name=after.name)) != options(after)
    else:
        others = _without_state(replace(before, name=after.name)) != _without_state(after)
    # The condition of a check follows the names in it.
    alter = f"alter {word} {new}" if others or not rename else ""
    return ", ".join(text for text in (rename, alter) if text)


def _roles_text(old: Schema, new: Schema) -> str:
    """Return which roles come, go and change."""
    had, has = {r.id: r for r in old.roles}, {r.id: r for r in new.roles}
    texts = [f"create role {role.name}" for number, role in has.items() if number not in had]
    texts += [f"drop role {role.name}" for number, role in had.items() if number not in has]
    texts += [f"alter role {has[number].name}" for number, role in had.items() if has.get(number, role) != role]
    return ", ".join(texts)


def _grants_text(schema: Schema, table: Table) -> str:
    """Return what roles may do with a table."""
    names = {role.id: role.name for role in schema.roles}
    texts = [f"{names.get(g.role_id, '?')} {'/'.join(names_of(g.privileges))}" for g in table.grants]
    return ", ".join(texts) or "none"


def _describe(move: Move[Element]) -> str:
    if isinstance(move.after, Coverage):
        return f"{move.element}: {'dual' if move.after is Coverage.BOTH else 'by its new lock alone'}"
    state = _element_state(move.after)
    if state is _ABSENT:
        return f"{move.element}: dropped"
    return f"{move.element}: {state.name.lower().replace('_', '-')}"


def _is_last(move: Move[Element]) -> bool:
    """Tell whether an element that has data goes: constraints have none."""
    return move.after is _ABSENT and move.before is ElementState.DELETE_ONLY


def _made_in(edit: Edit, state: ElementState) -> Edit:
    if isinstance(edit, AddTable):
        return AddTable(replace(edit.table, state=state))
    if isinstance(edit, AddElement):
        return replace(edit, element=replace(edit.element, state=state))
    raise F1Error(Code.INTERNAL, f"{edit} makes no element")


def _element_state(state: State) -> ElementState:
    if isinstance(state, ElementState):
        return state
    raise F1Error(Code.INTERNAL, f"{state} is no state of an element")


def _name(part: Part, table: Table, element: Any) -> str:
    return f"{table.name}.{element.name}" if part in (Part.COLUMN, Part.LOCK) else str(element.name)


def _class_of(part: Part, element: Any) -> ElementClass:
    """Return what the states of an element depend on (sections 3.3.1 to 3.3.3)."""
    if part is Part.COLUMN:
        return ElementClass.REQUIRED if element.default_sql or element.not_null else ElementClass.OPTIONAL
    return ElementClass.CONSTRAINT if part in (Part.FOREIGN_KEY, Part.CHECK) else ElementClass.REQUIRED


def _not_null_of(column: Column) -> ElementState:
    return column.not_null_state if column.not_null else _ABSENT


def _without_state(element: Any) -> Any:
    found = replace(element, state=_PUBLIC)
    return _nullable(found) if isinstance(element, Column) else found


def _reliant(tables: Sequence[Table], others: Schema) -> set[int]:
    """Return which of ``tables`` rely, directly or over each other, on tables of ``others``.

    Servers that do not know such a table would delete a parent, or what a foreign key refers to, under its rows.
    """
    found: set[int] = set()
    while True:
        more = {t.id for t in tables if any(i in others.by_id or i in found for i in _relies_on(t) - {t.id})}
        if more == found:
            return found
        found = more


def _relies_on(table: Table) -> set[int]:
    """The tables whose writers must know of ``table``: its parent, and what its foreign keys refer to."""
    parents = {table.parent_id} if table.parent_id else set()
    return parents | {key.referenced_table_id for key in table.foreign_keys}


# ------------------------------------------------------------------ what cannot be done


_MOVE = "move it by ALTER TABLE ... SET PRIMARY KEY, in a statement of its own"


def _reasons(old: Schema, new: Schema) -> list[str]:
    reasons: list[str] = []
    for table in new.tables:
        before = old.by_id.get(table.id)
        if before is not None:
            reasons += _table_reasons(before, table)
    used = [name for name in protos.used_messages(old) if name in protos.used_messages(new)]
    if old.descriptor_set != new.descriptor_set and used:
        reasons += protos.incompatibilities(old.descriptor_set, new.descriptor_set, used)
    return reasons


def _table_reasons(before: Table, after: Table) -> list[str]:
    reasons: list[str] = []
    name = after.name
    if before.parent_id != after.parent_id:
        reasons.append(f"{name} would have another parent; {_MOVE}")
    if before.key_column_ids != after.key_column_ids:
        reasons.append(f"{name} would have another primary key; {_MOVE}")
    for column in after.columns:
        known = before.by_id.get(column.id)
        if known is not None and not widens(known.type, column.type):
            reasons.append(
                f"{name}.{column.name} is {known.type.sql()}, would be {column.type.sql()}: types only become wider; "
                "add another column"
            )
    return reasons


def widens(before: ColumnType, after: ColumnType) -> bool:
    """Tell whether all values of one type are values of the other, stored in the same way."""
    if before == after:
        return True
    if replace(before, max_length=0, precision=0) != replace(after, max_length=0, precision=0):
        return False
    longer = not after.max_length or 0 < before.max_length <= after.max_length
    wider = not after.precision or 0 < before.precision <= after.precision
    return longer and wider and (before.kind is not Kind.NUMERIC or before.scale == after.scale)
