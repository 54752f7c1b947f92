"""What a replica keeps, shows to others and does in every role. :mod:`spanstore.paxos.replica` has the whole."""

import random
from enum import Enum

from f1common.clock import Now
from f1common.errors import check
from spanstore.paxos.config import PaxosConfig
from spanstore.paxos.configuration import Configuration
from spanstore.paxos.leading import Leading
from spanstore.paxos.lease import NEVER, Granted
from spanstore.paxos.log import LogReader, LogTail
from spanstore.paxos.membership import Membership
from spanstore.paxos.messages import (
    NO_BALLOT,
    Accepted,
    Ballot,
    HardState,
    LogEntry,
    Message,
    Promise,
)


class Role(Enum):
    """What a replica is at the moment."""

    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEADER = "leader"


class ReplicaCore:
    """The state of one replica and the few things that change it in all roles."""

    def __init__(
        self,
        *,
        group: int,
        me: str,
        configuration: Configuration | None,
        config: PaxosConfig,
        log: LogReader,
        hard_state: HardState,
        applied_index: int,
        now: Now,
        rng: random.Random,
    ) -> None:
        """Start or restart from what is on disk: nobody is promised anything for one maximum lease from ``now``.

        Only the single voter of a group that was never changed need not wait: nobody else can have been promised
        anything. ``configuration`` is the one in force as of ``applied_index``; None for a newcomer, which has no state
        and must fetch it.
        """
        self.group = group
        self.me = me
        self._config = config
        self._rng = rng
        self._log = LogTail(log, config.cache_bytes)
        check(0 <= applied_index <= self._log.last_index, f"applied {applied_index}, log ends {self._log.last_index}")
        self._newcomer = configuration is None
        self._membership = Membership(applied_index, configuration or Configuration())
        for entry in self._log.all_from(applied_index + 1):
            self._membership.appended(entry)
        self._may_lead = True
        self._offered: tuple[str, int] | None = None
        self._removed = False
        self._count()

        self._promised = hard_state.promised
        self._ceiling = hard_state.ceiling
        self._max_lease_us = max(hard_state.max_lease_us, config.lease_us)
        self._hard_state_changed = self._max_lease_us != hard_state.max_lease_us
        self._durable = hard_state

        self._role = Role.FOLLOWER
        self._leader: str | None = None
        self._chosen = applied_index
        self._applied = applied_index
        self._handed = applied_index
        self._safe = (0, 0)
        # Of a group that had other voters before, one may still hold a lease that this replica granted.
        alone = self.configuration.voters == (me,) and self.configuration.version == 0
        quarantine = 0 if alone else self._max_lease_us
        self._granted = Granted(now.boot_us + quarantine)
        self._jitter_us = 0 if alone else self._draw_jitter()
        self._deadline = now.boot_us + quarantine + self._jitter_us
        # Until then a promise given to one candidate keeps others from asking: fewer duels, no safety in it.
        self._courtesy_until = NEVER

        # Candidate. The ballot asked about in a pre-vote; promises by acceptor in an election, when it has begun.
        self._asked = NO_BALLOT
        self._pre_votes: set[str] = set()
        self._promises: dict[str, Promise] | None = None
        self._released = NO_BALLOT
        self._released_ts = 0
        self._seen_round = hard_state.promised.round

        self._leading: Leading | None = None  # set exactly while the role is LEADER

        # What accumulates for the next flush.
        self._flushed_index = self._log.last_index
        self._append: list[LogEntry] = []
        self._truncate_from: int | None = None
        self._all_hold = 0
        self._send_now: list[tuple[str, Message]] = []
        self._send_synced: list[tuple[str, Message]] = []
        self._accepted: Accepted | None = None
        self._became_leader = False
        self._lost_leadership = False

    # What others may know.

    @property
    def role(self) -> Role:
        """Follower, candidate or leader."""
        return self._role

    @property
    def configuration(self) -> Configuration:
        """The newest configuration of the log, which is the one that counts, chosen or not."""
        return self._membership.current

    @property
    def configuration_settled(self) -> bool:
        """Whether the configuration is chosen."""
        return self._membership.index <= self._chosen

    @property
    def _chosen_configuration(self) -> Configuration:
        """The newest configuration that is certainly chosen: the next is proposed only after the one before is."""
        previous = self._membership.previous
        return self.configuration if self.configuration_settled or previous is None else previous

    @property
    def offered_state(self) -> tuple[str, int] | None:
        """Who offered the state of the group, and from which index its log goes on; None if the log can catch up."""
        return self._offered

    def decline_state(self) -> None:
        """Forget the offer of the state: whoever made it is not ahead, or does not answer. It will come again."""
        self._offered = None

    @property
    def removed(self) -> bool:
        """Whether a member said that this replica, under this name, belongs to the group no more."""
        return self._removed

    @property
    def ballot(self) -> Ballot:
        """The highest ballot promised; a leader's own while it leads."""
        return self._promised

    @property
    def leader(self) -> str | None:
        """The leader that this replica knows of, perhaps itself."""
        return self._leader

    @property
    def chosen_index(self) -> int:
        """All entries up to this index are known to be chosen."""
        return self._chosen

    @property
    def last_index(self) -> int:
        """The last index of the log, durable or not."""
        return self._log.last_index

    @property
    def durable_index(self) -> int:
        """The log is durable up to this index."""
        return self._log.durable_index

    @property
    def safe(self) -> tuple[int, int]:
        """The newest (index, timestamp) learned: a replica that applied the index has all up to the timestamp.

        Under load the newest index is always a little ahead of what is applied: note the pairs that pass.
        """
        return self._safe

    @property
    def ceiling_floor(self) -> int:
        """Leader: no earlier leader gave out a timestamp above this one: give out only higher ones. Otherwise 0."""
        return 0 if self._leading is None else self._leading.floor

    @property
    def usable_ceiling(self) -> int:
        """Leader: the highest timestamp that may be given out, as a quorum promised durably; otherwise 0."""
        leading = self._leading
        if leading is None:
            return 0
        return leading.held.usable_ceiling(min(self._durable.ceiling, leading.ceiling))

    def match(self, replica: str) -> int:
        """Leader: how far ``replica`` is known to hold this leader's log durably; otherwise 0."""
        if self._leading is None:
            return 0
        return self._log.durable_index if replica == self.me else self._leading.match(replica)

    def heard(self, replica: str) -> int:
        """Leader: when ``replica`` last answered, in boot time; far in the past if it never did."""
        return NEVER if self._leading is None else self._leading.heard(replica)

    def lease_valid(self, boot_us: int) -> bool:
        """Tell whether this replica leads and holds the lease at ``boot_us``, which must be a fresh sample."""
        return self._leading is not None and self._leading.held.valid(boot_us)

    def next_wakeup(self, now: Now) -> int:
        """Return the boot time at which :meth:`tick` should be called at the latest, in microseconds."""
        if self._leading is None:
            return max(self._deadline, now.boot_us)
        return max(min(self._leading.next_due(), now.boot_us + self._config.lease_us), now.boot_us)

    # Common.

    def _take(self, entry: LogEntry, now: Now | None) -> None:
        """Append an entry to the log; ``now`` is needed when a leader's entry may be a configuration."""
        self._log.append(entry)
        self._append.append(entry)
        if self._membership.appended(entry):
            self._count()
            if self._leading is not None and now is not None:
                self._leading.count(self.configuration, now.boot_us)

    def _count(self) -> None:
        """Another configuration counts."""
        configuration = self.configuration
        self._others = tuple(sorted(name for name in configuration.members if name != self.me))

    def _promise(self, ballot: Ballot) -> None:
        self._promised = ballot
        self._note_round(ballot)
        self._hard_state_changed = True

    def _note_round(self, ballot: Ballot) -> None:
        if ballot.round > self._seen_round:
            self._seen_round = ballot.round

    def _follow(self, leader: str | None, boot_us: int) -> None:
        """Be a follower, of nobody until the next Accept if ``leader`` is None; the election delay starts anew."""
        if self._leading is not None:
            self._lost_leadership = True
            self._leading = None
        self._role = Role.FOLLOWER
        self._leader = leader
        self._promises = None
        self._jitter_us = self._draw_jitter()
        self._deadline = max(boot_us + self._config.election_timeout_us, self._granted.until) + self._jitter_us

    def _draw_jitter(self) -> int:
        return self._rng.randrange(self._config.election_timeout_us)

    def _hard_state(self) -> HardState:
        return HardState(self._promised, self._ceiling, self._max_lease_us)
