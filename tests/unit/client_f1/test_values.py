"""Values between Python, cells and Arrow."""

import datetime
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from f1.values import column_values, encode_params, plain_decimal, to_cell, to_key_value
from f1common.encoding.row import decode_row
from f1common.encoding.values import Date, Timestamp
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from f1common.pb import types_pb2

MOMENT = datetime.datetime(2024, 2, 29, 12, 0, 0, 5, tzinfo=datetime.UTC)


class Colour(StrEnum):
    RED = "red"


class Size(IntEnum):
    LARGE = 3


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (None, None),
        (True, True),
        (7, 7),
        (1.5, 1.5),
        (Decimal("1.50"), Decimal("1.50")),
        ("a", "a"),
        (b"a", b"a"),
        (bytearray(b"a"), b"a"),
        (memoryview(b"a"), b"a"),
        (datetime.date(1969, 12, 31), Date(-1)),
        (MOMENT, Timestamp.of(MOMENT)),
        (MOMENT.astimezone(datetime.timezone(datetime.timedelta(hours=2))), Timestamp.of(MOMENT)),
        (types_pb2.KeyRange(start=b"x"), b"\n\x01x"),
        (Colour.RED, "red"),
        (Size.LARGE, 3),
    ],
)
def test_cells(value: Any, cell: Any) -> None:
    assert to_cell(value) == cell
    assert type(to_cell(value)) is type(cell)
    assert decode_row(encode_params([value])) == {1: cell}


@pytest.mark.parametrize("value", [object(), [1], {"a": 1}, datetime.time(1), 1j])
def test_what_no_column_holds(value: Any) -> None:
    with pytest.raises(F1Error) as caught:
        to_cell(value, "Account.Id")
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert "Account.Id" in caught.value.message


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("INT64", 5, 5),
        ("INT64", Decimal("5.0"), 5),
        ("INT64", True, None),
        ("INT64", 1.5, None),
        ("INT64", "5", None),
        ("NUMERIC", 5, Decimal(5)),
        ("NUMERIC", 0.1, Decimal("0.1")),
        ("NUMERIC", float("nan"), Decimal("NaN")),
        ("DOUBLE", 5, 5.0),
        ("DOUBLE", "x", None),
        ("STRING", "x", "x"),
        ("STRING", 5, None),
        ("BYTES", b"x", b"x"),
        ("BYTES", "x", None),
        ("BOOL", True, True),
        ("BOOL", 1, None),
        ("DATE", "2024-02-29", Date.of(datetime.date(2024, 2, 29))),
        ("DATE", datetime.date(2024, 2, 29), Date.of(datetime.date(2024, 2, 29))),
        ("DATE", "2024-02-30", None),
        ("TIMESTAMP", MOMENT, Timestamp.of(MOMENT)),
        ("TIMESTAMP", MOMENT.isoformat(), Timestamp.of(MOMENT)),
    ],
)
def test_key_values_have_the_type_of_their_column(kind: str, value: Any, expected: Any) -> None:
    if expected is None:
        with pytest.raises(F1Error, match=f"T.A is {kind}, and "):
            to_key_value(kind, value, "T.A")
    else:
        found = to_key_value(kind, value, "T.A")
        assert type(found) is type(expected)
        assert str(found) == str(expected)


@given(st.decimals(min_value=-(10**28), max_value=10**28, places=9))
def test_plain_decimals_are_the_same_number(value: Decimal) -> None:
    plain = plain_decimal(value)
    assert plain == value
    text = str(plain)
    assert "E" not in text.upper() or plain == 0 or abs(plain) < Decimal("1e-6")
    assert "." not in f"{plain:f}" or not f"{plain:f}".endswith("0")


def test_columns_of_results() -> None:
    def values(array: pa.Array, **info: Any) -> list[Any]:
        return column_values(array, pb.ColumnInfo(name="c", **info), {})

    assert values(pa.array([Decimal("1.500"), None], pa.decimal128(38, 9))) == [Decimal("1.5"), None]
    (moment,) = values(pa.array([MOMENT], pa.timestamp("us", tz="UTC")))
    assert (moment, moment.tzinfo) == (MOMENT, datetime.UTC)
    assert values(pa.array([datetime.date(2024, 1, 1)], pa.date32())) == [datetime.date(2024, 1, 1)]
    message = types_pb2.KeyRange(start=b"x")
    assert values(pa.array([message.SerializeToString(), None]), proto_type="f1.types.KeyRange") == [message, None]
    assert values(pa.array([b"x"]), proto_type="some.Unknown") == [b"x"]
    nested = pa.array([[{"d": Decimal("1.50")}]], pa.list_(pa.struct([("d", pa.decimal128(5, 2))])))
    assert [str(item["d"]) for item in values(nested)[0]] == ["1.5"]
    with pytest.raises(F1Error, match="use fetch_arrow"):
        values(pa.array([1 << 60], pa.timestamp("us", tz="UTC")))
    with pytest.raises(F1Error) as caught:
        values(pa.array([b"\xff"]), proto_type="f1.types.KeyRange")
    assert caught.value.code is Code.DATA_CORRUPTION
