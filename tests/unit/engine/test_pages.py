"""The pages of LMDB files: what LMDB writes is sound in every respect, and counted to the last page."""

import asyncio
import random
from pathlib import Path

import pytest

from spanstore.engine.base import WriteBatch
from spanstore.engine.directory import DATA_FILE
from spanstore.engine.lmdb_engine import LmdbEngine
from spanstore.engine.pages import Fault, Leaf, Meta, PageFile, Walk, free_pages


def build(path: Path, seed: int, turns: int) -> dict[bytes, bytes]:
    """Fill an environment with everything that changes pages: splits, merges, large values that shrink and grow."""
    rng = random.Random(seed)
    kept: dict[bytes, bytes] = {}

    async def body() -> None:
        engine = LmdbEngine.open(path, cluster="c", server="s", map_bytes=1 << 28)
        for _ in range(turns):
            batch = WriteBatch()
            for _ in range(rng.randint(1, 60)):
                key = b"\x00\x01\x10" + b"%04d" % rng.randrange(2000) * rng.choice((1, 1, 30))
                if rng.random() < 0.3:
                    batch.delete(key)
                    kept.pop(key, None)
                else:
                    value = rng.randbytes(rng.choice((0, 10, 500, 3_000, 20_000)))
                    batch.put(key, value)
                    kept[key] = value
            if rng.random() < 0.05:
                low, high = b"\x00\x01\x1005", b"\x00\x01\x1012"
                batch.delete_range(low, high)
                for key in [k for k in kept if low <= k < high]:
                    del kept[key]
            await engine.commit(batch)
        await engine.close()

    asyncio.run(body())
    return kept


def newest(pages: PageFile) -> Meta:
    return max((meta for meta in pages.metas() if meta is not None), key=lambda meta: meta.transaction)


@pytest.mark.parametrize("seed", range(4))
def test_a_sound_file_is_read_to_the_last_page(tmp_path: Path, seed: int) -> None:
    expected = build(tmp_path, seed, 40 + 40 * seed)
    pages = PageFile(tmp_path / DATA_FILE)
    meta = newest(pages)
    walk = Walk(pages, meta, meta.main)
    seen: dict[bytes, bytes] = {}
    for found in walk.leaves():
        assert isinstance(found, Leaf), found
        seen |= dict(found.items)
    assert {key: value for key, value in seen.items() if key[:2] != b"\xff\xff"} == expected
    assert walk.totals() == ""
    free, faults, own = free_pages(pages, meta)
    assert not faults
    assert not free & walk.visited.pages and not free & own and not own & walk.visited.pages
    assert free | own | walk.visited.pages == set(range(2, meta.last_page + 1))
    pages.close()


def test_a_walk_goes_on_where_another_stopped(tmp_path: Path) -> None:
    expected = sorted(build(tmp_path, 9, 60))
    pages = PageFile(tmp_path / DATA_FILE)
    meta = newest(pages)
    for start in (expected[0], expected[len(expected) // 2] + b"\x00", expected[-1], b"\xfe"):
        found = [
            item for leaf in Walk(pages, meta, meta.main).leaves(start) if isinstance(leaf, Leaf) for item in leaf.items
        ]
        assert [key for key, _ in found if start <= key < b"\xff"] == [key for key in expected if key >= start]
    pages.close()


def test_every_flipped_bit_that_changes_a_branch_is_a_fault_or_harmless(tmp_path: Path) -> None:
    """All bits of the root, one after the other: the walk finds a fault, or still finds every record in its place."""
    expected = build(tmp_path, 3, 30)
    file = tmp_path / DATA_FILE
    pages = PageFile(file)
    meta = newest(pages)
    root = meta.main.root * meta.page_bytes
    rng = random.Random(5)
    faults = 0
    with file.open("r+b") as stream:
        for _ in range(600):
            at, bit = root + rng.randrange(120 if rng.random() < 0.7 else meta.page_bytes), rng.randrange(8)
            stream.seek(at)
            byte = stream.read(1)[0]
            stream.seek(at)
            stream.write(bytes((byte ^ 1 << bit,)))
            stream.flush()
            found = list(Walk(pages, meta, meta.main).leaves())
            if any(isinstance(item, Fault) for item in found):
                faults += 1
            else:
                keys = [key for leaf in found if isinstance(leaf, Leaf) for key, _ in leaf.items]
                assert keys == sorted(keys) and set(expected) <= set(keys)
            stream.seek(at)
            stream.write(bytes((byte,)))
            stream.flush()
    assert faults > 100
    pages.close()
