"""State machine safety of the replicated log: no two replicas apply different entries at one index of one group.

A replica reports each entry when it applies it and each checkpoint that it installs (state transfer). One incarnation
of a replica applies without a gap; after a restart it may repeat what it had not made durable, but skips nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from spanstore.testing.checkers.violation import Violation

CHECKER = "log_agreement"


@dataclass(frozen=True, slots=True)
class Applied:
    """``replica`` applied an entry; ``entry`` are its bytes or a digest of them."""

    replica: str
    incarnation: int
    group: int
    index: int
    entry: bytes


@dataclass(frozen=True, slots=True)
class Installed:
    """``replica`` replaced its state by a checkpoint that contains everything up to ``index``."""

    replica: str
    incarnation: int
    group: int
    index: int


def check_log_agreement(events: Iterable[Applied | Installed]) -> list[Violation]:
    """Check the reports of all replicas, each replica's in the order in which it made them."""
    violations: list[Violation] = []
    first: dict[tuple[int, int], Applied] = {}
    last: dict[tuple[str, int], tuple[int, int]] = {}
    for event in events:
        replica = (event.replica, event.group)
        before = last.get(replica)
        match event:
            case Installed():
                if before is not None and before[0] == event.incarnation and event.index < before[1]:
                    violations.append(_wrong(event, f"went back from {before[1]}"))
            case Applied():
                known = first.setdefault((event.group, event.index), event)
                if known.entry != event.entry:
                    violations.append(_wrong(event, f"is {event.entry!r}, but {known.replica} applied {known.entry!r}"))
                violations += _check_order(event, before)
        last[replica] = (event.incarnation, event.index)
    return violations


def _check_order(event: Applied, before: tuple[int, int] | None) -> list[Violation]:
    if before is None:
        return [_wrong(event, "comes first, so that entries are missing")] if event.index != 1 else []
    incarnation, index = before
    if incarnation == event.incarnation:
        return [] if event.index == index + 1 else [_wrong(event, f"follows {index}")]
    if event.index > index + 1:
        return [_wrong(event, f"follows {index} of an earlier incarnation, so that entries are missing")]
    return []


def _wrong(event: Applied | Installed, what: str) -> Violation:
    return Violation(
        CHECKER, f"index {event.index} of group {event.group} at {event.replica}/{event.incarnation} {what}"
    )
