"""``f1 timestamps --config FILE`` and ``f1 locks --config FILE``: the orchestrator's services as processes."""

import asyncio
import contextlib

import typer

from f1common.clock import clock_from_config
from f1common.config import Config
from f1common.errors import F1Error
from f1common.ids import process_rng
from f1common.observe import logs
from f1common.observe.metrics import Metrics
from f1common.orchestrator.allocation import AllocationConfig
from f1common.orchestrator.lock_table import LockConfig, LockTable
from f1common.pb import orchestrator_pb2_grpc as stubs
from f1common.rpc.command import ConfigOption, SettingsOption, options_of, run_server
from f1common.rpc.server import ServerBootstrap
from txservices import locks as lock_service
from txservices import timestamps as timestamp_service
from txservices.identity import identity_of
from txservices.locks import LockServicer
from txservices.records import record_over
from txservices.timestamps import TimestampServicer

_log = logs.get_logger(__name__)

app = typer.Typer(help="The services of the transaction orchestrator.", no_args_is_help=True)


@app.command("timestamps")
def timestamps(config: ConfigOption, settings: SettingsOption = None) -> None:
    """Give out timestamps until SIGTERM; of several such processes one leads."""
    run_server(config, settings, serve_timestamps)


@app.command("locks")
def locks(config: ConfigOption, settings: SettingsOption = None) -> None:
    """Lease locks until SIGTERM; there is one such process at a time."""
    run_server(config, settings, serve_locks)


async def serve_timestamps(config: Config) -> None:
    """Serve until a signal. Raises F1Error: CLOCK_SKEW, PORT_IN_USE, INVALID_ARGUMENT."""
    metrics = Metrics(process=True)
    bootstrap = ServerBootstrap(options_of(config), service_names=(timestamp_service.SERVICE_NAME,), metrics=metrics)
    clock = clock_from_config(config.clock)
    addresses = [server.address for server in config.cluster.servers]
    record, client = record_over(addresses, clock=clock, rng=process_rng())
    section = config.orchestrator
    allocation = AllocationConfig(section.timestamp_lease_ms * 1000, section.timestamp_range)
    servicer = TimestampServicer(record, clock, allocation, metrics, identity_of(config.server))
    stubs.add_TimestampsServicer_to_server(servicer, bootstrap.server)
    leading = asyncio.create_task(servicer.run(), name="leading the timestamp service")

    async def drain() -> None:
        leading.cancel()
        await asyncio.gather(leading, return_exceptions=True)
        with contextlib.suppress(F1Error):  # the next one waits for the lease instead
            await servicer.resign()

    try:
        await bootstrap.start()
        await bootstrap.set_serving(True)
        _log.info("serving")
        await bootstrap.run_until_signal(drain)
    finally:
        leading.cancel()
        await asyncio.gather(leading, return_exceptions=True)
        await client.close()


async def serve_locks(config: Config) -> None:
    """Serve until a signal. Raises F1Error: CLOCK_SKEW, PORT_IN_USE, INVALID_ARGUMENT."""
    metrics = Metrics(process=True)
    bootstrap = ServerBootstrap(options_of(config), service_names=(lock_service.SERVICE_NAME,), metrics=metrics)
    section = config.orchestrator
    table = LockTable(
        LockConfig(section.lock_lease_ms * 1000, section.lock_tenure_ms * 1000), process_rng().getrandbits(62)
    )
    clock, identity = clock_from_config(config.clock), identity_of(config.server)
    servicer = LockServicer(table, clock, section.lock_lease_ms, metrics, identity)
    stubs.add_LocksServicer_to_server(servicer, bootstrap.server)

    async def drain() -> None:
        servicer.draining.set()
        servicer.desk.close()

    await bootstrap.start()
    await bootstrap.set_serving(True)
    _log.info("serving", incarnation=table.incarnation)
    await bootstrap.run_until_signal(drain)


if __name__ == "__main__":
    app()
