"""Money moves between purses; joins and sums over all of them, made by slaves if there are any, see every move or none.

What a sum is compared with are the moves themselves: each adds one to a column, so that a sum at a timestamp says
exactly which commits it has seen. A move out of a kind reads the sums first, in its transaction, and lets them fall no
further than :data:`FLOOR`: two of them that do not see each other would break that, though they write other rows.
"""

import asyncio
import random
from bisect import bisect_left, bisect_right
from collections.abc import Awaitable, Callable, Sequence

import f1
from f1.results import ResultSet
from f1.servers import Resend
from f1.transactions import Retries, Transaction, begin
from f1common.errors import F1Error, check
from f1common.pb import f1_pb2 as pb
from f1server.testing.kv import F1Kv
from spanstore.testing.checkers import Violation, check_timestamp_order
from spanstore.testing.history import Attempt, History, Op, Status
from spanstore.testing.workloads.base import Final, KvClient, breathe, in_real_time, persist

CHECKER = "sums"

DDL = """
CREATE TABLE Owner (Id INT64 NOT NULL, Kind INT64, PRIMARY KEY (Id));
CREATE TABLE Purse (Id INT64 NOT NULL, Owner INT64, N INT64 NOT NULL, Moves INT64 NOT NULL, PRIMARY KEY (Id));
CREATE INDEX PurseByOwner ON Purse (Owner);
"""

KINDS = 2
OWNERS = 4
INITIAL = 10
FLOOR = 16
"""The least that a kind may have in all."""

_SUM = "SUM(p.N) AS N, SUM(p.Moves) AS Moves"
SUMS = (
    f"SELECT o.Kind, {_SUM}, COUNT(*) AS C FROM Purse AS p JOIN Owner AS o ON p.Owner = o.Id GROUP BY o.Kind",
    f"SELECT o.Kind, {_SUM}, COUNT(p.Id) AS C FROM Owner AS o LEFT JOIN Purse AS p ON o.Id = p.Owner "
    "GROUP BY o.Kind ORDER BY 1",
    f"SELECT Kind, {_SUM}, SUM(C) AS C FROM (SELECT Owner, {_SUM}, COUNT(*) AS C FROM Purse AS p GROUP BY Owner) AS p "
    "JOIN Owner AS o ON p.Owner = o.Id GROUP BY Kind",
)
"""The same question in several ways: rows move by broadcast, by hash, before and after they are summed."""

_LOOKS = ("move", "sum", "final")
_TIMEOUT_S = 30.0

Sum = tuple[int, int, int]
"""Of a kind: money, moves, purses."""


class SumsWorkload:
    """Moves under optimistic transactions that read sums, and sums of their own."""

    def __init__(self, purses: int = 8, *, pause_us: int = 2_000) -> None:
        """``purses`` is a multiple of the number of owners, so that each kind has as many."""
        self.purses = purses
        self._pause_us = pause_us

    async def setup(self, client: KvClient, history: History) -> None:
        """Give every purse the same."""
        conn = _kv(client).conn

        async def body(attempt: Attempt) -> int:
            async def work(tx: Transaction) -> None:
                await tx.upsert("Owner", [{"Id": i, "Kind": i % KINDS} for i in range(OWNERS)])
                rows = [{"Id": i, "Owner": i % OWNERS, "N": INITIAL, "Moves": 0} for i in range(self.purses)]
                await tx.upsert("Purse", rows)

            await conn.run(work)
            return 0

        await persist(history, "setup", body)

    async def client_loop(
        self, process: int, client: KvClient, rng: random.Random, history: History, until: Callable[[], bool]
    ) -> None:
        """Move and look."""
        while not until():
            if rng.random() < 0.6:
                op = await history.run(process, "move", self._move(_kv(client).conn, rng))
            else:
                op = await history.run(process, "sum", _sum(_kv(client).conn, rng))
            await breathe(rng, op, self._pause_us)

    def _move(self, conn: f1.aio.Connection, rng: random.Random) -> Callable[[Attempt], Awaitable[int]]:
        source, target = rng.sample(range(self.purses), 2)
        amount = rng.randint(1, 8)
        sql = rng.choice(SUMS)

        async def fn(tx: Transaction, attempt: Attempt) -> None:
            attempt.begin()
            rows = await (await tx.execute(sql)).fetchall()
            found = _noted(attempt, rows)
            kind = source % OWNERS % KINDS
            if kind != target % OWNERS % KINDS and found.get(kind, (0, 0, 0))[0] - amount < FLOOR:
                return
            attempt.write(b"move", b"%d from %d to %d" % (amount, source, target))
            await tx.execute("UPDATE Purse SET N = N - ?, Moves = Moves + 1 WHERE Id = ?", [amount, source])
            await tx.execute("UPDATE Purse SET N = N + ? WHERE Id = ?", [amount, target])

        async def body(attempt: Attempt) -> int:
            retries = Retries(conn.session, "optimistic", _TIMEOUT_S)
            while True:
                tx = begin(conn.session, retries.kind, priority_ts=retries.priority_ts)
                try:
                    await tx.start()
                    await fn(tx, attempt)
                    wrote = tx.has_writes
                    done = await tx.commit()
                    return done.ts if wrote or tx.kind == "pessimistic" else tx.read_ts
                except F1Error as error:
                    await tx.rollback()
                    delay_s = retries.delay_s(error)
                await asyncio.sleep(delay_s)

        return body

    async def final(self, client: KvClient, history: History) -> Final:
        """Read the sums in all ways."""
        conn = _kv(client).conn
        for sql in SUMS:
            await persist(history, "final", _sum(conn, random.Random(0), sql))
        return {}

    def check(self, ops: Sequence[Op], final: Final) -> list[Violation]:
        """Check every sum against the moves that are known to have committed before, and the order of all."""
        moves = [op for op in ops if op.writes]
        known = sorted(op.ts or 0 for op in moves if op.status is Status.OK)
        unknown = [op for op in moves if op.status is Status.UNKNOWN]
        violations = check_timestamp_order(in_real_time(ops))
        for op in ops:
            if op.status is Status.OK and op.kind in _LOOKS:
                may = sum(other.invoke_us <= op.return_us for other in unknown)
                violations += self._check_sum(op, known, may)
        return violations

    def _check_sum(self, op: Op, known: Sequence[int], unknown: int) -> list[Violation]:
        sums = {read.key: _read(read.value) for read in op.reads}
        money, moves, purses = (sum(of_kind[i] for of_kind in sums.values()) for i in range(3))
        seen = (bisect_left if op.writes else bisect_right)(known, op.ts or 0)
        wrong = []
        if (money, purses, len(sums)) != (INITIAL * self.purses, self.purses, KINDS):
            wrong.append(f"{purses} purses of {len(sums)} kinds hold {money}")
        if any(of_kind[0] < FLOOR for of_kind in sums.values()):
            wrong.append(f"a kind has less than {FLOOR}: {sums}")
        if not seen <= moves <= seen + unknown:
            wrong.append(f"{moves} moves are seen, there are {seen} and {unknown} of unknown outcome")
        return [Violation(CHECKER, text, (op,)) for text in wrong]


def _kv(client: KvClient) -> F1Kv:
    check(isinstance(client, F1Kv), "this workload is about tables")
    return client  # type: ignore[return-value]


def _noted(attempt: Attempt, rows: Sequence[Sequence[object]]) -> dict[int, Sum]:
    found = {}
    for kind, *values in rows:
        money, moves, purses = (int(str(value)) for value in values)
        found[int(str(kind))] = (money, moves, purses)
        attempt.read(b"kind %d" % int(str(kind)), b"%d %d %d" % (money, moves, purses))
    return found


def _read(value: bytes | None) -> Sum:
    money, moves, purses = (int(part) for part in (value or b"0 0 0").split())
    return money, moves, purses


def _sum(conn: f1.aio.Connection, rng: random.Random, sql: str | None = None) -> Callable[[Attempt], Awaitable[int]]:
    text = sql or rng.choice(SUMS)

    async def body(attempt: Attempt) -> int:
        attempt.begin()
        session = conn.session
        execute = pb.Execute(sql=text, txn=pb.TxnContext(kind=pb.AUTOCOMMIT))
        answer = await session.execute(execute, session.deadline(), Resend.ALWAYS)
        table = await ResultSet(session, answer).read_all()
        _noted(attempt, [list(row.values()) for row in table.to_pylist()])
        return answer[0].read_ts

    return body
