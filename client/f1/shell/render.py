"""Results as text: tables for people, CSV and JSON for programs."""

import base64
import datetime
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from enum import Enum
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import Message
from rich.cells import cell_len

from f1common.pb import f1_pb2 as pb

Write = Callable[[str], object]
Pages = Iterable[list[tuple[Any, ...]]]


class Format(Enum):
    """How results are printed."""

    table = "table"
    csv = "csv"
    json = "json"


# Rows whose widths decide about the columns of a table; later ones may stick out.
_MEASURED_ROWS = 1000
_RIGHT = ("INT64", "DOUBLE", "NUMERIC", "DECIMAL", "BIGINT", "INTEGER", "HUGEINT", "FLOAT")


def text_of(value: Any) -> str:
    """Return a value as people read it."""
    match value:
        case None:
            return "NULL"
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case Decimal():
            return f"{value:f}"
        case float():
            return _float_text(value)
        case bytes():
            return "\\x" + value.hex()
        case datetime.datetime():
            return str(value)
        case datetime.date():
            return value.isoformat()
        case Message() | list() | dict() | tuple():
            return json.dumps(json_of(value), ensure_ascii=False)
        case _:
            return str(value)


def _float_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


def json_of(value: Any) -> Any:
    """Return a value for JSON: NUMERIC as text, BYTES in base64, messages as objects, moments as RFC 3339."""
    match value:
        case float() if not math.isfinite(value):
            return _float_text(value)
        case Decimal():
            return f"{value:f}"
        case bytes():
            return base64.b64encode(value).decode("ascii")
        case datetime.datetime():
            return value.isoformat().replace("+00:00", "Z")
        case datetime.date() | datetime.time():
            return value.isoformat()
        case datetime.timedelta():
            return str(value)
        case Message():
            return json_format.MessageToDict(value)
        case list() | tuple():
            return [json_of(item) for item in value]
        case dict():
            return {str(key): json_of(item) for key, item in value.items()}
        case _:
            return value


def write_json(write: Write, columns: Sequence[pb.ColumnInfo], pages: Pages) -> None:
    """Write an array of objects, one row on a line."""
    names = unique_names([column.name for column in columns])
    first = True
    write("[")
    for page in pages:
        for row in page:
            document = {name: json_of(value) for name, value in zip(names, row, strict=True)}
            write(("" if first else ",") + "\n  " + json.dumps(document, ensure_ascii=False))
            first = False
    write("]\n" if first else "\n]\n")


def unique_names(names: Sequence[str]) -> list[str]:
    """Return the names with numbers behind those that are there already: an object has each once."""
    seen: dict[str, int] = {}
    result = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        result.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return result


def write_csv(write: Write, columns: Sequence[pb.ColumnInfo], pages: Pages) -> None:
    """Write CSV with a header. NULL is an empty field, an empty text is ``""``."""
    write(",".join(_csv_field(column.name) for column in columns) + "\n")
    for page in pages:
        for row in page:
            write(",".join("" if value is None else _csv_field(text_of(value)) for value in row) + "\n")


def _csv_field(text: str) -> str:
    if text and not any(sign in text for sign in ',"\r\n') and text == text.strip():
        return text
    return '"' + text.replace('"', '""') + '"'


def write_table(write: Write, columns: Sequence[pb.ColumnInfo], pages: Pages, *, null: str = "NULL") -> int:
    """Write an aligned table; return the number of rows."""
    names = [column.name for column in columns]
    right = [column.type.startswith(_RIGHT) for column in columns]
    widths = [max(cell_len(name), 1) for name in names]
    count = 0
    header_due = True
    for page in _chunks(pages, _MEASURED_ROWS):
        texts = [[null if value is None else _cell(value) for value in row] for row in page]
        if header_due:
            widths = [max([w, *(cell_len(row[i]) for row in texts)]) for i, w in enumerate(widths)]
            _header(write, names, widths)
            header_due = False
        for row in texts:
            write(" " + " | ".join(map(_pad, row, widths, right)).rstrip() + "\n")
        count += len(texts)
    if header_due:
        _header(write, names, widths)
    write(f"({count} row{'' if count == 1 else 's'})\n")
    return count


def _header(write: Write, names: Sequence[str], widths: Sequence[int]) -> None:
    write(" " + " | ".join(_pad(name, width, False) for name, width in zip(names, widths, strict=True)).rstrip() + "\n")
    write("-" + "-+-".join("-" * width for width in widths) + "-\n")


def _cell(value: Any) -> str:
    text = text_of(value)
    # A cell is one line, and a terminal must not take what is in it for commands.
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _pad(text: str, width: int, right: bool) -> str:
    space = " " * (width - cell_len(text))
    return space + text if right else text + space


def _chunks(pages: Pages, size: int) -> Iterator[list[tuple[Any, ...]]]:
    for page in pages:
        for start in range(0, len(page), size):
            yield page[start : start + size]


def write_expanded(write: Write, columns: Sequence[pb.ColumnInfo], pages: Pages) -> int:
    """Write each row as lines of name and value; return the number of rows."""
    width = max((cell_len(column.name) for column in columns), default=0)
    count = 0
    for page in pages:
        for row in page:
            count += 1
            write(f"-[ row {count} ]" + "-" * max(width - 6, 3) + "\n")
            for column, value in zip(columns, row, strict=True):
                write(f"{_pad(column.name, width, False)} | {_cell(value)}\n")
    write(f"({count} row{'' if count == 1 else 's'})\n")
    return count
