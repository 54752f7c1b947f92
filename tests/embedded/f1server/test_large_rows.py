"""Reads of many large rows come in as many answers as it takes."""

import random
from dataclasses import replace
from typing import Any

import pytest

from f1.checking import check_database
from f1server.testing.database import Database, with_database
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
