"""The ring (FoundationDB's Cycle test): each key holds its successor; transactions reorder three neighbours.

Every correct view is one cycle through all keys. Lost, torn and non-serializable writes split it, mostly at once.
"""

from collections.abc import Iterable, Mapping, Sequence

from spanstore.testing.checkers.violation import Violation
from spanstore.testing.history import Op, Status

CHECKER = "ring"


def check_ring(ops: Iterable[Op], keys: Sequence[bytes], final: Mapping[bytes, bytes | None]) -> list[Violation]:
    """Check that each view of all ``keys``, and the ``final`` one, is one cycle."""
    violations = []
    for op in ops:
        if op.status is Status.OK:
            view = {read.key: read.value for read in reversed(op.reads)}
            if all(key in view for key in keys):
                fault = _fault(view, keys)
                if fault:
                    violations.append(Violation(CHECKER, f"the view at {op.ts} {fault}", (op,)))
    fault = _fault(final, keys)
    if fault:
        violations.append(Violation(CHECKER, f"the final view {fault}"))
    return violations


def successor(value: bytes) -> bytes:
    """Return the key that a stored value names; what follows ``#`` only makes values of different writes different."""
    return value.partition(b"#")[0]


def _fault(view: Mapping[bytes, bytes | None], keys: Sequence[bytes]) -> str:
    """Say what is wrong with a view; nothing if it is one cycle."""
    members = set(keys)
    at = keys[0]
    for step in range(1, len(keys) + 1):
        value = view.get(at)
        if value is None:
            return f"has no successor of {at!r}"
        following = successor(value)
        if following not in members:
            return f"leads from {at!r} to {following!r}, which is no key"
        at = following
        if at == keys[0]:
            return "" if step == len(keys) else f"closes after {step} of {len(keys)} keys"
    return f"does not come back to {keys[0]!r} after {len(keys)} keys"
