"""Index entries of rows as they are stored, many at a time: those that :class:`f1server.rows.keys.IndexLayout` gives.

An entry's key is made of elements that are encoded already, in the row's key, and of the few cells that the index is
over. So keys are cut into elements, not decoded, cells that no entry depends on stay as they are stored, and a row is
never a dictionary. What is odd about a row is left to whoever decodes it and can name it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from f1common.encoding import tuple as tuples
from f1common.encoding.row import Cell, StoredCell, encode_row, read_cell
from f1server.rows.keys import IndexLayout, check_key_length
from f1server.rows.layout import TableLayout

__all__ = ["EntryMaker", "key_elements"]

_Elements = Sequence[bytes]
_Cells = Mapping[int, StoredCell]
_Part = Callable[[_Elements, _Cells], bytes]

_NULL = tuples.encode((None,))
_EMPTY = encode_row({})


def key_elements(rows: TableLayout, key: bytes) -> list[bytes] | None:
    """Return the encoded values of the primary key of a row; None if ``key`` is not one of a row of that table.

    Raises F1Error DATA_CORRUPTION for a key that is cut off.
    """
    elements = tuples.split(key)
    if len(elements) != rows.width:
        return None
    for position, mark in rows.marks:
        if elements[position] != mark:
            return None
    if len(rows.marks) == 1:
        return elements[1:]
    ids = {position for position, _ in rows.marks}
    return [element for position, element in enumerate(elements) if position not in ids]


class EntryMaker:
    """Makes the entries of one index. Of which ones it can: :meth:`takes`."""

    def __init__(self, where: IndexLayout) -> None:
        self._where = where
        self._head = tuples.encode((where.rows.root.id,)) if where.index.local else b""
        self._code = tuples.encode((where.code,))
        self._positions = {column: i for i, column in enumerate(where.table.key_column_ids)}
        self._parts = [self._part(part.column_id) for part in where.own_parts]
        stored = set(where.index.storing)
        self._of_key = [*self._positions] if where.index.unique else [i for i in self._positions if i in stored]
        self._stored = sorted(stored - self._positions.keys())

    @staticmethod
    def takes(where: IndexLayout) -> bool:
        """Tell whether a row has one entry, made of columns: of no field of a message, and it is no row of a mirror."""
        return type(where) is IndexLayout and not any(where.readers)

    def entries(self, keys: Sequence[_Elements], rows: Sequence[_Cells]) -> Iterator[tuple[bytes, bytes, bool]]:
        """Yield the entry of each row: key, value, and whether another row may want the same key.

        ``keys``: as of :func:`key_elements`; ``rows``: as of :func:`f1common.encoding.row.decode_stored`. Raises
        F1Error for a row that can have no entry.
        """
        unique, shared = self._where.index.unique, self._where.shared
        what = f"an entry of index {self._where.index.name} of {self._where.table.name}"
        plain = not (self._stored or self._of_key)
        for elements, cells in zip(keys, rows, strict=True):
            values = [part(elements, cells) for part in self._parts]
            contended = unique and _NULL not in values
            rest = () if contended else elements[shared:]
            key = b"".join((self._head, *elements[:shared], self._code, *values, *rest))
            check_key_length(key, what)
            yield key, _EMPTY if plain else self._value(elements, cells), contended

    def _part(self, column: int) -> _Part:
        position = self._positions.get(column)
        if position is not None:
            return lambda elements, _: elements[position]
        return lambda _, cells: tuples.encode((read_cell(cells.get(column)),))  # type: ignore[arg-type]

    def _value(self, elements: _Elements, cells: _Cells) -> bytes:
        stored: dict[int, Cell] = {i: read_cell(cell) for i in self._stored if (cell := cells.get(i)) is not None}
        for column in self._of_key:
            (stored[column],) = tuples.decode(elements[self._positions[column]])
        return encode_row(stored)
