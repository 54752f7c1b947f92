"""Sketches: rows are counted by table and place, in steps, and what is not walked over is extrapolated."""

from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from f1common.encoding import tuple as tuples
from f1common.encoding.tuple import ELEMENT_BYTES
from f1common.encoding.values import Date, Timestamp
from f1common.errors import Code, F1Error
from spanstore.engine.memory import MemoryEngine
from spanstore.scan.plan import Sketch
from spanstore.scan.sketch import SketchCursor, TableTree
from tests.unit.scan.store import EVERYTHING, StoredVersion, engine_with, key, plan

ROOT, CHILD, GRANDCHILD, OTHER = 301, 302, 303, 400


def element(value: tuples.Value) -> bytes:
    return tuples.encode((value,))


PATHS = (
    ((element(ROOT), 1),),
    ((element(ROOT), 1), (element(CHILD), 2)),
    ((element(ROOT), 1), (element(CHILD), 2), (element(GRANDCHILD), 1)),
)

values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.sampled_from([ROOT, CHILD, GRANDCHILD, 0, 127, 128, -1, -256]),
    st.floats(),
    st.integers(-(10**30), 10**30).map(lambda n: Decimal(n).scaleb(-9)),
    st.text(max_size=4),
    st.binary(max_size=4),
    st.integers(-(1 << 31), (1 << 31) - 1).map(Date),
    st.integers(0, 1 << 50).map(Timestamp),
)


@given(st.lists(values, max_size=6))
def test_the_table_of_element_sizes_says_what_the_codec_writes(found: list[tuples.Value]) -> None:
    encoded = tuples.encode(found)
    position = 0
    for value in found:
        size = ELEMENT_BYTES[encoded[position]]
        end = position + size if size else encoded.index(0, position + 1) + 1
        assert encoded[position:end] == element(value)
        position = end
    assert position == len(encoded)


@given(st.lists(values, min_size=5, max_size=5), st.sampled_from([OTHER, None, "x", CHILD]))
def test_each_key_is_of_the_table_whose_path_it_follows(v: list[tuples.Value], stray: tuples.Value) -> None:
    tree = TableTree(PATHS)
    assert tree.table(key(ROOT, v[0])) == 0
    assert tree.table(key(ROOT, v[0], CHILD, v[1], v[2])) == 1
    assert tree.table(key(ROOT, v[0], CHILD, v[1], v[2], GRANDCHILD, v[3])) == 2
    others = [
        (ROOT,),
        (ROOT, v[0], CHILD),
        (ROOT, v[0], CHILD, v[1]),
        (ROOT, v[0], OTHER, v[1], v[2]),
        (ROOT, v[0], CHILD, v[1], v[2], stray, v[3]),
        (stray, v[0]),
    ]
    assert [tree.table(key(*elements)) for elements in others] == [3] * len(others)
    assert TableTree(PATHS[2:]).table(key(ROOT, v[0])) == 1, "a table on the way was not asked for"


@given(st.binary(max_size=12))
def test_bytes_that_are_no_tuple_do_no_harm(garbage: bytes) -> None:
    tree = TableTree(PATHS)
    assert tree.table(garbage) == 3
    assert tree.table(element(ROOT) + element("x")[:-1] + garbage.replace(b"\x00", b"")) == 3


def sketch_of(
    engine: MemoryEngine,
    sketch: Sketch,
    ranges: tuple[tuple[bytes, bytes], ...] = EVERYTHING,
    boot_us: Callable[[], int] = lambda: 0,
) -> list[dict[str, Any]]:
    """The segments of a sketch, each step from a view of its own."""
    found: list[dict[str, Any]] = []
    cursor = SketchCursor(plan((), ranges=ranges, sketch=sketch), boot_us, step_us=3)
    schema = pa.ipc.read_schema(pa.py_buffer(cursor.schema().ipc))
    while True:
        with engine.snapshot() as reader:
            step = cursor.step(reader)
        if step.ipc:
            batch = pa.ipc.read_record_batch(pa.py_buffer(step.ipc), schema)
            assert batch.num_rows == step.rows
            found += batch.to_pylist()
        if step.last:
            return found


def totals(segments: list[dict[str, Any]], what: str) -> dict[int, int]:
    found: Counter[int] = Counter()
    for segment in segments:
        found.update(dict(zip(segment["table"], segment[what], strict=True)))
    return dict(found)


ids = st.integers(0, 6)
stored_keys = st.one_of(
    st.tuples(ids).map(lambda t: key(ROOT, *t)),
    st.tuples(ids, ids, ids).map(lambda t: key(ROOT, t[0], CHILD, *t[1:])),
    st.tuples(ids, ids, ids, ids).map(lambda t: key(ROOT, t[0], CHILD, *t[1:3], GRANDCHILD, t[3])),
    st.tuples(ids).map(lambda t: key(ROOT, t[0], 1 << 40, 7)),
)
stored = st.lists(
    st.tuples(stored_keys, st.integers(1, 30), st.one_of(st.none(), st.binary(max_size=9))),
    max_size=60,
    unique_by=lambda v: (v[0], v[1]),
)


@given(stored, st.integers(1, 20), st.integers(1, 3))
def test_the_newest_versions_are_counted_once_however_the_steps_fall(
    versions: list[StoredVersion], every: int, pace: int
) -> None:
    newest: dict[bytes, tuple[int, bytes | None]] = {}
    for k, ts, value in versions:
        newest[k] = max(newest.get(k, (0, None)), (ts, value), key=lambda v: v[0])
    tree = TableTree(PATHS)
    rows: Counter[int] = Counter()
    sizes: Counter[int] = Counter()
    for k, (_, value) in newest.items():
        if value is not None:
            rows[tree.table(k)] += 1
            sizes[tree.table(k)] += len(k) + len(value)
    ticks = iter(range(0, 1 << 20, pace))
    segments = sketch_of(engine_with(versions), Sketch(PATHS, every), boot_us=lambda: next(ticks))
    assert totals(segments, "rows") == dict(rows)
    assert totals(segments, "bytes") == dict(sizes)
    assert all(a["key"] < b["key"] for a, b in pairwise(segments))
    assert all(sum(segment["rows"]) <= every for segment in segments)
    assert all(segment["key"] in newest for segment in segments)


def test_a_row_with_many_versions_counts_once() -> None:
    versions: list[StoredVersion] = [(key(ROOT, 1), ts, b"v") for ts in range(1, 200)]
    versions += [(key(ROOT, 1, CHILD, 1, 1), 5, b"child"), (key(ROOT, 2), 5, None), (key(ROOT, 2), 4, b"old")]
    assert totals(sketch_of(engine_with(versions), Sketch(PATHS)), "rows") == {0: 1, 1: 1}


def test_segments_grow_with_the_number_of_keys() -> None:
    engine = engine_with([(key(ROOT, n), 1, b"") for n in range(20_000)])
    cursor = SketchCursor(plan((), sketch=Sketch(PATHS)), lambda: 0)
    with engine.snapshot() as reader:
        step = cursor.step(reader)
    assert step.last
    assert 256 < step.rows < 1000


@pytest.mark.parametrize("children", [0, 3])
@pytest.mark.parametrize(("first", "step"), [(1000, 1), (0, 1), (1, 30), (-4000, 1), (-(10**9), 10**6)])
def test_beyond_the_limit_rows_are_extrapolated(children: int, first: int, step: int) -> None:
    versions: list[StoredVersion] = []
    roots = [first + n * step for n in range(3000)]
    for n in roots:
        versions.append((key(ROOT, n), 1, b"12345678"))
        versions += [(key(ROOT, n, CHILD, c, c), 1, b"1234") for c in range(children)]
    segments = sketch_of(engine_with(versions), Sketch(PATHS, max_keys=len(versions) // 8))
    rows, sizes = totals(segments, "rows"), totals(segments, "bytes")
    assert rows[0] == pytest.approx(3000, rel=0.05)
    assert 8 * rows[0] < sizes[0] < 24 * rows[0]
    assert rows.get(1, 0) == pytest.approx(children * rows[0], rel=0.05)
    assert all(a["key"] < b["key"] for a, b in pairwise(segments))
    # And spread over the keys as they are.
    half = key(ROOT, roots[1500])
    lower = totals([s for s in segments if s["key"] < half], "rows")[0]
    assert lower == pytest.approx(1500, rel=0.1)


@pytest.mark.parametrize("kind", ["text", "timestamp", "second element"])
def test_the_rest_of_other_keys_is_a_fair_guess(kind: str) -> None:
    def of(n: int) -> bytes:
        match kind:
            case "text":
                return key(ROOT, f"{n * 7919 % 10_000:04}")
            case "timestamp":
                return key(ROOT, Timestamp(10**15 + n * 10**9))
            case _:
                return key(ROOT, "same", n)

    versions: list[StoredVersion] = [(of(n), 1, b"") for n in range(10_000)]
    segments = sketch_of(engine_with(versions), Sketch(max_keys=4_000))
    assert 5_000 < totals(segments, "rows")[0] < 20_000


def test_an_empty_rest_adds_nothing() -> None:
    engine = engine_with([(key(ROOT, n), 1, b"") for n in range(40)] + [(key(OTHER, 1), 1, b"")])
    one = ((key(ROOT), key(ROOT) + b"\xff"),)
    assert totals(sketch_of(engine, Sketch(PATHS, max_keys=40), one), "rows") == {0: 40}
    assert sketch_of(engine, Sketch(PATHS), ((key(500), key(501)),)) == []


@pytest.mark.parametrize(
    "sketch",
    [
        Sketch(PATHS, every=0),
        Sketch(PATHS, max_keys=0),
        Sketch(((),)),
        Sketch((((b"\x00", 1),),)),
        Sketch((((element(1), -1),),)),
    ],
)
def test_a_sketch_that_cannot_be_made_is_refused(sketch: Sketch) -> None:
    with pytest.raises(F1Error) as caught:
        SketchCursor(plan((), sketch=sketch), lambda: 0)
    assert caught.value.code is Code.INVALID_ARGUMENT
