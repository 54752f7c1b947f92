"""Nodes that crash, stop and are cut off; determinism of all of it (STYLE 5)."""

import asyncio
import subprocess
import sys

import grpc
import pytest
from grpc import aio

from f1common.errors import Code, F1Error, InvariantViolation
from spanstore.testing.sim import (
    LinkProfile,
    Loss,
    NetConfig,
    NodeFailed,
    SimulationError,
    WorldConfig,
    run_sim,
    simulate,
)

SECOND = 1_000_000


def chat(echo, body, seed=1, config=None):
    """Run ``body(world, client, stub, servicer)`` beside one server and one client."""

    async def main(world):
        servicer = echo.Servicer()
        world.add_node("server", echo.start(servicer))
        client = world.add_client("client")
        stub = echo.Stub(client.channel("server:1"))
        return await client.spawn(body(world, client, stub, servicer))

    return run_sim(main, seed, config)


async def fails_with(awaitable):
    with pytest.raises(aio.AioRpcError) as caught:
        await awaitable
    return caught.value.code()


def test_a_crash_resets_connections_and_a_restart_serves_again(echo):
    async def body(world, client, stub, servicer):
        call = stub.Raw()
        await call.write(b"a")
        assert await call.read() == b"A"
        world.crash("server")
        before = world.now_us()
        assert await fails_with(call.read()) is grpc.StatusCode.UNAVAILABLE
        assert world.now_us() - before < SECOND / 10
        assert await fails_with(stub.Upper(b"x")) is grpc.StatusCode.UNAVAILABLE
        assert servicer.events == [b"a"], "not even its cancellation ran"
        world.restart("server")
        await asyncio.sleep(1)
        assert await stub.Upper(b"x") == b"X"

    for seed in range(10):
        chat(echo, body, seed)


def test_call_under_way_when_its_connection_breaks_begins_no_handler(echo):
    """Nobody would ever end it: the server has said good-bye to the connection's calls already."""

    async def body(world, client, stub, servicer):
        assert await stub.Upper(b"x") == b"X"
        began = len(servicer.contexts)
        opened = [asyncio.create_task(fails_with(stub.Upper(b"sleep"))) for _ in range(3)]
        await asyncio.sleep(0)
        world.reset_links("client", "server")
        assert await asyncio.gather(*opened) == [grpc.StatusCode.UNAVAILABLE] * 3
        await asyncio.sleep(5)
        left = len(servicer.contexts) - began
        assert sum(event[0] == "cancelled" for event in servicer.events) == left
        assert await stub.Upper(b"x") == b"X"

    for seed in range(10):
        chat(echo, body, seed)


def test_power_loss_is_noticed_by_keepalive_only(echo):
    async def body(world, client, stub, servicer):
        call = stub.Raw()
        await call.write(b"a")
        assert await call.read() == b"A"
        before = world.now_us()
        world.crash("server", silent=True)
        assert await fails_with(call.read()) is grpc.StatusCode.UNAVAILABLE
        assert world.now_us() - before >= world.config.net.keepalive_us

    chat(echo, body)


def test_a_clients_crash_cancels_its_calls_at_the_server(echo):
    async def main(world):
        servicer = echo.Servicer()
        world.add_node("server", echo.start(servicer))
        client = world.add_client("client")

        async def talk():
            try:
                call = echo.Stub(client.channel("server:1")).Raw()
                await call.write(b"a")
                await call.read()
                await asyncio.sleep(100)
            finally:
                servicer.events.append("the dead spoke")

        client.spawn(talk())
        await asyncio.sleep(1)
        world.crash("client")
        await asyncio.sleep(1)
        assert servicer.events[-1] == "raw cancelled"

    run_sim(main, 3)


def test_what_a_killed_server_had_sent_still_arrives(echo):
    async def body(world, client, stub, servicer):
        call = stub.Raw()
        for word in (b"a", b"b", b"c"):
            await call.write(word)
        while servicer.events != [b"a", b"b", b"c"]:
            await asyncio.sleep(0.000_01)
        await asyncio.sleep(0.000_01)
        world.crash("server")
        got = []
        with pytest.raises(aio.AioRpcError):
            while True:
                got.append(await call.read())
        assert got == [b"A", b"B", b"C"][: len(got)]
        return len(got)

    assert max(chat(echo, body, seed) for seed in range(20)) == 3


def test_messages_wait_at_a_short_partition(echo):
    async def body(world, client, stub, servicer):
        call = stub.Raw()
        await call.write(b"a")
        assert await call.read() == b"A"
        world.partition(["server"])
        await call.write(b"b")
        await call.write(b"c")
        await asyncio.sleep(1)
        assert servicer.events == [b"a"]
        world.heal_links()
        assert [await call.read(), await call.read()] == [b"B", b"C"]

    chat(echo, body)


def test_what_is_under_way_at_a_healing_does_not_overtake_what_waited(echo):
    async def body(world, client, stub, servicer):
        call = stub.Raw()
        await call.write(b"a")
        assert await call.read() == b"A"
        world.partition(["server"])
        await call.write(b"b")
        await asyncio.sleep(0.1)
        world.net.profiles["client", "server"] = LinkProfile(min_us=200_000, mean_extra_us=0)
        await call.write(b"c")
        await asyncio.sleep(0.1)
        world.heal_links()
        assert [await call.read(), await call.read()] == [b"B", b"C"]

    for seed in range(5):
        chat(echo, body, seed)


def test_a_long_partition_breaks_streams_at_both_ends_and_loses_what_waited(echo):
    async def body(world, client, stub, servicer):
        call = stub.Raw()
        await call.write(b"a")
        assert await call.read() == b"A"
        world.partition(["server"])
        await call.write(b"b")
        assert await fails_with(call.read()) is grpc.StatusCode.UNAVAILABLE
        assert await fails_with(stub.Upper(b"x")) is grpc.StatusCode.UNAVAILABLE
        await asyncio.sleep(3)
        assert servicer.events[-1] == "raw cancelled"
        world.heal_links()
        await asyncio.sleep(2)
        assert b"b" not in servicer.events
        assert await stub.Upper(b"x") == b"X"

    for seed in range(10):
        chat(echo, body, seed)


def test_a_one_way_cut_lets_requests_through_but_no_answer(echo):
    async def body(world, client, stub, servicer):
        assert await stub.Upper(b"x") == b"X"
        world.cut("server", "client")
        call = stub.Raw()
        await call.write(b"a")
        await asyncio.sleep(0.5)
        assert servicer.events == [b"a"]
        assert await fails_with(call.read()) is grpc.StatusCode.UNAVAILABLE

    chat(echo, body)


def test_a_stopped_server_answers_late_and_in_order(echo):
    async def body(world, client, stub, servicer):
        call = stub.Raw()
        await call.write(b"a")
        assert await call.read() == b"A"
        world.pause("server", 1 * SECOND)
        await call.write(b"b")
        await asyncio.sleep(0.9)
        assert servicer.events == [b"a"]
        assert await call.read() == b"B"
        assert await stub.Upper(b"late") == b"LATE"

    chat(echo, body)


def test_a_server_stopped_for_long_loses_its_clients_but_reads_what_was_in_its_socket(echo):
    async def body(world, client, stub, servicer):
        call = stub.Raw()
        await call.write(b"a")
        assert await call.read() == b"A"
        world.pause("server", 10 * SECOND)
        await call.write(b"b")
        assert await fails_with(call.read()) is grpc.StatusCode.UNAVAILABLE
        await asyncio.sleep(12)
        assert servicer.events == [b"a", b"b"], "read before the loss of the connection was noticed"

    chat(echo, body)


def test_messages_of_unordered_methods_are_lost_doubled_and_overtaken(echo):
    loss = Loss(drop=200_000, duplicate=200_000, reorder=200_000)
    config = WorldConfig(net=NetConfig(unordered_methods=frozenset({"/test.Echo/Raw"}), loss=loss))

    async def body(world, client, stub, servicer):
        call, other = stub.Raw(), stub.Chat()
        for i in range(200):
            await call.write(b"%03d" % i)
            await other.write(b"x%03d" % i)
        await asyncio.sleep(1)
        raw = [event for event in servicer.events if not event.startswith(b"x")]
        assert set(raw) < {b"%03d" % i for i in range(200)}, "some are lost"
        assert len(raw) > len(set(raw)), "some are doubled"
        assert raw != sorted(raw), "some are overtaken"
        assert [event for event in servicer.events if event.startswith(b"x")] == [b"x%03d" % i for i in range(200)]
        call.cancel()

    chat(echo, body, config=config)


def test_the_disk_of_a_node_survives_its_process_and_the_engine_hears_of_the_crash(echo):
    starts = []

    async def program(env):
        env.durable.setdefault("log", []).append(env.incarnation)
        starts.append((env.incarnation, env.rng.random(), list(env.durable["log"])))
        env.on_crash(lambda: env.durable["log"].append("crashed"))

    async def main(world):
        world.add_node("a", program)
        await asyncio.sleep(1)
        world.crash("a")
        world.restart("a")
        await asyncio.sleep(1)

    run_sim(main, 1)
    assert [(n, log) for n, _, log in starts] == [(1, [1]), (2, [1, "crashed", 2])]
    assert starts[0][1] != starts[1][1], "each incarnation draws other numbers"


def test_the_boot_clock_survives_the_process_but_not_the_machine():
    async def nothing(env):
        pass

    async def main(world):
        node = world.add_node("a", nothing)
        await asyncio.sleep(5)
        before = node.clock.sample()
        world.crash("a")
        world.restart("a")
        assert node.clock.sample() == before
        world.crash("a")
        world.restart("a", reboot=True)
        assert node.clock.sample().boot_us == 0
        assert node.clock.sample().tt == before.tt

    run_sim(main, 1)


def test_clocks_disagree_within_their_bound_and_drift_within_theirs():
    async def nothing(env):
        pass

    async def main(world):
        nodes = [world.add_node(f"n{i}", nothing) for i in range(20)]
        boots = [node.clock.sample().boot_us for node in nodes]
        await asyncio.sleep(100)
        for node, boot in zip(nodes, boots, strict=True):
            sample = node.clock.sample()
            assert sample.tt.earliest <= world.true_ts() <= sample.tt.latest
            assert abs(sample.boot_us - boot - 100 * SECOND) <= 1 * SECOND
        assert len({node.clock.sample().tt.earliest for node in nodes}) > 10
        assert len({node.clock.sample().boot_us for node in nodes}) == 20
        nodes[0].clock.error_us = 10_001
        assert not nodes[0].clock.is_true()

    run_sim(main, 5, WorldConfig(clock_bound_us=10_000, max_drift_ppm=10_000))


def test_a_failing_program_fails_the_simulation_unless_it_may_fail():
    async def disk_full(env):
        await asyncio.sleep(1)
        raise F1Error(Code.DISK_FULL, "no room")

    async def broken(env):
        await asyncio.sleep(1)
        raise InvariantViolation("two leaders")

    async def wait(world):
        await asyncio.sleep(10)
        return world.nodes["a"].running

    async def main(world):
        world.add_node("a", disk_full)
        return await wait(world)

    with pytest.raises(NodeFailed, match="DISK_FULL"):
        run_sim(main, 1)
    assert run_sim(main, 1, WorldConfig(tolerated_exits=(F1Error,))) is False

    async def main2(world):
        world.add_node("a", broken)
        return await wait(world)

    with pytest.raises(NodeFailed, match="two leaders"):
        run_sim(main2, 1, WorldConfig(tolerated_exits=(F1Error,)))


def test_a_task_that_fails_unnoticed_fails_the_simulation():
    async def program(env):
        async def oops():
            raise ValueError("oops")

        env.spawn(oops())

    async def main(world):
        world.add_node("a", program)
        await asyncio.sleep(1)

    with pytest.raises(SimulationError, match="oops"):
        run_sim(main, 1)


@pytest.mark.parametrize("held", [True, False])
def test_a_task_whose_process_is_killed_before_anybody_looks_is_not_unnoticed(held: bool) -> None:
    """Whoever has it would have looked; if nobody has it nobody would."""

    async def program(env):
        async def oops():
            raise ValueError("oops")

        failing = env.spawn(oops())
        if not held:
            del failing
        await asyncio.sleep(9)
        failing.result()

    async def main(world):
        world.add_node("a", program)
        await asyncio.sleep(1)
        world.crash("a")

    if held:
        run_sim(main, 1)
        return
    with pytest.raises(SimulationError, match="oops"):
        run_sim(main, 1)


DETERMINISM = """
import asyncio, sys
sys.path.insert(0, {directory!r})
import conftest as echo
from spanstore.testing.sim import *

async def talk(env, stub):
    while True:
        try:
            call = stub.Raw()
            while True:
                await call.write(b"%d" % env.rng.randrange(100))
                await call.read()
                tasks = {{asyncio.ensure_future(asyncio.sleep(env.rng.random() / 3)) for _ in range(5)}}
                for task in (await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED))[1]:
                    task.cancel()
        except Exception as error:
            world.trace("error", type(error).__name__)
            await asyncio.sleep(env.rng.random())

async def main(w):
    global world
    world = w
    for i in range(3):
        w.add_node(f"server{{i}}", echo.start(echo.EchoServicer()))
    for i in range(3):
        client = w.add_client(f"client{{i}}")
        for j in range(3):
            client.spawn(talk(client, echo.EchoStub(client.channel(f"server{{j}}:1"))))
    for _ in range(10):
        name = f"server{{w.rng.randrange(3)}}"
        match w.rng.randrange(3):
            case 0: w.crash(name, silent=w.rng.random() < 0.5)
            case 1: w.pause(name, 5_000_000)
            case 2: w.partition([name])
        await asyncio.sleep(w.rng.random() * 6)
        w.heal()
        await asyncio.sleep(w.rng.random())

run = simulate(main, int(sys.argv[1]))
print(run.trace_hash, run.events, run.virtual_us)
"""


def test_the_same_seed_gives_the_same_trace_in_another_process(request):
    script = DETERMINISM.format(directory=str(request.path.parent))

    def run(seed, hash_seed):
        done = subprocess.run(
            [sys.executable, "-c", script, str(seed)],
            env={"PYTHONHASHSEED": str(hash_seed), "PATH": ""},
            cwd=request.config.rootpath,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run(7, 1) == run(7, 2)
    assert run(7, 1) != run(8, 1)


def test_the_same_seed_twice_in_one_process_gives_the_same_trace(echo):
    async def main(world):
        servicer = echo.Servicer()
        world.add_node("server", echo.start(servicer))
        client = world.add_client("client")
        stub = echo.Stub(client.channel("server:1"))

        async def talk():
            call = stub.Chat()
            for i in range(100):
                await call.write(b"%d" % i)
                await call.read()
            call.cancel()

        await asyncio.gather(*(client.spawn(talk()) for _ in range(5)))

    first = simulate(main, 11)
    assert simulate(main, 11) == first
    assert simulate(main, 12).trace_hash != first.trace_hash
