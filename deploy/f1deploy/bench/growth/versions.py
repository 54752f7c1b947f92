"""Versions that are kept: what a scan of all rows costs, the more old versions lie between the newest ones."""

import f1
from f1common.clock import boot_us
from f1common.errors import Code, F1Error
from f1deploy.bench.database.clients import F1Opener
from f1deploy.bench.database.rounds import System
from f1deploy.bench.database.systems import our_system
from f1deploy.bench.growth.curves import Curve, Line, Options, Say, places
from f1deploy.bench.local import local_cluster

__all__ = ["measure"]

_COUNTS = (1, 2, 4, 8, 16, 32)
_ROWS = 10_000
_BATCH = 500
_SETTINGS = "three spanservers, one f1server, fsync on"


def measure(options: Options, say: Say) -> Curve:
    """Write all rows again and again, and add them up each time their versions have doubled."""
    costs: list[tuple[float, list[float]]] = []
    waits: list[tuple[float, list[float]]] = []
    written = 0
    # Nothing is collected while this runs, or there were fewer versions than were written.
    retention = ("--set", "storage.version_keep_ms=86400000")
    with (
        local_cluster("--f1servers", "1", "--slaves", "0", *retention) as cluster,
        f1.connect(cluster.hosts, autocommit=True, timeout_s=120.0) as connection,
    ):
        system = our_system(cluster, F1Opener(cluster.hosts), _SETTINGS)
        table = "CREATE TABLE Kept (Id INT64 NOT NULL, Amount INT64 NOT NULL, PRIMARY KEY (Id))"
        connection.execute(f"{table} WITH (change_history = false)")
        for count in _COUNTS:
            say(f"versions: {count}")
            while written < count:
                written += 1
                _write(connection, written)
            _scans(system, connection, written, 0.0)  # warm
            found = [_scans(system, connection, written, options.seconds) for _ in range(options.rounds)]
            costs.append((count, [cpu_us for cpu_us, _ in found]))
            waits.append((count, [took_ms for _, took_ms in found]))
    lines = (
        Line("a scan, servers", "us of CPU a row", places(costs), whole=True),
        Line("a scan", "ms", places(waits), whole=True),
    )
    return Curve("versions", "Versions of each row", "versions", lines, f"{system.name}, {_SETTINGS}; {_ROWS:,} rows")


def _write(connection: f1.Connection, amount: int) -> None:
    for at in range(0, _ROWS, _BATCH):
        connection.upsert("Kept", [{"Id": key, "Amount": amount} for key in range(at, at + _BATCH)])


def _scans(system: System, connection: f1.Connection, amount: int, seconds: float) -> tuple[float, float]:
    """Add up the newest versions for so long, once at least; return what a scan took: microseconds of processor time
    for a row, and milliseconds on the clock.

    Raises F1Error DATA_CORRUPTION for another sum than theirs.
    """
    before, began_us, scans = system.cpu_s(), boot_us(), 0
    while not scans or boot_us() - began_us < seconds * 1e6:
        ((count, total),) = connection.execute("SELECT count(*), sum(Amount) FROM Kept").fetchall()
        if (count, total) != (_ROWS, _ROWS * amount):
            raise F1Error(Code.DATA_CORRUPTION, f"{count} rows hold {total}, not {_ROWS} rows {_ROWS * amount}")
        scans += 1
    took_ms = (boot_us() - began_us) / 1000 / scans
    spent_s = sum(system.cpu_s().values()) - sum(before.values())
    return max(spent_s, 1e-6) * 1e6 / _ROWS / scans, took_ms
