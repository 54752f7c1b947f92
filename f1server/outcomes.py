"""What became of a commit whose answer was lost."""

import asyncio

from f1common.clock import Clock
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from f1server.access.rights import Caller
from f1server.answers import SqlRequest
from f1server.catalog.leases import SchemaLeases
from f1server.catalog.schema import Schema
from f1server.sql import SqlRunner
from f1server.txn.committer import CommitName, Committer
from f1server.wire import check_timestamp, params_from_pb, writes_from_pb

__all__ = ["Outcomes"]

_WAIT_US = 5_000_000
"""For a time that clients have seen already, and this server not."""


class Outcomes:
    """Answers clients that ask."""

    def __init__(self, sql: SqlRunner, committer: Committer, leases: SchemaLeases, clock: Clock) -> None:
        self._sql = sql
        self._committer = committer
        self._leases = leases
        self._clock = clock

    async def tell(self, database: str, request: pb.Outcome, caller: Caller) -> pb.OutcomeReply:
        """Tell whether a commit happened, and end it if it did not.

        Raises F1Error if nobody can know: NOT_FOUND, CLOCK_SKEW, EXPIRED.
        """
        check_timestamp(request.created_ts)
        name, tag = CommitName(request.commit_id, request.created_ts), ""
        if request.HasField("statement"):
            asked = request.statement
            wanted = SqlRequest(database, asked.sql, caller, tuple(params_from_pb(asked.params)))
            named = await self._sql.named(await self._schema_after(database, name.created_ts), wanted, name)
            if named is None:
                return pb.OutcomeReply()
            commit_id, tag = named
        else:
            (first,) = writes_from_pb([request.first_write])
            commit_id = await self._leases.fresh(database, lambda: self._committer.named_by(database, first, name))
        ts = await self._committer.outcome(commit_id)
        return pb.OutcomeReply(committed=ts is not None, commit_ts=ts or 0, tag=tag)

    async def _schema_after(self, database: str, timestamp: int) -> Schema:
        """Return the newest schema as of a time after ``timestamp``. Raises CLOCK_SKEW if that is too far off."""
        while (ahead_us := timestamp - self._clock.sample().tt.earliest) >= 0:
            if ahead_us > _WAIT_US:
                text = f"{timestamp} is {ahead_us / 1e6:.0f} s ahead of this server's clock: whose clock is wrong?"
                raise F1Error(Code.CLOCK_SKEW, text)
            await asyncio.sleep((ahead_us + 1) / 1e6)
        return await self._leases.refresh(database)
