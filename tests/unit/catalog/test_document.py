"""The statements in docs/schema.md do what the document says."""

import re
from pathlib import Path

from f1common.encoding import tuple as tuples
from f1server.catalog.compile import compile_sources, compile_statements
from f1server.catalog.ddl import parse_ddl
from f1server.catalog.places import database_key, lease_key, schema_key
from f1server.catalog.schema import Kind, Schema
from f1server.catalog.types import column_type
from tests.unit.catalog.samples import PROTOS, after, ids

DOCUMENT = (Path(__file__).resolve().parents[3] / "docs" / "schema.md").read_text()
BLOCKS = re.findall(r"```sql\n(.*?)```", DOCUMENT, re.DOTALL)


def test_its_statements_run_in_order():
    schema = compile_sources("d", [], PROTOS, ids())
    drawn = ids()
    for block in BLOCKS[:-1]:
        schema = compile_statements(schema, parse_ddl(block), drawn)
    assert [t.name for t in schema.tables] == ["Customer", "Campaign", "AdClick", "Invoice"]
    campaign = schema.table("Campaign")
    assert {i.name: i.local for i in campaign.indexes} == {
        "Campaign_CustomerId_Name_key": True,
        "CampaignByBudget": False,
        "CampaignByName": True,
    }
    invoice = schema.table("Invoice")
    assert [(c.name, c.type.sql()) for c in invoice.columns][3:] == [("Amount", "DECIMAL(12, 2)")]
    assert [[x.name for x in found] for found in (invoice.checks, invoice.locks)] == [["Invoice_check"], []]
    assert [i.name for i in invoice.indexes] == [
        "Invoice_CustomerId_fkey_idx",
        "Invoice_CustomerId_CampaignId_fkey_idx",
    ]
    assert compile_statements(schema, parse_ddl(BLOCKS[-1]), drawn).tables == ()


def test_every_type_and_alias_is_one():
    rows = re.findall(r"^\| `([A-Z]\w+)` \| (.*?) \|", DOCUMENT, re.MULTILINE)
    assert {kind for kind, _ in rows} == {kind.value for kind in Kind} - {"PROTO"}
    for kind, aliases in rows:
        for alias in [kind, *re.findall(r"`([^`]+)`", aliases)]:
            (statement,) = parse_ddl(f"CREATE TABLE t (a {alias.replace('(n)', '(5)').replace('(p, s)', '(9, 2)')})")
            assert statement.columns[0].type.kind.value == kind
    assert column_type("int").kind is Kind.INT64


def test_reserved_names_cannot_collide_with_rows():
    system = [schema_key("d"), database_key("d"), lease_key("d", "s"), tuples.encode((0, "next_id"))]
    first_table = after(Schema("d"), "CREATE TABLE t (a INT)", 1).table("t").id
    assert all(key < tuples.encode((first_table,)) for key in system)
    assert len(set(system)) == len(system)
