"""The settings of a group, in microseconds and bytes."""

from dataclasses import dataclass, field

from spanstore.paxos.config import PaxosConfig


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Limits of one group.

    ``turn_max_bytes`` bounds what one turn applies, and what a follower answers in it; ``txn_max_bytes`` what a
    transaction may write and lock in the group; ``txn_idle_us`` is how long an unprepared transaction may hold locks
    without a request; ``resolve_after_us`` how long a participant stays prepared before it asks the coordinator;
    ``outcome_keep_us`` how long outcomes are resolvable; ``version_keep_us`` how long old versions are readable;
    ``max_skew_us`` how far ahead a foreign timestamp may be; ``read_max_bytes`` bounds what is read of one range at a
    time, ``answer_max_bytes`` the answer of a read of many keys and ranges, unless one row is larger;
    ``cede_patience_us`` how long a range that moves away stays closed while transactions in it end.
    """

    paxos: PaxosConfig = field(default_factory=PaxosConfig)
    turn_max_bytes: int = 8 << 20
    txn_idle_us: int = 10_000_000
    resolve_after_us: int = 1_500_000
    outcome_keep_us: int = 3_600_000_000
    version_keep_us: int = 3_600_000_000
    max_skew_us: int = 500_000
    txn_max_bytes: int = 20 << 20
    read_max_bytes: int = 4 << 20
    answer_max_bytes: int = 16 << 20
    read_max_rows: int = 10_000
    max_parked: int = 20_000
    cede_patience_us: int = 2_000_000
    digest_every_us: int = 0
    """How often a leader has the replicas compare a piece of their records; 0: never."""
    load_window_us: int = 10_000_000
    """Over how long the load of a replica is measured."""
