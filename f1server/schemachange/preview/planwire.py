"""Planned changes and surveys as messages."""

from collections.abc import Sequence

from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from f1server.catalog.render import render_schema
from f1server.catalog.schema import Schema
from f1server.check.wire import plan_parts_to_pb, report_to_pb
from f1server.schemachange.preview.planner import PlannedChange, Size, passes_of
from f1server.schemachange.preview.survey import FINGERPRINT_BYTES, Only, Survey
from f1server.schemachange.steps.diff import Element, Step
from f1server.schemachange.steps.plan import Task

__all__ = ["only_from_pb", "planned_to_pb", "survey_to_pb"]

_NO_SIZE = Size(0, 0)


def planned_to_pb(planned: PlannedChange) -> pb.PlanSchemaReply:
    """Return the message of a planned change."""
    return pb.PlanSchemaReply(
        schema_version=planned.schema.version,
        steps=[_step(planned, step) for step in planned.steps],
        warnings=planned.warnings,
        holders=[
            pb.SchemaHolder(
                server=row.server, address=row.address, version=row.version, lease_ms=-(-row.lease_us // 1000)
            )
            for row in planned.holders
        ],
        timestamp=planned.timestamp,
        pin=planned.pin,
        parts=plan_parts_to_pb(planned.parts),
        rows_per_s=planned.rows_per_s,
        before=_files(planned.schema),
        after=_files(planned.after),
    )


def _files(schema: Schema) -> list[pb.SourceFile]:
    files = [("schema.sql", render_schema(schema)), *schema.proto_files]
    return [pb.SourceFile(name=name, text=text) for name, text in files]


def _step(planned: PlannedChange, step: Step) -> pb.PlannedStep:
    return pb.PlannedStep(
        moves=[
            pb.ElementMove(element=str(move.element), before=_state(move.before), after=_state(move.after))
            for move in step.moves
        ],
        at_once=step.at_once,
        work=_work(planned, step),
    )


def _state(state: object) -> str:
    return str(getattr(state, "name", state)).lower().replace("_", "-")


def _work(planned: PlannedChange, step: Step) -> Sequence[pb.PlannedWork]:
    by_table: dict[int, list[Task[Element]]] = {}
    for task in step.tasks:
        table_id = planned.origins.get(task.element.table_id, task.element.table_id)
        by_table.setdefault(table_id, []).append(task)
    found = []
    for table_id, tasks in by_table.items():
        size = planned.sizes.get(table_id, _NO_SIZE)
        name = planned.names.get(table_id, tasks[0].element.name)
        work = pb.PlannedWork(table_id=table_id, table=name, rows=size.rows, bytes=size.bytes, passes=passes_of(tasks))
        for task in tasks:
            work.elements.add(element=str(task.element), work=task.work.value)
        found.append(work)
    return found


def survey_to_pb(survey: Survey) -> pb.PlanSchemaReply:
    """Return the message of what a part has to say."""
    return pb.PlanSchemaReply(
        tables=[
            pb.TableFigures(
                table_id=table_id,
                rows=figures.rows,
                bytes=figures.bytes,
                elements=[pb.ElementCount(element=name, count=count) for name, count in figures.elements.items()],
            )
            for table_id, figures in survey.figures.items()
        ],
        findings=report_to_pb(survey.report).findings,
        fingerprints=[
            pb.Fingerprints(
                element_id=of.id, index_id=of.index_id, fingerprints=bytes(found), table=of.table, element=of.name
            )
            for of, found in survey.fingerprints.items()
        ],
        rows=[
            pb.RowBehind(
                element_id=row.of.id,
                fingerprint=row.fingerprint,
                whole=row.whole,
                key=row.example.key,
                message=row.example.message,
            )
            for row in survey.rows
        ],
    )


def only_from_pb(messages: Sequence[pb.Fingerprints]) -> Only:
    """Read what rows are wanted; None: all. Raises INVALID_ARGUMENT."""
    if not messages:
        return None
    found: dict[int, set[bytes]] = {}
    for message in messages:
        data = message.fingerprints
        if len(data) % FINGERPRINT_BYTES:
            raise F1Error(Code.INVALID_ARGUMENT, f"fingerprints have {FINGERPRINT_BYTES} bytes each")
        pieces = {data[i : i + FINGERPRINT_BYTES] for i in range(0, len(data), FINGERPRINT_BYTES)}
        found.setdefault(message.element_id, set()).update(pieces)
    return found
