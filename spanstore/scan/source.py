"""Where the chunks of a scan come from: a pool of processes, or the server itself."""

from typing import Protocol

from spanstore.scan.frames import Chunk
from spanstore.scan.plan import ScanPlan


class Run(Protocol):
    """A scan under way."""

    async def next(self) -> Chunk:
        """Return the next chunk; the first holds the schema, the last says so. Raises F1Error."""
        ...

    def close(self) -> None:
        """End the scan, wherever it is; closing twice is harmless."""
        ...


class Source(Protocol):
    """Executes plans whose timestamp is settled."""

    async def open(self, plan: ScanPlan) -> Run:
        """Begin a scan. Raises F1Error UNAVAILABLE."""
        ...
