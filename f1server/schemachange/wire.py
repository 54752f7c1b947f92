"""A walk as a message to a slave."""

from f1common.errors import Code, F1Error
from f1common.pb import slave_pb2 as pb
from f1server.catalog.schema import Schema
from f1server.dist.wire import schema_to_wire
from f1server.schemachange.diff import Element
from f1server.schemachange.plan import Task
from f1server.schemachange.states import Work
from f1server.schemachange.tablework import by_table
from f1server.schemachange.throttle import ThrottleOptions
from f1server.schemachange.walk import Walk

__all__ = ["options_from_pb", "walk_from_pb", "walk_to_pb"]


def walk_to_pb(walk: Walk, options: ThrottleOptions, fence_ts: int, protocol_version: int) -> pb.StartWalk:
    """Return the message that starts a walk."""
    return pb.StartWalk(
        protocol_version=protocol_version,
        schema=schema_to_wire(walk.schema),
        schema_commit_ts=walk.schema.commit_ts,
        tasks=[_task_to_pb(task) for task in walk.work.tasks],
        start=walk.start,
        end=walk.end,
        snapshot=walk.snapshot,
        fence_ts=fence_ts,
        slowdown=options.slowdown,
        min_rate=options.min_rate,
        max_rate=options.max_rate,
    )


def _task_to_pb(task: Task[Element]) -> pb.WalkTask:
    e = task.element
    return pb.WalkTask(kind=e.kind, table_id=e.table_id, id=e.id, name=e.name, lock=e.lock, work=task.work.value)


def walk_from_pb(start: pb.StartWalk, schema: Schema) -> Walk:
    """Read what is to be done. Raises F1Error INVALID_ARGUMENT."""
    try:
        tasks = [Task(Element(t.kind, t.table_id, t.id, t.name, t.lock), Work(t.work)) for t in start.tasks]
        (work,) = by_table(schema, tasks)
    except (KeyError, StopIteration, ValueError) as error:
        text = f"a walk is work on one table of the schema that comes with it: {error!r}"
        raise F1Error(Code.INVALID_ARGUMENT, text) from error
    if not start.start < start.end or start.snapshot <= 0:
        raise F1Error(Code.INVALID_ARGUMENT, "a walk has a range of keys and a snapshot")
    return Walk(schema, work, start.start, start.end, start.snapshot)


def options_from_pb(start: pb.StartWalk) -> ThrottleOptions:
    """Read how fast the work may be. Raises F1Error INVALID_ARGUMENT."""
    if not 0 < start.min_rate <= start.max_rate or start.slowdown <= 0:
        raise F1Error(Code.INVALID_ARGUMENT, "the pace of a walk has a slowdown and rates above 0")
    return ThrottleOptions(start.slowdown, start.min_rate, start.max_rate)
