"""Streams over the simulated network: what a client may conclude from an error holds under crashes, cuts and stops."""

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

from f1common.errors import Code, F1Error
from f1common.rpc.batches import StreamLimits
from f1common.rpc.streams import serve_one_way, serve_requests
from spanstore.testing.sim import NodeEnv, World, WorldConfig, simulate
from tests.amounts import some
from tests.unit.rpc.echo import Request, add_echo, echo, items_of, one_way_stream, pack_responses, request_stream

SECOND = 1_000_000
CALLERS = 8
TURNS = 40


async def executing_server(env: NodeEnv) -> None:
    """Executes each request after a while, which its node's durable part remembers, and answers a while later."""
    executed: list[str] = env.durable.setdefault("executed", [])

    def handle(request: Any, reply: Any) -> None:
        async def work() -> None:
            await asyncio.sleep(env.rng.random() * 0.02)
            executed.append(request.text)
            await asyncio.sleep(env.rng.random() * 0.02)
            reply(echo(request))

        env.spawn(work())

    async def session(_: Any, context: Any) -> None:
        await serve_requests(context, items_of, pack_responses, handle, max_in_flight=4)

    server = env.server()
    add_echo(server, session)
    server.add_insecure_port(env.address(1))
    await server.start()


async def nemesis(world: World, rng: random.Random) -> None:
    """Break things for a while, each thing only briefly."""
    for _ in range(12):
        await asyncio.sleep(rng.random() * 0.8)
        match rng.randrange(5):
            case 0:
                world.crash("server", silent=rng.random() < 0.3)
                await asyncio.sleep(rng.random() * 0.5)
                world.restart("server")
            case 1:
                world.reset_links("client", "server")
            case 2:
                world.pause("server", int(rng.random() * 4 * SECOND))
            case 3:
                world.pause("client", int(rng.random() * SECOND))
            case _:
                world.cut(*rng.choice([("client", "server"), ("server", "client")]))
                await asyncio.sleep(rng.random() * 4)
                world.heal_links()
    world.heal()


async def accounting(world: World) -> tuple[dict[str, str], Counter[str]]:
    world.add_node("server", executing_server)
    client = world.add_client("client")
    outcomes: dict[str, str] = {}
    stream = request_stream(client.channel("server:1"), StreamLimits(max_in_flight=6, max_batch_messages=3))

    async def caller(number: int) -> None:
        for turn in range(TURNS):
            text = f"{number}.{turn}"
            try:
                response = await stream.call(Request(text=text), timeout_s=client.rng.choice((None, 0.02, 1.0)))
                assert response.text == text
                outcomes[text] = "done"
            except F1Error as error:
                assert error.code in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED, Code.OVERLOADED), error
                outcomes[text] = "ambiguous" if error.ambiguous else "not done"
            await asyncio.sleep(client.rng.random() * 0.2)

    faults = asyncio.create_task(nemesis(world, random.Random(f"{world.seed}/nemesis")))
    callers = [client.spawn(caller(number)) for number in range(CALLERS)]
    await asyncio.gather(*callers)
    await faults

    async def again() -> None:
        while True:
            try:
                await stream.call(Request(text="at the end"), timeout_s=1.0)
            except F1Error:
                continue
            break
        assert stream.in_flight == 0
        await stream.close()

    await client.spawn(again())
    return outcomes, Counter(world.nodes["server"].durable["executed"])


@pytest.mark.parametrize("seeds", some([range(8)], [range(8, 58)]), ids=str)
def test_errors_tell_the_truth_about_execution(seeds: range) -> None:
    seen: Counter[str] = Counter()
    for seed in seeds:
        outcomes, executed = simulate(accounting, seed).value
        assert len(outcomes) == CALLERS * TURNS
        for text, outcome in outcomes.items():
            seen[outcome] += 1
            if outcome == "done":
                assert executed[text] == 1, f"seed {seed}: {text}"
            elif outcome == "not done":
                assert executed[text] == 0, f"seed {seed}: {text}"
            else:
                assert executed[text] <= 1, f"seed {seed}: {text}"
                seen["ambiguous, done"] += executed[text]
                seen["ambiguous, not done"] += not executed[text]
    for outcome in ("done", "not done", "ambiguous, done", "ambiguous, not done"):
        assert seen[outcome] > 20, f"the faults of this test do not reach {outcome!r}: {seen}"


@pytest.mark.parametrize("seed", some([1], [2, 3, 4]))
def test_same_seed_gives_the_same_trace(seed: int) -> None:
    first, second = simulate(accounting, seed), simulate(accounting, seed)
    assert first.trace_hash == second.trace_hash
    assert simulate(accounting, seed + 100).trace_hash != first.trace_hash


async def outage(world: World) -> int:
    world.add_node("server", executing_server)
    client = world.add_client("client")
    stream = request_stream(client.channel("server:1"))

    async def until_answered() -> int:
        began_us = world.now_us()
        while True:
            try:
                await stream.call(Request(text="x"))
                return world.now_us() - began_us
            except F1Error:
                continue

    async def scenario() -> int:
        await until_answered()
        world.crash("server")
        longer = client.spawn(until_answered())
        await asyncio.sleep(10)
        world.restart("server")
        await longer
        world.crash("server")
        world.restart("server")
        elapsed_us = await until_answered()
        await stream.close()
        return elapsed_us

    return await client.spawn(scenario())


@pytest.mark.parametrize("seed", some([0, 1], range(2, 6)))
def test_answer_ends_the_growth_of_the_back_off(seed: int) -> None:
    assert simulate(outage, seed).value < 150_000, "far below the 250 ms that an outage has grown it to"


async def chatter(world: World) -> None:
    async def receiver(env: NodeEnv) -> None:
        heard: list[str] = env.durable.setdefault("heard", [])

        async def session(_: Any, context: Any) -> None:
            await serve_one_way(context, items_of, lambda message: heard.append(message.text))

        server = env.server()
        add_echo(server, session)
        server.add_insecure_port(env.address(1))
        await server.start()

    world.add_node("server", receiver)
    client = world.add_client("client")
    stream = one_way_stream(client.channel("server:1"), max_queued_messages=50)
    faults = asyncio.create_task(nemesis(world, random.Random(f"{world.seed}/nemesis")))
    sent = 0

    async def talk() -> None:
        nonlocal sent
        while not faults.done():
            assert stream.send(Request(text=str(sent)), 10)
            sent += 1
            await asyncio.sleep(0.005)
        await asyncio.sleep(10)  # what stands between a healed network and a new stream: keepalive and back-off
        for _ in range(100):
            stream.send(Request(text=str(sent)), 10)
            sent += 1
            await asyncio.sleep(0.005)
        await asyncio.sleep(1)
        await stream.close()

    await client.spawn(talk())
    heard = [int(text) for text in world.nodes["server"].durable["heard"]]
    assert len(heard) > sent / 10
    assert heard[-100:] == list(range(sent - 100, sent)), "after the faults nothing is lost"
    assert len(heard) == len(set(heard)), "lost, never doubled"


@pytest.mark.parametrize("seed", some(range(3), range(3, 20)))
def test_one_way_messages_are_lost_at_most_and_flow_again_after_faults(seed: int) -> None:
    simulate(chatter, seed, WorldConfig())
