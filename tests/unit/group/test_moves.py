"""A range given up by one group and taken in by another, step by step, with what may come between."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from f1common.errors import Code
from spanstore.engine import keyspace
from spanstore.engine.base import WriteBatch
from spanstore.group.config import GroupConfig
from spanstore.group.move_requests import (
    Abandon,
    BeginMove,
    Cede,
    Clear,
    Export,
    ExportReply,
    MoveReply,
    Own,
    Stage,
    checksum_of,
)
from spanstore.group.requests import Bundle, BundleReply, Decide, Outcome, Read
from spanstore.mvcc.versions import put_version
from spanstore.placement.copying import after_piece, begin_last, caught_up, wanted
from spanstore.testing.mutations.moves import BY_HAND
from spanstore.testing.replicas import EPOCH, FAST, GROUP, Replicas
from spanstore.txn.commands import CopyStage, Progress
from tests.unit.group.kit import code, commit, committed, decided, far, held, lock, prepare, prepared, put, ref, value

LOW, HIGH = b"k", b"p"
MOVE = 4


@contextmanager
def old_group() -> Iterator[Replicas]:
    with Replicas(config=GroupConfig(paxos=FAST), owned=((b"", b"z"),)) as world:
        world.lead("a")
        yield world


@contextmanager
def new_group() -> Iterator[Replicas]:
    with Replicas(config=GroupConfig(paxos=FAST), owned=((b"", LOW), (HIGH, b"z"))) as world:
        world.lead("a")
        yield world


def cede(world: Replicas, move: int = MOVE) -> MoveReply:
    answer = world.get("a", Cede(move, LOW, HIGH, 2), within_us=5_000_000)
    assert isinstance(answer, MoveReply), answer
    return answer


def stand(world: Replicas, request: BeginMove | Stage | Own | Clear | Abandon) -> MoveReply:
    answer = world.get("a", request)
    assert isinstance(answer, MoveReply), answer
    return answer


def export(world: Replicas, progress: Progress, ceded_ts: int = 0) -> ExportReply:
    want = wanted(progress, ceded_ts)
    answer = world.get("a", Export(MOVE, LOW, HIGH, want.stage, want.resume, want.since_ts, want.timestamp))
    assert isinstance(answer, ExportReply), answer
    return answer


def ship(old: Replicas, new: Replicas, seq: int, progress: Progress, ceded_ts: int = 0) -> Progress:
    """Ship one piece and return where the new group stands."""
    piece = export(old, progress, ceded_ts)
    after = after_piece(progress, piece.timestamp, len(piece.items), piece.resume, piece.done)
    reply = stand(new, Stage(MOVE, seq, after, piece.items, piece.checksum))
    assert reply.incoming is not None and reply.incoming.progress == after
    return after


def move(old: Replicas, new: Replicas) -> int:
    """Move the range, all of it, and return its floor."""
    stand(new, BeginMove(MOVE, LOW, HIGH, GROUP))
    seq, progress = 0, Progress()
    while progress.stage is CopyStage.CLEARING:
        seq += 1
        reply = stand(new, Stage(MOVE, seq, progress, clear=True))
        assert reply.incoming is not None
        progress = reply.incoming.progress
    while not caught_up(progress):
        seq += 1
        progress = ship(old, new, seq, progress)
    ceded = cede(old).ceded
    assert ceded is not None
    seq += 1
    progress = begin_last(progress)
    stand(new, Stage(MOVE, seq, progress))
    while progress.stage is not CopyStage.READY:
        seq += 1
        progress = ship(old, new, seq, progress, ceded.earliest_ts)
    assert stand(new, Own(MOVE, ceded.last_ts)).closed == MOVE
    return ceded.last_ts


def test_rows_versions_and_outcomes_move_and_the_old_group_names_the_heir() -> None:
    with old_group() as old, new_group() as new:
        first = put(old, "a", "t1", {b"l": b"1", b"m": b"1"})
        put(old, "a", "t2", {b"l": b"2", b"m": None})
        put(old, "a", "t3", {b"q": b"x"})
        move(old, new)
        refused = old.get("a", Read(0, (b"l",)))
        assert code(refused) is Code.WRONG_RANGE and refused.details["heir"] == "2"  # type: ignore[union-attr]
        new.time = old.time
        assert value(new, "a", b"l") == b"2" and value(new, "a", b"m") is None
        assert value(new, "a", b"l", first) == b"1" and value(new, "a", b"m", first) == b"1"
        new.until(lambda: new.members["b"].live.state.applied.index == new.members["a"].live.state.applied.index)
        assert value(new, "b", b"m", first) == b"1"
        assert value(old, "a", b"q") == b"x"


def test_outcomes_are_known_to_the_heir_and_nobody_decides_them_again() -> None:
    with old_group() as old, new_group() as new:
        done, never = ref("t1", anchor=b"l"), ref("t2", anchor=b"m")
        ts = committed(old.get("a", commit(done, {b"l": b"1"})))
        assert decided(old.get("a", Outcome(never))) == (False, 0)
        move(old, new)
        new.time = max(new.time, old.time)
        assert decided(new.get("a", Outcome(done))) == (True, ts)
        assert code(new.get("a", commit(never, {b"m": b"late"}))) is Code.ABORTED
        assert code(old.get("a", Outcome(done))) is Code.WRONG_RANGE


def test_a_prepared_transaction_is_waited_for_and_an_unprepared_one_is_wounded() -> None:
    with old_group() as old:
        prepared_ts = prepared(old.get("a", prepare(far("t1"), {b"l": b"1"})))
        reading = old.get("a", lock(ref("t2", anchor=b"b"), b"m"))
        asked = old.ask("a", Cede(MOVE, LOW, HIGH, 2), timeout_us=60_000_000)
        old.run(300_000)
        assert not asked.done
        assert code(old.get("a", commit(ref("t3", anchor=b"n"), {b"n": b"x"}))) is Code.WRONG_RANGE
        assert value(old, "a", b"m") is None, "reads go on"
        term = reading.term  # type: ignore[union-attr]
        late = commit(ref("t2", anchor=b"b"), {b"b": b"x"}, locks=held(b"m"), term=term)
        assert code(old.get("a", late)) is Code.ABORTED
        old.get("a", Decide(far("t1"), prepared_ts + 10))
        old.until(lambda: asked.done)
        reply = asked.of(MoveReply)
        assert reply.ceded is not None and reply.ceded.last_ts >= prepared_ts + 10


def test_a_bundle_that_waits_is_turned_away_if_its_range_is_given_up_meanwhile() -> None:
    """While the entry before it is on its way, so is the range: nothing is logged for what nobody owns any more."""
    with old_group() as old:
        old.isolate("a")
        first = old.ask("a", Bundle((commit(ref("t1", anchor=b"b"), {b"b": b"1"}).work,)))
        old.turn("a")
        waiting = old.ask("a", Bundle((commit(ref("t2", anchor=b"l"), {b"l": b"2"}).work,)))
        asked = old.ask("a", Cede(MOVE, LOW, HIGH, 2), timeout_us=60_000_000)
        old.turn("a")
        old.heal()
        old.until(lambda: asked.done and waiting.done and first.done)
        assert asked.of(MoveReply).ceded is not None
        assert code(waiting.answer) is Code.WRONG_RANGE
        assert first.of(BundleReply).ts
        assert code(old.get("a", Bundle((commit(ref("t3", anchor=b"l"), {b"l": b"3"}).work,)))) is Code.WRONG_RANGE


def test_a_range_that_cannot_be_given_up_in_time_opens_again() -> None:
    with old_group() as old:
        prepared(old.get("a", prepare(far("t1"), {b"l": b"1"})))
        assert code(old.get("a", Cede(MOVE, LOW, HIGH, 2), within_us=10_000_000)) is Code.ABORTED
        committed(old.get("a", commit(ref("t3", anchor=b"n"), {b"n": b"x"})))


def test_ceding_is_done_once_whoever_asks_and_never_for_a_move_that_was_abandoned() -> None:
    with old_group() as old:
        first = cede(old)
        assert first.ceded is not None
        assert cede(old) == first
        assert stand(old, Abandon(MOVE)).ceded == first.ceded
    with old_group() as old:
        assert stand(old, Abandon(MOVE)).ceded is None
        assert cede(old).ceded is None
        assert value(old, "a", b"l") is None


def test_a_new_leader_of_the_old_group_knows_what_was_given_up() -> None:
    with old_group() as old:
        first = cede(old)
        old.crash("a")
        old.until(lambda: old.leader() not in (None, "a"), within_us=10_000_000)
        leader = old.leader()
        assert leader is not None
        again = old.get(leader, Cede(MOVE, LOW, HIGH, 2))
        assert isinstance(again, MoveReply) and again.ceded == first.ceded
        assert code(old.get(leader, Read(0, (b"l",)))) is Code.WRONG_RANGE


def test_leftovers_of_an_earlier_move_are_removed_before_anything_is_received() -> None:
    with old_group() as old, new_group() as new:
        _leave_behind(new)
        put(old, "a", "t1", {b"m": b"1"})
        move(old, new)
        new.time = max(new.time, old.time)
        assert value(new, "a", b"l") is None and value(new, "a", b"m") == b"1"


def test_leftovers_that_are_not_removed_come_back() -> None:
    """What the step before is for."""
    with BY_HAND["leftovers_kept"](), old_group() as old, new_group() as new:
        _leave_behind(new)
        move(old, new)
        new.time = max(new.time, old.time)
        assert value(new, "a", b"l") == b"ghost"


def _leave_behind(world: Replicas) -> None:
    for name in world.names:
        batch = WriteBatch()
        put_version(batch, GROUP, b"l", EPOCH - 1000, b"ghost")
        world._runner.run(world.members[name].engine.commit(batch))
        with world.members[name].engine.snapshot() as reader:
            assert list(reader.scan(*keyspace.data_range(GROUP)))


@pytest.mark.parametrize("crash", [False, True])
def test_the_new_owner_stays_above_what_the_old_one_promised(crash: bool) -> None:
    assert _gap(crash) > 0


def test_without_the_floor_it_does_not() -> None:
    with BY_HAND["floor_left_where_it_was"]():
        assert _gap(False) <= 0


def _gap(crash: bool) -> int:
    """Return by how much a first commit lies above a floor that is ahead of the new owner's clock."""
    with new_group() as new:
        stand(new, BeginMove(MOVE, LOW, HIGH, GROUP))
        reply = stand(new, Stage(MOVE, 1, Progress(CopyStage.READY), clear=True))
        assert reply.incoming is not None
        stand(new, Stage(MOVE, 2, Progress(CopyStage.READY)))
        floor = EPOCH + new.time + 200_000
        stand(new, Own(MOVE, floor))
        leader = "a"
        if crash:
            new.crash("a")
            new.until(lambda: new.leader() not in (None, "a"), within_us=10_000_000)
            leader = new.leader() or ""
        return committed(new.get(leader, commit(ref("t9", anchor=b"l"), {b"l": b"1"}), within_us=10_000_000)) - floor


def test_pieces_that_come_twice_late_or_damaged_change_nothing() -> None:
    with new_group() as new:
        stand(new, BeginMove(MOVE, LOW, HIGH, GROUP))
        stand(new, Stage(MOVE, 1, Progress(), clear=True))
        batch = WriteBatch()
        put_version(batch, GROUP, b"l", EPOCH, b"1")
        _, key, data = batch.ops[0]
        items = ((key[3:], data),)
        ahead = stand(new, Stage(MOVE, 2, Progress(CopyStage.ROWS, rows=1), items, checksum_of(items)))
        assert ahead.incoming is not None and ahead.incoming.seq == 2
        assert stand(new, Stage(MOVE, 2, Progress(CopyStage.READY), items, checksum_of(items))) == ahead
        assert code(new.get("a", Stage(MOVE, 3, Progress(), items, 1))) is Code.DATA_CORRUPTION
        bent = ((key[3:], data[:-1] + b"x"),)
        assert code(new.get("a", Stage(MOVE, 3, Progress(), bent, checksum_of(bent)))) is Code.DATA_CORRUPTION
        assert new.members["a"].live.damage is None  # what came was damaged, not what is here
        foreign = ((b"q" + key[4:], data),)
        assert code(new.get("a", Stage(MOVE, 3, Progress(), foreign, checksum_of(foreign)))) is Code.INVALID_ARGUMENT
        assert code(new.get("a", Read(0, (b"l",)))) is Code.WRONG_RANGE
        assert stand(new, Abandon(MOVE)).incoming is None
        assert stand(new, Stage(MOVE, 3, Progress(CopyStage.READY), items, checksum_of(items))).incoming is None
        assert stand(new, BeginMove(MOVE, LOW, HIGH, GROUP)).incoming is None
        assert stand(new, Own(MOVE, EPOCH)).closed == MOVE
        assert code(new.get("a", Read(0, (b"l",)))) is Code.WRONG_RANGE
        while not stand(new, Clear(MOVE, LOW, HIGH)).done:
            pass
        with new.members["a"].engine.snapshot() as reader:
            assert not list(reader.scan(*keyspace.data_range(GROUP)))


def test_what_a_group_owns_is_neither_received_nor_removed() -> None:
    with old_group() as old:
        assert code(old.get("a", BeginMove(MOVE, LOW, HIGH, 2))) is Code.FAILED_PRECONDITION
        assert code(old.get("a", Clear(MOVE, LOW, HIGH))) is Code.FAILED_PRECONDITION
        assert code(old.get("a", Export(MOVE, LOW, HIGH, CopyStage.LAST_ROWS))) is Code.FAILED_PRECONDITION
        assert code(old.get("a", BeginMove(MOVE, HIGH, LOW, 2))) is Code.INVALID_ARGUMENT
    with new_group() as new:
        assert code(new.get("a", Cede(MOVE, LOW, HIGH, 2))) is Code.WRONG_RANGE
