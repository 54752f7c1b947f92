"""Verification before public: what the reorganiser has done wrongly is found before a query can see it."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from f1.checking import check_database
from f1common.config import F1ServerSection
from f1common.encoding.row import decode_row, encode_row
from f1common.encoding.values import Timestamp
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from f1server.catalog.schema import Schema
from f1server.check.findings import Finding
from f1server.rows.keys import index_key
from f1server.schemachange.work import walk
from f1server.schemachange.work.gathering import StoredRows
from f1server.schemachange.work.verification import Verifier
from f1server.schemachange.work.walk import Walker
from f1server.schemachange.work.walking import Walk, WalkKind
from f1server.schemachange.work.walkstore import WalkStore
from f1server.testing.database import Database, with_database
from spanstore.client import Write

BASE = (
    "CREATE TABLE P (A INT64, PRIMARY KEY (A))",
    "CREATE TABLE R (A INT64, B INT64, V INT64, W INT64, L INT64, PRIMARY KEY (A, B)) INTERLEAVE IN PARENT P",
)
ROWS = 40


async def fill(db: Database) -> None:
    await db.conn.insert("P", [{"A": a} for a in range(ROWS)])
    await db.conn.insert("R", [{"A": a, "B": 1, "V": a, "W": a} for a in range(ROWS)])


async def schema_of(db: Database) -> Schema:
    return (await db.process().leases.current("default")).schema


async def findings(db: Database) -> list[Any]:
    return list((await check_database(db.conn.session, [], repair=False, examples=5)).findings)


def skips_a_row(monkeypatch: pytest.MonkeyPatch, number: int = 17) -> None:
    """Let the reorganiser lose a row, whatever it does with it."""
    rows = Walker._rows

    async def lossy(self: Walker, walk: Walk) -> Any:
        async for some in rows(self, walk):
            kept = [(row.key, row.ts, row.value) for row in some.rows if row.primary[0] != number]
            if kept:
                yield StoredRows(walk.schema, walk.work.table, *zip(*kept, strict=True))

    monkeypatch.setattr(Walker, "_rows", lossy)


ELEMENTS = (
    "CREATE INDEX X ON R (V) STORING (W)",
    "CREATE UNIQUE INDEX X ON R (V)",
    "CREATE LOCAL INDEX X ON R (A, V)",
    "CREATE UNIQUE LOCAL INDEX X ON R (A, V)",
    "ALTER TABLE R ADD COLUMN X INT64 NOT NULL DEFAULT 7",
    "ALTER TABLE R ADD LOCK X (L)",
)


@pytest.mark.parametrize("change", ELEMENTS)
def test_a_row_that_was_skipped_is_found_before_the_element_is_public(
    monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    skips_a_row(monkeypatch)

    async def body(db: Database) -> None:
        await fill(db)
        before = await schema_of(db)
        with pytest.raises(
            F1Error, match=r"was not made public: \(A, B\) = \(17, 1\): .*nothing was changed"
        ) as caught:
            await db.conn.execute(change)
        assert caught.value.code is Code.INTERNAL
        after = await schema_of(db)
        assert after.tables == before.tables
        (job,) = list((await db.conn.session.schema_jobs(pb.SchemaJobs())).jobs)[-1:]
        assert job.state == "failed" and "17" in job.error
        assert await WalkStore(db.process(0).client).clear("default") == [] == await db.storage.pins.list()
        assert not await findings(db)

    with_database(body, *BASE)


@pytest.mark.parametrize("change", ELEMENTS)
def test_without_the_verification_the_same_elements_become_public_wrongly(
    monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    monkeypatch.setattr(Verifier, "_refuse", lambda *_: None)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_a_row_that_was_skipped_is_found_before_the_element_is_public(monkeypatch, change)


MOVE = "ALTER TABLE R SET PRIMARY KEY (V, A, B)"
MOVE_IN = "ALTER TABLE R SET PRIMARY KEY (A, V, B) INTERLEAVE IN PARENT P"
TAKE_OVER = "ALTER TABLE R ALTER LOCK K (L, W)"
LOCKED = (
    BASE[0],
    """CREATE TABLE R (A INT64, B INT64, V INT64 NOT NULL, W INT64, L INT64, N INT64, PRIMARY KEY (A, B), LOCK K (L),
        LOCK M (N, W))""",
)


async def written_again(db: Database) -> None:
    """Let locks say different things."""
    await fill(db)
    await db.conn.execute("UPDATE R SET W = W + 1 WHERE A > 10")
    await db.conn.execute("UPDATE R SET L = 5 WHERE A < 25")


@pytest.mark.parametrize("change", [MOVE, MOVE_IN])
def test_a_row_that_is_not_copied_is_found_before_the_table_has_moved(
    monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    skips_a_row(monkeypatch)

    async def body(db: Database) -> None:
        await written_again(db)
        before = await schema_of(db)
        with pytest.raises(
            F1Error, match=r"was not made public: \(A, B\) = \(17, 1\): there is no row of it"
        ) as caught:
            await db.conn.execute(change)
        assert caught.value.code is Code.INTERNAL
        assert (await schema_of(db)).tables == before.tables
        assert not await findings(db)

    with_database(body, *LOCKED)


WRONG_COPIES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "a column": (
        lambda value: encode_row({i: c + 1 if type(c) is int else c for i, c in decode_row(value).items()}),
        r"it stores \(W, L\) = \(1, 6\), the row has \(W, L\) = \(0, 5\)",
    ),
    "a lock": (
        lambda value: encode_row({i: c for i, c in decode_row(value).items() if type(c) is not Timestamp}),
        "lock",
    ),
}


@pytest.mark.parametrize("what", WRONG_COPIES)
def test_a_row_that_is_copied_wrongly_is_found_before_the_table_has_moved(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    commit = Walker._commit
    change, said = WRONG_COPIES[what]

    async def wrong(self: Walker, walk: Walk, writes: Sequence[Write], expected: Any) -> None:
        await commit(self, walk, [Write(w.key, change(w.value or b"")) for w in writes], expected)

    monkeypatch.setattr(Walker, "_commit", wrong)

    async def body(db: Database) -> None:
        await written_again(db)
        before = await schema_of(db)
        with pytest.raises(F1Error, match=f"was not made public: .*{said}") as caught:
            await db.conn.execute(MOVE)
        assert caught.value.code is Code.INTERNAL
        assert (await schema_of(db)).tables == before.tables
        assert not await findings(db)

    with_database(body, *LOCKED)


def test_a_lock_that_took_nothing_over_is_found_before_it_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    skips_a_row(monkeypatch, 30)

    async def body(db: Database) -> None:
        await written_again(db)
        before = await schema_of(db)
        with pytest.raises(F1Error, match=r"made public: \(A, B\) = \(30, 1\): the lock that takes over") as caught:
            await db.conn.execute(TAKE_OVER)
        assert caught.value.code is Code.INTERNAL
        assert (await schema_of(db)).tables == before.tables
        assert not await findings(db)

    with_database(body, *LOCKED)


@pytest.mark.parametrize("change", [MOVE, MOVE_IN, TAKE_OVER])
def test_moves_and_locks_that_are_right_are_read_once(monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    looked: list[WalkKind] = []
    verify = Verifier.verify

    async def noted(self: Verifier, walk: Walk, watch: Any) -> Any:
        looked.append(walk.kind)
        return await verify(self, walk, watch)

    monkeypatch.setattr(Verifier, "verify", noted)

    async def body(db: Database) -> None:
        await written_again(db)
        await db.conn.execute(change)
        assert set(looked) == {WalkKind.SUM_ROWS} | ({WalkKind.SUM_ENTRIES} if change != TAKE_OVER else set())
        assert not await findings(db)

    with_database(body, *LOCKED)


WRONG_ENTRIES: dict[str, Callable[[list[Write]], list[Write]]] = {
    "one more": lambda writes: [*writes, Write(writes[0].key[:-1] + b"\x64", writes[0].value)],
    "another value": lambda writes: [Write(writes[0].key, encode_row({})), *writes[1:]],
    "another's value": lambda writes: [Write(writes[0].key, writes[1].value), *writes[1:]],
    "exchanged": lambda writes: [
        Write(writes[0].key, writes[1].value),
        Write(writes[1].key, writes[0].value),
        *writes[2:],
    ],
}


@pytest.mark.parametrize("what", WRONG_ENTRIES)
@pytest.mark.parametrize("change", ELEMENTS[:4:3])
def test_entries_that_are_wrong_are_found_before_the_index_is_public(
    monkeypatch: pytest.MonkeyPatch, change: str, what: str
) -> None:
    """Whatever the reorganiser writes wrongly: the sums differ, and a look at each key says where."""
    commit = Walker._commit

    async def wrong(self: Walker, walk: Walk, writes: Sequence[Write], expected: Any) -> None:
        await commit(self, walk, WRONG_ENTRIES[what](list(writes)), expected)

    monkeypatch.setattr(Walker, "_commit", wrong)

    async def body(db: Database) -> None:
        await fill(db)
        before = await schema_of(db)
        with pytest.raises(F1Error, match="was not made public") as caught:
            await db.conn.execute(change)
        assert caught.value.code is Code.INTERNAL
        assert (await schema_of(db)).tables == before.tables
        assert not await findings(db)

    with_database(body, *BASE)


def test_sums_of_two_times_are_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the rows' snapshot cannot be read any more when entries are added up, keys are looked up at another one."""
    looked: list[WalkKind] = []
    verify = Verifier.verify

    async def too_late(self: Verifier, walk: Walk, watch: Any) -> Any:
        looked.append(walk.kind)
        if walk.kind is WalkKind.SUM_ENTRIES:
            raise F1Error(Code.SNAPSHOT_TOO_OLD, "versions as of then are gone")
        return await verify(self, walk, watch)

    monkeypatch.setattr(Verifier, "verify", too_late)

    async def body(db: Database) -> None:
        await fill(db)
        await db.conn.execute(ELEMENTS[0])
        assert looked == [WalkKind.SUM_ROWS, WalkKind.SUM_ENTRIES, WalkKind.VERIFY_ROWS, WalkKind.VERIFY_ENTRIES]
        assert not await findings(db)

    with_database(body, *BASE)


def test_it_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    without = partial(F1ServerSection, verify_schema_changes=False)
    monkeypatch.setattr("f1server.testing.cluster.F1ServerSection", without)
    monkeypatch.setattr(Verifier, "verify", lambda *_: pytest.fail("it is not left out"))

    async def body(db: Database) -> None:
        await fill(db)
        await db.conn.execute(ELEMENTS[0])

    with_database(body, *BASE)


CONSTRAINTS = (
    "ALTER TABLE R ADD CONSTRAINT X CHECK (V <> 17)",
    "ALTER TABLE R ALTER COLUMN L SET NOT NULL",
    "ALTER TABLE R ADD CONSTRAINT X FOREIGN KEY (W) REFERENCES P (A)",
)


@pytest.mark.parametrize("change", CONSTRAINTS)
def test_a_row_that_was_not_validated_is_found_before_the_constraint_is_public(
    monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    async def lenient(*_: Any) -> None:
        return None

    monkeypatch.setattr(walk, "validate", lenient)

    async def body(db: Database) -> None:
        await fill(db)
        await db.conn.execute("UPDATE R SET L = 1 WHERE A <> 17")
        await db.conn.execute("UPDATE R SET W = 1000 WHERE A = 17")
        before = await schema_of(db)
        with pytest.raises(F1Error, match=r"was not made public: \(A, B\) = \(17, 1\)") as caught:
            await db.conn.execute(change)
        assert caught.value.code is Code.INTERNAL
        assert (await schema_of(db)).tables == before.tables

    with_database(body, *BASE)


def test_damage_that_is_older_keeps_no_change_from_being_made() -> None:
    async def body(db: Database) -> None:
        await fill(db)
        await db.conn.execute("CREATE INDEX Old ON R (W)")
        schema = await schema_of(db)
        table = schema.table("R")
        row = {**dict.fromkeys(table.by_id), table.column("A").id: 5, table.column("B").id: 1, table.column("W").id: 5}
        (key,) = index_key(schema, table, table.index("Old"), row, (5, 1))
        await db.storage.commit([Write(key, None)])
        assert len(await findings(db)) == 1
        for change in (*ELEMENTS[:3:2], ELEMENTS[4]):
            await db.conn.execute(change)
            await db.conn.execute("DROP INDEX X" if "INDEX" in change else "ALTER TABLE R DROP COLUMN X")
        assert len(await findings(db)) == 1

    with_database(body, *BASE)


def test_everything_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of a table for all elements together, and the entries of each new index."""
    looked: list[tuple[str, int]] = []
    refuse, verify = Verifier._refuse, Verifier.verify
    scanned: list[tuple[str, str]] = []

    async def noted(self: Verifier, walk: Walk, watch: Any) -> Any:
        scanned.append((walk.kind.value, walk.work.table.name))
        return await verify(self, walk, watch)

    def refusing(self: Verifier, walk: Walk, found: Sequence[Finding]) -> None:
        looked.append((walk.kind.value, len(found)))
        refuse(self, walk, found)

    monkeypatch.setattr(Verifier, "verify", noted)
    monkeypatch.setattr(Verifier, "_refuse", refusing)

    async def body(db: Database) -> None:
        await fill(db)
        await db.conn.apply_schema({"s.sql": SOURCES})
        assert sorted(scanned) == [("sum entries", "R"), ("sum entries", "R"), ("sum rows", "R")]
        assert {number for _, number in looked} == {0}
        assert not await findings(db)

    with_database(body, *BASE)


SOURCES = """
CREATE TABLE P (A INT64, PRIMARY KEY (A));
CREATE TABLE R (A INT64, B INT64, V INT64, W INT64, L INT64, X INT64 NOT NULL DEFAULT 3, PRIMARY KEY (A, B),
  CONSTRAINT Small CHECK (V < 1000), LOCK K (L)) INTERLEAVE IN PARENT P;
CREATE INDEX ByV ON R (V);
CREATE LOCAL INDEX ByW ON R (A, W, X);
"""
