"""``f1 slave --config FILE``: one slave as a process. It keeps nothing on disk but what queries spill."""

import asyncio
import os
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from f1common.clock import clock_from_config
from f1common.config import Config
from f1common.errors import Code, F1Error
from f1common.ids import process_rng
from f1common.observe import logs
from f1common.observe.metrics import Metrics
from f1common.rpc.channels import ChannelCache, insecure_channel_factory
from f1common.rpc.server import ServerBootstrap, ServerOptions
from slavepool.process import SERVICE_NAMES, SlaveProcess

_log = logs.get_logger(__name__)


def command(
    config: Annotated[Path, typer.Option(help="Configuration file (TOML, see docs/config.md).")],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.KEY=VALUE", help="A key that overrides the file; repeatable."),
    ] = None,
) -> None:
    """Run one slave, which evaluates parts of queries, until SIGTERM."""
    loaded = Config.load(config, os.environ, tuple(settings or ()))
    server = loaded.server
    logs.configure(logs.LogOptions(server.name, server.zone, server.log_level, server.log_format))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(loaded))


async def serve(config: Config) -> None:
    """Serve until a signal.

    Raises F1Error when the slave cannot start: CLOCK_SKEW, PORT_IN_USE, INVALID_ARGUMENT; and ALREADY_EXISTS when a
    later process takes its name.
    """
    server = config.server
    channels = ChannelCache(insecure_channel_factory(config.limits.max_message_bytes))
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
        service_names=SERVICE_NAMES,
        metrics=metrics,
    )
    process = SlaveProcess(config, clock_from_config(config.clock), channels, process_rng(), metrics=metrics)
    await process.start(bootstrap.server)
    try:
        port = await bootstrap.start()
        await bootstrap.set_serving(True)
        process.announce(server.public_address(port))
        _log.info("serving")
        await _until_end(bootstrap, process)
    finally:
        await process.stop()
        await channels.close()


async def _until_end(bootstrap: ServerBootstrap, process: SlaveProcess) -> None:
    """Serve until a signal, or until a later process has the name of this one."""
    signalled = asyncio.create_task(bootstrap.run_until_signal(process.drain))
    replaced = asyncio.create_task(process.replaced())
    try:
        await asyncio.wait((signalled, replaced), return_when=asyncio.FIRST_COMPLETED)
        if not signalled.done():
            bootstrap.request_stop()
        await signalled
    finally:
        replaced.cancel()
        await asyncio.gather(replaced, return_exceptions=True)
    if process.heartbeat is not None and process.heartbeat.replaced.is_set():
        raise F1Error(
            Code.ALREADY_EXISTS,
            f"another slave has the name {process.config.server.name} and was started later; names of slaves are "
            "unique: give this one another server.name",
        )
