"""Processes are known by more than their pid."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from f1common.errors import Code, F1Error
from f1deploy.processes import Identity, identify, is_alive, is_stopped, reap, send_signal, spawn

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(SLEEP) as process:
        yield process
        process.kill()


def identity_of(pid: int) -> Identity:
    found = identify(pid)
    assert found is not None
    return found


def until(condition: object) -> None:
    assert callable(condition)
    for _ in range(400):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come to pass")


def test_a_living_process_is_recognised(sleeper: subprocess.Popen[bytes]) -> None:
    identity = identity_of(sleeper.pid)
    assert is_alive(identity)
    assert not is_stopped(identity)


def test_a_recycled_pid_gets_no_signal(sleeper: subprocess.Popen[bytes]) -> None:
    earlier = msgspec.structs.replace(identity_of(sleeper.pid), start_ticks=1)
    assert not is_alive(earlier)
    assert not send_signal(earlier, signal.SIGKILL)
    assert sleeper.poll() is None


def test_a_pid_of_an_earlier_boot_gets_no_signal(sleeper: subprocess.Popen[bytes]) -> None:
    earlier = msgspec.structs.replace(identity_of(sleeper.pid), boot="another")
    assert not send_signal(earlier, signal.SIGKILL)
    assert sleeper.poll() is None


def test_the_same_process_gets_the_signal(sleeper: subprocess.Popen[bytes]) -> None:
    assert send_signal(identity_of(sleeper.pid), signal.SIGKILL)
    assert sleeper.wait(10) == -signal.SIGKILL


def test_a_zombie_is_dead() -> None:
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", ""], os.environ)
    until(lambda: identify(pid) is None)
    assert Path(f"/proc/{pid}").exists()
    assert reap(pid) == 0
    assert not Path(f"/proc/{pid}").exists()


def test_nobody_gets_a_signal_when_nobody_is_known() -> None:
    assert not send_signal(None, signal.SIGKILL)
    assert not is_alive(None)


def test_a_stopped_process_is_alive_and_stopped(sleeper: subprocess.Popen[bytes]) -> None:
    identity = identity_of(sleeper.pid)
    send_signal(identity, signal.SIGSTOP)
    until(lambda: is_stopped(identity))
    assert is_alive(identity)
    send_signal(identity, signal.SIGCONT)
    until(lambda: not is_stopped(identity))


def test_output_goes_to_the_end_of_the_log_and_the_exit_code_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("before\n")
    code = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)"
    pid = spawn([sys.executable, "-u", "-c", code], log).pid
    codes: list[int | None] = []

    def ended() -> bool:
        codes.append(reap(pid))
        return codes[-1] is not None

    until(ended)
    assert codes[-1] == 7
    assert log.read_text() == "before\nout\nerr\n"


def test_a_spawned_process_hears_signals_that_its_starter_blocks(tmp_path: Path) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        identity = spawn(SLEEP, tmp_path / "x.log", new_session=True)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    assert os.getsid(identity.pid) == identity.pid
    send_signal(identity, signal.SIGTERM)
    until(lambda: not is_alive(identity))
    assert reap(identity.pid) == -signal.SIGTERM


def test_a_program_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(F1Error, match="cannot start") as raised:
        spawn([str(tmp_path / "nothing")], tmp_path / "x.log")
    assert raised.value.code is Code.UNAVAILABLE


def test_another_ones_child_is_not_reaped() -> None:
    assert reap(1) is None
