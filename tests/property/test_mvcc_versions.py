"""Reads of versions against a dictionary of lists: at any timestamp, in any range, both ways."""

import asyncio

from hypothesis import example, given, settings
from hypothesis import strategies as st

from f1common.encoding.tuple import encode
from spanstore.engine.base import WriteBatch
from spanstore.engine.memory import MemoryEngine, MemoryReader
from spanstore.mvcc.live import LiveRows
from spanstore.mvcc.versions import (
    MAX_TS,
    Version,
    latest,
    latest_in_range_ts,
    put_version,
    read_version,
    scan_versions,
)
from tests.amounts import examples

GROUP = 7
MAX_TIME = 30

# Few values, so that keys are often prefixes of each other; their encodings end in 0x00 and contain 0xFF.
elements = st.sampled_from(
    [None, False, 0, 1, 127, 128, 256, 65280, -1, -256, "", "a", "ab", "a\x00", b"", b"\xff\x00"]
)
keys = st.lists(elements, min_size=1, max_size=3).map(lambda path: encode(tuple(path)))
times = st.one_of(st.integers(0, MAX_TIME), st.just(MAX_TS))
values = st.one_of(st.none(), st.binary(max_size=3))
borders = st.one_of(
    keys,
    keys.map(lambda key: key + b"\xff"),
    keys.map(lambda key: key + b"\x00"),
    keys.map(lambda key: key + b"\x01"),
    st.sampled_from([b"\x01", b"\xff", b""]),
)

Oracle = dict[bytes, dict[int, bytes | None]]


def as_of(oracle: Oracle, key: bytes, ts: int) -> Version | None:
    found = [t for t in oracle.get(key, {}) if t <= ts]
    return Version(max(found), oracle[key][max(found)]) if found else None


@st.composite
def histories(draw: st.DrawFn) -> Oracle:
    """Mostly short chains, and now and then one that is long enough for a scan to seek past it."""
    writes = draw(st.lists(st.tuples(keys, st.integers(0, MAX_TIME), values), max_size=40))
    oracle: Oracle = {}
    for key, ts, value in writes:
        oracle.setdefault(key, {})[ts] = value
    for key in draw(st.lists(keys, max_size=2)):
        for ts in range(draw(st.integers(0, 10)), MAX_TIME):
            oracle.setdefault(key, {})[ts] = draw(st.sampled_from([b"", b"v", None]))
    return oracle


def reader_of(oracle: Oracle) -> MemoryReader:
    engine = MemoryEngine()
    batch = WriteBatch()
    for key, versions in oracle.items():
        for ts, value in versions.items():
            put_version(batch, GROUP, key, ts, value)
            # The neighbours must not be seen.
            put_version(batch, GROUP - 1, key, ts, b"other group")
            put_version(batch, GROUP + 1, key, ts, b"other group")
    asyncio.run(engine.commit(batch))
    return engine.snapshot()


@settings(max_examples=examples(150))
@given(histories(), keys, times)
def test_point_reads(oracle: Oracle, other: bytes, ts: int) -> None:
    reader = reader_of(oracle)
    for key in [*oracle, other]:
        assert read_version(reader, GROUP, key, ts) == as_of(oracle, key, ts)
        assert latest(reader, GROUP, key) == as_of(oracle, key, MAX_TS)


@settings(max_examples=examples(300))
@given(histories(), borders, borders, times, st.one_of(st.none(), st.integers(0, 5)), st.booleans())
def test_range_reads(oracle: Oracle, start: bytes, end: bytes, ts: int, limit: int | None, reverse: bool) -> None:
    reader = reader_of(oracle)
    alive = []
    for key in sorted(oracle, reverse=reverse):
        version = as_of(oracle, key, ts)
        if start <= key < end and version is not None and version.value is not None:
            alive.append((key, version))
    assert list(scan_versions(reader, GROUP, start, end, ts, limit=limit, reverse=reverse)) == alive[:limit]
    expected = max((t for key, versions in oracle.items() if start <= key < end for t in versions), default=0)
    assert latest_in_range_ts(reader, GROUP, start, end) == expected


@settings(max_examples=examples(300))
@given(histories(), borders, borders, times, st.integers(1, 40), st.one_of(st.integers(1, 8), st.just(1 << 20)))
@example({b"\x02": dict.fromkeys(range(1, 20), b""), b"\x02\x02": {0: None}}, b"\x02", b"\x04", 1, 30, 1 << 20)
@example({b"\x02": dict.fromkeys(range(1, 20), b""), b"\x03": {1: b""}}, b"\x02", b"\x04", 19, 19, 1 << 20)
def test_rows_by_pages_are_those_of_a_scan(
    oracle: Oracle, start: bytes, end: bytes, ts: int, most: int, max_bytes: int
) -> None:
    reader = reader_of(oracle)
    expected = [(key, v.ts, v.value) for key, v in scan_versions(reader, GROUP, start, end, ts)]
    live = LiveRows(reader, GROUP, start, end, ts)
    found: list[tuple[bytes, int, bytes | None]] = []
    last, looked_at = False, 0
    while not last:
        page = live.page(most, max_bytes)
        found += zip(page.keys, page.stamps, page.values, strict=True)
        # Whoever breaks off here goes on with what was reached, and misses nothing.
        if page.reached and not page.last:
            after = [row for row in expected if row[0] > page.reached]
            assert [row for row in expected if row not in found and row[0] != page.reached] == after
        assert page.looked_at <= most
        looked_at += page.looked_at
        last = page.last
    assert found == expected
    # Long chains are sought past, not walked through; what a page has behind the place where that begins is in vain.
    assert looked_at <= sum(min(len(versions), 2 * 9 + 2) + 2 * most for versions in oracle.values())


@settings(max_examples=examples(100))
@given(histories(), times, st.integers(1, 40), st.booleans())
def test_a_scan_in_pieces_is_the_whole_scan(oracle: Oracle, ts: int, max_bytes: int, reverse: bool) -> None:
    """The next piece begins at the successor of the last key, or ends at the last key when reading backwards."""
    reader = reader_of(oracle)
    start, end = b"\x01", b"\xff"
    whole = list(scan_versions(reader, GROUP, start, end, ts, reverse=reverse))
    pieces: list[tuple[bytes, Version]] = []
    while True:
        piece = list(scan_versions(reader, GROUP, start, end, ts, max_bytes=max_bytes, reverse=reverse))
        if not piece:
            break
        sizes = [len(key) + len(version.value or b"") for key, version in piece]
        assert sum(sizes[:-1]) < max_bytes
        pieces += piece
        if reverse:
            end = piece[-1][0]
        else:
            start = piece[-1][0] + b"\x00"
    assert pieces == whole
