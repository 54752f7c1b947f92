"""The configurations along a replica's log, and which of them counts: the newest, chosen or not."""

from spanstore.paxos.configuration import Configuration, decode_configuration
from spanstore.paxos.messages import LogEntry


class Membership:
    """Follows the log of one replica. A configuration counts from the moment that its entry is in the log.

    That it counts before it is chosen is what makes one-voter steps safe: whoever may be elected by the old majority
    lacks the entry, and whoever has it counts by the new one; the two majorities meet (Ongaro, section 4.1).
    """

    __slots__ = ("_configurations",)

    def __init__(self, index: int, configuration: Configuration) -> None:
        """``configuration`` is the one that counts as of the entry ``index``; entries up to there are settled."""
        self._configurations = [(index, configuration)]

    @property
    def current(self) -> Configuration:
        """The newest configuration of the log."""
        return self._configurations[-1][1]

    @property
    def index(self) -> int:
        """Where in the log it is; at or below it, if the log began there."""
        return self._configurations[-1][0]

    @property
    def previous(self) -> Configuration | None:
        """The one before, as long as the log may still lose the current one."""
        return self._configurations[-2][1] if len(self._configurations) > 1 else None

    def appended(self, entry: LogEntry) -> bool:
        """Take in a new last entry; tell whether another configuration counts now."""
        configuration = decode_configuration(entry.payload)
        if configuration is None:
            return False
        self._configurations.append((entry.index, configuration))
        return True

    def truncated(self, first: int) -> bool:
        """Take in that the log lost its entries from ``first`` on; tell whether another configuration counts now."""
        before = len(self._configurations)
        while len(self._configurations) > 1 and self._configurations[-1][0] >= first:
            self._configurations.pop()
        return len(self._configurations) != before

    def settled(self, chosen_index: int) -> None:
        """Forget the configurations that a chosen one has replaced."""
        while len(self._configurations) > 1 and self._configurations[1][0] <= chosen_index:
            self._configurations.pop(0)
