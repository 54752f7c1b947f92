"""Logical writes: what a transaction asks to change, by table, primary key and column id."""

from collections.abc import Mapping
from enum import IntEnum

import msgspec

from f1common.errors import F1Error
from f1server.rows.values import Value


class WriteKind(IntEnum):
    """What a write does; numbered as f1.db.LogicalWrite.Kind."""

    INSERT = 0
    UPDATE = 1
    DELETE = 2
    UPSERT = 3


class LogicalWrite(msgspec.Struct, frozen=True, gc=False):
    """One write of one row, by public names and column ids.

    ``key`` holds the primary key, ``columns`` the columns to set: for an INSERT all that are not NULL, for an UPDATE
    the assigned ones, key columns included if they change. A write of a row that is not there is NOT_FOUND if
    ``must_exist``, otherwise it does nothing. ``defaults`` are for an UPSERT that turns out to insert, and for an
    UPDATE that gives a row another key; of an INSERT they are among the columns as well, and say which of these nobody
    has given. ``key_order``: the columns of the key if its values were named by their order only; empty: they were not.
    """

    kind: WriteKind
    table: str
    key: Mapping[int, Value]
    columns: Mapping[int, Value] = {}
    must_exist: bool = False
    schema_version: int = 0
    defaults: Mapping[int, Value] = {}
    key_order: tuple[int, ...] = ()


def of_write(position: int, error: F1Error) -> F1Error:
    """Return an error that says in its detail ``write`` which of several writes is wrong.

    Whoever sent them may know more of it than its values: a line of a file, say.
    """
    details = {**error.details, "write": str(position)}
    return F1Error(error.code, error.message, retryable=error.retryable, ambiguous=error.ambiguous, details=details)
