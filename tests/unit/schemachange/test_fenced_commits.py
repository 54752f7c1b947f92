"""The reorganiser's commits under a lease that ends before they do."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from f1common.errors import Code, F1Error
from f1server.schemachange.work.walk import Walker


class Lease:
    """It is renewed at every tenth look, by 500."""

    def __init__(self, *, renewed: bool = True) -> None:
        self.end = 1_000
        self.looks = 0
        self.renewed = renewed

    @asynccontextmanager
    async def fence(self) -> AsyncIterator[Callable[[], int]]:
        yield lambda: self.end

    async def sleep(self, seconds: float) -> None:
        self.looks += 1
        if self.renewed and self.looks % 10 == 0:
            self.end += 500


class Store:
    """Commits have this timestamp."""

    def __init__(self, ts: int, code: Code = Code.FENCED) -> None:
        self.ts = ts
        self.code = code
        self.deadlines: list[int] = []

    async def commit(self, writes: Any, expected: Any, *, deadline: int) -> int:
        self.deadlines.append(deadline)
        if self.ts > deadline:
            raise F1Error(self.code, "too late")
        return self.ts


def commit(store: Store, lease: Lease) -> None:
    parts: Any = None
    client: Any = store
    walker = Walker(client, parts, lease.fence, parts, lease.sleep)
    asyncio.run(walker._commit(parts, [], []))


def test_it_is_tried_again_as_soon_as_the_lease_was_renewed() -> None:
    store = Store(1_900)
    commit(store, Lease())
    assert store.deadlines == [1_000, 1_500, 2_000]


def test_it_is_given_up_at_some_time() -> None:
    for lease in (Lease(), Lease(renewed=False)):
        store = Store(10**9)
        with pytest.raises(F1Error) as caught:
            commit(store, lease)
        assert caught.value.code is Code.FENCED and len(store.deadlines) == 20


def test_another_refusal_is_not_waited_for() -> None:
    store, lease = Store(1_900, Code.DATA_CORRUPTION), Lease()
    with pytest.raises(F1Error):
        commit(store, lease)
    assert store.deadlines == [1_000] and not lease.looks
