"""What the storage client takes and returns. Keys and values are bytes, timestamps microseconds since the epoch."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec


class KeyRange(msgspec.Struct, frozen=True, gc=False):
    """Live rows with ``start <= key < end``; ``limit`` 0 means all of them.

    With ``most_bytes`` what lies behind rows whose values have so many bytes may be left out: whoever got as many asks
    for the rest if it wants that.
    """

    start: bytes
    end: bytes
    limit: int = 0
    reverse: bool = False
    most_bytes: int = 0


class Version(msgspec.Struct, frozen=True, gc=False):
    """A row as of a timestamp: ``ts`` is when it was committed; ``value`` None is a deleted row."""

    ts: int
    value: bytes | None


class Row(msgspec.Struct, frozen=True, gc=False):
    """A live row of a range."""

    key: bytes
    ts: int
    value: bytes


@dataclass(slots=True)
class ReadResult:
    """``versions`` stand in the order of the keys (None: never written), ``ranges`` in the order of the ranges."""

    timestamp: int
    versions: list[Version | None] = field(default_factory=list)
    ranges: list[list[Row]] = field(default_factory=list)

    def values(self) -> list[bytes | None]:
        """Return just the values of the keys asked for."""
        return [None if version is None else version.value for version in self.versions]


class Write(msgspec.Struct, frozen=True, gc=False):
    """One new version; ``value`` None deletes. Offsets say where eight bytes take the commit timestamp."""

    key: bytes
    value: bytes | None
    key_offset: int = -1
    value_offsets: tuple[int, ...] = ()


class Puts(msgspec.Struct, frozen=True, gc=False):
    """Many values at once, for keys in ascending order, each once: cheaper than a :class:`Write` for each.

    ``absent``: only if none of the keys has a live row, as an :class:`ExpectAbsent` of each would say.
    ``stamp_before_end``: eight bytes that begin so far before the end of each key take the commit timestamp; 0: none
    do.
    """

    keys: Sequence[bytes]
    values: Sequence[bytes]
    absent: bool = False
    stamp_before_end: int = 0

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def size(self) -> int:
        """How many bytes the keys and values have."""
        return sum(map(len, self.keys)) + sum(map(len, self.values))

    def writes(self) -> list[Write]:
        """Return the same as a write for each key."""
        back = self.stamp_before_end
        return [Write(k, v, len(k) - back if back else -1) for k, v in zip(self.keys, self.values, strict=True)]


def size_of(writes: Iterable[Write], puts: Iterable[Puts]) -> int:
    """Return how many bytes the keys and values have."""
    alone = sum(len(write.key) + len(write.value or b"") for write in writes)
    return alone + sum(many.size for many in puts)


class ExpectVersion(msgspec.Struct, frozen=True, gc=False):
    """The row's newest version was committed at ``ts``; 0: there is no live row."""

    key: bytes
    ts: int


class ExpectExists(msgspec.Struct, frozen=True, gc=False):
    """There is a live row."""

    key: bytes


class ExpectAbsent(msgspec.Struct, frozen=True, gc=False):
    """There is no live row."""

    key: bytes


class ExpectUnchanged(msgspec.Struct, frozen=True, gc=False):
    """Nothing in ``[start, end)`` was committed after ``since_ts``. The range must lie in one group."""

    start: bytes
    end: bytes
    since_ts: int


class NoNewer(msgspec.Struct, frozen=True, gc=False):
    """No key that the commit writes has a version above ``since_ts``, deletes included; else it is ABORTED.

    With ``leave_out`` the writes of such keys are left out instead (the Thomas write rule), which the answer does not
    tell. SNAPSHOT_TOO_OLD: deletes since then may have left no trace.
    """

    since_ts: int
    leave_out: bool = False


Precondition = ExpectVersion | ExpectExists | ExpectAbsent | ExpectUnchanged | NoNewer


class CommitId(msgspec.Struct, frozen=True, gc=False):
    """Names one commit for ever: ask :meth:`SpanClient.outcome` whether it happened."""

    anchor: bytes
    unique: bytes
    created_ts: int


class Decision(msgspec.Struct, frozen=True, gc=False):
    """``committed`` None: still unknown (to a peek)."""

    committed: bool | None
    ts: int
