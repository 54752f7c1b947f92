"""Checkers: pure functions from histories to violations. An empty list means that nothing wrong was found.

Each is tested on histories with the anomalies that it must find. They run on histories of the simulator and
of real processes alike.
"""

from spanstore.testing.checkers.bank import check_bank
from spanstore.testing.checkers.linearizability import check_linearizable
from spanstore.testing.checkers.list_append import check_list_append
from spanstore.testing.checkers.log_agreement import Applied, Installed, check_log_agreement
from spanstore.testing.checkers.ring import check_ring
from spanstore.testing.checkers.snapshot_isolation import SnapshotRange, SnapshotTxn, check_snapshot_isolation
from spanstore.testing.checkers.timestamps import check_snapshot_replay, check_timestamp_order
from spanstore.testing.checkers.violation import CheckFailed, Violation, require

__all__ = [
    "Applied",
    "CheckFailed",
    "Installed",
    "SnapshotRange",
    "SnapshotTxn",
    "Violation",
    "check_bank",
    "check_linearizable",
    "check_list_append",
    "check_log_agreement",
    "check_ring",
    "check_snapshot_isolation",
    "check_snapshot_replay",
    "check_timestamp_order",
    "require",
]
