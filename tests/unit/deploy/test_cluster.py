"""What `f1 cluster` refuses before it starts anything, and how states are told."""

import socket
from pathlib import Path

import pytest

from f1common.errors import Code, F1Error
from f1deploy.cluster import Cluster, UpOptions, _state_of
from f1deploy.directory import State
from f1deploy.spec import Shape, plan


def refused(cluster: Cluster, options: UpOptions) -> F1Error:
    with pytest.raises(F1Error) as raised:
        cluster.up(options)
    return raised.value


def test_impossible_options_leave_no_directory(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "c")
    assert refused(cluster, UpOptions(spanservers=0)).code is Code.INVALID_ARGUMENT
    assert refused(cluster, UpOptions(overrides=["nonsense"])).code is Code.INVALID_ARGUMENT
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (UpOptions(readonly=2), "--readonly 1"),
        (UpOptions(readonly=1, voters=1), "--voters 3"),
        (UpOptions(readonly=1, spanservers=5), "--spanservers 4"),
    ],
)
def test_options_that_contradict_a_cluster_name_what_it_has(tmp_path: Path, options: UpOptions, says: str) -> None:
    cluster = Cluster(tmp_path / "c")
    cluster.directory.create()
    numbers = iter(range(20_000, 30_000))
    cluster.directory.save(plan(Shape(spanservers=4, readonly=1), "c", 0, lambda: next(numbers)))
    error = refused(cluster, options)
    assert (error.code, says in error.message) == (Code.FAILED_PRECONDITION, True)


def test_a_wrong_setting_can_be_corrected(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "c")
    for _ in range(2):
        assert refused(cluster, UpOptions(port=0, overrides=["paxos.lease_ms=1"])).code is Code.INVALID_ARGUMENT
    assert not cluster.directory.exists()


def test_a_busy_port_is_named_and_nothing_is_started(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        error = refused(Cluster(tmp_path / "c"), UpOptions(port=port - 1))
    assert (error.code, error.details["port"]) == (Code.PORT_IN_USE, str(port))
    assert Cluster(tmp_path / "c").directory.supervisor() is None


def test_a_foreign_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    assert refused(Cluster(tmp_path), UpOptions(port=0)).code is Code.BAD_DATA_DIR


@pytest.mark.parametrize("command", ["down", "status"])
def test_there_is_nothing_to_do_without_a_cluster(tmp_path: Path, command: str) -> None:
    with pytest.raises(F1Error) as raised:
        getattr(Cluster(tmp_path / "none"), command)()
    assert raised.value.code is Code.NOT_FOUND


@pytest.mark.parametrize(
    ("phase", "alive", "paused", "serving", "told"),
    [
        ("up", True, False, True, "running"),
        ("up", True, False, False, "starting"),
        ("up", True, True, None, "paused"),
        ("up", False, False, None, "restarting"),
        ("waiting", False, False, None, "restarting"),
        ("failed", False, False, None, "failed"),
        ("down", False, False, None, "stopped"),
        ("down", True, False, True, "running"),
    ],
)
def test_states(phase: str, alive: bool, paused: bool, serving: bool | None, told: str) -> None:
    assert _state_of(State(phase), alive, paused, serving) == told  # type: ignore[arg-type]
