"""Clocks that are compared: true bounds never disagree, false ones are found, and a majority says whose it is."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from f1common.clock import Now, TTInterval
from spanstore.runtime.clockwatch import ClockWatch
from tests.amounts import examples

SECOND = 1_000_000
EPOCH = 1_700_000_000 * SECOND
DRIFT_PPM = 10_000


@dataclass
class Node:
    """One server over true time: its boot clock drifts, its wall clock is wrong by ``error_us`` of ``bound_us``."""

    name: str
    watch: ClockWatch
    boot_base_us: int = 0
    drift_ppm: int = 0
    error_us: int = 0
    bound_us: int = 0
    frozen_at_us: int | None = None
    incarnation: int = 1

    def now(self, true_us: int) -> Now:
        seen = true_us if self.frozen_at_us is None else self.frozen_at_us
        boot = self.boot_base_us + seen + seen * self.drift_ppm // SECOND
        middle = EPOCH + true_us + self.error_us
        return Now(boot, TTInterval(middle - self.bound_us, middle + self.bound_us))


@dataclass
class Cluster:
    """Servers that tell each other the time; a report takes ``delay_us``."""

    count: int = 3
    delay_us: int = 300
    true_us: int = 5 * SECOND
    nodes: list[Node] = field(default_factory=list)

    def __post_init__(self) -> None:
        names = tuple("abcde"[: self.count])
        for i, name in enumerate(names):
            peers = tuple(other for other in names if other != name)
            watch = ClockWatch(peers, drift_ppm=DRIFT_PPM, settle_us=5 * SECOND)
            self.nodes.append(Node(name, watch, boot_base_us=i * 777 * SECOND))

    def run(self, seconds: float) -> None:
        end = self.true_us + int(seconds * SECOND)
        while self.true_us < end:
            reports = [
                (node.name, peer, node.watch.report(peer.name, node.incarnation, node.now(self.true_us)))
                for node in self.nodes
                for peer in self.nodes
                if peer is not node
            ]
            self.true_us += self.delay_us
            for sender, peer, report in reports:
                peer.watch.heard(sender, report, peer.now(self.true_us))
            self.true_us += SECOND // 4

    def verdicts(self) -> list[str]:
        return [node.watch.judge(node.now(self.true_us)) for node in self.nodes]

    def disagreements(self) -> list[list[str]]:
        return [node.watch.disagreements(node.now(self.true_us)) for node in self.nodes]


@settings(max_examples=examples(60))
@given(st.data())
def test_true_bounds_never_disagree(data: st.DataObject) -> None:
    cluster = Cluster(data.draw(st.sampled_from((3, 5))), data.draw(st.sampled_from((10, 3_000, 400_000))))
    for node in cluster.nodes:
        node.bound_us = data.draw(st.sampled_from((0, 500, 50_000)))
        node.error_us = data.draw(st.integers(-node.bound_us, node.bound_us))
        node.drift_ppm = data.draw(st.integers(-DRIFT_PPM, DRIFT_PPM))
    cluster.run(45)
    assert not any(cluster.disagreements()) and not any(cluster.verdicts())


def test_a_clock_that_jumps_an_hour_is_the_one_that_is_wrong() -> None:
    for error_us in (3_600 * SECOND, -3_600 * SECOND, 40_000, -40_000):
        cluster = Cluster()
        cluster.run(2)
        cluster.nodes[1].error_us = error_us
        cluster.run(1)
        verdicts = cluster.verdicts()
        assert [bool(verdict) for verdict in verdicts] == [False, True, False]
        assert "a is" in verdicts[1] and "c is" in verdicts[1]
        assert ("behind" if error_us > 0 else "ahead") in verdicts[1]
        # The others say so too, and lead on.
        assert [len(found) for found in cluster.disagreements()] == [1, 2, 1]
        cluster.nodes[1].error_us = 0
        cluster.run(2)
        assert cluster.verdicts()[1], "it leads again only after a while"
        cluster.run(5)
        assert not any(cluster.verdicts()) and not any(cluster.disagreements())


def test_a_clock_that_stops_is_found_as_it_falls_behind() -> None:
    cluster = Cluster()
    cluster.run(2)
    stopped = cluster.true_us
    for _ in range(8):
        cluster.nodes[0].error_us = stopped - cluster.true_us
        cluster.run(0.25)
    assert [bool(verdict) for verdict in cluster.verdicts()] == [True, False, False]


def test_two_servers_cannot_tell_whose_clock_is_wrong() -> None:
    cluster = Cluster()
    cluster.nodes[0].error_us = 3_600 * SECOND
    cluster.nodes = cluster.nodes[:2]  # the third is dead
    cluster.run(3)
    assert not any(cluster.verdicts())
    assert all(len(found) == 1 for found in cluster.disagreements())


def test_witnesses_that_fell_silent_say_nothing() -> None:
    cluster = Cluster()
    cluster.nodes[0].error_us = 3_600 * SECOND
    cluster.run(3)
    assert cluster.verdicts()[0]
    cluster.true_us += 20 * SECOND
    assert not cluster.verdicts()[0] and not any(cluster.disagreements())


def test_a_boot_clock_that_drifts_or_stands_still_is_reported_by_all() -> None:
    for drift_ppm, frozen in ((40_000, False), (-40_000, False), (0, True)):
        cluster = Cluster()
        cluster.run(2)
        node = cluster.nodes[2]
        before = node.now(cluster.true_us).boot_us
        node.drift_ppm = drift_ppm
        node.boot_base_us += before - node.now(cluster.true_us).boot_us
        node.frozen_at_us = cluster.true_us if frozen else None
        cluster.run(100)
        verdicts = cluster.verdicts()
        assert not verdicts[0] and not verdicts[1] and "boot clock" in verdicts[2]
        assert all("boot clock of c" in found[0] for found in cluster.disagreements()[:2])


def test_a_boot_clock_that_starts_anew_with_its_process_is_no_drift() -> None:
    cluster = Cluster()
    cluster.run(60)
    node = cluster.nodes[1]
    node.boot_base_us -= 700 * SECOND
    node.incarnation = 2
    node.watch = ClockWatch(("a", "c"), drift_ppm=DRIFT_PPM, settle_us=5 * SECOND)
    cluster.run(60)
    assert not any(cluster.disagreements())
