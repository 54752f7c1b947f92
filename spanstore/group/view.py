"""What is told of a replica to whoever asks for the status of its server."""

from dataclasses import dataclass

from spanstore.group.garbage import Collected
from spanstore.paxos.configuration import Configuration


@dataclass(frozen=True, slots=True)
class GroupView:
    """What ``f1 status`` shows of a replica."""

    group: int
    role: str
    leader: str
    ballot_round: int
    chosen_index: int
    applied_index: int
    last_index: int
    safe_ts: int
    lease_valid: bool
    prepared: int
    locked_transactions: int
    safe_holder: bytes
    safe_holder_ts: int
    digest: int
    member: str
    configuration: Configuration
    matches: tuple[tuple[str, int], ...]
    """For a leader: up to which index each other member holds the log."""
    collected: Collected
    damaged_keys: int
