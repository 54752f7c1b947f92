"""What people are told of schema changes: their titles, whom they wait for, and what stands before another one."""

from collections.abc import Sequence
from datetime import UTC, datetime

from f1common.errors import Code, F1Error
from f1server.catalog.rolestatements import GrantCreate, GrantOnTables, GrantRoles
from f1server.catalog.statements import SchemaStatement
from f1server.catalog.store import LeaseRow
from f1server.schemachange.jobs.jobs import Job, JobState

__all__ = ["awaited_of", "but_for", "refuse_behind_paused", "title_of", "under_way"]


def title_of(statement: SchemaStatement) -> str:
    """Return what a list of changes calls a statement, such as ``ALTER TABLE Customer``."""
    if isinstance(statement, GrantOnTables | GrantCreate | GrantRoles):
        return statement.title()
    words = "".join(f" {letter}" if letter.isupper() else letter for letter in type(statement).__name__).upper()
    names = getattr(statement, "names", None) or (getattr(statement, "name", ""),)
    return f"{words.strip()} {', '.join(names)}"


def awaited_of(behind: Sequence[LeaseRow], version: int) -> str:
    """Return which servers may still commit under an older version, and until when."""
    latest: dict[str, int] = {}  # a server may have one lease beside each copy of the schema
    for row in behind:
        latest[row.server] = max(latest.get(row.server, 0), row.end_below(version))
    ends = [(server, datetime.fromtimestamp(end / 1e6, UTC)) for server, end in sorted(latest.items())]
    return ", ".join(f"{server} (its lease ends {end:%H:%M:%S} UTC)" for server, end in ends)


def but_for(error: str, stays: str) -> str:
    """Return the error of a change that is taken back but for what stays, which may be none, with that."""
    return f"{error.replace('; nothing was changed', '; all but the following was taken back')} ({stays})".strip()


def refuse_behind_paused(job: Job, why: F1Error | None = None) -> None:
    """Refuse to wait for a change that nobody carries on. Raises FAILED_PRECONDITION.

    ``why``: what stands against the statement as long as the change is paused, and perhaps afterwards.
    """
    if job.state is JobState.PAUSED:
        now = f"{why.message}, as long as " if why is not None else ""
        raise F1Error(
            Code.FAILED_PRECONDITION,
            f"{now}schema change {job.number} of {job.database} is paused, and the next one would wait for it: "
            f"`f1 schema resume {job.number}`, or `f1 schema cancel {job.number}`, then try again",
        )


def under_way(job: Job, why: F1Error) -> F1Error:
    """Return what is said of a plan that cannot be made on what a change has half done."""
    return F1Error(
        Code.FAILED_PRECONDITION,
        f"schema change {job.number} of {job.database} ({job.what}) is {job.state}: plan again when it has ended "
        f"(`f1 schema jobs`); as the schema is now, {why.message}",
    )
