"""Checks as messages."""

from collections.abc import Iterable

from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from f1server.check.checker import CheckPlan
from f1server.check.findings import CLAUSES, Report
from f1server.check.parts import Part, PartKind

__all__ = ["part_from_pb", "plan_parts_to_pb", "plan_to_pb", "report_to_pb"]


def plan_to_pb(plan: CheckPlan) -> pb.CheckReply:
    """Return the message of a plan."""
    return pb.CheckReply(
        timestamp=plan.timestamp,
        pin=plan.pin,
        schema_version=plan.schema_version,
        parts=plan_parts_to_pb(plan.parts),
    )


def plan_parts_to_pb(parts: Iterable[Part]) -> list[pb.CheckPart]:
    """Return the messages of parts."""
    return [
        pb.CheckPart(
            kind=pb.CheckPart.Kind.Name(part.kind.value),
            start=part.start,
            end=part.end,
            table_id=part.table_id,
            index_id=part.index_id,
            keys=part.keys,
        )
        for part in parts
    ]


def part_from_pb(message: pb.CheckPart) -> Part:
    """Read a part. Raises INVALID_ARGUMENT."""
    if not message.start < message.end:
        raise F1Error(Code.INVALID_ARGUMENT, "a part of a check needs start < end")
    try:
        kind = PartKind(message.kind)
    except ValueError:
        raise F1Error(Code.INVALID_ARGUMENT, "a part of a check of a kind that this server does not know") from None
    return Part(kind, message.start, message.end, message.table_id, message.index_id, message.keys)


def report_to_pb(report: Report) -> pb.CheckReply:
    """Return the message of what was found in a part."""
    return pb.CheckReply(
        rows=report.rows,
        entries=report.entries,
        findings=[
            pb.CheckFindings(
                clause=CLAUSES[group.kind],
                kind=group.kind.value,
                table=group.table,
                element=group.element,
                count=group.count,
                repaired=group.repaired,
                examples=[pb.CheckExample(key=example.key, message=example.message) for example in group.examples],
            )
            for group in report
        ],
    )
