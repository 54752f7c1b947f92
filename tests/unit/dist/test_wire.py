"""Parts travel without loss."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from f1common.encoding.values import Date, Timestamp
from f1common.errors import Code, F1Error
from f1common.pb import slave_pb2 as pb
from f1server.catalog.schema import Kind
from f1server.dist.wire import parts_from_pb, parts_to_pb, schema_from_wire, schema_to_wire, value_from_pb, value_to_pb
from f1server.history.table import with_history
from f1server.plan.parts import Output, Part, PartScan, Spread, Workers
from f1server.plan.prepare import PlannedScan, ScanView
from f1server.plan.resolve import ProtoFunction
from f1server.plan.scans import Bound, FieldWanted, KeySpan, Lookup, PredicateOp, SimplePredicate, TableScan
from f1server.plan.types import SqlType
from f1server.testing.embedded import EmbeddedDatabase

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.text(),
    st.binary(),
    st.integers(-(1 << 31), (1 << 31) - 1).map(Date),
    st.integers(-(1 << 63), (1 << 63) - 1).map(Timestamp),
)


@given(VALUES)
def test_values(value: Any) -> None:
    found = value_from_pb(pb.Value.FromString(value_to_pb(value).SerializeToString()))
    assert (type(found), repr(found)) == (type(value), repr(value))


def test_nan_and_what_has_no_form() -> None:
    assert repr(value_from_pb(value_to_pb(float("nan")))) == "nan"
    with pytest.raises(F1Error) as caught:
        value_to_pb(object())
    assert caught.value.code is Code.INVALID_ARGUMENT
    for bad in (pb.Value(), pb.Value(decimal="x")):
        with pytest.raises(F1Error):
            value_from_pb(bad)


@pytest.fixture
def db() -> EmbeddedDatabase:
    found = EmbeddedDatabase()
    found.apply(
        "CREATE TABLE A (K INT64 NOT NULL, V STRING, M PROTO<p.M>, PRIMARY KEY (K));CREATE INDEX ByV ON A (V);",
        protos=[("p.proto", 'syntax = "proto3"; package p; message M { string s = 1; repeated int64 n = 2; }')],
    )
    return found


def full(db: EmbeddedDatabase) -> tuple[Part, ...]:
    """Parts that use everything there is."""
    table = db.schema.table("A")
    index = table.index("ByV")
    k, v, m = (table.column(name).id for name in ("K", "V", "M"))
    rich = TableScan(
        table,
        (FieldWanted(k), FieldWanted(m, ("s",))),
        (KeySpan((1,), Bound("a", True), None), KeySpan((), None, Bound(Decimal("1.50"), False))),
        index,
        (KeySpan(("x",)), KeySpan()),
        True,
        (
            SimplePredicate(FieldWanted(v), PredicateOp.IN, ("a", None)),
            SimplePredicate(FieldWanted(k), PredicateOp.IS_NULL),
        ),
        0,
        ancestry=0,
        empty=True,
    )
    lookup = Lookup("r1", (FieldWanted(k), (None,), ("c",)), index, True, 7)
    return (
        Part(
            1,
            "SELECT 1",
            Workers.ALL,
            (
                PartScan(PlannedScan("r1", ("K", "s"), rich, "a", None, (ScanView("v1", (("K", "K2"), ("s", "t"))),))),
                PartScan(PlannedScan("r2", (), TableScan(table, ()), "", lookup), divided=False),
            ),
            {},
            (Output(2, "x", Spread.HASH, ('"K"', "2")), Output(3, "y", Spread.KEEP)),
            {"p1": b"\x00", "p2": [1, "a"], "d": date(2020, 1, 2), "t": datetime(2020, 1, 2, tzinfo=UTC)},
            (ProtoFunction("f", "path", "p.M", ("n",), SqlType(Kind.INT64, lists=1)),),
        ),
        Part(2, "SELECT 2", Workers.ONE, inputs={"x": 1}, outputs=(Output(4, "z", Spread.GATHER),)),
        Part(3, "SELECT 3", Workers.ALL, inputs={"y": 1}, outputs=(Output(4, "b", Spread.BROADCAST),)),
        Part(4, "SELECT 4", Workers.SERVER, inputs={"z": 2, "b": 3}),
    )


def shown(part: Part) -> Any:
    """All of a part, comparable."""

    def scan(s: TableScan) -> Any:
        index = s.index.id if s.index else None
        return (
            (s.table.id, s.columns, s.spans, index, s.index_spans, s.covering, s.predicates, s.limit, s.ancestry),
            s.empty,
        )

    def lookup(found: Lookup | None) -> Any:
        if found is None:
            return None
        return (found.relation, found.parts, found.index.id if found.index else None, found.covering, found.limit)

    return (
        (part.id, part.sql, part.workers, dict(part.inputs), part.outputs, dict(part.bound), part.functions),
        [
            (i.divided, p.relation, p.names, p.alias, p.views, scan(p.scan), lookup(p.lookup))
            for i in part.scans
            for p in [i.planned]
        ],
    )


def test_parts(db: EmbeddedDatabase) -> None:
    schema = schema_from_wire(schema_to_wire(db.schema), 5)
    assert schema.commit_ts == 5
    parts = full(db)
    found = parts_from_pb(schema, [pb.Part.FromString(m.SerializeToString()) for m in parts_to_pb(parts)])
    assert [shown(p) for p in found[:-1]] == [shown(p) for p in parts[:-1]]
    root = found[-1]
    assert (root.id, root.workers, dict(root.inputs), root.sql) == (4, Workers.SERVER, {"z": 2, "b": 3}, "")
    assert all(item.planned.scan.table is schema.table("A") for part in found for item in part.scans)


def test_the_schema_is_written_without_its_histories_and_read_with_them(db: EmbeddedDatabase) -> None:
    queried = with_history(db.schema)
    assert schema_to_wire(queried) == schema_to_wire(db.schema)
    assert schema_to_wire(queried) is schema_to_wire(queried)
    assert schema_from_wire(schema_to_wire(queried), 0) == queried


@pytest.mark.parametrize(
    "break_it",
    [
        lambda m: setattr(m.scans[0].scan, "table_id", 999),
        lambda m: setattr(m.scans[0].scan, "index_id", 999),
        lambda m: setattr(m.scans[1].lookup, "index_id", 999),
        lambda m: setattr(m.scans[0].scan.predicates[0], "op", "LIKE"),
        lambda m: setattr(m.functions[0].result, "kind", "MONEY"),
        lambda m: setattr(m.outputs[0], "spread", 9),
        lambda m: setattr(m, "workers", 9),
        lambda m: m.bound["p1"].Clear(),
    ],
)
def test_what_cannot_be_read(db: EmbeddedDatabase, break_it: Any) -> None:
    (message, *_) = parts_to_pb(full(db))
    break_it(message)
    with pytest.raises(F1Error) as caught:
        parts_from_pb(db.schema, [message])
    assert caught.value.code is Code.INVALID_ARGUMENT
