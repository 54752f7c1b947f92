"""The one error vocabulary of every tier: what went wrong, and what the caller may do about it.

An error is a value with a code, a message for people and two answers that code reacts to:

* ``retryable``: the same request may be sent again and may succeed without the caller changing anything.
* ``ambiguous``: the request may or may not have taken effect. Only an exactly-once protocol (the commit id of
  a transaction) or an idempotent request may be repeated; everything else must first ask for the outcome.

Classes exist only where code reacts to them: everything is an :class:`F1Error`, and a broken invariant is an
:class:`InvariantViolation`, which the supervisor of a process treats as a crash.

======================= ========= =====================================================================================
code                    retryable what the caller may do
======================= ========= =====================================================================================
``ABORTED``             yes       The transaction lost a conflict, nothing of it was kept: run it again from the start.
``ALREADY_EXISTS``      no        The row, table or database is there already: read it, or choose another name.
``BAD_DATA_DIR``        no        The data directory is foreign or of another version: correct ``server.data_dir``.
``CANCELLED``           no        The caller itself gave up: nothing, unless ``ambiguous`` asks for the outcome.
``CLOCK_SKEW``          no        A clock is unsynchronised or too far ahead: repair it on the host that is named.
``DATA_CORRUPTION``     no        Bytes are not what was written: repair the replica, or report the sender.
``DEADLINE_EXCEEDED``   no        The caller's time ran out: ask again with more time; a write may be ``ambiguous``.
``DISK_FULL``           no        Nothing was written: free space or enlarge the map, then retry.
``EXPIRED``             no        The record of the outcome is gone by age: it was decided, nobody knows how.
``FAILED_PRECONDITION`` no        The state does not allow this: change the state or the request first.
``FENCED``              no        The commit missed its deadline or came before its time: take a new schema lease.
``INTERNAL``            no        A defect of this software: report it with the message.
``INVALID_ARGUMENT``    no        The request is wrong whatever the state: correct it.
``KEY_TOO_LONG``        no        The encoded key exceeds the limit of the storage: shorten the key's values.
``NOT_FOUND``           no        The row, table, id or field is not there: create it, or correct the name.
``NOT_LEADER``          yes       Ask the leader; ``details["leader"]`` names it when the sender knows.
``OUT_OF_RANGE``        no        A value does not fit its type: correct the value.
``OVERLOADED``          yes       Nothing was done: retry after a back-off.
``PERMISSION_DENIED``   no        The role lacks a right, which is named: have it granted, or ask as another role.
``PORT_IN_USE``         no        Another process listens there: choose another port or stop that process.
``SNAPSHOT_TOO_OLD``    no        The timestamp lies below what garbage collection keeps: read at a newer one.
``TRANSACTION_EXPIRED`` yes       The transaction outlived its lease, nothing of it was kept: run it again, and quicker.
``UNAUTHENTICATED``     no        The peer did not say who it is: supply credentials.
``UNAVAILABLE``         yes       The server or a quorum cannot be reached: retry after a back-off, perhaps elsewhere.
``UNKNOWN_OUTCOME``     no        The commit may or may not have happened: ask for the outcome of its commit id.
``VERSION_MISMATCH``    no        The two sides speak different versions of a protocol or format: upgrade the older one.
``WRONG_RANGE``         yes       The range lives in another group: refresh the range map and ask there.
======================= ========= =====================================================================================
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class Code(StrEnum):
    """What went wrong. The module docstring says what a caller may do for each."""

    ABORTED = "ABORTED"
    ALREADY_EXISTS = "ALREADY_EXISTS"
    BAD_DATA_DIR = "BAD_DATA_DIR"
    CANCELLED = "CANCELLED"
    CLOCK_SKEW = "CLOCK_SKEW"
    DATA_CORRUPTION = "DATA_CORRUPTION"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    DISK_FULL = "DISK_FULL"
    EXPIRED = "EXPIRED"
    FAILED_PRECONDITION = "FAILED_PRECONDITION"
    FENCED = "FENCED"
    INTERNAL = "INTERNAL"
    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    KEY_TOO_LONG = "KEY_TOO_LONG"
    NOT_FOUND = "NOT_FOUND"
    NOT_LEADER = "NOT_LEADER"
    OUT_OF_RANGE = "OUT_OF_RANGE"
    OVERLOADED = "OVERLOADED"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    PORT_IN_USE = "PORT_IN_USE"
    SNAPSHOT_TOO_OLD = "SNAPSHOT_TOO_OLD"
    TRANSACTION_EXPIRED = "TRANSACTION_EXPIRED"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    UNAVAILABLE = "UNAVAILABLE"
    UNKNOWN_OUTCOME = "UNKNOWN_OUTCOME"
    VERSION_MISMATCH = "VERSION_MISMATCH"
    WRONG_RANGE = "WRONG_RANGE"


RETRYABLE: frozenset[Code] = frozenset(
    {
        Code.ABORTED,
        Code.NOT_LEADER,
        Code.OVERLOADED,
        Code.TRANSACTION_EXPIRED,
        Code.UNAVAILABLE,
        Code.WRONG_RANGE,
    },
)
"""Codes whose errors are retryable unless the raiser says otherwise."""

_NO_DETAILS: Mapping[str, str] = MappingProxyType({})


class F1Error(Exception):
    """An error that any tier may raise and any process may send to another.

    ``str()`` is ``"CODE: message"``, the form that the command line prints.
    """

    def __init__(
        self,
        code: Code,
        message: str,
        *,
        retryable: bool | None = None,
        ambiguous: bool = False,
        details: Mapping[str, str] | None = None,
    ) -> None:
        """Make an error.

        ``retryable=None`` takes the code's default; ``details`` are machine-readable facts (a leader's name,
        a limit), which travel with the error. UNKNOWN_OUTCOME is ambiguous whatever the raiser says.
        """
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.retryable = code in RETRYABLE if retryable is None else retryable
        self.ambiguous = ambiguous or code is Code.UNKNOWN_OUTCOME
        self.details: Mapping[str, str] = MappingProxyType(dict(details)) if details else _NO_DETAILS

    def __str__(self) -> str:
        return f"{self.code.value}: {self.message}"

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.code.value}, {self.message!r}, retryable={self.retryable}, "
            f"ambiguous={self.ambiguous}, details={dict(self.details)!r})"
        )

    def __reduce__(self) -> tuple[object, ...]:
        # Sibling scan processes hand errors over by pickle, which would otherwise drop the keyword arguments.
        return _rebuild, (type(self), self.code, self.message, self.retryable, self.ambiguous, dict(self.details))


class InvariantViolation(F1Error):
    """Something that cannot happen happened: a defect, never a consequence of input. Not to be caught and retried."""

    def __init__(self, message: str) -> None:
        super().__init__(Code.INTERNAL, message, retryable=False)


def _rebuild(
    kind: type[F1Error],
    code: Code,
    message: str,
    retryable: bool,
    ambiguous: bool,
    details: dict[str, str],
) -> F1Error:
    if issubclass(kind, InvariantViolation):
        return kind(message)
    return kind(code, message, retryable=retryable, ambiguous=ambiguous, details=details)


def check(condition: object, message: str) -> None:
    """Raise :class:`InvariantViolation` unless ``condition`` is true. ``assert`` would vanish under ``-O``."""
    if not condition:
        raise InvariantViolation(message)
