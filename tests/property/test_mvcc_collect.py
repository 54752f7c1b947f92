"""Collection against a dictionary of lists: every read at or above the mark is the same before, between and after."""

import asyncio
import random
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from f1common.encoding.tuple import encode
from spanstore.engine.base import WriteBatch
from spanstore.engine.memory import MemoryEngine
from spanstore.mvcc.collect import Found, find_garbage, remove_versions
from spanstore.mvcc.versions import MAX_TS, Version, put_version, read_version, scan_versions, version_key
from tests.amounts import examples

GROUP = 7
MAX_TIME = 40

# Few values, so that keys are often prefixes of each other; their encodings end in 0x00 and contain 0xFF.
elements = st.sampled_from([None, 0, 1, 128, 256, -1, "", "a", "a\x00", b"", b"\xff\x00"])
keys = st.lists(elements, min_size=1, max_size=3).map(lambda path: encode(tuple(path)))
values = st.one_of(st.none(), st.binary(max_size=3))

Oracle = dict[bytes, dict[int, bytes | None]]


@st.composite
def histories(draw: st.DrawFn) -> Oracle:
    """Mostly short chains, and now and then one longer than a step, with deletes anywhere in it."""
    oracle: Oracle = {}
    for key, ts, value in draw(st.lists(st.tuples(keys, st.integers(1, MAX_TIME), values), max_size=40)):
        oracle.setdefault(key, {})[ts] = value
    for key in draw(st.lists(keys, max_size=2)):
        for ts in range(draw(st.integers(1, 10)), MAX_TIME):
            oracle.setdefault(key, {})[ts] = draw(st.sampled_from([b"", b"v", None]))
    return oracle


class Store:
    def __init__(self, oracle: Oracle) -> None:
        self.engine = MemoryEngine()
        batch = WriteBatch()
        for key, versions in oracle.items():
            for ts, value in versions.items():
                put_version(batch, GROUP, key, ts, value)
                put_version(batch, GROUP - 1, key, ts, b"other group")
                put_version(batch, GROUP + 1, key, ts, b"other group")
        self.commit(batch)

    def commit(self, batch: WriteBatch) -> None:
        asyncio.run(self.engine.commit(batch))

    def step(self, position: bytes, mark: int, max_items: int) -> Found:
        with self.engine.snapshot() as reader:
            found = find_garbage(reader, GROUP, position, mark, max_items=max_items)
        batch = WriteBatch()
        for key, newest_ts, oldest_ts in found.garbage:
            remove_versions(batch, GROUP, key, newest_ts, oldest_ts)
        self.commit(batch)
        return found

    def check_reads(self, oracle: Oracle, mark: int, stamps: Iterable[int]) -> None:
        with self.engine.snapshot() as reader:
            for ts in [mark, *(ts for ts in stamps if ts > mark)]:
                alive = []
                for key in sorted(oracle):
                    seen = as_of(oracle, key, ts)
                    version = read_version(reader, GROUP, key, ts)
                    # A delete that nobody needs may be gone: no row either way.
                    assert version == seen or (version is None and seen is not None and seen.value is None)
                    if seen is not None and seen.value is not None:
                        alive.append((key, seen))
                assert list(scan_versions(reader, GROUP, b"", b"\xff", ts)) == alive
                assert list(scan_versions(reader, GROUP, b"", b"\xff", ts, reverse=True)) == alive[::-1]

    def versions(self, group: int = GROUP) -> dict[bytes, list[int]]:
        found: dict[bytes, list[int]] = {}
        with self.engine.snapshot() as reader:
            for engine_key, _ in reader.scan(bytes((0, group, 0x10)), bytes((0, group, 0x11))):
                ts = (1 << 64) - 1 - int.from_bytes(engine_key[-8:], "big")
                found.setdefault(engine_key[3:-9], []).append(ts)
        return found


def as_of(oracle: Oracle, key: bytes, ts: int) -> Version | None:
    found = [t for t in oracle.get(key, {}) if t <= ts]
    return Version(max(found), oracle[key][max(found)]) if found else None


def needed(oracle: Oracle, mark: int) -> dict[bytes, list[int]]:
    """What a full pass leaves: all above the mark, and the newest at or below it unless that is a delete."""
    left: dict[bytes, list[int]] = {}
    for key, versions in oracle.items():
        keeper = as_of(oracle, key, mark)
        kept = [ts for ts in versions if ts > mark]
        if keeper is not None and keeper.value is not None:
            kept.append(keeper.ts)
        if kept:
            left[key] = sorted(kept, reverse=True)
    return left


@settings(max_examples=examples(100))
@given(histories(), st.integers(0, MAX_TIME + 1), st.sampled_from([1, 3, 8, 30]), st.integers(0, 1 << 30))
def test_reads_at_and_above_the_mark_stay_the_same(oracle: Oracle, mark: int, max_items: int, seed: int) -> None:
    """In steps of any size; a leader may change in the middle, and go on from an older position or from the start."""
    rng = random.Random(seed)
    store = Store(oracle)
    positions = [b""]
    restarts = versions = size = 0
    while True:
        found = store.step(positions[-1], mark, max_items)
        store.check_reads(oracle, mark, [mark + 1, rng.randrange(MAX_TIME), MAX_TS])
        assert found.items <= 2 * max_items + 10
        assert not found.damaged
        versions, size = versions + found.versions, size + found.size
        if restarts < 3 and found.position and rng.random() < 0.2:
            restarts += 1
            positions.append(rng.choice(positions))
        elif not found.position:
            break
        else:
            positions.append(found.position)
    store.check_reads(oracle, mark, [*range(MAX_TIME + 2), MAX_TS])
    assert store.versions() == needed(oracle, mark)
    assert store.versions(GROUP - 1) == {k: sorted(v, reverse=True) for k, v in oracle.items()}
    assert store.versions(GROUP + 1) == store.versions(GROUP - 1)
    assert versions == sum(map(len, oracle.values())) - sum(map(len, needed(oracle, mark).values()))
    assert (size > 0) == (versions > 0)


@settings(max_examples=examples(50))
@given(histories(), st.lists(st.integers(0, MAX_TIME), min_size=2, max_size=4).map(sorted), st.integers(1, 30))
def test_the_mark_rises_in_the_middle_of_a_pass(oracle: Oracle, marks: list[int], max_items: int) -> None:
    store = Store(oracle)
    position = b""
    for mark in marks:
        position = store.step(position, mark, max_items).position
        store.check_reads(oracle, mark, [mark + 1, MAX_TS])


@pytest.mark.parametrize("bit", [0, 3, 8 * 4 + 1])
def test_versions_below_a_damaged_one_are_left_alone(bit: int) -> None:
    """A flipped bit may turn a row into a delete: only a checksum keeps the row alive at the healthy replicas."""
    key, other = encode(("k",)), encode(("l",))
    store = Store({key: {1: b"a", 2: b"b", 3: None, 4: b"d"}, other: {1: b"a", 2: b"b"}})
    engine_key = version_key(GROUP, key, 4)
    with store.engine.snapshot() as reader:
        data = bytearray(reader.get(engine_key) or b"")
    data[bit // 8] ^= 1 << bit % 8
    batch = WriteBatch()
    batch.put(engine_key, bytes(data))
    store.commit(batch)
    found = store.step(b"", 9, 100)
    assert found.damaged == [key]
    assert store.versions() == {key: [4, 3, 2, 1], other: [2]}


def test_a_damaged_long_chain_is_passed() -> None:
    key, other = encode(("k",)), encode(("l",))
    store = Store({key: dict.fromkeys(range(1, 30), b"a"), other: {1: b"a", 2: b"b"}})
    batch = WriteBatch()
    batch.put(version_key(GROUP, key, 29), b"\x01broken")
    store.commit(batch)
    position, steps = store.step(b"", 99, 5).position, 1
    while position:
        position, steps = store.step(position, 99, 5).position, steps + 1
    assert steps < 10
    assert store.versions()[other] == [2]


def test_a_hot_row_is_collected_in_pieces() -> None:
    """And a delete on top of it goes last, or the row would be there again."""
    key = encode(("k",))
    store = Store({key: {ts: None if ts == 200 else b"v" for ts in range(1, 201)}})
    position, steps = b"", 0
    while True:
        found = store.step(position, 300, 10)
        with store.engine.snapshot() as reader:
            seen = read_version(reader, GROUP, key, MAX_TS)
        assert seen is None or seen == Version(200, None)
        steps += 1
        if not found.position:
            break
        position = found.position
    assert steps >= 20
    assert store.versions() == {}
