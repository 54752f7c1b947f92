"""The seven clauses of definition 4 at many moments of a run: what was wrong only for a while is seen too.

A node of its own looks, with its own storage client, so that no f1server has to be alive. While a world runs it pins
timestamps and checks the database there (:meth:`ContinuousCheck.follow`); afterwards it looks at the edges of every
version of the schema, where a state that was left out shows (:meth:`ContinuousCheck.versions`).

The schema-change paper (section 3.2) asks for consistency with respect to both of two neighbouring schemas. The one
looked at is the newest at each timestamp; servers that still use the one before are part of what is tested.
"""

import asyncio
import random
from collections.abc import Callable

from f1common.clock import Clock
from f1common.errors import Code, F1Error
from f1common.ids import new_id
from f1server.catalog.leases import SchemaLeases
from f1server.catalog.schema import Schema
from f1server.catalog.store import SchemaStore
from f1server.check.checker import Checker
from f1server.check.parts import of_schema, strays
from f1server.rows.planner import CheckEvaluator
from spanstore.client import SpanClient
from spanstore.testing.checkers import Violation

__all__ = ["CLAUSES", "ContinuousCheck"]

CLAUSES = "clauses"

_PIN_S = 120.0
_EXAMPLES = 3
_PASSING = frozenset({Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED, Code.ABORTED, Code.OVERLOADED, Code.NOT_LEADER})


class ContinuousCheck:
    """Checks one database again and again, as of timestamps of its run."""

    def __init__(
        self,
        client: SpanClient,
        clock: Clock,
        rng: random.Random,
        evaluate: Callable[[Schema], CheckEvaluator],
        database: str = "default",
    ) -> None:
        """``evaluate`` gives the evaluator of CHECK constraints; all else comes from the storage tier."""
        self._client = client
        self._rng = rng
        self._database = database
        self._store = SchemaStore(client, clock, asyncio.sleep)
        # Only a repair takes leases, and nothing is repaired here.
        leases = SchemaLeases(self._store, clock, server="checker", address="")
        self._checker = Checker(client, self._store, leases, rng, evaluate)
        self.looked = 0
        """How many moments were checked."""

    async def at(self, timestamp: int) -> list[Violation]:
        """Check all clauses as of one timestamp. Raises what the storage tier raises."""
        schemas = await self._store.schemas_at(timestamp)
        schema = schemas.get(self._database)
        if schema is None:
            return []
        found: list[Violation] = []
        for part in (*of_schema(schema, ()), *strays(schemas.values())):
            report = await self._checker.run(self._database, timestamp, part, examples=_EXAMPLES)
            found += [
                Violation(
                    CLAUSES,
                    f"version {schema.version} at {timestamp}: {group.count} times {group.kind} in {group.table} "
                    f"{group.element}, such as {group.examples}",
                )
                for group in report
            ]
        self.looked += 1
        return found

    async def versions(self, since: int = 0) -> list[Violation]:
        """Check at the first moment of every version of the schema after ``since``, and at the last one before it."""
        found: list[Violation] = []
        for timestamp in await self.edges(since):
            found += await self.at(timestamp - 1) + await self.at(timestamp)
        return found + await self.at(self._client.strong_timestamp())

    async def edges(self, since: int = 0) -> list[int]:
        """Return the commit timestamps of all versions of the schema after ``since``, ascending."""
        found: list[int] = []
        present = (await self._store.load(self._database)).schema
        while present.commit_ts > max(since, 1):
            found.append(present.commit_ts)
            present = await self._store.at(present, present.commit_ts - 1)
        return found[::-1]

    async def follow(self, every_s: float, done: Callable[[], bool]) -> list[Violation]:
        """Check at pinned timestamps, one about every ``every_s`` seconds, until ``done``; return the first wrong one.

        While the storage tier cannot be reached it waits; the timestamp stays the same.
        """
        while not done():
            found = await self._pinned(self._client.strong_timestamp(), done)
            if found:
                return found
            await asyncio.sleep(every_s * (0.5 + self._rng.random()))
        return []

    async def _pinned(self, timestamp: int, done: Callable[[], bool]) -> list[Violation]:
        pin = f"continuous-{new_id(self._rng).hex()}"
        pinned = False
        while not done():
            try:
                if not pinned:
                    await self._client.pins.add(pin, timestamp, ttl_s=_PIN_S, owner="continuous check")
                    pinned = True
                found = await self.at(timestamp)
                await self._client.pins.remove(pin)
                return found
            except F1Error as error:
                if error.code is Code.ALREADY_EXISTS:
                    pinned = True
                elif error.code not in _PASSING and not error.ambiguous and not error.retryable:
                    raise
            await asyncio.sleep(0.1)
        return []
