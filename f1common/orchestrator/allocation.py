"""Who may hand out timestamps, and which (patent 9619507, "timestamp service"; pure).

The durable state is one record: a *bound*, above which nothing was ever given out, and the *term* of the leader that
may give out what lies below. A leader raises the bound by a range at a time with compare-and-set and gives out the
range from memory. Who takes over writes the next term into the record and begins above the bound.

That no timestamp is given twice follows from the bound alone. That none is given after a higher one does not: a leader
that stood still for a while would go on with what it has in memory, below what its successor has given out. So a leader
holds a lease, which each of its writes prolongs from the moment *before* that write was sent, and its successor writes
no term before it has seen the record unchanged for longer than a lease. The clock is sampled after the numbers were
taken and before they are given out: whatever stopped the process in between, either the lease was good when they
were taken, or they are thrown away. A write of an earlier term of the same process prolongs nothing, since the term is
part of what it was compared with.

Times are microseconds of a monotonic clock of the process; two of them may drift by 1 % each.
"""

from dataclasses import dataclass
from typing import NamedTuple

from f1common.errors import Code, F1Error, check

__all__ = ["AllocationConfig", "BoundRecord", "Candidacy", "Tenure"]

MAX_COUNT = 1_000_000
MAX_TIMESTAMP = (1 << 62) - 1
_DRIFT_DIVISOR = 50


class BoundRecord(NamedTuple):
    """The durable record. ``resigned``: the leader of ``term`` has given out its last, so nobody need wait for it."""

    term: int
    bound: int
    resigned: bool = False


NO_RECORD = BoundRecord(0, 0, True)
"""What a record that was never written counts as."""


@dataclass(frozen=True, slots=True)
class AllocationConfig:
    """``lease_us``: how long a write lets a leader give out timestamps; ``range_size``: how far it raises the bound."""

    lease_us: int
    range_size: int = 1_000_000

    def __post_init__(self) -> None:
        """Raise F1Error INVALID_ARGUMENT for a lease or range that is not above 0."""
        if self.lease_us <= 0 or self.range_size <= 0:
            raise F1Error(Code.INVALID_ARGUMENT, "the lease and the range of a timestamp service are above 0")


class Candidacy:
    """Waits until the record has stood unchanged for longer than its leader's lease."""

    def __init__(self, config: AllocationConfig) -> None:
        self._patience_us = config.lease_us + config.lease_us // _DRIFT_DIVISOR + 1
        self._seen: tuple[BoundRecord, object] | None = None
        self._since_us = 0

    def observe(self, record: BoundRecord, version: object, now_us: int) -> BoundRecord | None:
        """Take what was just read, at ``now_us`` *after* reading; return the record to claim with, or None: wait.

        ``version`` changes with each write, equal ones included; the claim must be refused unless it is still the same.
        """
        if self._seen != (record, version):
            self._seen = (record, version)
            self._since_us = now_us
        if record.resigned or now_us - self._since_us > self._patience_us:
            return BoundRecord(record.term + 1, record.bound)
        return None


class Tenure:
    """One term of one leader: numbers in memory and the lease under which they may leave."""

    def __init__(self, config: AllocationConfig, claimed: BoundRecord, sent_us: int) -> None:
        """Begin after ``claimed`` was written; ``sent_us`` is from before that write was sent."""
        self._config = config
        self.record = claimed
        self._last = claimed.bound
        self._until_us = sent_us + config.lease_us

    @property
    def last(self) -> int:
        """The highest timestamp taken so far, or what lies below all of this term's."""
        return self._last

    def take(self, count: int) -> int | None:
        """Take ``count`` numbers and return the first, None if the bound must be raised before. INVALID_ARGUMENT.

        They may be given out only if :meth:`is_leased` says so with a clock sampled afterwards.
        """
        if not 0 < count <= MAX_COUNT:
            raise F1Error(Code.INVALID_ARGUMENT, f"a request takes 1 to {MAX_COUNT} timestamps, not {count}")
        if self._last + count > self.record.bound:
            return None
        first = self._last + 1
        self._last += count
        return first

    def is_leased(self, now_us: int) -> bool:
        """Tell whether numbers taken before ``now_us`` was sampled may be given out."""
        return now_us < self._until_us

    def raised(self, count: int = 1) -> BoundRecord:
        """Return the record to write so that there is room for a range, or for ``count`` if that is more."""
        bound = max(self.record.bound, self._last + max(count, self._config.range_size))
        if bound > MAX_TIMESTAMP:
            raise F1Error(Code.OUT_OF_RANGE, "the timestamp service has given out all timestamps that there are")
        return self.record._replace(bound=bound)

    def resignation(self) -> BoundRecord:
        """Return the record with which this term ends: what was not given out is free. Take nothing afterwards."""
        return BoundRecord(self.record.term, self._last, resigned=True)

    def wrote(self, record: BoundRecord, sent_us: int) -> None:
        """A write of ``record``, sent after ``sent_us`` was sampled, has succeeded."""
        check(record.term == self.record.term and record.bound >= self.record.bound, "a bound rises within its term")
        self.record = record
        self._until_us = max(self._until_us, sent_us + self._config.lease_us)
