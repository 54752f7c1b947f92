"""The exceptions of the library: those of DB-API 2.0, each with what the caller may do about it.

Every :class:`Error` has ``code`` (:class:`Code`), ``message``, ``retryable`` (the same may succeed if done again, a
transaction from its beginning), ``ambiguous`` (it may have taken effect or not) and ``details``. ``str()`` is
``"CODE: message"``, one line.
"""

import functools
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from f1common.errors import Code, F1Error

__all__ = [
    "Code",
    "DataError",
    "DatabaseError",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "TransactionAborted",
    "UnknownOutcome",
    "Warning",
    "translated",
    "translating",
]

P = ParamSpec("P")
T = TypeVar("T")


class Warning(Exception):
    """DB-API's class for important warnings; not raised."""


class Error(F1Error):
    """The base of all errors of the library."""


class InterfaceError(Error):
    """The library was used wrongly: a closed connection, a parameter of a type that no column has."""


class DatabaseError(Error):
    """The database refused or failed."""


class DataError(DatabaseError):
    """A value does not fit: out of range, of another type, a key too long, a row that is not there."""


class OperationalError(DatabaseError):
    """The cause lies in the running of the system: servers that do not answer, time-outs, conflicts."""


class TransactionAborted(OperationalError):
    """The transaction lost a conflict and left nothing behind: run it again from its beginning (``conn.run`` does)."""


class UnknownOutcome(OperationalError):
    """The commit may have happened or not, and nobody could tell within the time."""


class IntegrityError(DatabaseError):
    """A constraint would be broken: a duplicate key, a foreign key, a missing parent, a check."""


class InternalError(DatabaseError):
    """A defect of the database, or damaged data."""


class ProgrammingError(DatabaseError):
    """The statement is wrong: syntax, unknown tables or columns, wrong types."""


class NotSupportedError(DatabaseError):
    """The database cannot do this."""


_CLASSES: dict[Code, type[Error]] = {
    Code.ABORTED: TransactionAborted,
    Code.ALREADY_EXISTS: ProgrammingError,
    Code.DATA_CORRUPTION: InternalError,
    Code.INTERNAL: InternalError,
    Code.INVALID_ARGUMENT: ProgrammingError,
    Code.KEY_TOO_LONG: DataError,
    Code.NOT_FOUND: ProgrammingError,
    Code.OUT_OF_RANGE: DataError,
    Code.PERMISSION_DENIED: ProgrammingError,
    Code.TRANSACTION_EXPIRED: TransactionAborted,
    Code.UNKNOWN_OUTCOME: UnknownOutcome,
}
# What an error about rows, as opposed to one about a statement, tells in its details.
_ROW_DETAILS = frozenset({"key", "foreign_key", "parent", "child", "check"})
_ROW_CLASSES: dict[Code, type[Error]] = {
    Code.ALREADY_EXISTS: IntegrityError,
    Code.FAILED_PRECONDITION: IntegrityError,
    Code.NOT_FOUND: DataError,
}


def translate(error: F1Error) -> Error:
    """Return the exception of the library for an error of any tier."""
    if isinstance(error, Error):
        return error
    kind = _CLASSES.get(error.code, OperationalError)
    if not _ROW_DETAILS.isdisjoint(error.details):
        kind = _ROW_CLASSES.get(error.code, kind)
    elif error.code is Code.INVALID_ARGUMENT and "table" in error.details:
        kind = DataError
    return kind(error.code, error.message, retryable=error.retryable, ambiguous=error.ambiguous, details=error.details)


@contextmanager
def translating() -> Iterator[None]:
    """Raise errors of any tier as exceptions of the library."""
    try:
        yield
    except Error:
        raise
    except F1Error as error:
        raise translate(error) from error
    except UnicodeEncodeError as error:
        text = f"a text has a lone surrogate, {error.object[error.start]!r}, which UTF-8 cannot hold"
        raise translate(F1Error(Code.INVALID_ARGUMENT, text)) from error


def translated(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Decorate a coroutine function so that it raises exceptions of the library only."""

    @functools.wraps(method)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        with translating():
            return await method(*args, **kwargs)

    return call
