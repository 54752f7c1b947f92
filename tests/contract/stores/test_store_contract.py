"""One suite for every store of the orchestrator."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from f1.orchestrator import LmdbStore, MemoryStore
from f1.orchestrator.protocol import EVERYTHING
from f1.orchestrator.steps import Version, Write
from f1.orchestrator.stores.base import Store
from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error

Test = Callable[[Store], Awaitable[None]]
STORES: dict[str, Callable[[Path], Store]] = {
    "memory": lambda folder: MemoryStore(),
    "lmdb": lambda folder: LmdbStore(folder / "store", map_bytes=1 << 28),
}


def key(*elements: str | int) -> bytes:
    return tuples.encode(elements)


A, B, C = key("a"), key("b"), key("c")


async def versions_are_found_below_a_timestamp(store: Store) -> None:
    await store.put([Write(A, 5, b"five"), Write(A, 9, b"nine"), Write(B, 7, None), Write(A, 1, b"one")])
    asked = [(A, 5), (A, 6), (A, 1), (A, 0), (A, EVERYTHING), (B, 8), (C, EVERYTHING), (B, 7)]
    nine, five, one = Version(9, b"nine"), Version(5, b"five"), Version(1, b"one")
    assert await store.get_versions(asked) == [one, five, None, None, nine, Version(7, None), None, None]
    assert await store.get_versions([]) == []


async def a_version_is_replaced(store: Store) -> None:
    await store.put([Write(A, 5, b"x")])
    await store.put([Write(A, 5, b""), Write(B, 5, None)])
    assert await store.get_versions([(A, 6), (B, 6)]) == [Version(5, b""), Version(5, None)]


async def the_first_of_many_is_put(store: Store) -> None:
    async def put(n: int) -> bytes:
        return await store.put_if_absent(Write(A, 0, b"%d" % n))

    answers = await asyncio.gather(*(put(n) for n in range(20)))
    assert len(set(answers)) == 1
    assert await store.get_versions([(A, 1)]) == [Version(0, answers[0])]
    assert await store.put_if_absent(Write(A, 1, b"another timestamp")) == b"another timestamp"
    await store.delete([(A, 0)])
    assert await store.put_if_absent(Write(A, 0, b"again")) == b"again"


async def ranges_are_in_order_and_paged(store: Store) -> None:
    await store.put([Write(key("t", n), n + 1, b"%d" % n) for n in range(30)])
    await store.put([Write(key("t", 3), 2, b"old"), Write(key("u"), 1, b"beyond")])
    start, end = key("t"), key("t") + b"\xff"
    whole = await store.range(start, end, EVERYTHING, 100)
    assert whole == [(key("t", n), [Version(n + 1, b"%d" % n)]) for n in range(30)]
    below = await store.range(start, end, 3, 100)
    assert below == [
        (key("t", 0), [Version(1, b"0")]),
        (key("t", 1), [Version(2, b"1")]),
        (key("t", 3), [Version(2, b"old")]),
    ]
    found = []
    while page := await store.range(start, end, EVERYTHING, 7):
        found += page
        start = page[-1][0] + b"\x00"
    assert found == whole
    assert await store.range(key("t", 4), key("t", 4), EVERYTHING, 5) == []
    (three,) = await store.range(key("t", 3), key("t", 4), EVERYTHING, 5, every=True)
    assert three == (key("t", 3), [Version(4, b"3"), Version(2, b"old")])


async def what_is_removed_is_gone(store: Store) -> None:
    await store.put([Write(A, ts, b"v") for ts in (1, 2, 3)])
    await store.delete([(A, 1), (A, 3), (B, 1)])
    assert await store.range(b"\x01", b"\xff", EVERYTHING, 5, every=True) == [(A, [Version(2, b"v")])]
    await store.delete([(A, 2)])
    await store.delete([])
    assert await store.range(b"\x01", b"\xff", EVERYTHING, 5, every=True) == []


async def it_agrees_with_a_dictionary(store: Store) -> None:
    rng = random.Random(5)
    model: dict[bytes, dict[int, bytes | None]] = {}
    keys = [key("k", n, "\0" * (n % 3)) for n in range(6)]
    for _ in range(150):
        chosen, ts = rng.choice(keys), rng.randrange(8)
        versions = model.setdefault(chosen, {})
        match rng.randrange(4):
            case 0:
                value = rng.choice([None, b"%d" % rng.randrange(99)])
                await store.put([Write(chosen, ts, value)])
                versions[ts] = value
            case 1:
                await store.delete([(chosen, ts)])
                versions.pop(ts, None)
            case 2:
                if versions.get(ts, b"") is not None:
                    assert await store.put_if_absent(Write(chosen, ts, b"p")) == versions.setdefault(ts, b"p")
            case _:
                below = rng.randrange(9)
                expected = [
                    (k, [Version(t, model[k][t]) for t in sorted(model[k], reverse=True) if t < below])
                    for k in sorted(model)
                ]
                expected = [(k, found) for k, found in expected if found]
                assert await store.range(b"\x01", b"\xff", below, 50, every=True) == expected
                assert await store.range(b"\x01", b"\xff", below, 3) == [(k, v[:1]) for k, v in expected[:3]]
                newest = dict(expected)
                asked = await store.get_versions([(k, below) for k in keys])
                assert asked == [newest[k][0] if k in newest else None for k in keys]


async def keys_have_a_limit(store: Store) -> None:
    for bad, code in ((b"x" * 451, Code.KEY_TOO_LONG), (b"", Code.INVALID_ARGUMENT)):
        for call in (store.put([Write(bad, 1, b"")]), store.put_if_absent(Write(bad, 1, b""))):
            with pytest.raises(F1Error) as caught:
                await call
            assert caught.value.code is code
    longest = key("x" * 440)
    await store.put([Write(longest, 1, b"y" * 100_000)])
    assert await store.get_versions([(longest, 2)]) == [Version(1, b"y" * 100_000)]


TESTS: list[Test] = [
    versions_are_found_below_a_timestamp,
    a_version_is_replaced,
    the_first_of_many_is_put,
    ranges_are_in_order_and_paged,
    what_is_removed_is_gone,
    it_agrees_with_a_dictionary,
    keys_have_a_limit,
]


@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.__name__)
@pytest.mark.parametrize("store", STORES)
def test_contract(store: str, test: Test, tmp_path: Path) -> None:
    async def main() -> None:
        opened = STORES[store](tmp_path)
        try:
            await test(opened)
        finally:
            await opened.close()
            await opened.close()

    asyncio.run(main())
