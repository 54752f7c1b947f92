"""Logs that operators and programs can read and that keep secrets; metrics that servers do not share."""

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from f1common.errors import Code, F1Error, InvariantViolation
from f1common.observe import logs
from f1common.observe.logs import LogOptions, configure, get_logger, node_scope, redact_text
from f1common.observe.metrics import LATENCY_BUCKETS_S, Metrics

NOON = 1_750_000_000_123_456


class Capture:
    """A configured log that writes into memory, with a clock that the test moves."""

    def __init__(self, **options: Any) -> None:
        self.now = NOON
        self.stream = io.StringIO()
        configure(LogOptions("span-a1", "a", **options), stream=self.stream, clock=lambda: self.now)

    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()

    def records(self) -> list[Any]:
        return [json.loads(line) for line in self.lines()]


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    level = logging.getLogger().level
    yield
    logs.unconfigure()
    logging.getLogger().setLevel(level)


log = get_logger("spanstore.group")


def test_text_line_names_time_level_node_module_event_and_fields() -> None:
    capture = Capture()
    log.info("leader elected", group=3, leader="span b", ratio=0.5, key=b"\x01\xff", none=None)
    assert capture.lines() == [
        "2025-06-15T15:06:40.123456Z info    span-a1/a spanstore.group: leader elected "
        "group=3 leader='span b' ratio=0.5 key=01ff none=None"
    ]


def test_json_line_is_one_object_with_fields_apart() -> None:
    capture = Capture(form="json")
    log.bind(group=3).warning("slow sync\nreally", ms=12, key=b"\x01", event="a field of that name")
    (record,) = capture.records()
    assert record == {
        "time": "2025-06-15T15:06:40.123456Z",
        "level": "warning",
        "node": "span-a1",
        "zone": "a",
        "logger": "spanstore.group",
        "event": "slow sync\nreally",
        "fields": {"group": 3, "ms": 12, "key": "01", "event": "a field of that name"},
    }


def test_traceback_is_logged_in_both_forms() -> None:
    for form in ("text", "json"):
        capture = Capture(form=form)
        try:
            raise ValueError("broken")
        except ValueError as error:
            log.error("apply failed", exc=error, index=7)
        text = capture.stream.getvalue()
        assert "apply failed" in text and "Traceback" in text and "ValueError: broken" in text


def test_line_cannot_be_forged_by_a_newline() -> None:
    capture = Capture()
    log.info("name is x\n2025 error everything is lost", user="y\nz")
    assert len(capture.lines()) == 1


def test_level_is_kept_and_libraries_are_heard() -> None:
    capture = Capture(level="warning")
    log.info("quiet")
    logging.getLogger("asyncio").error("Task %s was destroyed", "x")
    assert [line.partition(" asyncio: ")[2] for line in capture.lines()] == ["Task x was destroyed"]


def test_nodes_that_share_a_process_are_told_apart_also_across_tasks() -> None:
    capture = Capture(form="json")

    async def server(name: str) -> None:
        with node_scope(name, "z"):
            await asyncio.create_task(work())

    async def work() -> None:
        await asyncio.sleep(0)
        log.info("here")

    async def scenario() -> None:
        await asyncio.gather(server("one"), server("two"))
        log.info("here")

    asyncio.run(scenario())
    assert [(record["node"], record["zone"]) for record in capture.records()] == [
        ("one", "z"),
        ("two", "z"),
        ("span-a1", "a"),
    ]


@pytest.mark.parametrize("form", ["text", "json"])
def test_secrets_never_reach_the_log(form: str) -> None:
    capture = Capture(form=form)
    log.info("connected with password=hunter2, ok", password="hunter2", auth_token="hunter2", user="ann")
    log.info("nested", config={"tls": {"private_key": "hunter2"}, "list": [{"secret": "hunter2"}], "port": 7400})
    log.info("in a value", url="dsn password='hunter2 hunter2' port=1", other={"text": "token: hunter2"})
    logging.getLogger("library").warning("using %s", {"api_token": "hunter2"})
    try:
        raise RuntimeError("secret=hunter2")
    except RuntimeError as error:
        log.error("failed", exc=error)
    text = capture.stream.getvalue()
    assert "hunter2" not in text
    assert text.count("***") >= 8
    assert "ann" in text and "7400" in text and "port=1" in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("password=abc", "password=***"),
        ("Password : abc def", "Password : *** def"),
        ("user_password='a b',x", "user_password=***,x"),
        ('{"token": "abc", "n": 1}', '{"token": ***, "n": 1}'),
        ("the token ring has 3 nodes", "the token ring has 3 nodes"),
    ],
)
def test_redaction_of_text(text: str, expected: str) -> None:
    assert redact_text(text) == expected


def test_large_values_are_cut_and_odd_numbers_stay_json() -> None:
    capture = Capture(form="json")
    log.info("x" * 10_000, text="y" * 10_000, key=bytes(10_000), number=float("nan"), wide=[b"\x01", float("inf")])
    (record,) = [json.loads(line, parse_constant=lambda name: pytest.fail(name)) for line in capture.lines()]
    assert record["event"] == "x" * 4096 + "… (10000 characters)"
    assert record["fields"]["text"].endswith("y… (10000 characters)")
    assert record["fields"]["key"].endswith("0… (20000 characters)")
    assert (record["fields"]["number"], record["fields"]["wide"]) == ("nan", ["01", "inf"])


def test_repeats_are_counted_instead_of_written() -> None:
    capture = Capture(form="json", repeats=3, repeat_window_s=10)
    for number in range(10):
        log.warning("peer is down", attempt=number)
        if number == 0:
            log.info("another event")
    assert [record["event"] for record in capture.records()] == ["peer is down", "another event"] + ["peer is down"] * 2
    capture.now += 10_000_000
    log.warning("peer is down", attempt=10)
    assert capture.records()[-1]["fields"] == {"attempt": 10, "suppressed": 7}
    log.warning("peer is down", attempt=11)
    assert capture.records()[-1]["fields"] == {"attempt": 11}


def test_clock_set_back_does_not_silence_the_log() -> None:
    capture = Capture(repeats=1)
    log.info("tick")
    capture.now -= 3_600_000_000
    log.info("tick")
    assert len(capture.lines()) == 2


def test_log_goes_to_a_file_and_survives_its_rotation(tmp_path: Path) -> None:
    path = tmp_path / "span.log"
    configure(LogOptions("n", "z"), path=path)
    log.info("one")
    path.rename(tmp_path / "span.log.1")
    log.info("two")
    assert "one" in (tmp_path / "span.log.1").read_text()
    assert "two" in path.read_text() and "one" not in path.read_text()


def test_configuring_again_replaces() -> None:
    first, second = Capture(), Capture()
    log.info("once")
    assert (len(first.lines()), len(second.lines())) == (0, 1)


@pytest.mark.parametrize("wrong", [{"level": "loud"}, {"form": "xml"}])
def test_unknown_option_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(F1Error) as caught:
        configure(LogOptions(**wrong))
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_log_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    with pytest.raises(F1Error, match="cannot write the log"):
        configure(LogOptions(), path=tmp_path / "missing" / "x.log")


def test_metrics_count_under_their_names_with_labels() -> None:
    metrics = Metrics()
    metrics.counter("commits", "Commits.", ["group"]).labels("3").inc(2)
    metrics.gauge("safe_time_lag_seconds", "Lag.").set(0.25)
    metrics.histogram("sync_seconds", "Sync.").observe(0.0004)
    assert metrics.value("f1_commits_total", {"group": "3"}) == 2
    assert metrics.value("f1_commits_total", {"group": "4"}) == 0
    assert metrics.value("f1_safe_time_lag_seconds") == 0.25
    assert metrics.value("f1_sync_seconds_bucket", {"le": "0.0005"}) == 1
    assert metrics.value("f1_sync_seconds_bucket", {"le": "0.00025"}) == 0


def test_same_name_is_the_same_metric_and_another_kind_is_a_defect() -> None:
    metrics = Metrics()
    assert metrics.counter("x", "X.", ["a"]) is metrics.counter("x", "X.", ["a"])
    with pytest.raises(InvariantViolation):
        metrics.gauge("x", "X.", ["a"])
    with pytest.raises(InvariantViolation):
        metrics.counter("x", "X.", ["b"])
    assert Metrics().counter("x", "X.") is not metrics.counter("x", "X.", ["a"])


def test_buckets_follow_the_unit() -> None:
    assert list(LATENCY_BUCKETS_S) == sorted(LATENCY_BUCKETS_S)
    metrics = Metrics()
    for name, within in (("a_seconds", "0.001"), ("b_bytes", "1024.0"), ("batch_messages", "512.0")):
        metrics.histogram(name, "Help.").observe(0)
        assert f'f1_{name}_bucket{{le="{within}"}} 1.0' in metrics.text()


def test_process_metrics_are_there_on_request() -> None:
    assert "process_open_fds" in Metrics(process=True).text()
    assert "process_open_fds" not in Metrics().text()
