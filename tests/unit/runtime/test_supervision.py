"""Room and speed of the disk, a clock that is not vouched for, and who may lead then."""

from hypothesis import given
from hypothesis import strategies as st

from f1common.clock import AdjtimexReading, HoldoverClock, KernelClock, ManualClock, boot_us
from f1common.errors import Code, F1Error
from spanstore.engine.base import Space
from spanstore.engine.memory import MemoryEngine
from spanstore.group.requests import Bundle, Commit, Decide, Prepare, Read, TxnWork
from spanstore.paxos.messages import NO_BALLOT, Accept, Ballot, LogEntry
from spanstore.runtime.clockwatch import ClockReport
from spanstore.runtime.diskwatch import DiskWatch, Room
from spanstore.runtime.supervision import ServerReport, Supervision
from spanstore.txn.commands import TxnRef, Write

SECOND = 1_000_000
MIB = 1 << 20


def watch(engine: MemoryEngine, clock: ManualClock | HoldoverClock) -> Supervision:
    return Supervision(engine=engine, clock=clock, drift_ppm=10_000, settle_us=5 * SECOND, slow_sync_us=SECOND)


def peer(clock: ManualClock, *, unfit: bool = False, full: bool = False) -> ServerReport:
    now = clock.sample()
    return ServerReport(ClockReport(1, now.boot_us, now.tt.earliest, now.tt.latest, 0, 0), unfit, full)


@given(st.lists(st.integers(0, 400), min_size=1, max_size=30))
def test_room_has_three_states_and_does_not_flutter(rooms: list[int]) -> None:
    disk = DiskWatch(SECOND)
    for room in rooms:
        before = disk.room
        disk.measured(Space(room * MIB, 100 * MIB))
        if room >= 125:
            assert disk.room is Room.ENOUGH
        elif room >= 100:
            assert disk.room is (Room.ENOUGH if before is Room.ENOUGH else Room.LOW)
        elif room < 50:
            assert disk.room is Room.FULL
        assert disk.turn_bytes(16 * MIB) <= max(room * MIB // 16, 64 << 10)


def test_one_long_sync_is_none_and_many_are_a_slow_disk() -> None:
    disk = DiskWatch(SECOND)
    disk.synced(0, 3 * SECOND)
    assert not disk.slow(4 * SECOND)
    disk.synced(4 * SECOND, 6 * SECOND)
    assert disk.slow(6 * SECOND) and "slow" in disk.text(6 * SECOND)
    assert not disk.slow(15 * SECOND)
    assert disk.slow(40 * SECOND, since_us=30 * SECOND)  # a sync that does not come back
    assert not disk.slow(31 * SECOND, since_us=30 * SECOND)


def test_a_server_without_room_leads_only_where_nobody_has_any() -> None:
    clock, engine = ManualClock(boot_us=SECOND), MemoryEngine()
    engine.space_left = Space(10 * MIB, 64 * MIB)
    server = watch(engine, clock)
    server.look(("b", "c"))
    assert server.unfit and "DISK_FULL" in server.conditions()[0]
    assert server.may_lead(("a", "b", "c"), "a"), "nobody else was heard of"
    server.heard("b", peer(clock))
    assert not server.may_lead(("a", "b", "c"), "a")
    assert server.may_lead(("a", "c"), "a")
    server.heard("b", peer(clock, unfit=True))
    assert server.may_lead(("a", "b", "c"), "a")
    engine.space_left = Space(500 * MIB, 64 * MIB)
    server.heard("b", peer(clock))
    server.look(("b", "c"))
    assert server.may_lead(("a", "b", "c"), "a") and not server.conditions()
    clock.advance(30 * SECOND)
    engine.space_left = Space(0, 64 * MIB)
    server.look(("b", "c"))
    assert server.may_lead(("a", "b", "c"), "a"), "b is silent"


def work(*values: bytes | None) -> TxnWork:
    return TxnWork(TxnRef(b"k", b"t", 1, 1), 1, tuple(Write(b"k%d" % i, v) for i, v in enumerate(values)))


def test_what_adds_data_is_refused_before_anything_is_done_and_the_rest_is_not() -> None:
    engine = MemoryEngine()
    server = watch(engine, ManualClock(boot_us=SECOND))
    adds, removes = Commit(work(b"v", None)), Commit(work(None))
    both, gone = Bundle((work(None), work(b"v"))), Bundle((work(None),))
    prepared, decision = Prepare(work(b"v"), 1), Commit(work(b"v"), ((2, 7),))
    always = (Read(1, (b"k",)), Decide(TxnRef(b"k", b"t", 1, 1), 5), decision)
    for room, refused in ((100, ()), (60, (adds, prepared, both)), (10, (adds, prepared, removes, both, gone))):
        engine.space_left = Space(room * MIB, 64 * MIB)
        server.look(("b", "c"))
        for request in (adds, removes, prepared, both, gone, *always):
            assert bool(server.refuses(request)) == (request in refused)


def test_a_full_follower_takes_no_entries_but_of_a_leader_as_full_as_itself() -> None:
    clock, engine = ManualClock(boot_us=SECOND), MemoryEngine()
    server = watch(engine, clock)
    ballot = Ballot(1, "b")
    beat = Accept(ballot, 0, NO_BALLOT, (), 0, 0, 1, 1, 0, 0, 0)
    entries = Accept(ballot, 0, NO_BALLOT, (LogEntry(1, ballot, b"x"),), 0, 0, 1, 1, 0, 0, 0)
    engine.space_left = Space(10 * MIB, 64 * MIB)
    assert not server.drops("b", entries)
    server.look(("b", "c"))
    assert server.drops("b", entries) and not server.drops("b", beat)
    server.heard("b", peer(clock, full=True))
    assert not server.drops("b", entries)
    assert all(report.full and report.unfit for report in server.look(("b", "c")).values())


def test_a_kernel_that_stops_vouching_ends_leadership_and_not_the_server() -> None:
    readings: list[AdjtimexReading] = [(0, 0, 1_700_000_000 * SECOND, 2_000)]
    clock = HoldoverClock(KernelClock(lambda: readings[-1]), 10_000)
    server = watch(MemoryEngine(), clock)
    server.look(("b", "c"))
    good = clock.sample().tt
    assert not server.clock_fault and good.latest - good.earliest == 4_000
    readings.append((5, 0x40, 1_800_000_000 * SECOND, 16_000_000))
    began = boot_us()
    held = clock.sample().tt
    passed = boot_us() - began
    # Nothing of the unsynchronised time is believed; the bound grows with the time since the last good one.
    assert good.earliest - SECOND <= held.earliest <= good.latest + passed + SECOND
    assert held.latest - held.earliest > good.latest - good.earliest
    server.look(("b", "c"))
    assert "not synchronised" in server.clock_fault and "CLOCK_SKEW" in server.conditions()[0]
    assert not server.may_lead(("a", "b", "c"), "a")
    readings.append((0, 0, 1_700_000_100 * SECOND, 2_000))
    server.look(("b", "c"))
    assert server.clock_fault, "not before it has been right for a while"


def test_a_clock_that_never_worked_is_refused() -> None:
    try:
        HoldoverClock(ManualClock(), 1)
        KernelClock(lambda: (5, 0x40, 0, 0))
    except F1Error as error:
        assert error.code is Code.CLOCK_SKEW
    else:
        raise AssertionError("an unsynchronised clock was accepted")
