"""A small AdWords schema for tests of rows."""

from dataclasses import replace
from typing import Any

from f1common.encoding.proto import compile_protos
from f1server.catalog.schema import (
    Check,
    Column,
    ColumnType,
    ElementState,
    ForeignKey,
    Index,
    IndexPart,
    Kind,
    Schema,
    Table,
)

PROTO = """
syntax = "proto2";
package ads;
message Address { optional string city = 1; optional uint64 code = 2; }
message Info {
  optional string country = 1;
  repeated int64 feature = 2;
  repeated Address address = 3;
  optional Address home = 4;
}
"""
DESCRIPTORS = compile_protos({"ads.proto": PROTO})


def kind(name: Kind, **more: Any) -> ColumnType:
    return ColumnType(name, **more)


def parts(*columns: int | tuple[int, str]) -> tuple[IndexPart, ...]:
    return tuple(IndexPart(c) if isinstance(c, int) else IndexPart(c[0], tuple(c[1].split("."))) for c in columns)


CUSTOMER = Table(
    1,
    "Customer",
    0,
    columns=(
        Column(11, "CustomerId", kind(Kind.INT64), not_null=True),
        Column(12, "Name", kind(Kind.STRING, max_length=20)),
        Column(13, "Info", kind(Kind.PROTO, proto="ads.Info")),
        Column(14, "Created", kind(Kind.TIMESTAMP), default_sql="now()"),
        Column(15, "Level", kind(Kind.INT64), not_null=True, default_sql="1"),
    ),
    key_column_ids=(11,),
    checks=(Check(41, "PositiveLevel", "Level > 0"),),
)
CAMPAIGN = Table(
    2,
    "Campaign",
    1,
    columns=(
        Column(21, "CustomerId", kind(Kind.INT64), not_null=True),
        Column(22, "CampaignId", kind(Kind.INT64), not_null=True),
        Column(23, "Name", kind(Kind.STRING)),
        Column(24, "Budget", kind(Kind.NUMERIC, precision=10, scale=2)),
    ),
    key_column_ids=(21, 22),
    cascade=True,
    indexes=(Index(10, "CampaignByName", parts(21, 23), local=True, storing=(24,)),),
)
KEYWORD = Table(
    3,
    "Keyword",
    0,
    columns=(
        Column(31, "KeywordId", kind(Kind.INT64), not_null=True),
        Column(32, "Text", kind(Kind.STRING)),
        Column(33, "Bid", kind(Kind.INT64)),
        Column(34, "CustomerId", kind(Kind.INT64)),
    ),
    key_column_ids=(31,),
    indexes=(
        Index(11, "KeywordByText", parts(32), unique=True),
        Index(12, "KeywordByBid", parts(33)),
    ),
    foreign_keys=(ForeignKey(51, "KeywordCustomer", (34,), 1, (11,)),),
)
SCHEMA = Schema("default", 1, (CUSTOMER, CAMPAIGN, KEYWORD), descriptor_set=DESCRIPTORS)


def changed(schema: Schema, table: Table) -> Schema:
    """The schema with a table in place of the one with its id."""
    tables = tuple(table if old.id == table.id else old for old in schema.tables)
    return replace(schema, version=schema.version + 1, tables=tables)


def with_index(schema: Schema, table_name: str, index: Index) -> Schema:
    """The schema with an index more, or in another state."""
    table = schema.table(table_name)
    rest = tuple(old for old in table.indexes if old.id != index.id)
    return changed(schema, replace(table, indexes=(*rest, index)))


def in_state(index: Index, state: ElementState) -> Index:
    return replace(index, state=state)
