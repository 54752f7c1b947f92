"""Servers that die at every moment: reads go elsewhere, commits end in their true outcome (design sections 4 and 6)."""

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

import f1
from f1.servers import Server, Servers, parse_hosts
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from tests.unit.client_f1.fake_server import FakeCluster, FakeServer, fake_cluster, once


@pytest.fixture(params=[True, False], ids=["direct", "grpc"])
def cluster(request: pytest.FixtureRequest) -> Iterator[FakeCluster]:
    with fake_cluster(2, direct=request.param) as running:
        running.put({1: 100, 2: 200, 3: 300})
        yield running


def test_a_client_goes_directly_where_that_is_offered(cluster: FakeCluster) -> None:
    with connect(cluster) as conn:
        conn.execute("SELECT Balance FROM Account WHERE Id = 1")
        open_now = [len(server.server._connections) if server.direct else 0 for server in cluster.servers]
        assert any(open_now) is cluster.servers[0].direct


def connect(cluster: FakeCluster, *, autocommit: bool = True, timeout_s: float = 10) -> f1.Connection:
    return f1.connect(cluster.hosts, autocommit=autocommit, timeout_s=timeout_s)


def add(conn: f1.Connection, amount: int = 1) -> None:
    conn.execute("UPDATE Account SET Balance = Balance + ? WHERE Id = ?", (amount, 1))


@pytest.mark.parametrize("kind", ["execute", "read"])
@pytest.mark.parametrize("fault", ["die", "die after"])
def test_reads_go_to_another_server(cluster: FakeCluster, kind: str, fault: str) -> None:
    with connect(cluster) as conn:
        cluster.set_fault(once(fault, kind))
        if kind == "execute":
            assert conn.execute("SELECT Balance FROM Account WHERE Id = 1").fetchall() == [(100,)]
        else:
            assert conn.get("Account", 1, ["Balance"]) == {"Balance": 100}
        assert cluster.served(kind) == 2


@pytest.mark.parametrize("fault", ["die", "die after"])
def test_dml_that_goes_with_its_commit_happens_exactly_once(cluster: FakeCluster, fault: str) -> None:
    for server in cluster.servers:
        server.commits_at_once = True
    with connect(cluster) as conn:
        cluster.set_fault(once(fault, "execute"))
        cursor = conn.execute("UPDATE Account SET Balance = Balance + ? WHERE Id = ?", (1, 1))
        assert cluster.balances()[1] == 101 and cursor.rowcount == 1
        ids = [execute.commit_id for execute in cluster.requests("execute")]
        assert len(ids) == len(set(ids)) == (2 if fault == "die" else 1)
        assert (cluster.served("commit"), cluster.served("outcome")) == (0, 1)
        (asked,) = cluster.requests("outcome")
        assert asked.commit_id in ids and asked.statement.sql == cluster.requests("execute")[0].sql
        cursor = conn.execute("UPDATE Account SET Balance = Balance + ? WHERE Id = ?", (1, 77))
        assert (cursor.rowcount, cluster.served("commit")) == (0, 0)
        conn.execute("UPDATE Account SET Balance = Balance + ? WHERE Id = ?", (1, 2))
        assert cluster.balances()[2] == 201 and cluster.served("commit") == 0


@pytest.mark.parametrize("kind", ["execute", "commit"])
@pytest.mark.parametrize("fault", ["die", "die after"])
def test_autocommit_dml_happens_exactly_once(cluster: FakeCluster, kind: str, fault: str) -> None:
    """At servers that leave the commit to the client."""
    with connect(cluster) as conn:
        cluster.set_fault(once(fault, kind))
        add(conn)
        assert cluster.balances()[1] == 101
        # A commit that is lost is never sent again under its id.
        ids = [commit.commit_id for commit in cluster.requests("commit")]
        assert len(ids) == len(set(ids)) == (2 if (kind, fault) == ("commit", "die") else 1)
        assert cluster.served("outcome") == 1


def test_a_commit_lost_in_an_explicit_transaction_is_resolved(cluster: FakeCluster) -> None:
    with connect(cluster, autocommit=False) as conn:
        add(conn)
        cluster.set_fault(once("die after", "commit"))
        committed = conn.commit()
        assert committed.ts == cluster.store.clock
        assert cluster.balances()[1] == 101


def test_an_outcome_that_nobody_can_tell_is_reported(cluster: FakeCluster) -> None:
    def fault(server: FakeServer, request: pb.Request) -> str | F1Error | None:
        match request.WhichOneof("body"):
            case "commit":
                return F1Error(Code.UNAVAILABLE, "no quorum", ambiguous=True)
            case "outcome":
                return F1Error(Code.EXPIRED, "too long ago")
            case _:
                return None

    with connect(cluster) as conn:
        cluster.set_fault(fault)
        with pytest.raises(f1.UnknownOutcome) as caught:
            add(conn)
        assert caught.value.ambiguous
        assert not caught.value.retryable
        assert cluster.served("commit") == 1
        assert bytes.fromhex(caught.value.details["commit_id"]) == cluster.requests("commit")[0].commit_id


def test_a_server_that_does_not_know_is_asked_for_the_outcome(cluster: FakeCluster) -> None:
    with connect(cluster) as conn:
        cluster.set_fault(once(F1Error(Code.UNKNOWN_OUTCOME, "lost the leader"), "commit"))
        add(conn)
        assert cluster.balances()[1] == 101
        assert (cluster.served("commit"), cluster.served("outcome")) == (2, 1)


def test_the_time_for_a_commit_runs_out_without_effect(cluster: FakeCluster) -> None:
    def fault(_: FakeServer, request: pb.Request) -> F1Error | None:
        overloaded = request.WhichOneof("body") == "commit"
        return F1Error(Code.OVERLOADED, "too much to do") if overloaded else None

    with connect(cluster, autocommit=False, timeout_s=0.3) as conn:
        add(conn)
        cluster.set_fault(fault)
        with pytest.raises(f1.OperationalError, match="nothing was committed") as caught:
            conn.commit()
        assert not caught.value.ambiguous
        assert cluster.balances()[1] == 100


def test_a_hanging_statement_ends_with_the_timeout(cluster: FakeCluster) -> None:
    with connect(cluster, timeout_s=0.2) as conn:
        cluster.set_fault(lambda _, request: "hang" if request.WhichOneof("body") == "execute" else None)
        with pytest.raises(f1.OperationalError) as caught:
            conn.execute("SELECT 1")
        assert caught.value.code is Code.DEADLINE_EXCEEDED


@pytest.mark.parametrize("fault", ["die", "die after"])
def test_a_pessimistic_transaction_dies_with_its_server(cluster: FakeCluster, fault: str) -> None:
    with connect(cluster) as conn:
        cluster.set_fault(once(fault, "execute"))
        with pytest.raises(f1.TransactionAborted) as caught, conn.transaction(kind="pessimistic") as tx:
            tx.execute("UPDATE Account SET Balance = Balance + ? WHERE Id = ?", (1, 1))
        assert caught.value.retryable
        assert not caught.value.ambiguous
        assert cluster.balances()[1] == 100


def test_run_begins_pessimistic_work_again_elsewhere(cluster: FakeCluster) -> None:
    with connect(cluster) as conn:
        cluster.set_fault(once("die", "execute"))

        def work(tx: f1.Transaction) -> None:
            tx.execute("UPDATE Account SET Balance = Balance + ? WHERE Id = ?", (1, 1))

        conn.run(work, kind="pessimistic")
        assert cluster.balances()[1] == 101


def test_a_lost_pessimistic_commit_is_unknown(cluster: FakeCluster) -> None:
    with connect(cluster) as conn:
        cluster.set_fault(once("die after", "end"))
        with pytest.raises(f1.UnknownOutcome), conn.transaction(kind="pessimistic") as tx:
            tx.update("Account", {"Id": 1, "Balance": 0})


def test_a_result_whose_server_dies_is_read_again_from_its_start(cluster: FakeCluster) -> None:
    for server in cluster.servers:
        server.page_rows = 2
    with connect(cluster) as conn:
        cluster.set_fault(once("die", "fetch"))
        rows = conn.execute("SELECT range AS n FROM range(7) ORDER BY n").fetchall()
        assert rows == [(n,) for n in range(7)]
        assert cluster.served("execute") == 2


def test_rows_that_were_handed_out_are_not_handed_out_again(cluster: FakeCluster) -> None:
    for server in cluster.servers:
        server.page_rows = 2
    with connect(cluster) as conn:
        cluster.set_fault(once("die", "fetch"))
        cursor = conn.execute("SELECT range AS n FROM range(7) ORDER BY n")
        assert cursor.fetchone() == (0,)
        with pytest.raises(f1.OperationalError, match="run the query again") as caught:
            cursor.fetchall()
        assert caught.value.retryable


def test_ddl_that_got_lost_is_not_sent_again(cluster: FakeCluster) -> None:
    with connect(cluster) as conn:
        cluster.set_fault(once("die after", "execute"))
        with pytest.raises(f1.UnknownOutcome, match="schema may have changed"):
            conn.execute("CREATE TABLE T (A INT64 PRIMARY KEY)")
        assert cluster.served("execute") == 1


def test_a_server_that_is_down_from_the_start_does_not_matter(cluster: FakeCluster) -> None:
    cluster.do(cluster.servers[0].stop())
    with connect(cluster) as conn:
        for _ in range(5):
            add(conn)
    assert cluster.balances()[1] == 105


def test_nobody_there_is_one_clear_line() -> None:
    with fake_cluster(1) as cluster:
        hosts = cluster.hosts
    with pytest.raises(
        f1.OperationalError, match=r"no f1server answers \(127.0.0.1:\d+: .*is the cluster up\?"
    ) as caught:
        f1.connect(hosts, connect_timeout_s=0.3)
    assert caught.value.code is Code.UNAVAILABLE
    assert "\n" not in str(caught.value)


def test_a_server_comes_back(cluster: FakeCluster) -> None:
    with connect(cluster) as conn:
        first, second = cluster.servers
        for server in (first, second):
            cluster.do(server.stop())
            add(conn)
            cluster.do(server.start())
            server.served.clear()
            for _ in range(500):
                conn.execute("SELECT 1 AS one")  # notices when it is time to look whether the server is back
                if server.served:
                    break
                cluster.do(asyncio.sleep(0.02))
            assert server.served
    assert cluster.balances()[1] == 102


@pytest.mark.parametrize("seed", range(4))
def test_whatever_fails_each_acknowledged_change_happened_once(seed: int) -> None:
    """SQL and NoSQL while servers die before and after they have done what they should.

    Whoever meets others again and again goes on under locks, which end with their server: only a commit of that kind
    may be of unknown outcome, and it happened once or not at all.
    """
    rng = random.Random(seed)
    busy, no_quorum = F1Error(Code.OVERLOADED, "busy"), F1Error(Code.UNAVAILABLE, "no quorum")
    bad: list[str | F1Error] = ["cut", "cut", "cut after", "cut after", "lost", busy, no_quorum]

    def fault(_: FakeServer, request: pb.Request) -> str | F1Error | None:
        kind = request.WhichOneof("body")
        if kind not in ("execute", "read", "commit", "outcome") or rng.random() > 0.2:
            return None
        chosen = rng.choice(bad)
        return "cut" if chosen == "lost" and kind != "commit" else chosen

    acknowledged: Counter[int] = Counter()
    failures: list[f1.Error] = []
    unknown: Counter[int] = Counter()

    with fake_cluster(3) as cluster:
        cluster.put(dict.fromkeys(range(4), 0))

        def client(key: int) -> None:
            def work(tx: f1.Transaction) -> None:
                row = tx.get("Account", key)
                assert row is not None
                tx.update("Account", {"Id": key, "Balance": row["Balance"] + 1})

            with f1.connect(cluster.hosts, autocommit=True, timeout_s=20) as conn:
                for number in range(15):
                    try:
                        if number % 2:
                            conn.run(work)
                        else:
                            conn.execute("UPDATE Account SET Balance = Balance + ? WHERE Id = ?", (1, key))
                        acknowledged[key] += 1
                    except f1.UnknownOutcome as error:
                        if "may have happened or not: " in str(error):
                            unknown[key] += 1
                        else:
                            failures.append(error)
                    except f1.Error as error:
                        failures.append(error)

        cluster.set_fault(fault)
        # Two clients on each of two rows, so that they also meet each other.
        threads = [threading.Thread(target=client, args=(number // 2,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        cluster.set_fault(None)
        assert failures == []
        for key in (0, 1):
            assert acknowledged[key] + unknown[key] == 30
            assert acknowledged[key] <= cluster.balances()[key] <= 30
        ids = [commit.commit_id for commit in cluster.requests("commit")]
        assert len(ids) == len(set(ids))
        assert len(ids) > 60  # some had to be done again


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("a:1", ("a:1",)),
        ("a:1, b:2,", ("a:1", "b:2")),
        ("[::1]:7", ("[::1]:7",)),
        (["a:1", "a:1"], ("a:1",)),
    ],
)
def test_addresses(text: str, addresses: tuple[str, ...]) -> None:
    assert parse_hosts(text) == addresses


@pytest.mark.parametrize("text", ["", ",", "a", "a:b", "a:0", "a:70000", ":7"])
def test_wrong_addresses(text: str) -> None:
    with pytest.raises(F1Error, match="HOST:PORT"):
        parse_hosts(text)


def test_work_is_spread_over_near_servers_and_far_ones_are_left_alone() -> None:
    async def scenario() -> None:
        servers = Servers(["a:1", "b:1", "c:1"], rng=random.Random(1))
        a, b, c = servers.all
        a.latency_s, b.latency_s, c.latency_s = 0.001, 0.0015, 0.05
        picked: list[Server] = []
        for _ in range(20):
            server = servers.pick()
            server.in_flight += 1
            picked.append(server)
        assert (picked.count(a), picked.count(b), picked.count(c)) == (10, 10, 0)
        a.error = b.error = F1Error(Code.UNAVAILABLE, "down")
        a.down_until_s = b.down_until_s = asyncio.get_running_loop().time() + 100
        assert servers.pick() is c
        await servers.close()

    asyncio.run(scenario())


def test_small_requests_go_together_for_a_while_and_leave_who_is_full_still_or_broken() -> None:
    async def scenario() -> None:
        servers = Servers(["a:1", "b:1"], rng=random.Random(1))
        servers._start_probe = lambda server: None  # type: ignore[assignment, method-assign, return-value]
        loop = asyncio.get_running_loop()
        first = servers.pick(small=True)
        (other,) = set(servers.all) - {first}
        first.heard_s = other.heard_s = loop.time()
        for number in range(32):
            assert servers.pick(small=True) is first
            if number:
                assert servers.pick() is other  # large ones go where there is least to do
            first.in_flight += 1
        # Full.
        assert servers.pick(small=True) is other
        first.in_flight, other.in_flight = 1, 5
        # It goes on answering.
        assert servers.pick(small=True) is other
        other.heard_s -= 0.06
        assert servers.pick(small=True) is first
        # What waits for nothing is not still, whenever it answered last.
        first.in_flight, first.heard_s = 0, 0.0
        assert servers.pick(small=True) is first
        first.error = F1Error(Code.UNAVAILABLE, "down")
        first.down_until_s = loop.time() + 100
        assert servers.pick(small=True) is other
        first.error, first.in_flight, other.in_flight, other.heard_s = None, 0, 2, loop.time()
        assert servers.pick([other], small=True) is first
        assert servers.pick(small=True) is other
        servers._favourite_until_s = loop.time()
        assert servers.pick(small=True) is first
        await servers.close()

    asyncio.run(scenario())


def test_a_server_that_seems_far_is_measured_again_soon() -> None:
    async def scenario() -> None:
        servers = Servers(["a:1", "b:1"], rng=random.Random(1))
        a, b = servers.all
        probed: list[Server] = []
        servers._start_probe = probed.append  # type: ignore[assignment, method-assign]
        now_s = asyncio.get_running_loop().time()
        a.latency_s, b.latency_s = 0.001, 0.05
        for age_s, expected in ((0.5, []), (2.0, [b]), (20.0, [a, b])):
            a.measured_s = b.measured_s = now_s - age_s
            assert servers.pick() is a
            assert probed == expected
            probed.clear()
        await servers.close()

    asyncio.run(scenario())


def test_a_statement_with_all_the_time_in_the_world_gives_up_when_nobody_is_there(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("f1.servers._GIVE_UP_S", 0.3)
    with connect(cluster, timeout_s=3600) as conn:
        assert conn.execute("SELECT Balance FROM Account WHERE Id = 1").fetchall() == [(100,)]
        for server in cluster.servers:
            cluster.do(server.stop())
        with pytest.raises(f1.OperationalError) as raised:
            conn.execute("SELECT Balance FROM Account WHERE Id = 1")
        assert raised.value.code == "UNAVAILABLE"
