"""docs/encoding.md: its byte examples are true."""

import re
from collections.abc import Iterator
from decimal import Decimal
from math import inf, isnan, nan
from pathlib import Path
from typing import Any

import pytest

from f1common.encoding.row import COMMIT_TS, THIS_VERSION, decode_row, encode_row, encode_row_with_placeholders
from f1common.encoding.tuple import Date, Timestamp, decode, encode, timestamp_placeholder

DOCUMENT = (Path(__file__).parents[3] / "docs" / "encoding.md").read_text()
NAMES = {
    "Date": Date,
    "Decimal": Decimal,
    "THIS_VERSION": THIS_VERSION,
    "COMMIT_TS": COMMIT_TS,
    "Timestamp": Timestamp,
    "inf": inf,
    "nan": nan,
}


def rows_after(marker: str) -> Iterator[tuple[str, str]]:
    """The two cells of each row of the tables that follow ``<!-- marker -->``."""
    for block in DOCUMENT.split(f"<!-- {marker} -->\n\n")[1:]:
        for line in block.splitlines()[2:]:
            if (row := re.fullmatch(r"\| `(.*?)` \| (?:`(.*)` )?\|", line)) is None:
                break
            yield row[1], row[2] or ""


def value_of(text: str) -> Any:
    return eval(text, NAMES)


TUPLES = list(rows_after("tuple examples"))
EQUALITIES = list(rows_after("tuple equalities"))
ROWS = list(rows_after("row examples"))


def test_the_tables_were_found() -> None:
    assert (len(TUPLES), len(EQUALITIES), len(ROWS)) == (41, 4, 12)


@pytest.mark.parametrize(("text", "code"), TUPLES)
def test_a_tuple_has_the_bytes_that_the_document_says(text: str, code: str) -> None:
    value = value_of(text)
    assert encode(value).hex(" ") == code
    decoded = decode(bytes.fromhex(code))
    assert decoded == value or (isnan(value[0]) and isnan(decoded[0]))  # type: ignore[arg-type]


@pytest.mark.parametrize(("text", "other"), EQUALITIES)
def test_equal_values_have_equal_bytes(text: str, other: str) -> None:
    assert encode(value_of(text)) == encode(value_of(other))


@pytest.mark.parametrize(("text", "code"), ROWS)
def test_a_row_has_the_bytes_that_the_document_says(text: str, code: str) -> None:
    assert encode_row(value_of(text)).hex(" ") == code
    assert repr(decode_row(bytes.fromhex(code))) == repr(value_of(text))


def test_the_placeholders_are_as_the_document_says() -> None:
    assert f"`{timestamp_placeholder().hex(' ')}`" in DOCUMENT
    data, offsets = encode_row_with_placeholders({1: "abc", 2: COMMIT_TS})
    assert DOCUMENT.split("<!-- placeholder example -->\n\n```\n")[1].partition("\n```")[0] == data.hex(" ")
    assert f"the offset is {offsets[0]}:" in DOCUMENT
    assert len(offsets) == 1


def test_the_tags_in_the_table_are_those_of_the_codec() -> None:
    listed: dict[int, str] = {}
    for first, last, kind in re.findall(r"^\| `(..)`(?: to `(..)`)? \| ([A-Z][\w ]*) \|", DOCUMENT, re.MULTILINE):
        for tag in range(int(first, 16), int(last or first, 16) + 1):
            listed[tag] = kind
    for text, code in TUPLES:
        if code:
            python_type = type(value_of(text)[0]).__name__
            kind = {"NoneType": "NULL", "bool": "", "int": "INT64", "float": "DOUBLE", "Decimal": "NUMERIC"}.get(
                python_type, {"str": "STRING"}.get(python_type, python_type.upper())
            )
            assert listed[int(code[:2], 16)].startswith(kind)
    for tag in set(range(256)) - set(listed):
        with pytest.raises(Exception, match=f"no element starts with 0x{tag:02x}"):
            decode(bytes([tag]) + bytes(20))
