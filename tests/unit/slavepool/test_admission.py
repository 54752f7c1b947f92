"""What a slave refuses before it holds anything for it."""

from collections.abc import Callable

import pytest

from f1common.errors import Code, F1Error
from f1common.pb import slave_pb2 as pb
from slavepool.assignment import SchemaCache, assignment_from_pb
from tests.unit.slavepool.test_service import db_of_one, start

Change = Callable[[pb.Start], object]

DAMAGE: dict[str, Change] = {
    "two parts of one id": lambda s: s.parts.add().CopyFrom(s.parts[0]),
    "a part without a consumer": lambda s: s.parts[0].outputs.pop(),
    "an input that nobody gives": lambda s: s.parts[0].inputs.update({"y": 9}),
    "an unknown table": lambda s: setattr(s.parts[0].scans[0].scan, "table_id", 99),
    "an unknown column": lambda s: setattr(s.parts[0].scans[0].scan.columns[0], "column_id", 99),
    "more names than columns": lambda s: s.parts[0].scans[0].names.append("B"),
    "a relation that is SQL": lambda s: setattr(s.parts[0].scans[0], "relation", "t AS SELECT 1; --"),
    "a key that is too long": lambda s: (
        s.parts[0].scans[0].scan.spans.add(prefix=[pb.Value(integer="1"), pb.Value(integer="2")])
    ),
    "a comparison with nothing": lambda s: (
        s.parts[0].scans[0].scan.predicates.add(column=s.parts[0].scans[0].scan.columns[0], op="EQ")
    ),
    "a lookup in what is not read": lambda s: setattr(s.parts[0].scans[0].lookup, "relation", "nobody"),
    "a function under another's name": lambda s: s.parts[0].functions.add(
        name="f1_proto_0", action="to_json", message="M", result=pb.SqlType(kind="STRING")
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_starts(name: str) -> None:
    message = start(db_of_one())
    assignment_from_pb(message, SchemaCache())
    DAMAGE[name](message)
    with pytest.raises(F1Error) as caught:
        assignment_from_pb(message, SchemaCache())
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_a_schema_that_is_none() -> None:
    with pytest.raises(F1Error) as caught:
        assignment_from_pb(start(db_of_one(), schema=b"\xff\xff"), SchemaCache())
    assert caught.value.code is Code.DATA_CORRUPTION
