"""How busy a replica is, and with which keys: what balancing by load needs to know.

Rows that are asked for and written are counted in windows of some seconds, and of each window some 32 to 64 keys are
kept, evenly spread over what came. Nothing is written down; a replica that has just begun knows nothing yet.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from spanstore.group.requests import Bundle, Commit, LockRead, Prepare, Read, Request, Settle

_MAX_KEYS = 64


@dataclass(frozen=True, slots=True)
class Load:
    """``rows_per_s``: rows, and ranges, asked for and written a second; ``keys``: some of them."""

    rows_per_s: float = 0.0
    keys: tuple[bytes, ...] = ()


class LoadMeter:
    """Counts what one replica is asked for. A window counts when it is over: a reading is up to two windows old."""

    __slots__ = ("_count", "_ends_us", "_keys", "_last", "_next", "_stride", "_window_us")

    def __init__(self, window_us: int) -> None:
        self._window_us = window_us
        self._ends_us = 0
        self._last = Load()
        self._begin(0)

    def _begin(self, boot_us: int) -> None:
        self._ends_us = boot_us + self._window_us
        self._count = 0
        self._keys: list[bytes] = []
        self._stride = self._next = 1

    def count(self, request: Request, boot_us: int) -> None:
        """Take in a request from a client."""
        self._turn(boot_us)
        rows = _rows_of(request)
        if self._count + rows < self._next:
            self._count += rows  # as nearly always: none of its keys is kept
            return
        for key in _keys_of(request):
            self._count += 1
            if self._count == self._next:
                self._keep(key)

    def _keep(self, key: bytes) -> None:
        self._keys.append(key)
        self._next = self._count + self._stride
        if len(self._keys) == _MAX_KEYS:
            # Half as many from here on; this one, the last, is not kept either.
            del self._keys[1::2]
            self._stride *= 2

    def reading(self, boot_us: int) -> Load:
        """Return the load in the last window that is over."""
        self._turn(boot_us)
        return self._last

    def _turn(self, boot_us: int) -> None:
        if boot_us < self._ends_us:
            return
        late = boot_us >= self._ends_us + self._window_us
        self._last = Load() if late else Load(self._count * 1e6 / self._window_us, tuple(self._keys))
        self._begin(boot_us)


def _rows_of(request: Request) -> int:
    """Return how many keys :func:`_keys_of` gives."""
    match request:
        case Read() | LockRead():
            return len(request.keys) + len(request.ranges)
        case Settle():
            return len(request.ranges)
        case Commit() | Prepare():
            return len(request.work.writes)
        case Bundle():
            return sum(len(work.writes) for work in request.works)
        case _:
            return 0


def _keys_of(request: Request) -> Iterator[bytes]:
    match request:
        case Read() | LockRead():
            yield from request.keys
            yield from (item.start for item in request.ranges)
        case Settle():
            yield from (item.start for item in request.ranges)
        case Commit() | Prepare():
            yield from (write.key for write in request.work.writes)
        case Bundle():
            yield from (write.key for work in request.works for write in work.writes)
        case _:
            return
