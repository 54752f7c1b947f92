"""Read transactions of LMDB as views, every record verified on its way out."""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import islice
from operator import lt
from types import TracebackType
from typing import Protocol, Self

import lmdb

from f1common.errors import Code, InvariantViolation, check
from spanstore.engine.base import MAX_KEY_BYTES, EngineFailed
from spanstore.engine.directory import failure_of
from spanstore.engine.sealing import any_sealed, is_sealed, unseal

_FIRST_CHUNK = 16
"""Items that are taken from the disk at first: ranges may be small."""


class Owner(Protocol):
    """The engine that a view belongs to."""

    def begin_read(self) -> "lmdb.Transaction[bytes]":
        """Begin a read transaction. Raises EngineFailed."""
        ...

    def forget_reader(self, reader: "LmdbReader") -> None:
        """Take note that a view closed itself."""
        ...


class LmdbReader:
    """A read transaction. Not for use by two threads at once."""

    __slots__ = ("_cursor", "_engine", "_txn")

    def __init__(self, engine: Owner, txn: "lmdb.Transaction[bytes]") -> None:
        self._engine = engine
        self._txn: lmdb.Transaction[bytes] | None = txn
        self._cursor = txn.cursor()

    @property
    def transaction(self) -> int:
        """The number of the write transaction whose state this is."""
        if self._txn is None:
            raise InvariantViolation("the reader is closed")
        return self._txn.id()

    def renew(self) -> None:
        """Look at the newest state instead."""
        if self._txn is None:
            raise InvariantViolation("the reader is closed")
        self._cursor.close()
        self._txn.abort()
        self._txn = self._engine.begin_read()
        self._cursor = self._txn.cursor()

    def get(self, key: bytes) -> bytes | None:
        """Return the value of ``key``, or None."""
        txn = self._txn
        if txn is None:
            raise InvariantViolation("the reader is closed")
        try:
            data = txn.get(key)
        except lmdb.BadValsizeError:
            return None  # no such key can be stored
        except lmdb.Error as error:
            raise failure_of(error, "reading failed") from error
        return unseal(key, data) if data is not None and is_sealed(key) else data

    def first_key(self, start: bytes) -> bytes | None:
        """Return the first key at or above ``start``, whatever is stored under it."""
        if self._txn is None:
            raise InvariantViolation("the reader is closed")
        try:
            return self._cursor.key() if seek(self._cursor, start) else None
        except lmdb.Error as error:
            raise failure_of(error, "reading failed") from error

    def seek_first(self, start: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        """Return the first (key, value) in ``[start, end)``, or None."""
        if self._txn is None:
            raise InvariantViolation("the reader is closed")
        cursor = self._cursor
        try:
            if not seek(cursor, start):
                return None
            item = cursor.item()
        except lmdb.Error as error:
            raise failure_of(error, "reading failed") from error
        return _opened(item) if item[0] < end else None

    def seek_last(self, start: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        """Return the last (key, value) in ``[start, end)``, or None."""
        if self._txn is None:
            raise InvariantViolation("the reader is closed")
        cursor = self._cursor
        try:
            if not _seek_before(cursor, end):
                return None
            item = cursor.item()
        except lmdb.Error as error:
            raise failure_of(error, "reading failed") from error
        return _opened(item) if item[0] >= start else None

    def scan(self, start: bytes, end: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Return the (key, value) of ``[start, end)``, ascending or descending, as they are read."""
        txn = self._txn
        if txn is None:
            raise InvariantViolation("the reader is closed")
        items = self._items(txn, start, end, reverse)
        return map(_opened, items) if any_sealed(start, end) else items

    def page(self, start: bytes, end: bytes, most: int, max_bytes: int) -> tuple[list[tuple[bytes, bytes]], bool]:
        """Return the first (key, value) of ``[start, end)``, and whether these are all."""
        txn = self._txn
        if txn is None:
            raise InvariantViolation("the reader is closed")
        try:
            with txn.cursor() as cursor:
                return _page(cursor, start, end, most, max_bytes)
        except lmdb.Error as error:
            raise failure_of(error, "scanning failed") from error

    def _items(
        self, txn: "lmdb.Transaction[bytes]", start: bytes, end: bytes, reverse: bool
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield what is stored in ``[start, end)``."""
        cursor = txn.cursor()
        try:
            if reverse:
                if _seek_before(cursor, end):
                    for item in cursor.iterprev():
                        if item[0] < start:
                            break
                        if item[0] >= end:
                            raise _out_of_order(item[0])
                        yield item
            elif seek(cursor, start):
                for item in cursor.iternext():
                    if item[0] >= end:
                        break
                    if item[0] < start:
                        raise _out_of_order(item[0])
                    yield item
        except lmdb.Error as error:
            check(self._txn is not None, "the reader was closed during a scan")
            raise failure_of(error, "scanning failed") from error
        finally:
            cursor.close()

    def close(self) -> None:
        """End the transaction, so that its pages can be reused."""
        txn, self._txn = self._txn, None
        if txn is not None:
            self._engine.forget_reader(self)
            self._cursor.close()
            txn.abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _page(
    cursor: "lmdb.Cursor[bytes]", start: bytes, end: bytes, most: int, max_bytes: int
) -> tuple[list[tuple[bytes, bytes]], bool]:
    """Take some items at a time: for those who read whole tables, steps of Python for each of them are too slow."""
    items: list[tuple[bytes, bytes]] = []
    found, room, chunk, before = seek(cursor, start), max_bytes, _FIRST_CHUNK, start
    walk = cursor.iternext() if found else iter(())
    sealed, last = any_sealed(start, end), False
    while not last:
        # One more than are wanted says whether there are more.
        some = _some(walk, min(chunk, most + 1 - len(items)), room)
        keys = [key for key, _ in some]
        if keys and (keys[0] < before or not all(map(lt, keys, islice(keys, 1, None)))):
            raise _out_of_order(keys[0])
        if not keys or keys[-1] >= end:
            last = True
            del some[bisect_left(keys, end) :]
        elif room <= 0:
            break
        if sealed:
            some = list(map(_opened, some))
        items += some
        if len(items) > most:
            del items[most:]
            break
        if keys:
            before = keys[-1]
        room -= sum([len(value) for _, value in some])
        chunk *= 2
    return items, last


def _some(walk: Iterator[tuple[bytes, bytes]], most: int, room: int) -> list[tuple[bytes, bytes]]:
    """Take up to ``most`` items, fewer once their values reach ``room``: each is a copy, of megabytes perhaps."""
    some: list[tuple[bytes, bytes]] = []
    add = some.append
    for item in islice(walk, most):
        add(item)
        room -= len(item[1])
        if room <= 0:
            break
    return some


def _out_of_order(key: bytes) -> EngineFailed:
    """Keys that do not ascend: a damaged page would show rows of one range in another."""
    text = f"the key {key.hex()} is out of order: a page is damaged; discard this replica and let it be rebuilt"
    return EngineFailed(Code.DATA_CORRUPTION, text)


def _opened(item: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    """Return key and value of a stored item. Raises F1Error DATA_CORRUPTION."""
    key, data = item
    return (key, unseal(key, data)) if is_sealed(key) else item


def seek(cursor: "lmdb.Cursor[bytes]", start: bytes) -> bool:
    """Put the cursor on the first key at or above ``start``. Borders may be empty or longer than keys may be."""
    if len(start) <= MAX_KEY_BYTES:
        return cursor.set_range(start)
    found = cursor.set_range(start[:MAX_KEY_BYTES])
    if found and cursor.key() < start:
        return cursor.next()
    return found


def _seek_before(cursor: "lmdb.Cursor[bytes]", end: bytes) -> bool:
    """Put the cursor on the last key below ``end``."""
    return cursor.prev() if seek(cursor, end) else cursor.last()
