"""Workloads over a small protocol of a key-value client; :mod:`spanstore.testing.checkers` judge their histories."""

from spanstore.testing.workloads.bank import BankWorkload
from spanstore.testing.workloads.base import KvClient, KvTx, KvWrite, Workload
from spanstore.testing.workloads.list_append import ListAppendWorkload
from spanstore.testing.workloads.register import RegisterWorkload
from spanstore.testing.workloads.ring import RingWorkload

__all__ = [
    "BankWorkload",
    "KvClient",
    "KvTx",
    "KvWrite",
    "ListAppendWorkload",
    "RegisterWorkload",
    "RingWorkload",
    "Workload",
]
