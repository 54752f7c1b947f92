"""What ``f1 check`` prints of its findings."""

from f1.checking import CheckResult, Findings
from f1.commands.check import text


def result(*examples: list[tuple[str, str]]) -> CheckResult:
    findings = [Findings(1, "missing entry", "R", f"By{n}", 7, 0, some) for n, some in enumerate(examples)]
    return CheckResult(timestamp=1_795_953_600_000_000, rows=9, entries=2, findings=findings)


def test_examples_are_followed_by_how_many_more_there_are() -> None:
    lines = text(result([("(A) = (1)", "there is none")])).splitlines()
    assert lines[-5:-2] == ["missing entry in R.By0:", "  (A) = (1): there is none", "  and 6 more"]


def test_without_examples_there_is_the_table_alone() -> None:
    shown = text(result([], []))
    assert "more" not in shown and "missing entry in" not in shown and "\n\n\n" not in shown
    assert [line.split()[0] for line in shown.splitlines()[-4:-2]] == ["1", "1"]
    assert shown.splitlines()[-2:] == ["", "Looked at 9 rows and 2 index entries, as of 2026-11-29 12:00:00 UTC."]
