"""``f1 spanserver --config FILE``: one storage server as a process.

The parts are put together by :class:`~spanstore.runtime.process.SpanProcess`; here is what only the real process has:
the configuration file, the LMDB environment, the operating system's clock, uvloop, signals and an exit code. When the
engine fails the replicas here have crashed (a failed commit is never retried), so the process ends, and whoever
supervises it starts it again from what is on disk. If that disk is full or read-only it waits until it no longer is.
"""

import asyncio
import errno
import gc
import os
import random
from pathlib import Path

from f1common.clock import Clock, HoldoverClock, boot_id, boot_us, clock_from_config
from f1common.config import Config
from f1common.errors import Code, F1Error
from f1common.observe import logs
from f1common.observe.metrics import Metrics
from f1common.rpc.command import ConfigOption, SettingsOption, options_of, run_server
from f1common.rpc.configured import channels_of, storage_server_factory
from f1common.rpc.server import ServerBootstrap
from spanstore.engine.damage import WHOLE_SERVER, FileMarks
from spanstore.engine.lmdb_engine import LmdbEngine
from spanstore.runtime.process import SERVICE_NAME, SpanProcess
from spanstore.scan.pool import ScanPool

# A server makes many short-lived objects and few cycles: Python's default of 700 would collect all the time.
_GC_THRESHOLDS = (50_000, 20, 100)

_REOPEN_S = 1.0
_HEALTH_S = 0.5

_log = logs.get_logger(__name__)


def command(config: ConfigOption, settings: SettingsOption = None) -> None:
    """Run one storage server until SIGTERM."""
    failure = run_server(config, settings, serve)
    if failure is not None:
        raise failure


async def serve(config: Config) -> F1Error | None:
    """Serve until a signal (None) or until this server cannot go on (the reason).

    Raises F1Error when the server cannot start: BAD_DATA_DIR, DATA_CORRUPTION, DISK_FULL, CLOCK_SKEW, PORT_IN_USE,
    INVALID_ARGUMENT.
    """
    clock = _clock(config)
    engine = await _open(config)
    channels = channels_of(config)
    scans = scan_pool(config, engine)
    try:
        metrics = Metrics(process=True)
        bootstrap = ServerBootstrap(
            options_of(config),
            service_names=(SERVICE_NAME,),
            metrics=metrics,
            server_factory=storage_server_factory(config),
        )
        rng = random.Random(f"{boot_id()} {boot_us()} {os.getpid()}")
        process = SpanProcess(
            config, engine, clock, channels, rng, draining=bootstrap.draining, scan_source=scans, scrub=True
        )
        await process.start(bootstrap.server)
        try:
            return await _until_end(bootstrap, process, metrics)
        finally:
            await process.stop()
    finally:
        if scans is not None:
            await scans.close()
        await channels.close()
        await engine.close()


def _clock(config: Config) -> Clock:
    """Return the clock as configured; one that may stop vouching for itself goes on with a growing bound."""
    clock = clock_from_config(config.clock)
    return HoldoverClock(clock, config.paxos.clock_drift_ppm) if config.clock.source == "kernel" else clock


async def _open(config: Config) -> LmdbEngine:
    """Open the data directory; a disk that cannot be written is tried again until it can.

    Raises what :meth:`LmdbEngine.open` raises besides. Damage is noted beside the data, for whoever rebuilds them.
    """
    server, path = config.server, Path(config.server.data_dir)
    said = ""
    while True:
        try:
            return LmdbEngine.open(
                path,
                cluster=config.cluster.cluster_id,
                server=server.name,
                map_bytes=config.storage.map_size_gib << 30,
                reserve_bytes=config.storage.reserve_mib << 20,
            )
        except F1Error as error:
            if error.code is Code.DATA_CORRUPTION:
                FileMarks(path).mark(WHOLE_SERVER, error.message)
            if error.code is not Code.DISK_FULL and error.details.get("errno") != str(errno.EROFS):
                raise
            if said != str(error):
                said = str(error)
                _log.error("waiting for a disk that can be written", reason=said)
        await asyncio.sleep(_REOPEN_S)


def scan_pool(config: Config, engine: LmdbEngine) -> ScanPool | None:
    """Return the processes for bulk scans as configured; None means that the server scans itself."""
    if not config.storage.scan_processes:
        return None
    return ScanPool(
        Path(config.server.data_dir),
        processes=config.storage.scan_processes,
        map_bytes=config.storage.map_size_gib << 30,
        reader_check=engine.reader_check,
    )


async def _until_end(bootstrap: ServerBootstrap, process: SpanProcess, metrics: Metrics) -> F1Error | None:
    """Listen and serve until a signal, or until this server cannot go on, whose reason is returned."""
    await bootstrap.start()
    await bootstrap.set_serving(True)
    # What start-up made stays for good: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    signalled = asyncio.create_task(bootstrap.run_until_signal(process.drain))
    health = asyncio.create_task(_tell_health(bootstrap, process, metrics))
    await asyncio.wait((signalled, process.failed), return_when=asyncio.FIRST_COMPLETED)
    health.cancel()
    await asyncio.gather(health, return_exceptions=True)
    if signalled.done():
        signalled.result()
        _log.info("stopped by a signal")
        return None
    failure = process.failed.result()
    _log.error("stopping: this server cannot go on", reason=str(failure))
    signalled.cancel()
    await asyncio.gather(signalled, return_exceptions=True)
    await bootstrap.server.stop(None)
    return failure


async def _tell_health(bootstrap: ServerBootstrap, process: SpanProcess, metrics: Metrics) -> None:
    """Keep the metrics up to date, and the health: of the server as a whole, and of data, disk and clock by name."""
    while True:
        await asyncio.sleep(_HEALTH_S)
        for name, well in sorted(process.health().items()):
            await bootstrap.set_serving(well, name)
        process.measure(metrics)
