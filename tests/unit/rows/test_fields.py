"""Indexes over fields of proto columns."""

from dataclasses import replace
from typing import Any

import pytest

from f1common.encoding import tuple as tuples
from f1common.errors import F1Error
from f1server.catalog.schema import Index, Schema
from f1server.rows.coerce import coerce_column
from f1server.rows.keys import index_key, index_prefix, split_index_key
from f1server.rows.protofields import field_reader
from f1server.rows.writes import LogicalWrite, WriteKind
from tests.unit.rows.schemas import CUSTOMER, SCHEMA, changed, parts, with_index
from tests.unit.rows.store import Store

BARE = changed(SCHEMA, replace(CUSTOMER, checks=()))


def info(text: str | None) -> Any:
    return None if text is None else coerce_column(SCHEMA, CUSTOMER, CUSTOMER.column("Info"), text)


def write(number: int, text: str | None, kind: WriteKind = WriteKind.INSERT) -> LogicalWrite:
    return LogicalWrite(kind, "Customer", {11: number}, {13: info(text), 15: 1})


def values(store: Store, schema: Schema, name: str) -> list[Any]:
    """The index values and keys of all entries."""
    table = schema.table("Customer")
    index = table.index(name)
    return [split_index_key(schema, table, index, k, v) for k, v in sorted(store.others(schema).items())]


def test_a_field_that_is_not_there_is_null() -> None:
    schema = with_index(BARE, "Customer", Index(20, "ByCountry", parts((13, "country"), 15)))
    store = Store()
    store.run(schema, [write(1, 'country: "CH"'), write(2, ""), write(3, None)])
    assert values(store, schema, "ByCountry") == [((None, 1), (2,)), ((None, 1), (3,)), (("CH", 1), (1,))]
    store.run(schema, [write(1, 'country: "DE"', WriteKind.UPDATE)])
    assert values(store, schema, "ByCountry")[-1] == (("DE", 1), (1,))


def test_a_repeated_field_has_an_entry_for_each_value() -> None:
    schema = with_index(BARE, "Customer", Index(20, "ByFeature", parts((13, "feature"))))
    store = Store()
    store.run(
        schema, [write(1, "feature: 5 feature: 7 feature: 5"), write(2, "feature: 5"), write(3, None), write(4, "")]
    )
    assert values(store, schema, "ByFeature") == [((5,), (1,)), ((5,), (2,)), ((7,), (1,))]
    plan = store.run(schema, [write(1, "feature: 7 feature: 9", WriteKind.UPDATE)])
    changed_entries = [w for w in plan.writes if w.key[0] == 0x9D]
    assert [w.value is None for w in changed_entries] == [True, False]
    assert values(store, schema, "ByFeature") == [((5,), (2,)), ((7,), (1,)), ((9,), (1,))]
    store.run(schema, [LogicalWrite(WriteKind.DELETE, "Customer", {11: 1})])
    assert values(store, schema, "ByFeature") == [((5,), (2,))]


def test_fields_below_repeated_messages_are_values_of_their_own() -> None:
    index = Index(20, "ByCity", parts((13, "address.city"), 15, (13, "home.city")), unique=True)
    schema = with_index(BARE, "Customer", index)
    store = Store()
    text = 'address { city: "A" } address { } address { city: "B" } home { city: "H" }'
    store.run(schema, [write(1, text)])
    assert values(store, schema, "ByCity") == [(("A", 1, "H"), (1,)), (("B", 1, "H"), (1,))]
    with pytest.raises(F1Error, match=r"the same \(Info.address.city, Level, Info.home.city\) already"):
        store.run(schema, [write(2, 'address { city: "B" } home { city: "H" }')])
    store.run(schema, [write(2, 'address { city: "B" }'), write(3, 'address { city: "B" }')])


def test_a_local_index_over_a_field_lies_in_its_directory() -> None:
    index = Index(20, "Features", parts(11, (13, "feature")), local=True)
    schema = with_index(BARE, "Customer", index)
    store = Store()
    store.run(schema, [write(1, "feature: 5"), write(2, "feature: 6")])
    prefix = index_prefix(schema, schema.table("Customer"), index, (2,))
    assert [k for k in store.others(schema) if k.startswith(prefix)] == [tuples.encode((1, 2, (1 << 40) + 20, 6))]


def test_a_number_that_no_key_can_hold_is_refused_with_the_index() -> None:
    index = Index(20, "ByCode", parts((13, "home.code")))
    with pytest.raises(F1Error, match="OUT_OF_RANGE: index ByCode of Customer"):
        index_key(
            with_index(BARE, "Customer", index), CUSTOMER, index, {13: info("home { code: 9223372036854775808 }")}, (1,)
        )


def test_a_field_that_the_type_does_not_have_is_not_found() -> None:
    with pytest.raises(F1Error, match="NOT_FOUND"):
        field_reader(SCHEMA, CUSTOMER, 13, ("nothing",))
    info_column = field_reader(SCHEMA, CUSTOMER, 13, ("feature",))
    assert info_column.repeated
    assert not field_reader(SCHEMA, CUSTOMER, 13, ("home", "city")).repeated
    assert field_reader(SCHEMA, CUSTOMER, 13, ("address", "city")).repeated
