"""Back-off, deadlines, inbox, channel cache, protocol versions."""

import asyncio
import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from f1common.errors import Code, F1Error, InvariantViolation
from f1common.rpc.backoff import Backoff
from f1common.rpc.channels import ChannelCache
from f1common.rpc.deadlines import NEVER, Deadline, Expiries, within
from f1common.rpc.queues import Inbox
from f1common.rpc.status import error_from_rpc
from f1common.rpc.versions import check_call_version, check_version, protocol_metadata
from spanstore.testing.sim import World, run_sim
from tests.unit.rpc.echo import Request, connected, echo, single_method


def test_backoff_grows_to_its_cap_within_the_jitter() -> None:
    backoff = Backoff(20, 500, 2, random.Random(7))
    for full_ms in (20, 40, 80, 160, 320, 500, 500):
        assert full_ms / 2000 <= backoff.next_s() <= full_ms / 1000
    backoff.reset()
    assert backoff.next_s() <= 0.020


def test_backoff_is_jittered_by_its_own_generator() -> None:
    def draw(seed: int) -> list[float]:
        backoff = Backoff(20, 500, 2, random.Random(seed))
        return [backoff.next_s() for _ in range(4)]

    assert draw(1) == draw(1) != draw(2)


@pytest.mark.parametrize(("initial_ms", "cap_ms", "multiplier"), [(0, 1, 2), (2, 1, 2), (1, 2, 0.5)])
def test_backoff_that_would_not_back_off_is_refused(initial_ms: float, cap_ms: float, multiplier: float) -> None:
    with pytest.raises(InvariantViolation):
        Backoff(initial_ms, cap_ms, multiplier, random.Random(1))


class Loop(asyncio.SelectorEventLoop):
    """An event loop whose clock stands where the test puts it."""

    now_s = 1000.0

    def time(self) -> float:
        return self.now_s


def test_deadline_is_one_point_in_time_for_every_hop() -> None:
    loop = Loop()

    async def scenario() -> None:
        deadline = Deadline.after(2.0)
        assert (deadline.remaining_s(), deadline.wire_ms(), deadline.expired()) == (2.0, 2000, False)
        loop.now_s += 1.5
        assert (deadline.remaining_s(), deadline.wire_ms()) == deadline.left() == (0.5, 500)
        assert Deadline.from_wire_ms(deadline.wire_ms()) == deadline
        assert deadline.sooner(0.1) == Deadline(loop.now_s + 0.1)
        assert deadline.sooner(9.0) == deadline.sooner(None) == deadline
        loop.now_s += 0.4999
        assert deadline.wire_ms() == 1, "what is not over is not 0, which means never"
        loop.now_s += 0.1
        assert (deadline.remaining_s(), deadline.expired()) == (0.0, True)
        for late in (deadline.require, deadline.wire_ms, deadline.left):
            with pytest.raises(F1Error) as caught:
                late()
            assert caught.value.code is Code.DEADLINE_EXCEEDED

    loop.run_until_complete(scenario())
    loop.close()


def test_each_hears_at_its_end_and_nobody_who_has_ended() -> None:
    async def main(world: World) -> None:
        loop = asyncio.get_running_loop()
        start_s, heard = loop.time(), list[tuple[str, float]]()

        def over(name: str) -> None:
            heard.append((name, round(loop.time() - start_s, 6)))
            if name == "b":
                expiries.discard("d")  # one may end another, also one whose time is over, too
                expiries.add("e", start_s + 3.5)

        expiries: Expiries[str] = Expiries(over)
        for name, after_s in (("a", 5.0), ("b", 3.0), ("c", 4.0), ("d", 3.0), ("gone", 2.0)):
            expiries.add(name, start_s + after_s)
        expiries.discard("gone")
        expiries.discard("never there")
        await asyncio.sleep(4.5)
        expiries.add("now", start_s)
        await asyncio.sleep(0.01)
        assert heard == [("b", 3.0), ("e", 3.5), ("c", 4.0), ("now", 4.5)]
        expiries.close()
        await asyncio.sleep(9)
        assert len(heard) == 4

    run_sim(main, 1)


def test_of_thousands_that_end_one_after_the_other_many_end_at_one_look() -> None:
    async def main(world: World) -> None:
        loop = asyncio.get_running_loop()
        start_s, late = loop.time(), list[float]()
        ends = {n: start_s + 1 + n * 1e-5 for n in range(4_000)}
        expiries: Expiries[int] = Expiries(lambda n: late.append(round(loop.time() - ends[n], 6)))
        for n, at_s in ends.items():
            expiries.add(n, at_s)
        await asyncio.sleep(2)
        assert len(late) == 4_000 and 0 <= min(late) <= max(late) <= 0.008
        assert sum(one == 0 for one in late) < 200, "as many looks as ends would take the square of their number"

    run_sim(main, 1)


def test_no_deadline_never_passes() -> None:
    async def scenario() -> None:
        assert Deadline.after(None) == Deadline.from_wire_ms(0) == NEVER == Deadline(math.inf)
        assert (NEVER.remaining_s(), NEVER.wire_ms(), NEVER.expired()) == (None, 0, False)
        assert NEVER.left() == (None, 0)
        assert await within(NEVER, asyncio.sleep(0, "done")) == "done"

    asyncio.run(scenario())


def test_work_is_cancelled_at_its_deadline() -> None:
    async def scenario() -> None:
        cancelled = asyncio.Event()

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        with pytest.raises(F1Error) as caught:
            await within(Deadline.after(0.01), work(), ambiguous=True)
        assert (caught.value.code, caught.value.ambiguous) == (Code.DEADLINE_EXCEEDED, True)
        assert cancelled.is_set()

    asyncio.run(scenario())


def test_timeout_of_the_work_itself_is_not_the_deadline() -> None:
    async def work() -> None:
        raise TimeoutError("its own")

    async def scenario() -> None:
        with pytest.raises(TimeoutError, match="its own"):
            await within(Deadline.after(60), work())

    asyncio.run(scenario())


Step = tuple[str, int, int]


@given(
    st.lists(
        st.tuples(st.just("put"), st.integers(0, 30), st.just(0))
        | st.tuples(st.just("drain"), st.integers(1, 5), st.integers(0, 60))
    ),
    st.integers(1, 6),
    st.integers(1, 60),
)
def test_inbox_is_a_bounded_queue(steps: list[Step], max_messages: int, max_bytes: int) -> None:
    inbox: Inbox[int] = Inbox(max_messages, max_bytes)
    model: list[tuple[int, int]] = []
    refused = 0
    for number, (action, first, second) in enumerate(steps):
        if action == "put":
            fits = not model or (len(model) < max_messages and sum(size for _, size in model) + first <= max_bytes)
            assert inbox.put(number, first) == fits
            if fits:
                model.append((number, first))
            refused += not fits
        else:
            taken: list[int] = []
            room = second
            while model and len(taken) < first and (not taken or model[0][1] <= room):
                item, size = model.pop(0)
                taken.append(item)
                room -= size
            assert inbox.drain(first, second) == taken
        assert (len(inbox), inbox.size_bytes, inbox.refused) == (len(model), sum(size for _, size in model), refused)


def test_owner_of_an_inbox_sleeps_until_there_is_something() -> None:
    async def scenario() -> None:
        inbox: Inbox[str] = Inbox(10, 1000)
        waiting = asyncio.create_task(inbox.wait())
        await asyncio.sleep(0.01)
        assert not waiting.done()
        inbox.put("a", 1)
        inbox.put("b", 1)
        await waiting
        assert inbox.drain(1, 100) == ["a"]
        await inbox.wait()
        assert inbox.drain(5, 100) == ["b"]
        assert inbox.drain(5, 100) == []
        again = asyncio.create_task(inbox.wait())
        await asyncio.sleep(0.01)
        assert not again.done()
        again.cancel()

    asyncio.run(scenario())


class FakeChannel:
    def __init__(self, address: str) -> None:
        self.address = address
        self.closed = 0

    async def close(self) -> None:
        self.closed += 1


def test_channel_cache_makes_one_channel_for_each_address_and_closes_all() -> None:
    async def scenario() -> None:
        made: list[FakeChannel] = []

        def factory(address: str) -> FakeChannel:
            made.append(FakeChannel(address))
            return made[-1]

        cache = ChannelCache(factory)
        assert cache.get("b:1") is cache.get("b:1")
        assert cache.get("a:1") is not cache.get("b:1")
        await cache.forget("b:1")
        await cache.forget("never:1")
        assert cache.get("b:1") is made[2]
        await cache.close()
        await cache.close()
        assert [channel.closed for channel in made] == [1, 1, 1]
        with pytest.raises(F1Error) as caught:
            cache.get("b:1")
        assert caught.value.code is Code.CANCELLED

    asyncio.run(scenario())


def test_proxy_of_the_environment_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "grpc_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")

    async def single(request: Any, context: Any) -> Any:
        return echo(request)

    async def scenario() -> None:
        async with connected(single=single) as channel:
            assert (await single_method(channel)(Request(text="direct"))).text == "direct"

    asyncio.run(scenario())


def test_other_version_is_refused_and_both_are_named() -> None:
    check_version("span-a1", 3, 3)
    for theirs, older in ((2, "upgrade span-a1"), (4, "upgrade this process")):
        with pytest.raises(F1Error) as caught:
            check_version("span-a1", theirs, 3)
        error = caught.value
        assert (error.code, error.retryable) == (Code.VERSION_MISMATCH, False)
        assert f"version {theirs}" in error.message and "version 3" in error.message
        assert error.message.endswith(older)


def test_version_in_the_metadata_of_a_call_is_checked() -> None:
    async def single(request: Any, context: Any) -> Any:
        check_call_version(context, 3)
        return echo(request)

    async def scenario() -> None:
        async with connected(single=single) as channel:
            call = single_method(channel)
            assert (await call(Request(text="same"), metadata=protocol_metadata(3))).text == "same"
            assert (await call(Request(text="tool"))).text == "tool"
            for metadata in (protocol_metadata(2), (("f1-protocol", "three"),)):
                with pytest.raises(Exception) as caught:
                    await call(Request(), metadata=metadata)
                assert error_from_rpc(caught.value).code is Code.VERSION_MISMATCH  # type: ignore[arg-type]

    asyncio.run(scenario())


def test_what_is_put_back_into_an_inbox_comes_first_and_counts() -> None:
    inbox: Inbox[int] = Inbox(10, 1000)
    for number in range(5):
        assert inbox.put(number, 10)
    assert inbox.drain(3, 1000) == [0, 1, 2]
    inbox.put_back([(1, 10), (2, 10)])
    assert (len(inbox), inbox.size_bytes) == (4, 40)
    assert inbox.drain(10, 1000) == [1, 2, 3, 4]
    inbox.put_back([])
    assert (len(inbox), inbox.size_bytes) == (0, 0)
