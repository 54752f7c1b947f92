"""A handler that is cancelled while it cleans up goes on cleaning up."""

import asyncio

import pytest

from slavepool.run_session import to_the_end


def test_work_ends_however_often_its_waiter_is_cancelled() -> None:
    async def main() -> None:
        ended = asyncio.Event()
        goes_on = asyncio.Event()

        async def work() -> None:
            await goes_on.wait()
            ended.set()

        waiter = asyncio.create_task(to_the_end(work()))
        for _ in range(3):
            await asyncio.sleep(0)
            waiter.cancel()
        await asyncio.sleep(0)
        assert not waiter.done()
        goes_on.set()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        assert ended.is_set()

    asyncio.run(main())


def test_errors_of_the_work_are_its_waiters() -> None:
    async def main() -> None:
        async def work() -> None:
            raise ValueError("mine")

        with pytest.raises(ValueError, match="mine"):
            await to_the_end(work())

    asyncio.run(main())
