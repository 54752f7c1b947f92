"""The window of rows that are on their way to one receiver."""

import asyncio
import random

import pytest

from f1common.errors import Code, F1Error
from f1common.pb import slave_pb2 as pb
from slavepool.outbox import Outbox


def rows(size: int) -> pb.Rows:
    return pb.Rows(relation="r", batch=b"x" * size)


async def soon(task: "asyncio.Task[int]") -> bool:
    """Is it done once everything that can run has run?"""
    for _ in range(5):
        await asyncio.sleep(0)
    return task.done()


def test_who_finds_no_room_waits_for_credit() -> None:
    async def go() -> None:
        outbox = Outbox(1000)
        first = await outbox.put(rows(900))
        second = asyncio.create_task(outbox.put(rows(200)))
        assert not await soon(second)
        assert len(outbox.take()) == 1
        assert not await soon(second), "what was sent is not taken over yet"
        outbox.credit(first)
        assert await soon(second)
        assert outbox.outstanding == second.result()

    asyncio.run(go())


def test_what_is_larger_than_the_window_goes_alone() -> None:
    async def go() -> None:
        outbox = Outbox(10)
        large = await outbox.put(rows(500))
        other = asyncio.create_task(outbox.put(rows(1)))
        assert not await soon(other)
        outbox.credit(large)
        assert await soon(other)

    asyncio.run(go())


def test_drained_when_all_is_taken_over() -> None:
    async def go() -> None:
        outbox = Outbox(1000)
        await outbox.drained()
        size = await outbox.put(rows(5))
        drained = asyncio.create_task(outbox.drained())
        outbox.take()
        assert not await soon(drained)  # type: ignore[arg-type]
        outbox.credit(size)
        assert await soon(drained)  # type: ignore[arg-type]
        with pytest.raises(F1Error, match="no more than it was sent"):
            outbox.credit(1)

    asyncio.run(go())


def test_a_failure_reaches_everybody_who_waits() -> None:
    async def go() -> None:
        outbox = Outbox(10)
        await outbox.put(rows(100))
        waiting = [asyncio.create_task(outbox.put(rows(1))), asyncio.create_task(outbox.put(rows(1)))]
        drained = asyncio.create_task(outbox.drained())
        await asyncio.sleep(0)
        outbox.fail(F1Error(Code.UNAVAILABLE, "gone"))
        outbox.fail(F1Error(Code.INTERNAL, "later"))
        results = await asyncio.gather(*waiting, drained, outbox.put(rows(1)), return_exceptions=True)
        assert [str(r) for r in results] == ["UNAVAILABLE: gone"] * 4
        assert not outbox

    asyncio.run(go())


@pytest.mark.parametrize("seed", range(5))
def test_everybody_gets_through_and_the_window_holds(seed: int) -> None:
    async def go() -> None:
        rng = random.Random(seed)
        outbox = Outbox(3000)
        sizes = [rng.randrange(1, 1500) for _ in range(200)]

        async def put(share: list[int]) -> None:
            for size in share:
                await outbox.put(rows(size))
                assert outbox.outstanding <= 3000

        puts = [asyncio.create_task(put(sizes[i::4])) for i in range(4)]
        got = 0
        async with asyncio.timeout(20):
            while got < len(sizes):
                await asyncio.sleep(0)
                for item in outbox.take():
                    got += 1
                    outbox.credit(item.ByteSize())
            await asyncio.gather(*puts)
            await outbox.drained()

    asyncio.run(go())
