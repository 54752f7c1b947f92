"""The master's registry under random schedules, and what an f1server makes of its lists across restarts of masters.

Times are microseconds, counted in steps of 50 ms; suspect after a second, forgotten after five.
"""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from f1server.dist.view import PoolView, Slave, SlaveState, SlaveView
from master.registry import Beat, Effects, PoolList, Registry, RegistryConfig, SlaveIdentity, State
from tests.amounts import examples

STEP_US = 50_000
SUSPECT_US, DEAD_US = 1_000_000, 5_000_000
NAMES = ("s0", "s1", "s2")


@dataclass
class Life:
    """What the schedule has done to one slave name."""

    run: int = 1
    link: int = 0
    heard_us: int = -1
    gone_us: int = 1 << 60
    failing: bool = False
    draining: bool = False


@dataclass
class Master:
    """A registry, driven as its service drives it, beside a model that is too simple to be wrong."""

    registry: Registry = field(default_factory=lambda: Registry(1, 0, RegistryConfig(SUSPECT_US, DEAD_US)))
    now_us: int = 0
    links: int = 0
    pushed: list[PoolList] = field(default_factory=list)
    lives: dict[str, Life] = field(default_factory=lambda: {name: Life() for name in NAMES})

    def take(self, effects: Effects) -> None:
        if effects.push is not None:
            assert effects.push == self.registry.snapshot()
            assert not self.pushed or effects.push.version > self.pushed[-1].version
            self.pushed.append(effects.push)

    def sleep(self, steps: int) -> None:
        end = self.now_us + steps * STEP_US
        while (due := self.registry.next_us()) <= end:
            self.now_us = due
            self.take(self.registry.tick(due))
        self.now_us = end

    def beat(self, name: str, *, failing: bool = False, draining: bool = False) -> None:
        life = self.lives[name]
        if life.link == 0:
            self.links += 1
            life.link = self.links
        life.draining = life.draining or draining
        life.heard_us, life.gone_us, life.failing = self.now_us, 1 << 60, failing
        slave = SlaveIdentity(name, f"{name}:1", "a", life.run, started_us=life.run)
        beat = Beat(life.link, slave, draining=life.draining, failing="stuck" if failing else "")
        effects = self.registry.beat(beat, self.now_us)
        assert not effects.replaced
        self.take(effects)

    def end_stream(self, name: str) -> None:
        life = self.lives[name]
        if life.link:
            self.take(self.registry.gone(life.link, self.now_us))
            life.link, life.gone_us = 0, self.now_us
            if life.draining:
                self.lives[name] = Life(run=life.run)  # forgotten

    def restart(self, name: str) -> None:
        self.end_stream(name)
        life = self.lives[name]  # as the end of the stream left it
        self.lives[name] = Life(run=life.run + 1, heard_us=life.heard_us, gone_us=life.gone_us, failing=life.failing)

    def expected(self, name: str) -> State | None:
        life = self.lives[name]
        silence_us = self.now_us - life.heard_us
        if life.heard_us < 0 or silence_us >= DEAD_US:
            return None
        if life.draining:
            return State.DRAINING
        away = silence_us >= SUSPECT_US or self.now_us - life.gone_us >= SUSPECT_US // 2
        return State.SUSPECT if away or life.failing else State.LIVE

    def check(self) -> None:
        self.take(self.registry.tick(self.now_us))
        found = {entry.slave.name: entry.state for entry in self.registry.snapshot().entries}
        assert found == {name: state for name in NAMES if (state := self.expected(name)) is not None}


ACTIONS = st.one_of(
    st.tuples(st.just("sleep"), st.sampled_from((1, 3, 6, 12, 19, 20, 21, 50, 99, 101))),
    st.tuples(st.sampled_from(("beat", "failing", "draining", "end_stream", "restart")), st.sampled_from(NAMES)),
)


@settings(max_examples=examples(300))
@given(st.lists(ACTIONS, max_size=60))
def test_states_follow_from_what_was_last_heard(actions: list[tuple[str, int | str]]) -> None:
    master = Master()
    for action, subject in actions:
        if isinstance(subject, int):
            master.sleep(subject)
        elif action == "restart":
            master.restart(subject)
        elif action == "end_stream":
            master.end_stream(subject)
        else:
            master.beat(subject, failing=action == "failing", draining=action == "draining")
        master.check()
    for entry in master.registry.snapshot().entries:
        assert entry.since <= master.registry.snapshot().version


def view_of(epoch: int, pool: PoolList) -> list[SlaveView]:
    return [
        SlaveView(
            Slave(entry.slave.name, entry.slave.address, entry.slave.incarnation),
            SlaveState(entry.state.value),
            (epoch, entry.since),
        )
        for entry in pool.entries
    ]


@settings(max_examples=examples(100))
@given(
    st.lists(
        st.tuples(st.integers(10, 200), st.lists(st.integers(0, 90), min_size=3, max_size=3), st.booleans()),
        min_size=2,
        max_size=5,
    ),
    st.sampled_from((2, 6, 12)),
)
def test_slaves_that_live_are_never_missing_at_an_f1server(
    masters: list[tuple[int, list[int], bool]], period: int
) -> None:
    """Masters follow one another; each slave finds each new one within the grace, sooner or later than others do.

    Each master lives for some steps, which may be fewer than its grace, and the f1server may miss its first lists.
    """
    view = PoolView()
    now_us = 0
    known: set[str] = set()
    for number, (steps, delays, misses_first) in enumerate(masters, 1):
        registry = Registry(number, now_us, RegistryConfig(SUSPECT_US, DEAD_US))
        for step in range(steps):
            pushes = [registry.tick(now_us).push]
            for link, (name, delay) in enumerate(zip(NAMES, delays, strict=True)):
                if step >= delay and (step - delay) % period == 0:
                    slave = SlaveIdentity(name, name, "a", link + 1)
                    pushes.append(registry.beat(Beat(link, slave), now_us).push)
            keepalive = registry.snapshot() if step % 20 == 0 else None
            for pool in (*pushes, keepalive):
                if pool is not None and not (misses_first and step < 30):
                    view.take((number, pool.version), pool.settling, view_of(number, pool), now_us)
            live = {slave.name for slave in view.live(now_us)}
            assert known <= live
            known |= live
            now_us += STEP_US
