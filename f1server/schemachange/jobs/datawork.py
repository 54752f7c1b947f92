"""What the owner of a change has done with rows, by whoever can."""

from collections.abc import Sequence
from typing import Protocol

from f1server.catalog.schema import Column, Schema, Table
from f1server.schemachange.jobs.progress import Watch
from f1server.schemachange.steps.diff import Element
from f1server.schemachange.steps.plan import Task

__all__ = ["DataWork"]


class DataWork(Protocol):
    """What is done with rows for a schema change. All of it may be called again after a failure."""

    async def has_rows(self, schema: Schema, table: Table, column: Column | None = None) -> bool:
        """Is there any row of ``table``, with a value in ``column`` if one is given?"""

    async def foresee(self, schema: Schema, tasks: Sequence[Task[Element]], watch: Watch) -> None:
        """Tell ``watch`` about how much there is to do in all."""

    async def run(self, schema: Schema, tasks: Sequence[Task[Element]], watch: Watch) -> None:
        """Fill, validate and remove. Raises F1Error if rows do not honour what is new."""

    async def verify(self, schema: Schema, tasks: Sequence[Task[Element]], watch: Watch) -> None:
        """See that what was filled and validated is right, as of fresh snapshots. Raises F1Error if it is not."""

    async def forget(self, database: str) -> None:
        """The work of a change is done, or given up: nobody will go on with it."""

    async def purge(self, before: Schema, tables: Sequence[Table]) -> None:
        """Delete all rows, entries and history of tables of a database that is no more."""
