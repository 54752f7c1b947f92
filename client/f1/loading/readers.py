"""CSV and Parquet files as batches of a table's columns, in the table's types, with the place of every row.

Everything that is wrong with a file is one line that names the file and the line (CSV) or row (Parquet). A CSV file
has a header with column names; an empty field is NULL, ``""`` an empty text. BYTES are written ``\\x0a0b``, messages as
JSON.
"""

import csv
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from f1.metadata import Column, Metadata, Table, unknown
from f1.values import ARROW_TYPES
from f1common.errors import Code, F1Error

_BLOCK_BYTES = 4 << 20
_PARQUET_ROWS = 20_000
_ARROW_ROW = re.compile(r"Row #(\d+): ")


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some rows: an array for each column, and the number in the file (from 0) of the first row."""

    columns: tuple[Column, ...]
    arrays: tuple[pa.Array, ...]
    first_row: int

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.arrays[0])


class Source(ABC):
    """A file of rows for a table."""

    def __init__(self, path: Path, metadata: Metadata, table: Table) -> None:
        self.path = path
        self._metadata = metadata
        self._table = table
        self.total_rows: int | None = None
        """How many rows there are, if the file says so."""

    @abstractmethod
    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows. Raises F1Error INVALID_ARGUMENT, NOT_FOUND, with file and line."""

    def place(self, row: int) -> str:
        """Return where a row is, for people."""
        return f"{self.path}: row {row + 1}"

    def _columns(self, names: Sequence[str]) -> tuple[Column, ...]:
        columns = []
        for name in names:
            column = self._table.by_name.get(name.strip().lower())
            if column is None:
                error = unknown("column", f"{self._table.name}.{name}", name, [c.name for c in self._table.columns])
                raise F1Error(error.code, f"{self.path}: {error.message}", details=error.details)
            columns.append(column)
        twice = next((c.name for i, c in enumerate(columns) if c in columns[:i]), None)
        if twice is not None:
            raise F1Error(Code.INVALID_ARGUMENT, f"{self.path}: column {twice} is there twice")
        return tuple(columns)

    def _convert(self, column: Column, values: pa.Array, first_row: int) -> pa.Array:
        try:
            return convert(self._metadata, column, values)
        except (pa.ArrowException, F1Error, ValueError) as error:
            bad, reason = self._first_bad(column, values, error)
            place = self.place(first_row + bad)
            shown = repr(values[bad].as_py())
            shown = shown if len(shown) <= 60 else shown[:57] + "..."
            raise F1Error(
                Code.INVALID_ARGUMENT,
                f"{place}: column {column.name} is {column.type}, and {shown} is none ({reason})",
                details={"column": column.name},
            ) from error

    def _first_bad(self, column: Column, values: pa.Array, error: Exception) -> tuple[int, str]:
        """Return the first value that cannot be converted, and why: each half tells whether it is in it."""
        start, end = 0, len(values)
        while end - start > 1:
            middle = (start + end) // 2
            try:
                convert(self._metadata, column, values.slice(start, middle - start))
                start = middle
            except (pa.ArrowException, F1Error, ValueError) as earlier:
                end, error = middle, earlier
        text = error.message if isinstance(error, F1Error) else str(error)
        return start, " ".join(text.split())


class CsvSource(Source):
    """A CSV file with a header."""

    def __init__(self, path: Path, metadata: Metadata, table: Table, delimiter: str = ",") -> None:
        super().__init__(path, metadata, table)
        self._delimiter = delimiter
        self._invalid: Any = None

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows, about four megabytes of the file at a time."""
        names = self._header()
        columns = self._columns(names)
        first_row = 0
        try:
            with self._open(names) as reader:
                for batch in reader:
                    arrays = [self._convert(column, batch.column(i), first_row) for i, column in enumerate(columns)]
                    if batch.num_rows:
                        yield Chunk(columns, tuple(arrays), first_row)
                    first_row += batch.num_rows
        except pa.ArrowInvalid as error:
            raise self._broken(error, first_row) from error

    def _header(self) -> list[str]:
        try:
            with self._text() as file:
                names = next(csv.reader(file, delimiter=self._delimiter), None)
            "".join(names or ()).encode()  # what follows the header is looked at later, with its place
        except (UnicodeError, csv.Error) as error:
            raise F1Error(Code.INVALID_ARGUMENT, f"{self.path}: line 1: no header of a CSV file: {error}") from error
        except OSError as error:
            raise F1Error(Code.NOT_FOUND, f"cannot read {self.path}: {error.strerror}") from error
        if not names:
            raise F1Error(Code.INVALID_ARGUMENT, f"{self.path}: the file is empty; its first line names the columns")
        return names

    def _text(self) -> TextIO:
        return self.path.open(encoding="utf-8-sig", errors="surrogateescape", newline="")

    def _open(self, names: Sequence[str]) -> Any:
        def refuse(row: Any) -> str:
            self._invalid = row
            return "error"

        return pa.csv.open_csv(
            self.path,
            # Row numbers of errors are only known without threads.
            read_options=pa.csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES),
            parse_options=pa.csv.ParseOptions(
                delimiter=self._delimiter, newlines_in_values=True, invalid_row_handler=refuse
            ),
            convert_options=pa.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                null_values=["", "\\N"],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )

    def _broken(self, error: Exception, first_row: int) -> F1Error:
        invalid = self._invalid
        if invalid is None:
            text = " ".join(str(error).split())
            # Arrow counts the header as row 1.
            found = _ARROW_ROW.search(text)
            place = f"row {int(found[1]) - 1}" if found else f"after row {first_row}"
            return F1Error(Code.INVALID_ARGUMENT, f"{self.path}: {place}: {_ARROW_ROW.sub('', text)}")
        place = f"{self.path}: line {invalid.number}" if invalid.number is not None else str(self.path)
        fields = f"{invalid.actual_columns} field{'' if invalid.actual_columns == 1 else 's'}"
        return F1Error(
            Code.INVALID_ARGUMENT, f"{place}: {fields} where the header names {invalid.expected_columns} columns"
        )

    def place(self, row: int) -> str:
        """Return the line at which a row ends; texts in the rows before may have line breaks."""
        try:
            with self._text() as file:
                reader = csv.reader(file, delimiter=self._delimiter)
                next(reader)
                number = -1
                for fields in reader:
                    number += bool(fields)
                    if number == row:
                        return f"{self.path}: line {reader.line_num}"
        except (OSError, csv.Error):
            pass  # the row's number will do
        return super().place(row)


class ParquetSource(Source):
    """A Parquet file whose columns are named like those of the table."""

    def __init__(self, path: Path, metadata: Metadata, table: Table) -> None:
        super().__init__(path, metadata, table)
        try:
            self._file = pa.parquet.ParquetFile(path)
        except OSError as error:
            raise F1Error(Code.NOT_FOUND, f"cannot read {path}: {error.strerror or error}") from error
        except pa.ArrowException as error:
            raise F1Error(Code.INVALID_ARGUMENT, f"{path}: no Parquet file: {error}") from error
        self.total_rows = self._file.metadata.num_rows

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows."""
        columns = self._columns(self._file.schema_arrow.names)
        first_row = 0
        try:
            for batch in self._file.iter_batches(batch_size=_PARQUET_ROWS):
                arrays = [self._convert(column, batch.column(i), first_row) for i, column in enumerate(columns)]
                yield Chunk(columns, tuple(arrays), first_row)
                first_row += batch.num_rows
        except (pa.ArrowException, OSError) as error:
            text = " ".join(str(error).split())
            raise F1Error(Code.INVALID_ARGUMENT, f"{self.path}: after row {first_row}: {text}") from error


def open_source(path: Path, metadata: Metadata, table: Table, delimiter: str = ",") -> Source:
    """Return the rows of a file, by the end of its name. Raises F1Error NOT_FOUND, INVALID_ARGUMENT."""
    if not path.is_file():
        raise F1Error(Code.NOT_FOUND, f"there is no file {path}")
    match path.suffix.lower():
        case ".parquet":
            return ParquetSource(path, metadata, table)
        case ".csv" | ".tsv" | ".tbl":
            return CsvSource(path, metadata, table, "\t" if path.suffix.lower() == ".tsv" else delimiter)
        case _:
            raise F1Error(Code.INVALID_ARGUMENT, f"{path}: what is loaded is a .csv or a .parquet file")


def convert(metadata: Metadata, column: Column, values: pa.Array) -> pa.Array:
    """Convert an array to the type of a column. Raises pa.ArrowException, ValueError, F1Error."""
    wanted = ARROW_TYPES[column.kind]
    if values.type == wanted:
        return values
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
    if text and column.kind in ("BYTES", "PROTO"):
        parse = _bytes_of_text if column.kind == "BYTES" else _message_parser(metadata, column)
        return pa.array([None if value is None else parse(value) for value in values.to_pylist()], wanted)
    if column.kind == "TIMESTAMP":
        return _timestamps(values, text)
    return values.cast(wanted)


def _timestamps(values: pa.Array, text: bool) -> pa.Array:
    wanted = ARROW_TYPES["TIMESTAMP"]
    if not text:
        return values.cast(pa.timestamp("us", tz=getattr(values.type, "tz", None) or "UTC")).cast(wanted)
    # A moment without a zone is in UTC; Arrow refuses columns that have both.
    zoned = [value if value is None or _has_zone(value) else value + "Z" for value in values.to_pylist()]
    return pa.array(zoned, pa.string()).cast(wanted)


def _has_zone(value: str) -> bool:
    tail = value[10:]
    return value.endswith(("Z", "z")) or "+" in tail or "-" in tail


def _bytes_of_text(value: str) -> bytes:
    return bytes.fromhex(value[2:]) if value.startswith("\\x") else value.encode()


def _message_parser(metadata: Metadata, column: Column) -> Callable[[str], bytes]:
    def parse(value: str) -> bytes:
        if value.startswith("\\x"):
            return bytes.fromhex(value[2:])
        return metadata.protos.from_json(column.proto, value)

    return parse
