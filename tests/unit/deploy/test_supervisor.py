"""The supervisor keeps processes as ordered. Real processes, but small ones."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from f1deploy.directory import ClusterDirectory, State
from f1deploy.processes import Identity, is_alive, reap, send_signal
from f1deploy.restart import RestartPolicy
from f1deploy.spec import Shape, grown, plan, shrunk
from f1deploy.supervisor import Supervisor

QUICKLY = RestartPolicy(first_delay_us=1, max_delay_us=10, max_quick_exits=3)
NAME = "span-a1"


class Scripted(ClusterDirectory):
    """A cluster whose processes run a line of Python."""

    code = "import time; time.sleep(60)"

    def process_command(self, name: str, kind: str) -> list[str]:
        assert (name, kind) in ((NAME, "spanserver"), ("span-a2", "spanserver"))
        return [sys.executable, "-c", self.code]


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Scripted]:
    made = Scripted(tmp_path / "cluster")
    made.create()
    numbers = iter(range(20_000, 30_000))
    made.save(plan(Shape(spanservers=1), "c", 7400, lambda: next(numbers)))
    yield made
    identity = made.state(NAME).identity
    if send_signal(identity, signal.SIGKILL):
        assert identity is not None
        until(lambda: reap(identity.pid) is not None)


def until(condition: Callable[[], bool], step: Callable[[], None] = lambda: None) -> None:
    for _ in range(1000):
        step()
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come to pass")


def running(directory: ClusterDirectory) -> Identity:
    identity = directory.state(NAME).identity
    assert identity is not None
    assert is_alive(identity)
    return identity


def started(directory: Scripted) -> tuple[Supervisor, Identity]:
    directory.give_order(NAME, up=True)
    supervisor = Supervisor(directory, QUICKLY)
    supervisor.step()
    return supervisor, running(directory)


def test_nothing_runs_without_an_order(directory: Scripted) -> None:
    supervisor = Supervisor(directory, QUICKLY)
    supervisor.step()
    assert directory.state(NAME) == State("down")


def test_an_ordered_process_is_started_once_and_the_order_confirmed(directory: Scripted) -> None:
    supervisor, identity = started(directory)
    for _ in range(5):
        supervisor.step()
    assert running(directory) == identity
    assert directory.state(NAME) == State("up", 1, identity, 0)


def test_a_process_that_dies_by_itself_is_started_again(directory: Scripted) -> None:
    supervisor, identity = started(directory)
    os.kill(identity.pid, signal.SIGKILL)
    until(lambda: directory.state(NAME).identity not in (identity, None), supervisor.step)
    assert running(directory) != identity
    assert directory.state(NAME).restarts == 1


def test_a_process_that_dies_by_order_stays_down(directory: Scripted) -> None:
    supervisor, identity = started(directory)
    directory.give_order(NAME, up=False)
    os.kill(identity.pid, signal.SIGKILL)
    until(lambda: directory.state(NAME).identity is None, supervisor.step)
    for _ in range(5):
        supervisor.step()
    assert directory.state(NAME) == State("down", 2)
    assert not Path(f"/proc/{identity.pid}").exists(), "a zombie is left"


def test_an_order_alone_kills_nobody(directory: Scripted) -> None:
    supervisor, identity = started(directory)
    directory.give_order(NAME, up=False)
    supervisor.step()
    assert directory.state(NAME) == State("down", 2, identity)
    assert is_alive(identity)


def test_a_crash_loop_ends_and_a_new_order_is_a_new_chance(directory: Scripted) -> None:
    directory.code = "import sys; sys.exit(3)"
    directory.give_order(NAME, up=True)
    supervisor = Supervisor(directory, QUICKLY)
    until(lambda: directory.state(NAME).phase == "failed", supervisor.step)
    assert directory.state(NAME) == State("failed", 1, None, QUICKLY.max_quick_exits, "exit code 3")
    directory.code = Scripted.code
    directory.give_order(NAME, up=True)
    supervisor.step()
    running(directory)
    assert directory.state(NAME).phase == "up"


def test_the_next_supervisor_adopts_what_runs(directory: Scripted) -> None:
    _, identity = started(directory)
    heir = Supervisor(directory, QUICKLY)
    heir.step()
    assert running(directory) == identity
    assert directory.state(NAME).restarts == 0
    os.kill(identity.pid, signal.SIGKILL)
    until(lambda: directory.state(NAME).identity not in (identity, None), heir.step)
    running(directory)


def test_how_a_process_ended_is_kept(directory: Scripted) -> None:
    directory.code = "import os; os.kill(os.getpid(), 11)"
    directory.give_order(NAME, up=True)
    supervisor = Supervisor(directory, QUICKLY)
    until(lambda: directory.state(NAME).phase == "failed", supervisor.step)
    assert directory.state(NAME).reason == "killed by SIGSEGV"


def test_processes_that_come_are_started_and_those_that_were_removed_are_let_go(directory: Scripted) -> None:
    supervisor, identity = started(directory)
    numbers = iter(range(30_000, 31_000))
    spec, _ = grown(directory.load(), "spanserver", 1, "a", lambda: next(numbers))
    directory.save(spec)
    directory.give_order("span-a2", up=True)
    supervisor.step()
    new = directory.state("span-a2").identity
    assert new is not None
    assert is_alive(new)
    assert running(directory) == identity
    directory.give_order("span-a2", up=False)
    send_signal(new, signal.SIGKILL)
    until(lambda: not is_alive(new))
    directory.save(shrunk(spec, "span-a2"))
    supervisor.step()
    assert reap(new.pid) is None, "it was buried before it was forgotten"
    assert directory.state("span-a2").phase == "down"
    directory.give_order("span-a2", up=True)
    supervisor.step()
    assert directory.state("span-a2").identity is None
    assert running(directory) == identity
