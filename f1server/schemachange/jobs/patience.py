"""How long a statement waits behind another change before its client has to ask again.

A client gives up an answer that does not come, and could not tell then whether its change had been begun. So it is told
in time that nothing was, and asks anew, as often as it wants.
"""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from f1common.errors import Code, F1Error
from f1server.schemachange.jobs.jobs import Job

__all__ = ["WAITS_BEHIND", "Patience"]

T = TypeVar("T")

WAITS_BEHIND = "waits_behind"
"""The detail of the error: the number of the change in front."""

_BEHIND_S = 540.0
"""Less than clients wait for an answer (600 s)."""


class Patience:
    """That of one statement, from when it was asked for."""

    def __init__(self) -> None:
        self._until_s = asyncio.get_running_loop().time() + _BEHIND_S

    async def behind(self, job: Job, outcome: Awaitable[T]) -> T:
        """Wait for the outcome of a change in front. Raises ABORTED, retryable, when that takes too long."""
        try:
            async with asyncio.timeout_at(self._until_s):
                return await outcome
        except TimeoutError:
            text = (
                f"schema change {job.number} of {job.database} still runs, and nothing of this one was begun: try again"
            )
            raise F1Error(Code.ABORTED, text, retryable=True, details={WAITS_BEHIND: str(job.number)}) from None
