"""One replica of a Paxos group as a pure state machine."""

import random
from enum import Enum

from f1common.clock import Now
from spanstore.paxos.config import PaxosConfig
from spanstore.paxos.effects import Effects
from spanstore.paxos.log import LogReader
from spanstore.paxos.messages import Ballot, HardState, LogEntry, Message


class Role(Enum):
    """What a replica is at the moment."""

    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEADER = "leader"


class Replica:
    """One replica; see the package docstring for the protocol and :class:`Effects` for the driver's duties."""

    def __init__(
        self,
        *,
        group: int,
        me: str,
        voters: tuple[str, ...],
        config: PaxosConfig,
        log: LogReader,
        hard_state: HardState,
        applied_index: int,
        now: Now,
        rng: random.Random,
    ) -> None:
        raise NotImplementedError

    @property
    def role(self) -> Role:
        """Follower, candidate or leader."""
        raise NotImplementedError

    @property
    def ballot(self) -> Ballot:
        """The highest ballot promised, a leader's own while it leads."""
        raise NotImplementedError

    @property
    def leader(self) -> str | None:
        """The leader that this replica knows of."""
        raise NotImplementedError

    @property
    def chosen_index(self) -> int:
        """All entries up to this index are known to be chosen."""
        raise NotImplementedError

    @property
    def last_index(self) -> int:
        """The last index of the log, durable or not."""
        raise NotImplementedError

    @property
    def safe(self) -> tuple[int, int]:
        """The newest (index, timestamp) learned: a replica that applied the index has all up to the timestamp."""
        raise NotImplementedError

    @property
    def ceiling_floor(self) -> int:
        """Highest ceiling learned at the election; a leader gives timestamps above it only."""
        raise NotImplementedError

    @property
    def usable_ceiling(self) -> int:
        """Leader: the highest timestamp that it may give out, as a quorum promised durably; 0 if none."""
        raise NotImplementedError

    def match(self, replica: str) -> int:
        """Leader: how far ``replica`` is known to hold this leader's log durably."""
        raise NotImplementedError

    def next_wakeup(self, now: Now) -> int:
        """Return the boot time at which :meth:`tick` should be called at the latest, in microseconds."""
        raise NotImplementedError

    def lease_valid(self, boot_us: int) -> bool:
        """Tell whether this replica leads and holds the lease at ``boot_us``, which must be a fresh sample."""
        raise NotImplementedError

    def step(self, sender: str, message: Message, now: Now) -> None:
        """Take in one message."""
        raise NotImplementedError

    def tick(self, now: Now) -> None:
        """Let time pass: elections, lost quorums, silent acceptors."""
        raise NotImplementedError

    def propose(self, payload: bytes) -> int | None:
        """Append an entry to the log and return its index, None when not leader."""
        raise NotImplementedError

    def transfer(self, to: str, highest_ts: int) -> bool:
        """Give up leadership in favour of a caught-up voter; False (and nothing done) if ``to`` is not."""
        raise NotImplementedError

    def set_safe(self, index: int, ts: int) -> None:
        """Leader: the pair that the next Accepts carry."""
        raise NotImplementedError

    def want_ceiling(self, ts: int) -> None:
        """Leader: ask for a ceiling of at least ``ts`` with the next Accepts."""
        raise NotImplementedError

    def flush(self, now: Now) -> Effects:
        """Return everything that accumulated since the last flush. Once per turn."""
        raise NotImplementedError

    def synced(self, effects: Effects, now: Now) -> None:
        """Take in that the writes of ``effects`` are durable. In the order of flushes."""
        raise NotImplementedError

    def take_chosen(self, max_bytes: int) -> list[LogEntry]:
        """Return the next chosen entries that were not handed out yet, in order; at least one if there is one."""
        raise NotImplementedError

    def applied(self, index: int) -> None:
        """Take in that everything up to ``index`` was applied durably."""
        raise NotImplementedError
