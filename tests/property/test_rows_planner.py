"""The write planner against a database of dictionaries that obeys the same rules in the simplest code."""

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from msgspec import structs

from f1common.encoding import tuple as tuples
from f1common.encoding.row import COMMIT_TS, THIS_VERSION, Date, Timestamp, encode_row
from f1common.errors import Code, F1Error
from f1server.catalog.schema import (
    Check,
    Column,
    ColumnType,
    ForeignKey,
    Index,
    IndexPart,
    Kind,
    LockColumn,
    Schema,
    Table,
)
from f1server.rows.changes import ChangeKind
from f1server.rows.keys import row_key, split_row_key
from f1server.rows.locks import lock_value
from f1server.rows.values import Row, Value, same
from f1server.rows.writes import LogicalWrite, WriteKind
from tests.amounts import examples
from tests.unit.rows.store import Store

INT, TEXT, DOUBLE, NUMERIC = (ColumnType(kind) for kind in (Kind.INT64, Kind.STRING, Kind.DOUBLE, Kind.NUMERIC))
VALUES: dict[Kind, list[Value]] = {
    Kind.INT64: [0, 1, 2],
    Kind.STRING: ["a", "b", ""],
    Kind.DOUBLE: [0.0, -0.0, math.nan, 1.5],
    Kind.NUMERIC: [Decimal("1.5"), Decimal("1.50"), Decimal("0")],
}


@dataclass(frozen=True)
class Shape:
    """Which of the rules a schema has."""

    levels: int
    cascade_middle: bool
    cascade_leaf: bool
    foreign: bool
    foreign_index: bool
    unique: bool
    locks: bool
    untracked: str


shapes = st.builds(
    Shape,
    levels=st.sampled_from([1, 3, 3]),
    cascade_middle=st.booleans(),
    cascade_leaf=st.booleans(),
    foreign=st.booleans(),
    foreign_index=st.booleans(),
    unique=st.booleans(),
    locks=st.booleans(),
    untracked=st.sampled_from(["", "", "Middle", "column"]),
)


def index(number: int, name: str, *columns: int, **more: Any) -> Index:
    return Index(number, name, tuple(IndexPart(column) for column in columns), **more)


def make_other(shape: Shape) -> Table:
    return Table(
        4,
        "Other",
        0,
        columns=(Column(401, "OtherId", INT), Column(402, "Code", TEXT), Column(403, "Up", INT)),
        key_column_ids=(401,),
        indexes=(index(57, "OtherByCode", 402, unique=True),),
        foreign_keys=(ForeignKey(74, "Up", (403,), 4, (401,)),) if shape.foreign else (),
    )


def make_schema(shape: Shape) -> Schema:
    root = Table(
        1,
        "Root",
        0,
        columns=(
            Column(101, "RootId", INT, not_null=True),
            Column(102, "A", INT, untracked=shape.untracked == "column"),
            Column(103, "S", TEXT),
            Column(104, "D", DOUBLE),
            Column(105, "Needed", INT, not_null=True),
            Column(106, "OtherId", INT),
            Column(107, "OtherCode", TEXT),
        ),
        key_column_ids=(101,),
        indexes=(
            index(51, "RootByA", 102, 104, storing=(103,)),
            index(52, "RootByD", 104, unique=shape.unique),
            *([index(53, "RootByOther", 106)] if shape.foreign_index else []),
        ),
        foreign_keys=(
            (ForeignKey(71, "ToOther", (106,), 4, (401,)), ForeignKey(72, "ToCode", (107,), 4, (402,)))
            if shape.foreign
            else ()
        ),
        checks=(Check(81, "SmallA", "A < 2 OR S <> 'a'"),),
        locks=(LockColumn(91, "LockA", (102, 103)), LockColumn(92, "LockD", (104,))) if shape.locks else (),
    )
    middle = Table(
        2,
        "Middle",
        1,
        columns=(
            Column(201, "RootId", INT, not_null=True),
            Column(202, "MiddleId", TEXT, not_null=True),
            Column(203, "A", INT),
            Column(204, "N", NUMERIC),
        ),
        key_column_ids=(201, 202),
        cascade=shape.cascade_middle,
        indexes=(
            index(54, "MiddleByA", 201, 203, local=True, unique=shape.unique, storing=(204,)),
            index(55, "MiddleByN", 204, 201),
        ),
        untracked=shape.untracked == "Middle",
    )
    leaf = Table(
        3,
        "Leaf",
        2,
        columns=(
            Column(301, "RootId", INT, not_null=True),
            Column(302, "MiddleId", TEXT, not_null=True),
            Column(303, "LeafId", DOUBLE, not_null=True),
            Column(304, "OtherId", INT),
        ),
        key_column_ids=(301, 302, 303),
        cascade=shape.cascade_leaf,
        indexes=(index(56, "LeafByOther", 301, 304, local=True),),
        foreign_keys=(ForeignKey(73, "LeafToOther", (304,), 4, (401,)),) if shape.foreign else (),
    )
    other = make_other(shape)
    tables = (root, other) if shape.levels == 1 else (root, middle, leaf, other)
    return Schema("default", 1, tables)


def small_a(table: Table, rows: list[Row]) -> list[tuple[int, str]]:
    assert table.name == "Root"
    return [(i, "SmallA") for i, row in enumerate(rows) if row[102] == 2 and row[103] == "a"]


# ---------------------------------------------------------------- the oracle


class Refused(Exception):
    def __init__(self, code: Code) -> None:
        super().__init__(code)
        self.code = code


def norm(value: Value) -> object:
    """What equality goes by: -0.0 is 0.0, NaN is NaN, 1.50 is 1.5."""
    if isinstance(value, float):
        return "nan" if value != value else value + 0.0
    if isinstance(value, Decimal):
        return str(value.normalize())
    return value


Rows = dict[tuple[object, ...], Row]


class Oracle:
    """Tables as dictionaries. A transaction works on a copy, and all conditions are tested by looking at everything."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.tables: dict[str, Rows] = {table.name: {} for table in schema.tables}
        self.bumped: dict[tuple[str, tuple[object, ...]], dict[int, int]] = {}

    def key(self, table: Table, row: Row) -> tuple[object, ...]:
        return tuple(norm(row[i]) for i in table.key_column_ids)

    def run(self, writes: list[LogicalWrite], ts: int) -> int:
        saved = copy.deepcopy((self.tables, self.bumped))
        try:
            self.refuse_nulls(writes)
            affected = sum(self.write(write, ts) for write in writes)
            self.conditions()
        except Refused:
            self.tables, self.bumped = saved
            raise
        return affected

    def refuse_nulls(self, writes: list[LogicalWrite]) -> None:
        for write in writes:
            table = self.schema.table(write.table)
            for column in table.columns:
                given = column.id in write.columns or column.id in write.key
                value = write.columns.get(column.id, write.key.get(column.id))
                required = column.not_null or column.id in table.key_column_ids
                if required and value is None and (given or write.kind is WriteKind.INSERT):
                    raise Refused(Code.INVALID_ARGUMENT)

    def write(self, write: LogicalWrite, ts: int) -> bool:
        table = self.schema.table(write.table)
        rows = self.tables[table.name]
        key = self.key(table, dict(write.key))
        old = rows.get(key)
        if write.kind is WriteKind.INSERT or (write.kind is WriteKind.UPSERT and old is None):
            self.insert(table, {**write.columns, **write.key}, ts)
        elif old is None:
            if write.must_exist:
                raise Refused(Code.NOT_FOUND)
            return False
        elif write.kind is WriteKind.DELETE:
            del rows[key]
            self.cascade(table, key)
        else:
            new = {**old, **write.columns}
            if self.key(table, new) != key:
                del rows[key]
                self.insert(table, new, ts)
            else:
                for i in table.key_column_ids:
                    new[i] = old[i]
                rows[key] = new
                self.bump(table, key, {i for i in write.columns if i not in table.key_column_ids}, ts)
        return True

    def insert(self, table: Table, values: Row, ts: int) -> None:
        row: Row = {column.id: values.get(column.id) for column in table.columns}
        if any(row[c.id] is None for c in table.columns if c.not_null):
            raise Refused(Code.INVALID_ARGUMENT)
        for i in table.key_column_ids:
            row[i] = row[i] + 0.0 if isinstance(row[i], float) else row[i]  # type: ignore[operator]
        key = self.key(table, row)
        if key in self.tables[table.name]:
            raise Refused(Code.ALREADY_EXISTS)
        self.tables[table.name][key] = row
        self.bump(table, key, set(row), ts)

    def cascade(self, table: Table, key: tuple[object, ...]) -> None:
        for child in self.schema.tables:
            if child.parent_id == table.id and child.cascade:
                for below in [k for k in self.tables[child.name] if k[: len(key)] == key]:
                    del self.tables[child.name][below]
                self.cascade(child, key)

    def bump(self, table: Table, key: tuple[object, ...], columns: set[int], ts: int) -> None:
        locks = {lock.id: set(lock.column_ids) for lock in table.locks}
        locks[0] = set(table.by_id) - {i for covered in locks.values() for i in covered}
        for lock, covered in locks.items():
            if covered & columns:
                self.bumped.setdefault((table.name, key), {})[lock] = ts

    def conditions(self) -> None:
        tables = self.schema.by_id
        for table in self.schema.tables:
            for key in self.tables[table.name]:
                parent = tables.get(table.parent_id)
                if parent is not None and key[: len(parent.key_column_ids)] not in self.tables[parent.name]:
                    raise Refused(Code.FAILED_PRECONDITION)
            for row in self.tables[table.name].values():
                for foreign in table.foreign_keys:
                    values = [norm(row[i]) for i in foreign.column_ids]
                    target = tables[foreign.referenced_table_id]
                    known = [
                        [norm(other[i]) for i in foreign.referenced_column_ids]
                        for other in self.tables[target.name].values()
                    ]
                    if None not in values and values not in known:
                        raise Refused(Code.FAILED_PRECONDITION)
        for table in self.schema.tables:
            for one in table.indexes:
                entries = [
                    [norm(row[part.column_id]) for part in one.parts] for row in self.tables[table.name].values()
                ]
                entries = [entry for entry in entries if None not in entry]
                if one.unique and any(entries.count(entry) > 1 for entry in entries):
                    raise Refused(Code.ALREADY_EXISTS)
        if small_a(self.schema.table("Root"), list(self.tables["Root"].values())):
            raise Refused(Code.FAILED_PRECONDITION)

    def entries(self) -> dict[bytes, bytes]:
        """All index entries, from the rows."""
        found = {}
        for table in self.schema.tables:
            root_width = len(self.schema.root(table).key_column_ids)
            for one in table.indexes:
                for row in self.tables[table.name].values():
                    values = [row[part.column_id] for part in one.parts]
                    key = [row[i] for i in table.key_column_ids]
                    start: list[Value] = []
                    if one.local:
                        start, values, rest = [1, row[table.key_column_ids[0]]], values[root_width:], key[root_width:]
                    else:
                        rest = list(key)
                    if one.unique and None not in values:
                        rest = []
                    cells = {i: row[i] for i in one.storing if row[i] is not None}
                    if one.unique:
                        cells |= {i: row[i] for i in table.key_column_ids}
                    code = [(1 << 40) + one.id]
                    found[tuples.encode([*start, *code, *values, *rest])] = encode_row(cells)
        return found


# ---------------------------------------------------------------- transactions


def row_values(table: Table) -> st.SearchStrategy[Row]:
    rest = {
        column.id: st.sampled_from([*VALUES[column.type.kind], None, *VALUES[column.type.kind]])
        for column in table.columns
        if column.id not in table.key_column_ids
    }
    return st.fixed_dictionaries({}, optional=rest)


def keys(table: Table) -> st.SearchStrategy[Row]:
    return st.fixed_dictionaries(
        {c.id: st.sampled_from(VALUES[c.type.kind][: 2 + (c.type.kind is Kind.DOUBLE)]) for c in table.key_columns}
    )


@st.composite
def logical_writes(draw: st.DrawFn, schema: Schema) -> LogicalWrite:
    table = draw(st.sampled_from(schema.tables))
    kinds = [WriteKind.INSERT] * 3 + [WriteKind.UPDATE] * 2 + [WriteKind.DELETE, WriteKind.UPSERT]
    kind = draw(st.sampled_from(kinds))
    key, columns = draw(keys(table)), draw(row_values(table))
    if kind in (WriteKind.INSERT, WriteKind.UPSERT) and table.name == "Root" and draw(st.integers(0, 9)):
        columns[105] = 7
    if kind is WriteKind.UPDATE and columns and draw(st.booleans()):
        one = draw(st.sampled_from(sorted(columns)))
        columns = {one: columns[one]}
    if kind is WriteKind.UPDATE and draw(st.integers(0, 4)) == 0:
        columns |= draw(keys(table))
    return LogicalWrite(
        kind, table.name, key, columns if kind is not WriteKind.DELETE else {}, must_exist=not draw(st.integers(0, 9))
    )


@st.composite
def histories(draw: st.DrawFn) -> tuple[Schema, list[list[LogicalWrite]]]:
    schema = make_schema(draw(shapes))
    transactions = st.lists(logical_writes(schema), min_size=1, max_size=4)
    # Rows to begin with, one transaction each, so that what depends on others has something to depend on.
    first = [] if not draw(st.integers(0, 5)) else [[write] for write in FIRST if write.table in schema_names(schema)]
    return schema, first + draw(st.lists(transactions, min_size=1, max_size=12))


FIRST = (
    LogicalWrite(WriteKind.INSERT, "Other", {401: 0}, {402: "a"}),
    LogicalWrite(WriteKind.INSERT, "Other", {401: 1}, {402: "b", 403: 0}),
    LogicalWrite(WriteKind.INSERT, "Root", {101: 0}, {105: 0, 106: 0, 104: 1.5}),
    LogicalWrite(WriteKind.INSERT, "Root", {101: 1}, {105: 0, 107: "a", 102: 1}),
    LogicalWrite(WriteKind.INSERT, "Middle", {201: 0, 202: "a"}, {203: 0, 204: Decimal("1.5")}),
    LogicalWrite(WriteKind.INSERT, "Middle", {201: 0, 202: "b"}, {203: 1}),
    LogicalWrite(WriteKind.INSERT, "Leaf", {301: 0, 302: "a", 303: 0.0}, {304: 0}),
    LogicalWrite(WriteKind.INSERT, "Leaf", {301: 0, 302: "b", 303: 1.5}, {304: 1}),
)


def schema_names(schema: Schema) -> set[str]:
    return {table.name for table in schema.tables}


def run_both(schema: Schema, transactions: list[list[LogicalWrite]]) -> Iterator[tuple[Store, Oracle]]:
    """Do each transaction on both, and compare what came of it."""
    store, oracle = Store(), Oracle(schema)
    for number, writes in enumerate(transactions):
        expected: Code | int
        try:
            expected = oracle.run(writes, store.ts + 10)
        except Refused as refused:
            expected = refused.code
        before = dict(store.data)
        try:
            plan = store.run(schema, writes, small_a, commit_id=bytes([number]))
            assert plan.rows_affected == expected
            event("committed")
        except F1Error as error:
            assert error.code == expected, error
            assert store.data == before
            event(error.code)
        yield store, oracle


def same_rows(left: dict[str, Rows], right: dict[str, dict[tuple[Value, ...], Row]]) -> bool:
    if left.keys() != right.keys():
        return False
    for name, rows in left.items():
        theirs = {tuple(norm(value) for value in key): row for key, row in right[name].items()}
        if rows.keys() != theirs.keys():
            return False
        for key, row in rows.items():
            if row.keys() != theirs[key].keys() or not all(same(row[i], theirs[key][i]) for i in row):
                return False
    return True


@settings(max_examples=examples(250))
@given(histories())
def test_rows_and_errors_are_those_of_the_simplest_database(
    history: tuple[Schema, list[list[LogicalWrite]]],
) -> None:
    schema, transactions = history
    for store, oracle in run_both(schema, transactions):
        assert same_rows(oracle.tables, store.rows(schema))
        assert store.others(schema) == oracle.entries()


@settings(max_examples=examples(100))
@given(histories())
def test_every_lock_says_when_its_columns_last_changed(history: tuple[Schema, list[list[LogicalWrite]]]) -> None:
    schema, transactions = history
    for store, oracle in run_both(schema, transactions):
        for key, version in store.data.items():
            place = split_row_key(schema, key)
            if place is None:
                continue
            table, values = place
            cells, ts = store.cells(key)
            expected = oracle.bumped[table.name, tuple(norm(v) for v in values)]
            assert ts == version.ts
            for column in table.columns:
                lock = next((one.id for one in table.locks if column.id in one.column_ids), 0)
                assert lock_value(table, cells, ts, [column.id]) == expected[lock]
            assert lock_value(table, cells, ts) == max(expected.values())


@settings(max_examples=examples(100))
@given(histories())
def test_the_change_history_replayed_is_the_rows(history: tuple[Schema, list[list[LogicalWrite]]]) -> None:
    schema, transactions = history
    store = [store for store, _ in run_both(schema, transactions)][-1]
    replayed: dict[str, dict[bytes, Row]] = {table.name: {} for table in schema.tables}
    seen: set[tuple[int, bytes]] = set()
    for batch in store.batches(schema):
        assert batch.changes
        root = tuples.encode((schema.table(batch.root_table).id, *batch.root_key))
        assert (batch.commit_ts, root) not in seen
        seen.add((batch.commit_ts, root))
        assert root not in batch.other_roots
        for change in batch.changes:
            rows, key = replayed[change.table], tuples.encode(change.key)
            match change.kind:
                case ChangeKind.INSERT:
                    assert key not in rows
                    rows[key] = dict(change.after)
                case ChangeKind.UPDATE:
                    for i, value in change.before.items():
                        assert same(rows[key].get(i), value)
                    rows[key] = {**rows[key], **change.after}
                case ChangeKind.DELETE:
                    assert same_values(rows.pop(key), change.before)
    for ts, root in seen:
        batch = next(b for b in store.batches(schema) if b.commit_ts == ts and root_of(schema, b) == root)
        assert {root, *batch.other_roots} == {other for when, other in seen if when == ts}
    for table in schema.tables:
        stored = {} if table.untracked else store.rows(schema)[table.name]
        hidden = {c.id for c in table.columns if c.untracked} | set(table.key_column_ids)
        expected = {
            tuples.encode(key): {i: v for i, v in row.items() if i not in hidden} for key, row in stored.items()
        }
        assert expected.keys() == replayed[table.name].keys()
        assert all(same_values(expected[key], replayed[table.name][key]) for key in expected)


def root_of(schema: Schema, batch: Any) -> bytes:
    return tuples.encode((schema.table(batch.root_table).id, *batch.root_key))


def same_values(left: Row, right: Row) -> bool:
    return all(same(left.get(i), right.get(i)) for i in left.keys() | right.keys())


@settings(max_examples=examples(100))
@given(histories())
def test_everything_that_is_written_or_relied_on_was_locked(
    history: tuple[Schema, list[list[LogicalWrite]]],
) -> None:
    schema, transactions = history
    store = Store()
    for writes in transactions:
        try:
            plan = store.plan(schema, writes, small_a)
        except F1Error:
            continue
        exclusive = {key for needs in store.rounds for key in needs.rows | needs.unique}
        ranges = [span for needs in store.rounds for span in needs.ranges]
        shared = {key for needs in store.rounds for key in needs.shared_rows}
        entries = unique_entries(schema, store)
        for write in plan.writes:
            if write.key_offset >= 0:
                continue
            place = split_row_key(schema, write.key)
            if place is not None:
                assert write.key in exclusive or any(start <= write.key < end for start, end in ranges)
                table, values = place
                if write.value is not None and table.parent_id and write.key not in store.data:
                    parent = schema.by_id[table.parent_id]
                    assert row_key(schema, parent, values[: len(parent.key_column_ids)]) in exclusive | shared
            elif write.value is not None and is_contended(schema, write.key) and write.key not in entries:
                assert write.key in exclusive
        store.apply(plan.writes)


def is_contended(schema: Schema, key: bytes) -> bool:
    elements = tuples.decode(key)
    for table in schema.tables:
        for one in table.indexes:
            code = (1 << 40) + one.id
            if code in elements and one.unique:
                return len(elements) == len(one.parts) + (2 if one.local else 1) and None not in elements
    return False


def unique_entries(schema: Schema, store: Store) -> set[bytes]:
    return {key for key in store.others(schema) if is_contended(schema, key)}


ANYTHING: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.decimals(),
    st.text(max_size=5),
    st.text(min_size=500, max_size=600),
    st.binary(max_size=5),
    st.sampled_from([THIS_VERSION, COMMIT_TS, Date(1 << 40), Timestamp(1 << 70), [], object()]),
)
IDS = st.sampled_from([0, 91, 101, 102, 103, 104, 105, 201, 202, 203, 204, 301, 302, 303, 401, 402, 403])
HOSTILE = st.builds(
    LogicalWrite,
    kind=st.sampled_from(WriteKind),
    table=st.sampled_from(["Root", "Middle", "Leaf", "Other", "nothing"]),
    key=st.dictionaries(IDS, st.one_of(st.sampled_from([0, 1, "a", 0.0]), ANYTHING), max_size=6),
    columns=st.dictionaries(IDS, ANYTHING, max_size=3),
    must_exist=st.booleans(),
    defaults=st.dictionaries(IDS, ANYTHING, max_size=2),
)
CLEAR = {
    Code.ALREADY_EXISTS,
    Code.FAILED_PRECONDITION,
    Code.INVALID_ARGUMENT,
    Code.KEY_TOO_LONG,
    Code.NOT_FOUND,
    Code.OUT_OF_RANGE,
}


@settings(max_examples=examples(300))
@given(st.lists(HOSTILE, min_size=1, max_size=3))
def test_whatever_a_client_sends_is_done_or_gets_a_clear_error(writes: list[LogicalWrite]) -> None:
    schema = make_schema(Shape(3, False, True, True, True, True, True, ""))
    store = Store()
    for first in FIRST:
        store.run(schema, [first], small_a)
    before = dict(store.data)
    try:
        store.run(schema, writes, small_a)
    except F1Error as error:
        assert error.code in CLEAR, error
        assert "\n" not in error.message
        assert store.data == before
    else:
        store.rows(schema)


def test_the_oracle_notices_a_planner_that_forgets_an_entry() -> None:
    schema = make_schema(Shape(1, False, False, False, False, False, False, ""))
    store, oracle = Store(), Oracle(schema)
    write = LogicalWrite(WriteKind.INSERT, "Root", {101: 1}, {105: 7})
    oracle.run([write], 1010)
    plan = store.plan(schema, [write], small_a)
    entries = [w for w in plan.writes if w.key in oracle.entries()]
    store.apply([w for w in plan.writes if w is not entries[0]])
    assert store.others(schema) != oracle.entries()
    with pytest.raises(Refused):
        oracle.run([structs.replace(write, columns={105: None})], 1020)
