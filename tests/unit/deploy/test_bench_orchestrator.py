"""The benchmark of the orchestrator notices transfers that lose something."""

import asyncio
import itertools
from collections.abc import Iterator

import pytest

from f1.orchestrator import LocalLocks, LocalTimestamps, MemoryStore, aio
from f1common.errors import Code, F1Error
from f1deploy.bench import orchestrator as bench
from f1deploy.bench.orchestrator import Measured


def test_figures_come_from_transfers_that_add_up() -> None:
    ((clients, found),) = asyncio.run(
        bench._orchestrated(lambda: aio.Orchestrator(MemoryStore(), LocalTimestamps(), LocalLocks()), [4], 0.2)
    )
    assert clients == 4
    assert found.rate > 0 and 0 < found.p50_ms <= found.p99_ms


def test_transfers_that_lose_something_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = itertools.count()

    def lossy(tx: aio.Transaction, table: str, row: int, column: str, value: int) -> None:
        """Of the two writes of a transfer the second one is lost: losses that go either way may cancel out."""
        if next(calls) % 2 == 0:
            write(tx, table, row, column, value)

    write = aio.Transaction.set
    monkeypatch.setattr(aio.Transaction, "set", lossy)
    with pytest.raises(F1Error) as caught:
        asyncio.run(
            bench._orchestrated(lambda: aio.Orchestrator(MemoryStore(), LocalTimestamps(), LocalLocks()), [4], 0.5)
        )
    assert caught.value.code is Code.DATA_CORRUPTION


def test_a_ratio_above_one_is_better_in_every_row() -> None:
    def rows(ours: Measured, native: Measured) -> Iterator[float | None]:
        return (row.ratio for row in bench._rows("spanstore", 4, ours, native))

    better, worse = Measured(200.0, 1.0, 2.0), Measured(100.0, 2.0, 4.0)
    assert list(rows(better, worse)) == [2.0, 2.0, 2.0]
    assert list(rows(worse, better)) == [0.5, 0.5, 0.5]
