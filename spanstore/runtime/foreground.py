"""How users are served: how long their reads and commits take at this server. Pure.

Work that nobody waits for, such as filling an index, looks at this to learn whether it is in somebody's way. Older
requests count less and less: what is told is about the last second or so. Requests that are such work themselves do not
count, or it would find its own batches slow and give way to itself.
"""

import math
from dataclasses import dataclass

__all__ = ["ForegroundMeter", "Served"]

_DECAY_US = 700_000
"""In so long the weight of a request falls to 1/e."""


@dataclass(slots=True)
class Served:
    """Requests of one kind: how many, older ones counting less, and how long they took together, in microseconds."""

    count: float = 0.0
    sum_us: float = 0.0

    @property
    def mean_us(self) -> float:
        """How long one took on average; 0 without any."""
        return self.sum_us / self.count if self.count > 0 else 0.0


class ForegroundMeter:
    """Takes in how long requests took. Times are those of the boot clock, in microseconds."""

    __slots__ = ("_at_us", "commits", "reads")

    def __init__(self) -> None:
        self.reads = Served()
        self.commits = Served()
        self._at_us = 0

    def add(self, kind: str, took_us: int, boot_us: int, count: int = 1) -> None:
        """A request of a user was answered, or of ``count`` users; ``kind`` is the name of its message.

        Other kinds than reads and commits do not count.
        """
        if kind == "read":
            served = self.reads
        elif kind in ("commit", "bundle"):
            served = self.commits
        else:
            return
        self.settle(boot_us)
        served.count += count
        served.sum_us += took_us * count

    def settle(self, boot_us: int) -> None:
        """Let what is there count for less, by the time that has passed."""
        if boot_us <= self._at_us:
            return
        factor = math.exp((self._at_us - boot_us) / _DECAY_US)
        self._at_us = boot_us
        for served in (self.reads, self.commits):
            served.count *= factor
            served.sum_us *= factor
