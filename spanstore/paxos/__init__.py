"""Multi-Paxos with leader leases as a pure state machine."""

from spanstore.paxos.config import PaxosConfig
from spanstore.paxos.effects import Effects
from spanstore.paxos.log import LogReader
from spanstore.paxos.messages import (
    NO_BALLOT,
    Accept,
    Accepted,
    Ballot,
    HardState,
    LogEntry,
    Message,
    Prepare,
    PreVote,
    PreVoteReply,
    Promise,
    TransferLeadership,
)
from spanstore.paxos.replica import Replica, Role

__all__ = [
    "NO_BALLOT",
    "Accept",
    "Accepted",
    "Ballot",
    "Effects",
    "HardState",
    "LogEntry",
    "LogReader",
    "Message",
    "PaxosConfig",
    "PreVote",
    "PreVoteReply",
    "Prepare",
    "Promise",
    "Replica",
    "Role",
    "TransferLeadership",
]
