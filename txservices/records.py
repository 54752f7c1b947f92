"""The durable record of the timestamp service, in the storage tier."""

import random
from collections.abc import Sequence
from typing import Protocol

from f1common.clock import Clock
from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from f1common.orchestrator.allocation import NO_RECORD, BoundRecord
from f1common.orchestrator.spans import BOUND_KEY
from f1common.rpc.channels import ChannelCache
from spanstore.client import ExpectVersion, SpanClient, Write

__all__ = ["RecordStore", "SpanRecord", "record_over"]


class RecordStore(Protocol):
    """One record with compare-and-set."""

    async def read(self) -> tuple[BoundRecord, int]:
        """Return the record and its version, which no other write of it has or had. Raises F1Error."""
        ...

    async def write(self, record: BoundRecord, version: int) -> int | None:
        """Replace the record if it still has ``version``; return the new version, None if it has another one.

        Raises F1Error, ambiguous if it is not known whether it was written.
        """
        ...


def record_over(
    addresses: Sequence[str],
    *,
    clock: Clock,
    rng: random.Random,
    channels: ChannelCache | None = None,
    timeout_s: float = 5.0,
) -> tuple["SpanRecord", SpanClient]:
    """Return the record in the storage tier at ``addresses``, and the client to close in the end.

    It is written and read all the time, also where no user is, so that it does not count as what users do.
    """
    client = SpanClient(addresses, clock=clock, rng=rng, channels=channels, background=True)
    return SpanRecord(client, timeout_s), client


class SpanRecord:
    """Implements :class:`RecordStore` with one row; its versions are commit timestamps."""

    def __init__(self, client: SpanClient, timeout_s: float) -> None:
        """``timeout_s``: how long a call may take."""
        self._client = client
        self._timeout_s = timeout_s

    async def read(self) -> tuple[BoundRecord, int]:
        """Return the record. Raises F1Error UNAVAILABLE, DATA_CORRUPTION and what else reads raise."""
        (found,) = (await self._client.read([BOUND_KEY], timeout_s=self._timeout_s)).versions
        if found is None or found.value is None:
            return NO_RECORD, 0
        match tuples.decode(found.value):
            case (int(term), int(bound), bool(resigned)):
                return BoundRecord(term, bound, resigned), found.ts
            case _:
                raise F1Error(Code.DATA_CORRUPTION, "the record of the timestamp service cannot be read")

    async def write(self, record: BoundRecord, version: int) -> int | None:
        """Replace the record. Raises F1Error UNAVAILABLE and what else commits raise."""
        name = self._client.new_commit_id(BOUND_KEY)
        write = Write(BOUND_KEY, tuples.encode(record))
        expected = ExpectVersion(BOUND_KEY, version)
        try:
            return await self._client.commit([write], [expected], commit_id=name, timeout_s=self._timeout_s)
        except F1Error as error:
            if error.ambiguous:
                decision = await self._client.fence(name, timeout_s=self._timeout_s)
                return decision.ts if decision.committed else None
            if error.code in (Code.ABORTED, Code.FAILED_PRECONDITION, Code.ALREADY_EXISTS, Code.NOT_FOUND):
                return None
            raise
