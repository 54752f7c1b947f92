"""Clusters of benchmarks leave nothing behind, whenever they are interrupted."""

from pathlib import Path

import pytest

from f1deploy.bench.database import first
from f1deploy.bench.local import LocalCluster, local_cluster
from spanstore.tools import bench


@pytest.mark.parametrize("begun", [True, False])
def test_a_cluster_that_is_interrupted_while_it_starts_is_removed(monkeypatch: pytest.MonkeyPatch, begun: bool) -> None:
    said: list[str] = []

    def cluster(self: LocalCluster, *arguments: str) -> str:
        said.append(arguments[0])
        return _interrupted(arguments[0], self.folder / "cluster", begun)

    monkeypatch.setattr(LocalCluster, "cluster", cluster)
    with pytest.raises(KeyboardInterrupt), local_cluster():
        pass
    assert said == (["up", "down"] if begun else ["up"])


def test_so_is_one_of_the_storage_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def command(*arguments: str) -> None:
        said.append(arguments[0])
        _interrupted(arguments[0], Path(arguments[arguments.index("--dir") + 1]), begun=True)

    monkeypatch.setattr(bench, "_cluster_command", command)
    with pytest.raises(KeyboardInterrupt), bench._temporary_cluster():
        pass
    assert said == ["up", "down"]


def test_so_is_one_of_the_first_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said: list[str] = []

    def f1(self: first.FirstVersion, *arguments: str) -> str:
        said.append(arguments[1])
        return _interrupted(arguments[1], self._folder / "f1-cluster", begun=True)

    monkeypatch.setattr(first.FirstVersion, "f1", f1)
    (tmp_path / "spanstore").mkdir()
    (tmp_path / "client" / "f1").mkdir(parents=True)
    with pytest.raises(KeyboardInterrupt), first.first_version(tmp_path):
        pass
    assert said == ["up", "down"]


def _interrupted(command: str, folder: Path, begun: bool) -> str:
    if command == "up":
        folder.mkdir()
        if begun:
            (folder / "cluster.json").touch()
        raise KeyboardInterrupt
    return ""
