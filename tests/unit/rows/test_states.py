"""What the states of the schema-change paper (section 3.2) ask of writers: indexes, lock columns, tables."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from f1common.encoding.row import THIS_VERSION, Cell, Timestamp, patch_row
from f1common.errors import Code, F1Error
from f1server.catalog.schema import ElementState, Index, LockColumn, Schema, Table
from f1server.rows.keys import row_key
from f1server.rows.locks import changed_since, covering, lock_value, locks_carried_over, locks_of_update, raised
from f1server.rows.writes import LogicalWrite, WriteKind
from spanstore.client import Version, Write
from tests.unit.rows.schemas import CUSTOMER, SCHEMA, changed, in_state, parts, with_index
from tests.unit.rows.store import Store

ABSENT, DELETE_ONLY, WRITE_ONLY, PUBLIC = ElementState
INSERT, UPDATE, DELETE = WriteKind.INSERT, WriteKind.UPDATE, WriteKind.DELETE
BARE = changed(SCHEMA, replace(CUSTOMER, checks=()))
PLAIN = Index(20, "ByName", parts(12), storing=(15,))
UNIQUE = Index(20, "ByName", parts(12), unique=True)


def at(state: ElementState, index: Index = PLAIN) -> Schema:
    return with_index(BARE, "Customer", in_state(index, state))


def write(what: WriteKind, number: int, **columns: Any) -> LogicalWrite:
    if what is INSERT:
        columns.setdefault("Level", 1)
    return LogicalWrite(what, "Customer", {11: number}, {CUSTOMER.column(n).id: v for n, v in columns.items()})


def entries(store: Store) -> int:
    return len(store.others(BARE))


# ---------------------------------------------------------------- indexes


def test_an_absent_index_is_left_alone() -> None:
    store = Store()
    store.run(at(ABSENT), [write(INSERT, 1, Name="a")])
    assert entries(store) == 0
    store.run(at(PUBLIC), [write(INSERT, 2, Name="a")])
    store.run(at(ABSENT), [write(DELETE, 2)])
    assert entries(store) == 1


def test_delete_only_deletes_what_is_no_longer_true_and_writes_nothing() -> None:
    store = Store()
    store.run(at(DELETE_ONLY), [write(INSERT, 1, Name="a")])
    assert entries(store) == 0
    changes: list[dict[str, Any]] = [{"Name": "b"}, {"Level": 7}]
    for n, change in enumerate(changes, 2):
        store.run(at(WRITE_ONLY), [write(INSERT, n, Name="a")])
        assert entries(store) == 1
        store.run(at(DELETE_ONLY), [write(UPDATE, n, Name="a")])
        assert entries(store) == 1
        store.run(at(DELETE_ONLY), [write(UPDATE, n, **change)])
        assert entries(store) == 0
    store.run(at(WRITE_ONLY), [write(INSERT, 9, Name="a")])
    store.run(at(DELETE_ONLY), [write(DELETE, 9)])
    assert entries(store) == 0


def test_write_only_enters_every_row_that_is_written() -> None:
    # The backfill leaves alone what is newer than its snapshot: an update of another column must enter the row.
    store = Store()
    store.run(at(DELETE_ONLY), [write(INSERT, 1, Name="a")])
    store.run(at(WRITE_ONLY), [LogicalWrite(UPDATE, "Customer", {11: 1}, {14: Timestamp(5)})])
    assert entries(store) == 1
    store.run(at(DELETE_ONLY), [write(INSERT, 2, Name="a")])
    store.run(at(PUBLIC), [LogicalWrite(UPDATE, "Customer", {11: 2}, {14: Timestamp(5)})])
    assert entries(store) == 1


def test_an_index_that_is_being_built_never_loses_the_entry_of_another_row() -> None:
    for state in (DELETE_ONLY, WRITE_ONLY):
        store = Store()
        # Both were there before the index: it will not become unique, but until then each row keeps its own entry.
        store.run(BARE, [write(INSERT, 1, Name="a")])
        store.run(at(WRITE_ONLY, UNIQUE), [write(INSERT, 2, Name="a")])
        store.run(at(state, UNIQUE), [write(DELETE, 1)])
        assert entries(store) == 1
        store.run(at(state, UNIQUE), [write(DELETE, 2)])
        assert entries(store) == 0


def test_an_index_that_is_being_built_is_unique_among_what_is_written() -> None:
    store = Store()
    schema = at(WRITE_ONLY, UNIQUE)
    store.run(BARE, [write(INSERT, 1, Name="a")])
    store.run(schema, [write(INSERT, 2, Name="a")])
    with pytest.raises(F1Error, match="ALREADY_EXISTS"):
        store.run(schema, [write(UPDATE, 1, Name="a")])
    with pytest.raises(F1Error, match="ALREADY_EXISTS"):
        store.run(schema, [write(INSERT, 3, Name="a")])
    store.run(schema, [write(DELETE, 2), write(UPDATE, 1, Level=3)])
    assert entries(store) == 1
    store.run(schema, [write(DELETE, 1), write(INSERT, 1, Name="a")])
    store.run(schema, [write(DELETE, 1), write(INSERT, 1, Name="z"), write(INSERT, 4, Name="a")])
    store.run(schema, [write(DELETE, 4), write(UPDATE, 1, Name="a")])
    store.run(schema, [write(UPDATE, 1, Name="b")])
    store.run(schema, [write(INSERT, 3, Name="a")])
    assert entries(store) == 2


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from("abc"), st.booleans()), max_size=8), st.booleans())
def test_two_servers_in_neighbouring_states_leave_no_stale_entry(steps: list[tuple[int, str, bool]], up: bool) -> None:
    """Rows written by servers one state apart, then a backfill: the entries are those of the rows."""
    store = Store()
    lower, higher = (at(DELETE_ONLY), at(WRITE_ONLY)) if up else (at(WRITE_ONLY), at(PUBLIC))
    for number, name, which in steps:
        exists = (number,) in store.rows(BARE)["Customer"]
        what = UPDATE if exists else INSERT
        store.run(higher if which else lower, [write(what, number, Name=name)])
    rows = store.rows(BARE)["Customer"]
    expected = Store()
    expected.run(at(PUBLIC), [write(INSERT, number[0], Name=row[12]) for number, row in rows.items()])  # type: ignore[arg-type]
    found, wanted = store.others(BARE), expected.others(BARE)
    assert set(found) <= set(wanted)
    if not up:
        assert found == wanted


# ---------------------------------------------------------------- tables


def test_rows_of_a_table_on_its_way_out_go_with_their_parent() -> None:
    campaign = replace(SCHEMA.table("Campaign"), cascade=False)
    store, strict = Store(), changed(BARE, campaign)
    store.run(strict, [write(INSERT, 1), LogicalWrite(INSERT, "Campaign", {21: 1, 22: 1})])
    with pytest.raises(F1Error, match="rows of Campaign below"):
        store.run(strict, [write(DELETE, 1)])
    leaving = changed(strict, replace(campaign, state=DELETE_ONLY))
    store.run(leaving, [write(DELETE, 1)])
    assert store.rows(BARE)["Campaign"] == {}


# ---------------------------------------------------------------- locks


def locked(state: ElementState) -> Table:
    return replace(CUSTOMER, checks=(), locks=(LockColumn(91, "NameLock", (12,), state=state),))


def test_the_locks_that_cover_columns() -> None:
    table = locked(PUBLIC)
    assert covering(table, [12]) == (91,)
    assert covering(table, [14]) == (0,)
    assert covering(table, [12, 14]) == covering(table) == (0, 91)
    assert covering(locked(WRITE_ONLY), [12]) == covering(locked(DELETE_ONLY), [12]) == (0, 91)
    assert covering(locked(ABSENT), [12]) == (0,)
    assert covering(CUSTOMER, [12]) == (0,)


def test_a_lock_cell_that_holds_no_timestamp_is_damage() -> None:
    with pytest.raises(F1Error) as raised:
        lock_value(locked(PUBLIC), {91: "x"}, 5, [12])
    assert raised.value.code is Code.DATA_CORRUPTION


def test_presence_is_part_of_what_was_read() -> None:
    table = locked(PUBLIC)
    assert not changed_since(table, None, 0, [12], seen_ts=0, read_ts=9)
    assert changed_since(table, None, 0, [12], seen_ts=5, read_ts=9)
    assert changed_since(table, {}, 5, [12], seen_ts=0, read_ts=9)
    assert not changed_since(table, {}, 5, [12], seen_ts=5, read_ts=9)
    assert changed_since(table, {}, 10, [12], seen_ts=5, read_ts=9)
    assert not changed_since(table, {91: Timestamp(5)}, 10, [12], seen_ts=5, read_ts=9)
    assert changed_since(table, {91: Timestamp(5)}, 10, [14], seen_ts=5, read_ts=9)


def test_a_lock_of_an_unknown_schema_keeps_its_time() -> None:
    changes, drop = locks_of_update(CUSTOMER, {77: THIS_VERSION, 0: Timestamp(3)}, 8, {12})
    assert (changes, drop) == ({77: Timestamp(8)}, {0})


ORDER_UP = (ABSENT, DELETE_ONLY, WRITE_ONLY, PUBLIC)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["name", "level", "both", "reorganise", "replace", "step"]),
        st.booleans(),  # by the server that is one schema behind
        st.booleans(),  # a transaction begins to read after it
    ),
    max_size=14,
)


@given(STEPS, st.booleans())
def test_no_lost_update_and_no_false_conflict_over_any_sequence(
    steps: list[tuple[str, bool, bool]], down: bool
) -> None:
    """Updates, reorganisations, re-inserts and steps of a lock's coverage, by two servers one state apart.

    A read of a column is valid until somebody changes that column, or another one under the same lock. Before the last
    step of a lock that comes or goes, the reorganiser passes over the row, as it must.
    """
    order = tuple(reversed(ORDER_UP)) if down else ORDER_UP
    at_step = 0
    store = Store()
    store.run(changed(BARE, locked(order[0])), [write(INSERT, 1, Name="a", Level=1)])
    key = row_key(BARE, CUSTOMER, (1,))
    last = {12: store.ts, 15: store.ts}
    reads: list[tuple[int, int, int]] = []  # column, value seen, timestamp
    for what, behind, reading in steps:
        state = order[max(at_step - 1, 0)] if behind else order[at_step]
        table = locked(state)
        schema = changed(BARE, table)
        match what:
            case "name" | "level" | "both":
                columns = (
                    {"Name": "b"} if what == "name" else {"Level": 2} if what == "level" else {"Name": "c", "Level": 3}
                )
                store.run(schema, [write(UPDATE, 1, **columns)])
                last |= {CUSTOMER.column(name).id: store.ts for name in columns}
            case "replace":
                store.run(schema, [write(DELETE, 1), write(INSERT, 1, Name="d")])
                last = dict.fromkeys(last, store.ts)
            case "reorganise":
                reorganise(store, key, table)
            case _:
                if order[at_step] is (DELETE_ONLY if down else WRITE_ONLY):
                    reorganise(store, key, locked(order[at_step]))
                at_step = min(at_step + 1, len(order) - 1)
        if reading:
            cells, ts = store.cells(key)
            current = locked(order[at_step])
            reads += [(c, lock_value(current, cells, ts, [c]), store.ts) for c in (12, 15)]
        cells, ts = store.cells(key)
        for column, seen, read_ts in reads:
            for state in {order[at_step], order[max(at_step - 1, 0)]}:
                table = locked(state)
                conflict = changed_since(table, cells, ts, [column], seen_ts=seen, read_ts=read_ts)
                assert conflict or last[column] <= read_ts, "lost update"
                # A conflict needs a change since, of anything: coverage alone never makes one.
                assert not conflict or max(last.values()) > read_ts, "false conflict"
                if state is PUBLIC and order[0] is PUBLIC and at_step == 0:
                    assert conflict == (last[column] > read_ts)


def reorganise(store: Store, key: bytes, table: Table) -> None:
    """Rewrite the row so that nobody notices, as a schema change does."""
    cells, ts = store.cells(key)
    comes = any(lock.state is WRITE_ONLY for lock in table.locks)
    later = raised(table, cells, ts, [(12, 91)], [91]) if comes else {}
    changes, drop = locks_carried_over(table, cells, ts, later)
    value = patch_row(store.data[key].value or b"", changes, drop)
    store.apply([Write(key, value)])
    assert isinstance(store.data[key], Version)


def test_reorganising_folds_a_leaving_lock_into_the_default() -> None:
    cells: dict[int, Cell] = {91: Timestamp(9), 0: Timestamp(4)}
    assert locks_carried_over(locked(DELETE_ONLY), cells, 20) == ({0: Timestamp(9)}, {91})
    assert locks_carried_over(locked(WRITE_ONLY), cells, 20) == ({0: Timestamp(4), 91: Timestamp(9)}, set())
    assert locks_carried_over(CUSTOMER, {}, 20) == ({0: Timestamp(20)}, set())
