"""What a slave is told to do in one run of a query, read from the message that starts it."""

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, replace

from f1common.errors import Code, F1Error
from f1common.ids import UNIQUE_BYTES
from f1common.pb import slave_pb2 as pb
from f1server.catalog.schema import Schema
from f1server.dist.topology import runs_at
from f1server.dist.wire import parts_from_pb, schema_from_wire
from f1server.plan.parts import Part
from f1server.plan.prepare import PlannedScan
from slavepool.admission import admit

__all__ = ["Assignment", "SchemaCache", "assignment_from_pb"]

_DEFAULT_WINDOW_BYTES = 4 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """One worker's share of a run. ``timeout_ms`` 0: no limit; the other fields as in :class:`pb.Start`."""

    query: bytes
    attempt: int
    position: int
    workers: tuple[str, ...]
    schema: Schema
    timestamp: int
    timeout_ms: int
    window_bytes: int
    parts: tuple[Part, ...]
    clips: dict[tuple[int, str], tuple[bytes, bytes]]
    collect: bool = False

    @property
    def key(self) -> tuple[bytes, int]:
        """What names the run."""
        return self.query, self.attempt

    @property
    def own_parts(self) -> list[Part]:
        """The parts that this worker runs."""
        return [part for part in self.parts if runs_at(part, self.position)]

    def scans(self, part: Part) -> list[PlannedScan]:
        """Return what this worker reads for a part."""
        return [self._clipped(part, item.planned) for item in part.scans]

    def _clipped(self, part: Part, planned: PlannedScan) -> PlannedScan:
        clip = self.clips.get((part.id, planned.relation))
        if clip is None:
            return planned
        return replace(planned, scan=replace(planned.scan, clip=clip, empty=planned.scan.empty or clip[0] >= clip[1]))


class SchemaCache:
    """The schemas of the last queries: what is derived from a schema, such as its descriptors, is kept with it."""

    def __init__(self, size: int = 8) -> None:
        self._size = size
        self._kept: OrderedDict[tuple[bytes, int], Schema] = OrderedDict()

    def get(self, data: bytes, commit_ts: int) -> Schema:
        """Return the schema that the bytes hold. Raises F1Error DATA_CORRUPTION."""
        key = (hashlib.blake2b(data, digest_size=16).digest(), commit_ts)
        found = self._kept.pop(key, None) or _schema(data, commit_ts)
        self._kept[key] = found
        if len(self._kept) > self._size:
            self._kept.popitem(last=False)
        return found


def _schema(data: bytes, commit_ts: int) -> Schema:
    try:
        return schema_from_wire(data, commit_ts)
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        # It is a schema by its form, and its elements contradict each other.
        raise F1Error(Code.DATA_CORRUPTION, f"the schema of a query makes no sense: {error!r}") from error


def assignment_from_pb(start: pb.Start, schemas: SchemaCache) -> Assignment:
    """Read what a slave is to do. Raises F1Error INVALID_ARGUMENT, DATA_CORRUPTION."""
    if len(start.query) != UNIQUE_BYTES or not start.attempt or start.worker >= len(start.workers) or not start.parts:
        raise F1Error(Code.INVALID_ARGUMENT, "a query is started with its id, its workers and its parts")
    schema = schemas.get(start.schema, start.schema_commit_ts)
    parts = parts_from_pb(schema, start.parts)
    admit(schema, parts)
    return Assignment(
        start.query,
        start.attempt,
        start.worker,
        tuple(start.workers),
        schema,
        start.timestamp,
        start.timeout_ms,
        start.window_bytes or _DEFAULT_WINDOW_BYTES,
        parts,
        {(clip.part, clip.relation): (clip.range.start, clip.range.end) for clip in start.clips},
        start.collect,
    )
