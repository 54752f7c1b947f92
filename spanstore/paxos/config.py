"""The settings of a replica, in microseconds and bytes."""

from dataclasses import dataclass

from f1common.errors import check

PPM = 1_000_000


@dataclass(frozen=True, slots=True)
class PaxosConfig:
    """Timing and sizes of one replica. Raises InvariantViolation if the relations between them do not hold.

    ``lease_us``: length of a leader lease as acceptors grant it; its holder uses it for ``drift_margin_ppm`` less,
    which must cover the drift of two clocks against each other. ``heartbeat_us``: longest silence of a leader.
    ``election_timeout_us``: range of the random delay of candidates. ``retry_us``: an acceptor silent for so long is
    only probed. ``max_accept_bytes`` and ``max_inflight_bytes`` bound one Accept and all unanswered ones of
    an acceptor; ``cache_bytes`` the log kept in memory beyond what it must; ``log_keep_entries`` is how much of the log
    stays that nobody needs, ``log_hold_entries`` and ``log_hold_bytes`` how much is kept at most for a member that does
    not come: it will have to fetch the state instead. ``promote_lag_entries`` is how much of the log a learner may lack
    when it becomes a voter.
    """

    lease_us: int = 1_500_000
    heartbeat_us: int = 100_000
    election_timeout_us: int = 500_000
    retry_us: int = 400_000
    drift_margin_ppm: int = 20_000
    max_accept_bytes: int = 1 << 20
    max_inflight_bytes: int = 4 << 20
    cache_bytes: int = 16 << 20
    log_keep_entries: int = 10_000
    log_hold_entries: int = 200_000
    log_hold_bytes: int = 256 << 20
    promote_lag_entries: int = 1_000

    def __post_init__(self) -> None:
        check(self.heartbeat_us > 0, "heartbeat_us must be positive")
        check(self.election_timeout_us >= 3 * self.heartbeat_us, "election_timeout_us must be 3 heartbeats or more")
        check(self.lease_us > self.election_timeout_us, "lease_us must exceed election_timeout_us")
        check(self.retry_us >= self.heartbeat_us, "retry_us must be a heartbeat or more")
        check(0 < self.drift_margin_ppm < PPM // 2, "drift_margin_ppm must be positive and below a half")
        check(self.max_accept_bytes > 0 and self.max_inflight_bytes > 0, "byte limits must be positive")
        check(self.cache_bytes >= 0 and self.log_keep_entries >= 0, "sizes must not be negative")
        check(self.log_hold_entries >= self.log_keep_entries, "log_hold_entries must be log_keep_entries or more")
        check(self.log_hold_bytes >= 0, "log_hold_bytes must not be negative")

    @property
    def held_us(self) -> int:
        """How long the holder uses a lease, counted from the send time on its own boot clock."""
        return self.lease_us * (PPM - self.drift_margin_ppm) // PPM
