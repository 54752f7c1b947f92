"""A walk as a message to a slave."""

from collections.abc import Iterable
from itertools import pairwise

from f1common.errors import Code, F1Error
from f1common.pb import slave_pb2 as pb
from f1server.catalog.schema import ElementState, Schema
from f1server.dist.wire import schema_to_wire
from f1server.schemachange.steps.diff import Element
from f1server.schemachange.steps.edits import Part
from f1server.schemachange.steps.plan import Task
from f1server.schemachange.steps.states import Work
from f1server.schemachange.work.purging import GONE_TABLES
from f1server.schemachange.work.sums import EntrySum, Sums
from f1server.schemachange.work.tablework import TableWork, by_table, find
from f1server.schemachange.work.throttle import ThrottleOptions
from f1server.schemachange.work.walking import Walk, WalkKind

__all__ = ["options_from_pb", "sums_from_pb", "sums_to_pb", "walk_from_pb", "walk_to_pb"]

_KINDS = tuple(WalkKind)
_KIND_NAMES = {kind: pb.StartWalk.Kind.Name(number) for number, kind in enumerate(_KINDS)}


def walk_to_pb(walk: Walk, options: ThrottleOptions, fence_ts: int, protocol_version: int) -> pb.StartWalk:
    """Return the message that starts a walk."""
    return pb.StartWalk(
        protocol_version=protocol_version,
        schema=schema_to_wire(walk.schema),
        schema_commit_ts=walk.schema.commit_ts,
        tasks=[_task_to_pb(task) for task in walk.work.tasks],
        start=walk.start,
        end=walk.end,
        cuts=walk.cuts,
        snapshot=walk.snapshot,
        earlier=walk.earlier,
        kind=_KIND_NAMES[walk.kind],
        fence_ts=fence_ts,
        slowdown=options.slowdown,
        min_rate=options.min_rate,
        max_rate=options.max_rate,
        least_rate=options.least_rate,
    )


def _task_to_pb(task: Task[Element]) -> pb.WalkTask:
    e = task.element
    return pb.WalkTask(kind=e.kind, table_id=e.table_id, id=e.id, name=e.name, lock=e.lock, work=task.work.value)


def walk_from_pb(start: pb.StartWalk, schema: Schema) -> Walk:
    """Read what is to be done. Raises F1Error INVALID_ARGUMENT."""
    try:
        kind = _KINDS[start.kind if start.kind >= 0 else len(_KINDS)]
        tasks = [Task(Element(t.kind, t.table_id, t.id, t.name, t.lock), Work(t.work)) for t in start.tasks]
        if kind is WalkKind.PURGE:
            work = _purged(schema, tasks)
        else:
            (work,) = by_table(schema, tasks)
    except (IndexError, KeyError, StopIteration, ValueError) as error:
        text = f"a walk is work on one table of the schema that comes with it: {error!r}"
        raise F1Error(Code.INVALID_ARGUMENT, text) from error
    borders = (start.start, *start.cuts, start.end)
    if any(low >= high for low, high in pairwise(borders)) or start.snapshot <= 0:
        raise F1Error(Code.INVALID_ARGUMENT, "a walk has a range of keys, cuts within it in order, and a snapshot")
    cuts = tuple(start.cuts)
    return Walk(schema, work, start.start, start.end, start.snapshot, kind, cuts=cuts, earlier=start.earlier)


def sums_to_pb(sums: Sums) -> list[pb.EntrySum]:
    """Return what was added up as messages."""
    return [pb.EntrySum(index_id=i, count=found.count, total=found.total) for i, found in sums.items()]


def sums_from_pb(sums: Iterable[pb.EntrySum]) -> dict[int, EntrySum]:
    """Read what was added up."""
    return {found.index_id: EntrySum(found.count, found.total) for found in sums}


def _purged(schema: Schema, tasks: list[Task[Element]]) -> TableWork:
    """Return the work of deleting what is dropped. Raises ValueError if a server may use some of it."""
    for task in tasks:
        element = task.element
        of = find(schema, element, Part.INDEX) if element.kind == "index" else schema.by_id[element.table_id]
        if task.work is Work.REMOVE and element.kind in ("index", *GONE_TABLES) and of.state > ElementState.DELETE_ONLY:
            raise ValueError(f"{element} is in use")
    return TableWork(schema.by_id[tasks[0].element.table_id], tasks)


def options_from_pb(start: pb.StartWalk) -> ThrottleOptions:
    """Read how fast the work may be. Raises F1Error INVALID_ARGUMENT."""
    if not 0 <= start.least_rate <= start.min_rate <= start.max_rate or start.min_rate <= 0 or start.slowdown <= 0:
        raise F1Error(Code.INVALID_ARGUMENT, "the pace of a walk has a slowdown and rates above 0")
    return ThrottleOptions(start.slowdown, start.min_rate, start.max_rate, start.least_rate)
