"""`scripts/seeds.py` runs each seed once per text of the code, and goes on where it stopped."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from scripts import seeds
from scripts.seeds import FAILED, PASSED, Ledger, Line, Work, batches, main, try_seed
from scripts.worlds import KINDS, ROOT, Kind

CORE = KINDS["core"]


def line(kind: str, seed: int, code: str, failure: str = "", revision: str = "r1", ended_s: int = 1) -> Line:
    return Line(kind, seed, revision, code, FAILED if failure else PASSED, failure, 3600.0, 1.0, 0.5, ended_s)


def kept(directory: Path, *lines: Line, revision: str = "r1") -> Ledger:
    ledger = Ledger(directory, revision)
    for item in lines:
        ledger.add(item)
    return Ledger(directory, revision)


def run(directory: Path, *arguments: str) -> int:
    return main(["--kinds", "core", "--processes", "1", "--ledgers", str(directory), *arguments])


def test_seeds_run_once_and_more_of_them_run_only_the_rest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "--seeds", "7-9") == 0
    (path,) = tmp_path.glob("*.jsonl")
    before = path.read_text()
    assert [json.loads(text)["seed"] for text in before.splitlines()] == [7, 8, 9]
    capsys.readouterr()
    assert run(tmp_path, "--seeds", "7-11", "--format", "json") == 0
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    assert path.read_text().startswith(before)
    assert [entry["seed"] for entry in lines] == [7, 8, 9, 10, 11]
    assert all(entry["outcome"] == PASSED and entry["simulated_s"] > 1 for entry in lines)
    assert sum(entry["cpu_s"] for entry in lines) > 0  # one alone may take less than the clock tells
    (total,) = json.loads(capsys.readouterr().out)["totals"]
    assert (total["seeds"], total["failed"], total["current"]) == (5, 0, True)


def test_a_line_of_other_code_or_half_a_line_lets_the_seed_run_again(tmp_path: Path) -> None:
    ledger = kept(tmp_path, line("core", 1, "old"), line("core", 2, "new"))
    (tmp_path / "r1.jsonl").open("a").write('{"kind": "core", "se')
    ledger = Ledger(tmp_path, "r1")
    assert set(ledger.of(CORE, "new")) == {2}
    ledger.add(line("core", 3, "new"))
    assert set(Ledger(tmp_path, "r2").of(CORE, "new")) == {2, 3}


def test_a_failure_is_told_with_its_replay_and_counts_until_it_is_run_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept(tmp_path, line("core", 7, CORE.digest(), "it broke"))
    assert run(tmp_path, "--seeds", "8-8") == 0
    assert run(tmp_path, "--seeds", "7-7") == 1
    told = capsys.readouterr().out
    assert "failed: core 7: it broke" in told
    assert 'python scripts/seeds.py --replay "core" 7' in told
    assert run(tmp_path, "--seeds", "7-7", "--retry-failed") == 0
    assert main(["--replay", "core", "7"]) == 0


def test_a_world_that_raises_has_failed_and_one_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: int) -> float:
        raise ValueError("no such luck\nat all")

    def hanging(_: int) -> float:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            pass
        return 0.0

    failure, _ = try_seed(replace(CORE, run=broken), 1)
    assert failure.startswith("ValueError: no such luck (test_seeds_runner.py:")
    monkeypatch.setattr(seeds, "HUNG_CPU_S", 0.05)
    assert try_seed(replace(CORE, run=hanging), 1)[0].startswith("hung")


def test_kinds_come_along_evenly() -> None:
    def work(name: str, seeds: int, batch: int) -> Work:
        return Work(replace(CORE, name=name, batch=batch), "", range(seeds), list(range(seeds)))

    order = [(item.kind.name, len(taken)) for item, taken in batches([work("many", 40, 10), work("few", 4, 1)])]
    assert sorted(order) == [("few", 1)] * 4 + [("many", 10)] * 4
    assert {name for name, _ in order[:2]} == {name for name, _ in order[-2:]} == {"many", "few"}


def test_a_run_ends_when_the_code_changes_under_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digests: Iterator[str] = iter(["before", *["after"] * 100])
    monkeypatch.setattr(Kind, "digest", lambda self: next(digests))
    monkeypatch.setattr(seeds, "_LOOK_S", 0.0)
    with pytest.raises(RuntimeError, match="code has changed"):
        run(tmp_path, "--seeds", "7-400")


def test_the_code_of_a_kind_is_the_text_of_what_it_runs(tmp_path: Path) -> None:
    for name in ("f1common/clock.py", "spanstore/paxos/core.py", "spanstore/mvcc/read.py", "f1server/sql.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    kinds = (CORE, KINDS["transactions"], KINDS["databases"])

    def changed(name: str) -> list[bool]:
        before = [kind.digest(tmp_path) for kind in kinds]
        (tmp_path / name).write_text("x = 2\n")
        return [kind.digest(tmp_path) != old for kind, old in zip(kinds, before, strict=True)]

    assert changed("spanstore/paxos/core.py") == [True, True, True]
    assert changed("spanstore/mvcc/read.py") == [False, True, True]
    assert changed("f1server/sql.py") == [False, False, True]
    assert all(len(list(ROOT.glob(pattern))) for kind in KINDS.values() for pattern in kind.code)


def test_the_page_counts_per_code_and_says_what_became_of_failures(tmp_path: Path) -> None:
    kept(tmp_path, line("moves", 1, "aaaa"), line("moves", 2, "aaaa", "two | owners"), revision="zz")
    later = (line("moves", 2, "bbbb", revision="r2", ended_s=2), line("core", 1, "cccc"))
    ledger = kept(tmp_path, *later, revision="r2")
    seeds.write_summary(ledger, tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text()
    assert "| moves | aaaa | r1 | 2 | 1 | 2.0 | 0.5 |" in page
    assert "| moves | bbbb | r2 | 1 | 0 | 1.0 | 0.5 |" in page
    assert page.index("aaaa") < page.index("bbbb")
    assert "| moves | 2 | aaaa | two \\| owners | passed with bbbb |" in page
    assert "Whole clusters: 3 runs, 2 of them without failure." in page


@pytest.mark.parametrize("arguments", [["--kinds", "nonsense"], ["--replay", "nonsense", "1"], ["--seeds", "x"]])
def test_what_makes_no_sense_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage" in capsys.readouterr().err
