"""What a person is told who stops waiting for a schema change (Ctrl-C): servers go on with it."""

import asyncio
from collections.abc import Iterable

from f1.session import Session
from f1common.errors import F1Error
from f1common.pb import f1_pb2 as pb

__all__ = ["GoesOn", "is_running", "what_goes_on"]

_ASK_S = 3.0


class GoesOn(KeyboardInterrupt):
    """Somebody stopped waiting for a schema change. ``str()`` says what became of it."""


def is_running(job: pb.SchemaJob) -> bool:
    """Tell whether a change has not ended."""
    return job.state in ("running", "paused", "undoing")


async def what_goes_on(session: Session) -> str:
    """Return what to tell somebody who no longer waits for a change."""
    try:
        jobs = (await asyncio.wait_for(session.schema_jobs(pb.SchemaJobs()), _ASK_S)).jobs
    except (F1Error, TimeoutError):
        return "Interrupted; the servers go on with the schema change: see `f1 schema jobs`."
    return _text(jobs)


def _text(jobs: Iterable[pb.SchemaJob]) -> str:
    for job in jobs:
        if is_running(job):
            follow = f"`f1 schema jobs` shows it, `f1 schema cancel {job.number}` takes it back"
            return f"Interrupted, but the servers go on with schema change {job.number}: {follow}."
    return "Interrupted; no schema change runs any more: `f1 schema history` tells whether it was made."
