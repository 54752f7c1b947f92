"""Damage, lost writes, full and slow disks, and wrong clocks in whole clusters, in simulated time."""

import pytest

from f1common.errors import Code, F1Error
from spanstore.client import Write
from spanstore.engine.base import Space
from tests.sim.disk_stage import GROUP, MIB, Stage, followers, play

SEEDS = range(2)
HOUR_US = 3_600_000_000


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("leads", [False, True])
def test_a_replica_that_differs_is_found_by_the_others_and_out(seed: int, lost: bool, leads: bool) -> None:
    """A write that a disk has lost leaves no checksum to be wrong: only a comparison can tell."""

    async def body(stage: Stage) -> None:
        await stage.until(stage.leader, 10, "nobody leads")
        leader = stage.leader()
        assert leader is not None
        victim = leader if leads else followers(stage)[0]
        engine = stage.cluster.engines[victim]
        if lost:
            engine.lose(stage.row(victim, 7))
        else:
            engine.flip_bit(stage.row(victim, 7), bit=43)
        server = stage.cluster.processes[victim].server
        await stage.until(lambda: GROUP not in server.groups, 20, "nobody notices")
        assert any("damaged: group 1" in text for text in stage.conditions(victim))
        assert set(engine.damage.all()) == {GROUP}
        await stage.read_all()
        await stage.put(stage.keys[7])
        await stage.read_all()
        others = [name for name in stage.cluster.names if name != victim]
        assert not any(stage.cluster.engines[name].damage.all() for name in others)
        stage.world.crash(victim)
        stage.world.restart(victim)
        await stage.world.sleep_us(3_000_000)
        assert GROUP not in stage.cluster.processes[victim].server.groups
        await stage.read_all()

    play(seed, body)


@pytest.mark.parametrize("seed", SEEDS)
def test_sound_replicas_never_differ(seed: int) -> None:
    async def body(stage: Stage) -> None:
        for turn in range(60):
            await stage.put(stage.keys[turn % 20], None if turn % 7 == 3 else b"x" * turn)
            if turn == 30:
                leader = stage.leader()
                if leader is not None:
                    stage.world.crash(leader)
                    stage.world.restart(leader)
        servers = [process.server for process in stage.cluster.processes.values()]
        await stage.until(lambda: all(s.comparison.compared > 5 for s in servers), 30, "nothing is compared")
        assert not any(server.conditions() for server in servers)

    play(seed, body, digest_every_ms=50)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("error_us", [HOUR_US, -HOUR_US, 200_000])
def test_a_leader_whose_clock_is_wrong_leads_no_more_and_drags_nobody_along(seed: int, error_us: int) -> None:
    async def body(stage: Stage) -> None:
        await stage.until(stage.leader, 10, "nobody leads")
        victim = stage.leader()
        assert victim is not None
        stage.world.nodes[victim].clock.error_us = error_us
        server = stage.cluster.processes[victim].server
        await stage.until(lambda: any("CLOCK_SKEW" in text for text in server.conditions()), 2, "it does not say so")
        await stage.until(lambda: not any(g.leads() for g in server.groups.values()), 5, "it leads on")
        await stage.until(stage.leader, 5, "nobody leads after it")
        ts = await stage.put(stage.keys[3])
        assert abs(ts - stage.world.true_ts()) < 5_000_000, "time was dragged along"
        await stage.world.sleep_us(5_000_000)
        assert not any(group.leads() for group in server.groups.values())
        await stage.read_all()
        stage.world.nodes[victim].clock.error_us = 0
        await stage.until(lambda: not server.conditions(), 8, "it does not come back")
        await stage.put(stage.keys[4])
        await stage.read_all()

    play(seed, body, bound_us=1_000)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_boot_clock_that_drifts_beyond_its_bound_is_reported(seed: int) -> None:
    async def body(stage: Stage) -> None:
        victim = stage.cluster.names[seed % 3]
        stage.world.nodes[victim].clock.set_drift(-50_000)
        server = stage.cluster.processes[victim].server
        await stage.until(lambda: any("CLOCK_SKEW" in text for text in server.conditions()), 90, "nobody notices")
        assert not any(group.leads() and group.may_lead for group in server.groups.values())

    play(seed, body, digest_every_ms=0)


@pytest.mark.parametrize("seed", SEEDS)
def test_leadership_leaves_a_server_without_room_and_all_without_refuse_writes(seed: int) -> None:
    async def body(stage: Stage) -> None:
        await stage.until(stage.leader, 10, "nobody leads")
        victim = stage.leader()
        assert victim is not None
        engines = stage.cluster.engines
        engines[victim].space_left = Space(40 * MIB, 64 * MIB)
        await stage.until(lambda: stage.leader() not in (None, victim), 5, "it leads on")
        for name in stage.cluster.names:
            engines[name].space_left = Space(40 * MIB, 64 * MIB)
        await stage.world.sleep_us(1_000_000)
        before = dict(stage.written)
        with pytest.raises(F1Error) as caught:
            await stage.put(stage.keys[0])
        assert caught.value.code is Code.DISK_FULL and not caught.value.ambiguous
        stage.written = before
        await stage.read_all()
        await stage.client.commit([Write(stage.keys[19], None)], timeout_s=20)
        del stage.keys[19]
        for name in stage.cluster.names:
            engines[name].space_left = Space(10 * MIB, 64 * MIB)
        await stage.world.sleep_us(3_000_000)
        await stage.read_all()
        for name in stage.cluster.names:
            engines[name].space_left = Space(400 * MIB, 64 * MIB)
        await stage.world.sleep_us(1_000_000)
        await stage.put(stage.keys[0])
        await stage.read_all()

    play(seed, body)


@pytest.mark.parametrize("seed", SEEDS)
def test_leadership_leaves_a_server_whose_syncs_take_three_seconds(seed: int) -> None:
    async def body(stage: Stage) -> None:
        await stage.until(stage.leader, 10, "nobody leads")
        victim = stage.leader()
        assert victim is not None
        stage.cluster.engines[victim].latency = lambda: 3.0
        await stage.until(lambda: stage.leader() not in (None, victim), 30, "it leads on")
        await stage.until(lambda: any("slow" in t for t in stage.conditions(victim)), 30, "it does not say so")
        await stage.put(stage.keys[2])
        await stage.read_all()

    play(seed, body)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_damaged_row_is_not_read(seed: int) -> None:
    """Without digests: the read itself runs into it, is answered by another replica, and takes this one out."""

    async def body(stage: Stage) -> None:
        await stage.until(stage.leader, 10, "nobody leads")
        victim = stage.leader()
        assert victim is not None
        stage.cluster.engines[victim].flip_bit(stage.row(victim, 7), bit=43)
        began = stage.world.now_us()
        await stage.read_all()
        assert stage.world.now_us() - began < 5_000_000
        assert set(stage.cluster.engines[victim].damage.all()) == {GROUP}

    play(seed, body, digest_every_ms=0)
