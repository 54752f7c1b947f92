"""`scripts/test_long.py` runs each unit once per revision and goes on where it stopped."""

import io
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from scripts import test_long as runner
from scripts.test_long import Entry, Ledger, PytestJob, SeedJob, main, revision
from scripts.worlds import KINDS

COUNT = "import sys; open('runs.txt', 'a').write(sys.argv[1] + '\\n'); sys.exit(sys.argv[1] == {bad!r})"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A git repository with one commit, in which build/ and the units' own output are ignored."""
    (tmp_path / ".gitignore").write_text("build/\nruns.txt\n__pycache__/\n")
    for arguments in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "-m", "one"],
    ):
        subprocess.run(["git", "-C", str(tmp_path), *arguments], check=True)
    return tmp_path


def seeds(bad: str = "", stop: int = 6, code: str = COUNT) -> SeedJob:
    """Three units of two seeds that note that they ran; the one that starts with `bad` fails."""
    return SeedJob("sim", (sys.executable, "-c", code.format(bad=bad), "{seed_from}", "{seed_to}"), range(stop), 2)


def call(root: Path, job: runner.Job, *arguments: str) -> tuple[int, str]:
    console = Console(file=io.StringIO(), highlight=False, markup=False, width=200)
    code = main(arguments, [job], root, console)
    assert isinstance(console.file, io.StringIO)
    return code, console.file.getvalue()


def runs(root: Path) -> list[str]:
    path = root / "runs.txt"
    return path.read_text().split() if path.exists() else []


def ledger_lines(root: Path) -> list[dict[str, object]]:
    path = root / "build" / "long" / revision(root) / "ledger.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_seed_range_is_cut_into_units_and_the_last_may_be_smaller(root: Path) -> None:
    units = list(seeds(stop=5).units(root))
    assert [unit.name for unit in units] == ["sim:0-2", "sim:2-4", "sim:4-5"]
    assert units[2].command[-2:] == ("4", "5")


def test_finished_units_are_recorded_and_not_run_again(root: Path) -> None:
    code, output = call(root, seeds())
    assert code == 0
    assert "3 passed, 0 failed, 0 not run" in output
    assert [line["unit"] for line in ledger_lines(root)] == ["sim:0-2", "sim:2-4", "sim:4-6"]
    assert call(root, seeds())[0] == 0
    assert runs(root) == ["0", "2", "4"]


def test_failure_is_recorded_and_reported_at_every_call(root: Path) -> None:
    code, output = call(root, seeds(bad="2"))
    assert code == 1
    assert "failed: sim:2-4 (exit code 1" in output
    assert call(root, seeds(bad="2"))[0] == 1
    assert runs(root) == ["0", "2", "4"]


def test_failed_units_run_again_when_asked(root: Path) -> None:
    call(root, seeds(bad="2"))
    assert call(root, seeds(), "--retry-failed")[0] == 0
    assert runs(root) == ["0", "2", "4", "2"]


def test_new_commit_and_changed_file_each_start_a_ledger(root: Path) -> None:
    clean = revision(root)
    (root / "new.py").write_text("x = 1\n")
    untracked = revision(root)
    (root / "new.py").write_text("x = 2\n")
    changed = revision(root)
    assert len({clean, untracked, changed}) == 3
    assert untracked.startswith(clean)


def test_only_and_list_select_without_running_the_rest(root: Path) -> None:
    assert call(root, seeds(), "--only", "2-4")[0] == 0
    assert runs(root) == ["2"]
    code, output = call(root, seeds(), "--list")
    assert code == 0
    assert output.splitlines() == ["not run  sim:0-2", "passed   sim:2-4", "not run  sim:4-6"]


def test_torn_line_of_the_ledger_is_ignored_and_its_unit_runs_again(root: Path) -> None:
    call(root, seeds())
    path = root / "build" / "long" / revision(root) / "ledger.jsonl"
    path.write_text(path.read_text()[:-10])
    assert call(root, seeds())[0] == 0
    assert runs(root) == ["0", "2", "4", "4"]
    assert sorted(Ledger(path.parent).entries()) == ["sim:0-2", "sim:2-4", "sim:4-6"]


def test_newest_entry_of_a_unit_counts(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.append(Entry("a", runner.FAILED, 1.0, 1, "a.log"))
    ledger.append(Entry("a", runner.PASSED, 1.0, 0, "a.log"))
    assert ledger.entries()["a"].outcome == runner.PASSED


def test_unit_that_takes_too_long_is_killed_and_failed(root: Path) -> None:
    job = SeedJob("slow", (sys.executable, "-c", "import time; time.sleep(600)"), range(1), 1, timeout_s=0.2)
    assert call(root, job)[0] == 1
    (line,) = ledger_lines(root)
    assert line["exit_code"] == -signal.SIGKILL
    log = root / "build" / "long" / revision(root) / str(line["log"])
    assert "killed after 0.2 s" in log.read_text()


def test_workers_run_at_the_same_time(root: Path) -> None:
    meet = (
        "import pathlib, sys, time; mine, other = sys.argv[1:]; pathlib.Path('build', mine).touch()\n"
        "while not pathlib.Path('build', str(1 - int(mine))).exists(): time.sleep(0.01)"
    )
    (root / "build").mkdir()
    job = SeedJob("meet", (sys.executable, "-c", meet, "{seed_from}", "{seed_to}"), range(2), 1, timeout_s=60)
    assert call(root, job, "--workers", "2")[0] == 0


def is_running(pid: str) -> bool:
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_interrupted_unit_is_killed_and_not_recorded(root: Path) -> None:
    script = (
        "import sys, signal; from pathlib import Path; from scripts import test_long as t\n"
        "signal.signal(signal.SIGTERM, t.interrupt)\n"
        "wait = \"import os, time; open('build/pid.tmp', 'w').write(str(os.getpid())); "
        "os.rename('build/pid.tmp', 'build/pid'); time.sleep(600)\"\n"
        "job = t.SeedJob('slow', (sys.executable, '-c', wait), range(1), 1)\n"
        "sys.exit(t.main([], [job], Path(sys.argv[1])))"
    )
    (root / "build").mkdir()
    process = subprocess.Popen([sys.executable, "-c", script, str(root)], cwd=runner.ROOT, stdout=subprocess.DEVNULL)
    pid_file = root / "build" / "pid"
    while not pid_file.exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 2
    for _ in range(1_000):  # it has been killed, which takes effect when the kernel comes to it
        if not is_running(pid_file.read_text()):
            break
        time.sleep(0.02)
    assert not is_running(pid_file.read_text())
    assert not list((root / "build").glob("**/ledger.jsonl"))


def test_pytest_job_has_one_unit_per_test_that_is_marked_long_and_per_property(root: Path) -> None:
    (root / "pyproject.toml").write_text('[tool.pytest.ini_options]\nmarkers = ["long: slow"]\n')
    (root / "tests").mkdir()
    (root / "tests" / "conftest.py").write_text("import hypothesis\nhypothesis.settings.register_profile('long')\n")
    (root / "tests" / "test_a.py").write_text(
        "import pytest\ndef test_quick(): pass\n@pytest.mark.long\n@pytest.mark.parametrize('x', [1, 2])\n"
        "def test_slow(x): assert x == 1\n"
        "from hypothesis import given, settings, strategies as st\n@given(st.booleans())\n"
        "def test_property(x): assert settings.get_current_profile_name() == 'long'\n"
    )
    job = PytestJob("pytest", "tests")
    assert [unit.name for unit in job.units(root)] == [
        "pytest:tests/test_a.py::test_slow[1]",
        "pytest:tests/test_a.py::test_slow[2]",
        "pytest:tests/test_a.py::test_property",
    ]
    code, output = call(root, job)
    assert code == 1
    assert "2 passed, 1 failed, 0 not run" in output


def test_pytest_that_cannot_collect_is_an_error(root: Path) -> None:
    (root / "tests").mkdir()
    (root / "tests" / "test_a.py").write_text("import nothing_of_the_kind\n")
    with pytest.raises(RuntimeError, match="nothing_of_the_kind"):
        list(PytestJob("pytest", "tests").units(root))


def test_every_kind_of_world_is_among_the_long_tests() -> None:
    assert {job.name for job in runner.JOBS} == {*KINDS, "pytest"}
    units = [unit for job in runner.JOBS if isinstance(job, SeedJob) for unit in job.units(runner.ROOT)]
    assert len({unit.name for unit in units}) == len(units)
    assert {unit.command[1] for unit in units} == {"scripts/seeds.py"}
