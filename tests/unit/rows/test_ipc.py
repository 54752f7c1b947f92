"""What comes as rows of an insert is one small batch of plain columns, or an error that says so."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from f1common.encoding.columns import MOST_CELLS, MOST_ROWS, units_of
from f1common.errors import Code, F1Error
from f1server.rows.columns import read_columns

IDS = pa.array([1, 2, 3])


def batch(**columns: pa.Array) -> pa.RecordBatch:
    """``_11`` is the column 11."""
    names = [name.removeprefix("_") for name in columns]
    return pa.RecordBatch.from_arrays(list(columns.values()), names=names)


def named(name: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([IDS], names=[name])


def stream(*batches: pa.RecordBatch, schema: pa.Schema | None = None, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema or batches[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for one in batches:
            writer.write_batch(one)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def refused(data: bytes) -> F1Error:
    with pytest.raises(F1Error) as error:
        read_columns("T", data, 5)
    return error.value


def test_a_batch_of_plain_columns_is_read() -> None:
    found = read_columns("T", stream(batch(_11=IDS, _3=pa.array(["a", None, "c"]))), 5)
    assert (found.table, found.rows, found.schema_version) == ("T", 3, 5)
    assert {i: array.to_pylist() for i, array in found.columns.items()} == {11: [1, 2, 3], 3: ["a", None, "c"]}


def of_offsets(*offsets: int) -> pa.Array:
    buffers = [None, pa.array(offsets, pa.int32()).buffers()[1], pa.py_buffer(b"\xff\xfeabc")]
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)


@pytest.mark.parametrize(
    "data",
    [
        lambda: b"",
        lambda: bytes(1000),
        lambda: stream(batch(_11=IDS))[:-20],
        lambda: stream(schema=pa.schema([("11", pa.int64())])),
        lambda: stream(batch(_11=IDS), batch(_11=IDS)),
        lambda: stream(batch(_11=IDS[:0])),
        lambda: stream(pa.RecordBatch.from_arrays([], names=[])),
        lambda: stream(pa.RecordBatch.from_arrays([IDS, IDS], names=["11", "011"])),
        lambda: stream(batch(_11=of_offsets(0, 1, 2))),
        lambda: stream(batch(_11=of_offsets(0, 3, 1))),
        lambda: stream(batch(_11=IDS), compression="zstd"),
        lambda: stream(batch(_11=IDS), compression="lz4"),
        lambda: stream(named("x")),
        lambda: stream(named("-1")),
        lambda: stream(named("1_0")),
        lambda: stream(named(" 1")),
        lambda: stream(named("\uff11")),
        lambda: stream(named("9" * 5000)),
    ],
)
def test_anything_else_is_refused(data: Callable[[], bytes]) -> None:
    assert refused(data()).code is Code.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "array",
    [
        lambda: pa.nulls(1 << 20),
        lambda: pa.RunEndEncodedArray.from_arrays(pa.array([1 << 30]), pa.array(["a"])),
        lambda: pa.array([{}] * 3, pa.struct([])),
        lambda: pa.array(["a", "b", "a"]).dictionary_encode(),
        lambda: pa.array(["a"], pa.large_string()),
        lambda: pa.array([1], pa.timestamp("ns")),
        lambda: pa.array([1 << 62], pa.timestamp("s")),
        lambda: pa.array([1], pa.time64("ns")),
        lambda: pa.array([Decimal(10) ** 60], pa.decimal256(76, 9)),
        lambda: pa.array([[1]]),
    ],
)
def test_columns_of_types_in_which_no_result_comes_are_refused_unread(array: Callable[[], pa.Array]) -> None:
    assert "no column comes as an Arrow array of" in refused(stream(batch(_11=array()))).message


def test_rows_and_cells_have_a_bound() -> None:
    bits = pa.Array.from_buffers(pa.bool_(), MOST_ROWS + 8, [None, pa.py_buffer(bytes(MOST_ROWS // 8 + 1))])
    assert refused(stream(batch(_11=bits))).code is Code.OUT_OF_RANGE
    fits = {f"_{i}": bits[:MOST_ROWS] for i in range(MOST_CELLS // MOST_ROWS)}
    assert read_columns("T", stream(batch(**fits)), 5).rows == MOST_ROWS
    assert refused(stream(batch(**fits, _99=bits[:MOST_ROWS]))).code is Code.OUT_OF_RANGE


def decimals(data: bytes, rows: int) -> pa.Array:
    return pa.Array.from_buffers(pa.decimal128(38, 9), rows, [None, pa.py_buffer(data)])


def test_decimals_that_only_arrow_takes_for_such() -> None:
    long = decimals(bytes([1]) + bytes(15) + b"and more", 1)
    assert units_of(read_columns("T", stream(batch(_11=long)), 5).columns[11], 9) == [1]
    least = decimals(bytes(15) + b"\x80", 1)
    with pytest.raises(F1Error) as error:
        units_of(read_columns("T", stream(batch(_11=least)), 5).columns[11], 9)
    assert error.value.code is Code.OUT_OF_RANGE
