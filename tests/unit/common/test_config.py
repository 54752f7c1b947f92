"""Configuration: precedence, ranges, relations, and messages that say what to change."""

import re
from pathlib import Path

import pytest

from f1common.config import (
    ClockSection,
    ClusterGroup,
    ClusterRange,
    ClusterSection,
    ClusterServer,
    Config,
    PaxosSection,
    config_reference_markdown,
)
from f1common.errors import Code, F1Error

DOCUMENT = Path(__file__).parents[3] / "docs" / "config.md"

MINIMAL = """
[server]
name = "span-a1"
zone = "a"
port = 7500
data_dir = "data"

[cluster]
cluster_id = "test"
servers = [{name = "span-a1", zone = "a", address = "127.0.0.1:7500"}]
groups = [{id = 0, voters = ["span-a1"]}, {id = 1, voters = ["span-a1"], preferred_zone = "a"}]
ranges = [{start = "", group = 0}, {start = "19", group = 1}]
"""


def load(
    tmp_path: Path, text: str = MINIMAL, env: dict[str, str] | None = None, overrides: tuple[str, ...] = ()
) -> Config:
    path = tmp_path / "f1.toml"
    path.write_text(text)
    return Config.load(path, env or {}, overrides)


def refusal(tmp_path: Path, text: str = MINIMAL, env: dict[str, str] | None = None, *overrides: str) -> str:
    with pytest.raises(F1Error) as caught:
        load(tmp_path, text, env, overrides)
    assert caught.value.code is Code.INVALID_ARGUMENT
    return caught.value.message


def test_defaults_fill_what_the_file_leaves_out(tmp_path: Path) -> None:
    config = load(tmp_path)
    assert config.server.host == "127.0.0.1"
    assert config.paxos == PaxosSection()
    assert config.cluster.ranges[1].start_key == b"\x19"
    assert config.cluster.server("span-a1").address == "127.0.0.1:7500"


def test_later_sources_win(tmp_path: Path) -> None:
    text = MINIMAL + "[paxos]\nlease_ms = 2000\nheartbeat_ms = 100\nclock_drift_ppm = 1\n"
    env = {"F1_PAXOS_LEASE_MS": "3000", "F1_PAXOS_HEARTBEAT_MS": "110", "F1_SERVER_NAME": "7", "HOME": "/"}
    config = load(tmp_path, text, env, ("paxos.lease_ms=4000", "server.log_format=json"))
    assert (config.paxos.lease_ms, config.paxos.heartbeat_ms, config.paxos.clock_drift_ppm) == (4000, 110, 1)
    assert config.server.name == "7"  # text needs no quotes, whatever it looks like
    assert config.server.log_format == "json"


def test_the_address_that_others_are_told(tmp_path: Path) -> None:
    assert load(tmp_path).server.public_address() == "127.0.0.1:7500"
    assert load(tmp_path, overrides=("server.port=0",)).server.public_address(4321) == "127.0.0.1:4321"
    behind = ("server.host=0.0.0.0", "server.advertise=db.example:7500")
    assert load(tmp_path, overrides=behind).server.public_address(4321) == "db.example:7500"
    assert "server.advertise" in refusal(tmp_path, MINIMAL, {}, "server.advertise=db.example")


def test_lists_can_be_overridden(tmp_path: Path) -> None:
    config = load(tmp_path, overrides=('cluster.ranges=[{start = "", group = 1}]',))
    assert config.cluster.ranges == (ClusterRange(start="", group=1),)


def test_the_data_directory_is_relative_to_the_file(tmp_path: Path) -> None:
    assert load(tmp_path).server.data_dir == str(tmp_path / "data")
    assert load(tmp_path, overrides=("server.data_dir=/srv/f1",)).server.data_dir == "/srv/f1"


def test_a_value_out_of_range_is_named_with_range_and_origin(tmp_path: Path) -> None:
    message = refusal(tmp_path, MINIMAL + "[paxos]\nlease_ms = 5\n")
    assert message == f"paxos.lease_ms = 5 (from {tmp_path / 'f1.toml'}): expected an integer from 10 to 300000"
    message = refusal(tmp_path, MINIMAL, {"F1_SERVER_PORT": "http"})
    assert message == (
        "server.port = 'http' (from environment variable F1_SERVER_PORT): expected an integer from 0 to 65535"
    )
    message = refusal(tmp_path, MINIMAL, None, "server.log_level=verbose")
    assert message == (
        "server.log_level = 'verbose' (from --set server.log_level): "
        "expected one of 'debug', 'info', 'warning', 'error'"
    )
    assert "a name of letters" in refusal(tmp_path, MINIMAL, None, "server.zone=")
    assert "expected an integer" in refusal(tmp_path, MINIMAL, None, "server.port=true")


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    message = refusal(tmp_path, '[server]\nname = "x"\nzoom = "a"\n', None, "limits.stream_queue=0", "nonsense")
    for part in (
        "unknown key server.zoom",
        "server.port is missing",
        "limits.stream_queue",
        "cluster.groups",
        "nonsense",
    ):
        assert part in message


@pytest.mark.parametrize(
    ("text", "overrides", "message"),
    [
        ("[paxso]\nlease_ms = 1500\n", (), "did you mean [paxos]?"),
        ("", ("paxos.lease=1500",), "unknown key paxos.lease (from --set paxos.lease); did you mean paxos.lease_ms?"),
        ("[storage]\nmap_size_gb = 1\n", (), "did you mean storage.map_size_gib?"),
        ("top = 1\n", (), "every key belongs to a section"),
        ("[strange]\n", (), "unknown section [strange]"),
    ],
)
def test_what_is_unknown_gets_the_nearest_name(
    tmp_path: Path, text: str, overrides: tuple[str, ...], message: str
) -> None:
    assert message in refusal(tmp_path, text + MINIMAL, None, *overrides)


def test_a_misspelt_variable_is_an_error_and_a_foreign_one_is_not(tmp_path: Path) -> None:
    assert "did you mean paxos.lease_ms?" in refusal(tmp_path, MINIMAL, {"F1_PAXOS_LEASE_MSS": "1"})
    load(tmp_path, MINIMAL, {"F1_HOST": "somewhere", "F1_PAXOS": "1", "F1": "2", "PAXOS_LEASE_MS": "7"})


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(F1Error) as caught:
        Config.load(tmp_path / "absent.toml", {})
    assert caught.value.code is Code.NOT_FOUND
    assert "line 1" in refusal(tmp_path, "server = = 1")
    with pytest.raises(F1Error, match="cannot read the configuration file"):
        Config.load(tmp_path, {})


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("paxos.lease_ms=700",), "paxos.lease_ms (700) must be above paxos.election_timeout_ms (700)"),
        (("paxos.heartbeat_ms=234",), "paxos.election_timeout_ms (700) must be above 3 * paxos.heartbeat_ms (234)"),
        (("paxos.election_timeout_ms=600",), "must be above 3 * paxos.heartbeat_ms (200)"),
        (("paxos.max_inflight_bytes=4096",), "must be at least paxos.max_batch_bytes"),
        (("master.dead_ms=1000",), "master.dead_ms (1000) must be above master.suspect_ms (1000)"),
        (("slave.heartbeat_ms=500",), "master.suspect_ms (1000) must be above 2 * slave.heartbeat_ms (500)"),
        (("clock.source=bounded",), "needs clock.bound_us > 0"),
        (("clock.source=bounded", "clock.bound_us=300000"), "at least twice clock.bound_us (300 ms)"),
        (
            ("clock.source=bounded", "clock.bound_us=200001", "f1server.schema_lease_ms=1000"),
            "f1server.schema_lease_ms (1000) must be at least 5 times clock.bound_us (200.001 ms), "
            "or a lease is over before it can be used: set it to 1001 or more",
        ),
    ],
)
def test_relations_hold_or_the_process_does_not_start(tmp_path: Path, overrides: tuple[str, ...], message: str) -> None:
    told = refusal(tmp_path, MINIMAL, None, *overrides)
    assert message in told
    assert "--set" in told


def test_relations_are_checked_on_values_built_in_code() -> None:
    with pytest.raises(F1Error, match="election_timeout_ms"):
        PaxosSection(heartbeat_ms=400)
    with pytest.raises(F1Error, match="bound_us"):
        ClockSection(source="bounded")


SERVERS = tuple(
    ClusterServer(name=f"span-{zone}1", zone=zone, address=f"10.0.0.{n}:7500") for n, zone in enumerate("abc")
)
VOTERS = tuple(server.name for server in SERVERS)
WHOLE = ClusterRange(start="", group=0)


@pytest.mark.parametrize(
    ("servers", "groups", "ranges", "message"),
    [
        ((*SERVERS, SERVERS[0]), [(0, VOTERS, "")], [("", 0)], "a server twice"),
        (SERVERS, [(0, VOTERS, ""), (0, VOTERS, "")], [("", 0)], "a group twice"),
        (SERVERS, [(1, VOTERS, "")], [("", 1)], "lacks group 0"),
        (SERVERS, [(0, VOTERS[:2], "")], [("", 0)], "1, 3 or 5 voters, not 2"),
        (SERVERS, [(0, (*VOTERS[:2], "span-a1"), "")], [("", 0)], "named twice"),
        (SERVERS, [(0, (*VOTERS[:2], "span-c2"), "")], [("", 0)], "'span-c2' is not in cluster.servers; did you mean"),
        (SERVERS, [(0, VOTERS, "d")], [("", 0)], "no voter lies in the preferred_zone 'd'"),
        (SERVERS, [(0, VOTERS, "")], [("01", 0)], "the first start must be empty"),
        (SERVERS, [(0, VOTERS, "")], [("", 0), ("05", 0), ("05", 0)], "starts must ascend"),
        (SERVERS, [(0, VOTERS, "")], [("", 4)], "group 4 is not in cluster.groups"),
    ],
)
def test_a_topology_that_does_not_fit_together(
    servers: tuple[ClusterServer, ...],
    groups: list[tuple[int, tuple[str, ...], str]],
    ranges: list[tuple[str, int]],
    message: str,
) -> None:
    with pytest.raises(F1Error, match=re.escape(message)):
        ClusterSection(
            cluster_id="test",
            servers=servers,
            groups=tuple(ClusterGroup(id=i, voters=voters, preferred_zone=zone) for i, voters, zone in groups),
            ranges=tuple(ClusterRange(start=start, group=group) for start, group in ranges),
        )


def test_a_topology_that_fits_together() -> None:
    groups = (ClusterGroup(id=0, voters=VOTERS, preferred_zone="b"),)
    cluster = ClusterSection(cluster_id="test", servers=SERVERS, groups=groups, ranges=(WHOLE,))
    assert cluster.server("span-b1").zone == "b"
    with pytest.raises(F1Error, match=r"NOT_FOUND.*span-a1"):
        cluster.server("span-a")


def test_founders_may_have_been_removed() -> None:
    groups = (ClusterGroup(id=0, voters=VOTERS, preferred_zone="b"),)
    left = tuple(server for server in SERVERS if server.name != "span-b1")
    cluster = ClusterSection(cluster_id="test", servers=left, groups=groups, ranges=(WHOLE,), removed=("span-b1",))
    assert cluster.groups[0].voters == VOTERS
    with pytest.raises(F1Error, match="removed names a server of"):
        ClusterSection(cluster_id="test", servers=SERVERS, groups=groups, ranges=(WHOLE,), removed=("span-b1",))
    with pytest.raises(F1Error, match="'span-b1' is not in"):
        ClusterSection(cluster_id="test", servers=left, groups=groups, ranges=(WHOLE,))


def test_lists_tell_where_inside_the_mistake_is(tmp_path: Path) -> None:
    message = refusal(tmp_path, MINIMAL, None, 'cluster.ranges=[{start = "0x", group = 0}]')
    assert "[0].start" in message
    assert "unknown field `vote`" in refusal(tmp_path, MINIMAL, None, "cluster.groups=[{id = 0, vote = []}]")


def test_the_document_is_the_code() -> None:
    text = DOCUMENT.read_text()
    assert text.partition("<!-- reference -->\n\n")[2] == config_reference_markdown()


def test_the_example_in_the_document_loads(tmp_path: Path) -> None:
    example = DOCUMENT.read_text().partition("```toml\n")[2].partition("```")[0]
    config = load(tmp_path, example)
    assert config.clock == ClockSection(source="bounded", bound_us=5000)
    assert [group.preferred_zone for group in config.cluster.groups] == ["", "a"]
