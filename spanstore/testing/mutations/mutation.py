"""What a mutation is, and how one is put into running code."""

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from f1common.errors import check
from spanstore.testing.scenarios import PROGRESS, Failure, Scenario, Tweak, draw, failure_of, run

FAST: dict[str, Any] = {"lease_ms": 300, "heartbeat_ms": 40, "election_timeout_ms": 140}
"""Settings of replicas with which much happens in little time."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """A defect of the real code. ``broken()`` is the time in which the code has it.

    ``aim`` bends the scenario that a seed draws towards where the defect shows. It bends clusters, faults and load,
    never a checker.
    """

    name: str
    breaks: str
    broken: Callable[[], AbstractContextManager[None]]
    aim: Tweak

    def scenario(self, seed: int) -> Scenario:
        """Return the scenario of a seed as this mutation is looked for."""
        return self.aim(draw(seed))


@contextmanager
def replaced(owner: Any, name: str, change: Callable[[Any], Any]) -> Iterator[None]:
    """Let ``owner.name`` be ``change(original)`` for a while. The name must be there: code moves, mutations follow."""
    check(name in vars(owner), f"{owner} has no {name} of its own to be broken")
    original = vars(owner)[name]
    new = change(original)
    if callable(new) and callable(original):
        functools.update_wrapper(new, original)
    setattr(owner, name, new)
    try:
        yield
    finally:
        setattr(owner, name, original)


@contextmanager
def unbroken() -> Iterator[None]:
    """The code as it is."""
    yield


def try_seed(mutation: Mutation, seed: int, *, broken: bool = True) -> Failure | None:
    """Run one seed, with the defect or, as a control, without it; return who caught what.

    A cluster that merely stands still is no catch. ERROR is none either, but returned: the mutation itself is wrong.
    """
    with mutation.broken() if broken else unbroken():
        try:
            run(mutation.scenario(seed))
        except Exception as error:
            failure = failure_of(error)
            return None if broken and failure.caught_by == PROGRESS else failure
    return None
