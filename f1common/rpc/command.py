"""What the commands that run server processes have in common."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
import uvloop

from f1common.config import Config
from f1common.observe import logs
from f1common.rpc.server import ServerOptions

__all__ = ["ConfigOption", "SettingsOption", "options_of", "run_server"]

T = TypeVar("T")

ConfigOption = Annotated[Path, typer.Option(help="Configuration file (TOML, see docs/config.md).")]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="A key that overrides the file; repeatable."),
]


def run_server(config: Path, settings: Sequence[str] | None, serve: Callable[[Config], Coroutine[Any, Any, T]]) -> T:
    """Read the configuration, set up the log, and run ``serve`` to its end. Raises F1Error INVALID_ARGUMENT, and what
    ``serve`` raises."""
    loaded = Config.load(config, os.environ, tuple(settings or ()))
    server = loaded.server
    logs.configure(logs.LogOptions(server.name, server.zone, server.log_level, server.log_format))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(serve(loaded))


def options_of(config: Config) -> ServerOptions:
    """Return how the process that a configuration describes serves."""
    server = config.server
    return ServerOptions(
        name=server.name,
        host=server.host,
        port=server.port,
        metrics_port=server.metrics_port or None,
        max_message_bytes=config.limits.max_message_bytes,
        drain_timeout_ms=server.drain_timeout_ms,
    )
