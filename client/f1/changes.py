"""Change history (F1 section 6): what committed transactions changed under a root row."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from f1.metadata import Column, Metadata
from f1.nosql import Key, with_metadata
from f1.session import Session
from f1.values import MessageClasses, find_message_class, from_cell
from f1common.encoding.row import decode_row
from f1common.encoding.tuple import decode
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb

_KINDS = {pb.Change.INSERT: "INSERT", pb.Change.UPDATE: "UPDATE", pb.Change.DELETE: "DELETE"}


@dataclass(frozen=True, slots=True)
class Change:
    """What became of one row: ``before`` and ``after`` hold the tracked columns that changed, by name."""

    kind: str
    table: str
    key: tuple[Any, ...]
    before: Mapping[str, Any]
    after: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """What one transaction changed under one root row, committed at ``commit_ts`` (microseconds since the epoch).

    ``other_roots``: how many other root rows the transaction touched, each with a batch of the same commit.
    """

    root_table: str
    root_key: tuple[Any, ...]
    commit_ts: int
    commit_id: bytes
    changes: tuple[Change, ...]
    other_roots: int


async def read_batches(
    session: Session, table: str, root_key: Key, after_ts: int, limit: int
) -> tuple[list[ChangeBatch], int]:
    """Return batches in the order of commits, and the timestamp up to which none is missing."""

    def request(metadata: Metadata) -> pb.ReadChanges:
        found = metadata.table(table)
        if found.parent:
            raise F1Error(Code.INVALID_ARGUMENT, f"history is kept by root row; {found.name} lies in {found.parent}")
        key = b"" if root_key is None else found.encode_key(root_key)
        return pb.ReadChanges(table=found.name, root_key=key, after_ts=after_ts, limit=limit)

    reply = await session.read_changes(await with_metadata(session, request))
    metadata = await session.metadata()
    columns = {column.id: column for known in metadata.tables for column in known.columns}
    images = _Images(columns, session.message_classes)
    return [_batch(message, images) for message in reply.batches], reply.resolved_ts


def _batch(message: pb.ChangeBatch, images: "_Images") -> ChangeBatch:
    return ChangeBatch(
        message.root_table,
        _key(message.root_key),
        message.commit_ts,
        message.commit_id,
        tuple(
            Change(
                _KINDS.get(change.kind, str(change.kind)),
                change.table,
                _key(change.key),
                images.decode(change.before),
                images.decode(change.after),
            )
            for change in message.changes
        ),
        max(len(message.other_roots), message.roots - 1),
    )


def _key(data: bytes) -> tuple[Any, ...]:
    return tuple(from_cell(value) for value in decode(data)) if data else ()


class _Images:
    """Decodes images of rows: values by the names of the columns, also of those that are gone."""

    def __init__(self, columns: Mapping[int, Column], classes: MessageClasses) -> None:
        self._columns = columns
        self._classes = classes

    def decode(self, data: bytes) -> dict[str, Any]:
        """Return the values of an image. Raises F1Error DATA_CORRUPTION, OUT_OF_RANGE."""
        values: dict[str, Any] = {}
        for number, cell in (decode_row(data) if data else {}).items():
            column = self._columns.get(number)
            if column is None:
                values[f"column {number}"] = from_cell(cell)
                continue
            found = find_message_class(column.proto, self._classes) if isinstance(cell, bytes) else None
            values[column.name] = from_cell(cell) if found is None else found.FromString(bytes(cell))  # type: ignore[arg-type]
        return values
