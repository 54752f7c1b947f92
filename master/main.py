"""``f1 master --config FILE``: the one master of a cluster as a process. It keeps nothing on disk."""

from f1common.clock import clock_from_config
from f1common.config import Config
from f1common.observe import logs
from f1common.observe.metrics import Metrics
from f1common.rpc.command import ConfigOption, SettingsOption, options_of, run_server
from f1common.rpc.server import ServerBootstrap
from master.process import MasterProcess
from master.service import SERVICE_NAME

_log = logs.get_logger(__name__)


def command(config: ConfigOption, settings: SettingsOption = None) -> None:
    """Run the master until SIGTERM."""
    run_server(config, settings, serve)


async def serve(config: Config) -> None:
    """Serve until a signal. Raises F1Error when the master cannot start: CLOCK_SKEW, PORT_IN_USE, INVALID_ARGUMENT."""
    metrics = Metrics(process=True)
    bootstrap = ServerBootstrap(
        options_of(config),
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
