"""The clocks of a simulated node, and how slow its disk is: what a nemesis may bend."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from f1common.clock import Now, TTInterval
from f1common.errors import check

_PARTS_PER_MILLION = 1_000_000


class SimClock:
    """Both clocks of a node over virtual time.

    The boot clock runs ``drift_ppm`` too fast and survives restarts of the process. True time is ``epoch_us`` plus
    virtual time; the node believes true time plus ``error_us`` and claims to be wrong by at most ``bound_us``. The
    claim is true while ``abs(error_us) <= bound_us``.
    """

    __slots__ = ("_boot_base_us", "_drift_ppm", "_epoch_us", "_since_us", "_source", "bound_us", "error_us")

    def __init__(
        self,
        source: Callable[[], int],
        *,
        epoch_us: int = 0,
        boot_us: int = 0,
        bound_us: int = 0,
        error_us: int = 0,
        drift_ppm: int = 0,
    ) -> None:
        self._source = source
        self._epoch_us = epoch_us
        self._boot_base_us = boot_us
        self._since_us = source()
        self._drift_ppm = drift_ppm
        self.bound_us = bound_us
        self.error_us = error_us

    def sample(self) -> Now:
        """Sample both clocks."""
        virtual = self._source()
        middle = self._epoch_us + virtual + self.error_us
        return Now(self._boot(virtual), TTInterval(middle - self.bound_us, middle + self.bound_us))

    def _boot(self, virtual_us: int) -> int:
        elapsed = virtual_us - self._since_us
        return self._boot_base_us + elapsed + elapsed * self._drift_ppm // _PARTS_PER_MILLION

    def true_us(self) -> int:
        """Return the true time, which no node knows."""
        return self._epoch_us + self._source()

    def is_true(self) -> bool:
        """Tell whether the claimed bound holds."""
        return abs(self.error_us) <= self.bound_us

    def set_drift(self, ppm: int) -> None:
        """Let the boot clock run at another speed from now on."""
        check(ppm > -_PARTS_PER_MILLION, "a boot clock does not go back")
        virtual = self._source()
        self._boot_base_us, self._since_us, self._drift_ppm = self._boot(virtual), virtual, ppm

    def reboot(self) -> None:
        """Start the boot clock again at zero."""
        self._boot_base_us, self._since_us = 0, self._source()


@dataclass(slots=True)
class SlowSpell:
    """A time in which every sync takes longer."""

    until_us: int
    extra_us: int


class SimDisk:
    """How long a sync of a node takes. A simulated engine asks for each commit; the disk outlives the process."""

    def __init__(
        self, source: Callable[[], int], rng: random.Random, *, min_us: int = 100, mean_extra_us: int = 200
    ) -> None:
        self._source = source
        self._rng = rng
        self._min_us = min_us
        self._mean_extra_us = mean_extra_us
        self._spell: SlowSpell | None = None
        self.full = False

    def sync_us(self) -> int:
        """Draw the duration of one sync in microseconds."""
        duration = self._min_us
        if self._mean_extra_us:
            duration += int(self._rng.expovariate(1.0 / self._mean_extra_us))
        spell = self._spell
        if spell is not None and self._source() < spell.until_us:
            duration += self._rng.randrange(spell.extra_us + 1)
        return duration

    def slow_down(self, until_us: int, extra_us: int) -> None:
        """Make each sync take up to ``extra_us`` longer until virtual time ``until_us``."""
        self._spell = SlowSpell(until_us, extra_us)

    def heal(self) -> None:
        """Be as fast as ever, with room."""
        self._spell = None
        self.full = False
