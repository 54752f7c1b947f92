"""The library that users import: connections, transactions and the command line of F1.

``f1.connect("host:port,host:port")`` gives a DB-API 2.0 connection (PEP 249) with transactions of three kinds, reads
and writes by key, Arrow results and a retry loop; :mod:`f1.aio` has the same for asyncio. The guide is
docs/developers-guide.md.
"""

from f1 import aio
from f1.changes import Change, ChangeBatch
from f1.dbapi import Connection, Cursor, Rows, Transaction, connect
from f1.errors import (
    Code,
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    TransactionAborted,
    UnknownOutcome,
    Warning,
)
from f1.nosql import Read
from f1.results import Row
from f1.session import Committed
from f1.types import (
    BINARY,
    DATETIME,
    NUMBER,
    ROWID,
    STRING,
    Binary,
    Date,
    DateFromTicks,
    Time,
    TimeFromTicks,
    Timestamp,
    TimestampFromTicks,
)

apilevel = "2.0"
threadsafety = 2
"""Threads may share the module and connections."""
paramstyle = "qmark"

__all__ = [
    "aio",
    "connect",
    "Connection",
    "Cursor",
    "Rows",
    "Row",
    "Transaction",
    "Committed",
    "Read",
    "Change",
    "ChangeBatch",
    "apilevel",
    "threadsafety",
    "paramstyle",
    "Code",
    "Warning",
    "Error",
    "InterfaceError",
    "DatabaseError",
    "DataError",
    "OperationalError",
    "TransactionAborted",
    "UnknownOutcome",
    "IntegrityError",
    "InternalError",
    "ProgrammingError",
    "NotSupportedError",
    "STRING",
    "BINARY",
    "NUMBER",
    "DATETIME",
    "ROWID",
    "Date",
    "Time",
    "Timestamp",
    "DateFromTicks",
    "TimeFromTicks",
    "TimestampFromTicks",
    "Binary",
]
