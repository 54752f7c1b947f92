"""The reading of system call traces: a mark is durable after data sync and meta page, in this order."""

from scripts.sync_trace import durable_moments, judge, parse

DATA = "8</x/data.mdb>"
META = "9</x/data.mdb>"


def line(at: float, call: str, rest: str, result: int = 0, took: float = 0.5) -> str:
    return f"{at:.6f} {call}({rest}) = {result} <{took:.6f}>"


def moments(*lines: str) -> dict[str, float]:
    return durable_moments(parse(lines))


WRITE = line(1, "pwrite64", DATA + ', "\\0\\1mark-000001.\\0mark-000002.", 4096, 8192', 4096)
SYNC = line(2, "fdatasync", DATA)
COMMIT = line(3, "pwrite64", META + ', "\\0\\0\\0@", 120, 32', 120)


def test_data_then_sync_then_meta_page_is_durable_when_the_last_has_ended() -> None:
    assert moments(WRITE, SYNC, COMMIT) == {"mark-000001.": 3.5, "mark-000002.": 3.5}


def test_without_one_of_them_or_in_another_order_it_is_not() -> None:
    assert moments(WRITE, COMMIT) == {}
    assert moments(WRITE, SYNC) == {}
    assert moments(SYNC, WRITE, COMMIT) == {}
    assert moments(WRITE, COMMIT, SYNC) == {}


def test_a_failed_sync_is_none() -> None:
    failed = "2.000000 fdatasync(8</x/data.mdb>) = -1 EIO (Input/output error) <0.500000>"
    assert moments(WRITE, failed, COMMIT) == {}


def test_gathered_writes_count_and_other_files_do_not() -> None:
    gathered = line(1, "writev", DATA + ', [{iov_base="mark-000003.", iov_len=4096}], 1', 4096)
    log = line(1, "writev", '2</x/log>, [{iov_base="mark-000004.", iov_len=40}], 1', 40)
    assert set(moments(gathered, log, SYNC, COMMIT)) == {"mark-000003."}


def test_the_first_time_counts() -> None:
    again = line(6, "pwrite64", META + ', "@", 120, 32', 120)
    assert moments(WRITE, SYNC, COMMIT, WRITE, line(5, "fdatasync", DATA), again)["mark-000001."] == 3.5


def test_an_acknowledgement_before_the_second_sync_is_found() -> None:
    servers = [{"a": 1.0, "b": 1.0}, {"a": 2.0, "b": 4.0}, {"a": 9.0}]
    early, counts = judge({"a": 3.0, "b": 3.0}, servers)
    assert early == ["b"]
    assert counts == {2: 1, 1: 1}
