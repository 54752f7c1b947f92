"""What only the LMDB store promises: it outlives its process, and has one at a time."""

import asyncio
from pathlib import Path

import pytest

from f1.orchestrator import LmdbStore, LocalLocks, LocalTimestamps, Orchestrator
from f1.orchestrator.steps import Write
from f1common.errors import Code, F1Error


def test_it_outlives_its_process_and_timestamps_go_on(tmp_path: Path) -> None:
    last = 0
    for n in range(3):
        with Orchestrator(LmdbStore(tmp_path / "bank"), LocalTimestamps(), LocalLocks()) as o:
            tx = o.start()
            assert tx.start_ts > last
            assert tx.get("t", "a", "x") == (n - 1 if n else None)
            tx.set("t", "a", "x", n)
            assert tx.commit()
            last = tx.commit_ts
            o.sweep()


def test_one_process_at_a_time(tmp_path: Path) -> None:
    async def main() -> None:
        first = LmdbStore(tmp_path / "bank")
        for shared in (False, True):
            with pytest.raises(F1Error) as caught:
                LmdbStore(tmp_path / "bank", shared=shared)
            assert caught.value.code is Code.FAILED_PRECONDITION
        await first.close()
        again = [LmdbStore(tmp_path / "shared", shared=True)]
        await asyncio.gather(*(store.close() for store in again))

    asyncio.run(main())


def test_a_full_store_says_so_and_goes_on(tmp_path: Path) -> None:
    async def main() -> None:
        store = LmdbStore(tmp_path / "small", map_bytes=1 << 20)
        with pytest.raises(F1Error) as caught:
            for n in range(100):
                await store.put([Write(b"k", n, b"x" * 50_000)])
        assert caught.value.code is Code.DISK_FULL
        await store.delete([(b"k", n) for n in range(5)])
        await store.put([Write(b"l", 1, b"small")])
        await store.close()

    asyncio.run(main())


def test_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(F1Error) as caught:
        LmdbStore(tmp_path / "file" / "store")
    assert caught.value.code is Code.BAD_DATA_DIR
