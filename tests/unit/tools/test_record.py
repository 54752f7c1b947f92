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


def test_only_the_section_is_replaced() -> None:
    text = "# A\n\n<!-- kv -->\n\nold\n\n## B\n\nkept\n"
    assert replace(text, "kv", "new") == "# A\n\n<!-- kv -->\n\nnew\n\n## B\n\nkept\n"
    assert replace("x\n<!-- kv -->\n", "kv", "new") == "x\n<!-- kv -->\n\nnew\n"
    once = replace(text, "kv", "new")
    assert replace(once, "kv", "new") == once


def test_a_document_without_the_section_is_an_error() -> None:
    with pytest.raises(ValueError, match="kv"):
        replace("# A\n", "kv", "new")
