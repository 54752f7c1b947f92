"""Where a job leads to, how far it is, and what it is when others carry it on or it has come to its end."""

from msgspec.structs import replace

from f1server.catalog.codec import decode_schema
from f1server.catalog.schema import Schema
from f1server.schemachange.jobs.jobs import Job, JobState
from f1server.schemachange.jobs.ownership import Owner
from f1server.schemachange.jobs.wording import but_for
from f1server.schemachange.steps.back import way_back
from f1server.schemachange.steps.diff import plan_steps

__all__ = ["as_ended", "place_of", "taken_by", "towards"]


async def towards(owner: Owner, schema: Schema) -> Schema:
    """Return what a job leads to. If something stays when it goes back, its row says so, once."""
    job = owner.job
    if job.state is not JobState.UNDOING:
        return decode_schema(job.goal, 0)
    goal, stays = way_back(schema, decode_schema(job.base, 0), gives_way=job.gives_way)
    if stays not in job.error:
        await owner.update(error=but_for(job.error, stays))
    return goal


def place_of(job: Job, left: int) -> tuple[int, int]:
    """Return which of how many steps a job is at that has ``left`` to go; 0, 0: it goes back."""
    if job.state is JobState.UNDOING:
        return 0, 0
    steps = len(plan_steps(decode_schema(job.base, 0), decode_schema(job.goal, 0)))
    return min(max(steps - left + 1, 1), steps), steps


def taken_by(server: str, job: Job) -> Job:
    """Return a job with another owner."""
    return replace(job, owner=server, epoch=job.epoch + 1, owned_ts=0, joint=True)


def as_ended(job: Job) -> Job:
    """Return a job whose elements are where they should be."""
    if job.state is not JobState.UNDOING:
        return replace(job, state=JobState.DONE)
    return replace(job, state=JobState.FAILED if job.error_code else JobState.CANCELLED)
