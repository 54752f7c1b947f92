"""Proto columns: compiling, reading single fields, JSON and text."""

import subprocess
import sys
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from hypothesis import given
from hypothesis import strategies as st

from f1common.encoding.proto import FieldValue, ProtoRegistry, compile_protos
from f1common.errors import Code, F1Error

INFO = """
syntax = "proto3";
package adwords;
import "shared/money.proto";
import "google/protobuf/timestamp.proto";

message CustomerInfo {
  enum Status { UNKNOWN = 0; ACTIVE = 1; PAUSED = 2; }
  message Contact {
    string email = 1;
    repeated int32 ports = 2;
    optional int32 rank = 3;
  }
  string name = 1;
  int64 visits = 2;
  optional string nick = 3;
  Status status = 4;
  Contact main = 5;
  repeated Contact others = 6;
  map<string, int32> labels = 7;
  map<int32, Contact> by_id = 8;
  oneof payment {
    string card = 9;
    shared.Money cash = 10;
    Contact voucher = 11;
  }
  google.protobuf.Timestamp since = 12;
  bytes blob = 13;
  repeated Status past = 14;
  double ratio = 15;
  CustomerInfo parent = 16;
  repeated sint64 deltas = 17;
}
"""
MONEY = 'syntax = "proto3"; package shared; message Money { int64 units = 1; string currency = 2; }'
OLD = """
syntax = "proto2";
package old;
enum Level { LOW = 1; HIGH = 5; TOP = 5; option allow_alias = true; }
message Thing {
  required string id = 1;
  optional Level level = 2 [default = HIGH];
  optional group Extra = 3 { optional int32 n = 1; }
  optional int32 size = 4 [default = 42];
}
"""
SOURCES = {"info.proto": INFO, "shared/money.proto": MONEY, "old.proto": OLD}
REGISTRY = ProtoRegistry(compile_protos(SOURCES))
NAME = "adwords.CustomerInfo"


def message(**fields: object) -> bytes:
    return REGISTRY.message_class(NAME)(**fields).SerializeToString()


def extract(data: bytes, *paths: str, name: str = NAME) -> tuple[FieldValue, ...]:
    return REGISTRY.projection(name, paths).extract(data)


def test_the_result_depends_on_the_sources_alone() -> None:
    assert compile_protos(SOURCES) == compile_protos(dict(reversed(SOURCES.items())))
    assert compile_protos({}) == b""


def test_all_types_are_listed_but_map_entries() -> None:
    assert {NAME, f"{NAME}.Contact", "shared.Money", "old.Thing", "old.Thing.Extra"} <= set(REGISTRY.message_names)
    assert not [name for name in REGISTRY.message_names if name.endswith("Entry")]


def test_mistakes_come_with_file_line_and_column_and_leave_stderr_alone(capfd: pytest.CaptureFixture[str]) -> None:
    bad = {"a.proto": 'syntax = "proto3";\nmessage A {\n  B b = 1;\n}\n', "b.proto": 'syntax = "proto3";massage B {}'}
    with pytest.raises(F1Error) as caught:
        compile_protos(bad)
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert 'a.proto:3:3: "B" is not defined.' in caught.value.message
    assert "b.proto:1:19:" in caught.value.message
    assert capfd.readouterr() == ("", "")


def test_files_that_define_the_same_type_do_not_fit_together() -> None:
    one = 'syntax = "proto3"; message A {}'
    with pytest.raises(F1Error, match="INVALID_ARGUMENT"):
        compile_protos({"a.proto": one, "b.proto": one})


@pytest.mark.parametrize("name", ["/a.proto", "../a.proto", "a/../b.proto", "a.txt", "./a.proto", "", "a\\b.proto"])
def test_file_names_stay_inside_the_scratch_folder(name: str) -> None:
    with pytest.raises(F1Error, match=r"no relative name of a \.proto file"):
        compile_protos({name: 'syntax = "proto3";'})


def test_nothing_outside_the_sources_can_be_imported() -> None:
    with pytest.raises(F1Error, match=r"absent\.proto"):
        compile_protos({"a.proto": 'syntax = "proto3"; import "absent.proto";'})


def test_compiling_installs_no_import_hooks() -> None:
    code = "import sys; before = list(sys.meta_path); import f1common.encoding.proto; print(sys.meta_path == before)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "True"


def test_bytes_that_are_no_descriptors_are_refused() -> None:
    whole = FileDescriptorSet.FromString(compile_protos({"m.proto": MONEY, "u.proto": 'import "m.proto";'}))
    del whole.file[0]
    for damaged in (b"\xff", compile_protos(SOURCES)[:-3], whole.SerializeToString()):
        with pytest.raises(F1Error, match="DATA_CORRUPTION"):
            ProtoRegistry(damaged)


def test_unknown_names_get_the_nearest_one() -> None:
    with pytest.raises(F1Error, match=r"NOT_FOUND.*did you mean adwords\.CustomerInfo\?"):
        REGISTRY.message_class("adwords.CustomerInfos")
    with pytest.raises(F1Error, match=r"has no field 'visit'; did you mean visits\?"):
        REGISTRY.projection(NAME, ["visit"])
    with pytest.raises(F1Error, match="NOT_FOUND"):
        REGISTRY.enum_names("adwords.Nothing")


@pytest.mark.parametrize("path", ["name.x", "labels.x", "by_id.email", "status.x"])
def test_paths_that_lead_nowhere_are_refused(path: str) -> None:
    with pytest.raises(F1Error, match=r"INVALID_ARGUMENT.*which has no fields"):
        REGISTRY.projection(NAME, [path])


def test_fields_come_in_the_order_of_the_paths() -> None:
    data = message(name="Ann", visits=7, main={"email": "a@x", "ports": [1, 2]}, blob=b"\xff", deltas=[-1, 1 << 40])
    assert extract(data, "visits", "name", "main.email", "main.ports", "blob", "deltas", "visits") == (
        7,
        "Ann",
        "a@x",
        [1, 2],
        b"\xff",
        [-1, 1 << 40],
        7,
    )


def test_what_is_unset_is_none_if_it_has_presence_and_the_default_otherwise() -> None:
    paths = ("name", "visits", "ratio", "blob", "status", "nick", "main", "main.email", "main.rank", "others", "labels")
    assert extract(b"", *paths) == ("", 0, 0.0, b"", "UNKNOWN", None, None, None, None, [], [])
    assert extract(message(main={}, nick=""), "nick", "main", "main.email", "main.rank") == ("", b"", "", None)


def test_paths_through_repeated_fields_give_lists() -> None:
    data = message(others=[{"email": "a", "ports": [1]}, {"email": "b", "rank": 3, "ports": [2, 3]}, {}])
    assert extract(data, "others.email", "others.ports", "others.rank") == (
        ["a", "b", ""],
        [[1], [2, 3], []],
        [None, 3, None],
    )


def test_enums_are_names_and_unknown_numbers_their_digits() -> None:
    data = message(status=2, past=[0, 1, 9])
    assert extract(data, "status", "past") == ("PAUSED", ["UNKNOWN", "ACTIVE", "9"])
    assert REGISTRY.enum_names(f"{NAME}.Status") == {0: "UNKNOWN", 1: "ACTIVE", 2: "PAUSED"}


@pytest.mark.parametrize(
    ("name", "path", "data", "expected"),
    [
        (NAME, "status", b"", "UNKNOWN"),
        (NAME, "status", message(status=2), "PAUSED"),
        (NAME, "status", message(status=9), None),
        (NAME, "past", message(past=[0, 1]), ["UNKNOWN", "ACTIVE"]),
        (NAME, "past", message(past=[0, 9]), None),
        (NAME, "parent.status", message(parent={"status": -1}), None),
        ("old.Thing", "level", b"\x10\x05", "HIGH"),
        ("old.Thing", "level", b"\x10\x07", None),
    ],
)
def test_enums_may_be_asked_for_by_names_that_stay(name: str, path: str, data: bytes, expected: object) -> None:
    """A closed enum hides a number that a later name would show, so it is as bad as the digits of an open one."""
    named = REGISTRY.projection(name, [path], named=True)
    if expected is not None:
        assert named.extract(data) == (expected,) == REGISTRY.projection(name, [path]).extract(data)
        return
    with pytest.raises(F1Error, match="is no value of the enum") as raised:
        named.extract(data)
    assert raised.value.code is Code.FAILED_PRECONDITION


def test_maps_are_sorted_pairs() -> None:
    data = message(labels={"b": 2, "a": 1}, by_id={7: {"email": "x"}, -1: {}})
    contact = REGISTRY.message_class(f"{NAME}.Contact")(email="x").SerializeToString()
    assert extract(data, "labels", "by_id") == ([("a", 1), ("b", 2)], [(-1, b""), (7, contact)])


def test_messages_are_bytes_and_may_be_asked_for_with_their_parts() -> None:
    data = message(main={"email": "x", "rank": 1}, since={"seconds": 5})
    whole = REGISTRY.message_class(f"{NAME}.Contact")(email="x", rank=1).SerializeToString()
    assert extract(data, "main.email", "main", "main.rank", "since.seconds") == ("x", whole, 1, 5)
    assert extract(data, "main", "main.email") == (whole, "x")


def test_recursive_types_are_cut_where_the_path_ends() -> None:
    data = message(name="c", parent={"name": "b", "parent": {"name": "a", "visits": 3}})
    assert extract(data, "parent.parent.name", "parent.name", "parent.parent.visits", "parent.parent.parent.name") == (
        "a",
        "b",
        3,
        None,
    )


def test_of_alternatives_the_last_on_the_wire_wins_though_another_is_asked_for() -> None:
    card, cash, voucher = message(card="visa"), message(cash={"units": 5}), message(voucher={"rank": 1})
    assert extract(card + cash, "card", "cash.units") == (None, 5)
    assert extract(cash + card, "cash.units") == (None,)
    assert extract(card + voucher, "card") == (None,)
    assert extract(voucher + card, "card") == ("visa",)


def test_proto2_presence_groups_defaults_and_aliases() -> None:
    thing = REGISTRY.message_class("old.Thing")
    full = thing(id="x", level=1, extra={"n": 3}).SerializeToString()
    assert extract(full, "id", "level", "extra.n", "size", name="old.Thing") == ("x", "LOW", 3, None)
    assert extract(b"", "id", "level", "extra.n", name="old.Thing") == (None, None, None)
    assert REGISTRY.enum_names("old.Level")[5] == "HIGH"
    # A closed enum: a number without a name is as good as unset.
    assert extract(b"\x10\x07", "level", name="old.Thing") == (None,)


def test_editions_are_understood() -> None:
    source = """
    edition = "2023";
    package e;
    message M {
      int32 plain = 1;
      int32 implicit = 2 [features.field_presence = IMPLICIT];
      M delimited = 3 [features.message_encoding = DELIMITED];
    }
    """
    registry = ProtoRegistry(compile_protos({"e.proto": source}))
    data = registry.message_class("e.M")(delimited={"plain": 4}).SerializeToString()
    paths = ("plain", "implicit", "delimited.plain", "delimited.implicit")
    assert registry.projection("e.M", paths).extract(data) == (None, 0, 4, 0)


def test_a_projection_serves_many_messages() -> None:
    projection = REGISTRY.projection(NAME, ["visits"])
    assert [projection.extract(message(visits=n)) for n in range(5)] == [(n,) for n in range(5)]


def test_fields_that_are_not_asked_for_are_not_decoded() -> None:
    # A contact whose bytes are no message: seen only by who looks inside.
    damaged = message(visits=7) + b"\x2a\x02\xff\xff"
    assert extract(damaged, "visits") == (7,)
    with pytest.raises(F1Error, match="DATA_CORRUPTION"):
        extract(damaged, "visits", "main.rank")


@pytest.mark.parametrize(
    "data", [b"\xff", b"\x0a\x05abc", b"\x0a\x01\xff", b"\x3a\x03\x0a\x01\xff", b"\x82\x01\x03" * 3]
)
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    with pytest.raises(F1Error, match="DATA_CORRUPTION"):
        extract(data, "name", "parent.name", "labels")
    with pytest.raises(F1Error, match="DATA_CORRUPTION"):
        REGISTRY.to_json(NAME, data)


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    projection = REGISTRY.projection(NAME, ["name", "status", "others.ports", "by_id", "card", "parent.main.email"])
    try:
        values = projection.extract(data)
        assert len(values) == 6
    except F1Error as error:
        assert error.code is Code.DATA_CORRUPTION


contacts = st.fixed_dictionaries(
    {"email": st.text(max_size=5), "ports": st.lists(st.integers(-5, 5), max_size=3)},
    optional={"rank": st.integers(-3, 3)},
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "name": st.text(max_size=5),
            "nick": st.text(max_size=5),
            "visits": st.integers(-(1 << 63), (1 << 63) - 1),
            "ratio": st.floats(allow_nan=False),
            "main": contacts,
            "others": st.lists(contacts, max_size=3),
            "labels": st.dictionaries(st.text(max_size=3), st.integers(-9, 9), max_size=3),
        },
    )
)
def test_a_projection_agrees_with_a_full_decode(fields: dict[str, Any]) -> None:
    data = message(**fields)
    whole: Any = REGISTRY.parse(NAME, data)
    paths = ("name", "nick", "visits", "ratio", "main.email", "main.rank", "others.email", "labels")
    assert extract(data, *paths) == (
        whole.name,
        whole.nick if whole.HasField("nick") else None,
        whole.visits,
        whole.ratio,
        whole.main.email if whole.HasField("main") else None,
        whole.main.rank if whole.HasField("main") and whole.main.HasField("rank") else None,
        [other.email for other in whole.others],
        sorted(whole.labels.items()),
    )
    assert REGISTRY.from_json(NAME, REGISTRY.to_json(NAME, data)) == REGISTRY.from_text(
        NAME, REGISTRY.to_text(NAME, data)
    )


def test_json_is_compact_sorted_and_protobufs_own() -> None:
    data = message(visits=1 << 60, status=1, since={"seconds": 0}, labels={"b": 1, "a": 2}, by_id={3: {"email": "é"}})
    assert REGISTRY.to_json(NAME, data) == (
        '{"byId":{"3":{"email":"é"}},"labels":{"a":2,"b":1},"since":"1970-01-01T00:00:00Z",'
        '"status":"ACTIVE","visits":"1152921504606846976"}'
    )


def test_json_is_read_with_either_form_of_names() -> None:
    assert REGISTRY.from_json(NAME, '{"byId": {"3": {}}}') == REGISTRY.from_json(NAME, '{"by_id": {"3": {}}}')


def test_text_format_goes_both_ways() -> None:
    data = REGISTRY.from_text(NAME, 'visits: 3 main { email: "é" ports: [1, 2] } status: PAUSED')
    assert extract(data, "visits", "main.ports", "status") == (3, [1, 2], "PAUSED")
    text = REGISTRY.to_text(NAME, data)
    assert 'email: "é"' in text
    assert REGISTRY.from_text(NAME, text) == data


@pytest.mark.parametrize("text", ["", "[", "[]", '{"visits": "x"}', '{"nothing": 1}', '{"status": "X"}', "[" * 5000])
def test_what_is_no_json_of_the_type_is_refused(text: str) -> None:
    with pytest.raises(F1Error) as caught:
        REGISTRY.from_json(NAME, text)
    assert caught.value.code is Code.INVALID_ARGUMENT


@pytest.mark.parametrize("text", ["visits: x", "nothing: 1", "main {", "main: 3"])
def test_what_is_no_text_of_the_type_is_refused(text: str) -> None:
    with pytest.raises(F1Error) as caught:
        REGISTRY.from_text(NAME, text)
    assert caught.value.code is Code.INVALID_ARGUMENT
