"""The first attempt of a commit: without locks, tested in the round that commits; whoever loses goes on with locks."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from f1common.errors import Code, F1Error
from f1common.pb import spanstore_pb2 as pb
from f1server.testing.checks import check_consistency
from f1server.testing.database import Database, with_database
from f1server.txn.together import ReadsTogether
from f1server.txn.unlocked import Trust

DDL = (
    "CREATE TABLE P (Id INT64 NOT NULL, V INT64, PRIMARY KEY (Id))",
    "CREATE TABLE C (Id INT64 NOT NULL, K INT64 NOT NULL, V INT64, PRIMARY KEY (Id, K)) INTERLEAVE IN PARENT P",
    "CREATE TABLE U (Id INT64 NOT NULL, V INT64, PRIMARY KEY (Id))",
    "CREATE UNIQUE INDEX UByV ON U (V)",
)


class Spy:
    """Notes what an f1server asks storage for about users' rows; ``between`` runs once, before a commit is sent."""

    def __init__(self, db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        self.keys = 0
        self.between: Callable[[], Awaitable[object]] | None = None
        router = db.process().client._router
        original = router.send

        async def send(group: int, request: Callable[[], pb.Request], *args: Any, **kwargs: Any) -> pb.Response:
            body = str(request().WhichOneof("body"))
            if group and body in ("read", "lock_read", "commit", "prepare", "outcome"):
                self.asked.append(body)
                self.keys += len(request().read.keys)
            if body == "commit" and self.between is not None:
                between, self.between = self.between, None
                await between()
            return await original(group, request, *args, **kwargs)

        monkeypatch.setattr(router, "send", send)

    def taken(self) -> list[str]:
        asked, self.asked = self.asked, []
        return asked


def test_an_insert_has_one_round_and_other_writes_two(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(db: Database) -> None:
        conn = await db.at(0)
        await conn.insert("P", {"Id": 1, "V": 1})
        spy = Spy(db, monkeypatch)
        await conn.insert("P", [{"Id": i, "V": i} for i in range(2, 60)])
        assert spy.taken() == ["commit"]
        await conn.insert("C", [{"Id": 1, "K": k, "V": k} for k in range(300)])
        assert (spy.taken(), spy.keys) == (["commit"], 0)  # many rows go by columns, and have their parent tested, too
        await conn.upsert("P", {"Id": 1, "V": 2})
        await conn.update("P", {"Id": 1, "V": 3})
        assert spy.taken() == ["read", "commit"] * 2
        await conn.delete("C", [(1, 1)])
        assert spy.taken() == ["read", "commit"]
        await conn.delete("P", [2])  # what may have children is not looked at in vain
        assert spy.taken()[0] == "lock_read"
        assert await db.rows("SELECT V FROM P WHERE Id = 1") == [(3,)]
        assert await db.rows("SELECT count(*) FROM C") == [(299,)]
        assert await check_consistency(db.conn) == []

    with_database(body, *DDL, f1servers=1)


def test_who_loses_a_race_goes_on_with_locks_and_trusts_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(db: Database) -> None:
        conn, other = await db.at(0), await db.at(1)
        await conn.insert("P", {"Id": 1, "V": 10})
        spy = Spy(db, monkeypatch)
        for lost in range(3):
            spy.between = lambda: other.upsert("P", {"Id": 1, "V": 11})
            await conn.upsert("P", {"Id": 1, "V": 12 + lost})
            assert spy.taken() == ["read", "commit", "outcome", "lock_read", "commit"]
            assert await db.rows("SELECT V FROM P") == [(12 + lost,)]
        for locked in (True, True, True, False, True, False, False, False):
            await conn.upsert("P", {"Id": 1, "V": 0})
            assert spy.taken() == ["lock_read" if locked else "read", "commit"]
        assert await check_consistency(db.conn) == []

    with_database(body, *DDL, f1servers=2)


def test_what_was_taken_for_absent_is_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(db: Database) -> None:
        conn, other = await db.at(0), await db.at(1)
        await conn.insert("P", {"Id": 1, "V": 1})
        with pytest.raises(F1Error) as caught:
            await conn.insert("P", {"Id": 1, "V": 2})
        assert caught.value.code is Code.ALREADY_EXISTS
        await conn.upsert("P", [{"Id": 8, "V": 1}])
        await conn.upsert("P", [{"Id": 8, "V": 2}])
        spy = Spy(db, monkeypatch)
        spy.between = lambda: other.insert("P", {"Id": 2, "V": 1})
        with pytest.raises(F1Error) as caught:
            await conn.insert("P", {"Id": 2, "V": 2})
        assert caught.value.code is Code.ALREADY_EXISTS
        # A parent that goes, and a value of a unique index that somebody takes, between the look and the commit.
        await conn.insert("U", {"Id": 1, "V": 1})
        spy.between = lambda: other.delete("P", [1])
        with pytest.raises(F1Error) as caught:
            await conn.insert("C", {"Id": 1, "K": 1, "V": 1})
        assert caught.value.code is Code.FAILED_PRECONDITION
        spy.between = lambda: other.insert("U", {"Id": 2, "V": 5})
        with pytest.raises(F1Error) as caught:
            await conn.insert("U", {"Id": 3, "V": 5})
        assert caught.value.code is Code.ALREADY_EXISTS
        assert await db.rows("SELECT Id, V FROM P ORDER BY Id") == [(2, 1), (8, 2)]
        assert await db.rows("SELECT Id, V FROM U ORDER BY Id") == [(1, 1), (2, 5)]
        assert await check_consistency(db.conn) == []

    with_database(body, *DDL, f1servers=2)


def test_a_read_set_is_tested_in_the_round_that_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(db: Database) -> None:
        conn, other = await db.at(0), await db.at(1)
        await conn.insert("P", [{"Id": 1, "V": 1}, {"Id": 2, "V": 2}])
        spy = Spy(db, monkeypatch)
        async with conn.transaction() as tx:
            assert await tx.get("P", 1) == {"Id": 1, "V": 1}
            await tx.update("P", {"Id": 2, "V": 3})
            spy.taken()
        assert spy.taken() == ["read", "commit"]
        # Changed before the look: a conflict at once. Changed after it: found by the test, and then under locks.
        for late in (False, True):
            with pytest.raises(F1Error) as caught:
                async with conn.transaction() as tx:
                    assert await tx.get("P", 1) is not None
                    await tx.update("P", {"Id": 2, "V": 10})
                    spy.taken()
                    if late:
                        spy.between = lambda: other.update("P", {"Id": 1, "V": 5})
                    else:
                        await other.update("P", {"Id": 1, "V": 4})
            assert caught.value.code is Code.ABORTED
            assert ("lock_read" in spy.taken()) is late
        assert await db.rows("SELECT Id, V FROM P ORDER BY Id") == [(1, 5), (2, 3)]

    with_database(body, *DDL, f1servers=2)


def test_who_waited_for_a_row_in_anothers_hands_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(db: Database) -> None:
        conn, other = await db.at(0), await db.at(1)
        await conn.insert("P", {"Id": 1, "V": 1})
        async with other.transaction("pessimistic") as tx:
            await tx.execute("SELECT V FROM P WHERE Id = 1 FOR UPDATE")
            spy = Spy(db, monkeypatch)
            waiting = asyncio.ensure_future(conn.execute("UPDATE P SET V = V + 1 WHERE Id = 1"))
            await asyncio.sleep(0.5)
            assert not waiting.done()
            await tx.update("P", {"Id": 1, "V": 10})
        await waiting
        assert spy.taken().count("commit") == 2  # the first of them waited for the row, and lost it
        assert await db.rows("SELECT V FROM P") == [(11,)]

    with_database(body, *DDL, f1servers=2)


def test_rows_that_others_hold_count_as_a_race_that_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    async def held(_: ReadsTogether, __: Sequence[bytes]) -> None:
        return None

    async def body(db: Database) -> None:
        conn = await db.at(0)
        await conn.insert("P", {"Id": 1, "V": 1})
        spy = Spy(db, monkeypatch)
        with monkeypatch.context() as patched:
            patched.setattr(ReadsTogether, "read_all", held)
            for _ in range(3):
                await conn.upsert("P", {"Id": 1, "V": 2})
        assert spy.taken() == ["lock_read", "commit"] * 3
        await conn.upsert("P", {"Id": 1, "V": 3})
        assert spy.taken() == ["lock_read", "commit"]
        assert await db.rows("SELECT V FROM P") == [(3,)]

    with_database(body, *DDL, f1servers=1)


def doubted(trust: Trust, *tables: str) -> int:
    """Count the commits that take locks before one is tried again."""
    count = 0
    while not trust.has(tables):
        count += 1
    return count


def test_a_look_that_takes_long_leaves_less_time_for_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(db: Database) -> None:
        conn = await db.at(0)
        await conn.insert("P", {"Id": 1, "V": 1})
        committer = db.frontend(0)._committer
        work, given = committer.work, []

        async def no_leader(keys: object) -> None:
            await asyncio.sleep(5.0)

        async def noted(*args: Any) -> Any:
            given.append(args[-1])
            return await work(*args)

        monkeypatch.setattr(committer._together, "read_all", no_leader)
        monkeypatch.setattr(committer, "work", noted)
        await conn.upsert("P", {"Id": 1, "V": 2})
        assert len(given) == 1 and given[0] < 5.1

    with_database(body, *DDL, f1servers=1)


def lost(*tables: str) -> Trust:
    """Return what is left of trust when these tables are as little short of a doubt as can be."""
    trust = Trust()
    for _ in range(2):
        trust.lose(tables)
    assert doubted(trust, *tables) == 0
    return trust


def test_races_lost_now_and_then_change_nothing() -> None:
    trust = Trust()
    for wins in (4, 4, 5, 9):
        trust.lose({"a"})
        for _ in range(wins):
            trust.win({"a", "b"})
        trust.lose({"a"})
        assert trust.has({"a"})
        for _ in range(wins):
            trust.win({"a"})
    # One of three is too many.
    losses = 0
    while trust.has({"a"}):
        trust.lose({"a"})
        losses += 1
        for _ in range(2):
            trust.win({"a"} if trust.has({"a"}) else ())
    assert losses == 4


def test_trust_is_lost_with_each_race_and_won_back_by_degrees() -> None:
    trust = lost("a")
    assert doubted(trust, "a", "b") == 0
    locked = []
    for _ in range(4):
        trust.lose({"a"})
        assert trust.has({"b"})
        locked.append(doubted(trust, "a", "b"))
    assert locked == [3, 15, 63, 63]
    won = []
    for _ in range(7):
        trust.win({"a", "b"})
        won.append(doubted(trust, "b", "a"))
    assert won == [31, 15, 7, 3, 1, 0, 0]
    trust.lose({"a"})
    assert doubted(trust, "a") == 3  # at once, while it is fresh in memory


def test_while_a_table_is_in_doubt_one_commit_is_tried_at_a_time() -> None:
    """Else all that change a hot row try at the moment when the doubt ends, and all but one of them lose."""
    trust = lost("a")
    for _ in range(3):
        trust.lose({"a"})
    assert [trust.has({"a"}) for _ in range(256)].count(True) == 4
    assert doubted(trust, "b") == 0


def test_many_tables_are_tried_together_when_none_of_them_is_too_much_in_doubt() -> None:
    trust = lost("a", "b")
    trust.lose({"a", "b"})
    trust.lose({"b"})
    assert doubted(trust, "a") == 3
    assert doubted(trust, "a", "b") == 15
    assert doubted(trust, "a", "b") == 15
