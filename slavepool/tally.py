"""What the parts of a run cost at one slave, as the message that tells the f1server."""

from collections.abc import Mapping

from f1common.pb import slave_pb2 as pb
from f1server.dist.evaluation import PartEvaluation
from slavepool.assignment import Assignment

__all__ = ["Tally"]


class Tally:
    """Counts what is sent."""

    def __init__(self, assignment: Assignment) -> None:
        self._sent: dict[tuple[int, int, int], list[int]] = {}
        self._position = assignment.position

    def sent(self, part: int, consumer: int, destination: int, rows: int, size: int) -> None:
        """Count ``rows`` of ``size`` bytes that a part gave."""
        count = self._sent.setdefault((part, consumer, destination), [0, 0])
        count[0] += rows
        count[1] += size

    @property
    def sent_bytes(self) -> int:
        """Bytes for other processes."""
        return sum(size for (_, _, to), (_, size) in self._sent.items() if to != self._position)

    def to_pb(self, evaluations: Mapping[int, PartEvaluation]) -> list[pb.PartStats]:
        """Return the message of each part."""
        return [self._part(part_id, evaluation) for part_id, evaluation in sorted(evaluations.items())]

    def _part(self, part_id: int, evaluation: PartEvaluation) -> pb.PartStats:
        stats = evaluation.stats("")
        return pb.PartStats(
            part=part_id,
            reads=[
                pb.Read(relation=r.relation, scan=r.scan, rows=r.rows, bytes=r.bytes, spooled=r.spooled)
                for r in stats.reads
            ],
            sent=[
                pb.Sent(consumer=consumer, destination=to + 1, rows=rows, bytes=size)
                for (part, consumer, to), (rows, size) in sorted(self._sent.items())
                if part == part_id
            ],
            rows_out=stats.rows_out,
            scan_us=stats.scan_us,
            input_us=stats.input_us,
            evaluate_us=stats.evaluate_us,
        )
