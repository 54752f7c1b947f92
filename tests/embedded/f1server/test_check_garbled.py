"""Index entries whose values cannot be read: each is reported and made right, and all else is checked as well."""

from f1common.encoding.row import encode_row
from f1server.catalog.schema import Schema
from f1server.testing.database import Database
from tests.embedded.f1server.test_check import check, entry, found, plant, run, stored


def test_entries_whose_values_cannot_be_read_are_found_and_made_right() -> None:
    async def body(db: Database, schema: Schema) -> None:
        garbled = {
            entry(schema, "R", "RV", (3,), V=4): b"\xff\xff\xff",
            entry(schema, "R", "RV", (5,), V=6): encode_row({4711: "of no column"}),
            entry(schema, "Kid", "KidV", (5, 1), V=51): b"\xff",
            entry(schema, "Place", "PlaceName", (2,), Name="n2"): b"\xff",
        }
        right = [await stored(db, key) for key in garbled]
        nobodys = entry(schema, "Place", "PlaceName", (9,), Name="nobody")
        await plant(db, *garbled.items(), (nobodys, b"\xff"))
        result = await check(db, repair=True)
        assert {(group.table, group.element) for group in result.findings} == {
            ("R", "RV"),
            ("Kid", "KidV"),
            ("Place", "PlaceName"),
        }
        assert result.left == 0
        assert [await stored(db, key) for key in garbled] == right
        assert (await db.storage.read([nobodys])).values() == [None]
        assert found(await check(db)) == []

    run(body)
