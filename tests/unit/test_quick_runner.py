"""`scripts/test.py` runs every file of tests in one of its parts, and fails if one of them does."""

from pathlib import Path

import pytest

from scripts.test import SUITES, Part, Run, deal, main, unclaimed, verdict


def test_every_file_of_tests_is_in_one_part() -> None:
    files = [file for part in deal(list(SUITES)) for file in part.files]
    assert len(files) == len(set(files)) > 100
    assert unclaimed() == []
    assert {part.suite for part in deal(list(SUITES))} == set(SUITES)
    assert "tests/unit/test_quick_runner.py" in files


def test_a_file_that_no_suite_has_is_told(tmp_path: Path) -> None:
    for name in ("tests/unit/a/test_a.py", "tests/other/test_b.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    assert unclaimed(tmp_path) == ["tests/other/test_b.py"]
    assert [(part.name, part.files) for part in deal(["unit"], tmp_path)] == [("unit 1/3", ("tests/unit/a/test_a.py",))]


def test_one_part_that_waits_runs_beside_those_that_compute() -> None:
    parts = [Part("unit", "u1", ()), Part("unit", "u2", ()), Part("cluster", "c1", ()), Part("cluster", "c2", ())]
    run = Run(parts, (), processors=2)
    first = [run.take() for _ in range(2)]
    assert [part.name for part in first if part] == ["c1", "u1"]
    run.ended(parts[2], 0)
    then = [run.take() for _ in range(2)]
    assert [part.name for part in then if part] == ["c2", "u2"]
    assert run.take() is None


def test_clusters_run_side_by_side_when_nothing_else_is_left() -> None:
    run = Run([Part("cluster", "c1", ()), Part("cluster", "c2", ())], (), processors=2)
    assert [part.name for part in (run.take(), run.take()) if part] == ["c1", "c2"]


def test_a_part_that_fails_fails_the_run_and_the_others_run_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_bad.py").write_text("def test_bad(): assert 1 == 2\n")
    (tmp_path / "test_good.py").write_text("import pytest\ndef test_good(): pass\n")
    parts = [Part("unit", name, (f"test_{name}.py",)) for name in ("bad", "good")]
    options = ("-W", "ignore", "-p", "no:cacheprovider")
    run = Run(parts, options, 1, tmp_path)
    assert run.all() == 1
    assert run.codes == {"bad": 1, "good": 0}
    (failure,) = run.failures
    assert failure.startswith("bad          | FAILED test_bad.py::test_bad - assert 1 == 2")
    printed = capfd.readouterr().out
    assert "\nbad          | " in printed
    assert "assert 1 == 2" in printed
    assert "good         | ended with 0 after" in printed
    assert Run(parts[1:], options, 1, tmp_path).all() == 0


@pytest.mark.parametrize(
    ("codes", "expected"), [([0, 0], 0), ([0, 5], 0), ([5, 5], 1), ([], 1), ([0, 1], 1), ([0, -9], 1), ([0, 2], 1)]
)
def test_the_verdict_is_good_if_tests_ran_and_none_failed(codes: list[int], expected: int) -> None:
    assert verdict(codes) == expected


def test_a_suite_that_there_is_not_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--only", "nonsense"])
    assert ended.value.code == 2
    assert "there is no suite nonsense; there are unit, embedded, sim, cluster" in capsys.readouterr().err
