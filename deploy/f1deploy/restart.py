"""When a process that exited by itself is started again: soon, then later and later, and in a crash loop never."""

from dataclasses import dataclass

FIRST_DELAY_US = 200_000
MAX_DELAY_US = 5_000_000
STEADY_US = 10_000_000
MAX_QUICK_EXITS = 5


@dataclass(frozen=True, slots=True)
class Restarts:
    """How a process has fared; ``quick_exits`` counts exits in a row that came within ten seconds of a start."""

    quick_exits: int = 0
    total: int = 0

    def after_exit(self, lived_us: int) -> tuple["Restarts", int | None]:
        """Return the new count and the microseconds to wait before the next start, None for: no more.

        ``lived_us`` is how long the process ran. One that ran for a while counts as healthy again.
        """
        quick = 1 if lived_us >= STEADY_US else self.quick_exits + 1
        if quick > MAX_QUICK_EXITS:
            return Restarts(quick, self.total), None
        delay = min(FIRST_DELAY_US << (quick - 1), MAX_DELAY_US)
        return Restarts(quick, self.total + 1), delay
