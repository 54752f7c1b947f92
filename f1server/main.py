"""``f1 f1server --config FILE``: one SQL server as a process. It keeps nothing on disk but what queries spill."""

import asyncio
import gc
import sys

from f1common.clock import clock_from_config
from f1common.config import Config
from f1common.errors import Code, F1Error
from f1common.ids import process_rng
from f1common.observe import logs
from f1common.observe.metrics import Metrics
from f1common.rpc.command import ConfigOption, SettingsOption, options_of, run_server
from f1common.rpc.configured import channels_of, f1server_factory
from f1common.rpc.server import ServerBootstrap
from f1server.process import F1Process
from f1server.service import SERVICE_NAME

_GC_THRESHOLDS = (50_000, 20, 100)
_SWITCH_INTERVAL_S = 0.0005
"""How long a thread that comes back from DuckDB waits for a busy event loop; Python's 5 ms would be most of a query."""

_log = logs.get_logger(__name__)


def command(config: ConfigOption, settings: SettingsOption = None) -> None:
    """Run one SQL server until SIGTERM."""
    failure = run_server(config, settings, serve)
    if failure is not None:
        raise failure


async def serve(config: Config) -> F1Error | None:
    """Serve until a signal (None) or until this server should be started again (the reason).

    Raises F1Error when the server cannot start: CLOCK_SKEW, PORT_IN_USE, INVALID_ARGUMENT.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    server = config.server
    clock = clock_from_config(config.clock)
    channels = channels_of(config)
    metrics = Metrics(process=True)
    bootstrap = ServerBootstrap(
        options_of(config),
        service_names=(SERVICE_NAME,),
        metrics=metrics,
        server_factory=f1server_factory(config),
    )
    process = F1Process(
        config,
        clock,
        channels,
        process_rng(),
        address=server.public_address(),
        draining=bootstrap.draining,
        metrics=metrics,
    )
    await process.start(bootstrap.server)
    try:
        await bootstrap.start()
        beside = [asyncio.create_task(_announce(bootstrap, process)), asyncio.create_task(_end(bootstrap, process))]
        try:
            await bootstrap.run_until_signal(process.drain)
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
    finally:
        await process.stop()
        await channels.close()
    if not process.leases.lost.is_set():
        return None
    text = f"no schema lease could be had for {config.f1server.exit_after_ms} ms (f1server.exit_after_ms)"
    return F1Error(Code.UNAVAILABLE, f"{text}: is the storage tier up? This server is to be started again")


async def _end(bootstrap: ServerBootstrap, process: F1Process) -> None:
    """Stop once no lease can be had on the schema."""
    await process.leases.lost.wait()
    _log.error("no schema lease can be had: the server exits, to be started again")
    bootstrap.request_stop()


async def _announce(bootstrap: ServerBootstrap, process: F1Process) -> None:
    """Say SERVING once the default database can be used."""
    await process.ready.wait()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    await bootstrap.set_serving(True)
    _log.info("serving")
