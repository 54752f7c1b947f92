"""Checksums of records that every batch puts on and every view verifies."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from f1common.errors import Code, F1Error
from spanstore.engine import keyspace
from spanstore.engine.base import Reader, WriteBatch
from spanstore.engine.keyspace import Subspace
from spanstore.engine.lmdb_engine import LmdbEngine
from spanstore.engine.memory import MemoryEngine
from spanstore.engine.sealing import any_sealed, is_sealed, seal, unseal

KEYS = st.binary(min_size=1, max_size=40)


@given(KEYS, st.binary(max_size=60), st.data())
def test_any_flipped_bit_of_key_or_record_is_noticed(key: bytes, value: bytes, data: st.DataObject) -> None:
    stored = seal(key, value)
    assert unseal(key, stored) == value
    bit = data.draw(st.integers(0, 8 * (len(key) + len(stored)) - 1))
    damaged = bytearray(key + stored)
    damaged[bit // 8] ^= 1 << bit % 8
    with pytest.raises(F1Error) as caught:
        unseal(bytes(damaged[: len(key)]), bytes(damaged[len(key) :]))
    assert caught.value.code is Code.DATA_CORRUPTION


@given(KEYS, st.binary(max_size=3))
def test_what_is_too_short_was_not_written(key: bytes, stored: bytes) -> None:
    with pytest.raises(F1Error):
        unseal(key, stored)


def test_rows_and_log_entries_have_checksums_of_their_own() -> None:
    own = {space for space in Subspace if not is_sealed(keyspace.prefix(1, space) + b"x")}
    assert own == {Subspace.DATA, Subspace.LOG}


@given(st.binary(min_size=3, max_size=6), st.binary(max_size=6), st.binary(min_size=3, max_size=6))
def test_a_range_without_seals_has_none(start: bytes, end: bytes, key: bytes) -> None:
    if start <= key < end and not any_sealed(start, end):
        assert not is_sealed(key)


READS: list[Callable[[Reader, bytes], object]] = [
    lambda view, key: view.get(key),
    lambda view, key: list(view.scan(key, key + b"\xff")),
    lambda view, key: list(view.scan(b"", b"\xff\xff\xff")),
    lambda view, key: list(view.scan(key, key + b"\xff", reverse=True)),
    lambda view, key: view.seek_first(key, key + b"\xff"),
    lambda view, key: view.seek_last(key, key + b"\xff"),
]


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("space", [s for s in Subspace if s not in (Subspace.DATA, Subspace.LOG)])
def test_no_read_gives_a_damaged_record(read: Callable[[Reader, bytes], object], space: Subspace) -> None:
    key = keyspace.prefix(1, space) + b"k"

    async def body() -> None:
        engine = MemoryEngine()
        batch = WriteBatch()
        batch.put(key, b"value")
        await engine.commit(batch)
        with engine.snapshot() as view:
            assert view.get(key) == b"value"
        for bit in range(8 * (4 + len(b"value"))):
            engine.flip_bit(key, bit=bit)
            with engine.snapshot() as view, pytest.raises(F1Error) as caught:
                read(view, key)
            assert caught.value.code is Code.DATA_CORRUPTION
            engine.flip_bit(key, bit=bit)

    asyncio.run(body())


def test_lmdb_returns_what_was_put_by_every_read(tmp_path: Path) -> None:
    key = keyspace.outcome_key(1, b"t")

    async def body() -> None:
        engine = LmdbEngine.open(tmp_path, cluster="c", server="s", map_bytes=1 << 26)
        batch = WriteBatch()
        batch.put(key, b"value")
        batch.put(keyspace.data_prefix(1) + b"row", b"unsealed")
        await engine.commit(batch)
        with engine.snapshot() as view:
            for read in READS:
                assert b"value" in str(read(view, key)).encode()
            assert view.get(keyspace.data_prefix(1) + b"row") == b"unsealed"
        await engine.close()

    asyncio.run(body())
