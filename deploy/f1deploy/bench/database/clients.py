"""The works on our database, through its asyncio client; all clients of a load process share one connection."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from f1 import aio
from f1.nosql import Read
from f1.transactions import Transaction
from f1common.errors import Code, F1Error
from f1deploy.bench.database.load import Acknowledged, Operation, Share, WrongAnswer
from spanstore.tools.load import own_cpu_s

__all__ = [
    "ACCOUNTS",
    "BATCH",
    "DDL",
    "DIRECTORY",
    "ROWS",
    "START_BALANCE",
    "TABLES",
    "F1Client",
    "F1Opener",
    "item",
    "line",
]

ROWS = 10_000
ROW_BYTES = 100
ACCOUNTS = 1_000
START_BALANCE = 1_000
BATCH = 500
"""Rows of a large transaction."""
DIRECTORY = 1
"""The root row that all rows of large transactions lie below."""

_TIMEOUT_S = 30.0

DDL = """\
CREATE TABLE Tracked (Id INT64 NOT NULL, Value BYTES NOT NULL, PRIMARY KEY (Id));
CREATE TABLE Plain (Id INT64 NOT NULL, Value BYTES NOT NULL, PRIMARY KEY (Id)) WITH (change_history = false);
CREATE TABLE Item (Id INT64 NOT NULL, Value BYTES NOT NULL, PRIMARY KEY (Id));
CREATE TABLE Account1 (Id INT64 NOT NULL, Balance INT64 NOT NULL, PRIMARY KEY (Id));
CREATE TABLE Account2 (Id INT64 NOT NULL, Balance INT64 NOT NULL, PRIMARY KEY (Id));
CREATE TABLE Directory (Id INT64 NOT NULL, PRIMARY KEY (Id));
CREATE TABLE Entry (Id INT64 NOT NULL, Number INT64 NOT NULL, Name STRING NOT NULL, Amount INT64 NOT NULL,
  PRIMARY KEY (Id, Number)) INTERLEAVE IN PARENT Directory;
CREATE TABLE PlainDirectory (Id INT64 NOT NULL, PRIMARY KEY (Id)) WITH (change_history = false);
CREATE TABLE PlainEntry (Id INT64 NOT NULL, Number INT64 NOT NULL, Name STRING NOT NULL, Amount INT64 NOT NULL,
  PRIMARY KEY (Id, Number)) INTERLEAVE IN PARENT PlainDirectory;
"""
"""Account1 and Account2 get numbers one after the other, so that a new cluster deals them to different groups."""

TABLES: Mapping[str, str] = {
    "upsert": "Tracked",
    "upsert-plain": "Plain",
    "rows": "Entry",
    "rows-plain": "PlainEntry",
}


def item(number: int) -> bytes:
    """Return what a row holds that is read only."""
    return (b"%010d" % number) * (ROW_BYTES // 10)


def line(share: Share, sent: int, position: int) -> tuple[int, str, int]:
    """Return number, name and amount of a row of a client's ``sent``-th large transaction; no two have one number."""
    number = ((share.run * 1_000 + share.number) * 1_000_000 + sent) * BATCH + position
    return number, f"entry {number}", number % 1_000


@dataclass(frozen=True, slots=True)
class F1Opener:
    """A cluster by the addresses of its f1servers."""

    hosts: str

    async def open(self, work: str, clients: int) -> "F1Client":
        """Connect; whatever the number of clients, they share messages."""
        return F1Client(await aio.connect(self.hosts, autocommit=True, timeout_s=_TIMEOUT_S), work)


class F1Client:
    """A :class:`~f1deploy.bench.database.load.Driver` of our database."""

    def __init__(self, connection: aio.Connection, work: str) -> None:
        self._connection = connection
        self._work = work
        self._known: Acknowledged[Any, Any] = Acknowledged()

    def operation(self, work: str, share: Share, rng: random.Random) -> Operation:
        """Return what one client does over and over."""
        match work:
            case "upsert" | "upsert-plain":
                return partial(self._upsert, TABLES[work], share, rng)
            case "read":
                return partial(self._read, rng)
            case "select":
                return partial(self._select, rng)
            case "rows" | "rows-plain":
                return _Rows(self._connection, TABLES[work], share, self._known)
            case "transfer-1":
                return partial(self._transfer, "Account1", "Account1", rng)
            case "transfer-2":
                return partial(self._transfer, "Account1", "Account2", rng)
            case _:
                raise F1Error(Code.INVALID_ARGUMENT, f"{work!r} is no work of this benchmark")

    async def _upsert(self, table: str, share: Share, rng: random.Random) -> None:
        key, value = share.own(ROWS, rng), rng.randbytes(ROW_BYTES)
        self._known.begin(key)
        await self._connection.upsert(table, {"Id": key, "Value": value})
        self._known.end(key, value)

    async def _read(self, rng: random.Random) -> None:
        key = rng.randrange(ROWS)
        row = await self._connection.get("Item", key)
        if row is None or row["Value"] != item(key):
            raise WrongAnswer("f1db", key, row, item(key))

    async def _select(self, rng: random.Random) -> None:
        key = rng.randrange(ROWS)
        cursor = await self._connection.execute("SELECT Id, Value FROM Item WHERE Id = ?", (key,))
        row = await cursor.fetchone()
        if row is None or tuple(row) != (key, item(key)):
            raise WrongAnswer("f1db", key, row, item(key))

    async def _transfer(self, source: str, target: str, rng: random.Random) -> None:
        payer, payee = rng.sample(range(ACCOUNTS), 2)
        amount = rng.randint(1, 100)

        async def move(tx: Transaction) -> None:
            a, b = await tx.read_many([Read(source, keys=[payer]), Read(target, keys=[payee])])
            await tx.update(source, {"Id": payer, "Balance": a[0]["Balance"] - amount})
            await tx.update(target, {"Id": payee, "Balance": b[0]["Balance"] + amount})

        await self._connection.run(move)

    async def check(self, rng: random.Random) -> int:
        """Read a sample of what was acknowledged."""
        wanted = self._known.sample(rng)
        table = TABLES.get(self._work)
        if not wanted or table is None:
            return 0
        rows = {}
        for row in await self._connection.read(table, list(wanted)):
            if table in ("Tracked", "Plain"):
                rows[row["Id"]] = row["Value"]
            else:
                rows[row["Id"], row["Number"]] = (row["Name"], row["Amount"])
        for key, value in wanted.items():
            if rows.get(key) != value:
                raise WrongAnswer("f1db", key, rows.get(key), value)
        return len(wanted)

    def cpu_s(self) -> float:
        """The client is in this process."""
        return own_cpu_s()

    async def close(self) -> None:
        """Disconnect."""
        await self._connection.close()


class _Rows:
    """Inserts :data:`BATCH` new rows of one directory in one transaction."""

    def __init__(self, connection: aio.Connection, table: str, share: Share, known: Acknowledged[Any, Any]) -> None:
        self._connection = connection
        self._table = table
        self._share = share
        self._known = known
        self._sent = 0

    async def __call__(self) -> None:
        lines = [line(self._share, self._sent, position) for position in range(BATCH)]
        self._sent += 1
        rows = [{"Id": DIRECTORY, "Number": number, "Name": name, "Amount": amount} for number, name, amount in lines]
        await self._connection.insert(self._table, rows)
        number, name, amount = lines[self._sent % BATCH]
        self._known.end((DIRECTORY, number), (name, amount))
