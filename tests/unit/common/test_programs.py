"""Programs that a command runs end with it, and may tidy up."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from f1common.programs import deaf_to_interrupts, interrupted_with_us, run_with_us

_TIDIES_UP = """
import pathlib, sys, time
try:
    print(flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    pathlib.Path(sys.argv[1]).touch()
"""


@pytest.fixture(autouse=True)
def _interrupts_count() -> None:
    """A shell starts what runs in its background with SIGINT ignored, which children have from their parent."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_a_program_may_tidy_up_when_we_end_early(tmp_path: Path, kind: type[BaseException]) -> None:
    command = [sys.executable, "-c", _TIDIES_UP, str(tmp_path / "tidy")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(kind), interrupted_with_us(process):
            raise kind
        assert process.returncode is not None
    assert (tmp_path / "tidy").exists()


def test_what_a_command_prints_is_kept_apart(tmp_path: Path) -> None:
    done = run_with_us(
        [
            sys.executable,
            "-c",
            "import os, sys; print(os.getcwd()); print(os.environ['X'], file=sys.stderr); sys.exit(3)",
        ],
        cwd=tmp_path,
        env={"X": "y"},
    )
    assert (done.stdout, done.stderr, done.returncode) == (f"{tmp_path}\n", "y\n", 3)


def test_processes_that_only_work_for_another_are_not_interrupted() -> None:
    asked = [sys.executable, "-c", "import time; print(flush=True); time.sleep(0.3); print('not interrupted')"]
    with deaf_to_interrupts():
        process = subprocess.Popen(asked, stdout=subprocess.PIPE, text=True, start_new_session=True)
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == "not interrupted\n"
    with pytest.raises(KeyboardInterrupt):  # which we are
        signal.raise_signal(signal.SIGINT)
