"""DuckDBs for queries: one for each query that runs, so that each has a memory limit and spills by itself."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Executor
from contextlib import asynccontextmanager

from f1common.errors import Code, F1Error
from f1server.exec.duck import Duck, DuckConfig

__all__ = ["Ducks"]

_WAIT_S = 1.0


class Ducks:
    """Makes DuckDBs and keeps those that nobody uses: to make one takes longer than a small query."""

    def __init__(self, config: DuckConfig, executor: Executor | None, most: int) -> None:
        """``config``: of each; ``executor`` as for :class:`Duck`; ``most``: how many queries run at a time."""
        self._config = config
        self._executor = executor
        self._most = most
        self._room = asyncio.Semaphore(most)
        self._idle: list[Duck] = []
        self._all: set[Duck] = set()
        self._condemned: set[Duck] = set()

    @asynccontextmanager
    async def one(self) -> AsyncIterator[Duck]:
        """Lend a DuckDB to one query. Raises OVERLOADED if none gets free within a second."""
        try:
            async with asyncio.timeout(_WAIT_S):
                await self._room.acquire()
        except TimeoutError:
            text = f"this slave runs {self._most} queries, as many as its memory is for; retry later"
            raise F1Error(Code.OVERLOADED, text) from None
        try:
            duck = self._idle.pop() if self._idle else await self._make()
            try:
                yield duck
            finally:
                self._give_back(duck)
        finally:
            self._room.release()

    def _give_back(self, duck: Duck) -> None:
        """Keep a DuckDB for the next query."""
        if duck in self._condemned:
            self._condemned.discard(duck)
            self._all.discard(duck)
            duck.close()
        elif duck in self._all:
            self._idle.append(duck)

    def condemn(self, duck: Duck) -> None:
        """Let a DuckDB go when its query has ended: some errors leave one useless, whichever they are."""
        self._condemned.add(duck)

    async def _make(self) -> Duck:
        def make() -> Duck:
            return Duck(self._config, self._executor)

        if self._executor is None:
            duck = make()
        else:
            duck = await asyncio.get_running_loop().run_in_executor(self._executor, make)
        self._all.add(duck)
        return duck

    def close(self) -> None:
        """Close all of them; queries that run are interrupted. Idempotent."""
        for duck in self._all:
            duck.close()
        self._all.clear()
        self._idle.clear()
