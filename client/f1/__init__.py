"""The library that users import: connections, transactions and the command line of F1.

``f1.connect("host:port,host:port")`` gives a DB-API 2.0 connection (PEP 249) with transactions of three kinds, reads
and writes by key, Arrow results and a retry loop; :mod:`f1.aio` has the same for asyncio. The guide is
docs/developers-guide.md.

What is public here is imported when it is first used: the command line should not wait for what it does not need.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from f1 import aio as aio
    from f1.changes import Change as Change
    from f1.changes import ChangeBatch as ChangeBatch
    from f1.dbapi import Connection as Connection
    from f1.dbapi import Cursor as Cursor
    from f1.dbapi import Rows as Rows
    from f1.dbapi import Transaction as Transaction
    from f1.dbapi import connect as connect
    from f1.errors import *  # noqa: F403
    from f1.nosql import Read as Read
    from f1.orm import Model as Model
    from f1.results import Row as Row
    from f1.session import Committed as Committed
    from f1.types import *  # noqa: F403

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # see f1.forks; gRPC looks at it when it is imported

apilevel = "2.0"
threadsafety = 2
"""Threads may share the module and connections."""
paramstyle = "qmark"

_PUBLIC = {
    "f1.changes": ("Change", "ChangeBatch"),
    "f1.dbapi": ("Connection", "Cursor", "Rows", "Transaction", "connect"),
    "f1.errors": (
        "Code",
        "DataError",
        "DatabaseError",
        "Error",
        "IntegrityError",
        "InterfaceError",
        "InternalError",
        "NotSupportedError",
        "OperationalError",
        "ProgrammingError",
        "TransactionAborted",
        "UnknownOutcome",
        "Warning",
    ),
    "f1.nosql": ("Read",),
    "f1.orm": ("Model",),
    "f1.results": ("Row",),
    "f1.session": ("Committed",),
    "f1.types": (
        "BINARY",
        "Binary",
        "DATETIME",
        "Date",
        "DateFromTicks",
        "NUMBER",
        "ROWID",
        "STRING",
        "Time",
        "TimeFromTicks",
        "Timestamp",
        "TimestampFromTicks",
    ),
}
_WHERE = {name: module for module, names in _PUBLIC.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "aio":
        return import_module("f1.aio")
    if name not in _WHERE:
        raise AttributeError(f"module f1 has no attribute {name!r}")
    value = getattr(import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({"aio", "apilevel", "paramstyle", "threadsafety", *_WHERE})
