"""Enums that indexes and checks read: only numbers that have a name, since a later name would change what they read."""

import pytest

from f1.checking import check_database
from f1common.encoding.row import decode_row, encode_row
from f1common.errors import Code, F1Error
from f1server.catalog.schema import Schema
from f1server.rows.keys import row_key
from f1server.testing.database import Database, with_database
from spanstore.client import Write

TABLE = "CREATE TABLE C (A INT64 NOT NULL, M PROTO<x.M>, PRIMARY KEY (A)"
INDEX = "CREATE INDEX CMood ON C (M.mood);"
PROTO = 'syntax = "proto3"; package x; enum Mood { GOOD = 0; BAD = 1; } message M { string name = 1; Mood mood = 3; }'
LATER_PROTO = PROTO.replace("BAD = 1;", "BAD = 1; FAIR = 7;")
FAIR = b"\x18\x07"
"""A message whose mood is 7."""


async def schema_of(db: Database) -> Schema:
    return (await db.process().leases.current("default")).schema


@pytest.mark.parametrize(
    ("table", "index"), [(TABLE + ");", INDEX), (TABLE + ", CONSTRAINT Good CHECK (M.mood <> 'FAIR'));", "")]
)
def test_numbers_of_enums_have_names_before_indexes_and_checks_read_them(table: str, index: str) -> None:
    """Of a number without a name they would read the digits, and a later name would make that wrong."""

    async def body(db: Database) -> None:
        await db.conn.apply_schema({"schema.sql": TABLE + ");", "x.proto": PROTO})
        await db.conn.insert("C", [{"A": 1, "M": b"\x18\x01"}, {"A": 2, "M": FAIR}])
        with pytest.raises(F1Error, match=r"7 is no value of the enum x\.Mood") as refused:
            await db.conn.apply_schema({"schema.sql": table + index, "x.proto": PROTO})
        assert "(A) = (2)" in refused.value.message
        unchanged = (await schema_of(db)).table("C")
        assert (unchanged.indexes, unchanged.checks) == ((), ())
        await db.conn.execute("DELETE FROM C WHERE A = 2")
        await db.conn.apply_schema({"schema.sql": table + index, "x.proto": PROTO})
        for write in (db.conn.insert, db.conn.update, db.conn.upsert):
            with pytest.raises(F1Error, match=r"7 is no value of the enum x\.Mood") as raised:
                await write("C", {"A": 3 if write == db.conn.insert else 1, "M": FAIR})
            assert raised.value.code is Code.FAILED_PRECONDITION
        # From here on it has a name: what is written now is read by it, everywhere.
        await db.conn.apply_schema({"schema.sql": table + index, "x.proto": LATER_PROTO})
        if index:
            await db.conn.insert("C", {"A": 3, "M": FAIR})
            found_by_name = await db.conn.execute("SELECT A FROM C WHERE M.mood = 'FAIR'")
            assert await found_by_name.fetchall() == [(3,)]
        else:
            with pytest.raises(F1Error, match="check Good"):
                await db.conn.insert("C", {"A": 3, "M": FAIR})
        assert (await check_database(db.conn.session)).findings == []

    with_database(body)


def test_a_server_that_does_not_know_the_name_of_a_number_leaves_the_row_and_says_to_try_again() -> None:
    """Under the newer schema, the row's entry holds the name; the digits would leave that entry behind."""

    async def body(db: Database) -> None:
        await db.conn.apply_schema({"schema.sql": TABLE + ");" + INDEX, "x.proto": PROTO})
        await db.conn.insert("C", {"A": 1, "M": b"\x18\x01"})
        schema = await schema_of(db)
        key = row_key(schema, schema.table("C"), (1,))
        (version,) = (await db.storage.read([key])).versions
        assert version is not None and version.value is not None
        column = schema.table("C").column("M").id
        await db.storage.commit([Write(key, encode_row({**decode_row(version.value), column: FAIR}))])
        for sql in ("DELETE FROM C WHERE A = 1", "UPDATE C SET M = NULL WHERE A = 1"):
            with pytest.raises(F1Error, match="another schema may have it") as raised:
                await db.conn.execute(sql)
            assert raised.value.code is Code.ABORTED
        assert [group.kind for group in (await check_database(db.conn.session)).findings] == ["unreadable"]

    with_database(body)
