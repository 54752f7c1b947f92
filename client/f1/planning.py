"""What a change of the schema would take, and which rows stand against it: a plan, driven from the client.

A server says what the steps are and divides the rows that have something to say to them; these parts are asked for at
all servers at a time, as those of a check are (:mod:`f1.checking`). Rows with equal values in a new unique index are
found by fingerprints of eight bytes each, which the parts give and which are kept here; then the rows behind those that
are there twice are asked for, and compared as a whole.
"""

import asyncio
import difflib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from f1.checking import Findings, keep_pin, let_pin_go
from f1.session import Session
from f1common.pb import f1_pb2 as pb

__all__ = ["ChangePlan", "Step", "TableWork", "plan_change"]

_PLAN_TIMEOUT_S = 300.0
_PART_TIMEOUT_S = 3600.0


@dataclass(slots=True)
class TableWork:
    """What is done with the rows of one table, under one version of the schema.

    ``elements`` are (element, what is done for it). Rows and bytes are exact if the rows were read, else estimates;
    ``counts``: entries that are written and values that are removed, by element, if they were read.
    """

    table: str
    elements: Sequence[tuple[str, str]]
    rows: int
    bytes: int
    exact: bool = False
    counts: dict[str, int] = field(default_factory=dict)
    passes: int = 1
    """How often the work counts each row, as ``rows_per_s`` of the plan does."""


@dataclass(slots=True)
class Step:
    """A version of the schema: ``moves`` of elements (element, state before, state after), and what needs no states.

    ``work`` is done when every server has the version. Neither moves nor anything at once: the work alone.
    """

    moves: Sequence[tuple[str, str, str]]
    at_once: Sequence[str]
    work: Sequence[TableWork]

    @property
    def writes(self) -> bool:
        """Is a version of the schema written?"""
        return bool(self.moves or self.at_once)


@dataclass(slots=True)
class ChangePlan:
    """A plan. ``violations`` are rows that the change would stumble over, as of ``timestamp`` (0: no rows were read).

    ``holders``: (server, version that it uses, its lease period in milliseconds); ``rows_per_s``: how many rows work
    on data gets through in a second, as far as that is known.
    """

    schema_version: int
    steps: Sequence[Step]
    warnings: Sequence[str]
    holders: Sequence[tuple[str, int, int]]
    rows_per_s: int
    before: Mapping[str, str]
    after: Mapping[str, str]
    """The whole database as DDL and .proto files, by name."""
    timestamp: int = 0
    violations: list[Findings] = field(default_factory=list)

    @property
    def versions(self) -> int:
        """How many versions of the schema are written."""
        return sum(step.writes for step in self.steps)

    @property
    def wait_at_most_ms(self) -> int:
        """How long all waits for servers take if some do not answer; those that answer take milliseconds."""
        return self.versions * max((lease_ms for _, _, lease_ms in self.holders), default=0)

    def diff(self) -> Iterator[str]:
        """Yield the lines of a unified diff of the database as it is and as it would be."""
        for name in sorted({*self.before, *self.after}):
            before, after = (side.get(name, "").splitlines() for side in (self.before, self.after))
            yield from difflib.unified_diff(before, after, f"{name} (as it is)", f"{name} (wanted)", lineterm="")

    @property
    def losses(self) -> list[tuple[str, int]]:
        """The tables and columns that are dropped, and how many rows or values are lost with each, if that is known."""
        return [
            (element, work.counts.get(element, 0) if element.startswith("column ") else work.rows)
            for step in self.steps
            for work in step.work
            for element, what in work.elements
            if what == "remove" and element.startswith(("table ", "column "))
        ]


Progress = Callable[[int, int], None]
"""Called with how many keys were looked at, and how many there are, about."""


def _table_work(work: pb.PlannedWork) -> TableWork:
    elements = [(element.element, element.work) for element in work.elements]
    return TableWork(work.table, elements, int(work.rows), int(work.bytes), passes=work.passes or 1)


async def plan_change(
    session: Session,
    sources: Mapping[str, str],
    *,
    data: bool = True,
    examples: int = 5,
    parallel: int = 2,
    on_progress: Progress | None = None,
) -> ChangePlan:
    """Plan a change to what sources describe; ``data``: also look at all rows that have something to say to it.

    Raises F1Error: INVALID_ARGUMENT and others for the sources, FAILED_PRECONDITION for what cannot be changed,
    SNAPSHOT_TOO_OLD if the servers could not be reached for minutes.
    """
    files = [pb.SourceFile(name=name, text=text) for name, text in sources.items()]
    reply = await session.plan_schema(pb.PlanSchema(files=files, data=data), _PLAN_TIMEOUT_S)
    plan = _plan_of(reply)
    if reply.pin:
        rows = _Rows(session, files, reply, examples=examples, parallel=parallel, on_progress=on_progress)
        keeping = asyncio.create_task(keep_pin(session, reply.pin), name="pin of the plan")
        try:
            await rows.read()
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            await let_pin_go(session, reply.pin)
        rows.enter(plan, reply)
    return plan


def _plan_of(reply: pb.PlanSchemaReply) -> ChangePlan:
    return ChangePlan(
        reply.schema_version,
        [
            Step(
                [(move.element, move.before, move.after) for move in step.moves],
                list(step.at_once),
                [_table_work(work) for work in step.work],
            )
            for step in reply.steps
        ],
        list(reply.warnings),
        [(holder.server, holder.version, holder.lease_ms) for holder in reply.holders],
        reply.rows_per_s,
        {file.name: file.text for file in reply.before},
        {file.name: file.text for file in reply.after},
        reply.timestamp,
    )


@dataclass(slots=True)
class _Fingerprints:
    """The fingerprints of one index or foreign key, and in which part each of them was found."""

    of: pb.Fingerprints
    arrays: list[pa.Array] = field(default_factory=list)
    parts: list[int] = field(default_factory=list)

    def add(self, part: int, fingerprints: bytes) -> None:
        if fingerprints:
            self.arrays.append(
                pa.Array.from_buffers(pa.uint64(), len(fingerprints) // 8, [None, pa.py_buffer(fingerprints)])
            )
            self.parts.append(part)

    @property
    def whole(self) -> pa.ChunkedArray:
        return pa.chunked_array(self.arrays, pa.uint64())

    def places(self, wanted: pa.Array) -> set[int]:
        """Return the parts in which some of the fingerprints are."""
        pairs = zip(self.arrays, self.parts, strict=True)
        return {part for array, part in pairs if pc.any(pc.is_in(array, value_set=wanted)).as_py()}


class _Rows:
    """The parts of the rows, for several tasks, and what they say."""

    def __init__(
        self,
        session: Session,
        files: Sequence[pb.SourceFile],
        reply: pb.PlanSchemaReply,
        *,
        examples: int,
        parallel: int,
        on_progress: Progress | None,
    ) -> None:
        self._session = session
        self._files = files
        self._examples = examples
        self._parallel = max(1, parallel)
        self._on_progress = on_progress or (lambda done, total: None)
        self._parts = list(reply.parts)
        self._timestamp = reply.timestamp
        self._keys = sum(part.keys for part in self._parts)
        self._done = 0
        self._figures: dict[int, tuple[int, int, dict[str, int]]] = {}
        self._fingerprints: dict[int, _Fingerprints] = {}
        self._groups: dict[tuple[str, str, str], Findings] = {}

    async def read(self) -> None:
        """Ask for all parts, and then for the rows that turn out to be of interest."""
        self._on_progress(0, self._keys)
        await self._each(range(len(self._parts)), self._look)
        for fingerprints in self._fingerprints.values():
            if fingerprints.of.element_id == fingerprints.of.index_id:
                await self._find_twins(fingerprints)
            else:
                await self._find_dangling(fingerprints)

    async def _each(self, parts: Sequence[int], work: Callable[[int], Awaitable[None]]) -> None:
        left = list(reversed(parts))

        async def some() -> None:
            while left:
                await work(left.pop())

        tasks = [asyncio.create_task(some(), name="plan") for _ in range(self._parallel)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, number: int, only: Sequence[pb.Fingerprints] = ()) -> pb.PlanSchemaReply:
        part = pb.CheckPart()
        part.CopyFrom(self._parts[number])
        part.timestamp, part.examples = self._timestamp, self._examples
        return await self._session.plan_schema(pb.PlanSchema(files=self._files, part=part, only=only), _PART_TIMEOUT_S)

    async def _look(self, number: int) -> None:
        reply = await self._ask(number)
        for found in reply.tables:
            rows, size, counts = self._figures.get(found.table_id, (0, 0, {}))
            for item in found.elements:
                counts[item.element] = counts.get(item.element, 0) + item.count
            self._figures[found.table_id] = (rows + found.rows, size + found.bytes, counts)
        for finding in reply.findings:
            examples = [(example.key, example.message) for example in finding.examples]
            self._add(finding.kind, finding.table, finding.element, finding.count, examples)
        for fingerprints in reply.fingerprints:
            self._fingerprints.setdefault(fingerprints.element_id, _Fingerprints(fingerprints)).add(
                number, fingerprints.fingerprints
            )
        self._done += self._parts[number].keys
        self._on_progress(self._done, self._keys)

    def _add(
        self, kind: str, table: str, element: str, count: int, examples: Sequence[tuple[str, str]], clause: int = 6
    ) -> None:
        group = self._groups.setdefault((kind, table, element), Findings(clause, kind, table, element))
        group.count += count
        group.examples += examples[: max(0, self._examples - len(group.examples))]

    async def _find_twins(self, fingerprints: _Fingerprints) -> None:
        """Find rows that cannot both be in a unique index."""
        counted = fingerprints.whole.value_counts()
        often = counted.filter(pc.greater(counted.field("counts"), 1))
        if not len(often):
            return
        rows = await self._rows_of(fingerprints, often.field("values")[: max(1, self._examples)])
        by_key: dict[bytes, list[pb.RowBehind]] = {}
        for row in rows:
            by_key.setdefault(row.whole, []).append(row)
        twins = [same for same in by_key.values() if len(same) > 1]
        if twins:  # else two keys had one fingerprint
            texts = [(f"{same[0].key} and {same[1].key}", f"both have {same[0].message}") for same in twins]
            count = pc.sum(often.field("counts")).as_py()
            self._add("duplicate", fingerprints.of.table, fingerprints.of.element, count, texts)

    async def _find_dangling(self, fingerprints: _Fingerprints) -> None:
        """Find rows whose reference is not among the entries that the index will have."""
        index = self._fingerprints.get(fingerprints.of.index_id)
        there = index.whole if index is not None else pa.chunked_array([], pa.uint64())
        missing = fingerprints.whole.filter(pc.invert(pc.is_in(fingerprints.whole, value_set=there.combine_chunks())))
        if len(missing):
            wanted = missing.unique()[: max(1, self._examples)]
            rows = await self._rows_of(fingerprints, wanted)
            texts = [(row.key, row.message) for row in rows]
            self._add("dangling reference", fingerprints.of.table, fingerprints.of.element, len(missing), texts)

    async def _rows_of(self, fingerprints: _Fingerprints, wanted: pa.Array) -> list[pb.RowBehind]:
        """Return the rows behind some fingerprints, in the order of their keys."""
        data = b"".join(value.to_bytes(8, "little") for value in wanted.to_pylist())
        only = [pb.Fingerprints(element_id=fingerprints.of.element_id, fingerprints=data)]
        found: dict[int, Sequence[pb.RowBehind]] = {}

        async def fetch(number: int) -> None:
            found[number] = (await self._ask(number, only)).rows

        await self._each(sorted(fingerprints.places(wanted)), fetch)
        return [row for number in sorted(found) for row in found[number]]

    def enter(self, plan: ChangePlan, reply: pb.PlanSchemaReply) -> None:
        """Write into the plan what was found."""
        for step, message in zip(plan.steps, reply.steps, strict=True):
            for work, of in zip(step.work, message.work, strict=True):
                work.rows, work.bytes, counts = self._figures.get(of.table_id, (0, 0, {}))
                work.exact = True
                work.counts = {element: counts.get(element, 0) for element, _ in work.elements if element in counts}
        plan.violations = sorted(self._groups.values(), key=lambda g: (g.table, g.element, g.kind))
