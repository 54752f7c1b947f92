"""Reads that arrive while a turn's writes are on their way to the disk."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from f1common.errors import Code, F1Error, InvariantViolation
from spanstore.engine.base import EngineFailed
from spanstore.group.group import Group
from spanstore.group.members import Step
from spanstore.group.requests import (
    Answer,
    ChangeMembers,
    CommitReply,
    MembersReply,
    RangeRead,
    Read,
    ReadReply,
    Request,
)
from spanstore.group.state import Done, MembersChanged
from spanstore.paxos.messages import NO_BALLOT, Accept, Ballot
from spanstore.testing.replicas import EPOCH, FAST, MS
from tests.unit.runtime.bench import Bench, run, write


@asynccontextmanager
async def syncing(bench: Bench, us: int = 10 * MS) -> AsyncIterator[None]:
    """A turn whose sync takes as long as the body."""
    gate = bench.engine.gate = asyncio.Event()
    bench.log.clear()
    bench.clock.advance(us)
    turn = asyncio.create_task(bench.server.turn())
    while "sync begins" not in bench.log:
        if turn.done():  # it had nothing to write
            bench.clock.advance(us)
            turn = asyncio.create_task(bench.server.turn())
        await asyncio.sleep(0)
    yield
    assert "synced" not in bench.log
    bench.engine.gate = None
    gate.set()
    await turn


async def ask(bench: Bench, group: int, request: Request) -> list[Answer]:
    """Ask, and let the server do what it can before the sync has ended."""
    answers = bench.ask(group, request)
    for _ in range(10):
        bench.clock.advance(MS // 10)
        await asyncio.sleep(0)
    return answers


def value_in(answers: list[Answer]) -> bytes | None:
    (answer,) = answers
    assert isinstance(answer, ReadReply), answer
    (version,) = answer.versions
    return None if version is None else version.value


async def with_rows(bench: Bench) -> None:
    await bench.turns(10)
    for group, key in ((1, b"a"), (2, b"n")):
        written = bench.ask(group, write(key, f"before {group}"))
        await bench.turns(5)
        assert isinstance(written[0], CommitReply)


def test_they_are_answered_before_the_sync_has_ended() -> None:
    async def main(bench: Bench) -> None:
        await with_rows(bench)
        bench.ask(1, write(b"b"))
        async with syncing(bench):
            assert value_in(await ask(bench, 1, Read(0, (b"a",)))) == b"v"
            assert value_in(await ask(bench, 2, Read(0, (b"n",)))) == b"v"
            assert value_in(await ask(bench, 1, Read(0, (b"c",)))) is None

    run(main)


def test_what_is_being_written_is_waited_for() -> None:
    """Its commit timestamp is below that of the read, its locks are held: the read sees it, or does not answer."""

    async def main(bench: Bench) -> None:
        await with_rows(bench)
        written = bench.ask(1, write(b"b"))
        for _ in range(4):
            async with syncing(bench):
                point = await ask(bench, 1, Read(0, (b"b",)))
                scan = await ask(bench, 1, Read(0, (), (RangeRead(b"a", b"c"),)))
                apart = await ask(bench, 1, Read(0, (b"a", b"b"), apart=True))
                assert not point and not scan
                (answer,) = apart
                assert isinstance(answer, ReadReply) and answer.left_out == (1,)
                assert [v.value for v in answer.versions if v is not None] == [b"v"]
            if isinstance(next(iter(written), None), CommitReply):
                break
        await bench.turns(3)
        assert value_in(point) == b"v"
        (answer,) = scan
        assert isinstance(answer, ReadReply)
        assert [key for key, _ in answer.ranges[0].rows] == [b"a", b"b"]

    run(main)


def test_a_read_that_waits_in_a_group_with_nothing_else_to_do_is_looked_at_again() -> None:
    async def main(bench: Bench) -> None:
        await with_rows(bench)
        bench.ask(1, write(b"b"))
        async with syncing(bench):
            ahead = bench.clock.sample().tt.latest + 100 * MS
            late = await ask(bench, 2, Read(ahead, (b"n",)))
            assert not late
        for _ in range(30):
            await bench.turns(1, us=5 * MS)
        assert value_in(late) == b"v"

    run(main)


def test_reads_wait_while_the_members_change() -> None:
    async def main(bench: Bench) -> None:
        await with_rows(bench)
        changed = bench.ask(1, ChangeMembers(Step.ADD, "b", home="home of b"))
        waiting = []
        for _ in range(5):
            async with syncing(bench):
                applying = any(isinstance(done.command, MembersChanged) for done in _done(bench, 1))
                waiting.append(await ask(bench, 1, Read(0, (b"a",))))
                assert not (applying and waiting[-1])
                assert await ask(bench, 2, Read(0, (b"n",)))
            if applying:
                break
        assert applying
        await bench.turns(3)
        assert isinstance(changed[0], MembersReply)
        assert all(value_in(answers) == b"v" for answers in waiting)

    run(main)


def _done(bench: Bench, group: int) -> list[Done]:
    return bench.server.groups[group]._done


def test_a_replica_that_does_not_lead_sends_clients_elsewhere_as_ever() -> None:
    async def main(bench: Bench) -> None:
        await bench.turns(60)
        bench.ask(1, write(b"b"))
        asked = bench.ask(1, Read(0, (b"a",)))
        await bench.turns(2)
        (answer,) = asked
        assert isinstance(answer, F1Error) and answer.code is Code.NOT_LEADER

    run(main, Bench(voters=("a", "b", "c")))


def test_a_turn_goes_on_when_the_disk_is_ready_however_many_reads_wait() -> None:
    async def main(bench: Bench) -> None:
        await with_rows(bench)
        bench.ask(1, write(b"b"))
        asked = []
        async with syncing(bench):
            asked = [bench.ask(1, Read(0, (b"a",))) for _ in range(99)]
            for _ in range(2):
                await asyncio.sleep(0)
                bench.clock.advance(1)
            done = [bool(answers) for answers in asked].count(True)
            assert 0 < done < 99
        await bench.turns(5)
        assert all(value_in(answers) == b"v" for answers in asked)

    run(main)


def test_a_failed_sync_says_what_failed_however_many_reads_wait() -> None:
    """Whoever reads meanwhile finds an engine that has failed before; what is wrong with the disk says the commit."""

    async def main(bench: Bench) -> None:
        await with_rows(bench)
        for _ in range(200):
            bench.ask(1, Read(0, (b"a",)))
        bench.ask(1, write(b"b"))
        bench.engine.fail_next_commit(Code.DISK_FULL)
        feeder = asyncio.create_task(_keep_asking(bench))
        with pytest.raises(EngineFailed) as caught:
            await bench.server.run()
        feeder.cancel()
        assert caught.value.code is Code.DISK_FULL

    run(main)


async def _keep_asking(bench: Bench) -> None:
    while True:
        bench.ask(1, Read(0, (b"a",)))
        await asyncio.sleep(0)


def test_reads_that_are_put_aside_fill_the_inbox_as_before() -> None:
    """However long the disk takes: nobody's memory grows by what clients send meanwhile."""

    async def main(bench: Bench) -> None:
        await bench.turns(2)
        asked = []
        accept = Accept(Ballot(9, "b"), 0, NO_BALLOT, (), 0, EPOCH, 1, FAST.lease_us, 0, 0, 0)
        bench.server.receive(1, "b", "a", accept, 10)
        async with syncing(bench):
            for _ in range(5):
                asked += [bench.ask(1, Read(0, (b"a",))) for _ in range(bench.inbox)]
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            answers = [answer for answers in asked for answer in answers]
            assert len(answers) == 4 * bench.inbox
            assert all(isinstance(answer, F1Error) and answer.code is Code.OVERLOADED for answer in answers)
        await bench.turns(2)
        assert all(len(answers) == 1 for answers in asked)

    run(main, Bench(voters=("a", "b", "c")))


def test_a_defect_that_a_read_meets_ends_the_server_as_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise InvariantViolation("the view is torn")

    async def main(bench: Bench) -> None:
        await with_rows(bench)
        bench.ask(1, write(b"b"))
        with pytest.raises(InvariantViolation, match="torn"):
            async with syncing(bench):
                monkeypatch.setattr(Group, "begin_beside", broken)
                await ask(bench, 1, Read(0, (b"a",)))

    run(main)
