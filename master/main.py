"""``f1 master --config FILE``: the one master of a cluster as a process. It keeps nothing on disk."""

import asyncio
import os
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from f1common.clock import clock_from_config
from f1common.config import Config
from f1common.observe import logs
from f1common.observe.metrics import Metrics
from f1common.rpc.server import ServerBootstrap, ServerOptions
from master.process import MasterProcess
from master.service import SERVICE_NAME

_log = logs.get_logger(__name__)


def command(
    config: Annotated[Path, typer.Option(help="Configuration file (TOML, see docs/config.md).")],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.KEY=VALUE", help="A key that overrides the file; repeatable."),
    ] = None,
) -> None:
    """Run the master until SIGTERM."""
    loaded = Config.load(config, os.environ, tuple(settings or ()))
    server = loaded.server
    logs.configure(logs.LogOptions(server.name, server.zone, server.log_level, server.log_format))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(loaded))


async def serve(config: Config) -> None:
    """Serve until a signal. Raises F1Error when the master cannot start: CLOCK_SKEW, PORT_IN_USE, INVALID_ARGUMENT."""
    server = config.server
    metrics = Metrics(process=True)
    bootstrap = ServerBootstrap(
        ServerOptions(
            name=server.name,
            host=server.host,
            port=server.port,
            metrics_port=server.metrics_port or None,
            max_message_bytes=config.limits.max_message_bytes,
            drain_timeout_ms=server.drain_timeout_ms,
        ),
        service_names=(SERVICE_NAME,),
        metrics=metrics,
    )
    process = MasterProcess(config.master, clock_from_config(config.clock), metrics=metrics)
    await process.start(bootstrap.server)
    try:
        await bootstrap.start()
        await bootstrap.set_serving(True)
        _log.info("serving")
        await bootstrap.run_until_signal(process.drain)
    finally:
        await process.stop()
