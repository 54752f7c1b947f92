"""Ids of new elements: entries of a global index lie in the group of its table, where the deal of ids allows for it."""

import pytest

from f1common.encoding import tuple as tuples
from f1server.catalog.adopt import adopt_ids
from f1server.catalog.compile import compile_sources, compile_statements
from f1server.catalog.ddl import parse_ddl
from f1server.catalog.ids import Ids, index_id
from f1server.catalog.schema import Schema
from f1server.schemachange.steps.moves import mirrored
from spanstore.placement.range_map import GLOBAL_INDEX_BASE, spread_tables

RANGES = spread_tables([0, 1, 2, 3, 4])


def group_of_table(number: int) -> int:
    return RANGES.group_of(tuples.encode((number,)))


def group_of_index(number: int) -> int:
    return group_of_table(GLOBAL_INDEX_BASE + number)


@pytest.mark.parametrize("first", range(1, 12))
@pytest.mark.parametrize("root", range(1, 9))
def test_an_index_takes_the_first_id_that_lies_with_its_table(first: int, root: int) -> None:
    ids = Ids(first, RANGES.group_of)
    number = ids.of_index(root)
    assert group_of_index(number) == group_of_table(root)
    assert first <= number < first + 4
    assert ids.next == number + 1


def test_an_id_of_anything_else_is_the_next_one() -> None:
    ids = Ids(7, RANGES.group_of)
    assert [ids(), ids(), index_id(ids, 1, local=True), ids.next] == [7, 8, 9, 10]


@pytest.mark.parametrize("group_of", [None, lambda _: None])
def test_where_nobody_knows_the_groups_the_next_one_does(group_of) -> None:
    ids = Ids(7, group_of)
    assert (ids.of_index(1), ids.next) == (7, 8)


def test_where_none_of_the_next_ids_lies_there_nothing_is_passed_over() -> None:
    """Ids that were not dealt are all in one group; so is what comes after a table that has moved."""
    ids = Ids(1_000, RANGES.group_of)
    assert (ids.of_index(1), ids.next) == (1_000, 1_001)
    assert (ids.of_index(2_000), ids.next) == (1_001, 1_002)


SOURCE = """
CREATE TABLE Parent (Id INT64 NOT NULL, Code STRING UNIQUE, PRIMARY KEY (Id));
CREATE TABLE Child (Id INT64 NOT NULL, N INT64 NOT NULL, V INT64, PRIMARY KEY (Id, N)) INTERLEAVE IN PARENT Parent;
CREATE TABLE Flat (N INT64 NOT NULL, Id INT64, PRIMARY KEY (N));
CREATE INDEX ChildV ON Child (V);
CREATE LOCAL INDEX ChildOwnV ON Child (Id, V);
CREATE INDEX FlatId ON Flat (Id);
"""


def lies_with_its_table(schema: Schema) -> set[str]:
    return {
        index.name
        for table in schema.tables
        for index in table.indexes
        if not index.local and group_of_index(index.id) == group_of_table(schema.root(table).id)
    }


@pytest.mark.parametrize("first", [1, 2, 3, 4])
def test_all_ways_to_make_an_index_choose_so(first: int) -> None:
    ids = Ids(first, RANGES.group_of)
    all_of_them = {"Parent_Code_key", "ChildV", "FlatId"}
    made = compile_statements(Schema("d"), parse_ddl(SOURCE), ids)
    assert lies_with_its_table(made) == all_of_them
    compiled = compile_sources("d", parse_ddl(SOURCE), [], Ids(1))
    assert lies_with_its_table(adopt_ids(Schema("d"), compiled, ids)) == all_of_them


def test_the_indexes_of_a_table_that_moves_go_with_it() -> None:
    ids = Ids(1, RANGES.group_of)
    old = compile_statements(Schema("d"), parse_ddl(SOURCE), ids)
    moved = SOURCE.replace(
        "CREATE TABLE Flat (N INT64 NOT NULL, Id INT64, PRIMARY KEY (N));",
        "CREATE TABLE Flat (N INT64 NOT NULL, Id INT64, PRIMARY KEY (Id, N)) INTERLEAVE IN PARENT Parent;",
    )
    compiled = compile_sources("d", parse_ddl(moved), [], Ids(1))
    goal = mirrored(old, adopt_ids(old, compiled, ids), ids)
    (flat,) = (table for table in goal.tables if table.mirror_of)
    assert group_of_table(goal.root(flat).id) != group_of_table(flat.mirror_of)
    assert lies_with_its_table(goal) == {"Parent_Code_key", "ChildV", "FlatId"}
