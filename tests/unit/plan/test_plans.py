"""Plans as golden text: `tests/golden/plans/*.txt`, an EXPLAIN, `---`, its answer.

`python tests/unit/plan/test_plans.py --rewrite` writes the answers anew.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from f1server.catalog.compile import compile_sources
from f1server.catalog.ddl import parse_ddl
from f1server.catalog.schema import Schema
from f1server.plan.dml import prepare_dml
from f1server.plan.explain import as_text, explain
from f1server.plan.planning import Evaluated, access
from f1server.plan.prepare import prepare
from f1server.plan.scans import FieldWanted, PredicateOp
from f1server.plan.statements import ExplainStatement, QueryStatement, parse

FILES = sorted((Path(__file__).parents[2] / "golden" / "plans").glob("*.txt"))
PARAMS = (11, 12, 13)

PROTO = """syntax = "proto3"; package adwords;
message CustomerInfo { string country_code = 1; optional int64 age = 2; }
message Whitelist { repeated Feature feature = 1; }
message Feature { int64 feature = 1; Status status = 2; enum Status { STATUS_DISABLED = 0; STATUS_ENABLED = 1; } }
"""
DDL = """
CREATE TABLE Customer (CustomerId INT64 NOT NULL, Name STRING, Email STRING, Info PROTO<adwords.CustomerInfo>,
  Whitelist PROTO<adwords.Whitelist>, PRIMARY KEY (CustomerId));
CREATE TABLE Campaign (CustomerId INT64 NOT NULL, CampaignId INT64 NOT NULL, Name STRING, Budget NUMERIC, Started DATE,
  PRIMARY KEY (CustomerId, CampaignId)) INTERLEAVE IN PARENT Customer;
CREATE TABLE AdGroup (CustomerId INT64 NOT NULL, CampaignId INT64 NOT NULL, AdGroupId INT64 NOT NULL, Name STRING,
  PRIMARY KEY (CustomerId, CampaignId, AdGroupId)) INTERLEAVE IN PARENT Campaign;
CREATE LOCAL INDEX CampaignByName ON Campaign (CustomerId, Name);
CREATE INDEX CustomerByName ON Customer (Name);
CREATE INDEX CampaignByStart ON Campaign (Started) STORING (Name);
CREATE INDEX ByCountry ON Customer (Info.country_code);
CREATE UNIQUE INDEX ByEmail ON Customer (Email);
CREATE VIEW Big AS SELECT CustomerId AS Customer, CampaignId AS Id, Name FROM Campaign WHERE Budget > 1;
"""


def adwords() -> Schema:
    ids = iter(range(64, 1000))
    statements: list[Any] = list(parse_ddl(DDL))
    return compile_sources("d", statements, [("adwords.proto", PROTO)], lambda: next(ids))


def plan(schema: Schema, sql: str) -> str:
    (statement,) = parse(sql)
    assert isinstance(statement, ExplainStatement)
    inner = statement.statement
    if isinstance(inner, QueryStatement):
        as_of = inner.as_of.copy() if inner.as_of is not None else None
        found = explain(prepare(schema, inner.sql, inner.ast.copy(), as_of).bind(PARAMS, 0))
    else:
        found = explain(prepare_dml(schema, inner).bind(PARAMS, 0))
    json.dumps(found)
    return "\n".join(as_text(found))


def blocks(text: str) -> list[tuple[str, str, str]]:
    """Return (comment, statement, answer) of each block."""
    found = []
    for block in text.strip().split("\n\n"):
        head, _, answer = block.partition("\n---")
        comments = [line for line in head.split("\n") if line.startswith("#")]
        statement = [line for line in head.split("\n") if not line.startswith("#")]
        found.append(("\n".join(comments), "\n".join(statement), answer.strip("\n")))
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_plans(path: Path) -> None:
    schema = adwords()
    for _, statement, answer in blocks(path.read_text()):
        assert plan(schema, statement) == answer, statement


def rewrite() -> None:
    schema = adwords()
    for path in FILES:
        parts = []
        for comment, statement, _ in blocks(path.read_text()):
            parts.append("\n".join([*([comment] if comment else []), statement, "---", plan(schema, statement)]))
        path.write_text("\n\n".join(parts) + "\n")


if __name__ == "__main__" and "--rewrite" in sys.argv:
    rewrite()


def test_a_comparison_with_null_is_no_span_of_keys() -> None:
    """No span at all would be taken for the whole table, or worse, for an index with what lies beside it."""
    first, second = FieldWanted(1), FieldWanted(2)
    null, one = Evaluated(first, PredicateOp.EQ, ()), Evaluated(first, PredicateOp.EQ, (1,))
    assert access([first, second], [null]) is None
    assert access([first, second], [null, one]) == access([first, second], [one])
