"""Drives a distributed query from the f1server that took it: starts the parts at slaves, watches them, and runs the
root part (F1 section 8.2)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from f1common.errors import F1Error
from f1common.rpc.deadlines import NEVER, Deadline
from f1server.dist.stats import RunStats
from f1server.exec.engine import QueryResult
from f1server.plan.parts import DistributedPlan, PartScan

__all__ = ["Clips", "Coordinator", "DistributedResult", "Pool", "SlaveMember", "SpreadFailed"]

Clips = Callable[[PartScan, int], Sequence[tuple[bytes, bytes]]]
"""For a divided scan and a number of workers: for each worker the raw keys, from the first to below the second, whose
rows it reads. A range that is not ascending is empty. Together they must cover the table."""


class SlaveMember(Protocol):
    """A slave that may be used."""

    @property
    def name(self) -> str: ...
    @property
    def incarnation(self) -> int: ...
    @property
    def address(self) -> str: ...


class Pool(Protocol):
    """Who may be used; what the coordinator asks of :mod:`f1server.dist.pool`."""

    def live(self) -> Sequence[SlaveMember]:
        """Return the slaves that work, by name."""
        ...

    def suspect(self, name: str, incarnation: int, reason: str) -> None:
        """Leave a slave out for a while: it broke off or fell silent."""
        ...


class SpreadFailed(F1Error):
    """The query cannot be run by slaves now; running it on the f1server may work, or tell what is wrong with it."""


@dataclass(slots=True)
class DistributedResult:
    """The result of the root part, which streams, and what the parts cost (the root part's own figures are final once
    the result is read)."""

    result: QueryResult
    stats: RunStats


class Coordinator:
    """Runs distributed plans. One for each f1server."""

    async def run(
        self, plan: DistributedPlan, *, timestamp: int, deadline: Deadline = NEVER, clips: Clips | None = None
    ) -> DistributedResult:
        """Run a plan at ``timestamp`` and return its result, whose rows stream from the root part.

        By then everything has ended at the slaves. A slave that dies or falls silent costs a new attempt without it;
        nobody sees that. ``clips`` deals out divided scans; without it the first worker reads all. Cancelling the
        coroutine, or closing the result, frees everything.

        Raises SpreadFailed, with the code of the cause, when the query cannot be run so: a part's evaluation failed,
        no slave is left (UNAVAILABLE), or four attempts failed; DEADLINE_EXCEEDED.
        """
        raise NotImplementedError
