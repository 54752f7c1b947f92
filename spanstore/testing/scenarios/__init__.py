"""Whole-cluster simulations by seed: every seed is a cluster, a network, a workload and a way for them to fail.

A :class:`Scenario` is drawn from a seed and is data. A run has two phases. In the safety phase clients work and faults
strike. Then everything is healed, and progress must return: clients end, outcomes are known, no transaction stays
prepared, replicas catch up. At the end all checkers judge: the workload's own, the agreement of the logs, the decisions
in them (:mod:`~spanstore.testing.scenarios.checks`), the state on the disks, and reads at the safe time from every
replica against a replay in the order of commit timestamps.

``scripts/simulate.py`` runs seeds, ``scripts/mutations.py`` shows that broken code is caught.
"""

from spanstore.testing.scenarios.run import ERROR, INVARIANT, PROGRESS, Failure, NoProgress, Stats, failure_of, run
from spanstore.testing.scenarios.scenario import WORKLOADS, Scenario, Tweak, decode, draw, encode

__all__ = [
    "ERROR",
    "INVARIANT",
    "PROGRESS",
    "WORKLOADS",
    "Failure",
    "NoProgress",
    "Scenario",
    "Stats",
    "Tweak",
    "decode",
    "draw",
    "encode",
    "failure_of",
    "run",
]
