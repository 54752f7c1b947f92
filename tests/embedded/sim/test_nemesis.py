"""Plans of faults: from the seed alone, within their limits, undone at the end (STYLE 5)."""

import asyncio
import random

import pytest

from spanstore.testing.sim import World, WorldConfig, run_sim, simulate
from spanstore.testing.sim.nemesis import (
    KINDS,
    ClockJump,
    Crash,
    NemesisConfig,
    Partition,
    Pause,
    PowerCut,
    draw_config,
    draw_plan,
    play,
    strike,
)

SERVERS = ("a", "b", "c")
MINUTE = 60_000_000


def plan(seed, **changes):
    rng = random.Random(seed)
    return draw_plan(rng, NemesisConfig(**changes), SERVERS, MINUTE, clients=("x", "y"), clock_bound_us=5_000)


def test_a_plan_follows_from_its_seed_and_lies_within_its_time():
    assert plan(1) == plan(1) != plan(2)
    assert all(0 < planned.at_us < MINUTE for planned in plan(1))
    kinds = {type(planned.fault).__name__ for seed in range(20) for planned in plan(seed)}
    assert len(kinds) == len(KINDS)


def test_weights_choose_the_kinds():
    assert {type(planned.fault) for planned in plan(3, weights=(("pause", 1),))} == {Pause}


def test_clocks_stay_within_their_bound_unless_they_may_lie():
    def jumps(**changes):
        weights = (("clock_jump", 1),)
        return [abs(p.fault.error_us) for seed in range(20) for p in plan(seed, weights=weights, **changes)]

    assert max(jumps()) == 5_000
    assert max(jumps(lying_clocks=True)) > 1_000_000


def test_max_down_bounds_the_victims_of_every_instant():
    for seed in range(50):
        ends = []
        for planned in plan(seed, max_down=1, interval_us=200_000):
            match planned.fault:
                case Crash(node) | Pause(node):
                    victims = {node}
                case PowerCut(nodes):
                    victims = set(nodes)
                case Partition(side, other):
                    victims = set(min(side, other, key=len))
                case _:
                    continue
            now = planned.at_us
            ends = [(end, names) for end, names in ends if end > now] + [(now + planned.fault.duration_us, victims)]
            assert len(set().union(*(names for _, names in ends)) & set(SERVERS)) <= 1


@pytest.mark.parametrize("seed", range(10))
def test_everything_works_again_after_a_plan(echo, seed):
    async def main(world):
        for name in SERVERS:
            world.add_node(name, echo.start(echo.Servicer()))
        client = world.add_client("x")
        rng = random.Random(seed)
        config = draw_config(rng, lying_clocks=seed % 2 == 0)
        await play(world, draw_plan(rng, config, SERVERS, MINUTE, clients=("x",), clock_bound_us=1000))
        for name in SERVERS:
            node = world.nodes[name]
            assert node.running and not node.paused and node.clock.is_true()
        await asyncio.sleep(5)

        async def ask():
            for name in SERVERS:
                assert await echo.Stub(client.channel(f"{name}:1")).Upper(b"x", timeout=1) == b"X"

        await client.spawn(ask())

    config = WorldConfig(clock_bound_us=1000)
    assert simulate(main, seed, config) == simulate(main, seed, config)


def test_each_fault_does_what_it_says():
    async def nothing(env):
        pass

    async def main(world: World):
        for name in SERVERS:
            world.add_node(name, nothing)
        strike(world, Crash("a", 1_000_000))
        strike(world, Pause("b", 2_000_000))
        strike(world, Partition(("c",), ("a", "b"), 3_000_000, one_way=True))
        strike(world, ClockJump("c", 77))
        nodes = world.nodes

        def state():
            return nodes["a"].running, nodes["b"].paused, world.net.is_cut("c", "a"), world.net.is_cut("a", "c")

        seen = []
        for _ in range(4):
            await asyncio.sleep(0.9)
            seen.append(state())
        assert nodes["c"].clock.error_us == 77
        strike(world, PowerCut(SERVERS, 1_000_000))
        assert [nodes[name].running for name in SERVERS] == [False] * 3
        await asyncio.sleep(1)
        assert [nodes[name].clock.sample().boot_us for name in SERVERS] == [0] * 3, "machines boot anew"
        return seen

    assert run_sim(main, 1) == [
        (False, True, True, False),
        (True, True, True, False),
        (True, False, True, False),
        (True, False, False, False),
    ]
