"""Defects of the real code, each of which some checker must catch.

A checker that has never failed has proved nothing, and neither has a nemesis. So each promise of the storage tier has a
mutation here that breaks it: a method of the code that runs in production is replaced for the time of a run, under
otherwise the same workloads, faults and checkers that the whole code passes. There are no flags in the code for it.

``scripts/mutations.py`` hunts them all and prints for each which checker caught it and at which seed. A defect that is
not caught means that a workload or a nemesis is too tame.
"""

from spanstore.testing.mutations import garbage, moves, replication, transactions, transfers
from spanstore.testing.mutations.mutation import Mutation, try_seed

MUTATIONS: tuple[Mutation, ...] = (
    replication.MUTATIONS + transactions.MUTATIONS + moves.MUTATIONS + transfers.MUTATIONS + garbage.MUTATIONS
)

__all__ = ["MUTATIONS", "Mutation", "try_seed"]
