"""Random changes of a table with rows: each is made wholly, or fails and leaves schema and rows as they were."""

import random
from dataclasses import replace
from typing import Any

import pytest

import f1
from f1common.errors import Code
from f1server.catalog.schema import ElementState, Schema, Table
from f1server.testing.checks import check_indexes
from f1server.testing.database import Database, with_database
from tests.amounts import some

PARENT = "CREATE TABLE P (X INT64 PRIMARY KEY);"
KID = "CREATE TABLE Kid (K INT64, J INT64, V INT64, PRIMARY KEY (K, J)) INTERLEAVE IN PARENT R;"
BASE = """
CREATE TABLE R (K INT64 PRIMARY KEY, A INT64, B VARCHAR(10) DEFAULT 'b', C DECIMAL(6, 2) NOT NULL DEFAULT 1, D INT64,
  E INT64 NOT NULL, LOCK L (A, B));
CREATE INDEX I1 ON R (A, B); CREATE UNIQUE INDEX I2 ON R (D); CREATE INDEX I3 ON R (C) STORING (E);
"""
OLD = {
    "A": [("INT64", "")],
    "B": [
        ("VARCHAR(10)", "DEFAULT 'b'"),
        ("VARCHAR(20)", "DEFAULT 'longer than ten'"),
        ("STRING", ""),
        ("STRING", "NOT NULL DEFAULT 'b'"),
    ],
    "C": [("DECIMAL(6, 2)", "NOT NULL DEFAULT 1"), ("DECIMAL(9, 2)", ""), ("DECIMAL(6, 2)", "CHECK ({} < 9)")],
    "D": [("INT64", ""), *(("INT64", rest) for rest in ("NOT NULL", "CHECK ({} > -5)", "UNIQUE", "REFERENCES P"))],
    "E": [("INT64", "NOT NULL"), ("INT64", "")],
}
NEW = ["INT64", "INT64 DEFAULT 7", "STRING NOT NULL DEFAULT 'n'", "INT64 NOT NULL", "INT64 DEFAULT 7 REFERENCES P"]


def _sources(rng: random.Random) -> str:
    """Return sources with other columns, locks and indexes, some renamed; the table of rows below may be gone."""
    columns, names = [], []
    for old, definitions in OLD.items():
        if rng.random() < 0.2:
            continue
        name = rng.choice([old, old, old, f"{old}2"])
        renamed = f" RENAMED FROM {old}" if name != old else ""
        kind, rest = rng.choice([definitions[0], *definitions])
        columns.append(f"{name} {kind}{renamed} {rest.format(name)}")
        names.append(name)
    for number in range(rng.randrange(3)):
        names.append(f"N{number}")
        columns.append(f"N{number} {rng.choice(NEW)}")
    locks = [f"LOCK L ({', '.join(rng.sample(names, 2))})"] if len(names) > 1 and rng.random() < 0.5 else []
    indexes = [
        f"CREATE {rng.choice(['', 'UNIQUE '])}INDEX {rng.choice('IJ')}{number} ON R ({rng.choice(names)});"
        for number in range(1, 4)
        if names and rng.random() < 0.6
    ]
    table = f"CREATE TABLE R ({', '.join(['K INT64 PRIMARY KEY', *columns, *locks])});"
    return PARENT + table + "".join(indexes) + rng.choice([KID, ""])


def _comparable(table: Table) -> Table:
    """Return a table without the order of what is in it, and without what names its columns had meanwhile."""

    def ordered(elements: Any) -> tuple[Any, ...]:
        return tuple(sorted(elements, key=lambda element: element.id))

    return replace(
        table,
        columns=ordered(replace(c, former_names=()) for c in table.columns),
        locks=ordered(replace(lock, column_ids=tuple(sorted(lock.column_ids))) for lock in table.locks),
        indexes=ordered(table.indexes),
        checks=ordered(table.checks),
        foreign_keys=ordered(table.foreign_keys),
    )


async def _state(db: Database) -> list[object]:
    schema = await _schema(db)
    rows = [await db.rows(f"SELECT * FROM {table} ORDER BY K") for table in ("R", "Kid")]
    return [sorted(map(_comparable, schema.tables), key=lambda table: table.id), rows]


async def _schema(db: Database) -> Schema:
    return (await db.process().leases.current("default")).schema


@pytest.mark.parametrize("seed", some(range(4), range(4, 100)))
def test_a_change_is_made_wholly_or_leaves_nothing(seed: int) -> None:
    async def body(db: Database) -> None:
        rng = random.Random(seed)
        await db.conn.apply_schema({"base.sql": PARENT + BASE + KID})
        await db.conn.insert("P", [{"X": x} for x in range(3)])
        ds = [None if rng.random() < 0.1 else k for k in range(12)]
        await db.conn.insert("R", [{"K": k, "A": k, "B": f"b{k}", "C": k, "D": ds[k], "E": k % 3} for k in range(12)])
        await db.conn.insert("Kid", [{"K": k, "J": 1, "V": k} for k in range(5)])
        for _ in range(6):
            before = await _state(db)
            try:
                await db.conn.apply_schema({"new.sql": _sources(rng)}, allow_data_loss=True)
            except f1.Error as error:
                assert error.code in (Code.FAILED_PRECONDITION, Code.ALREADY_EXISTS), error
                assert "taken back" not in str(error)
                assert await _state(db) == before
            else:
                break
        schema = await _schema(db)
        elements: list[Any] = [
            e for t in schema.tables for e in (*t.columns, *t.indexes, *t.checks, *t.foreign_keys, *t.locks)
        ]
        assert {element.state for element in elements} == {ElementState.PUBLIC}
        assert not await check_indexes(db.storage, schema, db.storage.strong_timestamp())

    with_database(body)
