"""The files of a cluster: one writer each, whole or not at all."""

import json
import os
from pathlib import Path

import pytest

from f1common.errors import Code, F1Error
from f1deploy.directory import ClusterDirectory, Order, State
from f1deploy.processes import Identity
from f1deploy.spec import Shape, plan


@pytest.fixture
def directory(tmp_path: Path) -> ClusterDirectory:
    made = ClusterDirectory(tmp_path / "cluster")
    made.create()
    return made


def code_of(raised: pytest.ExceptionInfo[F1Error]) -> Code:
    return raised.value.code


def test_a_spec_comes_back_as_it_was(directory: ClusterDirectory) -> None:
    numbers = iter(range(20_000, 30_000))
    spec = plan(Shape(), "c", 7400, lambda: next(numbers))
    assert not directory.exists()
    directory.save(spec)
    assert directory.exists()
    assert directory.load() == spec


def test_a_directory_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("chapter 1")
    with pytest.raises(F1Error, match="no cluster") as raised:
        ClusterDirectory(tmp_path).create()
    assert code_of(raised) is Code.BAD_DATA_DIR
    assert os.listdir(tmp_path) == ["thesis.txt"]


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(F1Error) as raised:
        ClusterDirectory(tmp_path / "x").create()
    assert code_of(raised) is Code.BAD_DATA_DIR
    with pytest.raises(F1Error) as raised:
        ClusterDirectory(tmp_path / "x").load()
    assert code_of(raised) is Code.NOT_FOUND


def test_what_a_failed_first_start_leaves_can_be_used(directory: ClusterDirectory) -> None:
    (directory.path / "clock").write_text("x")
    directory.create()


def test_no_cluster_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(F1Error, match="f1 cluster up") as raised:
        ClusterDirectory(tmp_path / "nothing").load()
    assert code_of(raised) is Code.NOT_FOUND


@pytest.mark.parametrize(("text", "code"), [('{"version": 99}', Code.VERSION_MISMATCH), ("{", Code.BAD_DATA_DIR)])
def test_a_spec_that_cannot_be_read_says_why(directory: ClusterDirectory, text: str, code: Code) -> None:
    (directory.path / "cluster.json").write_text(text)
    with pytest.raises(F1Error) as raised:
        directory.load()
    assert code_of(raised) is code


def test_orders_are_numbered_and_the_latest_counts(directory: ClusterDirectory) -> None:
    assert directory.order("x") == Order(up=False, number=0)
    directory.give_order("x", up=True)
    assert directory.give_order("x", up=False) == Order(up=False, number=2)
    assert directory.order("x") == Order(up=False, number=2)


def test_states_come_back(directory: ClusterDirectory) -> None:
    state = State("waiting", 3, Identity(1, 2, "boot"), 4, "exit code 1")
    directory.save_state("x", state)
    assert directory.state("x") == state
    assert directory.state("never seen") == State("down")
    assert json.loads((directory.run / "x.state").read_text())["phase"] == "waiting"


def test_there_is_one_supervisor(directory: ClusterDirectory) -> None:
    first = directory.lock_supervisor()
    assert first is not None
    assert directory.lock_supervisor() is None
    os.close(first)
    second = directory.lock_supervisor()
    assert second is not None
    os.close(second)


def test_a_work_tree_ignores_a_cluster_in_it(directory: ClusterDirectory) -> None:
    assert (directory.path / ".gitignore").read_text() == "*\n"
