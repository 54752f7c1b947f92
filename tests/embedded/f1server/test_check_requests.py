"""Steps of a check that nobody should ask for."""

import pytest

from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from f1server.catalog.schema import Schema
from f1server.testing.database import Database
from tests.embedded.f1server.test_check import check, run


@pytest.mark.parametrize(
    ("step", "code", "words"),
    [
        (pb.Check(), Code.INVALID_ARGUMENT, "a step of a check"),
        (pb.Check(plan=pb.CheckPlan(tables=["Plaice"])), Code.NOT_FOUND, "did you mean Place"),
        (pb.Check(part=pb.CheckPart(start=b"a", end=b"a", timestamp=1)), Code.INVALID_ARGUMENT, "start < end"),
        (pb.Check(part=pb.CheckPart(start=b"a", end=b"b", timestamp=-1)), Code.INVALID_ARGUMENT, "timestamp"),
        (pb.Check(part=pb.CheckPart(start=b"a", end=b"b")), Code.INVALID_ARGUMENT, "its plan's timestamp"),
        (pb.Check(keep="nobody's"), Code.NOT_FOUND, "there is no pin"),
    ],
)
def test_bad_requests_are_refused(step: pb.Check, code: Code, words: str) -> None:
    async def body(db: Database, schema: Schema) -> None:
        with pytest.raises(F1Error, match=words) as caught:
            await db.conn.session.check(step, 10)
        assert caught.value.code is code
        if step.WhichOneof("step") == "part":
            return
        assert await db.storage.pins.list() == []

    run(body)


def test_kinds_of_parts_that_this_server_does_not_know_are_refused() -> None:
    async def body(db: Database, schema: Schema) -> None:
        for kind in (-1, 4, 1_000):
            part = pb.CheckPart(start=b"a", end=b"b", timestamp=1)
            part.kind = kind  # type: ignore[assignment]
            with pytest.raises(F1Error, match="a kind that this server does not know") as caught:
                await db.conn.session.check(pb.Check(part=part), 10)
            assert caught.value.code is Code.INVALID_ARGUMENT

    run(body)


def test_parts_of_another_schema_are_refused() -> None:
    async def body(db: Database, schema: Schema) -> None:
        plan = await db.conn.session.check(pb.Check(plan=pb.CheckPlan()), 10)
        for table_id, index_id, kind in ((900_000, 0, 0), (schema.table("R").id, 900_000, 1)):
            part = pb.CheckPart(start=b"a", end=b"b", table_id=table_id, index_id=index_id, timestamp=plan.timestamp)
            part.kind = pb.CheckPart.Kind.Name(kind)  # type: ignore[assignment]
            with pytest.raises(F1Error, match="plan the check anew") as caught:
                await db.conn.session.check(pb.Check(part=part), 10)
            assert caught.value.code is Code.INVALID_ARGUMENT

    run(body)


def test_an_unknown_database_cannot_be_checked() -> None:
    async def body(db: Database, schema: Schema) -> None:
        db.conn.session.database = "nowhere"
        with pytest.raises(F1Error, match="no database nowhere") as caught:
            await check(db)
        assert caught.value.code is Code.NOT_FOUND

    run(body)
