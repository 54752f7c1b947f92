"""Entries that are made of stored rows are those, byte for byte, that are made of the decoded ones."""

from collections.abc import Sequence

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from f1common.encoding import tuple as tuples
from f1common.encoding.row import decode_stored, encode_row
from f1common.errors import Code, F1Error
from f1server.catalog.schema import Column, ColumnType, Index, IndexPart, Kind, Schema, Table
from f1server.rows.keys import index_layout, row_key
from f1server.rows.layout import LOCAL_INDEX_BASE, layout
from f1server.rows.storedentries import EntryMaker, key_elements
from f1server.rows.values import Value
from f1server.schemachange.work.changes import stored_row
from f1server.schemachange.work.gathering import StoredRows, entries_of
from tests.amounts import examples
from tests.property.test_rows_columns import VALUES, tables


@st.composite
def stored(draw: st.DrawFn) -> tuple[Schema, Table, list[tuple[bytes, bytes]]]:
    """Rows of a table, with cells that nobody knows."""
    schema, table = draw(tables())
    rows = []
    for _ in range(draw(st.integers(1, 5))):
        primary: list[Value] = [draw(VALUES[column.type.kind]) for column in table.key_columns]
        others = [column for column in table.columns if column.id not in table.key_column_ids]
        cells = {c.id: draw(st.one_of(st.none(), VALUES[c.type.kind])) for c in others}
        cells[999] = draw(st.sampled_from([None, 1]))
        rows.append((row_key(schema, table, primary), encode_row({i: v for i, v in cells.items() if v is not None})))
    return schema, table, rows


@settings(max_examples=examples(400), deadline=None)
@given(stored())
def test_the_entries_are_those_of_the_decoded_rows(made: tuple[Schema, Table, list[tuple[bytes, bytes]]]) -> None:
    schema, table, rows = made
    keys, values = [key for key, _ in rows], [value for _, value in rows]
    decoded = [row for key, value in rows if (row := stored_row(schema, table, key, value, 7)) is not None]
    elements = [found for key in keys if (found := key_elements(layout(schema, table), key)) is not None]
    assert len(decoded) == len(elements) == len(rows)
    for index in table.indexes:
        where = index_layout(schema, table, index)
        event(f"local {index.local}, unique {index.unique}, storing {bool(index.storing)}")
        assert EntryMaker.takes(where)
        wanted = [entry for row in decoded for entry in entries_of(where, row)]
        assert list(EntryMaker(where).entries(elements, decode_stored(values, whole=False))) == wanted
        several = StoredRows(schema, table, keys, [7] * len(rows), values)
        assert [entry[1:] for entry in several.entries(where)] == wanted
        assert several.sizes == [row.size for row in decoded]


TREE = Schema(
    "db",
    tables=tuple(
        Table(
            level + 1,
            f"T{level}",
            level,
            columns=tuple(Column(11 + i, f"K{i}", ColumnType(Kind.INT64), not_null=True) for i in range(level + 1)),
            key_column_ids=tuple(range(11, 12 + level)),
        )
        for level in range(3)
    ),
)
ELEMENTS = st.one_of(st.integers(0, 4), st.just(LOCAL_INDEX_BASE + 3), st.sampled_from([None, "", "a", 1.5, b"\0"]))


@settings(max_examples=examples(400), deadline=None)
@given(st.integers(0, 2), st.lists(ELEMENTS, max_size=7))
def test_keys_of_something_else_are_told_by_their_elements(level: int, key: Sequence[Value]) -> None:
    table = TREE.tables[level]
    encoded = tuples.encode(key)
    row = stored_row(TREE, table, encoded, encode_row({}), 7)
    found = key_elements(layout(TREE, table), encoded)
    assert found == (None if row is None else [tuples.encode((value,)) for value in row.primary])
    several = StoredRows(TREE, table, [encoded], [7], [encode_row({})])
    assert several.rows == ([] if row is None else [row])
    assert len(several.sizes) == len(several.rows)


@pytest.mark.parametrize(
    ("cells", "code"),
    [
        ({21: "x" * 600}, Code.KEY_TOO_LONG),
        ({21: "\ud800"}, Code.DATA_CORRUPTION),
        ({21: b"\xc7\x00\x01"}, Code.DATA_CORRUPTION),  # "this version's", which only a lock may hold
    ],
)
def test_a_row_that_can_have_no_entry_is_named(cells: dict[int, object], code: Code) -> None:
    columns = (Column(11, "Id", ColumnType(Kind.INT64)), Column(21, "S", ColumnType(Kind.STRING)))
    index = Index(50, "I", (IndexPart(21),))
    table = Table(1, "T", 0, columns=columns, key_column_ids=(11,), indexes=(index,))
    schema = Schema("db", tables=(table,))
    text = cells[21]
    if isinstance(text, bytes):
        odd = b"\x81\x15" + text
    else:
        data = str(text).encode("utf-8", "surrogatepass")
        odd = b"\x81\x15\xda" + len(data).to_bytes(2, "big") + data
    keys = [row_key(schema, table, (i,)) for i in range(3)]
    rows = StoredRows(schema, table, keys, [7] * 3, [encode_row({}), odd, encode_row({21: "fine"})])
    with pytest.raises(F1Error) as raised:
        list(rows.entries(index_layout(schema, table, index)))
    assert raised.value.code is code
    assert code is Code.DATA_CORRUPTION or "(Id) = (1)" in raised.value.message


def test_keys_are_cut_into_their_elements() -> None:
    values: tuple[Value, ...] = (None, True, 5, 10**12, -3, 1.5, "a\0b", b"", "")
    assert tuples.split(tuples.encode(values)) == [tuples.encode((value,)) for value in values]
    assert tuples.split(b"") == []
    for broken in (tuples.encode(("ab",))[:-1], tuples.encode((10**12,))[:-1]):
        with pytest.raises(F1Error) as raised:
            tuples.split(tuples.encode((1,)) + broken)
        assert raised.value.code is Code.DATA_CORRUPTION
