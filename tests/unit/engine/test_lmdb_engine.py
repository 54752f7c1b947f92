"""What only a disk can do wrong: foreign, shared, truncated and full directories, and readers that die."""

import asyncio
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, cast

import lmdb
import msgspec
import pytest

from f1common.errors import Code, F1Error, InvariantViolation
from spanstore.engine.base import EngineFailed, WriteBatch
from spanstore.engine.directory import DATA_FILE, IDENTITY_KEY, Identity, failure_of
from spanstore.engine.lmdb_engine import LmdbEngine
from spanstore.engine.lmdb_reader import _page


def run(coroutine: Coroutine[object, object, None]) -> None:
    asyncio.run(coroutine)


def open_engine(path: Path, *, server: str = "span-a1", cluster: str = "c", map_bytes: int = 64 << 20) -> LmdbEngine:
    return LmdbEngine.open(path, cluster=cluster, server=server, map_bytes=map_bytes)


def fill(path: Path, count: int = 100) -> None:
    async def body() -> None:
        engine = open_engine(path)
        batch = WriteBatch()
        for i in range(count):
            batch.put(b"k%06d" % i, b"v" * 1000)
        await engine.commit(batch)
        await engine.close()

    run(body())


def refusal(path: Path, **options: str) -> F1Error:
    with pytest.raises(F1Error) as raised:
        open_engine(path, **options)  # type: ignore[arg-type]
    return raised.value


def start(script: str, path: Path) -> "subprocess.Popen[str]":
    arguments = [sys.executable, "-c", script, str(path)]
    return subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_a_directory_serves_one_process_at_a_time(tmp_path: Path) -> None:
    async def body() -> None:
        engine = open_engine(tmp_path)
        error = refusal(tmp_path)
        assert error.code is Code.BAD_DATA_DIR
        assert f"process {os.getpid()}" in error.message
        await engine.close()
        await open_engine(tmp_path).close()

    run(body())


def test_another_servers_directory_is_refused(tmp_path: Path) -> None:
    fill(tmp_path)
    error = refusal(tmp_path, server="span-b1")
    assert error.code is Code.BAD_DATA_DIR
    assert "'span-a1'" in error.message
    assert refusal(tmp_path, cluster="other").code is Code.BAD_DATA_DIR
    run(open_engine(tmp_path).close())


def test_another_format_is_refused(tmp_path: Path) -> None:
    fill(tmp_path)
    with lmdb.open(str(tmp_path), map_size=64 << 20) as env, env.begin(write=True) as txn:
        txn.put(IDENTITY_KEY, msgspec.msgpack.encode(Identity("c", "span-a1", format=99)))
    error = refusal(tmp_path)
    assert error.code is Code.BAD_DATA_DIR
    assert "format 99" in error.message


def test_another_programs_lmdb_is_refused(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path), map_size=1 << 20) as env, env.begin(write=True) as txn:
        txn.put(b"theirs", b"1")
    assert refusal(tmp_path).code is Code.BAD_DATA_DIR


def test_a_path_that_cannot_be_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert refusal(tmp_path / "file").code is Code.BAD_DATA_DIR


@pytest.mark.parametrize("length", [0, 1, 100, 4096, 8192, 65536])
def test_a_truncated_file_is_corruption_not_a_crash(tmp_path: Path, length: int) -> None:
    fill(tmp_path)
    os.truncate(tmp_path / DATA_FILE, length)
    assert refusal(tmp_path).code is Code.DATA_CORRUPTION
    with pytest.raises(EngineFailed) as raised:
        LmdbEngine.open_read_only(tmp_path, map_bytes=64 << 20)
    assert raised.value.code is Code.DATA_CORRUPTION


def test_a_file_one_page_short_of_its_used_pages_is_corruption(tmp_path: Path) -> None:
    fill(tmp_path)
    with lmdb.open(str(tmp_path), map_size=64 << 20, readonly=True) as env:
        used = (env.info()["last_pgno"] + 1) * env.stat()["psize"]
    os.truncate(tmp_path / DATA_FILE, used)
    run(open_engine(tmp_path).close())
    os.truncate(tmp_path / DATA_FILE, used - 1)
    assert refusal(tmp_path).code is Code.DATA_CORRUPTION


def test_a_missing_file_is_corruption(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / DATA_FILE).unlink()
    error = refusal(tmp_path)
    assert error.code is Code.DATA_CORRUPTION
    assert not (tmp_path / DATA_FILE).exists()


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_goes_away_while_it_is_open_is_noticed(tmp_path: Path, replaced: bool) -> None:
    """What is acknowledged from then on would be gone with the process."""

    async def body() -> None:
        engine = LmdbEngine.open(tmp_path, cluster="c", server="s", map_bytes=64 << 20)
        try:
            assert engine.space() is not None
            copy = (tmp_path / DATA_FILE).read_bytes()
            (tmp_path / DATA_FILE).rename(tmp_path / "elsewhere")
            if replaced:
                (tmp_path / DATA_FILE).write_bytes(copy)
            with pytest.raises(EngineFailed, match="was deleted or replaced") as raised:
                engine.space()
            assert raised.value.code is Code.DATA_CORRUPTION
            with pytest.raises(EngineFailed, match="the engine failed before"):
                await engine.commit(WriteBatch())
        finally:
            await engine.close()

    run(body())


def test_garbage_in_place_of_the_file_is_corruption(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / DATA_FILE).write_bytes(b"\x55" * (1 << 20))
    assert refusal(tmp_path).code is Code.DATA_CORRUPTION


def test_the_file_is_always_longer_than_the_pages_in_use(tmp_path: Path) -> None:
    async def body() -> None:
        engine = open_engine(tmp_path, map_bytes=256 << 20)
        for n in range(30):
            batch = WriteBatch()
            for i in range(50):
                batch.put(b"%d/%d" % (n, i), b"x" * 20_000)
            batch.delete_range(b"%d/" % n, b"%d/3" % n)
            await engine.commit(batch)
            info = engine.info()
            assert isinstance(info["used_bytes"], int)
            assert (tmp_path / DATA_FILE).stat().st_size == info["file_bytes"]
            assert info["used_bytes"] <= (tmp_path / DATA_FILE).stat().st_size
        await engine.close()

    run(body())


def test_a_full_map_is_disk_full_and_the_end_of_the_engine(tmp_path: Path) -> None:
    async def body() -> None:
        engine = open_engine(tmp_path, map_bytes=1 << 20)
        first = WriteBatch()
        first.put(b"a", b"1")
        await engine.commit(first)
        big = WriteBatch()
        big.put(b"a", b"2")
        big.put(b"b", b"x" * (2 << 20))
        with pytest.raises(EngineFailed) as raised:
            await engine.commit(big)
        assert raised.value.code is Code.DISK_FULL
        assert not raised.value.retryable
        with pytest.raises(EngineFailed):
            await engine.commit(first)
        with pytest.raises(EngineFailed):
            engine.snapshot()
        await engine.close()
        again = open_engine(tmp_path, map_bytes=16 << 20)
        with again.snapshot() as reader:
            assert reader.get(b"a") == b"1"
            assert reader.get(b"b") is None
        await again.commit(big)
        await again.close()

    run(body())


def test_a_full_disk_fails_everybody_who_waits(tmp_path: Path) -> None:
    """A limit on the length of files stands for a full disk: the operating system refuses to extend the file."""

    async def body() -> None:
        engine = open_engine(tmp_path, map_bytes=256 << 20)
        length = (tmp_path / DATA_FILE).stat().st_size
        old = resource.getrlimit(resource.RLIMIT_FSIZE)
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (length, old[1]))
        try:
            batch = WriteBatch()
            batch.put(b"b", b"x" * (32 << 20))
            results = await asyncio.gather(*(engine.commit(batch) for _ in range(3)), return_exceptions=True)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, old)
            signal.signal(signal.SIGXFSZ, handler)
        for result in results:
            assert isinstance(result, EngineFailed)
            assert result.code in (Code.DISK_FULL, Code.UNAVAILABLE)
        assert isinstance(results[0], EngineFailed)
        assert results[0].code is Code.DISK_FULL
        await engine.close()

    run(body())


def test_errors_say_what_the_operator_can_do() -> None:
    assert failure_of(OSError(28, "No space left on device"), "x").code is Code.DISK_FULL
    assert failure_of(lmdb.CorruptedError("x"), "x").code is Code.DATA_CORRUPTION
    assert failure_of(OSError(5, "Input/output error"), "x").code is Code.UNAVAILABLE
    assert not failure_of(OSError(5, "Input/output error"), "x").retryable


def test_a_sibling_process_reads_what_the_server_commits(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom pathlib import Path\nfrom spanstore.engine.lmdb_engine import LmdbEngine\n"
        "engine = LmdbEngine.open_read_only(Path(sys.argv[1]), map_bytes=64 << 20)\n"
        "for line in sys.stdin:\n"
        "    with engine.snapshot() as reader: print(reader.get(b'a'), flush=True)\n"
    )

    async def body() -> None:
        engine = open_engine(tmp_path)
        process = start(script, tmp_path)
        assert process.stdin is not None
        assert process.stdout is not None
        for value in (b"1", b"2"):
            batch = WriteBatch()
            batch.put(b"a", value)
            await engine.commit(batch)
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == f"{value!r}\n"
        process.stdin.close()
        process.stdout.close()
        assert process.wait() == 0
        await engine.close()

    run(body())


def test_a_read_only_engine_neither_commits_nor_exists_without_data(tmp_path: Path) -> None:
    with pytest.raises(F1Error) as raised:
        LmdbEngine.open_read_only(tmp_path / "none")
    assert raised.value.code is Code.BAD_DATA_DIR
    fill(tmp_path / "data")

    async def body() -> None:
        engine = LmdbEngine.open_read_only(tmp_path / "data", map_bytes=64 << 20)
        with engine.snapshot() as reader:
            assert reader.get(b"k000001") == b"v" * 1000
        with pytest.raises(InvariantViolation):
            await engine.commit(WriteBatch())
        with pytest.raises(InvariantViolation):
            _ = engine.incarnation
        await engine.close()

    run(body())


def test_reader_check_frees_the_slot_of_a_killed_reader(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom pathlib import Path\nfrom spanstore.engine.lmdb_engine import LmdbEngine\n"
        "reader = LmdbEngine.open_read_only(Path(sys.argv[1]), map_bytes=64 << 20).snapshot()\n"
        "print(reader.get(b'a'), flush=True)\nsys.stdin.read()\n"
    )

    async def body() -> None:
        engine = open_engine(tmp_path)
        process = start(script, tmp_path)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "None\n"
        assert engine.reader_check() == 0
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()
        assert engine.reader_check() == 1
        assert engine.reader_check() == 0
        await engine.close()

    run(body())


def test_no_option_that_trades_durability_is_used() -> None:
    source = Path(sys.modules[LmdbEngine.__module__].__file__ or "").read_text()
    assert not re.findall(r"\b(sync|metasync|map_async|writemap|lock)=", source)


def test_a_loop_that_ended_does_not_stop_the_writer(tmp_path: Path) -> None:
    engine = open_engine(tmp_path)

    async def abandon() -> None:
        batch = WriteBatch()
        batch.put(b"a", b"1")
        task = asyncio.ensure_future(engine.commit(batch))
        await asyncio.sleep(0)
        task.cancel()

    run(abandon())

    async def body() -> None:
        batch = WriteBatch()
        batch.put(b"b", b"2")
        await engine.commit(batch)
        with engine.snapshot() as reader:
            assert (reader.get(b"a"), reader.get(b"b")) == (b"1", b"2")
        await engine.close()

    run(body())


def test_pages_are_reused_once_the_readers_that_saw_them_are_closed(tmp_path: Path) -> None:
    async def body() -> None:
        engine = open_engine(tmp_path, map_bytes=256 << 20)

        async def overwrite(times: int) -> int:
            for n in range(times):
                batch = WriteBatch()
                for i in range(20):
                    batch.put(b"k%d" % i, b"%d" % n * 500)
                with engine.snapshot() as reader:
                    reader.get(b"k1")
                await engine.commit(batch)
            return int(engine.info()["used_bytes"])

        settled = await overwrite(50)
        assert await overwrite(200) <= settled * 2
        reader = engine.snapshot()
        pinned = await overwrite(200)
        reader.close()
        assert pinned > settled * 10
        assert await overwrite(200) <= pinned * 1.5
        await engine.close()

    run(body())


def test_opening_for_writing_shortens_the_wait_for_the_interpreter(tmp_path: Path) -> None:
    before = sys.getswitchinterval()
    try:
        sys.setswitchinterval(0.005)
        run(open_engine(tmp_path).close())
        assert sys.getswitchinterval() == pytest.approx(0.0001)
        sys.setswitchinterval(0.00005)
        run(open_engine(tmp_path).close())
        assert sys.getswitchinterval() == pytest.approx(0.00005)
    finally:
        sys.setswitchinterval(before)


@pytest.mark.parametrize("keys", [[b"b", b"a", b"c"], [b"b", b"c", b"c"], [b"a", b"b"]])
def test_a_page_whose_keys_do_not_ascend_is_damaged(keys: list[bytes]) -> None:
    class Cursor:
        """One that a damaged page of LMDB sends astray."""

        def set_range(self, start: bytes) -> bool:
            return True

        def iternext(self) -> Iterator[tuple[bytes, bytes]]:
            return iter([(b"\x00\x01\x10" + key, b"") for key in keys])

    with pytest.raises(EngineFailed) as raised:
        _page(cast(Any, Cursor()), b"\x00\x01\x10b", b"\x00\x01\x10z", 99, 99)
    assert raised.value.code is Code.DATA_CORRUPTION


@pytest.mark.parametrize("small", [0, 1, 20, 100])
def test_a_page_takes_no_more_values_from_the_disk_than_it_gives_and_one(small: int) -> None:
    """Each is a copy: of rows of many megabytes, those beyond the page would cost more than the page."""
    taken: list[bytes] = []

    class Cursor:
        """One that says what was taken."""

        def set_range(self, start: bytes) -> bool:
            return True

        def iternext(self) -> Iterator[tuple[bytes, bytes]]:
            for number in range(500):
                taken.append(b"\x00\x01\x10%03d" % number)
                yield taken[-1], b"v" * (10 if number < small else 1000)

    items, last = _page(cast(Any, Cursor()), b"\x00\x01\x100", b"\x00\x01\x109", 512, 3000)
    assert not last
    assert [key for key, _ in items] == taken[:-1]
