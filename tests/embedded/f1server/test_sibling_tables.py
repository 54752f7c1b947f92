"""Tables of one hierarchy whose keys look alike are told apart, whatever values their keys hold."""

from f1server.testing.database import Database, with_database

DDL = (
    "CREATE TABLE R (A INT64 NOT NULL, PRIMARY KEY (A))",
    "CREATE TABLE Wide (A INT64 NOT NULL, B INT64 NOT NULL, C INT64 NOT NULL, D INT64 NOT NULL, "
    "PRIMARY KEY (A, B, C, D)) INTERLEAVE IN PARENT R",
    "CREATE TABLE Kid (A INT64 NOT NULL, B INT64 NOT NULL, PRIMARY KEY (A, B)) INTERLEAVE IN PARENT R",
    "CREATE TABLE Grand (A INT64 NOT NULL, B INT64 NOT NULL, X INT64 NOT NULL, PRIMARY KEY (A, B, X)) "
    "INTERLEAVE IN PARENT Kid",
)


def test_a_key_value_that_equals_a_table_id_is_not_taken_for_one() -> None:
    async def body(db: Database) -> None:
        grand = (await db.process().leases.current("default")).schema.table("Grand").id
        await db.conn.insert("R", [{"A": 1}])
        # Root id, 1, id of Wide, 2, id of Grand as a value, 7: as long as a key of Grand, with the id where it has it.
        await db.conn.insert("Wide", [{"A": 1, "B": 2, "C": grand, "D": 7}])
        await db.conn.insert("Kid", [{"A": 1, "B": 2}])
        await db.conn.insert("Grand", [{"A": 1, "B": 2, "X": 5}])
        assert await db.rows("SELECT A, B, X FROM Grand") == [(1, 2, 5)]
        assert await db.rows("SELECT count(*) FROM Grand") == [(1,)]
        assert await db.rows("SELECT A, B, C, D FROM Wide") == [(1, 2, grand, 7)]

    with_database(body, *DDL)
