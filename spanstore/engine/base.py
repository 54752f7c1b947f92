"""The contract between the replicas of a spanserver and its disk.

One engine holds the logs and the rows of all groups of one spanserver, so that one turn of the server costs one
transaction and one sync however many groups took part. The contract, which ``tests/contract/engine`` holds every
implementation to:

* ``commit`` is atomic and durable: when it returns, the whole batch survives a crash of process and machine. Until
  it returns, a crash keeps all of the batch or nothing.
* Commits take effect in the order in which ``commit`` was called, even when several are awaited at once; after a
  crash, the surviving commits are a prefix of that order.
* ``snapshot`` sees one commit's state, all of it, for as long as it is open; a snapshot opened after a commit
  returned sees that commit. What a snapshot shows is durable.
* A failed commit is the end: the engine refuses everything afterwards, since nobody knows what the disk holds. The
  spanserver discards its replicas' memory and reloads from the disk; it never retries (a second fsync may succeed
  although the first one lost the pages).

Keys are 1 to ``MAX_KEY_BYTES`` bytes, compared as unsigned bytes; ranges are half open.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from f1common.errors import Code, F1Error
from spanstore.engine.damage import DamageMarks
from spanstore.engine.sealing import is_sealed, seal

MAX_KEY_BYTES = 511
"""LMDB's limit (MDB_MAXKEYSIZE). Every engine keeps to it, so that the simulator finds what the disk would refuse."""

PUT = 0
DELETE = 1
DELETE_RANGE = 2

Operation = tuple[int, bytes, bytes]
"""(PUT, key, value), (DELETE, key, b"") or (DELETE_RANGE, start, end). A tuple, because thousands are made a second."""


class EngineFailed(F1Error):
    """The disk did not do what it was asked to: the spanserver's replicas must crash. Never to be retried in place.

    Codes: DISK_FULL (no space, or the map is full), DATA_CORRUPTION (the file is damaged), UNAVAILABLE (an I/O
    error, or the engine failed or was closed before).
    """

    def __init__(
        self,
        code: Code,
        message: str,
        *,
        retryable: bool | None = False,
        ambiguous: bool = False,
        details: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(code, message, retryable=retryable, ambiguous=ambiguous, details=details)


class WriteBatch:
    """Changes that take effect together, in the order given: a later operation wins over an earlier one.

    ``ops`` are the operations, with values as they are stored (:mod:`spanstore.engine.sealing`), ``size`` their keys
    and values in bytes. Once committed, a batch may not be changed.
    """

    __slots__ = ("ops", "size")

    def __init__(self) -> None:
        self.ops: list[Operation] = []
        self.size = 0

    def put(self, key: bytes, value: bytes) -> None:
        """Set ``key`` to ``value``. Raises F1Error KEY_TOO_LONG, INVALID_ARGUMENT if the key is empty."""
        if not 0 < len(key) <= MAX_KEY_BYTES:
            raise _refused(key)
        if is_sealed(key):
            value = seal(key, value)
        self.ops.append((PUT, key, value))
        self.size += len(key) + len(value)

    def put_all(self, records: Sequence[tuple[bytes, bytes]]) -> None:
        """Set keys to values that carry checksums of their own, as stored. Raises as :meth:`put`."""
        for key, value in records:
            if not 0 < len(key) <= MAX_KEY_BYTES:
                raise _refused(key)
            self.size += len(key) + len(value)
        self.ops.extend([(PUT, key, value) for key, value in records])

    def delete(self, key: bytes) -> None:
        """Remove ``key`` if it is there."""
        self.ops.append((DELETE, key, b""))
        self.size += len(key)

    def delete_range(self, start: bytes, end: bytes) -> None:
        """Remove all keys in ``[start, end)``, those put earlier in this batch included."""
        self.ops.append((DELETE_RANGE, start, end))
        self.size += len(start) + len(end)

    def extend(self, other: "WriteBatch") -> None:
        """Append the operations of ``other`` to this batch."""
        self.ops.extend(other.ops)
        self.size += other.size

    def __bool__(self) -> bool:
        return bool(self.ops)


def _refused(key: bytes) -> F1Error:
    if not key:
        return F1Error(Code.INVALID_ARGUMENT, "an engine key is not empty")
    return F1Error(Code.KEY_TOO_LONG, f"an engine key has at most {MAX_KEY_BYTES} bytes, not {len(key)}")


@dataclass(frozen=True, slots=True)
class Space:
    """How many bytes the data may still grow by, and how many of them are kept in reserve for when a disk is full."""

    room: int
    reserve: int


class Reader(Protocol):
    """A consistent view of one commit. Close it soon: an open view keeps the disk from reusing pages.

    Whatever returns a value raises F1Error DATA_CORRUPTION if that record is not what was written.
    """

    def get(self, key: bytes) -> bytes | None:
        """Return the value of ``key``, or None."""
        ...

    def scan(self, start: bytes, end: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, value) of ``[start, end)``, ascending or descending. Valid while the reader is open."""
        ...

    def page(self, start: bytes, end: bytes, most: int, max_bytes: int) -> tuple[list[tuple[bytes, bytes]], bool]:
        """Return the first (key, value) of ``[start, end)``, ``most`` at most, and whether these are all.

        There are none after those whose values reach ``max_bytes`` together.
        """
        ...

    def seek_first(self, start: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        """Return the first (key, value) in ``[start, end)``, or None."""
        ...

    def seek_last(self, start: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        """Return the last (key, value) in ``[start, end)``, or None."""
        ...

    def close(self) -> None:
        """Let go of the view; closing twice is harmless. Any other use afterwards is an InvariantViolation."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


class Engine(Protocol):
    """An ordered key-value store with atomic durable batches and consistent snapshots."""

    @property
    def incarnation(self) -> int:
        """How often this store was opened for writing: greater than that of every server process that had it before."""
        ...

    @property
    def damage(self) -> DamageMarks:
        """What is known to be damaged on this disk."""
        ...

    def space(self) -> Space | None:
        """Tell how much room there is, None where there is no end to it. Looks for room in the background."""
        ...

    def snapshot(self) -> Reader:
        """Open a view of the newest durable state. Cheap: once per turn of the server. Raises EngineFailed."""
        ...

    async def commit(self, batch: WriteBatch) -> None:
        """Apply ``batch`` atomically and return once it is durable.

        Raises EngineFailed, after which the engine is unusable. Cancelling the caller does not undo the commit.
        """
        ...

    async def close(self) -> None:
        """Finish the commits that were begun and let go of the directory; closing twice is harmless."""
        ...

    def info(self) -> dict[str, int | str]:
        """Return what an operator wants to see: name of the engine, sizes, counts of commits and open readers."""
        ...
