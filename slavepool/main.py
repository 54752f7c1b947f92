"""``f1 slave --config FILE``: one slave as a process. It keeps nothing on disk but what queries spill."""

import asyncio

from f1common.clock import clock_from_config
from f1common.config import Config
from f1common.errors import Code, F1Error
from f1common.ids import process_rng
from f1common.observe import logs
from f1common.observe.metrics import Metrics
from f1common.rpc.command import ConfigOption, SettingsOption, options_of, run_server
from f1common.rpc.configured import channels_of
from f1common.rpc.server import ServerBootstrap
from slavepool.process import SERVICE_NAMES, SlaveProcess

_log = logs.get_logger(__name__)


def command(config: ConfigOption, settings: SettingsOption = None) -> None:
    """Run one slave, which evaluates parts of queries, until SIGTERM."""
    run_server(config, settings, serve)


async def serve(config: Config) -> None:
    """Serve until a signal.

    Raises F1Error when the slave cannot start: CLOCK_SKEW, PORT_IN_USE, INVALID_ARGUMENT; and ALREADY_EXISTS when a
    later process takes its name.
    """
    server = config.server
    channels = channels_of(config)
    metrics = Metrics(process=True)
    bootstrap = ServerBootstrap(
        options_of(config),
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
