"""Transactions of many rows over any store that writes one row at a time durably (patent 9619507).

``Orchestrator(store, timestamps, locks)`` gives snapshot isolation, and on request serializable transactions, over a
:class:`MemoryStore`, an :class:`LmdbStore` or a :class:`SpanStore`. Timestamps and locks come from services that many
processes share (:class:`Timestamps`, :class:`Locks`), or from twins within this one (:class:`LocalTimestamps`,
:class:`LocalLocks`). :mod:`f1.orchestrator.aio` has the same for asyncio.

docs/orchestrator.md is about how it works and what each step is for; the steps themselves are
:mod:`f1.orchestrator.protocol` and :mod:`f1.orchestrator.sweeping`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from f1.orchestrator.aio import RangeRow as RangeRow
    from f1.orchestrator.blocking import Orchestrator as Orchestrator
    from f1.orchestrator.blocking import Transaction as Transaction
    from f1.orchestrator.remote import Locks as Locks
    from f1.orchestrator.remote import Timestamps as Timestamps
    from f1.orchestrator.services import LocalLocks as LocalLocks
    from f1.orchestrator.services import LocalTimestamps as LocalTimestamps
    from f1.orchestrator.stores.lmdb import LmdbStore as LmdbStore
    from f1.orchestrator.stores.memory import MemoryStore as MemoryStore
    from f1.orchestrator.stores.span import SpanStore as SpanStore
    from f1.orchestrator.sweeping import SweepReport as SweepReport

# Imported on first use: a store should not cost what another one needs.
_PUBLIC = {
    "Locks": "f1.orchestrator.remote",
    "LmdbStore": "f1.orchestrator.stores.lmdb",
    "LocalLocks": "f1.orchestrator.services",
    "LocalTimestamps": "f1.orchestrator.services",
    "MemoryStore": "f1.orchestrator.stores.memory",
    "Orchestrator": "f1.orchestrator.blocking",
    "RangeRow": "f1.orchestrator.aio",
    "SpanStore": "f1.orchestrator.stores.span",
    "SweepReport": "f1.orchestrator.sweeping",
    "Timestamps": "f1.orchestrator.remote",
    "Transaction": "f1.orchestrator.blocking",
}


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module f1.orchestrator has no attribute {name!r}")
    value = getattr(import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(_PUBLIC)
