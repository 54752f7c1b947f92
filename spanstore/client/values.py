"""What the storage client takes and returns. Keys and values are bytes, timestamps microseconds since the epoch."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Live rows with ``start <= key < end``; ``limit`` 0 means all of them."""

    start: bytes
    end: bytes
    limit: int = 0
    reverse: bool = False


@dataclass(frozen=True, slots=True)
class Version:
    """A row as of a timestamp: ``ts`` is when it was committed; ``value`` None is a deleted row."""

    ts: int
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Row:
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


@dataclass(frozen=True, slots=True)
class Write:
    """One new version; ``value`` None deletes. Offsets say where eight bytes take the commit timestamp."""

    key: bytes
    value: bytes | None
    key_offset: int = -1
    value_offsets: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ExpectVersion:
    """The row's newest version was committed at ``ts``; 0: there is no live row."""

    key: bytes
    ts: int


@dataclass(frozen=True, slots=True)
class ExpectExists:
    """There is a live row."""

    key: bytes


@dataclass(frozen=True, slots=True)
class ExpectAbsent:
    """There is no live row."""

    key: bytes


@dataclass(frozen=True, slots=True)
class ExpectUnchanged:
    """Nothing in ``[start, end)`` was committed after ``since_ts``. The range must lie in one group."""

    start: bytes
    end: bytes
    since_ts: int


@dataclass(frozen=True, slots=True)
class NoNewer:
    """No key that the commit writes has a version above ``since_ts``, deletes included; else it is ABORTED.

    With ``leave_out`` the writes of such keys are left out instead (the Thomas write rule), which the answer does not
    tell. SNAPSHOT_TOO_OLD: deletes since then may have left no trace.
    """

    since_ts: int
    leave_out: bool = False


Precondition = ExpectVersion | ExpectExists | ExpectAbsent | ExpectUnchanged | NoNewer


@dataclass(frozen=True, slots=True)
class CommitId:
    """Names one commit for ever: ask :meth:`SpanClient.outcome` whether it happened."""

    anchor: bytes
    unique: bytes
    created_ts: int


@dataclass(frozen=True, slots=True)
class Decision:
    """``committed`` None: still unknown (to a peek)."""

    committed: bool | None
    ts: int
