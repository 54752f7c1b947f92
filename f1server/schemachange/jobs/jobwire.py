"""The message about a schema change, for those who list them."""

from f1common.pb import f1_pb2 as pb
from f1server.schemachange.jobs.jobs import Job


def job_to_pb(job: Job) -> pb.SchemaJob:
    """Return what clients are told of a change."""
    return pb.SchemaJob(
        number=job.number,
        what=job.what,
        state=job.state.value,
        owner=job.owner,
        step=job.step,
        rows=job.rows,
        rows_total=job.rows_total,
        bytes=job.bytes,
        left_ms=job.left_ms,
        step_number=job.step_number,
        steps=job.steps,
        ended_ts=job.ended_ts,
        worked_rows=job.worked_rows,
        created_ts=job.created_ts,
        error=job.error,
        no_return=job.no_return,
    )
