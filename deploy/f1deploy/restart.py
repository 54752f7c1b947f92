"""When a process that exited by itself is started again: soon, then later and later, and in a crash loop never."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """``steady_us`` is how long a process has to run to count as healthy again; more than ``max_quick_exits`` exits in
    a row before that end the attempts.
    """

    first_delay_us: int = 200_000
    max_delay_us: int = 5_000_000
    steady_us: int = 10_000_000
    max_quick_exits: int = 5


@dataclass(frozen=True, slots=True)
class Restarts:
    """How a process has fared: exits in a row that came soon after a start, and restarts since the cluster was made."""

    quick_exits: int = 0
    total: int = 0

    def after_exit(self, lived_us: int, policy: RestartPolicy) -> tuple["Restarts", int | None]:
        """Return the new count and the microseconds to wait before the next start, None for: no more.

        ``lived_us`` is how long the process ran.
        """
        quick = 1 if lived_us >= policy.steady_us else self.quick_exits + 1
        if quick > policy.max_quick_exits:
            return Restarts(quick, self.total), None
        delay = min(policy.first_delay_us << (quick - 1), policy.max_delay_us)
        return Restarts(quick, self.total + 1), delay
