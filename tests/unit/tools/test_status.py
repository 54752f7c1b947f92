"""`f1 status` and `f1 range list`: what servers answer, put together."""

import csv
import io
import json

import msgspec
import pytest

from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from f1common.pb import spanstore_pb2 as pb
from spanstore.placement.directory import Standing
from spanstore.placement.range_map import readable, spread_tables
from spanstore.tools.keys import parse_key
from spanstore.tools.ranges import leaders_of, range_rows, to_csv
from spanstore.tools.show import told
from spanstore.tools.status import _print_tables, holder_text, summarise


def group(
    number: int, role: str = "follower", *, lease: bool = False, chosen: int = 9, applied: int = 9
) -> pb.GroupStatus:
    return pb.GroupStatus(
        group=number, role=role, lease_valid=lease, chosen_index=chosen, applied_index=applied, safe_ts=1_000_000
    )


ANSWERS: dict[str, pb.StatusReply | F1Error] = {
    "h:1": pb.StatusReply(
        name="span-b1", zone="b", cluster_id="c", now_latest=1_250_000, groups=[group(0), group(1, applied=7)]
    ),
    "h:2": pb.StatusReply(
        name="span-a1",
        zone="a",
        cluster_id="c",
        now_latest=1_200_000,
        groups=[group(0, "leader", lease=True), group(1, "leader", lease=False, chosen=8)],
    ),
    "h:3": F1Error(Code.UNAVAILABLE, "connection refused"),
}


def test_leaders_hold_a_lease() -> None:
    assert leaders_of(ANSWERS) == {0: "span-a1"}


def test_servers_and_groups_are_put_together() -> None:
    status = summarise(ANSWERS)
    assert [(row.name, row.address, row.leads, row.replicas, row.error) for row in status.servers] == [
        ("", "h:3", 0, 0, "UNAVAILABLE: connection refused"),
        ("span-a1", "h:2", 1, 2, ""),
        ("span-b1", "h:1", 0, 2, ""),
    ]
    zero, one = status.groups
    assert (zero.leader, zero.lease_valid, zero.replicas, zero.safe_lag_ms) == (
        "span-a1",
        True,
        ("span-a1", "span-b1"),
        200,
    )
    # Nobody leads group 1 with a lease: the replica that is furthest along speaks for it.
    assert (one.leader, one.chosen, one.behind, one.safe_lag_ms) == ("", 9, {"span-b1": 2}, 250)
    assert (status.cluster_id, status.safe_lag_ms) == ("c", 250)


def test_the_holder_of_safe_time_is_named_with_its_age() -> None:
    leading = group(1, "leader", lease=True)
    leading.safe_holder, leading.safe_holder_ts = "ab", 1_000_001
    reply = pb.StatusReply(name="a", now_latest=1_250_001, groups=[group(0, "leader", lease=True), leading])
    reply.groups[0].safe_ts = 1_200_000
    status = summarise({"h:1": reply})
    assert (status.safe_group, status.safe_lag_ms) == (1, 250.001)
    assert (status.groups[1].safe_holder, status.groups[1].safe_holder_age_ms) == ("ab", 250)
    assert holder_text(status.groups[1]) == "ab (0.2 s)"
    assert holder_text(status.groups[0]) == ""


def test_what_was_collected_is_told() -> None:
    leading = group(1, "leader", lease=True)
    leading.mark_ts, leading.removed_versions, leading.removed_bytes = 750_000, 7, 700
    leading.forgotten_outcomes, leading.collecting_passes, leading.last_pass_ts = 3, 2, 999_000
    reply = pb.StatusReply(name="a", now_latest=1_250_000, groups=[leading, group(0)])
    zero, one = summarise({"h:1": reply}).groups
    assert (one.mark_ts, one.mark_age_ms, one.removed_versions, one.removed_bytes) == (750_000, 500, 7, 700)
    assert (one.forgotten_outcomes, one.collecting_passes, one.last_pass_ts) == (3, 2, 999_000)
    assert (zero.mark_ts, zero.mark_age_ms) == (0, 0)


def test_tables_have_no_column_without_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    _print_tables(summarise({name: answer for name, answer in ANSWERS.items() if name != "h:3"}))
    head = capsys.readouterr().out.splitlines()[1]
    assert head.split() == ["server", "zone", "address", "leads", "commits", "MiB", "used"]
    _print_tables(summarise(ANSWERS))
    out = capsys.readouterr().out
    assert out.splitlines()[1].split()[-1] == "remark"
    assert "connection refused" in out


def test_servers_that_are_drained_or_removed_are_shown_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    answers = {"h:1": pb.StatusReply(name="span-a"), "h:2": pb.StatusReply(name="span-b")}
    status = summarise(answers, {"span-b": Standing.DRAINING, "span-c": Standing.REMOVED})
    assert [(row.name, row.standing) for row in status.servers] == [
        ("span-a", "serving"),
        ("span-b", "draining"),
        ("span-c", "removed"),
    ]
    _print_tables(status)
    out = capsys.readouterr().out
    assert "is being drained" in out and "was removed from the cluster" in out


def test_an_even_number_of_voters_is_remarked_on(capsys: pytest.CaptureFixture[str]) -> None:
    leading = group(1, "leader", lease=True)
    leading.voters.extend(["span-a", "span-b#2-x"])
    status = summarise({"h:1": pb.StatusReply(name="span-a", groups=[leading])})
    assert status.groups[0].voters == ("span-a", "span-b")
    _print_tables(status)
    assert "group 1: 2 voters, where there should be" in capsys.readouterr().out
    leading.voters.append("span-c")
    assert not summarise({"h:1": pb.StatusReply(name="span-a", groups=[leading])}).groups[0].remark


def test_news_of_a_command_that_waits_are_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with told("begins") as progress:
        for text in ("one", "one", "[two]"):
            progress(text)
    assert capsys.readouterr().err == "one\n[two]\n"


@pytest.mark.parametrize("text", ["", "1//", "/1", "1//2"])
def test_a_key_with_an_empty_element_is_none(text: str) -> None:
    with pytest.raises(F1Error, match="is empty; write"):
        parse_key(text)


def test_nobody_answers() -> None:
    status = summarise({"h:3": ANSWERS["h:3"]})
    assert (status.groups, status.safe_lag_ms, len(status.servers)) == ([], None, 1)


def test_ranges_are_shown_with_leaders_and_readable_borders() -> None:
    rows = range_rows(spread_tables([0, 1, 2], tables=3), {1: "span-a1"})
    assert [(row.first, row.last, row.group, row.leader) for row in rows] == [
        ("-inf", "1", 0, ""),
        ("1", "2", 1, "span-a1"),
        ("2", "3", 2, ""),
        ("3", "1099511627777", 1, "span-a1"),
        ("1099511627777", "1099511627778", 1, "span-a1"),
        ("1099511627778", "1099511627779", 2, ""),
        ("1099511627779", "2199023255553", 1, "span-a1"),
        ("2199023255553", "+inf", 2, ""),
    ]
    assert bytes.fromhex(rows[1].start) == tuples.encode((1,))
    assert rows[-1].end == "ff"


def test_keys_are_readable_or_hexadecimal() -> None:
    assert readable(tuples.encode((7, "tea", b"\x00"))) == "7/tea/b'\\x00'"
    assert readable(b"\x01\x02") == "0x0102"


def test_csv_and_json_have_the_same_rows() -> None:
    rows = range_rows(spread_tables([0, 1], tables=2), {})
    parsed = list(csv.DictReader(io.StringIO(to_csv(rows))))
    decoded = json.loads(msgspec.json.encode(rows))
    assert [{name: str(value) for name, value in row.items()} for row in decoded] == parsed
