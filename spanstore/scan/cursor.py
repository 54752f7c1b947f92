"""One scan in steps: each from a view of its own, each goes on where the one before it stopped."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from f1common.encoding import tuple as tuples
from f1common.encoding.row import decode_row
from f1common.encoding.tuple import Value
from f1common.errors import Code, F1Error, check
from spanstore.engine.base import Reader
from spanstore.group.garbage import check_readable, load_collected
from spanstore.group.holding import load_holdings
from spanstore.group.storage import load_applied, load_whole_from
from spanstore.mvcc.versions import scan_versions, split_version_key
from spanstore.scan.decode import Decoder, Rows
from spanstore.scan.keys import KeyFilter
from spanstore.scan.plan import ScanPlan, check_plan

_MAX_BATCH_ROWS = 8192
_MAX_BATCH_BYTES = 1 << 20
_MAX_STRANGERS = 8
"""Keys of other tables that are walked over before seeking past them: a seek costs about as much as so many steps."""
_ITEMS_PER_CHECK = 512
"""Engine items between two looks at the clock: at least so many are passed in a step, so that every step gets on."""
_FEWEST_ITEMS = 32
"""What one key can cost at most: walks over some of its versions, a seek, and as many again."""


@dataclass(frozen=True, slots=True)
class Step:
    """What a step found: a record batch as an IPC message (empty without rows), and where the next one goes on."""

    ipc: bytes
    rows: int
    range: int
    resume: bytes
    last: bool


def check_view(reader: Reader, plan: ScanPlan) -> None:
    """Refuse a view that lacks what the timestamp of ``plan`` needs, or some of its ranges.

    Rows of a range that was given away are removed some time later. Raises F1Error UNAVAILABLE, WRONG_RANGE.
    """
    applied = load_applied(reader, plan.group).index
    # Since the timestamp settled, the replica may have been installed from another: then its rows are ahead at first.
    needed = max(plan.min_index, load_whole_from(reader, plan.group))
    if applied < needed:
        raise F1Error(
            Code.UNAVAILABLE,
            f"this view of group {plan.group} has applied {applied}, the scan needs {needed}; try again",
        )
    holdings = load_holdings(reader, plan.group)
    if holdings is None or holdings.epoch == plan.range_epoch:
        return
    if not all(holdings.owns_all(start, end) for start, end in plan.ranges):
        raise F1Error(
            Code.WRONG_RANGE,
            f"group {plan.group} gave away some of what is scanned; refresh the range map",
            retryable=True,
        )


class _TimeIsOver(Exception):
    """The step has had its time; carries the engine key that was reached and not looked at."""

    def __init__(self, engine_key: bytes) -> None:
        super().__init__()
        self.engine_key = engine_key


class ScanCursor:
    """The position of a scan and how to read on from it."""

    def __init__(
        self,
        plan: ScanPlan,
        boot_us: Callable[[], int],
        *,
        step_us: int = 100_000,
        max_rows: int = _MAX_BATCH_ROWS,
        items_per_check: int = _ITEMS_PER_CHECK,
    ) -> None:
        """Begin at the first range. A step takes about ``step_us`` at most. Raises F1Error INVALID_ARGUMENT."""
        check_plan(plan)
        check(items_per_check >= _FEWEST_ITEMS, "a step must be able to pass at least one key")
        self._plan = plan
        self._boot_us = boot_us
        self._step_us = step_us
        self._items_per_check = items_per_check
        self._decoder = Decoder(plan)
        self._filter = KeyFilter(plan.shape)
        self._needs_parts = self._decoder.needs_parts or self._filter.filters
        self._max_rows = min(plan.batch_rows or max_rows, max_rows)
        self._left = plan.limit or -1
        self._range = 0
        self._start = plan.ranges[0][0]
        self._done = False

    def schema(self) -> Step:
        """Return the schema as an IPC message, and the beginning as the position."""
        return self._at(self._decoder.schema.serialize().to_pybytes(), 0)

    def step(self, reader: Reader) -> Step:
        """Read on from ``reader``, a view that was opened after the scan was asked for.

        Raises F1Error DATA_CORRUPTION (a version is damaged), INVALID_ARGUMENT (a column has another type, or what was
        written is no row), UNAVAILABLE (the view lacks what
        the timestamp needs), WRONG_RANGE, SNAPSHOT_TOO_OLD (the timestamp lies below the garbage mark by now).
        """
        plan = self._plan
        check_view(reader, plan)
        # In the view that is read: garbage below the mark may be gone from it, whatever the view before this one had.
        check_readable(plan.timestamp, load_collected(reader, plan.group).mark_ts, plan.group)
        rows = Rows()
        # Without predicates every row that is read counts.
        wanted = self._max_rows if plan.predicates or self._left < 0 else min(self._max_rows, self._left)
        until_us = self._boot_us() + self._step_us
        timed = _TimedReader(reader, self._boot_us, until_us, self._items_per_check)
        try:
            while not self._done and self._collect(timed, rows, wanted):
                self._range += 1
                self._done = self._range == len(plan.ranges)
                self._start = b"" if self._done else plan.ranges[self._range][0]
                if self._boot_us() >= until_us:
                    break  # there may be many ranges with nothing in them
        except _TimeIsOver as reached:
            key, _ = split_version_key(reached.engine_key)
            # It may be an older version of the last row, which was taken already.
            self._start = max(self._start, key)
        if not rows.keys:
            return self._at(b"", 0)
        batch = self._decoded(rows)
        if 0 <= self._left <= batch.num_rows:
            batch = batch.slice(0, self._left)
            self._done = True
        self._left -= batch.num_rows
        return self._at(batch.serialize().to_pybytes() if batch.num_rows else b"", batch.num_rows)

    def _decoded(self, rows: Rows) -> Any:
        """Return the record batch of ``rows``. Raises F1Error INVALID_ARGUMENT, which says of which row."""
        try:
            return self._decoder.batch(rows)
        except F1Error as error:
            if error.code is not Code.DATA_CORRUPTION:
                raise
            raise _not_so_written(_first_unreadable(rows), error) from error

    def _at(self, ipc: bytes, rows: int) -> Step:
        return Step(ipc, rows, self._range, self._start, self._done)

    def _collect(self, reader: Reader, rows: Rows, wanted: int) -> bool:
        """Add rows of the current range; tell whether it came to its end before the batch was full."""
        plan, keys, end = self._plan, self._filter, self._plan.ranges[self._range][1]
        strangers = 0
        while self._start < end:
            skip_to = b""
            for key, version in scan_versions(reader, plan.group, self._start, end, plan.timestamp):
                self._start = key + b"\x00"
                if self._needs_parts:
                    parts = _elements(key)
                    if keys.filters and not keys.matches(parts):
                        strangers += 1
                        if strangers > _MAX_STRANGERS:
                            skip_to = keys.next_candidate(key)
                            break
                        continue
                    rows.parts.append(parts)
                strangers = 0
                value = version.value or b""
                rows.keys.append(key)
                rows.stamps.append(version.ts)
                rows.values.append(value)
                rows.size += len(key) + len(value)
                if rows.size >= _MAX_BATCH_BYTES or len(rows.keys) >= wanted:
                    return False
            if not skip_to:
                return True
            self._start = skip_to
        return True


def _elements(key: bytes) -> tuple[Value, ...]:
    """Return the elements of a key. Raises F1Error INVALID_ARGUMENT."""
    try:
        return tuples.decode(key)
    except F1Error as error:
        raise _not_so_written(key, error) from error


def _first_unreadable(rows: Rows) -> bytes:
    for key, value in zip(rows.keys, rows.values, strict=True):
        try:
            decode_row(value)
        except F1Error:
            return key
    return rows.keys[0]


def _not_so_written(key: bytes, error: F1Error) -> F1Error:
    """Return the error of a version that is stored as it was written, by its checksum, and is no row of a table.

    It is none of a damaged disk: every replica has these bytes, and taking one after the other out of service because
    of them would leave nobody to rebuild them from.
    """
    return F1Error(
        Code.INVALID_ARGUMENT,
        f"what was written with the key {key.hex()} cannot be read as a row: {error.message}; scan keys and values as "
        "they are stored",
        details={"key": key.hex()},
    )


class _TimedReader:
    """A view that stops its scans when the time of the step is over."""

    __slots__ = ("_boot_us", "_items_per_check", "_reader", "_room", "_until_us")

    def __init__(self, reader: Reader, boot_us: Callable[[], int], until_us: int, items_per_check: int) -> None:
        self._reader = reader
        self._boot_us = boot_us
        self._until_us = until_us
        self._items_per_check = items_per_check
        self._room = items_per_check

    def get(self, key: bytes) -> bytes | None:
        return self._reader.get(key)

    def scan(self, start: bytes, end: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        for item in self._reader.scan(start, end, reverse=reverse):
            self._room -= 1
            if self._room < 0:
                if self._boot_us() >= self._until_us:
                    raise _TimeIsOver(item[0])
                self._room = self._items_per_check
            yield item

    def seek_first(self, start: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        return self._reader.seek_first(start, end)

    def seek_last(self, start: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        return self._reader.seek_last(start, end)

    def close(self) -> None:
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
