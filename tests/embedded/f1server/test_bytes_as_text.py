"""Text that is compared with BYTES is read as text that is assigned to BYTES: by the evaluator, by keys, by indexes."""

from collections.abc import Sequence

import pytest

import f1
from f1common.errors import Code
from f1server.testing.database import Database, with_database

DDL = "CREATE TABLE B (K BYTES NOT NULL, V BYTES, N INT64, PRIMARY KEY (K))"
ROWS = [("\\x00ff", "a", 1), ("\\xdead", "\\xbeef", 2), (b"\\xde", "back\\\\slash", 3), ("\\336\\255\\276", None, 4)]
STORED = [(b"\x00\xff", b"a"), (b"\\xde", b"back\\slash"), (b"\xde\xad", b"\xbe\xef"), (b"\xde\xad\xbe", None)]

_FINDS: list[tuple[str, Sequence[object], list[int]]] = [
    ("K = '\\x00ff'", (), [1]),
    ("K = ?", ("\\x00ff",), [1]),
    ("K = ?", (b"\x00\xff",), [1]),
    ("K = ?", (b"\\xde",), [3]),
    ("'\\xDEAD' = K AND N > 0", (), [2]),
    ("V = ?", ("\\xbeef",), [2]),
    ("V = 'a'", (), [1]),
    ("V = 'back\\\\slash'", (), [3]),
    ("K = '\\336\\255'", (), [2]),
    ("K = CAST('\\336\\255' AS BYTES)", (), [2]),
    ("K IN ('\\x00ff', ?)", ("\\xdead",), [1, 2]),
    ("K NOT IN ('\\x00ff', '\\xdead')", (), [3, 4]),
    ("K > '\\xdead'", (), [4]),
    ("K BETWEEN ? AND '\\xdead'", ("\\x00fe",), [1, 2, 3]),
    ("V IS DISTINCT FROM '\\xbeef'", (), [1, 3, 4]),
    ("V <> '\\xbeef'", (), [1, 3]),
    ("CASE K WHEN '\\xdead' THEN true ELSE false END", (), [2]),
    ("CASE WHEN K = ('\\xdead') THEN true ELSE false END", (), [2]),
    ("N IN (SELECT b.N FROM B AS b WHERE b.V = '\\xbeef')", (), [2]),
    ("COALESCE(V, '\\x00', ?) = '\\x00'", ("a",), [4]),
    ("COALESCE(V, ?) = ?", ("\\xbeef", "\\xbeef"), [2, 4]),
    ("NULLIF(V, '\\xbeef') IS NULL", (), [2, 4]),
    ("GREATEST(K, '\\xdead') = K", (), [2, 4]),
    ("K || '\\xbe' = '\\xdeadbe'", (), [2]),
    ("CASE WHEN N = 1 THEN K ELSE '\\xdead' END = '\\xdead'", (), [2, 3, 4]),
    ("CASE N WHEN 1 THEN ? ELSE V END = '\\xbeef'", ("\\xbeef",), [1, 2]),
    ("V = NULL", (), []),
    ("V = ?", (None,), []),
]


async def _filled(db: Database) -> None:
    for row in ROWS:
        await db.conn.execute("INSERT INTO B (K, V, N) VALUES (?, ?, ?)", row)
    assert await db.rows("SELECT K, V FROM B ORDER BY K") == STORED


@pytest.mark.parametrize("index", ["", "CREATE INDEX BV ON B (V)"])
def test_what_is_compared_is_what_was_assigned(index: str) -> None:
    async def body(db: Database) -> None:
        await _filled(db)
        for condition, params, wanted in _FINDS:
            assert await db.rows(f"SELECT N FROM B WHERE {condition} ORDER BY N", *params) == [(n,) for n in wanted]
            # What no rule looks into: every condition is the evaluator's.
            hidden = f"SELECT N FROM B WHERE (N + 0 = -1 OR ({condition})) ORDER BY N"
            assert await db.rows(hidden, *params) == [(n,) for n in wanted], condition
            done = await db.conn.execute(f"UPDATE B SET N = N WHERE {condition}", params)
            assert done.rowcount == len(wanted), condition

    with_database(body, DDL, *filter(None, [index]))


def test_text_that_is_no_bytes_is_refused() -> None:
    async def body(db: Database) -> None:
        await _filled(db)
        for sql, params in (
            ("SELECT N FROM B WHERE V = '\\xzz'", ()),
            ("SELECT N FROM B WHERE V = ?", ("\\xzz",)),
            ("DELETE FROM B WHERE K = ?", ("\\x0",)),
            ("SELECT CAST('\\9' AS BYTES)", ()),
        ):
            with pytest.raises(f1.Error) as caught:
                await db.conn.execute(sql, params)
            assert caught.value.code is Code.INVALID_ARGUMENT, sql
        assert len(await db.rows("SELECT N FROM B")) == len(ROWS)

    with_database(body, DDL)
