"""Who a process of the orchestrator's services is."""

from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

from f1common.config import ServerSection

__all__ = ["Identity", "identity_of"]


class Identity(NamedTuple):
    """What a process says of itself when it is asked for its status."""

    name: str = ""
    zone: str = ""
    version: str = ""


def identity_of(server: ServerSection) -> Identity:
    """Return the identity of the process that a configuration describes."""
    try:
        running = version("f1db")
    except PackageNotFoundError:
        running = "unknown"
    return Identity(server.name, server.zone, running)
