"""A damaged replica is taken out of service, alone and for good; its server and the other groups go on."""

from collections.abc import Callable
from pathlib import Path

import pytest

from f1common.errors import Code, F1Error
from spanstore.engine import keyspace
from spanstore.engine.base import EngineFailed
from spanstore.engine.damage import WHOLE_SERVER, FileMarks
from spanstore.group.requests import Answer, CommitReply, Read, ReadReply
from spanstore.mvcc.versions import version_key
from spanstore.runtime.comparing import Finding
from tests.unit.runtime.bench import Bench, run, write


async def committed(bench: Bench, group: int, key: bytes, name: str = "t1") -> int:
    answers = bench.ask(group, write(key, name))
    await bench.turns(6)
    assert isinstance(answers[0], CommitReply), answers
    return answers[0].ts


def is_sent_elsewhere(answers: list[Answer]) -> bool:
    (error,) = answers
    return isinstance(error, F1Error) and error.code is Code.DATA_CORRUPTION and error.retryable


async def the_other_group_serves(bench: Bench) -> None:
    found = bench.ask(2, Read(0, (b"n",)))
    await bench.turns(4)
    assert isinstance(found[0], ReadReply), found


def test_a_damaged_row_is_not_served_and_takes_its_replica_out() -> None:
    async def main(bench: Bench) -> None:
        await bench.turns(10)
        ts = await committed(bench, 1, b"a")
        bench.engine.flip_bit(version_key(1, b"a", ts), bit=43)
        first, other = bench.ask(1, Read(0, (b"a",))), bench.ask(1, Read(0, (b"b",)))
        await bench.turns(3)
        assert is_sent_elsewhere(first)
        assert isinstance(other[0], ReadReply)  # of the same turn, and sound
        again = bench.ask(1, Read(0, (b"b",)))
        await bench.turns(300)
        assert is_sent_elsewhere(again)
        assert 1 not in bench.server.groups and "damaged" in bench.server.conditions()[0]
        await the_other_group_serves(bench)
        # A restart does not bring it back; being rebuilt does.
        bench.server = bench.load()
        assert list(bench.server.groups) == [2]
        bench.engine.damage.clear(1)
        bench.server = bench.load()
        assert list(bench.server.groups) == [1, 2]

    run(main)


DAMAGE: dict[str, Callable[[], bytes]] = {
    "hard state": lambda: keyspace.hard_state_key(1),
    "applied record": lambda: keyspace.applied_key(1),
    "last log entry": lambda: keyspace.log_key(1, 2),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_found_while_loading_leaves_out_one_group(what: str) -> None:
    async def main(bench: Bench) -> None:
        await bench.turns(10)
        await committed(bench, 1, b"a")
        bench.engine.flip_bit(DAMAGE[what](), bit=35)
        bench.server = bench.load()
        assert list(bench.server.groups) == [2]
        assert dict(bench.engine.damage.all()).keys() == {1}
        assert is_sent_elsewhere(bench.ask(1, Read(0, (b"a",))))
        await bench.turns(60)
        await the_other_group_serves(bench)

    run(main)


def test_an_outcome_that_is_damaged_is_no_other_outcome() -> None:
    async def main(bench: Bench) -> None:
        await bench.turns(10)
        await committed(bench, 1, b"a")
        bench.engine.flip_bit(keyspace.outcome_key(1, b"t1", b"a"), bit=77)
        again = bench.ask(1, write(b"a"))
        await bench.turns(3)
        assert is_sent_elsewhere(again)
        await bench.turns(300)
        assert 1 not in bench.server.groups

    run(main)


def test_a_step_that_damage_breaks_off_writes_nothing_and_spares_the_others() -> None:
    """The record is damaged between its leader's look at it and its apply."""

    async def main(bench: Bench) -> None:
        await bench.turns(10)
        await committed(bench, 1, b"a")
        first, other = bench.ask(1, write(b"a", "t2")), bench.ask(2, write(b"n", "t3"))
        await bench.turns(1)
        bench.engine.flip_bit(keyspace.outcome_key(1, b"t1", b"a"), bit=77)
        bench.engine.flip_bit(keyspace.log_key(1, 2), bit=77)
        bench.server.mark_damaged(1, "as a test says")
        await bench.turns(300)
        assert isinstance(other[0], CommitReply)
        assert len(first) == 1
        assert 1 not in bench.server.groups

    run(main)


def test_a_replica_that_differed_is_told_of_until_it_is_built_anew() -> None:
    async def main(bench: Bench) -> None:
        await bench.turns(10)
        comparison = bench.server.comparison
        comparison.findings = [Finding(1, bench.server.groups[1].member, "present"), Finding(1, "an-old-life", "past")]
        assert [text for text in bench.server.conditions() if "differ" in text] == ["replicas differ: present"]

    run(main)


def test_whoever_rebuilds_is_told_once() -> None:
    async def main(bench: Bench) -> None:
        told: list[tuple[int, str]] = []
        bench.server.casualties._on_damaged = lambda group, reason: told.append((group, reason))
        bench.server.mark_damaged(1, "one")
        bench.server.mark_damaged(1, "two")
        await bench.turns(3)
        assert told == [(1, "one")]

    run(main)


def test_damaged_pages_take_all_replicas_out() -> None:
    async def main(bench: Bench) -> None:
        await bench.turns(10)
        error = EngineFailed(Code.DATA_CORRUPTION, "page 7 is not what it was")

        async def commit(_: object) -> None:
            raise error

        bench.engine.commit = commit  # type: ignore[method-assign, assignment]
        bench.ask(1, write(b"a"))
        with pytest.raises(EngineFailed):
            await bench.server.run()
        assert WHOLE_SERVER in bench.engine.damage.all()
        bench.server = bench.load()
        assert not bench.server.groups
        assert is_sent_elsewhere(bench.ask(2, Read(0, (b"n",))))

    run(main)


def test_marks_are_kept_beside_the_data(tmp_path: Path) -> None:
    path = tmp_path
    marks = FileMarks(path)
    marks.mark(3, "a reason")
    marks.mark(3, "another")
    marks.mark(WHOLE_SERVER, "pages")
    assert dict(FileMarks(path).all()) == {3: "a reason", WHOLE_SERVER: "pages"}
    FileMarks(path).clear(3)
    assert dict(FileMarks(path).all()) == {WHOLE_SERVER: "pages"}
    (path / "DAMAGED").write_text("garbage")
    with pytest.raises(F1Error) as caught:
        FileMarks(path)
    assert caught.value.code is Code.BAD_DATA_DIR


def test_a_turn_without_damage_marks_nothing() -> None:
    async def main(bench: Bench) -> None:
        await bench.turns(10)
        await committed(bench, 1, b"a")
        assert not bench.engine.damage.all() and not bench.server.conditions()

    run(main)
