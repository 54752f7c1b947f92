"""How the keys of tables and indexes begin."""

from f1.commands.schema_ids import Ids, ids_of
from f1common.pb import schema_pb2


def columns(*names: str) -> list[schema_pb2.Column]:
    return [schema_pb2.Column(id=10 + n, name=name) for n, name in enumerate(names)]


def test_keys_of_a_hierarchy() -> None:
    root = schema_pb2.Table(id=1, name="Customer", columns=columns("CustomerId"), key_column_ids=[10])
    root.indexes.add(id=7, name="ByName")
    child = schema_pb2.Table(id=3, name="Campaign", parent_id=1, columns=columns("CustomerId", "CampaignId"))
    child.key_column_ids.extend([10, 11])
    child.indexes.add(id=8, name="Here", local=True)
    other = schema_pb2.Table(id=2, name="Keyword", columns=columns("Id"), key_column_ids=[10])
    assert list(ids_of(schema_pb2.Schema(tables=[other, child, root]))) == [
        Ids("table", "Customer", 1, "1/CustomerId"),
        Ids("index", "ByName", 7, str((1 << 40) + 7)),
        Ids("table", "Campaign", 3, "1/CustomerId/3/CampaignId"),
        Ids("local index", "Here", 8, f"1/CustomerId/{(1 << 40) + 8}"),
        Ids("table", "Keyword", 2, "2/Id"),
    ]
