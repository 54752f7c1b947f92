"""The ranges of a group as every replica knows them from its log.

The rules are in :mod:`spanstore.placement.holdings`. What the group owns is what the *durable* entries say: rows and
record are written in one batch, so a view and the record in it agree.
"""

from spanstore.engine import keyspace
from spanstore.engine.base import Reader, WriteBatch
from spanstore.placement import holdings as rules
from spanstore.placement.holdings import Holdings, Interval, decode_holdings, encode_holdings
from spanstore.placement.range_map import OwnedRanges
from spanstore.txn.commands import (
    AbandonCmd,
    BeginMoveCmd,
    CedeCmd,
    ClearCmd,
    MoveCommand,
    OwnCmd,
    StageCmd,
)

HOLDINGS = "holdings"
"""Name of the record among the group's own."""


def load_holdings(reader: Reader, group: int) -> Holdings | None:
    """Return the stored record, None if the group never took part in a move. Raises DATA_CORRUPTION."""
    data = reader.get(keyspace.meta_key(group, HOLDINGS))
    return None if data is None else decode_holdings(data)


class Holding:
    """The record of one replica: ``record`` and ``owned`` as of what is durable."""

    def __init__(self, group: int, reader: Reader, first: tuple[Interval, ...]) -> None:
        """Load the record; a group that has none owns ``first``."""
        self.record = load_holdings(reader, group) or rules.first_holdings(first)
        self.owned: OwnedRanges = self.record.owned()
        self._group = group
        self._newest = self.record

    def apply(self, command: MoveCommand, batch: WriteBatch) -> bool:
        """Change the record; tell whether ``command`` counts, so that its rows follow."""
        after: Holdings | None
        match command:
            case BeginMoveCmd():
                after = rules.after_begin(self._newest, command)
            case StageCmd():
                after = rules.after_stage(self._newest, command)
            case CedeCmd():
                after = rules.after_cede(self._newest, command)
            case OwnCmd():
                after = rules.after_own(self._newest, command)
            case AbandonCmd():
                after = rules.after_abandon(self._newest, command)
            case ClearCmd():
                return self._newest.may_clear(command.move, command.start, command.end)
        if after is None:
            return False
        self._newest = after
        batch.put(keyspace.meta_key(self._group, HOLDINGS), encode_holdings(after))
        return True

    def record_first(self, batch: WriteBatch) -> None:
        """Store what the group owns from the beginning, so that replicas at other servers need no file to know it."""
        batch.put(keyspace.meta_key(self._group, HOLDINGS), encode_holdings(self.record))

    def durable(self) -> None:
        """What was applied is on disk."""
        if self._newest is self.record:
            return
        if self._newest.ranges != self.record.ranges:
            self.owned = self._newest.owned()
        self.record = self._newest
