"""Work on many rows leaves the event loop to others; work on few does not leave it."""

import asyncio
import threading

import pytest

from f1common.aside import MANY_ROWS, aside
from f1common.errors import Code, F1Error


def test_many_rows_go_to_a_thread_and_the_loop_goes_on_meanwhile() -> None:
    async def run() -> None:
        served = threading.Event()

        def work() -> str:
            # Ends only if the loop serves others while it runs.
            assert served.wait(60)
            return threading.current_thread().name

        doing = asyncio.ensure_future(aside(MANY_ROWS, work))
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(served.set)
        assert (await doing).startswith("many rows")

    asyncio.run(run())


def test_few_rows_are_worked_on_in_place() -> None:
    async def run() -> None:
        work = aside(MANY_ROWS - 1, threading.current_thread)
        with pytest.raises(StopIteration) as ended:
            work.send(None)
        assert ended.value.value is threading.current_thread()

    asyncio.run(run())


@pytest.mark.parametrize("rows", [1, MANY_ROWS])
def test_what_the_work_raises_is_raised(rows: int) -> None:
    def work() -> None:
        raise F1Error(Code.OUT_OF_RANGE, "too much")

    with pytest.raises(F1Error) as caught:
        asyncio.run(aside(rows, work))
    assert caught.value.code is Code.OUT_OF_RANGE


def test_work_of_several_is_done_one_after_the_other() -> None:
    """Several threads would leave the loop less of the interpreter each."""

    async def run() -> None:
        working: list[int] = []
        most: list[int] = []

        def work() -> None:
            working.append(1)
            most.append(len(working))
            threading.Event().wait(0.001)
            working.pop()

        await asyncio.gather(*(aside(MANY_ROWS, work) for _ in range(8)))
        assert most == [1] * 8

    asyncio.run(run())
