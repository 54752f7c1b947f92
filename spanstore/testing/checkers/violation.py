"""What a checker reports."""

from collections.abc import Sequence
from dataclasses import dataclass

from spanstore.testing.history import Op

_MAX_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that a history breaks: which checker says so, how, and the operations that show it."""

    checker: str
    message: str
    ops: tuple[Op, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.checker}: {self.message}", *(f"    {op}" for op in self.ops)]
        return "\n".join(lines)


class CheckFailed(AssertionError):
    """A history is wrong."""

    def __init__(self, violations: Sequence[Violation]) -> None:
        shown = [str(violation) for violation in violations[:_MAX_SHOWN]]
        super().__init__(f"{len(violations)} violations\n" + "\n".join(shown))
        self.violations = tuple(violations)


def require(violations: Sequence[Violation]) -> None:
    """Raise :class:`CheckFailed` if there are any violations."""
    if violations:
        raise CheckFailed(violations)
