"""The peers of the benchmark run as it says they do: replicated, on disk before they answer, and compared."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from f1common.clock import boot_us
from f1common.errors import F1Error
from f1deploy.bench.database.clients import DIRECTORY, ROWS, item
from f1deploy.bench.database.load import Task, run_task
from f1deploy.bench.database.peers import POSTGRES_DDL, EtcdOpener, PostgresOpener, item_key
from f1deploy.bench.postgres import Postgres, find_postgres, postgres
from spanstore.tools.etcdstore import EtcdCluster, EtcdStore, find_binary
from spanstore.tools.load import process_runner
from spanstore.tools.ports import free_ports


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    programs = find_postgres()
    if programs is None:
        pytest.skip("PostgreSQL is not installed")
    with postgres(programs, standbys=("a", "b")) as started:
        started.run(POSTGRES_DDL)
        started.run(f"INSERT INTO Directory VALUES ({DIRECTORY})")
        yield started


@pytest.fixture(scope="module")
def etcd() -> Iterator[EtcdOpener]:
    binary = find_binary()
    if binary is None:
        pytest.skip("etcd is not installed")
    with (
        tempfile.TemporaryDirectory() as folder,
        EtcdCluster(binary, Path(folder), free_ports()) as cluster,
    ):
        # gRPC stays with the first event loop of a process, which is that of the load.
        process_runner().run(_fill(cluster.addresses))
        yield EtcdOpener(cluster.addresses)


async def _fill(addresses: tuple[str, ...]) -> None:
    store = EtcdStore(addresses)
    await store.put_many([(item_key(number), item(number)) for number in range(ROWS)])
    await store.close()


def task(system: EtcdOpener | PostgresOpener, work: str) -> Task:
    """Half a second; some operations end in it or after it, however slow the machine is."""
    now = boot_us()
    return Task(system, work, 0, 2, 2, now, now + 500_000, 1)


def test_postgresql_has_two_synchronous_standbys_that_hold_every_row(server: Postgres) -> None:
    assert server.ask("SELECT application_name, sync_state FROM pg_stat_replication ORDER BY 1") == "a|quorum\nb|quorum"
    assert server.ask("SHOW synchronous_standby_names") == "ANY 1 (a, b)"
    assert (server.ask("SHOW fsync"), server.ask("SHOW synchronous_commit")) == ("on", "on")
    assert len(set(server.pids)) == 3
    server.run("CREATE TABLE seen (n int); INSERT INTO seen VALUES (7)")
    sent = server.ask("SELECT pg_current_wal_flush_lsn()")
    # One of them has flushed it when the commit is acknowledged, the other soon after.
    behind = f"SELECT count(*) FROM pg_stat_replication WHERE flush_lsn >= '{sent}'"
    assert int(server.ask(behind)) >= 1
    while int(server.ask(behind)) < 2:
        time.sleep(0.05)


def test_large_inserts_are_acknowledged_and_there(server: Postgres) -> None:
    found = run_task(task(PostgresOpener(server.psql), "rows"))
    assert found.errors == 0, found.first_error
    assert found.checked > 0
    count = int(server.ask("SELECT count(*) FROM Entry"))
    assert count > 0 and count % 500 == 0


def test_rows_that_postgresql_lost_are_noticed(server: Postgres) -> None:
    server.run("CREATE RULE lost AS ON INSERT TO Entry DO INSTEAD SELECT 1 WHERE false")
    try:
        with pytest.raises(F1Error, match="PostgreSQL acknowledged"):
            run_task(task(PostgresOpener(server.psql), "rows"))
    finally:
        server.run("DROP RULE lost ON Entry")


def test_puts_and_gets_of_etcd_are_compared(etcd: EtcdOpener) -> None:
    for work in ("upsert", "read"):
        found = run_task(task(etcd, work))
        assert found.errors == 0, found.first_error
        assert found.checked > 0 or work == "read"


def test_a_wrong_value_in_etcd_is_noticed(etcd: EtcdOpener) -> None:
    async def spoil() -> None:
        store = EtcdStore(etcd.addresses)
        await store.put_many([(item_key(number), b"something else") for number in range(ROWS)])
        await store.close()

    process_runner().run(spoil())
    with pytest.raises(F1Error, match="etcd acknowledged"):
        run_task(task(etcd, "read"))
