"""What commit timestamps promise: external consistency, and that data at a timestamp is what a replay gives.

External consistency (Spanner, section 4.1.2): an operation that began after another one had returned has the greater
timestamp if both commit, and one at least as great if it reads at a strong timestamp.

Replay: apply all commits in the order of their timestamps. A read at ``ts`` must see the newest commit at or below it;
the reads of a transaction that writes, the newest one strictly below its own. This is serializability with the
order given, so it needs no search. Commits of unknown outcome have no known timestamp: a read that sees one bounds it,
and those bounds must fit together.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

from spanstore.testing.checkers.violation import Violation
from spanstore.testing.history import Op, Status, Write

_ORDER = "timestamp_order"
_REPLAY = "snapshot_replay"


def check_timestamp_order(ops: Iterable[Op]) -> list[Violation]:
    """Check that timestamps respect real time. Reads at a chosen timestamp of the past do not belong in ``ops``."""
    done = [op for op in ops if op.status is Status.OK and op.ts is not None]
    moments = [(op.invoke_us, 0, number) for number, op in enumerate(done)]
    moments += [(op.return_us, 1, number) for number, op in enumerate(done)]
    violations = []
    newest: Op | None = None
    newest_commit: Op | None = None
    floors: dict[int, tuple[Op | None, Op | None]] = {}
    for _, returns, number in sorted(moments):
        op = done[number]
        if not returns:
            floors[number] = (newest, newest_commit)
            continue
        floor, commit_floor = floors.pop(number)
        if floor is not None and _ts(op) < _ts(floor):
            message = f"timestamp {op.ts} is below {floor.ts} of an operation that had returned before"
            violations.append(Violation(_ORDER, message, (floor, op)))
        elif op.writes and commit_floor is not None and op.ts == commit_floor.ts:
            message = f"timestamp {op.ts} is that of a commit that had returned before"
            violations.append(Violation(_ORDER, message, (commit_floor, op)))
        if newest is None or _ts(op) > _ts(newest):
            newest = op
        if op.writes and (newest_commit is None or _ts(op) > _ts(newest_commit)):
            newest_commit = op
    return violations


def _ts(op: Op) -> int:
    return 0 if op.ts is None else op.ts


@dataclass(slots=True)
class _Versions:
    """The known commits of a key in the order of their timestamps."""

    ts: list[int] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)

    def at(self, ts: int) -> tuple[int, bytes | None]:
        """Return timestamp and value of the newest version at or below ``ts``; 0 and None if there is none."""
        position = bisect_right(self.ts, ts)
        return (self.ts[position - 1], self.values[position - 1]) if position else (0, None)


@dataclass(slots=True)
class _Bounds:
    """Where the timestamp of a commit of unknown outcome may lie: above ``low`` and at or below ``high``."""

    op: Op
    low: int
    high: int


def check_snapshot_replay(ops: Iterable[Op]) -> list[Violation]:
    """Check every read of known timestamp against a replay of the commits. Written values should be unique."""
    history = list(ops)
    violations, versions = _replay(history)
    unknown: dict[tuple[bytes, bytes | None], list[Op]] = {}
    for op in history:
        if op.status is Status.UNKNOWN:
            for key, value in _effects(op).items():
                unknown.setdefault((key, value), []).append(op)
    bounds: dict[int, _Bounds] = {}
    for op in history:
        if op.status is Status.OK and op.ts is not None:
            violations += _check_reads(op, versions, unknown, bounds)
    for bound in bounds.values():
        if bound.low >= bound.high:
            message = f"no timestamp of this unknown commit explains who saw it: above {bound.low}, up to {bound.high}"
            violations.append(Violation(_REPLAY, message, (bound.op,)))
    return violations + _check_resolved(history, versions, unknown, bounds)


def _effects(op: Op) -> dict[bytes, bytes | None]:
    return {write.key: write.value for write in op.writes}


def _replay(history: list[Op]) -> tuple[list[Violation], dict[bytes, _Versions]]:
    commits = sorted((op for op in history if op.status is Status.OK and op.ts is not None and op.writes), key=_ts)
    versions: dict[bytes, _Versions] = {}
    violations = []
    for op in commits:
        for key, value in sorted(_effects(op).items()):
            of_key = versions.setdefault(key, _Versions())
            if of_key.ts and of_key.ts[-1] == op.ts:
                violations.append(Violation(_REPLAY, f"two commits wrote {key!r} at {op.ts}", (op,)))
            of_key.ts.append(_ts(op))
            of_key.values.append(value)
    return violations, versions


def _check_reads(
    op: Op,
    versions: dict[bytes, _Versions],
    unknown: dict[tuple[bytes, bytes | None], list[Op]],
    bounds: dict[int, _Bounds],
) -> list[Violation]:
    at = _ts(op) - 1 if op.writes else _ts(op)
    own: dict[bytes, bytes | None] = {}
    violations = []
    for step in op.steps:
        if isinstance(step, Write):
            own[step.key] = step.value
            continue
        if step.key in own:
            continue  # what a transaction sees of its own writes is not a matter of timestamps
        low, expected = versions.get(step.key, _Versions()).at(at)
        if step.value == expected:
            continue
        # The first writer that could have done it: values are unique, or equal ones are interchangeable.
        writers = [w for w in unknown.get((step.key, step.value), ()) if w.invoke_us <= op.return_us]
        if not writers:
            message = f"a read of {step.key!r} at {at} saw {step.value!r}, but a replay gives {expected!r} of {low}"
            violations.append(Violation(_REPLAY, message, (op,)))
        elif len(writers) == 1:
            bound = bounds.setdefault(id(writers[0]), _Bounds(writers[0], low, at))
            bound.low, bound.high = max(bound.low, low), min(bound.high, at)
    return violations


def _check_resolved(
    history: list[Op],
    versions: dict[bytes, _Versions],
    unknown: dict[tuple[bytes, bytes | None], list[Op]],
    bounds: dict[int, _Bounds],
) -> list[Violation]:
    """Check that a commit of unknown outcome that somebody saw, so that it happened, is missed by nobody after that."""
    resolved: dict[bytes, list[_Bounds]] = {}
    for bound in bounds.values():
        for key in _effects(bound.op):
            resolved.setdefault(key, []).append(bound)
    violations = []
    for op in history:
        if op.status is not Status.OK or op.ts is None:
            continue
        at = op.ts - 1 if op.writes else op.ts
        for read in op.reads:
            low, expected = versions.get(read.key, _Versions()).at(at)
            if read.value != expected or (read.key, expected) in unknown:
                continue  # a commit of unknown outcome may have written that value again
            for bound in resolved.get(read.key, ()):
                if bound.op is not op and low <= bound.low and bound.high <= at:
                    message = f"a read of {read.key!r} at {at} missed a commit that another one saw at {bound.high}"
                    violations.append(Violation(_REPLAY, message, (bound.op, op)))
    return violations
