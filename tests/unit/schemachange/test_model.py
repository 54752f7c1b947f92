"""The claims of section 3 of the schema-change paper over every small database: every state, operation and schema."""

from itertools import pairwise

import pytest

from f1server.schemachange.model.consistency import Clause, Violation, is_consistent, violations
from f1server.schemachange.model.enumeration import Bounds, anomalies, operations, representations
from f1server.schemachange.model.operations import Kind, Operation, apply, query, query_by_index
from f1server.schemachange.model.reorganisation import all_rows, reorganise, reorganise_row
from f1server.schemachange.model.representation import EXISTS, Cell, Entry, Representation
from f1server.schemachange.model.schema import Column, Element, Index, Schema, Structure, Table
from f1server.schemachange.steps.plan import Change, Reorganisation, Task, plan
from f1server.schemachange.steps.states import PATHS, ElementClass, ElementState, Work, neighbours
from tests.unit.schemachange import structures

ABSENT, DELETE_ONLY, WRITE_ONLY, PUBLIC = ElementState
SMALL = Bounds()
LARGER = Bounds(pks=(0, 1, 2), values=(0, 1))
BOUNDS = [SMALL, pytest.param(LARGER, marks=pytest.mark.long)]


def pair(case, first: ElementState, second: ElementState) -> tuple[Schema, Schema]:
    structure, element = case
    return structure.schema({element: first}), structure.schema({element: second})


def found(case, first: ElementState, second: ElementState, bounds: Bounds = SMALL) -> set[str]:
    return set(map(str, anomalies(*pair(case, first, second), bounds)))


def consistent(schema: Schema, bounds: Bounds) -> list[Representation]:
    databases = [d for d in representations(schema.structure, bounds) if is_consistent(d, schema)]
    assert len(databases) > 1
    return databases


# ---------------------------------------------------------------- definition 4


R = Structure((Table("R", (Column("A"), Column("Q", required=True)), (Index("I", ("A",)),)),))
ROW: Representation = {
    Cell("R", 0, EXISTS): None,
    Cell("R", 0, "A"): 1,
    Cell("R", 0, "Q"): 0,
    Entry("R", "I", (1,), 0): None,
}


def without(d: Representation, key: object) -> Representation:
    return {k: v for k, v in d.items() if k != key}


@pytest.mark.parametrize(
    ("d", "expected"),
    [
        (ROW, set()),
        ({}, set()),
        (without(ROW, Cell("R", 0, "A")), {(5, "I")}),
        (without(ROW, Cell("R", 0, "Q")), {(2, "Q")}),
        (without(ROW, Entry("R", "I", (1,), 0)), {(4, "I")}),
        ({**ROW, Entry("R", "I", (0,), 0): None}, {(5, "I")}),
        ({**ROW, Entry("R", "I", (1,), 1): None}, {(5, "I")}),
        ({**ROW, Cell("R", 1, "A"): 1}, {(1, "A")}),
        ({**ROW, Cell("R", 0, "Z"): 1}, {(1, "Z")}),
        ({**ROW, Cell("S", 0, EXISTS): None}, {(1, "")}),
        ({**ROW, Entry("R", "Z", (1,), 0): None}, {(3, "Z"), (5, "Z")}),
        ({**ROW, "junk": None}, {(7, "")}),
    ],
)
def test_each_clause_finds_its_violation(d, expected) -> None:
    assert {(v.clause.value, v.element[1]) for v in violations(d, R.schema({}))} == expected


def test_constraints_that_are_public_are_honoured() -> None:
    structure, element = structures.UNIQUE
    twice: Representation = {Cell("R", pk, name): value for pk in (0, 1) for name, value in ((EXISTS, None), ("A", 1))}
    assert violations(twice, structure.schema({})) == {Violation(Clause.CONSTRAINTS_HONOURED, element)}
    assert is_consistent(twice, structure.schema({element: WRITE_ONLY}))
    structure, element = structures.REFERENCE
    dangling: Representation = {Cell("R", 0, EXISTS): None, Cell("R", 0, "A"): 1}
    assert violations(dangling, structure.schema({})) == {Violation(Clause.CONSTRAINTS_HONOURED, element)}
    assert is_consistent({**dangling, Cell("T", 1, EXISTS): None}, structure.schema({}))


# ---------------------------------------------------------------- operations (section 2.4)


@pytest.mark.parametrize("name", structures.ALL)
@pytest.mark.parametrize("state", ElementState)
def test_operations_preserve_consistency_under_their_own_schema(name: str, state: ElementState) -> None:
    """Section 3.2: every correctly implemented operation does; and not by refusing everything."""
    schema, _ = pair(structures.ALL[name], state, state)
    done: set[Kind] = set()
    for d in consistent(schema, SMALL) if state is not ABSENT or name != "table" else []:
        for operation in operations(schema.structure, SMALL):
            after = apply(d, schema, operation)
            if after is not None:
                done.add(operation.kind)
                assert is_consistent(after, schema), (d, operation)
    if name != "table" or state is PUBLIC:
        assert done == set(Kind)


def test_a_consistent_public_index_answers_as_the_rows_do() -> None:
    structure, _ = structures.INDEX
    schema = structure.schema({})
    for d in consistent(schema, SMALL):
        rows = query(d, schema, "R") or []
        assert query_by_index(d, schema, "R", "I") == [(pk, values) for pk, values in rows if None not in values]


def test_queries_see_what_is_public_only() -> None:
    structure, _ = structures.REQUIRED
    d: Representation = {Cell("R", 0, EXISTS): None, Cell("R", 0, "A"): 1, Cell("R", 0, "Q"): 7}
    assert query(d, structure.schema({}), "R") == [(0, (1, 7))]
    assert query(d, structure.schema({("R", "Q"): WRITE_ONLY}), "R") == [(0, (1,))]
    assert query(d, structure.schema({("R", ""): DELETE_ONLY}), "R") is None
    assert apply(d, structure.schema({("R", "Q"): WRITE_ONLY}), Operation(Kind.UPDATE, "R", 0, (("Q", 1),))) is None


def test_the_introduction_example_of_a_corrupt_index() -> None:
    """Section 1: M2 inserts under S2, M1 deletes under S1, an index-only scan then returns the deleted row."""
    first, second = pair(structures.INDEX, ABSENT, PUBLIC)
    inserted = apply({}, second, Operation(Kind.INSERT, "R", 0, (("A", 1),)))
    assert inserted is not None
    deleted = apply(inserted, first, Operation(Kind.DELETE, "R", 0))
    assert deleted is not None
    assert query(deleted, second, "R") == []
    assert query_by_index(deleted, second, "R", "I") == [(0, (1,))]


# ---------------------------------------------------------------- claims 1 to 7


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("name", structures.ALL)
def test_every_transition_of_figure_3_preserves_consistency(name: str, bounds: Bounds) -> None:
    """Claims 4 to 7, both ways (claim 1), and section 3.3.3 for constraints."""
    case = structures.ALL[name]
    kind = case[0].classes[case[1]]
    for goal in (ABSENT, PUBLIC):
        for first, second in pairwise(PATHS[kind, goal].states):
            assert isinstance(first, ElementState) and isinstance(second, ElementState)
            assert found(case, first, second, bounds) == set()


ADD_AT_ONCE = {
    "table": {"insert under S2 violates clause 1 with respect to S1"},
    "optional column": {
        "insert under S2 violates clause 1 with respect to S1",
        "update under S2 violates clause 1 with respect to S1",
    },
    "required column": {
        "insert under S2 violates clause 1 with respect to S1",
        "insert under S1 violates clause 2 with respect to S2",
    },
    "index": {
        "insert under S2 violates clause 3 with respect to S1",
        "insert under S1 violates clause 4 with respect to S2",
        "update under S2 violates clause 3 with respect to S1",
        "update under S1 violates clause 4 with respect to S2",
    },
}


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("name", ADD_AT_ONCE)
def test_claim_2_a_public_element_that_appears_at_once(name: str, bounds: Bounds) -> None:
    """Exactly these. (That S2 lacks an entry is the work of an insert under S1; the proof's last sentence blurs it.)"""
    case = structures.ALL[name]
    if name == "table":
        # A table by itself, as in the proof: with an index its entries are orphans as well.
        case = Structure((Table("R", (Column("A"),)),)), ("R", "")
    assert found(case, ABSENT, PUBLIC, bounds) == ADD_AT_ONCE[name]


def test_claim_1_is_symmetric() -> None:
    for case in (structures.TABLE, structures.INDEX, structures.UNIQUE):
        for first in ElementState:
            for second in ElementState:
                there, back = (anomalies(*pair(case, *states), SMALL) for states in ((first, second), (second, first)))
                mirrored = {(a.kind, not a.by_new, not a.against_new, a.clause) for a in back}
                assert {(a.kind, a.by_new, a.against_new, a.clause) for a in there} == mirrored


@pytest.mark.parametrize(
    ("name", "first", "second", "expected"),
    [
        (
            "required column",
            ABSENT,
            WRITE_ONLY,
            {
                "insert under S2 violates clause 1 with respect to S1",
                "update under S2 violates clause 1 with respect to S1",
            },
        ),
        ("required column", DELETE_ONLY, PUBLIC, {"insert under S1 violates clause 2 with respect to S2"}),
        (
            "index",
            ABSENT,
            WRITE_ONLY,
            {
                "insert under S2 violates clause 3 with respect to S1",
                "update under S2 violates clause 3 with respect to S1",
            },
        ),
        (
            "index",
            DELETE_ONLY,
            PUBLIC,
            {
                "insert under S1 violates clause 4 with respect to S2",
                "update under S1 violates clause 4 with respect to S2",
            },
        ),
        (
            "unique",
            ABSENT,
            PUBLIC,
            {
                "insert under S1 violates clause 6 with respect to S2",
                "update under S1 violates clause 6 with respect to S2",
            },
        ),
        (
            "foreign key",
            ABSENT,
            PUBLIC,
            {
                "insert under S1 violates clause 6 with respect to S2",
                "update under S1 violates clause 6 with respect to S2",
                "delete under S1 violates clause 6 with respect to S2",
            },
        ),
    ],
)
def test_a_state_that_is_left_out_is_missed(name, first, second, expected) -> None:
    assert found(structures.ALL[name], first, second) == expected


def test_every_state_of_every_way_is_needed() -> None:
    """Without one of them its neighbours would be in use at the same time: anomalies, whatever the element."""
    for name, case in structures.ALL.items():
        kind = case[0].classes[case[1]]
        states = PATHS[kind, PUBLIC].states
        for before, _, after in zip(states, states[1:], states[2:], strict=False):
            assert isinstance(before, ElementState) and isinstance(after, ElementState)
            assert not neighbours(kind, before, after)
            assert found(case, before, after), (name, before, after)


@pytest.mark.parametrize("bounds", BOUNDS)
def test_claims_4_to_6_what_is_consistent_stays_so_with_respect_to_the_next_schema(bounds: Bounds) -> None:
    """Claims 4, 5 and 6 begin with d |= S1 alone and say that d |= S2; claim 7 and all drops need a reorganisation."""
    steps = [(n, ABSENT, DELETE_ONLY) for n in (*structures.STRUCTURAL_OPTIONAL, *structures.STRUCTURAL_REQUIRED)]
    steps += [(n, DELETE_ONLY, PUBLIC) for n in structures.STRUCTURAL_OPTIONAL]
    steps += [(n, DELETE_ONLY, WRITE_ONLY) for n in structures.STRUCTURAL_REQUIRED]
    steps += [(n, ABSENT, WRITE_ONLY) for n in structures.CONSTRAINTS]
    for name, before, after in steps:
        first, second = pair(structures.ALL[name], before, after)
        databases = [{}] if (name, before) == ("table", ABSENT) else consistent(first, bounds)
        assert [d for d in databases if not is_consistent(d, second)] == []


# ---------------------------------------------------------------- theorem 1


def run(d: Representation, schema: Schema, steps) -> tuple[Representation | None, Schema]:
    """Run a plan without any operation in between."""
    for step in steps:
        if isinstance(step, Reorganisation):
            reorganised = reorganise(d, schema, step.tasks)
            if reorganised is None:
                return None, schema
            d = reorganised
        else:
            schema = schema.moved({move.element: move.after for move in step.moves})
        assert is_consistent(d, schema)
    return d, schema


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("name", structures.ALL)
@pytest.mark.parametrize("goal", [PUBLIC, ABSENT])
def test_theorem_1_a_change_ends_consistent_with_the_new_schema(name: str, goal: ElementState, bounds: Bounds) -> None:
    structure, element = structures.ALL[name]
    start = ABSENT if goal is PUBLIC else PUBLIC
    schema = structure.schema({element: start})
    failed = 0
    for d in consistent(schema, bounds) if (name, start) != ("table", ABSENT) else [{}]:
        after, last = run(d, schema, plan([Change(element, structure.classes[element], start, goal)]))
        assert last.states[element] is (goal if after is not None else WRITE_ONLY)
        failed += after is None
    assert (failed > 0) is (goal is PUBLIC and name in structures.CONSTRAINTS)


@pytest.mark.parametrize("name", [*structures.STRUCTURAL_OPTIONAL, *structures.STRUCTURAL_REQUIRED])
def test_without_the_reorganisation_a_change_ends_inconsistent(name: str) -> None:
    structure, element = structures.ALL[name]
    goals = [ABSENT] if structure.classes[element] is ElementClass.OPTIONAL else [ABSENT, PUBLIC]
    for goal in goals:
        start = ABSENT if goal is PUBLIC else PUBLIC
        first, last = structure.schema({element: start}), structure.schema({element: goal})
        assert any(not is_consistent(d, last) for d in consistent(first, SMALL))


# ---------------------------------------------------------------- what a reorganiser may skip (section 4.4)


def written_meanwhile(
    case, state: ElementState, work: Work
) -> tuple[Representation, Schema, list[Task[Element]], tuple[str, int]]:
    """A row with a value that an operation wrote after the snapshot, under the schema that all servers use then."""
    structure, element = case
    schema = structure.schema({element: state})
    names = sorted({column.name for column in structure.tables[0].columns} - {element[1]})
    before = apply({}, structure.schema({}), Operation(Kind.INSERT, "R", 0, tuple((name, 1) for name in names)))
    assert before is not None
    if work is Work.FILL:
        before = {k: v for k, v in before.items() if element[1] not in (getattr(k, "column", ""), getattr(k, "of", ""))}
    after = apply(before, schema, Operation(Kind.UPDATE, "R", 0, tuple((name, 1) for name in names)))
    assert after is not None
    return after, schema, [Task(element, work)], ("R", 0)


@pytest.mark.parametrize("name", structures.STRUCTURAL_REQUIRED)
def test_a_fill_may_skip_rows_that_were_written_after_its_snapshot(name: str) -> None:
    case = structures.ALL[name]
    d, schema, tasks, row = written_meanwhile(case, WRITE_ONLY, Work.FILL)
    skipped = reorganise_row(d, schema, tasks, row, written={row})
    assert skipped == d
    assert is_consistent(skipped, schema.moved({case[1]: PUBLIC}))


@pytest.mark.parametrize("name", ["required column", "index", "index of a required column"])
def test_a_removal_must_not_skip_them(name: str) -> None:
    """Updates leave a delete-only element's pairs as they are, so that what was skipped would be an orphan."""
    case = structures.ALL[name]
    d, schema, tasks, row = written_meanwhile(case, DELETE_ONLY, Work.REMOVE)
    dropped = schema.moved({case[1]: ABSENT})
    assert not is_consistent(d, dropped)
    removed = reorganise_row(d, schema, tasks, row, written={row})
    assert is_consistent(removed, dropped)
    assert all_rows(removed, schema) == [row]
