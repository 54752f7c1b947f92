"""The asyncio twin, and the object mapper on both (F1 section 7.1)."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import f1
from f1.orm import Model, load_many
from f1.transactions import Transaction
from f1common.pb import f1_pb2 as pb
from tests.unit.client_f1.fake_server import FakeCluster, FakeServer, fake_cluster, once


class Account(Model, key=["Id"]):
    """A row of the table Account."""


class Balance(Model, table="Account", key=["Id"], columns=["Id", "Balance"]):
    """Part of such a row."""


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with fake_cluster(2) as running:
        running.put({1: 100, 2: 200, 3: 300})
        yield running


async def connected(cluster: FakeCluster, **how: Any) -> f1.aio.Connection:
    return await f1.aio.connect(cluster.hosts, timeout_s=10, **how)


def test_statements_and_iteration(cluster: FakeCluster) -> None:
    async def scenario() -> None:
        async with await connected(cluster) as conn:
            cursor = await conn.execute("SELECT Id FROM Account ORDER BY Id")
            assert [row async for row in cursor] == [(1,), (2,), (3,)]
            await cursor.execute("DELETE FROM Account WHERE Id = ?", [3])
            assert cursor.rowcount == 1
            assert cursor.description is None
            await conn.rollback()
            assert (await (await conn.execute("SELECT count(*) AS n FROM Account")).fetchone()) == (3,)
            table = await (await conn.execute("SELECT Balance FROM Account ORDER BY Id")).fetch_arrow()
            assert table.column("Balance").to_pylist() == [100, 200, 300]

    asyncio.run(scenario())


def test_concurrent_requests_share_messages_and_count_right(cluster: FakeCluster) -> None:
    async def add(tx: Transaction) -> None:
        row = await tx.get("Account", 1)
        assert row is not None
        await asyncio.sleep(0)
        await tx.update("Account", {"Id": 1, "Balance": row["Balance"] + 1})

    async def scenario() -> None:
        async with await connected(cluster, autocommit=True) as conn:
            await asyncio.gather(*(conn.run(add) for _ in range(25)))

    asyncio.run(scenario())
    assert cluster.balances()[1] == 125


def test_parallel_reads_of_a_transaction_are_of_one_moment(cluster: FakeCluster) -> None:
    async def scenario() -> None:
        async with await connected(cluster) as conn, conn.transaction() as tx:
            await asyncio.gather(*(tx.get("Account", key) for key in (1, 2, 3)))
            read_ts = {read.txn.read_ts for read in cluster.requests("read")}
            assert read_ts == {0, tx.read_ts}
            assert sum(1 for read in cluster.requests("read") if not read.txn.read_ts) == 1

    asyncio.run(scenario())


def test_a_cancelled_statement_leaves_the_connection_usable(cluster: FakeCluster) -> None:
    async def scenario() -> None:
        async with await connected(cluster, autocommit=True) as conn:
            cluster.set_fault(once("hang", "execute"))
            task = asyncio.create_task(conn.execute("SELECT 1 AS one"))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await (await conn.execute("SELECT 2 AS two")).fetchall() == [(2,)]

    asyncio.run(scenario())


@pytest.mark.parametrize("others", [False, True])
def test_the_server_learns_of_a_cancelled_statement_unless_others_need_the_stream(
    cluster: FakeCluster, others: bool
) -> None:
    def hang(server: FakeServer, request: pb.Request) -> str | None:
        return "hang" if request.WhichOneof("body") == "execute" else None

    async def scenario() -> None:
        hosts = cluster.hosts.split(",")[0]
        async with await f1.aio.connect(hosts, autocommit=True, timeout_s=10) as conn:
            cluster.set_fault(hang)
            tasks = [asyncio.create_task(conn.execute("SELECT 1 AS one")) for _ in range(1 + others)]
            while cluster.served("execute") < len(tasks):
                await asyncio.sleep(0.01)
            tasks[0].cancel()
            await asyncio.gather(tasks[0], return_exceptions=True)
            assert await conn.read("Account", [1], ["Balance"]) == [{"Balance": 100}]
            if others:
                assert cluster.servers[0].sessions_ended == 0
                tasks[1].cancel()
                await asyncio.gather(tasks[1], return_exceptions=True)
            while not cluster.servers[0].sessions_ended:
                await asyncio.sleep(0.01)

    asyncio.run(scenario())


def test_begin_and_end_by_hand(cluster: FakeCluster) -> None:
    async def scenario() -> None:
        async with await connected(cluster, autocommit=True) as conn:
            await conn.begin("pessimistic")
            await conn.upsert("Account", [{"Id": 1, "Balance": 0}, {"Id": 4, "Balance": 4}])
            assert conn.in_transaction
            await conn.commit()
            assert not conn.in_transaction

    asyncio.run(scenario())
    assert cluster.balances() == {1: 0, 2: 200, 3: 300, 4: 4}


def test_objects_are_loaded_and_saved(cluster: FakeCluster) -> None:
    with f1.connect(cluster.hosts, autocommit=True) as conn:
        account = Account.get(conn, 1)
        assert (account.Id, account.Balance) == (1, 100)
        account.Balance += 1
        account.save(conn)
        new = Account(Id=7, Balance=7)
        new.save(conn)
        new.Balance = 8
        new.save(conn)
        Account.get(conn, 2).delete(conn)
        assert Account.get(conn, 2) is None
    assert cluster.balances() == {1: 101, 3: 300, 7: 8}
    updates = [write for commit in cluster.requests("commit") for write in commit.writes if write.kind == 1]
    assert len(updates) == 2


def test_several_loads_are_one_round_trip(cluster: FakeCluster) -> None:
    with f1.connect(cluster.hosts, autocommit=True) as conn, conn.transaction() as tx:
        before = cluster.served("read")
        first, rest, rich = load_many(
            tx, Account.by_keys([1]), Balance.by_keys([2, 3]), Account.by_index("ByBalance", 300)
        )
        assert cluster.served("read") == before + 1
        assert [account.Id for account in first] == [1]
        assert [account.to_dict() for account in rest] == [{"Id": 2, "Balance": 200}, {"Id": 3, "Balance": 300}]
        assert [account.Id for account in rich] == [3]
        assert Balance.get_many(tx, [3]) == rest[1:]
        with pytest.raises(AttributeError, match=r"no column Note loaded \(it has Id, Balance\)"):
            rest[0].Note  # noqa: B018
        assert repr(rest[0]) == "Balance(Id=2, Balance=200)"


def test_objects_by_the_asyncio_twin(cluster: FakeCluster) -> None:
    async def scenario() -> None:
        async with await connected(cluster, autocommit=True) as conn:
            one, two = await asyncio.gather(Account.get(conn, 1), Account.get(conn, 2))
            one.Balance, two.Balance = two.Balance, one.Balance

            async def swap(tx: Transaction) -> None:
                await one.save(tx)
                await two.save(tx)

            await conn.run(swap)

    asyncio.run(scenario())
    assert cluster.balances() == {1: 200, 2: 100, 3: 300}


def test_a_model_without_a_key_says_so(cluster: FakeCluster) -> None:
    class Keyless(Model, table="Account"):
        pass

    with f1.connect(cluster.hosts, autocommit=True) as conn:
        found = Keyless.get(conn, 1)
        found.Balance = 1
        with pytest.raises(TypeError, match="does not name its key"):
            found.save(conn)


def test_a_key_column_that_was_renamed_is_named(cluster: FakeCluster) -> None:
    class Outdated(Model, table="Account", key=["OldId"]):
        pass

    with f1.connect(cluster.hosts, autocommit=True) as conn:
        found = Outdated.get(conn, 1)
        found.Balance = 1
        for change in (found.save, found.delete):
            with pytest.raises(AttributeError, match=r"Outdated has no column OldId loaded \(it has Id, "):
                change(conn)
