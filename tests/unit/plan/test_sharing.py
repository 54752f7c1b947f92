"""A part reads a table once, however often its query names it."""

from f1server.plan.parts import DistributedPlan
from f1server.plan.prepare import prepare
from f1server.plan.spread import JoinOptions, spread
from f1server.plan.statements import QueryStatement, parse
from f1server.testing.embedded import Connection, EmbeddedDatabase
from f1server.testing.spread import MemoryStatistics

DDL = """
CREATE TABLE Orders (O INT64 NOT NULL, Status STRING, PRIMARY KEY (O));
CREATE TABLE Item (O INT64 NOT NULL, N INT64 NOT NULL, Supplier INT64, Late BOOL, PRIMARY KEY (O, N))
  INTERLEAVE IN PARENT Orders;
"""
ALONE_LATE = """
SELECT a.Supplier, count(*) FROM Orders o JOIN Item a USING (O)
WHERE a.Late AND EXISTS (SELECT 1 FROM Item b WHERE b.O = a.O AND b.Supplier <> a.Supplier)
  AND NOT EXISTS (SELECT 1 FROM Item c WHERE c.O = a.O AND c.Supplier <> a.Supplier AND c.Late)
GROUP BY a.Supplier ORDER BY 1
"""


def database(**options: object) -> EmbeddedDatabase:
    made = EmbeddedDatabase(**options)  # type: ignore[arg-type]
    made.apply(DDL)
    cursor = Connection(made).cursor()
    cursor.execute("INSERT INTO Orders SELECT i, 'F' FROM range(1, 41) t(i)")
    cursor.execute("INSERT INTO Item SELECT 1 + i / 3, i, i % 7, i % 5 = 0 FROM range(0, 120) t(i)")
    return made


def planned(made: EmbeddedDatabase, sql: str) -> DistributedPlan:
    (statement,) = parse(sql)
    assert isinstance(statement, QueryStatement)
    prepared = prepare(made.schema, statement.sql, statement.ast.copy())
    return spread(prepared, (), 0, MemoryStatistics(made.tables, factor=1_000), JoinOptions())


def test_items_of_an_order_are_read_once_where_the_order_is() -> None:
    plan = planned(database(), ALONE_LATE)
    scans = [scan.planned for part in plan.parts for scan in part.scans]
    assert [(s.scan.table.name, len(s.views)) for s in scans] == [("Item", 3), ("Orders", 0)]
    assert not plan.parts[0].inputs, "what lies together joins without moving"


def test_a_shared_scan_answers_as_three() -> None:
    answers = []
    for joins in (None, JoinOptions()):
        cursor = Connection(database(joins=joins, batch_rows=2)).cursor()
        cursor.execute(ALONE_LATE)
        answers.append(cursor.fetchall())
    assert answers[0] == answers[1]
    assert answers[0]
