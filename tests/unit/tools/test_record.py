"""The benchmark's section of the document is replaced, and nothing else."""

import pytest

from bench.record import replace, table

ROW = {
    "work": "read one row",
    "clients": 16,
    "ours": 6542.4,
    "p50_ms": 2.04,
    "p99_ms": 7.0,
    "cpu_us": 131.6,
    "load_cpu": 0.5,
    "peer": None,
    "peer_name": None,
}
PEER = {"peer": 3000.0, "peer_name": "etcd", "peer_p50_ms": 1.0, "peer_p99_ms": 2.0, "ratio": 2.181}


def test_a_report_is_a_table() -> None:
    assert table({"machine": "a machine", "rows": [ROW]}, "abc").splitlines()[2:] == [
        "| work | clients | a second | p50 ms | p99 ms | cpu us | load cpu |",
        "|---|---:|---:|---:|---:|---:|---:|",
        "| read one row | 16 | 6,542 | 2.0 | 7.0 | 132 | 0.50 |",
    ]


def test_a_peer_has_columns_of_its_own_and_unknown_processor_time_none() -> None:
    lines = table({"machine": "m", "rows": [ROW | PEER | {"cpu_us": None}]}, "abc").splitlines()
    assert lines[2].endswith("| load cpu | etcd a second | etcd p50 ms | etcd p99 ms | ratio |")
    assert "cpu us" not in lines[2]
    assert lines[4].endswith("| 0.50 | 3,000 | 1.0 | 2.0 | 2.18 |")


def test_where_units_differ_each_row_says_its_own_and_what_is_not_there_is_empty() -> None:
    reads = {"work": "read", "clients": 1, "unit": "reads/s", "ours": 84.25, "peer": 108882.0, "peer_name": "etcd"}
    more = {"ratio": 0.5, "ratio_range": [0.4, 0.6], "goal": "at least 1", "met": False, "p99_ms": 7.0, "cpu_us": 131.6}
    peer = {"load_cpu_us": 20.0, "peer_p99_ms": 3.0, "peer_cpu_us": 1000.0, "peer_load_cpu_us": None}
    lines = table({"machine": "m", "rows": [reads | more | peer]}, "abc").splitlines()
    assert lines[2].startswith("| work | clients | unit | ours | against | it | ratio | goal | met | p99 ms |")
    assert lines[4] == (
        "| read | 1 | reads/s | 84.25 | etcd | 108,882 | 0.50 (0.40 to 0.60) | at least 1 | no | 7.0 | 131.6 | 20.0 |"
        " 3.0 | 1,000.0 |  |"
    )


def test_only_the_section_is_replaced() -> None:
    text = "# A\n\n<!-- kv -->\n\nold\n\n## B\n\nkept\n"
    assert replace(text, "kv", "new") == "# A\n\n<!-- kv -->\n\nnew\n\n## B\n\nkept\n"
    assert replace("x\n<!-- kv -->\n", "kv", "new") == "x\n<!-- kv -->\n\nnew\n"
    once = replace(text, "kv", "new")
    assert replace(once, "kv", "new") == once


def test_a_document_without_the_section_is_an_error() -> None:
    with pytest.raises(ValueError, match="kv"):
        replace("# A\n", "kv", "new")
