"""Jittered exponential back-off between attempts to reach a peer."""

import random

from f1common.errors import check


class Backoff:
    """Delays that grow from ``initial_ms`` by ``multiplier`` up to ``cap_ms``, each jittered over its upper half.

    The jitter keeps clients that lost one server at the same moment from coming back at the same moment; its lower
    bound keeps the growth meaningful. The caller sleeps: this class knows no clock. ``rng`` is the caller's.
    """

    __slots__ = ("_cap_ms", "_initial_ms", "_multiplier", "_next_ms", "_rng")

    def __init__(self, initial_ms: float, cap_ms: float, multiplier: float, rng: random.Random) -> None:
        check(0 < initial_ms <= cap_ms, "a back-off starts above 0 ms and at or below its cap")
        check(multiplier >= 1, "a back-off does not shrink")
        self._initial_ms = initial_ms
        self._cap_ms = cap_ms
        self._multiplier = multiplier
        self._rng = rng
        self._next_ms = initial_ms

    def next_s(self) -> float:
        """Return the next delay in seconds."""
        full_ms = self._next_ms
        self._next_ms = min(full_ms * self._multiplier, self._cap_ms)
        return full_ms * (0.5 + 0.5 * self._rng.random()) / 1000

    def reset(self) -> None:
        """Start again from the initial delay: the peer was reached."""
        self._next_ms = self._initial_ms
