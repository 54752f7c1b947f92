"""The example bank of the README, over each store that needs no servers, and its money under many hands."""

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from f1.orchestrator import LmdbStore, LocalLocks, LocalTimestamps, MemoryStore, Orchestrator
from f1.orchestrator.stores.base import Store
from f1deploy.cluster import DEFAULT_PORT
from f1deploy.spec import Shape, plan

README = (Path(__file__).resolve().parents[3] / "README.md").read_text(encoding="utf-8")
STORES: dict[str, Callable[[Path], Store]] = {
    "memory": lambda folder: MemoryStore(),
    "lmdb": lambda folder: LmdbStore(folder / "bank"),
}


def example() -> str:
    (text,) = re.findall(r"```python\n(from f1\.orchestrator import LocalLocks.*?)```", README, re.DOTALL)
    return str(text)


def test_the_readme_says_where_the_services_of_a_cluster_are() -> None:
    (text,) = re.findall(r"bank = Orchestrator\(SpanStore\(.*", README)
    section = plan(Shape(), "c", DEFAULT_PORT, iter(range(20_000, 21_000)).__next__).cluster_section()
    assert text == (
        f'bank = Orchestrator(SpanStore("127.0.0.1:{DEFAULT_PORT}"), Timestamps("{",".join(section.timestamps)}"), '
        f'Locks("{section.locks}"))'
    )


@pytest.mark.parametrize("store", STORES)
def test_the_example(store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = example()
    assert "MemoryStore()," in text
    names: dict[str, Any] = {"made": STORES[store](tmp_path)}
    exec(text.replace("MemoryStore(),", "made,"), names)
    assert capsys.readouterr().out == "{'Alice': 12, 'Bob': 3} True\n"
    with pytest.raises(ValueError, match="Bob has 3 only"):
        names["bank"].run(names["pay"])
    names["bank"].close()


@pytest.mark.parametrize("store", STORES)
def test_money_is_neither_made_nor_lost(store: str, tmp_path: Path) -> None:
    accounts = 4
    with Orchestrator(STORES[store](tmp_path), LocalTimestamps(), LocalLocks()) as o:

        def fill(tx: Any) -> None:
            for n in range(accounts):
                tx.set("a", n, "balance", 100)

        o.run(fill)

        def work(seed: int) -> None:
            for n in range(20):
                payer, payee = (seed + n) % accounts, (seed * 3 + n * 2 + 1) % accounts

                def pay(tx: Any, payer: int = payer, payee: int = payee) -> None:
                    if payer != payee:
                        tx.set("a", payer, "balance", tx.get("a", payer, "balance") - 1)
                        tx.set("a", payee, "balance", tx.get("a", payee, "balance") + 1)

                o.run(pay, attempts=1000)
                with o.start() as tx:
                    assert sum(row.columns["balance"] for row in tx.get_range("a")) == 100 * accounts
            o.sweep()

        failures: list[BaseException] = []

        def guarded(seed: int) -> None:
            try:
                work(seed)
            except BaseException as error:
                failures.append(error)
                raise

        threads = [threading.Thread(target=guarded, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
