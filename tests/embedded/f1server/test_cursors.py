"""Results in pages: every row once, pages of bounded size, and nothing kept for clients that went away."""

import asyncio
import io
import random
from collections.abc import AsyncIterator

import pyarrow as pa
import pytest

from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from f1server.cursors import Cursors, Page
from f1server.testing.database import Database, with_database

B = "CREATE TABLE B (A INT64 NOT NULL, V STRING, PRIMARY KEY (A))"


def rows_of(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(io.BytesIO(data)).read_all()


async def given(batches: list[pa.RecordBatch]) -> AsyncIterator[pa.RecordBatch]:
    for batch in batches:
        yield batch


@pytest.mark.parametrize("max_bytes", [1, 300, 5_000, 70_000, 1 << 24])
def test_pages_have_every_row_once_and_a_bounded_size(max_bytes: int) -> None:
    rng = random.Random(max_bytes)
    sizes = [rng.choice((0, 1, 1, 30, 400)) for _ in range(12)]
    texts = [[rng.choice("xyz") * rng.choice((1, 10, 2_000)) for _ in range(size)] for size in sizes]
    batches = [pa.RecordBatch.from_arrays([pa.array(text, pa.string())], names=["t"]) for text in texts]
    schema = pa.schema([("t", pa.string())])

    async def read() -> list[Page]:
        cursors = Cursors(rng)
        pages = [await cursors.start(schema, given(batches), max_bytes)]
        while pages[-1].cursor:
            pages.append(await cursors.fetch(pages[-1].cursor, max_bytes))
        assert len(cursors) == 0
        return pages

    pages = asyncio.run(read())
    got = [text for page in pages for text in rows_of(page.arrow).column(0).to_pylist()]
    assert got == [text for part in texts for text in part]
    # The last piece of a page begins below the limit and is no longer than the limit, or than one row; plus framing.
    assert all(len(page.arrow) <= 2 * max_bytes + 2_000 + 1_000 * len(batches) for page in pages)
    assert all(page.rows or not page.cursor for page in pages)


def test_long_values_are_cut_into_pages() -> None:
    async def body(db: Database) -> None:
        for start in range(0, 40, 8):
            await db.conn.insert("B", [{"A": a, "V": "x" * 100_000} for a in range(start, start + 8)])
        reply = await db.frontend().execute("default", pb.Execute(sql="SELECT * FROM B ORDER BY A", max_bytes=500_000))
        pages = [reply.arrow]
        more, cursor = bool(reply.cursor), reply.cursor
        while more:
            page = await db.frontend().fetch("default", pb.Fetch(cursor=cursor, max_bytes=500_000))
            pages.append(page.arrow)
            more = page.more
        assert all(len(page) < 1_100_000 for page in pages)
        assert [a for page in pages for a in rows_of(page).column("A").to_pylist()] == list(range(40))
        # The library does the same for its users.
        assert len(await db.rows("SELECT * FROM B")) == 40

    with_database(body, B)


async def code_of_fetch(db: Database, cursor: bytes) -> Code | None:
    try:
        await db.frontend().fetch("default", pb.Fetch(cursor=cursor, max_bytes=100))
    except F1Error as error:
        return error.code
    return None


def test_what_nobody_reads_is_given_up() -> None:
    async def body(db: Database) -> None:
        await db.conn.insert("B", [{"A": a, "V": "x"} for a in range(50)])
        some = pb.Execute(sql="SELECT X.A FROM B AS X, B AS Y, B AS Z", max_bytes=1_000)

        async def begin() -> bytes:
            return (await db.frontend().execute("default", some)).cursor

        idle, closed, used = await begin(), await begin(), await begin()
        assert db.frontend().status().open_cursors == 3
        await db.frontend().close_cursor("default", pb.CloseCursor(cursor=closed))
        await db.frontend().close_cursor("default", pb.CloseCursor(cursor=closed))
        assert await code_of_fetch(db, closed) is Code.NOT_FOUND
        assert await code_of_fetch(db, b"nonsense") is Code.NOT_FOUND
        for _ in range(3):
            await asyncio.sleep(30)
            assert await code_of_fetch(db, used) is None
        assert await code_of_fetch(db, idle) is Code.NOT_FOUND
        assert db.frontend().status().open_cursors == 1

    with_database(body, B)


def test_a_result_is_lost_with_its_server_and_the_query_run_again() -> None:
    async def body(db: Database) -> None:
        for first in (0, 100):  # with its history it is more than one transaction may have
            await db.conn.insert("B", [{"A": a, "V": "x" * 60_000} for a in range(first, first + 100)])
        cursor = await db.conn.execute("SELECT * FROM B ORDER BY A")
        for name in db.nodes.names:
            db.world.crash(name)
            db.world.restart(name)
        await asyncio.sleep(1)
        assert [a for a, _ in await cursor.fetchall()] == list(range(200))

    with_database(body, B)
