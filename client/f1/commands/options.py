"""Options that the client's commands share, and the connection that they ask for."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

import f1
from f1.logins import PASSWORD_VARIABLE, USER_VARIABLE
from f1.shell.backslash import read_text
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


UserOption = Annotated[
    str | None,
    typer.Option(
        "--user",
        help=f"Role to log in as; its password is ${PASSWORD_VARIABLE}, or asked for. [default: ${USER_VARIABLE}]",
    ),
]


DirOption = Annotated[
    Path | None, typer.Option("--dir", help="Directory of a local cluster whose f1servers to use, instead of --host.")
]


FilesArgument = Annotated[
    list[Path],
    typer.Argument(help=".sql and .proto files that together describe the whole database.", metavar="FILE..."),
]
DataLossOption = Annotated[
    bool, typer.Option("--allow-data-loss", help="Drop tables and columns that hold data and that the files lack.")
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


def hosts_of(host: str | None, directory: Path | None = None) -> str:
    """Return the addresses that a command is to use. Raises F1Error as :func:`host_in`."""
    return host_in(host, directory) or os.environ.get(HOST_VARIABLE) or DEFAULT_HOST


def open_connection(
    host: str | None, database: str | None, *, autocommit: bool = True, user: str | None = None, password: str = ""
) -> f1.Connection:
    """Connect; who is not given is taken from the environment. Raises F1Error."""
    return f1.connect(
        hosts_of(host), database, autocommit=autocommit, timeout_s=600.0, user=user, password=password or None
    )


def password_of(user: str | None) -> str:
    """Return the password to use with ``--user``: the environment's, or what is asked for at a terminal."""
    if user is None or os.environ.get(PASSWORD_VARIABLE) or not sys.stdin.isatty():
        return ""
    return str(typer.prompt(f"Password of {user}", hide_input=True, err=True))


def read_sources(files: Sequence[Path]) -> dict[str, str]:
    """Return the texts of the files by name; .proto files have the names under which they import each other.

    Raises F1Error NOT_FOUND, INVALID_ARGUMENT.
    """
    for path in files:
        if path.suffix not in (".sql", ".proto"):
            raise F1Error(Code.INVALID_ARGUMENT, f"{path}: a schema is described by .sql and .proto files")
    protos = [path.resolve() for path in files if path.suffix == ".proto"]
    base = Path(os.path.commonpath([path.parent for path in protos])) if protos else Path()
    sources: dict[str, str] = {}
    for path in files:
        name = path.resolve().relative_to(base).as_posix() if path.suffix == ".proto" else str(path)
        sources[name] = read_text(path)
    return sources
