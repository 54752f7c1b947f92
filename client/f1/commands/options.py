"""Options that the client's commands share, and the connection that they ask for."""

import os
from typing import Annotated

import typer

import f1

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


def hosts_of(host: str | None) -> str:
    """Return the addresses that a command is to use."""
    return host or os.environ.get(HOST_VARIABLE) or DEFAULT_HOST


def open_connection(host: str | None, database: str | None, *, autocommit: bool = True) -> f1.Connection:
    """Connect. Raises F1Error."""
    return f1.connect(hosts_of(host), database, autocommit=autocommit, timeout_s=600.0)
