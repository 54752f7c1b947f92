"""The registry's states, one rule at a time. Times are milliseconds here: suspect after 1000, forgotten after 5000."""

from dataclasses import replace

from master.registry import Beat, Effects, PoolList, Registry, RegistryConfig, SlaveIdentity, State

ONE = SlaveIdentity("slave-1", "h:1", "a", incarnation=11, started_us=1)
TWO = SlaveIdentity("slave-2", "h:2", "b", incarnation=22, started_us=2)


class Master:
    """A registry that is driven as the service does: ticks come when they are due."""

    def __init__(self) -> None:
        self.registry = Registry(7, 0, RegistryConfig(1_000_000, 5_000_000))
        self.now_us = 0
        self.pushed: list[PoolList] = []

    def at(self, ms: int) -> "Master":
        while (due := self.registry.next_us()) <= ms * 1000:
            self.now_us = due
            self.take(self.registry.tick(due))
        self.now_us = ms * 1000
        return self

    def take(self, effects: Effects) -> Effects:
        if effects.push is not None:
            self.pushed.append(effects.push)
        return effects

    def beat(self, slave: SlaveIdentity, link: int = 1, *, draining: bool = False, failing: str = "") -> Effects:
        beat = Beat(link, slave, draining=draining, failing=failing)
        return self.take(self.registry.beat(beat, self.now_us))

    def gone(self, link: int) -> Effects:
        return self.take(self.registry.gone(link, self.now_us))

    def states(self) -> dict[str, State]:
        return {entry.slave.name: entry.state for entry in self.registry.snapshot().entries}

    def beating_until(self, ms: int, *slaves: SlaveIdentity) -> "Master":
        """Beats every 300 ms."""
        for moment in range(self.now_us // 1000, ms, 300):
            self.at(moment)
            for link, slave in enumerate(slaves, 1):
                self.beat(slave, link)
        return self.at(ms)


def test_the_first_beat_makes_a_slave_live_and_known_to_all() -> None:
    master = Master()
    assert master.beat(ONE).push == master.registry.snapshot()
    assert master.states() == {"slave-1": State.LIVE}
    assert master.at(300).beat(ONE).push is None, "nothing has changed"


def test_silence_makes_suspect_then_forgotten_and_a_beat_makes_live_again() -> None:
    master = Master().beating_until(9_000, ONE, TWO)
    master.beating_until(10_500, TWO)  # the last beat of slave-1 was at 8,700
    assert master.states() == {"slave-1": State.SUSPECT, "slave-2": State.LIVE}
    master.beat(ONE)
    assert master.states() == {"slave-1": State.LIVE, "slave-2": State.LIVE}
    master.beating_until(15_499, TWO)
    assert master.states() == {"slave-1": State.SUSPECT, "slave-2": State.LIVE}
    master.beating_until(15_501, TWO)
    assert master.states() == {"slave-2": State.LIVE}
    assert [p.version for p in master.pushed] == sorted({p.version for p in master.pushed})


def test_a_slave_whose_stream_has_ended_has_a_moment_to_come_by_another() -> None:
    master = Master().beating_until(600, ONE)
    assert master.gone(1).push is None
    assert master.at(1_099).states() == {"slave-1": State.LIVE}
    assert master.at(1_100).states() == {"slave-1": State.SUSPECT}
    master.beat(ONE, link=2)
    master.gone(2)
    master.beat(ONE, link=3)
    assert master.at(2_000).states() == {"slave-1": State.LIVE}


def test_streams_that_end_as_a_master_wakes_up_are_not_held_against_slaves() -> None:
    master = Master().beating_until(6_000, ONE)
    master.now_us = 60_000_000
    master.gone(1)
    assert master.at(60_300).states() == {"slave-1": State.LIVE}
    assert master.at(61_000).states() == {"slave-1": State.SUSPECT}


def test_the_end_of_an_earlier_stream_says_nothing_about_the_present_one() -> None:
    master = Master()
    master.beat(ONE, link=1)
    master.beat(ONE, link=2)
    assert master.gone(1).push is None
    assert master.states() == {"slave-1": State.LIVE}


def test_a_draining_slave_is_forgotten_with_its_stream() -> None:
    master = Master().beating_until(600, ONE)
    master.beat(ONE, draining=True)
    assert master.states() == {"slave-1": State.DRAINING}
    master.gone(1)
    assert master.states() == {}


def test_a_slave_that_says_it_cannot_work_is_suspect_while_it_says_so() -> None:
    master = Master().beating_until(600, ONE)
    master.beat(ONE, failing="its threads are stuck")
    assert master.registry.snapshot().entries[0].reason == "its threads are stuck"
    assert master.states() == {"slave-1": State.SUSPECT}
    master.beat(ONE)
    assert master.states() == {"slave-1": State.LIVE}


def test_a_restarted_slave_replaces_itself() -> None:
    master = Master().beating_until(600, ONE)
    again = replace(ONE, incarnation=12, started_us=500_000, address="h:9")
    assert not master.beat(again, link=5).replaced
    (entry,) = master.registry.snapshot().entries
    assert (entry.slave, entry.state) == (again, State.LIVE)
    assert master.gone(1).push is None, "the stream of the earlier run"


def test_of_two_live_processes_of_a_name_the_later_wins_whoever_beats_last() -> None:
    master = Master()
    later = replace(ONE, incarnation=12, started_us=500_000)
    master.beat(ONE, link=1)
    master.beat(later, link=2)
    assert master.at(100).beat(ONE, link=1).replaced
    assert master.registry.snapshot().entries[0].slave == later
    assert not master.beat(later, link=2).replaced


def test_an_earlier_process_takes_over_from_one_that_is_not_live() -> None:
    """So that a host whose clock is behind can take the place of one that is gone."""
    master = Master()
    later = replace(ONE, incarnation=12, started_us=500_000)
    master.beat(later, link=2)
    master.gone(2)
    master.at(500)
    assert not master.beat(ONE, link=1).replaced
    assert master.states() == {"slave-1": State.LIVE}


def test_a_new_master_is_settling_until_every_slave_had_time_to_beat() -> None:
    master = Master()
    assert master.at(4_999).registry.snapshot().settling
    settled = master.at(5_000).registry.snapshot()
    assert (settled.settling, settled.entries) == (False, ())
    assert master.pushed == [settled]


def test_a_master_that_stood_still_does_not_blame_the_slaves() -> None:
    master = Master().beating_until(9_000, ONE, TWO)
    master.now_us = 60_000_000  # no tick came: the process was stopped
    assert master.take(master.registry.tick(master.now_us)).push is None
    assert master.states() == {"slave-1": State.LIVE, "slave-2": State.LIVE}
    master.beat(ONE)
    master.beating_until(61_000, ONE)
    assert master.states() == {"slave-1": State.LIVE, "slave-2": State.SUSPECT}


def test_loads_are_told_without_a_new_version() -> None:
    master = Master()
    master.beat(ONE)
    version = master.registry.snapshot().version
    assert master.registry.beat(Beat(1, ONE, running=3), 1_000).push is None
    assert (master.registry.snapshot().version, master.registry.snapshot().entries[0].running) == (version, 3)
