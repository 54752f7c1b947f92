"""Clients whose f1server dies in the middle of a schema change: another server tells them how it ended."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import f1
from f1.session import Session
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from f1server.schemachange.executor import SchemaChanges
from f1server.schemachange.jobs.jobs import Job, JobStore
from f1server.testing.database import Database, with_database

BASE = "CREATE TABLE R (A INT64 NOT NULL, V INT64, PRIMARY KEY (A))"

Change = Callable[[f1.aio.Connection], Coroutine[Any, Any, Any]]


async def running(db: Database) -> Job:
    """Wait until somebody carries out a change."""
    jobs = JobStore(db.storage, db.env.clock)
    while (row := await jobs.running("default")) is None:
        await asyncio.sleep(0.002)
    return row.job


async def lost(db: Database, change: Change) -> tuple[Any, str]:
    """Ask for a change, and let whoever carries it out die in the middle; return what the client gets, and who died."""
    asked = db.env.spawn(change(db.conn))
    owner = (await running(db)).owner
    db.world.crash(owner)
    return await asked, owner


async def last_job(db: Database) -> pb.SchemaJob:
    return list((await db.conn.session.schema_jobs(pb.SchemaJobs())).jobs)[-1]


def test_ddl_returns_when_others_have_ended_the_change() -> None:
    async def body(db: Database) -> None:
        await db.conn.insert("R", [{"A": a, "V": a} for a in range(50)])
        result, died = await lost(db, lambda conn: conn.execute("CREATE INDEX RV ON R (V)"))
        assert result is not None
        job = await last_job(db)
        assert job.state == "done" and job.owner != died
        await db.conn.execute("DROP INDEX RV")  # it is there, as the client was told

    with_database(body, BASE)


def test_a_change_that_fails_elsewhere_tells_why() -> None:
    async def body(db: Database) -> None:
        await db.conn.insert("R", [{"A": a, "V": a % 49} for a in range(50)])
        with pytest.raises(F1Error, match="cannot be unique") as caught:
            await lost(db, lambda conn: conn.execute("CREATE UNIQUE INDEX RV ON R (V)"))
        assert caught.value.code is Code.ALREADY_EXISTS and not caught.value.ambiguous
        assert (await last_job(db)).state == "failed"

    with_database(body, BASE)


def test_sources_are_followed_as_well() -> None:
    async def body(db: Database) -> None:
        wanted = BASE + ";\nCREATE INDEX RV ON R (V);\nCREATE INDEX RV2 ON R (V, A)"
        reply, _ = await lost(db, lambda conn: conn.apply_schema({"s.sql": wanted}))
        assert reply.version >= 4 and any("RV2" in step.what for step in reply.steps)
        assert (await last_job(db)).state == "done"

    with_database(body, BASE)


def test_a_change_is_followed_over_a_time_without_the_meta_group() -> None:
    async def body(db: Database) -> None:
        await db.conn.insert("R", [{"A": a, "V": a} for a in range(50)])
        asked = db.env.spawn(db.conn.execute("CREATE INDEX RV ON R (V)"))
        owner = (await running(db)).owner
        db.world.crash(owner)
        db.world.partition([db.cluster.names[0]])
        await asyncio.sleep(60)
        db.world.heal_links()
        await asked
        job = await last_job(db)
        assert job.state == "done" and job.owner != owner

    with_database(body, BASE, spanservers=3, groups=3, voters={0: (0,), 1: (1,), 2: (2,)})


def test_what_nobody_knows_has_an_unknown_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server dies before it has begun the change."""
    change = SchemaChanges._change
    asked = asyncio.Event()

    async def hangs(self: SchemaChanges, *args: Any, **more: Any) -> Any:
        if self._leases.server == "f1-a":
            asked.set()
            await asyncio.sleep(1_000)
        return await change(self, *args, **more)

    monkeypatch.setattr(SchemaChanges, "_change", hangs)

    async def body(db: Database) -> None:
        client = await db.nodes.connect(
            db.env, hosts=f"{db.nodes.host('f1-a')},{db.nodes.host('f1-b')}", autocommit=True
        )
        while not asked.is_set():
            index = db.env.spawn(client.execute("CREATE INDEX IF NOT EXISTS RV ON R (V)"))
            await asyncio.wait((index,), timeout=3)
        db.world.crash("f1-a")
        with pytest.raises(F1Error, match="schema may have changed or not") as caught:
            await index
        assert caught.value.code is Code.UNKNOWN_OUTCOME

    with_database(body, BASE)


def test_without_being_followed_a_change_that_goes_on_has_an_unknown_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    async def gives_up(self: Session, change_id: bytes, cause: F1Error, deadline: Any) -> Any:
        raise F1Error(Code.UNKNOWN_OUTCOME, cause.message)

    monkeypatch.setattr(Session, "follow_change", gives_up)
    with pytest.raises(F1Error) as caught:
        test_ddl_returns_when_others_have_ended_the_change()
    assert caught.value.code is Code.UNKNOWN_OUTCOME


@pytest.mark.parametrize("change_id", [b"", b"x", b"x" * 16, b"x" * 17])
def test_changes_that_were_never_asked_for_are_not_found(change_id: bytes) -> None:
    async def body(db: Database) -> None:
        order = pb.SchemaJobs(order=pb.SchemaJobs.FOLLOW, change_id=change_id)
        with pytest.raises(F1Error) as caught:
            await db.conn.session.schema_jobs(order)
        assert caught.value.code is (Code.NOT_FOUND if len(change_id) in (0, 16) else Code.INVALID_ARGUMENT)
        assert "schema_change" not in caught.value.details

    with_database(body, BASE)
