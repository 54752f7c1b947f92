"""Bytes of versions, refused keys, damage, and that long chains are sought past, not walked."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from f1common.errors import Code, F1Error
from spanstore.engine.base import MAX_KEY_BYTES, WriteBatch
from spanstore.engine.keyspace import data_prefix, outcome_key
from spanstore.engine.lmdb_engine import LmdbEngine
from spanstore.engine.memory import MemoryEngine, MemoryReader
from spanstore.mvcc.live import LiveRows
from spanstore.mvcc.versions import (
    MAX_TS,
    MAX_USER_KEY_BYTES,
    Version,
    check_key,
    decode_version,
    latest,
    latest_in_range_ts,
    put_version,
    read_version,
    scan_versions,
    split_version_key,
    version_key,
)


def item(key: bytes, ts: int, value: bytes | None, group: int = 1) -> tuple[bytes, bytes]:
    batch = WriteBatch()
    put_version(batch, group, key, ts, value)
    ((_, engine_key, data),) = batch.ops
    return engine_key, data


class CountingReader(MemoryReader):
    """Counts the items that it is asked for."""

    __slots__ = ("touched",)

    def scan(self, start: bytes, end: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        for found in super().scan(start, end, reverse=reverse):
            self.touched = getattr(self, "touched", 0) + 1
            yield found


def reader_of(batch: WriteBatch) -> CountingReader:
    engine = MemoryEngine()
    asyncio.run(engine.commit(batch))
    plain = engine.snapshot()
    return CountingReader(engine, engine._data, plain.number, plain.incarnation)


def test_example_in_bytes() -> None:
    engine_key, data = item(b"\x05key", 1, b"value")
    assert engine_key.hex(" ") == "00 01 10 05 6b 65 79 00 ff ff ff ff ff ff ff fe"
    assert (data[0], data[5:]) == (1, b"value")
    engine_key, data = item(b"\x05key", 1, None)
    assert (data[0], len(data)) == (0, 5)
    assert version_key(1, b"\x05key", 1) == engine_key
    assert split_version_key(engine_key) == (b"\x05key", 1)


def test_order_is_newest_first_and_parents_before_children() -> None:
    order = [
        version_key(1, b"a", MAX_TS),
        version_key(1, b"a", 2),
        version_key(1, b"a", 1),
        version_key(1, b"a\x01", 9),
        version_key(1, b"ab", 5),
        version_key(1, b"b", 9),
    ]
    assert order == sorted(order)


def test_the_value_does_not_depend_on_the_group() -> None:
    assert item(b"k", 5, b"v", group=1)[1] == item(b"k", 5, b"v", group=2)[1]


@pytest.mark.parametrize("key", [b"", b"\x00", b"\x00a", b"\xff", b"\xffa"])
def test_keys_that_would_break_the_order_are_refused(key: bytes) -> None:
    with pytest.raises(F1Error) as raised:
        check_key(key)
    assert raised.value.code is Code.INVALID_ARGUMENT


def test_the_longest_key_fits_the_disk_and_one_byte_more_is_refused(tmp_path: Path) -> None:
    longest = b"k" * MAX_USER_KEY_BYTES
    check_key(longest)
    assert len(version_key(1, longest, 1)) <= MAX_KEY_BYTES
    assert len(outcome_key(1, b"u" * 16, longest)) == MAX_KEY_BYTES
    with pytest.raises(F1Error) as raised:
        check_key(longest + b"k")
    assert raised.value.code is Code.KEY_TOO_LONG
    assert raised.value.details["limit"] == str(MAX_USER_KEY_BYTES)
    batch = WriteBatch()
    with pytest.raises(F1Error) as raised:
        put_version(batch, 1, b"k" * MAX_KEY_BYTES, 1, b"")
    assert raised.value.code is Code.KEY_TOO_LONG

    async def body() -> None:
        engine = LmdbEngine.open(tmp_path, cluster="c", server="s", map_bytes=16 << 20)
        put_version(batch, 1, longest, 1, b"v")
        await engine.commit(batch)
        with engine.snapshot() as reader:
            assert read_version(reader, 1, longest, 1) == Version(1, b"v")
            assert list(scan_versions(reader, 1, longest, longest + b"\x00", 1)) == [(longest, Version(1, b"v"))]
        await engine.close()

    asyncio.run(body())


@pytest.mark.parametrize("value", [b"payload", b"", None])
def test_every_flipped_bit_of_a_value_is_found(value: bytes | None) -> None:
    engine_key, data = item(b"\x05key", 77, value)
    assert decode_version(engine_key, data) == Version(77, value)
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(F1Error) as raised:
            decode_version(engine_key, bytes(damaged))
        assert raised.value.code is Code.DATA_CORRUPTION
        assert "056b6579 at 77" in raised.value.message


def test_cut_values_and_swapped_keys_are_found() -> None:
    engine_key, data = item(b"\x05key", 77, b"payload")
    for length in range(len(data)):
        with pytest.raises(F1Error):
            decode_version(engine_key, data[:length])
    for other in (version_key(1, b"\x05key", 78), version_key(1, b"\x05kez", 77)):
        with pytest.raises(F1Error) as raised:
            decode_version(other, data)
        assert raised.value.code is Code.DATA_CORRUPTION
    with pytest.raises(F1Error):
        split_version_key(b"\x00\x01\x10short")


def test_damage_is_reported_by_every_read() -> None:
    batch = WriteBatch()
    engine_key, data = item(b"k", 5, b"v")
    batch.put(engine_key, data[:-1] + b"w")
    reader = reader_of(batch)
    reads: list[Callable[[], object]] = [
        lambda: read_version(reader, 1, b"k", 9),
        lambda: latest(reader, 1, b"k"),
        lambda: list(scan_versions(reader, 1, b"a", b"z", 9)),
        lambda: list(scan_versions(reader, 1, b"a", b"z", 9, reverse=True)),
        lambda: latest_in_range_ts(reader, 1, b"a", b"z"),
    ]
    for read in reads:
        with pytest.raises(F1Error) as raised:
            read()
        assert raised.value.code is Code.DATA_CORRUPTION


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("ts", [0, 1, 500, 5000, 10_000])
def test_long_chains_are_not_walked(reverse: bool, ts: int) -> None:
    batch = WriteBatch()
    for n in range(1, 10_001):
        put_version(batch, 1, b"hot", n, b"%d" % n)
    for key in (b"a", b"z"):
        put_version(batch, 1, key, 0, b"cold")
    reader = reader_of(batch)
    found = dict(scan_versions(reader, 1, b"a", b"zz", ts, reverse=reverse))
    expected = {b"a": Version(0, b"cold"), b"z": Version(0, b"cold")}
    if ts:
        expected[b"hot"] = Version(ts, b"%d" % ts)
    assert found == expected
    assert reader.touched < 50
    assert latest_in_range_ts(reader, 1, b"a", b"zz") == 10_000
    assert read_version(reader, 1, b"hot", ts) == expected.get(b"hot")
    assert list(scan_versions(reader, 1, b"hot\x00", b"z\x00", ts)) == [(b"z", expected[b"z"])]
    assert reader.touched < 100


def test_a_border_that_is_a_string_is_no_successor() -> None:
    """The string "a" ends in 0x00; a range that ends before it holds neither it nor what lies below it."""
    a = b"\x20a\x00"
    batch = WriteBatch()
    for key in (b"\x10", a, a + b"\x81", a + b"\x90" * 9):
        put_version(batch, 1, key, 5, b"v")
    reader = reader_of(batch)
    assert [key for key, _ in scan_versions(reader, 1, b"\x01", a, 9)] == [b"\x10"]
    assert [key for key, _ in scan_versions(reader, 1, a, a + b"\xff", 9)] == [a, a + b"\x81", a + b"\x90" * 9]
    assert [key for key, _ in scan_versions(reader, 1, b"\x01", a, 9, reverse=True)] == [b"\x10"]


@pytest.mark.parametrize("place", [0, 1, 4, 5, -1])
def test_damage_on_a_page_of_plain_rows_is_found(place: int) -> None:
    """Pages of rows with one version each are read all at once: each flipped bit is found there, too."""
    batch = WriteBatch()
    for number in range(20):
        put_version(batch, 1, b"\x05k%02d" % number, 7, b"value")
    kind, engine_key, data = batch.ops[11]
    flipped = bytearray(data)
    flipped[place] ^= 1
    batch.ops[11] = (kind, engine_key, bytes(flipped))
    live = LiveRows(reader_of(batch), 1, b"\x05", b"\x06", 9)
    with pytest.raises(F1Error) as raised:
        live.page(50, 1 << 20)
    assert raised.value.code is Code.DATA_CORRUPTION


@pytest.mark.parametrize("rows", [0, 2])
@pytest.mark.parametrize("cut", [b"", b"\x05", b"\x05abcd", b"\x05k02\x00\xff\xff\xff\xff"])
def test_a_key_on_a_page_that_is_too_short_for_a_version_is_damage(rows: int, cut: bytes) -> None:
    """It is neither passed over nor taken for something else: the row that it was would be lost without a word."""
    batch = WriteBatch()
    for number in range(rows):
        put_version(batch, 1, b"\x04k%02d" % number, 7, b"value")
    batch.put(data_prefix(1) + cut, b"\x01sums")
    live = LiveRows(reader_of(batch), 1, b"", b"\x06", 9)
    with pytest.raises(F1Error) as raised:
        live.page(50, 1 << 20)
    assert raised.value.code is Code.DATA_CORRUPTION


@pytest.mark.parametrize("versions", [(7,), (3, 7)])
def test_a_row_whose_timestamp_is_damaged_to_a_later_one_is_not_passed_over(versions: tuple[int, ...]) -> None:
    """A flipped bit that makes its version too new to be seen would lose the row, or show what it was before."""
    batch = WriteBatch()
    for number in range(9):
        for ts in versions:
            put_version(batch, 1, b"\x05k%02d" % number, ts, b"value")
    place = 4 * len(versions) + len(versions) - 1
    kind, engine_key, data = batch.ops[place]
    batch.ops[place] = (kind, engine_key[:-8] + bytes([engine_key[-8] ^ 0x80]) + engine_key[-7:], data)
    live = LiveRows(reader_of(batch), 1, b"\x05", b"\x06", 9)
    with pytest.raises(F1Error) as raised:
        live.page(50, 1 << 20)
    assert raised.value.code is Code.DATA_CORRUPTION
