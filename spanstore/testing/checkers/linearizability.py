"""Linearizability of single keys, by the search of Wing and Gong (1993) with Lowe's memory of visited states.

Linearizability is compositional, so each key is searched by itself (Herlihy and Wing, 1990, section 3). An operation of
unknown outcome takes effect at any time after its invocation, or never. One that nobody saw is left out: never having
happened explains as much.

Operations of other shapes than the register's are taken for what they do to one key: a read, a write, or a conditional
write (reads what it replaces).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from spanstore.testing.checkers.violation import Violation
from spanstore.testing.history import Op, Status

CHECKER = "linearizability"
_MAX_STATES = 300_000
_ANY = object()


@dataclass(frozen=True, slots=True)
class _Action:
    """What an operation does to one key: it needs to see ``expects`` (unless _ANY) and leaves ``leaves`` (or _ANY)."""

    op: Op
    expects: object
    leaves: object

    @property
    def certain(self) -> bool:
        return self.op.status is Status.OK


class _Entry:
    """A call or a return in the doubly linked list of what is not yet explained."""

    __slots__ = ("after", "before", "call", "number", "returns")

    def __init__(self, number: int, call: bool) -> None:
        self.number = number
        self.call = call
        self.returns: _Entry | None = None
        self.before: _Entry = self
        self.after: _Entry = self


def check_linearizable(ops: Iterable[Op], initial: bytes | None = None) -> list[Violation]:
    """Check each key of a history of reads, writes and conditional writes; ``initial`` is the value of every key."""
    by_key: dict[bytes, list[_Action]] = {}
    for op in ops:
        if op.status is not Status.FAIL:
            for key in sorted({step.key for step in op.steps}):
                by_key.setdefault(key, []).append(_action(op, key))
    violations = []
    for key, actions in sorted(by_key.items()):
        stuck = _search(_prune(actions), initial)
        if stuck is not None:
            message = f"no order of the operations on {key!r} explains what they saw; it fails at the latest here"
            violations.append(Violation(CHECKER, message, tuple(action.op for action in stuck)))
    return violations


def _action(op: Op, key: bytes) -> _Action:
    expects: object = _ANY
    leaves: object = _ANY
    for read in op.reads:
        if read.key == key and expects is _ANY:
            expects = read.value
    for write in op.writes:
        if write.key == key:
            leaves = write.value
    return _Action(op, expects, leaves)


def _prune(actions: list[_Action]) -> list[_Action]:
    """Leave out what has no effect on others: unknown reads, and unknown writes whose value nobody saw."""
    kept = actions
    while True:
        # An unknown conditional write may itself be the only one that saw the value of another.
        seen = {action.expects for action in kept if action.expects is not _ANY}
        smaller = [a for a in kept if a.certain or (a.leaves is not _ANY and a.leaves in seen)]
        if len(smaller) == len(kept):
            return kept
        kept = smaller


def _search(actions: list[_Action], initial: bytes | None) -> list[_Action] | None:
    """Return None if there is an explanation, else the operations open where the search got farthest."""
    head = _entries(actions)
    certain_left = sum(action.certain for action in actions)
    state: object = initial
    done = 0
    stack: list[tuple[_Entry, object]] = []
    visited: set[tuple[int, object]] = {(0, initial)}
    fewest_left, farthest = certain_left + 1, [0]
    entry = head.after
    while certain_left:
        if entry is not head and entry.call:
            action = actions[entry.number]
            fits = action.expects is _ANY or action.expects == state
            following = state if action.leaves is _ANY else action.leaves
            mark = (done | 1 << entry.number, following)
            if fits and mark not in visited:
                if len(visited) > _MAX_STATES:
                    raise MemoryError(f"linearizability needs more than {_MAX_STATES} states; make the history shorter")
                visited.add(mark)
                stack.append((entry, state))
                done, state = mark
                certain_left -= action.certain
                _lift(entry)
                entry = head.after
            else:
                entry = entry.after
            continue
        # An operation returned before it could be explained: undo the last choice and try the next one.
        if certain_left < fewest_left:
            fewest_left, farthest = certain_left, [e.number for e in _open_calls(head)]
        if not stack:
            return [actions[number] for number in farthest]
        entry, state = stack.pop()
        done &= ~(1 << entry.number)
        certain_left += actions[entry.number].certain
        _unlift(entry)
        entry = entry.after
    return None


def _entries(actions: list[_Action]) -> _Entry:
    """Return the head of the ring of calls and returns in the order of time; calls first where times are equal."""
    timed: list[tuple[int, int, int, _Entry]] = []
    for number, action in enumerate(actions):
        call = _Entry(number, True)
        timed.append((action.op.invoke_us, 0, number, call))
        if action.certain:
            call.returns = _Entry(number, False)
            timed.append((action.op.return_us, 1, number, call.returns))
    timed.sort(key=lambda item: item[:3])
    head = _Entry(-1, False)
    last = head
    for *_, entry in timed:
        last.after, entry.before = entry, last
        last = entry
    last.after, head.before = head, last
    return head


def _open_calls(head: _Entry) -> list[_Entry]:
    """Return the calls before the first return: those from which the search could not choose."""
    found = []
    entry = head.after
    while entry is not head and entry.call:
        found.append(entry)
        entry = entry.after
    return found


def _lift(entry: _Entry) -> None:
    entry.before.after, entry.after.before = entry.after, entry.before
    if entry.returns is not None:
        entry.returns.before.after, entry.returns.after.before = entry.returns.after, entry.returns.before


def _unlift(entry: _Entry) -> None:
    if entry.returns is not None:
        entry.returns.before.after = entry.returns.after.before = entry.returns
    entry.before.after = entry.after.before = entry
