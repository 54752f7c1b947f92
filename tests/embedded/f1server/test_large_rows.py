"""Reads of many large rows come in as many answers as it takes."""

import random
from dataclasses import replace
from typing import Any

import pytest

from f1.checking import check_database
from f1.servers import Resend
from f1common.pb import f1_pb2 as pb
from f1server.rows.keys import row_key
from f1server.testing.database import Database, with_database
from f1server.txn import reader
from spanstore.client import SpanClient
from spanstore.client.placement import stored_map, submit_move, wait_for_move
from spanstore.group import reads
from spanstore.group.config import GroupConfig
from spanstore.runtime import process

DDL = (
    "CREATE TABLE B (K INT64 NOT NULL, V INT64, S STRING, PRIMARY KEY (K))",
    "CREATE INDEX BV ON B (V)",
    "CREATE TABLE C (K INT64 NOT NULL, N INT64 NOT NULL, S STRING, PRIMARY KEY (K, N)) INTERLEAVE IN PARENT B",
)


@pytest.mark.parametrize("kind", ["snapshot", "optimistic", "pessimistic"])
def test_nothing_is_missing(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    group_config = process.group_config

    def small(config: Any) -> GroupConfig:
        return replace(group_config(config), answer_max_bytes=1_000, read_max_bytes=700)

    cut: list[bool] = []
    read_rows = reads.read_rows

    def noted(reader: Any, group: int, keys: Any, *more: Any) -> Any:
        answer = read_rows(reader, group, keys, *more)
        cut.append(len(answer.versions) < len(keys))
        return answer

    monkeypatch.setattr(process, "group_config", small)
    monkeypatch.setattr(reads, "read_rows", noted)

    async def body(db: Database) -> None:
        rng = random.Random(3)
        rows = [(k, k % 3, "x" * rng.choice((0, 10, 300, 2_000))) for k in range(60)]
        await db.conn.insert("B", [dict(zip("KVS", row, strict=True)) for row in rows])
        await db.conn.insert("C", [{"K": k, "N": n, "S": s} for k, n, s in rows[:9]])
        async with db.conn.transaction("optimistic" if kind == "snapshot" else kind) as tx:
            for sql, wanted in (
                ("SELECT K, V, S FROM B WHERE V = 1", rows[1::3]),
                (f"SELECT K, V, S FROM B WHERE K IN ({', '.join(map(str, range(5, 70)))})", rows[5:]),
                ("SELECT K, V, S FROM B WHERE K BETWEEN 10 AND 50", rows[10:51]),
                ("SELECT C.K, B.V, C.S FROM C JOIN B ON B.K = C.K AND B.V = C.N", rows[:9]),
            ):
                found = await (await tx.execute(sql)).fetchall()
                assert sorted(found) == sorted(wanted), sql
        assert (await db.conn.execute("UPDATE B SET S = S || 'y' WHERE V < 2")).rowcount == 40
        assert (await db.conn.execute("DELETE FROM B WHERE V = 1 AND K > 9")).rowcount == 17
        await db.ddl("CREATE INDEX BS ON B (K) STORING (S)", "CREATE UNIQUE INDEX BK ON B (K, V)")
        left = [(k, v, s + "y" * (v < 2)) for k, v, s in rows if v != 1 or k <= 9]
        assert sorted(await db.rows("SELECT K, V, S FROM B")) == left
        assert not (await check_database(db.conn.session, [], repair=False, examples=2)).findings

    with_database(body, *DDL)
    assert any(cut)


async def _divided(db: Database, at: int) -> None:
    """Have the rows of B from a key on in another group than those before it."""
    schema = (await db.process().leases.current("default")).schema
    start, end = (row_key(schema, schema.table("B"), (key,)) for key in (at, 1_000))
    ranges, _ = await stored_map(db.storage)
    other = max(db.storage.groups() - {ranges.group_of(start)})
    job = await submit_move(db.storage, start, end, other)
    await wait_for_move(db.storage, job.number, 60)


@pytest.mark.parametrize("groups", [2, 3])
def test_a_range_is_read_some_bytes_at_a_time(monkeypatch: pytest.MonkeyPatch, groups: int) -> None:
    group_config, read = process.group_config, SpanClient.read
    largest = [0]

    def small(config: Any) -> GroupConfig:
        return replace(group_config(config), read_max_bytes=700)

    async def measured(client: SpanClient, keys: Any = (), ranges: Any = (), **more: Any) -> Any:
        result = await read(client, keys, ranges, **more)
        largest[0] = max(largest[0], sum(len(row.value) for rows in result.ranges for row in rows))
        return result

    monkeypatch.setattr(process, "group_config", small)
    monkeypatch.setattr(reader, "_PAGE_BYTES", 3_000)

    async def body(db: Database) -> None:
        rng = random.Random(4)
        rows = [(k, k % 3, "x" * rng.choice((0, 10, 300, 1_500))) for k in range(60)]
        await db.conn.insert("B", [dict(zip("KVS", row, strict=True)) for row in rows])
        await db.conn.insert("C", [{"K": k, "N": n, "S": s} for k, n, s in rows[:30]])
        if groups > 2:
            await _divided(db, 25)
        monkeypatch.setattr(SpanClient, "read", measured)
        for sql, wanted in (
            ("SELECT K, V, S FROM B WHERE K >= 10 AND K < 50", rows[10:50]),
            ("SELECT K, V, S FROM B WHERE K >= 10 ORDER BY K", rows[10:]),
            ("SELECT K, V, S FROM B WHERE K <= 40 ORDER BY K DESC", rows[40::-1]),
            ("SELECT K, V, S FROM B WHERE K >= 10 ORDER BY K LIMIT 35", rows[10:45]),
            ("SELECT K, V, S FROM B WHERE K < 50 ORDER BY K DESC LIMIT 35", rows[49:14:-1]),
            ("SELECT K, V, S FROM B WHERE K >= 12 AND V = 1 ORDER BY K LIMIT 9", rows[13::3][:9]),
            ("SELECT K, V, S FROM B ORDER BY K LIMIT 3 OFFSET 30", rows[30:33]),
            ("SELECT K, length(S) FROM B WHERE K > 3 AND K < 44", [(k, len(s)) for k, _, s in rows[4:44]]),
            ("SELECT K, N, S FROM C WHERE K > 20", rows[21:30]),
        ):
            found = await db.rows(sql)
            assert (found if "ORDER" in sql else sorted(found)) == wanted, sql

    with_database(body, *DDL, groups=groups)
    assert 3_000 <= largest[0] <= 3_000 + groups * (700 + 1_600)


def test_few_rows_that_are_large_go_page_by_page() -> None:
    async def body(db: Database) -> None:
        await db.conn.insert("B", [{"K": k, "S": "x" * (k * 100_000)} for k in range(8)])
        session = db.conn.session
        for below, as_cells in ((4, True), (8, False)):
            request = pb.Execute(sql=f"SELECT K, S FROM B WHERE K >= 0 AND K < {below}", few_as_rows=True, max_bytes=1)
            answer, _ = await session.execute(request, session.deadline(), Resend.ALWAYS)
            assert (bool(answer.rows), bool(answer.arrow), bool(answer.cursor)) == (
                as_cells,
                not as_cells,
                not as_cells,
            )
            assert await db.rows(request.sql) == [(k, "x" * (k * 100_000)) for k in range(below)]

    with_database(body, *DDL)
