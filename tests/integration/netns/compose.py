"""What ``deploy/compose.yaml`` and ``deploy/Dockerfile`` say, as values: the part of Compose that the file uses."""

import os
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

# Of the image: where programs are in a container is no use outside of one.
_NOT_TAKEN = frozenset({"PATH"})


@dataclass(frozen=True)
class Mount:
    """A directory or file of the container: from `source`, a path, the name of a volume or, if None, a new volume."""

    source: str | None
    target: str
    read_only: bool

    @property
    def is_path(self) -> bool:
        return self.source is not None and self.source.startswith((".", "/"))


@dataclass(frozen=True)
class Service:
    """One service of the file, ready to be started."""

    name: str
    hostname: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    mounts: tuple[Mount, ...]
    health: tuple[str, ...]
    published: tuple[str, ...]
    needs: Mapping[str, str]
    raw: Mapping[str, Any]

    @property
    def port(self) -> int:
        return int(self.environment["F1_SERVER_PORT"])


@dataclass(frozen=True)
class Image:
    """What the last stage of a Dockerfile adds to a command."""

    entrypoint: tuple[str, ...]
    environment: Mapping[str, str]
    user: str
    text: str


def read_image(path: Path) -> Image:
    """Read a Dockerfile: ENTRYPOINT, ENV and USER of its last stage."""
    text = path.read_text(encoding="utf-8")
    last = re.split(r"^FROM ", text, flags=re.MULTILINE)[-1].replace("\\\n", " ")
    environment: dict[str, str] = {}
    for line in re.findall(r"^ENV (.+)$", last, re.MULTILINE):
        for word in shlex.split(line):
            variable, _, value = word.partition("=")
            environment[variable] = value
    (entrypoint,) = re.findall(r"^ENTRYPOINT (\[.+\])$", last, re.MULTILINE)
    (user,) = re.findall(r"^USER (\S+)$", last, re.MULTILINE)
    kept = {name: value for name, value in environment.items() if name not in _NOT_TAKEN}
    return Image(tuple(yaml.safe_load(entrypoint)), kept, user, text)


def read_compose(path: Path, image: Image) -> tuple[dict[str, Service], dict[str, Any]]:
    """Read a compose file: its services, each with the environment and entry point of the image, and all of it."""
    document = yaml.safe_load(_substituted(path.read_text(encoding="utf-8")))
    return {name: _service(name, raw, image) for name, raw in document["services"].items()}, document


def _substituted(text: str) -> str:
    """Replace ``${NAME:-default}`` by the default, as with an empty environment."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def _service(name: str, raw: Mapping[str, Any], image: Image) -> Service:
    own = {key: str(value) for key, value in raw["environment"].items()}
    test = raw["healthcheck"]["test"]
    assert test[0] == "CMD", "a health check is a command, not a line for a shell"
    return Service(
        name=name,
        hostname=raw["hostname"],
        command=(*image.entrypoint, *raw["command"]),
        environment={**image.environment, **own},
        mounts=tuple(_mount(item) for item in raw["volumes"]),
        health=tuple(test[1:]),
        published=tuple(raw.get("ports", ())),
        needs={other: how["condition"] for other, how in raw.get("depends_on", {}).items()},
        raw=raw,
    )


def _mount(item: str) -> Mount:
    parts = item.split(":")
    if len(parts) == 1:
        return Mount(None, parts[0], False)
    return Mount(parts[0], parts[1], parts[2:] == ["ro"])


def start_order(services: Mapping[str, Service]) -> list[str]:
    """Return the names so that each comes after what it depends on; those of a tie in the order of the file."""
    order: list[str] = []
    while len(order) < len(services):
        ready = [name for name, s in services.items() if name not in order and set(s.needs) <= set(order)]
        assert ready, f"services depend on one another in a circle: {sorted(set(services) - set(order))}"
        order += ready
    return order


def process_environment(service: Service) -> dict[str, str]:
    """Return the environment that a service starts with: its own, and of ours only what finds programs and code.

    The programs that are tested are those beside the Python that runs the tests.
    """
    ours = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    ours["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), ours.get("PATH", os.defpath)])
    return {**ours, **service.environment}
