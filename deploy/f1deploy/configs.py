"""The configuration file of each process of a local cluster: complete, so that it can be started by hand too."""

import json
from collections.abc import Sequence

import msgspec

from f1common.clock import same_host_offset_us
from f1common.config import ClusterSection, Config
from f1common.errors import Code, F1Error
from f1deploy.directory import ClusterDirectory, replace_file
from f1deploy.spec import HOST, ClusterSpec, ProcessSpec

# What differs from process to process, or follows from the plan, is not a user's to set for all of them.
_OURS = frozenset(
    {
        "server.name",
        "server.zone",
        "server.host",
        "server.port",
        "server.advertise",
        "server.data_dir",
        "server.metrics_port",
    }
)


def merge_overrides(kept: Sequence[str], given: Sequence[str]) -> tuple[str, ...]:
    """Return ``section.key=value`` settings, those ``given`` in place of those ``kept`` with the same key.

    Raises F1Error INVALID_ARGUMENT for what is no setting, or a key that the plan of the cluster decides.
    """
    merged: dict[str, str] = {}
    for item in (*kept, *given):
        name, equals, value = item.partition("=")
        name = name.strip()
        if not equals or "." not in name:
            raise F1Error(Code.INVALID_ARGUMENT, f"--set takes section.key=value, not {item!r}")
        if name in _OURS or name.startswith("cluster."):
            raise F1Error(Code.INVALID_ARGUMENT, f"{name} is decided by `f1 cluster up` itself and cannot be --set")
        merged[name] = f"{name}={value.strip()}"
    return tuple(merged[name] for name in sorted(merged))


def write_configs(directory: ClusterDirectory, spec: ClusterSpec) -> None:
    """Write the file of every process, and delete those of others. Raises F1Error INVALID_ARGUMENT for wrong overrides.

    All files carry the same offset of the clock, which is measured once in a boot.
    """
    offset_us = same_host_offset_us(directory.path / "clock")
    cluster = spec.cluster_section()
    for process in spec.processes:
        write_config(directory, process, cluster, offset_us, spec.overrides)
    ours = {directory.config_path(process.name) for process in spec.processes}
    for path in directory.conf.glob("*.toml"):
        if path not in ours:
            path.unlink(missing_ok=True)


def write_config(
    directory: ClusterDirectory, process: ProcessSpec, cluster: ClusterSection, offset_us: int, overrides: Sequence[str]
) -> Config:
    """Write the file of one process and return the configuration as the process will read it."""
    path = directory.config_path(process.name)
    tables: dict[str, dict[str, object]] = {
        "server": {
            "name": process.name,
            "zone": process.zone,
            "host": HOST,
            "port": process.port,
            "metrics_port": process.metrics_port,
            "data_dir": f"../data/{process.name}",
        },
        "clock": {"source": "same_host", "offset_us": offset_us},
        "cluster": msgspec.to_builtins(cluster),
    }
    if overrides:
        # Loading validates them and gives them their types; then they are written like the rest.
        draft = path.with_name(f"{path.name}.draft")
        replace_file(draft, to_toml(tables).encode())
        try:
            config = Config.load(draft, {}, overrides)
        finally:
            draft.unlink()
        for item in overrides:
            section, _, key = item.partition("=")[0].partition(".")
            tables.setdefault(section, {})[key] = getattr(getattr(config, section), key)
    replace_file(path, to_toml(tables).encode())
    return Config.load(path, {})


def to_toml(tables: dict[str, dict[str, object]]) -> str:
    """Return tables of numbers, texts, and lists of flat tables as TOML."""
    lines: list[str] = []
    for name, table in tables.items():
        lines.append(f"[{name}]")
        for key, value in table.items():
            if isinstance(value, list | tuple) and any(isinstance(item, dict) for item in value):
                lines += [f"{key} = [", *(f"  {_inline(item)}," for item in value), "]"]
            else:
                lines.append(f"{key} = {_inline(value)}")
        lines.append("")
    return "\n".join(lines)


def _inline(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case dict():
            return "{ " + ", ".join(f"{key} = {_inline(item)}" for key, item in value.items()) + " }"
        case list() | tuple():
            return "[" + ", ".join(_inline(item) for item in value) + "]"
        case _:
            return json.dumps(str(value), ensure_ascii=False)  # a TOML basic string
