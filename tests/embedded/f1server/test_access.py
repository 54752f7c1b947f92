"""Logins and rights through f1servers: every way to data, neighbouring versions of the schema, what REVOKE says."""

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import f1
from f1.logins import Credentials, Login
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from f1common.pb import f1_pb2_grpc, schema_pb2
from f1common.rpc.deadlines import Deadline
from f1server.access.tokens import Purpose, Session
from f1server.testing.database import Database, with_database

T = "CREATE TABLE T (A INT64 NOT NULL, B INT64, PRIMARY KEY (A))"
KID = "CREATE TABLE Kid (A INT64, K INT64, S STRING, PRIMARY KEY (A, K)) INTERLEAVE IN PARENT T ON DELETE CASCADE"
BOSS = "CREATE ROLE boss LOGIN SUPERUSER PASSWORD 'boss word'"
APP = "CREATE ROLE app LOGIN PASSWORD 'app word'"


async def code_of(work: Awaitable[Any]) -> Code | None:
    """Which error it was; None for a success."""
    try:
        await work
    except F1Error as error:
        return error.code
    return None


async def rows(conn: f1.aio.Connection, sql: str) -> list[Any]:
    return list(await (await conn.execute(sql)).fetchall())


async def given(db: Database, *statements: str) -> tuple[f1.aio.Connection, f1.aio.Connection]:
    """Make the roles, and what else is told; return connections of the superuser and of ``app``."""
    await db.ddl(BOSS, APP, *statements)
    await db.require_passwords()
    return await db.login("boss", "boss word"), await db.login("app", "app word")


def stub_of(db: Database, number: int = 0) -> Any:
    return f1_pb2_grpc.F1ServerStub(db.env.channel(db.nodes.host(db.nodes.names[number])))


# ---------------------------------------------------------------------- logins


def test_without_a_valid_token_nothing_is_answered() -> None:
    async def body(db: Database) -> None:
        await given(db)
        assert await code_of(db.conn.execute("SELECT 1")) is Code.UNAUTHENTICATED
        asked = _requests()
        assert {request.WhichOneof("body") for request in asked} == {f.name for f in _bodies()}
        keys = db.process().doors.gate._keys  # type: ignore[union-attr]
        server = await keys.sign(Purpose.SERVER, b"", 10**9)
        expired = await keys.sign(Purpose.SESSION, Session("default", 1, b"x" * 8).to_bytes(), -1)
        for token in (b"", b"nonsense", server, expired):
            async for batch in stub_of(db).Session(_sent(pb.ClientBatch(requests=asked, token=token), len(asked))):
                for response in batch.responses:
                    assert response.error.code == "UNAUTHENTICATED", response
        with pytest.raises(Exception, match="UNAUTHENTICATED"):
            await stub_of(db).RefreshSchema(pb.RefreshSchemaRequest(database="default", version=1))
        assert (await stub_of(db).Status(pb.StatusRequest())).name == "f1-a"

    with_database(body, T)


def _bodies() -> list[Any]:
    return list(pb.Request.DESCRIPTOR.oneofs_by_name["body"].fields)


def _requests() -> list[pb.Request]:
    found = []
    for number, field in enumerate(_bodies(), 1):
        request = pb.Request(id=number)
        getattr(request, field.name).SetInParent()
        found.append(request)
    return found


async def _sent(batch: pb.ClientBatch, answers: int) -> Any:
    yield pb.ClientBatch(token=batch.token)
    yield batch
    await asyncio.sleep(1)


def test_a_wrong_password_and_an_unknown_user_look_the_same() -> None:
    async def body(db: Database) -> None:
        await db.ddl("CREATE ROLE mute LOGIN", "CREATE ROLE barred PASSWORD 'x'")
        await given(db)
        stub = stub_of(db)
        seen = []
        for user in ("app", "nobody", "mute", "barred"):
            login = Login(Credentials(user, "wrong", "default"), nonce=lambda: "n" * 20, threads=False)
            with pytest.raises(F1Error) as caught:
                await login.ensure(stub, Deadline.after(30))
            first = f"n,,n={user},r=" + "n" * 20
            challenges = [
                (await stub.Login(pb.LoginRequest(client_first=first))).server_first.split(",") for _ in range(2)
            ]
            assert challenges[0][1:] == challenges[1][1:] and challenges[0][0] != challenges[1][0]
            salt = base64.b64decode(challenges[0][1][2:])
            seen.append((str(caught.value).replace(user, "?"), len(salt), challenges[0][2]))
        assert len(set(seen)) == 1 and seen[0][0].startswith("UNAUTHENTICATED")

    with_database(body, T)


def test_guesses_get_slower_and_the_right_password_still_works() -> None:
    async def body(db: Database) -> None:
        await given(db)
        loop = asyncio.get_running_loop()
        took = []
        for _ in range(6):
            began = loop.time()
            login = Login(Credentials("app", "wrong", "default"), nonce=lambda: "n" * 20, threads=False)
            assert await code_of(login.ensure(stub_of(db), Deadline.after(60))) is Code.UNAUTHENTICATED
            took.append(loop.time() - began)
        assert took[5] > took[4] > took[3] > 10 * took[0]
        assert await rows(await db.login("app", "app word", 0), "SELECT 1") == [(1,)]

    with_database(body, T)


@pytest.mark.long
def test_a_token_is_good_at_every_server_and_is_renewed_before_it_ends() -> None:
    async def body(db: Database) -> None:
        _, app = await given(db, "GRANT SELECT ON T TO app")
        login = app.session.servers._login
        assert login is not None
        tokens = set()
        for _ in range(40):
            assert await rows(app, "SELECT * FROM T") == []
            tokens.add(login.token)
            await asyncio.sleep(60)
        # A quarter of an hour each, renewed after three quarters of it, at whichever server is asked.
        assert 3 <= len(tokens) <= 5
        # A stream that is open goes on with the new token; with the old one nothing is answered.
        login.token = min(tokens, key=lambda token: int.from_bytes(token[6:14], "big"))
        assert await code_of(app.session.servers.all[0]._call(pb.Request(ping=pb.Ping()), Deadline.after(5)))

    with_database(body, T)


def test_keys_change_and_sessions_do_not_notice() -> None:
    async def body(db: Database) -> None:
        _, app = await given(db, "GRANT SELECT ON T TO app")
        numbers = set()
        for number in (0, 1):
            db.process(number).doors.gate._keys.rotate_us = 100_000_000  # type: ignore[union-attr]
        for _ in range(10):
            for number in (0, 1):
                conn = await db.login("app", "app word", number)
                numbers.add(conn.session.servers._login.token[2:6])  # type: ignore[union-attr]
                await conn.close()
            assert await rows(app, "SELECT * FROM T") == []
            await asyncio.sleep(25)
        assert len(numbers) == 3
        row = await db.process(0).doors.gate._keys._read()  # type: ignore[union-attr]
        assert row.number == 3 and row.before == 2

    with_database(body, T)


def test_a_changed_password_or_a_dropped_role_ends_sessions() -> None:
    async def body(db: Database) -> None:
        boss, app = await given(db)
        assert await rows(app, "SELECT 1") == [(1,)]
        await app.execute("ALTER ROLE app PASSWORD 'new word'")
        assert await code_of(app.execute("SELECT 1")) is Code.UNAUTHENTICATED
        again = await db.login("app", "new word")
        await boss.execute("ALTER ROLE app NOLOGIN")
        assert await code_of(again.execute("SELECT 1")) is Code.UNAUTHENTICATED
        await boss.execute("ALTER ROLE app LOGIN")
        assert await rows(again, "SELECT 1") == [(1,)]
        await boss.execute("DROP ROLE app")
        assert await code_of(again.execute("SELECT 1")) is Code.UNAUTHENTICATED

    with_database(body, T)


def test_roles_belong_to_databases_and_superusers_of_the_default_one_to_all() -> None:
    async def body(db: Database) -> None:
        boss, app = await given(db)
        assert await code_of(app.execute("CREATE DATABASE other")) is Code.PERMISSION_DENIED
        await boss.execute("CREATE DATABASE other")
        there = await db.login("boss", "boss word", database="other")
        await there.execute("CREATE TABLE X (A INT64 PRIMARY KEY)")
        await there.execute("CREATE ROLE own LOGIN SUPERUSER PASSWORD 'own word'")
        own = await db.login("own", "own word", database="other")
        assert await rows(own, "SELECT * FROM X") == []
        assert await code_of(own.execute("DROP DATABASE other")) is Code.PERMISSION_DENIED
        assert await code_of(own.execute("CREATE DATABASE third")) is Code.PERMISSION_DENIED
        assert await code_of(db.login("own", "own word")) is Code.UNAUTHENTICATED
        strange = await db.login("app", "app word", database="other")
        assert await code_of(strange.execute("SELECT 1")) is Code.PERMISSION_DENIED

    with_database(body, T)


# ---------------------------------------------------------------------- every way to data


def test_every_way_to_data_is_checked() -> None:
    """A role without a right on Kid gets at it by none; with the right, by all."""

    async def body(db: Database) -> None:
        boss, app = await given(db, "CREATE VIEW V AS SELECT S FROM Kid", "GRANT ALL ON T TO app")
        await boss.insert("T", {"A": 1, "B": 1})
        await boss.insert("Kid", {"A": 1, "K": 1, "S": "secret"})
        before = await rows(boss, "SELECT CAST(now() AS STRING)")
        await asyncio.sleep(5)
        ways: dict[str, Callable[[], Awaitable[Any]]] = {
            "sql": lambda: app.execute("SELECT * FROM Kid"),
            "count": lambda: app.execute("SELECT count(*) FROM Kid"),
            "view": lambda: app.execute("SELECT * FROM V"),
            "explain": lambda: app.execute("EXPLAIN SELECT * FROM Kid"),
            "analyze": lambda: app.execute("EXPLAIN ANALYZE SELECT * FROM Kid"),
            "explain dml": lambda: app.execute("EXPLAIN UPDATE Kid SET S = 'x'"),
            "past": lambda: app.execute(f"SELECT * FROM Kid AS OF TIMESTAMP '{before[0][0]}'"),
            "read": lambda: app.read("Kid"),
            "get": lambda: app.get("Kid", (1, 1)),
            "insert from": lambda: app.execute("INSERT INTO T SELECT 100 + K, K FROM Kid"),
            "create as": lambda: app.execute("CREATE TABLE Copy AS SELECT * FROM Kid"),
            "insert": lambda: app.insert("Kid", {"A": 1, "K": 7, "S": "x"}),
            "update": lambda: app.update("Kid", {"A": 1, "K": 7, "S": "y"}),
            "upsert": lambda: app.upsert("Kid", {"A": 1, "K": 8, "S": "x"}),
            "delete": lambda: app.delete("Kid", (1, 7)),
            "update by sql": lambda: app.execute("UPDATE Kid SET S = 'x'"),
            "snapshot": lambda: _in(app, "snapshot", "SELECT * FROM Kid"),
            "optimistic": lambda: _in(app, "optimistic", "SELECT * FROM Kid"),
            "pessimistic": lambda: _in(app, "pessimistic", "SELECT * FROM Kid FOR UPDATE"),
            "pessimistic write": lambda: _in(app, "pessimistic", "UPDATE Kid SET S = 'z'"),
        }
        denied = {name: await code_of(way()) for name, way in ways.items()}
        assert {name: code for name, code in denied.items() if code is not Code.PERMISSION_DENIED} == {}
        await boss.execute("GRANT ALL ON Kid TO app")
        await boss.execute("GRANT CREATE ON SCHEMA TO app")
        allowed = {name: await code_of(way()) for name, way in ways.items()}
        assert {name: code for name, code in allowed.items() if code is not None} == {}
        # Who creates a table may use it.
        assert await rows(app, "SELECT count(*) FROM Copy") == [(1,)]

    with_database(body, T, KID)


async def _in(conn: f1.aio.Connection, kind: str, sql: str) -> None:
    async with conn.transaction(kind) as tx:
        await tx.execute(sql)


def test_history_shows_the_changes_of_tables_that_may_be_read() -> None:
    async def body(db: Database) -> None:
        boss, app = await given(db, "GRANT SELECT ON T TO app")
        async with boss.transaction() as tx:
            await tx.insert("T", {"A": 1, "B": 1})
            await tx.insert("Kid", {"A": 1, "K": 1, "S": "secret"})
        await boss.insert("Kid", {"A": 1, "K": 2, "S": "secret"})
        await asyncio.sleep(5)
        everything = await rows(boss, "SELECT table_name FROM ChangeHistory_T ORDER BY 1")
        assert everything == [("Kid",), ("Kid",), ("T",)]
        assert await rows(app, "SELECT table_name FROM ChangeHistory_T") == [("T",)]
        batches, _ = await app.read_changes("T", (1,))
        assert [[change.table for change in batch.changes] for batch in batches] == [["T"]]
        # Of a table that is gone nobody but superusers sees the past.
        await boss.execute("DROP TABLE Kid")
        assert await rows(app, "SELECT table_name FROM ChangeHistory_T") == [("T",)]
        await boss.execute("REVOKE SELECT ON T FROM app")
        assert await code_of(app.execute("SELECT * FROM ChangeHistory_T")) is Code.PERMISSION_DENIED
        assert await code_of(app.read_changes("T", (1,))) is Code.PERMISSION_DENIED

    with_database(body, T, KID)


def test_rows_that_go_with_their_parent_need_no_right() -> None:
    async def body(db: Database) -> None:
        boss, app = await given(db, "GRANT DELETE ON T TO app")
        await boss.insert("T", {"A": 1, "B": 1})
        await boss.insert("Kid", {"A": 1, "K": 1, "S": "x"})
        await app.execute("DELETE FROM T")
        assert await rows(boss, "SELECT count(*) FROM Kid") == [(0,)]

    with_database(body, T, KID)


def test_administration_is_for_those_who_may() -> None:
    async def body(db: Database) -> None:
        boss, app = await given(db, "GRANT SELECT ON T TO app")
        session = app.session
        checks = pb.Check(plan=pb.CheckPlan())
        assert await code_of(session.check(checks, 10)) is Code.PERMISSION_DENIED
        order = pb.SchemaJobs(order=pb.SchemaJobs.CANCEL, number=1)
        assert await code_of(session.schema_jobs(order)) is Code.PERMISSION_DENIED
        files = [pb.SourceFile(name="s.sql", text=T)]
        assert await code_of(session.plan_schema(pb.PlanSchema(files=files), 10)) is Code.PERMISSION_DENIED
        for dry_run in (True, False):
            apply = pb.ApplySchema(files=files, dry_run=dry_run)
            assert await code_of(session.apply_schema(apply, 10)) is Code.PERMISSION_DENIED
        await boss.execute("GRANT CREATE ON SCHEMA TO app")
        more = [pb.SourceFile(name="s.sql", text=T + "; CREATE TABLE X (A INT64 PRIMARY KEY)")]
        await session.apply_schema(pb.ApplySchema(files=more), 60)
        await app.execute("INSERT INTO X VALUES (1)")
        roles = [pb.SourceFile(name="s.sql", text=T + "; CREATE ROLE app SUPERUSER")]
        assert await code_of(session.apply_schema(pb.ApplySchema(files=roles), 60)) is Code.PERMISSION_DENIED
        assert await code_of(session.check(checks, 10)) is Code.PERMISSION_DENIED
        assert (await boss.session.check(checks, 10)).parts

    with_database(body, T)


def test_cursors_and_transactions_are_those_of_their_role() -> None:
    async def body(db: Database) -> None:
        thief_too = "CREATE ROLE thief LOGIN PASSWORD 'x'"
        await given(db, thief_too, "GRANT ALL ON T TO thief, app")
        app, thief = await db.login("app", "app word", 0), await db.login("thief", "x", 0)
        await app.insert("T", [{"A": a, "B": a} for a in range(3000)])
        server = app.session.servers.all[0]
        execute = pb.Execute(sql="SELECT * FROM T", max_bytes=1)
        reply, _ = await app.session.execute(execute, Deadline.after(30), f1.servers.Resend.NEVER)
        assert reply.cursor
        other = thief.session.servers.all[0]
        await thief.session.close_cursor(other, reply.cursor)
        assert await code_of(thief.session.fetch(other, reply.cursor, Deadline.after(9))) is Code.NOT_FOUND
        assert (await app.session.fetch(server, reply.cursor, Deadline.after(9))).arrow
        begun, _ = await app.session.begin(pb.PESSIMISTIC, 0, Deadline.after(9))
        for commit in (False, True):
            ended = thief.session.end(other, begun.handle, [], Deadline.after(9), commit=commit)
            assert await code_of(ended) is (Code.ABORTED if commit else None)
        assert (await app.session.end(server, begun.handle, [], Deadline.after(9), commit=True)) is not None

    with_database(body, T)


def test_no_verifier_leaves_a_server() -> None:
    async def body(db: Database) -> None:
        boss, _ = await given(db)
        shown = await boss.session.show_schema()
        roles = schema_pb2.Schema.FromString(shown.schema).roles
        assert {role.name for role in roles} == {"app", "boss"} and not any(role.verifier for role in roles)
        stored = (await db.process().leases.current("default")).schema
        secrets = [part for role in stored.roles for part in role.verifier.split(":")[1:]]
        assert len(secrets) == 4
        jobs = await boss.session.schema_jobs(pb.SchemaJobs())
        plan = await boss.session.plan_schema(pb.PlanSchema(files=[pb.SourceFile(name="s.sql", text=T)]), 30)
        texts = [str(shown), str(jobs), str(plan), json.dumps(await rows(boss, "SHOW ROLES")), repr(stored)]
        texts.append(json.dumps(await rows(boss, "SHOW SCHEMA")))
        for secret in (*secrets, "app word", "boss word"):
            assert not [text for text in texts if secret in text]

    with_database(body, T)


# ---------------------------------------------------------------------- REVOKE


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
def test_after_revoke_nothing_commits_and_nothing_is_read_under_the_old_right(seed: int) -> None:
    """One server does not hear of the new version: it goes on under the old one until its lease ends, no longer."""

    async def body(db: Database) -> None:
        boss, _ = await given(db, "GRANT ALL ON T TO app")
        await boss.insert("T", [{"A": a, "B": 0} for a in range(4)])
        loop = asyncio.get_running_loop()
        boss = await db.login("boss", "boss word", 0)
        # The first server cannot tell the second of versions that it writes.
        db.world.partition(["f1-a"], ["f1-b"])
        worked: list[tuple[str, float]] = []
        refused: list[str] = []
        returned = float("inf")

        async def work(name: str, conn: f1.aio.Connection, kind: str, row: int) -> None:
            while loop.time() < returned + 5:
                began = loop.time()
                try:
                    if kind == "autocommit":
                        await conn.execute(f"UPDATE T SET B = B + 1 WHERE A = {row}")
                        await asyncio.sleep(0.1)
                    else:
                        async with conn.transaction(kind) as tx:
                            await tx.execute(f"UPDATE T SET B = B + 1 WHERE A = {row}")
                            await asyncio.sleep(0.3)
                    worked.append((name, began))
                except F1Error as error:
                    if error.code is Code.PERMISSION_DENIED:
                        refused.append(name)
                        await asyncio.sleep(0.1)
                    elif error.code not in (Code.ABORTED, Code.UNAVAILABLE):
                        raise

        tasks = []
        for number in (0, 1):
            for row, kind in enumerate(("autocommit", "optimistic", "pessimistic")):
                conn = await db.login("app", "app word", number)
                tasks.append(asyncio.create_task(work(f"{number} {kind}", conn, kind, row)))
        await asyncio.sleep(2)
        await boss.execute("REVOKE ALL ON T FROM app")
        returned = loop.time()
        left = await rows(boss, "SELECT A, B FROM T ORDER BY A")
        await asyncio.gather(*tasks)
        db.world.heal_links()
        # Nothing came after it, neither at once nor from a server that had not heard of it.
        assert await rows(boss, "SELECT A, B FROM T ORDER BY A") == left
        assert max(began for _, began in worked) < returned
        # Both servers worked before, each in every way.
        assert {name for name, _ in worked} == set(refused) and len(set(refused)) == 6

    with_database(body, T, seed=seed)


def test_a_transaction_that_began_before_revoke_does_not_commit_after_it() -> None:
    async def body(db: Database) -> None:
        boss, app = await given(db, "GRANT ALL ON T TO app")
        begun = []
        for row, kind in enumerate(("optimistic", "pessimistic")):
            tx = await (await db.login("app", "app word")).begin(kind)
            await tx.execute(f"INSERT INTO T VALUES ({row}, 1)")
            begun.append(tx)
        await boss.execute("REVOKE INSERT ON T FROM app")
        for tx in begun:
            assert await code_of(tx.commit()) is Code.PERMISSION_DENIED
        assert await rows(boss, "SELECT * FROM T") == []
        # What was prepared before is checked each time.
        assert await code_of(app.execute("INSERT INTO T VALUES (1, 1)")) is Code.PERMISSION_DENIED

    with_database(body, T)
