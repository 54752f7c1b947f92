"""The read set of an optimistic transaction, and whether it still holds (F1 sections 5 and 5.1)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from f1common.encoding.row import decode_row
from f1common.errors import Code, F1Error
from f1server.catalog.schema import Schema
from f1server.rows.keys import split_row_key
from f1server.rows.layout import layout
from f1server.rows.locks import changed_since
from spanstore.client import Version


@dataclass(frozen=True, slots=True)
class ReadSetEntry:
    """A row that the transaction looked at: ``ts`` is what the lock of ``columns`` (none: all) said; 0: no row."""

    key: bytes
    ts: int
    table: str
    columns: tuple[int, ...] = ()


class Conflict(F1Error):
    """A row changed after it was read: the transaction has to be run again from its beginning, by its client."""

    def __init__(self, message: str, key: bytes, what: str = "read set") -> None:
        super().__init__(Code.ABORTED, message, retryable=True, details={"key": key.hex(), "conflict": what})


def moved(table: str, key: bytes = b"") -> Conflict:
    """Return the error that a transaction has to do with a table in another form than is public.

    Clients may know the other form only.
    """
    text = f"table {table} was moved to another parent or primary key while the transaction was open; run it again"
    return Conflict(text, key, "schema")


def validate(
    schema: Schema, entries: Iterable[ReadSetEntry], read_ts: int, find: Callable[[bytes], Version | None]
) -> None:
    """Compare each entry with the newest version of its row, which ``find`` gives and which is locked.

    Raises Conflict for a row that changed, was deleted or came into being.
    """
    for entry in entries:
        try:
            found = split_row_key(schema, entry.key)
        except F1Error as error:
            raise F1Error(Code.INVALID_ARGUMENT, f"the read set has what is no key: {error.message}") from error
        if found is None and entry.table.lower() in schema.by_name:
            raise moved(entry.table, entry.key)
        if found is None:
            raise F1Error(
                Code.FAILED_PRECONDITION, f"the transaction read table {entry.table}, which is not there any more"
            )
        table = found[0]
        if layout(schema, table).is_mirror:
            # Servers on the next version, or the one before, may leave out rows that come into being.
            raise moved(table.name, entry.key)
        version = find(entry.key)
        cells = None if version is None or version.value is None else decode_row(version.value)
        ts = 0 if version is None else version.ts
        if changed_since(table, cells, ts, entry.columns, seen_ts=entry.ts, read_ts=read_ts):
            change = "is gone" if cells is None else ("came into being" if not entry.ts else "was changed")
            raise Conflict(f"a row of {table.name} {change} after the transaction read it; run it again", entry.key)
