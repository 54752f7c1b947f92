"""Dealing out rows: DuckDB's own hash decides, so that what DuckDB holds for equal meets at one worker."""

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from f1common.errors import InvariantViolation
from f1server.dist.dealing import Dealer, cut, plain_batch
from f1server.dist.topology import ROOT, check_parts, destinations, givers, runs_at
from f1server.exec.duck import Duck, DuckConfig
from f1server.plan.parts import Output, Part, Spread, Workers


@pytest.fixture(scope="module")
def duck():
    duck = Duck(DuckConfig(threads=1))
    yield duck
    duck.close()


def parts(*outputs: Output, sql: str = "SELECT * FROM t", to: Workers = Workers.ALL) -> tuple[Part, ...]:
    consumers = [Part(o.consumer, "", to, inputs={o.relation: 1}, outputs=()) for o in outputs]
    return (Part(1, sql, Workers.ALL, outputs=outputs), *consumers)


def dealt(duck: Duck, rows: pa.Table, made: tuple[Part, ...], workers: int) -> dict[tuple[int, int], list[Any]]:
    """What each consumer gets at each worker."""
    dealer = Dealer(made[0], made, workers, 1)
    connection = duck.connection()
    try:
        connection.register("t", rows)
        found: dict[tuple[int, int], list[Any]] = {}
        schema, batches = connection.query(dealer.sql, {})
        assert dealer.schema(schema).names == rows.column_names
        for batch in batches:
            for share in dealer.deal(batch):
                assert share.batch.schema == dealer.schema(schema)
                found.setdefault((share.output.consumer, share.destination), []).extend(share.batch.to_pylist())
        return found
    finally:
        connection.close()


NAN = float("nan")
EQUALS: list[tuple[str, pa.DataType, list[Any]]] = [
    ("zeros", pa.float64(), [0.0, -0.0]),
    ("nans", pa.float64(), [NAN, -NAN]),
    ("nulls of text", pa.string(), [None, None]),
    ("nulls of numbers", pa.int64(), [None, None]),
    ("scales", pa.decimal128(38, 9), [Decimal("1.5"), Decimal("1.500")]),
    ("lists", pa.list_(pa.float64()), [[0.0, None], [-0.0, None]]),
]


@pytest.mark.parametrize(("name", "kind", "values"), EQUALS, ids=[e[0] for e in EQUALS])
def test_equal_values_meet(duck: Duck, name: str, kind: pa.DataType, values: list[Any]) -> None:
    made = parts(Output(2, "x", Spread.HASH, ("k",)))
    for workers in (2, 3, 7, 100):
        found = dealt(duck, pa.table({"k": pa.array(values, kind)}), made, workers)
        assert len(found) == 1, name


def test_nulls_of_all_types_meet(duck: Duck) -> None:
    """A join on NOT DISTINCT meets NULLs, whatever type each side has them of."""
    made = parts(Output(2, "x", Spread.HASH, ("k",)))
    places = {
        tuple(dealt(duck, pa.table({"k": pa.array([None], kind)}), made, 5))
        for kind in (pa.int64(), pa.string(), pa.float64(), pa.decimal128(38, 9), pa.date32())
    }
    assert len(places) == 1


@given(st.lists(st.tuples(st.none() | st.integers(-3, 3), st.text(max_size=2)), max_size=40), st.integers(1, 5))
def test_each_row_goes_to_one_worker_and_equal_keys_to_the_same(
    duck: Duck, rows: list[tuple[int | None, str]], workers: int
) -> None:
    table = pa.table(
        {"k": pa.array([r[0] for r in rows], pa.int64()), "v": pa.array([r[1] for r in rows], pa.string())}
    )
    made = parts(Output(2, "x", Spread.HASH, ("k",)), Output(3, "y", Spread.BROADCAST), Output(4, "z", Spread.KEEP))
    found = dealt(duck, table, made, workers)
    expected = sorted(map(repr, table.to_pylist()))
    by_hash = {to: got for (consumer, to), got in found.items() if consumer == 2}
    assert sorted(repr(row) for got in by_hash.values() for row in got) == expected
    keys = [frozenset(row["k"] for row in got) for got in by_hash.values()]
    assert sum(map(len, keys)) == len(frozenset().union(*keys))
    if rows:
        assert all(sorted(map(repr, found[3, to])) == expected for to in range(workers))
        assert sorted(map(repr, found[4, 1])) == expected


def test_one_worker_needs_no_hash(duck: Duck) -> None:
    made = parts(Output(2, "x", Spread.HASH, ("k",)), to=Workers.ONE)
    assert Dealer(made[0], made, 5, 1).sql == "SELECT * FROM t"
    assert list(dealt(duck, pa.table({"k": [1, 2, 3]}), made, 5)) == [(2, 0)]


def test_dictionaries_are_written_out() -> None:
    batch = pa.record_batch({"e": pa.array(["a", "b", "a"]).dictionary_encode(), "n": pa.array([1, 2, 3])})
    plain = plain_batch(batch)
    assert plain.schema.types == [pa.string(), pa.int64()]
    assert plain.to_pydict() == {"e": ["a", "b", "a"], "n": [1, 2, 3]}


@given(st.lists(st.integers(0, 3000), max_size=60), st.integers(1, 20), st.integers(64, 4000))
def test_pieces_are_all_of_it(lengths: list[int], rows: int, size: int) -> None:
    batch = pa.record_batch({"v": pa.array(["x" * n for n in lengths], pa.string())})
    pieces = list(cut(batch, rows, size))
    assert [v for p in pieces for v in p.column(0).to_pylist()] == batch.column(0).to_pylist()
    for piece in pieces:
        assert piece.num_rows <= rows or piece.num_rows == 0
        assert piece.num_rows <= 1 or piece.nbytes <= size


# ---------------------------------------------------------------- who gives to whom


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("spread", list(Spread))
def test_who_gives_knows_it_as_who_takes(spread: Spread, workers: int) -> None:
    for of in (Workers.ALL, Workers.ONE):
        for to in Workers:
            if (spread is Spread.GATHER and to is Workers.ALL) or (spread is Spread.KEEP and of is not to):
                continue
            output = Output(2, "x", spread, ("k",))
            producer, consumer = Part(1, "", of, outputs=(output,)), Part(2, "", to, inputs={"x": 1})
            positions = [*range(workers), ROOT]
            given_by = {p: destinations(output, consumer, workers, p) for p in positions if runs_at(producer, p)}
            for p in positions:
                if runs_at(consumer, p):
                    expected = {giver for giver, to_whom in given_by.items() if p in to_whom}
                    assert givers((producer, consumer), consumer, workers, p)["x"] == expected
            assert {p for to_whom in given_by.values() for p in to_whom} <= {
                p for p in positions if runs_at(consumer, p)
            }


ROOT_PART = Part(2, "", Workers.SERVER, inputs={"x": 1})


@pytest.mark.parametrize(
    "made",
    [
        (Part(1, "", Workers.ALL, outputs=(Output(2, "y", Spread.GATHER),)), ROOT_PART),
        (Part(1, "", Workers.ALL, outputs=()), ROOT_PART),
        (ROOT_PART, Part(1, "", Workers.ALL, outputs=(Output(2, "x", Spread.GATHER),))),
        (Part(1, "", Workers.ALL, outputs=(Output(2, "x", Spread.HASH),)), ROOT_PART),
        (Part(1, "", Workers.ALL, outputs=(Output(2, "x", Spread.KEEP),)), ROOT_PART),
        (Part(1, "", Workers.ALL, outputs=(Output(2, "x", Spread.GATHER),) * 2), ROOT_PART),
        (Part(1, "", Workers.ALL, outputs=(Output(2, "x", Spread.GATHER),)), Part(2, "", Workers.ONE, inputs={"x": 1})),
    ],
)
def test_plans_that_cannot_be(made: tuple[Part, ...]) -> None:
    with pytest.raises(InvariantViolation):
        check_parts(made)
