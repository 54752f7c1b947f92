"""Counters that clients increment by one autocommit statement each, through whichever server answers."""

import random
from collections.abc import Awaitable, Callable, Sequence

import f1
from f1.servers import Resend
from f1.transactions import Transaction
from f1.values import read_arrow
from f1common.errors import Code, F1Error, check
from f1common.pb import f1_pb2 as pb
from f1server.testing.kv import F1Kv
from spanstore.testing.checkers import Violation
from spanstore.testing.history import Attempt, History, Op, Status
from spanstore.testing.workloads.base import Final, KvClient, breathe, persist

CHECKER = "counters"

_SQL = "UPDATE Counter SET N = N + 1 WHERE Id = {id} RETURNING N"


class CounterWorkload:
    """No increment is lost and none counts twice: what RETURNING gives is every number once."""

    def __init__(self, counters: int = 2, *, pause_us: int = 2_000) -> None:
        self.keys = [b"%d" % i for i in range(counters)]
        self._pause_us = pause_us

    async def setup(self, client: KvClient, history: History) -> None:
        """Begin at zero."""
        conn = _connection(client)

        async def body(attempt: Attempt) -> int:
            async def work(tx: Transaction) -> None:
                await tx.upsert("Counter", [{"Id": int(key), "N": 0} for key in self.keys])

            await conn.run(work)
            return 0

        await persist(history, "setup", body)

    async def client_loop(
        self,
        process: int,
        client: KvClient,
        rng: random.Random,
        history: History,
        until: Callable[[], bool],
    ) -> None:
        """Increment."""
        ways = (_by_library, _by_server, _by_server_once, _by_transaction)
        while not until():
            key = rng.choice(self.keys)
            way = rng.choice(ways)
            op = await history.run(process, way.__name__, _increment(_connection(client), key, way))
            await breathe(rng, op, self._pause_us)

    async def final(self, client: KvClient, history: History) -> Final:
        """Read the counters."""
        conn = _connection(client)
        found: dict[bytes, bytes | None] = {}

        async def body(attempt: Attempt) -> int:
            rows = await (await conn.execute("SELECT Id, N FROM Counter ORDER BY Id")).fetchall()
            found.update({b"%d" % key: b"%d" % n for key, n in rows})
            return 0

        await persist(history, "final", body)
        await conn.rollback()
        return found

    def check(self, ops: Sequence[Op], final: Final) -> list[Violation]:
        """Check that every acknowledged increment counts once, and those of unknown outcome at most once."""
        violations: list[Violation] = []
        for key in self.keys:
            mine = [op for op in ops if op.writes and op.writes[0].key == key]
            given = [int(op.reads[0].value or b"0") for op in mine if op.status is Status.OK]
            unknown = sum(op.status is Status.UNKNOWN for op in mine)
            n = int(final.get(key) or b"0")
            if len(set(given)) != len(given):
                violations.append(Violation(CHECKER, f"counter {key!r} gave a number twice: {sorted(given)}"))
            if not len(given) <= n <= len(given) + unknown or (given and max(given) > n):
                message = f"counter {key!r} is {n} after {len(given)} increments and {unknown} of unknown outcome"
                violations.append(Violation(CHECKER, message))
        return violations


def _connection(client: KvClient) -> f1.aio.Connection:
    check(isinstance(client, F1Kv), "this workload is about tables")
    return client.conn  # type: ignore[attr-defined,no-any-return]


Way = Callable[[f1.aio.Connection, str], Awaitable[int]]


def _increment(conn: f1.aio.Connection, key: bytes, way: Way) -> Callable[[Attempt], Awaitable[int]]:
    async def body(attempt: Attempt) -> int:
        attempt.write(key, b"+1")
        n = await way(conn, _SQL.format(id=key.decode()))
        attempt.read(key, b"%d" % n)
        return 0

    return body


async def _by_library(conn: f1.aio.Connection, sql: str) -> int:
    """As users do: a transaction of the library's own, exactly once."""

    async def work(tx: Transaction) -> int:
        ((n,),) = await (await tx.execute(sql)).fetchall()
        return int(n)

    return await conn.run(work)


async def _by_transaction(conn: f1.aio.Connection, sql: str) -> int:
    """Under locks."""

    async def work(tx: Transaction) -> int:
        ((n,),) = await (await tx.execute(sql)).fetchall()
        return int(n)

    return await conn.run(work, kind="pessimistic")


async def _by_server(conn: f1.aio.Connection, sql: str) -> int:
    """The server commits the statement itself; a lost answer leaves the outcome unknown."""
    return await _server(conn, sql, Resend.UNLESS_AMBIGUOUS)


async def _by_server_once(conn: f1.aio.Connection, sql: str) -> int:
    return await _server(conn, sql, Resend.NEVER)


async def _server(conn: f1.aio.Connection, sql: str, resend: Resend) -> int:
    session = conn.session
    execute = pb.Execute(sql=sql, txn=pb.TxnContext(kind=pb.AUTOCOMMIT))
    reply, _ = await session.execute(execute, session.deadline(), resend)
    if not reply.arrow:
        raise F1Error(Code.DATA_CORRUPTION, "the statement gave no result")
    return int(read_arrow(reply.arrow).column(0)[0].as_py())
