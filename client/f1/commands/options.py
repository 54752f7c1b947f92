"""Options that the client's commands share, and the connection that they ask for."""

import os
from pathlib import Path
from typing import Annotated

import typer

import f1
from f1common.config import Config
from f1common.errors import Code, F1Error

DEFAULT_HOST = "127.0.0.1:7400"
HOST_VARIABLE = "F1_HOST"

HostOption = Annotated[
    str | None,
    typer.Option(
        "--host",
        metavar="HOST:PORT,...",
        help=f"Addresses of f1servers. [default: ${HOST_VARIABLE}, else {DEFAULT_HOST}]",
    ),
]
DatabaseOption = Annotated[str | None, typer.Option("--database", help="Database. [default: default]")]


DirOption = Annotated[
    Path | None, typer.Option("--dir", help="Directory of a local cluster whose f1servers to use, instead of --host.")
]


def addresses_in(directory: Path) -> tuple[str, ...]:
    """Return the addresses of the f1servers of a local cluster; none if it has none."""
    configs = [Config.load(path, {}) for path in sorted((directory / "conf").glob("f1-*.toml"))]
    return tuple(f"{config.server.host}:{config.server.port}" for config in configs)


def host_in(host: str | None, directory: Path | None) -> str | None:
    """Return what ``--host`` says, or the f1servers of the local cluster in ``directory``.

    Raises F1Error INVALID_ARGUMENT for both, NOT_FOUND if there is no cluster with f1servers.
    """
    if directory is None:
        return host
    if host is not None:
        raise F1Error(Code.INVALID_ARGUMENT, "--host and --dir both name the cluster; give one of them")
    addresses = addresses_in(directory)
    if not addresses:
        text = f"{directory} is no directory of a cluster with f1servers; name one with --dir, or addresses with --host"
        raise F1Error(Code.NOT_FOUND, text)
    return ",".join(addresses)


def hosts_of(host: str | None) -> str:
    """Return the addresses that a command is to use."""
    return host or os.environ.get(HOST_VARIABLE) or DEFAULT_HOST


def open_connection(host: str | None, database: str | None, *, autocommit: bool = True) -> f1.Connection:
    """Connect. Raises F1Error."""
    return f1.connect(hosts_of(host), database, autocommit=autocommit, timeout_s=600.0)
