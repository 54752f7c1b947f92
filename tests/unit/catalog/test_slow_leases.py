"""Leases where storage is slow to answer, and where clocks know the time badly."""

import asyncio

import pytest

from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from f1server.catalog.places import PLACES
from f1server.catalog.store import _LEASE_S, SchemaStore
from tests.unit.catalog.test_leases import T, sim

PATIENCE_S = 0.25


def slow(server, delays):
    """Let reads of places take so long, and fail where they are waited for less; return what is asked: place, wait."""
    read, asked = server.client.read, []

    async def waits(keys=(), ranges=(), *, timeout_s=10.0, **more):
        place = tuples.decode(keys[0])[0]
        asked.append((place, timeout_s))
        delay_s = delays.get(place, 0)
        await asyncio.sleep(min(delay_s, timeout_s))
        if delay_s > timeout_s:
            raise F1Error(Code.DEADLINE_EXCEEDED, "storage is slow")
        return await read(keys, ranges, timeout_s=timeout_s, **more)

    server.client.read = waits
    return asked


def test_lease_rows_are_asked_for_longer_where_no_place_answers_in_time():
    async def main(cluster):
        a = cluster.server("a")
        await a.leases.current("default")
        asked = slow(a, dict.fromkeys(PLACES, 1.0))
        (row,), places = await a.store.leases_that_answer("default", "a", PATIENCE_S)
        assert (row.server, row.place, places) == ("a", PLACES[0], set(PLACES))
        assert asked == [(place, wait) for wait in (PATIENCE_S, _LEASE_S) for place in PLACES]

    sim(main)


def test_where_one_place_answers_in_time_the_others_are_not_waited_for():
    async def main(cluster):
        a = cluster.server("a")
        await a.leases.current("default")
        asked = slow(a, {PLACES[0]: 1.0, PLACES[2]: 1.0})
        assert await a.store.leases_that_answer("default", "a", PATIENCE_S) == ([], {PLACES[1]})
        assert asked == [(place, PATIENCE_S) for place in PLACES]

    sim(main)


def test_a_lease_whose_row_another_process_wrote_is_taken_although_storage_is_slow():
    """Its own row is not the one that it remembers: that has to be read, however slow storage is."""

    async def main(cluster):
        a = cluster.server("a")
        await a.ddl(T)
        async with cluster.server("a").leases.use("default"):  # another process of the name
            pass
        asked = slow(a, dict.fromkeys(PLACES, PATIENCE_S * 1.5))
        await a.leases.refresh("default")
        await asyncio.sleep(3)
        leased = await a.leases.current("default")
        assert leased.lease_end > cluster.storage.true_us()
        assert any(wait == _LEASE_S for _, wait in asked)

    sim(main)


def test_a_clock_that_is_too_bad_for_a_lease_is_told():
    async def main(cluster):
        with pytest.raises(F1Error) as caught:
            await cluster.server("a", bound_us=900_000).leases.current("default")
        assert caught.value.code is Code.UNAVAILABLE
        assert "the clock's bound is 900 ms, and f1server.schema_lease_ms 2000" in caught.value.message
        assert "set that to 4500 or more" in caught.value.message
        await cluster.server("b", bound_us=400_000).leases.current("default")

    sim(main)


def test_work_that_ends_while_the_row_that_mentions_it_is_written_is_told_of_at_once(monkeypatch):
    """Otherwise changes wait for the next look at what is due, which is a tenth of a lease away."""
    write = SchemaStore._write_lease_at
    slow_s = 0.02

    async def slowly(*args):
        ts = await write(*args)
        await asyncio.sleep(slow_s)
        return ts

    async def main(cluster):
        a, b = cluster.server("a"), cluster.server("b")
        working = b.leases.use("default")
        await working.__aenter__()
        change = asyncio.create_task(a.ddl(T))
        while (await a.store.load("default")).schema.version < 2:
            await asyncio.sleep(0.001)
        monkeypatch.setattr(SchemaStore, "_write_lease_at", slowly)
        telling = asyncio.create_task(b.leases.catch_up("default", 2))
        while {row.server: row.version for row in await a.store.leases("default")}["b"] < 2:
            await asyncio.sleep(0.001)
        assert not telling.done()
        await working.__aexit__(None, None, None)
        await telling
        await asyncio.sleep(2 * slow_s)
        rows = {row.server: row for row in await a.store.leases("default")}
        assert (rows["b"].version, rows["b"].old_version) == (2, 0)
        await change

    sim(main)


def test_a_row_whose_writer_is_cancelled_is_not_taken_for_another_process(monkeypatch):
    """Who changes the schema cancels its requests once it sees the rows. Changes waited a whole lease after that."""
    write = SchemaStore._write_lease_at

    async def slowly(*args):
        ts = await write(*args)
        await asyncio.sleep(0.05)
        return ts

    async def main(cluster):
        a, c = cluster.server("a"), cluster.server("c")
        await a.leases.current("default")
        monkeypatch.setattr(SchemaStore, "_write_lease_at", slowly)
        first = asyncio.create_task(c.leases.current("default"))
        while "c" not in {row.server for row in await a.store.leases("default")}:
            await asyncio.sleep(0.001)
        first.cancel()
        await c.leases.current("default")
        assert not c.leases._held["default"].loose

    sim(main)
