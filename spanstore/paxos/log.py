"""The log as a replica sees it: a tail in memory before the durable log of the engine."""

from typing import Protocol

from spanstore.paxos.messages import Ballot, LogEntry


class LogReader(Protocol):
    """The durable log. Reads see every write that ``Replica.synced`` was told of; later ones may show or not.

    A log that was truncated below index T has ``first_index() == T`` (1 if never truncated) and, while T - 1 is
    index 0 or nothing was appended yet, ``last_index() == T - 1``.
    """

    def first_index(self) -> int:
        """Return the lowest index that is kept."""
        ...

    def last_index(self) -> int:
        """Return the highest index that is kept, ``first_index() - 1`` if there is none."""
        ...

    def ballot_at(self, index: int) -> Ballot | None:
        """Return the ballot of the entry at ``index``, None if it is not kept."""
        ...

    def entries(self, first: int, max_bytes: int) -> list[LogEntry]:
        """Return entries from ``first`` on, in order, payloads of at most ``max_bytes`` but one entry at least."""
        ...
