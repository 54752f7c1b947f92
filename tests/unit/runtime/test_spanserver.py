"""The driver of turns: what is sent before the sync and what after it, full inboxes, failing disks, ends."""

import asyncio

import pytest

from f1common.errors import Code, F1Error
from spanstore.engine.base import EngineFailed
from spanstore.group.group import Group
from spanstore.group.outbox import Ticket
from spanstore.group.requests import Answer, CommitReply, Read, ReadReply, Request, SafeTimeQuery, SafeTimeReply
from spanstore.paxos.messages import (
    NO_BALLOT,
    Accept,
    Accepted,
    Ballot,
    Message,
    Prepare,
    PreVote,
    PreVoteReply,
    Promise,
)
from spanstore.testing.replicas import EPOCH, FAST, MS
from tests.unit.runtime.bench import SOME, Bench, run, write


def test_groups_of_one_server_share_a_sync() -> None:
    async def main(bench: Bench) -> None:
        await bench.turns(10)
        first, second = bench.ask(1, write(b"a")), bench.ask(2, write(b"n"))
        bench.log.clear()
        await bench.turns(1)
        assert bench.log == ["sync begins", "synced"]
        await bench.turns(5)
        assert all(isinstance(answers[0], CommitReply) for answers in (first, second))
        found = bench.ask(2, Read(0, (b"n",)))
        await bench.turns(3)
        assert isinstance(found[0], ReadReply) and found[0].versions[0] is not None

    run(main)


def test_no_promise_leaves_before_its_sync_and_questions_do_not_wait_for_it() -> None:
    async def main(bench: Bench) -> None:
        for _ in range(200):
            await bench.turns(1)
            while bench.sent:
                group, to, message = bench.sent.pop(0)
                answer: Message | None = None
                match message:
                    case PreVote():
                        answer = PreVoteReply(message.ballot, True, message.ballot)
                    case Prepare():
                        answer = Promise(message.ballot, True, message.ballot, message.ballot, 0)
                    case Accept():
                        last = message.entries[-1].index if message.entries else message.prev_index
                        sent = message.sent_boot_us
                        answer = Accepted(message.ballot, message.ballot, True, last, 0, sent, message.ceiling)
                    case _:
                        pass
                if answer is not None:
                    bench.server.receive(group, to, "a", answer, 10)
        assert all(bench.server.groups[n].is_serving_leader() for n in (1, 2))
        # An election's question carries the own promise; the leader's entries promise nothing and overtake the disk.
        begins = bench.log.index("Prepare")
        assert bench.log[begins - 1] == "synced"
        bench.log.clear()
        bench.engine.gate = asyncio.Event()
        answers = bench.ask(1, write(b"a"))
        bench.clock.advance(10 * MS)
        turn = asyncio.create_task(bench.server.turn())
        await asyncio.sleep(0)
        assert "Accept" in bench.log and bench.log[-1] == "sync begins"
        assert not answers
        bench.engine.gate.set()
        await turn

    run(main, Bench(voters=("a", "b", "c")))


def test_acceptor_answers_after_the_sync() -> None:
    async def main(bench: Bench) -> None:
        await bench.turns(60)  # past the quarantine
        bench.log.clear()
        ballot = Ballot(9, "b")
        bench.server.receive(1, "b", "a", Prepare(ballot, 0, NO_BALLOT), 10)
        await bench.turns(1)
        assert bench.log.index("synced") < bench.log.index("Promise")
        bench.log.clear()
        accept = Accept(ballot, 0, NO_BALLOT, (), 0, EPOCH, 1, FAST.lease_us, 0, 0, 0)
        bench.server.receive(1, "b", "a", accept, 10)
        await bench.turns(1)
        assert bench.log.index("synced") < bench.log.index("Accepted")

    run(main, Bench(voters=("a", "b", "c")))


def test_failed_sync_ends_the_server_and_nothing_is_answered() -> None:
    async def main(bench: Bench) -> None:
        await bench.turns(10)
        answers = bench.ask(1, write(b"a"))
        bench.engine.fail_next_commit(Code.DISK_FULL, kept=True)
        with pytest.raises(EngineFailed) as caught:
            await bench.server.run()
        assert caught.value.code is Code.DISK_FULL and not answers
        crashed_at = bench.clock.sample().tt.latest
        # Loaded anew from the disk, the commit is there, since the disk kept it.
        bench.engine.restart()
        bench.server = bench.load()
        await bench.turns(10)
        assert crashed_at < bench.clock.sample().tt.latest
        again = bench.ask(1, write(b"a"))
        await bench.turns(5)
        assert isinstance(again[0], CommitReply)
        assert again[0].ts <= crashed_at

    run(main)


def test_requests_that_cannot_be_taken_in_are_answered_at_once() -> None:
    async def main(bench: Bench) -> None:
        assert_code(bench.ask(3, Read(0, (b"a",))), Code.NOT_LEADER)  # others have it
        assert_code(bench.ask(9, Read(0, (b"a",))), Code.WRONG_RANGE)
        waiting = [bench.ask(1, Read(0, (b"a",))) for _ in range(3)]
        assert_code(bench.ask(1, Read(0, (b"a",))), Code.OVERLOADED)
        bench.server.receive(1, "b", "a", PreVoteReply(SOME, True, SOME), 10)  # dropped without a word
        await bench.turns(20)
        assert all(len(answers) == 1 for answers in waiting)
        bench.server.stop()
        assert_code(bench.ask(1, Read(0, (b"a",))), Code.UNAVAILABLE)

    run(main, Bench(inbox=3))


def assert_code(answers: list[Answer], code: Code) -> None:
    (answer,) = answers
    assert isinstance(answer, F1Error) and answer.code is code


def test_strangers_and_other_clusters_are_no_peers() -> None:
    async def main(bench: Bench) -> None:
        bench.server.check_identity("b", "test")
        for sender, cluster in (("b", "other"), ("x", "test"), ("", "")):
            with pytest.raises(F1Error) as caught:
                bench.server.check_identity(sender, cluster)
            assert caught.value.code is Code.FAILED_PRECONDITION

    run(main)


def test_idle_server_sleeps_and_a_request_wakes_it() -> None:
    async def main(bench: Bench) -> None:
        await bench.turns(20)
        task = asyncio.create_task(bench.server.run())
        for _ in range(50):
            await asyncio.sleep(0)
        before = bench.server.turns
        for _ in range(50):
            await asyncio.sleep(0)
        assert bench.server.turns == before
        answers = bench.ask(1, write(b"a"))
        for _ in range(50):
            await asyncio.sleep(0)
        assert bench.server.turns > before
        bench.clock.advance(MS)
        bench.server.hand_over()  # wakes it as well; there is nobody to hand over to
        for _ in range(50):
            await asyncio.sleep(0)
        assert isinstance(answers[0], CommitReply)
        bench.server.stop()
        await task

    run(main)


def test_questions_about_groups() -> None:
    async def main(bench: Bench) -> None:
        assert bench.server.leader_of(1) == "" and bench.server.leader_of(99) == ""
        await bench.turns(10)
        assert bench.server.leader_of(1) == "a"
        assert bench.server.stored_range_map() is None

    run(main)


def test_peers_are_heard_however_many_requests_wait() -> None:
    async def main(bench: Bench) -> None:
        await bench.turns(60)  # past the quarantine
        waiting = [bench.ask(1, Read(0, (b"a",))) for _ in range(3)]
        assert_code(bench.ask(1, Read(0, (b"a",))), Code.OVERLOADED)
        bench.sent.clear()
        bench.server.receive(1, "b", "a", Prepare(Ballot(9, "b"), 0, NO_BALLOT), 10)
        await bench.turns(1)
        assert [type(m) for _, to, m in bench.sent if to == "b" and isinstance(m, Promise)] == [Promise]
        assert all(len(answers) == 1 for answers in waiting)

    run(main, Bench(voters=("a", "b", "c"), inbox=3))


def test_a_turn_takes_in_reads_for_a_while_only_and_commits_overtake_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """While megabytes are read for many, no heartbeat leaves: all groups of the server would lose their leaders."""

    async def main(bench: Bench) -> None:
        await bench.turns(10)
        quick = Group.on_request

        def slow(group: Group, ticket: Ticket) -> None:
            bench.clock.advance(8 * MS)
            bench.log.append(type(ticket.request).__name__)
            quick(group, ticket)

        monkeypatch.setattr(Group, "on_request", slow)
        asked = [bench.ask(1, Read(0, (b"a",))) for _ in range(7)]
        written = bench.ask(1, write(b"b"))
        bench.log.clear()
        await bench.turns(1)
        assert bench.log[:4] == ["Read", "Read", "Read", "Commit"]  # and some while the disk works
        await bench.turns(2)
        assert [len(answers) for answers in asked] == [1] * 7 and len(written) == 1
        stamps = [answer.timestamp for (answer,) in asked if isinstance(answer, ReadReply)]
        assert len(stamps) == 7 and stamps == sorted(stamps)

    run(main)


def test_large_answers_are_put_off_for_who_leaves_the_others_unread() -> None:
    """Hundreds of requests for megabytes fit into one message, and each would be kept until it is sent."""

    async def main(bench: Bench) -> None:
        await bench.turns(10)
        crowded = [False]
        answers: list[Answer] = []

        def ask(request: Request) -> None:
            deadline = bench.clock.sample().boot_us + 1_000 * MS
            bench.server.submit(1, Ticket(request, answers.append, deadline, lambda: crowded[0]), 10)

        ask(Read(0, (b"a",)))
        await bench.turns(3)
        assert isinstance(answers.pop(), ReadReply)
        crowded[0] = True
        ask(Read(0, (b"a",)))
        ask(SafeTimeQuery())
        await bench.turns(3)
        refused, told = sorted(answers, key=lambda answer: isinstance(answer, SafeTimeReply))
        assert isinstance(refused, F1Error) and refused.code is Code.OVERLOADED and refused.retryable
        assert isinstance(told, SafeTimeReply)

    run(main)


def test_a_server_that_leaves_sends_those_who_wait_elsewhere_at_once() -> None:
    async def main(bench: Bench) -> None:
        await bench.turns(1)
        waiting = bench.ask(1, Read(EPOCH + 1_000_000 * MS, (b"a",)))
        await bench.turns(2)
        assert waiting == []  # no leader tells this follower what is safe
        bench.server.leave()
        late = bench.ask(1, Read(EPOCH, (b"a",)))
        await bench.turns(1)
        for (answer,) in (waiting, late):
            assert isinstance(answer, F1Error)
            assert (answer.code, answer.retryable) == (Code.UNAVAILABLE, True)

    run(main, Bench(voters=("a", "b", "c")))
