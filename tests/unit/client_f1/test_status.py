"""``f1 status``: f1servers, and the storage tier through what they or a directory tell."""

import json
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from f1.cli import GROUP, build, run
from f1.commands.status import addresses_in
from tests.unit.client_f1.fake_server import FakeCluster, fake_cluster


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with fake_cluster(2) as running:
        yield running


def status(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    full = ["status", *arguments]
    code = run(build(entry_points(group=GROUP), full), full)
    out, err = capsys.readouterr()
    return code, out, err


def test_f1servers_are_shown(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = status(capsys, "--host", cluster.hosts)
    assert (code, err) == (0, "")
    assert [line.split(" | ")[0].strip() for line in out.splitlines()[2:4]] == ["f1-1", "f1-2"]
    assert "default 3" in out


def test_a_server_that_is_down_is_shown_as_such(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.do(cluster.servers[1].stop())
    code, out, _ = status(capsys, "--host", cluster.hosts, "--format", "json")
    rows = json.loads(out)["f1servers"]
    assert code == 0
    assert [(row["name"], row["error"].partition(":")[0]) for row in rows] == [("f1-1", ""), ("", "UNAVAILABLE")]
    assert rows[0]["databases"][0]["schema_version"] == 3


def test_nobody_answers(capsys: pytest.CaptureFixture[str]) -> None:
    with fake_cluster(1) as cluster:
        hosts = cluster.hosts
    code, out, err = status(capsys, "--host", hosts)
    assert (code, out) == (1, "")
    assert err.startswith("UNAVAILABLE: nobody answers (127.0.0.1:")
    assert err.endswith("Connection refused); is the cluster up?\n")


def test_wrong_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(capsys, "--host", "nonsense")[2].startswith("INVALID_ARGUMENT: ")
    assert status(capsys, "--host", "a:1", "--dir", "x")[2].startswith("INVALID_ARGUMENT: ")
    assert status(capsys, "--dir", str(tmp_path))[2].startswith("NOT_FOUND: ")
    assert addresses_in(tmp_path) == ()
