"""Configuration files of a cluster: what is written is what the processes read."""

import tomllib
from pathlib import Path

import pytest

from f1common.config import Config
from f1common.errors import Code, F1Error
from f1deploy.configs import merge_overrides, to_toml, write_configs
from f1deploy.directory import ClusterDirectory
from f1deploy.spec import ClusterSpec, Shape, plan, shrunk


def spec_with(*overrides: str) -> ClusterSpec:
    numbers = iter(range(20_000, 30_000))
    spec = plan(Shape(f1servers=0), "tea", 7400, lambda: next(numbers))
    return ClusterSpec(**{name: getattr(spec, name) for name in spec.__struct_fields__} | {"overrides": overrides})


@pytest.fixture
def directory(tmp_path: Path) -> ClusterDirectory:
    made = ClusterDirectory(tmp_path / "cluster")
    made.create()
    return made


def test_every_process_reads_its_own_part_and_the_common_one(directory: ClusterDirectory) -> None:
    spec = spec_with()
    write_configs(directory, spec)
    configs = [Config.load(directory.config_path(process.name), {}) for process in spec.processes]
    assert [config.server.name for config in configs] == ["span-a1", "span-b1", "span-c1"]
    assert [Path(config.server.data_dir).resolve() for config in configs] == [
        directory.data / process.name for process in spec.processes
    ]
    assert all(config.cluster == spec.cluster_section() for config in configs)
    assert len({config.clock.offset_us for config in configs}) == 1
    assert configs[0].clock.offset_us > 0


def test_files_of_processes_that_are_gone_go_too(directory: ClusterDirectory) -> None:
    spec = spec_with()
    write_configs(directory, spec)
    write_configs(directory, shrunk(spec, "span-b1"))
    assert sorted(path.name for path in directory.conf.iterdir()) == ["span-a1.toml", "span-c1.toml"]
    assert Config.load(directory.config_path("span-a1"), {}).cluster.removed == ("span-b1",)


def test_clock_offset_is_measured_once_in_a_boot(directory: ClusterDirectory) -> None:
    write_configs(directory, spec_with())
    first = Config.load(directory.config_path("span-a1"), {}).clock.offset_us
    write_configs(directory, spec_with())
    assert Config.load(directory.config_path("span-a1"), {}).clock.offset_us == first


def test_overrides_are_in_the_files_with_their_types(directory: ClusterDirectory) -> None:
    write_configs(directory, spec_with("paxos.lease_ms=3000", "server.log_format=json"))
    config = Config.load(directory.config_path("span-c1"), {})
    assert (config.paxos.lease_ms, config.server.log_format) == (3000, "json")


@pytest.mark.parametrize("override", ["paxos.lease_ms=soon", "paxos.leas_ms=1", "tea.pot=1"])
def test_wrong_override_is_an_error_that_names_it(directory: ClusterDirectory, override: str) -> None:
    with pytest.raises(F1Error) as raised:
        write_configs(directory, spec_with(override))
    assert raised.value.code is Code.INVALID_ARGUMENT
    assert override.partition("=")[0].partition(".")[0] in raised.value.message


def test_later_overrides_replace_earlier_ones() -> None:
    kept = merge_overrides((), ["paxos.lease_ms=2000", "storage.scan_processes=0"])
    assert merge_overrides(kept, [" paxos.lease_ms = 3000"]) == ("paxos.lease_ms=3000", "storage.scan_processes=0")


@pytest.mark.parametrize("item", ["server.port=1", "server.data_dir=x", "cluster.cluster_id=x"])
def test_what_the_plan_decides_is_not_a_setting(item: str) -> None:
    with pytest.raises(F1Error, match="decided by"):
        merge_overrides((), [item])


@pytest.mark.parametrize("item", ["lease", "lease_ms=3", "paxos.lease_ms"])
def test_what_is_no_setting_is_refused(item: str) -> None:
    with pytest.raises(F1Error, match=r"section\.key=value"):
        merge_overrides((), [item])


def test_toml_survives_quotes_and_backslashes() -> None:
    tables: dict[str, dict[str, object]] = {
        "a": {"text": 'say "x" \\ y\tz', "number": -3, "flag": True, "list": ["p", "q"]},
        "b": {"tables": [{"name": "é", "votes": ["x"]}, {"name": "", "votes": []}]},
    }
    assert tomllib.loads(to_toml(tables)) == tables
