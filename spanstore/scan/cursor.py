"""One scan in steps: each from a view of its own, each goes on where the one before it stopped."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

from f1common.encoding.row import decode_row
from f1common.errors import Code, F1Error, check
from spanstore.engine.base import Reader
from spanstore.group.garbage import check_readable, load_collected
from spanstore.group.holding import load_holdings
from spanstore.group.storage import load_applied, load_whole_from
from spanstore.mvcc.live import LivePage, LiveRows
from spanstore.scan.decode import Decoder, Rows
from spanstore.scan.keys import KeyFilter, not_so_written
from spanstore.scan.plan import ScanPlan, check_plan

_MAX_BATCH_ROWS = 8192
_MAX_BATCH_BYTES = 1 << 20
_MAX_STRANGERS = 8
"""Keys of other tables that are walked over before seeking past them: a seek costs about as much as so many steps."""
_ITEMS_PER_CHECK = 512
"""Engine items of a page, after which the clock is looked at: so many are passed in a step, so that it gets on."""
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
        self._most = items_per_check
        """Items of a page: few after one with keys of other tables, since what lies behind those is read in vain."""
        self._strangers = 0
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
        while not self._done and self._collect(reader, rows, wanted, until_us):
            self._range += 1
            self._done = self._range == len(plan.ranges)
            self._start = b"" if self._done else plan.ranges[self._range][0]
            if self._boot_us() >= until_us:
                break  # there may be many ranges with nothing in them
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
            raise not_so_written(_first_unreadable(rows), error) from error

    def _at(self, ipc: bytes, rows: int) -> Step:
        return Step(ipc, rows, self._range, self._start, self._done)

    def _collect(self, reader: Reader, rows: Rows, wanted: int, until_us: int) -> bool:
        """Add rows of the current range; tell whether it came to its end before the batch was full or time was up."""
        plan, end = self._plan, self._plan.ranges[self._range][1]
        live: LiveRows | None = None
        looked_at = 0
        while self._start < end:
            if live is None:
                live = LiveRows(reader, plan.group, self._start, end, plan.timestamp)
            most = min(self._most, wanted - len(rows.keys))
            page = live.page(most, _MAX_BATCH_BYTES - rows.size)
            skip_to = self._take(page, rows)
            # What was reached may be an older version of the last row, which was taken already.
            self._start = skip_to or max(self._start, page.reached)
            if rows.size >= _MAX_BATCH_BYTES or len(rows.keys) >= wanted:
                return False
            if skip_to:
                live = None
            elif page.last:
                return True
            looked_at += page.looked_at
            if looked_at >= self._items_per_check and self._boot_us() >= until_us:
                return False
        return True

    def _take(self, page: LivePage, rows: Rows) -> bytes:
        """Add the rows of the table that is asked for; return where to go on if too many others are in the way."""
        keys, stamps, values, skip_to = page.keys, page.stamps, page.values, b""
        mask: list[bool] = []
        if page.keys:
            self._start = page.keys[-1] + b"\x00"
        if self._filter.filters:
            if self._filter.all_match(keys):
                self._strangers = 0
            else:
                mask, skip_to = self._sift(keys)
            if not all(mask) or skip_to:
                keys = list(compress(keys, mask))
                stamps = list(compress(stamps, mask))
                values = list(compress(values, mask))
                self._most = _FEWEST_ITEMS // 2
            else:
                self._most = min(self._most * 2, self._items_per_check)
        rows.keys += keys
        rows.stamps += stamps
        rows.values += values
        rows.size += sum(map(len, keys)) + sum(map(len, values))
        return skip_to

    def _sift(self, keys: Sequence[bytes]) -> tuple[list[bool], bytes]:
        """Tell which keys are rows of the table, as far as they were looked at, and where to go on if few are."""
        of_table = self._filter
        mask: list[bool] = []
        for key in keys:
            fits = of_table.matches(key)
            mask.append(fits)
            self._strangers = 0 if fits else self._strangers + 1
            if self._strangers > _MAX_STRANGERS:
                self._strangers = 0
                return mask, of_table.next_candidate(key)
        return mask, b""


def _first_unreadable(rows: Rows) -> bytes:
    for key, value in zip(rows.keys, rows.values, strict=True):
        try:
            decode_row(value)
        except F1Error:
            return key
    return rows.keys[0]
