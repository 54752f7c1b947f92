"""What every engine promises (spanstore/engine/base.py), held against each of them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from f1common.errors import Code, F1Error, InvariantViolation
from spanstore.engine.base import MAX_KEY_BYTES, Engine, EngineFailed, WriteBatch
from spanstore.engine.lmdb_engine import LmdbEngine
from spanstore.engine.memory import MemoryEngine
from tests.amounts import examples

Open = Callable[[], Engine]


def _memory_disk() -> Open:
    engine = MemoryEngine()
    opened = False

    def open_engine() -> Engine:
        nonlocal opened
        if opened:
            engine.restart()
        opened = True
        return engine

    return open_engine


def _lmdb_disk(path: Path) -> Open:
    return lambda: LmdbEngine.open(path, cluster="c", server="span-a1", map_bytes=64 << 20)


@pytest.fixture(params=["memory", "lmdb"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    return _memory_disk() if request.param == "memory" else _lmdb_disk(tmp_path / "data")


@asynccontextmanager
async def opened(disk: Open) -> AsyncIterator[Engine]:
    engine = disk()
    try:
        yield engine
    finally:
        await engine.close()


def run(coroutine: Coroutine[object, object, None]) -> None:
    asyncio.run(coroutine)


def batch(**puts: str) -> WriteBatch:
    made = WriteBatch()
    for key, value in puts.items():
        made.put(key.encode(), value.encode())
    return made


def contents(engine: Engine) -> dict[bytes, bytes]:
    """Everything but the records that an engine keeps about itself."""
    with engine.snapshot() as reader:
        return dict(reader.scan(b"", b"\xff\xff"))


def test_a_commit_is_seen_by_later_snapshots_only(disk: Open) -> None:
    async def body() -> None:
        async with opened(disk) as engine:
            await engine.commit(batch(a="1"))
            before = engine.snapshot()
            await engine.commit(batch(a="2", b="3"))
            with engine.snapshot() as after:
                assert (before.get(b"a"), before.get(b"b")) == (b"1", None)
                assert (after.get(b"a"), after.get(b"b")) == (b"2", b"3")
                assert dict(before.scan(b"", b"\xff\xff")) == {b"a": b"1"}
            before.close()

    run(body())


def test_a_snapshot_opened_but_not_yet_read_is_of_the_time_it_was_opened(disk: Open) -> None:
    async def body() -> None:
        async with opened(disk) as engine:
            await engine.commit(batch(a="old"))
            with engine.snapshot() as reader:
                await engine.commit(batch(a="new"))
                assert reader.get(b"a") == b"old"

    run(body())


def test_a_snapshot_outlives_many_overwrites_and_deletes(disk: Open) -> None:
    async def body() -> None:
        async with opened(disk) as engine:
            first = WriteBatch()
            for i in range(200):
                first.put(b"k%03d" % i, b"first")
            await engine.commit(first)
            with engine.snapshot() as reader:
                scan = reader.scan(b"k", b"l")
                seen = [next(scan)]
                for round_number in range(20):
                    change = WriteBatch()
                    change.delete_range(b"k%03d" % (round_number * 10), b"k%03d" % (round_number * 10 + 5))
                    change.put(b"k%03d" % (199 - round_number), b"later")
                    change.put(b"n%03d" % round_number, b"new")
                    await engine.commit(change)
                seen.extend(scan)
                assert seen == [(b"k%03d" % i, b"first") for i in range(200)]
                assert list(reader.scan(b"k", b"z", reverse=True)) == seen[::-1]
            assert contents(engine)[b"k199"] == b"later"
            assert b"k000" not in contents(engine)

    run(body())


def test_later_operations_of_a_batch_win(disk: Open) -> None:
    async def body() -> None:
        async with opened(disk) as engine:
            await engine.commit(batch(a="0", b="0", c="0", d="0"))
            change = WriteBatch()
            change.put(b"a", b"1")
            change.delete(b"a")
            change.delete(b"b")
            change.put(b"b", b"1")
            change.put(b"bb", b"1")
            change.delete_range(b"bb", b"d")
            change.put(b"c", b"1")
            change.put(b"d", b"1")
            change.put(b"d", b"2")
            await engine.commit(change)
            assert contents(engine) == {b"b": b"1", b"c": b"1", b"d": b"2"}

    run(body())


def test_seeks_and_borders(disk: Open) -> None:
    async def body() -> None:
        async with opened(disk) as engine:
            await engine.commit(batch(b="1", bb="2", d="3"))
            long = b"b" * 600
            with engine.snapshot() as reader:
                assert reader.seek_first(b"", b"\xff\xff") == (b"b", b"1")
                assert reader.seek_first(b"b\x00", b"c") == (b"bb", b"2")
                assert reader.seek_first(b"c", b"d") is None
                assert reader.seek_first(b"x", b"y") is None
                assert reader.seek_last(b"a", b"d") == (b"bb", b"2")
                assert reader.seek_last(b"a", b"z") == (b"d", b"3")
                assert reader.seek_last(b"a", b"b") is None
                assert reader.seek_last(b"", b"b\x00") == (b"b", b"1")
                assert reader.seek_first(long, b"z") == (b"d", b"3")
                assert reader.seek_last(b"a", long) == (b"bb", b"2")
                assert list(reader.scan(b"d", b"b")) == []
                assert list(reader.scan(b"d", b"b", reverse=True)) == []
                assert list(reader.scan(b"b", b"b")) == []
                assert reader.get(long) is None
                assert reader.get(b"") is None

    run(body())


def test_pages_of_a_range(disk: Open) -> None:
    async def body() -> None:
        async with opened(disk) as engine:
            await engine.commit(batch(a="0", b="11", c="2", d="3"))
            with engine.snapshot() as reader:
                some = [(b"b", b"11"), (b"c", b"2")]
                assert reader.page(b"b", b"d", 9, 99) == (some, True)
                assert reader.page(b"b", b"d", 2, 99) == (some, True)
                assert reader.page(b"b", b"e", 2, 99) == (some, False)
                assert reader.page(b"b", b"e", 9, 3) == (some, False)
                assert reader.page(b"b", b"e", 9, 2) == (some[:1], False)
                assert reader.page(b"e", b"f", 9, 99) == reader.page(b"c", b"b", 9, 99) == ([], True)
                assert reader.page(b"b" * 600, b"c" * 600, 9, 99) == (some[1:], True)

    run(body())


def test_pages_of_any_size_are_those_of_a_walk(disk: Open) -> None:
    async def body() -> None:
        async with opened(disk) as engine:
            change = WriteBatch()
            for number in range(120):
                change.put(b"%03d" % number, b"v" * (number % 7))
            await engine.commit(change)
            with engine.snapshot() as reader:
                for start, end in ((b"000", b"999"), (b"010", b"011"), (b"0", b"05"), (b"090", b"119"), (b"2", b"3")):
                    walk = list(reader.scan(start, end))
                    for most in (1, 15, 16, 17, 48, 119, 120, 500):
                        for max_bytes in (1, 6, 7, 45, 46, 100, 9999):
                            sizes = accumulate((len(value) for _, value in walk), initial=0)
                            several = [item for item, size in zip(walk, sizes, strict=False) if size < max_bytes]
                            page = several[:most]
                            assert reader.page(start, end, most, max_bytes) == (page, len(page) == len(walk))

    run(body())


def test_a_border_as_long_as_no_key_can_be_still_divides(disk: Open) -> None:
    async def body() -> None:
        async with opened(disk) as engine:
            change = WriteBatch()
            longest = b"m" * MAX_KEY_BYTES
            change.put(longest, b"1")
            await engine.commit(change)
            with engine.snapshot() as reader:
                assert reader.seek_first(longest + b"a", b"z") is None
                assert reader.seek_last(b"a", longest + b"a") == (longest, b"1")
                assert list(reader.scan(b"a", longest + b"a", reverse=True)) == [(longest, b"1")]

    run(body())


def test_keys_no_engine_can_store_are_refused_before_a_commit() -> None:
    made = WriteBatch()
    with pytest.raises(F1Error) as raised:
        made.put(b"k" * (MAX_KEY_BYTES + 1), b"")
    assert raised.value.code is Code.KEY_TOO_LONG
    with pytest.raises(F1Error) as raised:
        made.put(b"", b"v")
    assert raised.value.code is Code.INVALID_ARGUMENT
    assert not made.ops


def test_commits_awaited_at_once_take_effect_in_the_order_of_the_calls(disk: Open) -> None:
    async def body() -> None:
        async with opened(disk) as engine:
            await asyncio.gather(*(engine.commit(batch(last=str(i), **{f"n{i}": "x"})) for i in range(300)))
            found = contents(engine)
            assert found[b"last"] == b"299"
            assert len(found) == 301

    run(body())


def test_what_was_committed_is_there_after_a_clean_stop(disk: Open) -> None:
    async def body() -> None:
        async with opened(disk) as engine:
            waiting = [asyncio.ensure_future(engine.commit(batch(**{f"k{i}": "v"}))) for i in range(10)]
            await asyncio.sleep(0)
        assert [w.exception() for w in waiting] == [None] * 10
        async with opened(disk) as engine:
            assert contents(engine) == {b"k%d" % i: b"v" for i in range(10)}

    run(body())


def test_a_cancelled_caller_does_not_undo_or_hang_its_commit(disk: Open) -> None:
    async def body() -> None:
        async with opened(disk) as engine:
            task = asyncio.ensure_future(engine.commit(batch(a="1")))
            await asyncio.sleep(0)
            task.cancel()
            await engine.commit(batch(b="2"))
            assert contents(engine) == {b"a": b"1", b"b": b"2"}

    run(body())


def test_a_closed_engine_refuses_and_closing_twice_is_harmless(disk: Open) -> None:
    async def body() -> None:
        engine = disk()
        reader = engine.snapshot()
        await engine.close()
        await engine.close()
        reader.close()
        with pytest.raises(EngineFailed):
            engine.snapshot()
        with pytest.raises(EngineFailed):
            await engine.commit(batch(a="1"))

    run(body())


def test_a_closed_reader_is_a_defect_to_use(disk: Open) -> None:
    async def body() -> None:
        async with opened(disk) as engine:
            reader = engine.snapshot()
            reader.close()
            reader.close()
            uses: list[Callable[[], object]] = [
                lambda: reader.get(b"a"),
                lambda: reader.seek_first(b"a", b"b"),
                lambda: reader.seek_last(b"a", b"b"),
                lambda: list(reader.scan(b"a", b"b")),
            ]
            for use in uses:
                with pytest.raises(InvariantViolation):
                    use()

    run(body())


def test_every_opening_is_a_new_incarnation(disk: Open) -> None:
    async def body() -> None:
        seen = []
        for _ in range(3):
            async with opened(disk) as engine:
                seen.append(engine.incarnation)
                await engine.commit(batch(a="1"))
        assert seen == sorted(set(seen))

    run(body())


def test_info_counts_readers_and_commits(disk: Open) -> None:
    async def body() -> None:
        async with opened(disk) as engine:
            before = engine.info()
            reader = engine.snapshot()
            await engine.commit(batch(a="1"))
            after = engine.info()
            assert isinstance(before["commits"], int)
            assert after["commits"] == before["commits"] + 1
            assert (before["open_readers"], after["open_readers"]) == (0, 1)
            reader.close()
            assert engine.info()["open_readers"] == 0

    run(body())


keys = st.binary(min_size=1, max_size=3)
operations = st.one_of(
    st.tuples(st.just("put"), keys, st.binary(max_size=4)),
    st.tuples(st.just("delete"), keys, st.just(b"")),
    st.tuples(st.just("delete_range"), keys, keys),
)
batches = st.lists(st.lists(operations, max_size=12), max_size=6)


def _model(state: dict[bytes, bytes], ops: list[tuple[str, bytes, bytes]]) -> dict[bytes, bytes]:
    state = dict(state)
    for kind, key, value in ops:
        match kind:
            case "put":
                state[key] = value
            case "delete":
                state.pop(key, None)
            case _:
                state = {k: v for k, v in state.items() if not key <= k < value}
    return state


@pytest.fixture(scope="module", params=["memory", "lmdb"])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """One engine for all examples: LMDB's files are too slow to make for each."""
    disk = _memory_disk() if request.param == "memory" else _lmdb_disk(tmp_path_factory.mktemp("engine") / "data")
    engine = disk()
    yield engine
    asyncio.run(engine.close())


@settings(max_examples=examples(60))
@given(history=batches, probes=st.lists(st.tuples(keys, keys), max_size=4), keep=st.sets(st.integers(0, 6)))
def test_every_snapshot_equals_the_model_of_its_time(
    shared: Engine, history: list[list[tuple[str, bytes, bytes]]], probes: list[tuple[bytes, bytes]], keep: set[int]
) -> None:
    async def body() -> None:
        clear = WriteBatch()
        clear.delete_range(b"\x00", b"\xff\xff\x04")
        await shared.commit(clear)
        state: dict[bytes, bytes] = {}
        kept = []
        for number, ops in enumerate(history):
            made = WriteBatch()
            for kind, key, value in ops:
                if kind == "put" and key >= b"\xff\xff":
                    continue
                match kind:
                    case "put":
                        made.put(key, value)
                    case "delete":
                        made.delete(key)
                    case _:
                        made.delete_range(key, min(value, b"\xff\xff"))
            await shared.commit(made)
            state = _model(state, [op for op in ops if not (op[0] == "put" and op[1] >= b"\xff\xff")])
            if number in keep:
                kept.append((shared.snapshot(), state))
        kept.append((shared.snapshot(), state))
        for reader, expected in kept:
            assert list(reader.scan(b"", b"\xff\xff")) == sorted(expected.items())
            for start, end in probes:
                end = min(end, b"\xff\xff")
                wanted = sorted((k, v) for k, v in expected.items() if start <= k < end)
                assert list(reader.scan(start, end)) == wanted
                assert list(reader.scan(start, end, reverse=True)) == wanted[::-1]
                assert reader.seek_first(start, end) == (wanted[0] if wanted else None)
                assert reader.seek_last(start, end) == (wanted[-1] if wanted else None)
                assert reader.get(start) == expected.get(start)
        for reader, _ in kept:
            reader.close()

    asyncio.run(body())
