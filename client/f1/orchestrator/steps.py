"""What the protocol asks of the world, as values: a driver performs a step and hands back its answer.

The protocol (:mod:`f1.orchestrator.protocol`) is written as generators of these steps, so that the order of steps,
which is the algorithm, can be read, printed and simulated, and so that one text of it serves all stores and services.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from f1common.orchestrator.lock_table import Token, WantedLock

__all__ = [
    "Acquire",
    "Delete",
    "GetVersions",
    "NextTimestamp",
    "OldestBound",
    "Put",
    "PutIfAbsent",
    "ReadRange",
    "Release",
    "Step",
    "Steps",
    "Validate",
    "Version",
    "Write",
]

T = TypeVar("T")


class Version(NamedTuple):
    """A version of a cell: ``ts`` is the start timestamp of the transaction that wrote it; ``value`` None: a delete."""

    ts: int
    value: bytes | None


class Write(NamedTuple):
    """A version to be written."""

    key: bytes
    ts: int
    value: bytes | None


@dataclass(frozen=True, slots=True)
class GetVersions:
    """For each (key, below): the newest version with a timestamp below that, or None."""

    asked: tuple[tuple[bytes, int], ...]


@dataclass(frozen=True, slots=True)
class ReadRange:
    """(key, versions) in the order of keys with ``start <= key < end``: up to ``limit`` cells with a version below.

    Of each the newest version with a timestamp below ``below``, or with ``every`` all of those, newest first.
    """

    start: bytes
    end: bytes
    below: int
    limit: int
    every: bool = False


@dataclass(frozen=True, slots=True)
class Put:
    """Write versions. Answered when all are durable and none can arrive once more."""

    writes: tuple[Write, ...]


@dataclass(frozen=True, slots=True)
class PutIfAbsent:
    """Write a version unless there is one at its timestamp; answered with the value that is there now."""

    write: Write


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove versions (key, timestamp), one after the other, for good."""

    versions: tuple[tuple[bytes, int], ...]


@dataclass(frozen=True, slots=True)
class Acquire:
    """Lease locks, in lexical order, and perhaps a bound; waits until all are free. Answered with a token."""

    locks: tuple[WantedLock, ...]
    bound: int | None = None


@dataclass(frozen=True, slots=True)
class Validate:
    """Answered with whether all these leases have been held without a gap."""

    tokens: tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class Release:
    """End leases. Nothing depends on it but others that wait."""

    tokens: tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class NextTimestamp:
    """Answered with a timestamp above all that were given out before this step was taken."""


@dataclass(frozen=True, slots=True)
class OldestBound:
    """Answered with the lowest bound that is leased, or None."""


Step = GetVersions | ReadRange | Put | PutIfAbsent | Delete | Acquire | Validate | Release | NextTimestamp | OldestBound

Steps = Generator[Step, Any, T]
"""A piece of the protocol: yields steps, is sent their answers, returns a T."""
