"""Stored versions and scans over them, for the tests of this folder."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal

import pyarrow as pa
from hypothesis import strategies as st

from f1common.encoding import tuple as tuples
from f1common.encoding.row import Cell, Date, Timestamp
from f1common.encoding.values import TIMESTAMP_MAX, TIMESTAMP_MIN
from spanstore.engine.base import WriteBatch
from spanstore.engine.memory import MemoryEngine
from spanstore.group.storage import Applied, put_applied
from spanstore.mvcc.versions import put_version
from spanstore.scan.cursor import ScanCursor, Step
from spanstore.scan.plan import Column, ColumnType, ScanPlan, Source

GROUP = 3
EVERYTHING = ((b"\x01", b"\xff"),)
RAW = (
    Column("key", ColumnType.BYTES, Source.RAW_KEY),
    Column("ts", ColumnType.INT64, Source.VERSION_TS),
    Column("value", ColumnType.BYTES, Source.RAW_VALUE),
)

StoredVersion = tuple[bytes, int, bytes | None]

VALUES: dict[ColumnType, st.SearchStrategy[Cell]] = {
    ColumnType.BOOL: st.booleans(),
    ColumnType.INT64: st.integers(-(1 << 63), (1 << 63) - 1),
    ColumnType.DOUBLE: st.one_of(st.floats(), st.sampled_from([0.0, -0.0, float("nan"), float("inf"), float("-inf")])),
    ColumnType.NUMERIC: st.one_of(
        st.builds(lambda n, scale: Decimal(n).scaleb(-scale), st.integers(-(10**15), 10**15), st.integers(0, 9)),
        st.sampled_from(
            [Decimal("1.50"), Decimal("1.5"), Decimal(10**28), Decimal("-99999999999999999999999999999.5")]
        ),
    ),
    ColumnType.STRING: st.text(max_size=12),
    ColumnType.BYTES: st.binary(max_size=12),
    ColumnType.DATE: st.one_of(st.integers(-40_000, 40_000), st.integers(-(1 << 31), (1 << 31) - 1)).map(Date),
    ColumnType.TIMESTAMP: st.integers(TIMESTAMP_MIN, TIMESTAMP_MAX).map(Timestamp),
    ColumnType.PROTO: st.binary(max_size=12),
}
"""Cells of each type, those with a will of their own among them: dates and times no calendar has, signed zeros."""


def engine_with(versions: Iterable[StoredVersion], applied: int = 0, group: int = GROUP) -> MemoryEngine:
    """An engine that holds these versions and an applied index."""
    engine = MemoryEngine()
    batch = WriteBatch()
    for key, ts, value in versions:
        put_version(batch, group, key, ts, value)
    put_applied(batch, group, Applied(applied))
    asyncio.run(engine.commit(batch))
    return engine


def plan(columns: Sequence[Column] = RAW, timestamp: int = 1 << 40, **rest: object) -> ScanPlan:
    """A plan over everything, unless told otherwise."""
    return ScanPlan(**{"group": GROUP, "timestamp": timestamp, "ranges": EVERYTHING, "columns": tuple(columns)} | rest)  # type: ignore[arg-type]


def steps_of(
    engine: MemoryEngine, wanted: ScanPlan, boot_us: Callable[[], int] = lambda: 0, items: int = 512
) -> list[Step]:
    """All steps of a scan, each from a view of its own."""
    cursor = ScanCursor(wanted, boot_us, step_us=100, items_per_check=items)
    steps = [cursor.schema()]
    while not steps[-1].last:
        with engine.snapshot() as reader:
            steps.append(cursor.step(reader))
    return steps


def table_of(steps: Sequence[Step]) -> pa.Table:
    """What the steps say, put together as a client does."""
    schema = pa.ipc.read_schema(pa.py_buffer(steps[0].ipc))
    batches = [pa.ipc.read_record_batch(pa.py_buffer(step.ipc), schema) for step in steps[1:] if step.ipc]
    assert [batch.num_rows for batch in batches] == [step.rows for step in steps if step.rows]
    return pa.Table.from_batches(batches, schema)


def rows_of(steps: Sequence[Step]) -> list[tuple[bytes, int, bytes]]:
    """The rows of a scan of the RAW columns."""
    columns = table_of(steps).to_pydict()
    return list(zip(columns["key"], columns["ts"], columns["value"], strict=True))


def key(*elements: tuples.Value) -> bytes:
    """A key."""
    return tuples.encode(elements)


def physical(array: pa.Array, kind: ColumnType) -> list[object]:
    """The values of an array in a form that tells apart whatever differs; dates and times as numbers."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    match kind:
        case ColumnType.DATE:
            return list(array.view(pa.int32()).to_pylist())
        case ColumnType.TIMESTAMP:
            return list(array.view(pa.int64()).to_pylist())
        case ColumnType.DOUBLE:
            return [None if v is None else "nan" if v != v else v.hex() for v in array.to_pylist()]
        case ColumnType.NUMERIC:
            return [None if v is None else int(v.scaleb(9)) for v in array.to_pylist()]
        case _:
            return list(array.to_pylist())


def expected(value: Cell, kind: ColumnType) -> object:
    """What :func:`physical` gives for a cell."""
    match value:
        case Date():
            return value.days
        case Timestamp():
            return value.us
        case float():
            return "nan" if value != value else value.hex()
        case Decimal():
            return int(value.scaleb(9))
        case _:
            return value
