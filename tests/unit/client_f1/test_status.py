"""``f1 status``: f1servers, and the storage tier through what they or a directory tell."""

import json
from collections.abc import Iterator
from importlib.metadata import entry_points
from itertools import count
from pathlib import Path

import pytest

from f1.cli import GROUP, build, run
from f1.commands.options import addresses_in, host_in
from f1.commands.status import Answer, pool_of
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from f1deploy.configs import write_configs
from f1deploy.directory import ClusterDirectory
from f1deploy.spec import Shape, plan
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


def told(connected: bool, version: int, *slaves: pb.PoolSlave) -> Answer:
    pool = pb.PoolStatus(master="m:1", connected=connected, epoch=7, version=version, slaves=slaves)
    return Answer("f:1", pb.StatusReply(name="f1-1", pool=pool), None)


def test_the_pool_is_told_by_the_server_with_the_newest_list() -> None:
    slave = pb.PoolSlave(name="slave-1", zone="a", address="s:1", state="live", running=2, version="1", incarnation=26)
    lost = Answer("f:3", None, F1Error(Code.UNAVAILABLE, "away"))
    assert pool_of([told(True, 3), told(True, 4, slave), told(False, 5), lost]) == {
        "master": {"address": "m:1", "state": "connected", "epoch": 7, "version": 4},
        "slaves": [
            {
                "name": "slave-1",
                "zone": "a",
                "address": "s:1",
                "state": "live",
                "running": 2,
                "version": "1",
                "incarnation": "000000000000001a",
                "reason": "",
            }
        ],
    }


def test_without_a_master_there_is_no_pool(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert pool_of([Answer("f:1", pb.StatusReply(name="f1-1"), None)]) is None
    assert json.loads(status(capsys, "--host", cluster.hosts, "--format", "json")[1])["pool"] is None


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


def test_the_directory_of_a_cluster_says_where_its_f1servers_are(tmp_path: Path) -> None:
    made = ClusterDirectory(tmp_path / "cluster")
    made.create()
    numbers = count(20_000)
    write_configs(made, plan(Shape(), "c", 7400, lambda: next(numbers)))
    assert host_in(None, made.path) == "127.0.0.1:7400,127.0.0.1:7401"
    assert host_in("a:1", None) == "a:1"
    with pytest.raises(F1Error, match="give one of them"):
        host_in("a:1", tmp_path)
    with pytest.raises(F1Error, match="no directory of a cluster") as raised:
        host_in(None, tmp_path / "elsewhere")
    assert raised.value.code is Code.NOT_FOUND
