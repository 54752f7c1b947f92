"""Repairs of what is left over from dropped elements, and of copies of the schema that differ."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from f1common.encoding import tuple as tuples
from f1common.encoding.row import encode_row
from f1server.catalog.codec import encode_schema
from f1server.catalog.places import PLACES, database_key, schema_key
from f1server.catalog.schema import Schema
from f1server.check import checker, strays
from f1server.check.findings import Stray
from f1server.check.strays import remove_strays, unknown_id
from f1server.rows.keys import row_key
from f1server.rows.layout import HISTORY_ID, LOCAL_INDEX_BASE
from f1server.testing.database import Database
from tests.embedded.f1server.test_check import check, found, plant, run, schema_of, stored


async def dropped(db: Database) -> list[bytes]:
    """Plant what a drop should have removed: rows, entries of a global and of a local index, below a root and not."""
    await db.ddl(
        "CREATE TABLE Gone (G INT64, V INT64, PRIMARY KEY (G))",
        "CREATE INDEX GoneV ON Gone (V)",
        "CREATE TABLE Pet (A INT64, B INT64, V INT64, PRIMARY KEY (A, B)) INTERLEAVE IN PARENT R",
        "CREATE LOCAL INDEX PetV ON Pet (A, V)",
    )
    schema = await schema_of(db)
    gone, pet, r = schema.table("Gone"), schema.table("Pet"), schema.table("R")
    await db.ddl("DROP TABLE Gone CASCADE", "DROP TABLE Pet CASCADE")
    keys = [
        row_key(schema, gone, (7,)),
        tuples.encode((LOCAL_INDEX_BASE + gone.index("GoneV").id, 7, 7)),
        row_key(schema, pet, (3, 1)),
        row_key(schema, r, (3,)) + tuples.encode((LOCAL_INDEX_BASE + pet.index("PetV").id, 1, 1)),
    ]
    await plant(db, *((key, encode_row({})) for key in keys))
    return keys


async def there(db: Database, keys: Sequence[bytes]) -> int:
    versions = (await db.storage.read(keys)).versions
    return sum(version is not None and version.value is not None for version in versions)


LEFT_OVER = [(1, "no table", "", "", 2), (1, "no table", "R", "", 1), (3, "no index", "R", "", 1)]


def test_what_is_left_over_from_dropped_elements_is_deleted() -> None:
    async def body(db: Database, schema: Schema) -> None:
        keys = await dropped(db)
        assert found(await check(db)) == LEFT_OVER and await there(db, keys) == 4
        result = await check(db, repair=True)
        assert found(result) == LEFT_OVER and result.left == 0
        assert await there(db, keys) == 0
        assert found(await check(db)) == []

    run(body)


def test_what_this_server_may_not_know_yet_is_only_reported() -> None:
    """Ids that were never given out, and keys of no known form."""

    async def body(db: Database, schema: Schema) -> None:
        root = row_key(schema, schema.table("R"), (2,))
        keys = [
            tuples.encode((900_000, 1)),
            tuples.encode((LOCAL_INDEX_BASE + 900_001, 1)),
            root + tuples.encode((900_002, 1)),
            tuples.encode((HISTORY_ID + 900_003, 1)),
        ]
        await plant(db, *((key, encode_row({})) for key in keys))
        result = await check(db, repair=True)
        assert result.left == sum(group.count for group in result.findings) == 4
        assert await there(db, keys) == 4

    run(body)


def test_a_stray_that_somebody_has_written_again_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(db: Database, schema: Schema) -> None:
        keys = await dropped(db)

        async def later(client: Any, found: Sequence[Stray]) -> list[bool]:
            if any(stray.key == keys[0] for stray in found):
                await plant(db, (keys[0], encode_row({1: 1})), (keys[1], None))
            return await remove_strays(client, found)

        monkeypatch.setattr(checker, "remove_strays", later)
        result = await check(db, repair=True)
        assert result.left == 1
        assert [await there(db, [key]) for key in keys] == [1, 0, 0, 0]

    run(body)


def test_a_repair_that_did_not_look_again_would_delete_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    async def careless(client: Any, found: Sequence[Stray]) -> list[bool]:
        versions = (await client.read([stray.key for stray in found])).versions
        now = [Stray(s.key, v.ts if v is not None else 0) for s, v in zip(found, versions, strict=True)]
        return await careful(client, now)

    careful = strays._remove
    monkeypatch.setattr(strays, "_remove", careless)
    with pytest.raises(AssertionError):
        test_a_stray_that_somebody_has_written_again_stays(monkeypatch)


def test_keys_of_known_elements_have_no_unknown_id() -> None:
    async def body(db: Database, schema: Schema) -> None:
        kid = schema.table("Kid")
        key = row_key(schema, kid, (1, 2))
        assert unknown_id(key, [schema]) == 0
        assert unknown_id(key, [Schema("other")]) == schema.table("R").id
        assert unknown_id(key + tuples.encode((77, 1)), [Schema("other"), schema]) == 77
        assert unknown_id(key + tuples.encode((kid.id, 1)), [schema]) == 0  # no table there, but one elsewhere
        assert unknown_id(tuples.encode((LOCAL_INDEX_BASE + kid.index("KidV").id, 1)), [schema]) == 0
        for odd in (b"\xff\x00", b"", tuples.encode(("a",)), tuples.encode((-3,)), tuples.encode((HISTORY_ID,))):
            assert unknown_id(odd, [schema]) == 0

    run(body)


async def at(db: Database, place: int) -> tuple[bytes, bytes]:
    return await stored(db, schema_key("default", place)), await stored(db, database_key("default", place))


@pytest.mark.parametrize("place", PLACES[1:])
@pytest.mark.parametrize("how", ["differs", "is missing", "cannot be read"])
def test_a_copy_of_the_schema_that_differs_is_found_and_written_as_the_others_are(place: int, how: str) -> None:
    async def body(db: Database, schema: Schema) -> None:
        before = await at(db, PLACES[0])
        other = encode_schema(replace(schema, tables=schema.tables[:1]))
        values = {"differs": other, "is missing": None, "cannot be read": b"\xc1"}
        await plant(db, (schema_key("default", place), values[how]))
        (group,) = (await check(db)).findings
        assert (group.clause, group.kind, group.count) == (7, "schema copy", 1) and how in group.examples[0][1]
        repaired = await check(db, repair=True)
        assert found(repaired) == [(7, "schema copy", "", "", 1)] and repaired.left == 0
        assert [await at(db, each) for each in PLACES] == [before] * 3
        assert found(await check(db)) == []
        await db.ddl("CREATE TABLE After (A INT64, PRIMARY KEY (A))")

    run(body)


def test_tables_that_the_first_copy_has_lost_are_no_strays() -> None:
    """The check goes by it, so that the rows of all other tables seem to belong to nothing; the others know better."""

    async def body(db: Database, schema: Schema) -> None:
        before = await at(db, PLACES[0])
        await plant(db, (schema_key("default", PLACES[0]), encode_schema(replace(schema, tables=schema.tables[:1]))))
        result = await check(db, repair=True)
        repaired = {group.kind: group.repaired for group in result.findings}
        assert repaired["no table"] == 0 and repaired["schema copy"] == 1
        assert [await at(db, each) for each in PLACES] == [before] * 3
        after = await check(db)
        assert (found(after), after.rows, after.entries) == ([], 4 + 12 + 36 + 12, 4 + 12 + 12 + 36)

    run(body)


def test_without_the_other_copies_all_their_rows_would_go(monkeypatch: pytest.MonkeyPatch) -> None:
    async def careless(*_: Any) -> bool:
        return True

    monkeypatch.setattr(checker, "all_even", careless)
    with pytest.raises(AssertionError):
        test_tables_that_the_first_copy_has_lost_are_no_strays()


def test_where_no_two_copies_are_equal_nobody_says_which_is_right() -> None:
    async def body(db: Database, schema: Schema) -> None:
        for number, place in enumerate(PLACES[1:]):
            other = encode_schema(replace(schema, version=schema.version + 1 + number))
            await plant(db, (schema_key("default", place), other))
        result = await check(db, repair=True)
        (group,) = [group for group in result.findings if group.kind == "schema copy"]
        assert (group.count, group.repaired) == (3, 0)
        assert "no two copies are equal" in group.examples[0][1]

    run(body)
