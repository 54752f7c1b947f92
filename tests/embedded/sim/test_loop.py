"""The virtual loop: time jumps, order follows from the seed, domains stop and die (TigerBeetle, FoundationDB)."""

import asyncio
import random

import pytest

from spanstore.testing.sim.loop import Deadlock, Domain, Livelock, TimeLimit, VirtualLoop, current_domain


def test_time_jumps_to_the_next_timer_and_is_exact():
    loop = VirtualLoop()
    seen = []

    async def main():
        await asyncio.sleep(3600)
        seen.append(loop.now_us)
        await asyncio.sleep(0.000_001)
        seen.append(loop.now_us)
        await asyncio.sleep(0)
        seen.append(loop.now_us)

    loop.run_until_complete(main())
    assert seen == [3_600_000_000, 3_600_000_001, 3_600_000_001]


def test_a_timer_shorter_than_the_tick_still_moves_time():
    loop = VirtualLoop()

    async def main():
        for _ in range(10):
            await asyncio.sleep(1e-9)

    loop.run_until_complete(main())
    assert loop.now_us == 10


def test_deadlock_names_who_waits():
    loop = VirtualLoop()

    async def waits_for_nobody():
        await loop.create_future()

    with pytest.raises(Deadlock, match=r"lonely in .*waits_for_nobody line \d+"):
        loop.run_until_complete(loop.create_task(waits_for_nobody(), name="lonely"))
    loop.unwind([])


def test_livelock_and_time_limit_are_errors():
    async def spins():
        while True:
            await asyncio.sleep(0)

    async def dawdles():
        while True:
            await asyncio.sleep(1)

    loop = VirtualLoop()
    with pytest.raises(Livelock):
        loop.run_until_complete(spins())
    loop.unwind([])
    loop = VirtualLoop(limit_us=10_000_000)
    with pytest.raises(TimeLimit):
        loop.run_until_complete(dawdles())
    assert loop.now_us == 10_000_000
    loop.unwind([])


def _order(seed: int | None) -> list[int]:
    loop = VirtualLoop(None if seed is None else random.Random(seed))
    order: list[int] = []

    async def main():
        for i in range(20):
            loop.call_later(1, order.append, i)
        await asyncio.sleep(2)

    loop.run_until_complete(main())
    return order


def test_simultaneous_timers_run_in_order_or_in_the_seeds_order():
    assert _order(None) == list(range(20))
    assert _order(1) == _order(1)
    assert _order(1) != _order(2)
    assert sorted(_order(1)) == list(range(20))


def test_cancelled_timers_are_forgotten():
    loop = VirtualLoop()

    async def main():
        for _ in range(5000):
            loop.call_later(1000, print).cancel()
        assert len(loop._timers) < 3000
        await asyncio.sleep(1)

    loop.run_until_complete(main())
    assert loop.now_us == 1_000_000


def test_tasks_in_sets_iterate_alike_in_every_run():
    def run() -> list[str]:
        loop = VirtualLoop()
        order: list[str] = []

        async def child(name: str) -> None:
            try:
                await asyncio.sleep(10)
            finally:
                order.append(name)

        async def main() -> None:
            try:
                async with asyncio.TaskGroup() as group:
                    for i in range(40):
                        group.create_task(child(str(i)))
                    await asyncio.sleep(1)
                    raise ValueError
            except* ValueError:
                pass

        loop.run_until_complete(main())
        return order

    ballast = [object() for _ in range(1000)]
    first = run()
    del ballast
    assert first == run()
    assert len(first) == 40


def test_executors_run_inline():
    loop = VirtualLoop()

    async def main():
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(None, lambda: 1 // 0)
        return await asyncio.to_thread(lambda: 7)

    assert loop.run_until_complete(main()) == 7


def test_a_held_domain_gets_no_turn_and_misses_nothing():
    loop = VirtualLoop()
    domain = Domain("node")
    ticks: list[int] = []

    async def ticker():
        assert current_domain() is domain
        for _ in range(10):
            await asyncio.sleep(1)
            ticks.append(loop.now_us // 1_000_000)

    async def main():
        loop.create_task(ticker(), context=domain.context.copy())
        await asyncio.sleep(2.5)
        loop.hold(domain)
        await asyncio.sleep(5)
        assert ticks == [1, 2]
        loop.release(domain)
        await asyncio.sleep(3)

    loop.run_until_complete(main())
    assert ticks == [1, 2, 7, 8, 9, 10], "the third tick comes late, at 7.5 s"


def test_the_dead_run_no_finally_until_the_world_ends():
    loop = VirtualLoop()
    domain = Domain("node")
    events: list[str] = []
    domain.on_death.append(lambda: events.append("death"))

    async def program():
        try:
            await asyncio.sleep(1)
            events.append("alive")
        finally:
            events.append("finally")

    async def main():
        loop.create_task(program(), context=domain.context.copy())
        await asyncio.sleep(0.5)
        loop.kill(domain)
        await asyncio.sleep(10)
        events.append("end")

    loop.run_until_complete(main())
    loop.unwind([domain])
    assert events == ["death", "end", "finally"]
