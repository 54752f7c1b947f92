"""TrueTime and the boot clock: the only module that reads the operating system's clocks.

Spanner (section 3) assigns timestamps from ``TT.now()``, an interval that contains the absolute time. Two clocks
are sampled together here, because the rules that use them are different:

* ``tt`` gives commit timestamps and decides about safe reads. Its bound must be true: external consistency rests
  on it. A false bound keeps causal order only (hybrid ratchet), never strict real-time order between clients.
* ``boot_us`` measures how long something lasted on this machine: leader leases and timeouts. It is CLOCK_BOOTTIME,
  which goes on while the machine sleeps (CLOCK_MONOTONIC does not: a lease would outlive its holders' memory).

Sources:

* :class:`SameHostClock`: all processes of one machine compute absolute time as the boot clock plus one offset that
  was fixed when the cluster was first started after a boot. All agree exactly and never go back: the bound is 0.
* :class:`BoundedClock`: the system clock with a bound that the operator vouches for.
* :class:`KernelClock`: the system clock with the kernel's own maximum error (``adjtimex``); an unsynchronised
  clock is refused.
* :class:`ManualClock`: for tests and the simulator.

All values are integers in microseconds. Assumed of the hardware: monotonic drift under 1 %.
"""

import ctypes
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, assert_never

from f1common.config import ClockSection
from f1common.errors import Code, F1Error, check

_BOOT_ID_PATH = Path("/proc/sys/kernel/random/boot_id")
_PARTS_PER_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class TTInterval:
    """An interval that contains the absolute time, in microseconds since the Unix epoch (Spanner, section 3)."""

    earliest: int
    latest: int

    def after(self, ts: int) -> bool:
        """Tell whether ``ts`` has definitely passed (``TT.after``)."""
        return ts < self.earliest

    def before(self, ts: int) -> bool:
        """Tell whether ``ts`` has definitely not arrived (``TT.before``)."""
        return ts > self.latest


@dataclass(frozen=True, slots=True)
class Now:
    """One sample of both clocks."""

    boot_us: int
    tt: TTInterval


class Clock(Protocol):
    """What every process tells the time with."""

    def sample(self) -> Now:
        """Sample both clocks. Raises F1Error CLOCK_SKEW if the bound of the clock cannot be known now."""
        ...


def boot_us() -> int:
    """Return microseconds since the machine booted, sleep included."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


def boot_id() -> str:
    """Return the kernel's random name of this boot. Raises F1Error UNAVAILABLE where the kernel gives none."""
    try:
        return _BOOT_ID_PATH.read_text(encoding="ascii").strip()
    except OSError as error:
        raise F1Error(Code.UNAVAILABLE, f"cannot read the boot id from {_BOOT_ID_PATH}: {error}") from error


def measure_same_host_offset_us() -> int:
    """Return system clock minus boot clock, in microseconds: the offset for :class:`SameHostClock`.

    Whoever starts the processes of a machine calls this once per boot, keeps the value beside :func:`boot_id` and
    hands it to all of them. Measuring twice within a boot would let time go back, so see :func:`same_host_offset_us`.
    """
    before = boot_us()
    wall = time.time_ns() // 1000
    return wall - (before + boot_us()) // 2


def same_host_offset_us(state_path: Path) -> int:
    """Return this boot's offset as kept in the file ``state_path``, measuring and keeping it if the boot is new.

    For the one supervisor that starts a machine's processes: two callers at once might each keep their own.
    A new boot's offset is measured from the system clock, which may have been set back meanwhile: the highest
    timestamp ever given out is the storage tier's to remember (the ceiling of leader leases), not this file's.
    Raises F1Error BAD_DATA_DIR if the file cannot be written.
    """
    current = boot_id()
    try:
        kept_boot, _, kept_offset = state_path.read_text(encoding="ascii").strip().partition(" ")
        if kept_boot == current:
            return int(kept_offset)
    except (OSError, ValueError):
        pass  # absent or torn: this boot's offset is not kept yet
    offset_us = measure_same_host_offset_us()
    scratch = state_path.with_name(f"{state_path.name}.{os.getpid()}")
    try:
        scratch.write_text(f"{current} {offset_us}\n", encoding="ascii")
        scratch.replace(state_path)
    except OSError as error:
        raise F1Error(Code.BAD_DATA_DIR, f"cannot keep the clock offset in {state_path}: {error}") from error
    return offset_us


class SameHostClock:
    """The boot clock plus an offset fixed per boot: identical in all processes of a machine, never goes back."""

    __slots__ = ("_offset_us",)

    def __init__(self, offset_us: int) -> None:
        self._offset_us = offset_us

    def sample(self) -> Now:
        """Sample the boot clock once; the interval has no width."""
        boot = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
        now = boot + self._offset_us
        return Now(boot, TTInterval(now, now))


class BoundedClock:
    """The system clock with a bound on its error that the operator vouches for, in microseconds."""

    __slots__ = ("_bound_us",)

    def __init__(self, bound_us: int) -> None:
        if bound_us < 0:
            raise F1Error(Code.INVALID_ARGUMENT, f"a clock's bound is at least 0 us, not {bound_us}")
        self._bound_us = bound_us

    def sample(self) -> Now:
        """Sample both clocks of the machine."""
        boot = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
        wall = time.time_ns() // 1000
        return Now(boot, TTInterval(wall - self._bound_us, wall + self._bound_us))


class _Timeval(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_usec", ctypes.c_long))


class _Timex(ctypes.Structure):
    """``struct timex`` of <sys/timex.h>; the tail is room for counters that are not read here."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("constant", ctypes.c_long),
        ("precision", ctypes.c_long),
        ("tolerance", ctypes.c_long),
        ("time", _Timeval),
        ("tick", ctypes.c_long),
        ("tail", ctypes.c_byte * 128),
    )


_STA_UNSYNC = 0x0040
_STA_NANO = 0x2000
_TIME_ERROR = 5

AdjtimexReading = tuple[int, int, int, int]
"""State returned by adjtimex, its status bits, time in microseconds since the epoch, maximum error in microseconds."""


def _read_adjtimex() -> AdjtimexReading:
    libc = ctypes.CDLL(None, use_errno=True)
    timex = _Timex()
    state = libc.adjtimex(ctypes.byref(timex))
    if state < 0:
        reason = os.strerror(ctypes.get_errno())
        raise F1Error(
            Code.CLOCK_SKEW,
            f"adjtimex failed ({reason}); set clock.source to 'bounded' with a bound_us that you can vouch for",
        )
    return _reading(state, timex)


def _reading(state: int, timex: _Timex) -> AdjtimexReading:
    # Once an NTP daemon has asked for it, the kernel counts nanoseconds where the structure says microseconds.
    fraction_us = timex.time.tv_usec // 1000 if timex.status & _STA_NANO else timex.time.tv_usec
    return state, timex.status, timex.time.tv_sec * 1_000_000 + fraction_us, timex.maxerror


class KernelClock:
    """The system clock with the kernel's own maximum error; refuses a clock that the kernel calls unsynchronised."""

    __slots__ = ("_read",)

    def __init__(self, read: Callable[[], AdjtimexReading] = _read_adjtimex) -> None:
        """Take the reader of ``adjtimex`` (tests replace it). Raises F1Error CLOCK_SKEW if unsynchronised now."""
        self._read = read
        self.sample()

    def sample(self) -> Now:
        """Sample both clocks. Raises F1Error CLOCK_SKEW once the kernel no longer vouches for its bound."""
        boot = boot_us()
        state, status, wall, max_error = self._read()
        if state == _TIME_ERROR or status & _STA_UNSYNC:
            raise F1Error(
                Code.CLOCK_SKEW,
                "the kernel says that the system clock is not synchronised; start an NTP daemon (chronyd, ntpd or "
                "systemd-timesyncd) and wait until `adjtimex` or `chronyc tracking` shows it synchronised, or set "
                "clock.source to 'bounded' with a bound_us that you can vouch for",
            )
        return Now(boot, TTInterval(wall - max_error, wall + max_error))


class HoldoverClock:
    """A clock that goes on when its source no longer vouches for itself, with a bound that grows as clocks drift.

    A spanserver must not stop because the kernel calls its clock unsynchronised: its replicas still vote and apply. The
    last good interval is carried on by the boot clock, widened by ``drift_ppm`` of the time since, which keeps its
    bound true as long as the boot clock drifts within its own. :attr:`failure` says why, for as long as it lasts.
    """

    __slots__ = ("_drift_ppm", "_last", "_source", "failure")

    def __init__(self, source: Clock, drift_ppm: int) -> None:
        """Take a source that works now. Raises F1Error CLOCK_SKEW if it does not."""
        self._source = source
        self._drift_ppm = drift_ppm
        self._last = source.sample()
        self.failure: F1Error | None = None
        """What the source said when it was asked last, None if it gave the time."""

    def sample(self) -> Now:
        """Sample both clocks."""
        try:
            self._last = now = self._source.sample()
            self.failure = None
            return now
        except F1Error as error:
            if error.code is not Code.CLOCK_SKEW:
                raise
            self.failure = error
        boot = boot_us()
        passed = boot - self._last.boot_us
        error_us = passed * self._drift_ppm // _PARTS_PER_MILLION + 1
        interval = self._last.tt
        return Now(boot, TTInterval(interval.earliest + passed - error_us, interval.latest + passed + error_us))


class ManualClock:
    """A clock for tests and the simulator: time moves only when told to, and every fault of a clock can be played.

    Without a ``time_source`` true time starts at ``tt_us`` (by default equal to ``boot_us``) and moves by
    :meth:`advance`. With one, a callable that returns virtual time in microseconds, the boot clock is that time seen
    through ``drift_ppm`` and true time is ``offset_us`` above it; :meth:`advance` then adds to both.

    ``bound_us`` is what the clock claims; ``skew`` is its real error, so a skew above the bound is a lying clock.
    """

    __slots__ = ("_boot_base_us", "_bound_us", "_drift_ppm", "_extra_us", "_skew_us", "_source", "_tt_base_us")

    def __init__(
        self,
        time_source: Callable[[], int] | None = None,
        offset_us: int = 0,
        bound_us: int = 0,
        drift_ppm: int = 0,
        *,
        boot_us: int = 0,
        tt_us: int | None = None,
    ) -> None:
        check(bound_us >= 0, "bound_us is at least 0")
        check(time_source is None or (boot_us == 0 and tt_us is None), "a time source replaces boot_us and tt_us")
        self._source = time_source
        self._boot_base_us = boot_us
        self._tt_base_us = (boot_us if tt_us is None else tt_us) + offset_us
        self._bound_us = bound_us
        self._drift_ppm = drift_ppm
        self._extra_us = 0
        self._skew_us = 0

    def sample(self) -> Now:
        """Return the manual time."""
        elapsed = self._extra_us
        if self._source is not None:
            virtual = self._source()
            elapsed += virtual + virtual * self._drift_ppm // _PARTS_PER_MILLION
        tt = self._tt_base_us + elapsed + self._skew_us
        return Now(self._boot_base_us + elapsed, TTInterval(tt - self._bound_us, tt + self._bound_us))

    def advance(self, us: int) -> None:
        """Let ``us`` microseconds pass on both clocks; never negative, since a boot clock does not go back."""
        check(us >= 0, "a manual clock advances by at least 0 us")
        self._extra_us += us

    def set_tt(self, tt_us: int) -> None:
        """Set the middle of the interval to ``tt_us``, also backwards: wall clocks may do anything."""
        self._tt_base_us += tt_us - self.sample().tt.earliest - self._bound_us

    def set_skew(self, us: int) -> None:
        """Make the wall clock wrong by ``us`` microseconds from now on; the boot clock is not touched."""
        self._skew_us = us

    def set_bound(self, us: int) -> None:
        """Set the error that the clock admits to."""
        check(us >= 0, "bound_us is at least 0")
        self._bound_us = us


def clock_from_config(section: ClockSection) -> Clock:
    """Make the clock that the section ``[clock]`` of the configuration describes.

    Raises F1Error INVALID_ARGUMENT for a same-host clock without its offset, CLOCK_SKEW if the kernel's clock is to be
    used and is not synchronised.
    """
    match section.source:
        case "same_host":
            if section.offset_us == 0:
                raise F1Error(
                    Code.INVALID_ARGUMENT,
                    "clock.source = 'same_host' needs clock.offset_us, one value for all processes of this boot; "
                    "`f1 cluster up` sets it",
                )
            return SameHostClock(section.offset_us)
        case "bounded":
            return BoundedClock(section.bound_us)
        case "kernel":
            return KernelClock()
        case _:
            assert_never(section.source)
