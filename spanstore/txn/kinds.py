"""Which version of the protocol between spanservers brought each kind of log entry.

A replica that meets an entry it does not know can go no further, and servers are upgraded one after the other: so a
leader logs an entry of a newer kind only when all members of its group know it (:mod:`spanstore.group.versions`).
Whoever adds a kind, or a field to one, adds a version here, and raises ``PROTOCOL_VERSION``.
"""

from collections.abc import Mapping

from spanstore.txn.commands import (
    AbandonCmd,
    AbortCmd,
    BeginMoveCmd,
    BundleCmd,
    CedeCmd,
    ClearCmd,
    CollectCmd,
    CommitCmd,
    DecideCmd,
    DigestCmd,
    GcOutcomesCmd,
    NewLeader,
    OwnCmd,
    PrepareCmd,
    RaiseMarkCmd,
    StageCmd,
)

FIRST = 1
"""The version that everybody speaks."""

SINCE: Mapping[type, int] = {
    NewLeader: FIRST,
    CommitCmd: FIRST,
    AbortCmd: FIRST,
    PrepareCmd: FIRST,
    DecideCmd: FIRST,
    GcOutcomesCmd: 2,
    BeginMoveCmd: 2,
    StageCmd: 2,
    CedeCmd: 2,
    OwnCmd: 2,
    ClearCmd: 2,
    AbandonCmd: 2,
    RaiseMarkCmd: 2,
    CollectCmd: 2,
    DigestCmd: 2,
    BundleCmd: 4,
}

CONFIGURATION_SINCE = 2
"""The version that brought configurations, which are entries of the log but no commands."""

WORK: Mapping[int, str] = {
    2: "changes of members, moves of ranges, collection of old versions, comparison of replicas",
    3: "the founding of groups",
    4: "commits that share an entry of the log",
}
"""What a version brought, for an operator: what waits while a member speaks an older one."""

NEWEST = max(WORK)
