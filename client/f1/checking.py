"""Checks of a whole database, driven from the client: a plan, its parts at all servers at a time, and the sum of it."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from f1.session import Session
from f1common.errors import F1Error
from f1common.pb import f1_pb2 as pb

__all__ = ["CheckResult", "Findings", "check_database", "keep_pin", "let_pin_go"]

_STEP_TIMEOUT_S = 120.0
_PART_TIMEOUT_S = 3600.0
_KEEP_EVERY_S = 60.0


@dataclass(slots=True)
class Findings:
    """All findings of one kind in one element; ``examples`` are (key, what is wrong there)."""

    clause: int
    kind: str
    table: str
    element: str
    count: int = 0
    repaired: int = 0
    examples: list[tuple[str, str]] = field(default_factory=list)


@dataclass(slots=True)
class CheckResult:
    """What was looked at, as of which timestamp (microseconds since the epoch), and what is wrong."""

    timestamp: int = 0
    schema_version: int = 0
    rows: int = 0
    entries: int = 0
    findings: list[Findings] = field(default_factory=list)

    @property
    def left(self) -> int:
        """How many findings were not repaired."""
        return sum(group.count - group.repaired for group in self.findings)


Progress = Callable[[int, int], None]
"""Called with how many keys were looked at, and how many there are, about."""


async def check_database(
    session: Session,
    tables: Sequence[str] = (),
    *,
    repair: bool = False,
    examples: int = 5,
    parallel: int = 4,
    on_progress: Progress | None = None,
) -> CheckResult:
    """Check the database, or the hierarchies of some tables, as of now. ``parallel`` parts are under way at a time.

    Raises F1Error: NOT_FOUND for a table, SNAPSHOT_TOO_OLD if the servers could not be reached for minutes.
    """
    plan = await session.check(pb.Check(plan=pb.CheckPlan(tables=tables)), _STEP_TIMEOUT_S)
    work = _Work(session, plan, repair=repair, examples=examples, on_progress=on_progress)
    keeping = asyncio.create_task(keep_pin(session, plan.pin), name="pin of the check")
    working = [asyncio.create_task(work.run(), name="check") for _ in range(max(1, parallel))]
    try:
        await asyncio.gather(*working)
    finally:
        for task in (keeping, *working):
            task.cancel()
        await asyncio.gather(keeping, *working, return_exceptions=True)
        await let_pin_go(session, plan.pin)
    work.result.findings.sort(key=lambda g: (g.clause, g.kind, g.table, g.element))
    return work.result


class _Work:
    """The parts that are still to be done, for several tasks, and what they found."""

    def __init__(
        self, session: Session, plan: pb.CheckReply, *, repair: bool, examples: int, on_progress: Progress | None
    ) -> None:
        self._session = session
        self._repair = repair
        self._examples = examples
        self._on_progress = on_progress
        self._timestamp = plan.timestamp
        self._left = list(reversed(plan.parts))
        self._keys = sum(part.keys for part in plan.parts)
        self._done = 0
        self._groups: dict[tuple[int, str, str, str], Findings] = {}
        self.result = CheckResult(plan.timestamp, plan.schema_version)
        self._show()

    async def run(self) -> None:
        """Do parts until none is left."""
        while self._left:
            part = self._left.pop()
            part.timestamp, part.repair, part.examples = self._timestamp, self._repair, self._examples
            reply = await self._session.check(pb.Check(part=part), _PART_TIMEOUT_S)
            self._done += part.keys
            self.result.rows += reply.rows
            self.result.entries += reply.entries
            for found in reply.findings:
                self._add(found)
            self._show()

    def _add(self, found: pb.CheckFindings) -> None:
        place = (found.clause, found.kind, found.table, found.element)
        group = self._groups.get(place)
        if group is None:
            group = self._groups[place] = Findings(*place)
            self.result.findings.append(group)
        group.count += found.count
        group.repaired += found.repaired
        room = self._examples - len(group.examples)
        group.examples += [(example.key, example.message) for example in found.examples[: max(0, room)]]

    def _show(self) -> None:
        if self._on_progress is not None:
            self._on_progress(self._done, self._keys)


async def keep_pin(session: Session, pin: str) -> None:
    """Refresh the pin again and again; a part says so if it was lost."""
    while True:
        await asyncio.sleep(_KEEP_EVERY_S)
        try:
            await session.check(pb.Check(keep=pin), _KEEP_EVERY_S)
        except F1Error:
            continue


async def let_pin_go(session: Session, pin: str) -> None:
    """Let go of the pin; it is no error if nobody can be told."""
    try:
        await session.check(pb.Check(end=pin), 5.0)
    except F1Error:
        return  # it expires by itself
