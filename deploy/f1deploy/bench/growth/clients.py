"""The operations of which the cost is measured, for load processes; each looks at what it gets."""

import random
from dataclasses import dataclass
from functools import partial

from f1 import aio
from f1.transactions import Transaction
from f1deploy.bench.database.load import Operation, Share, WrongAnswer
from spanstore.tools.load import own_cpu_s

__all__ = ["DDL", "GrowthOpener", "ROWS_EACH", "id_of", "name_of", "part_table"]

DDL = """\
CREATE TABLE Grown (Id INT64 NOT NULL, Name STRING NOT NULL, Amount INT64 NOT NULL, PRIMARY KEY (Id));
CREATE INDEX GrownByName ON Grown (Name);
"""
ROWS_EACH = 1_000
"""Rows of each table that a transaction of several participants writes to."""

_TIMEOUT_S = 60.0
_ROOM_BITS = 38
"""Between two rows that were loaded there is room for this many bits of ids."""
_SCRAMBLE = 0x9E3779B1
"""Odd, so that no two numbers below 2**32 get the same name."""


def id_of(number: int) -> int:
    """Return the id of the row that was loaded as this one."""
    return number << _ROOM_BITS


def name_of(number: int) -> str:
    """Return its name: in another order than the ids, no two the same."""
    return f"name {number * _SCRAMBLE % (1 << 32):010d}"


def part_table(number: int) -> str:
    """Return the name of a table that lies in a group of its own, if there are so many."""
    return f"Part{number}"


@dataclass(frozen=True, slots=True)
class GrowthOpener:
    """A cluster, and how many rows were loaded, or how many participants a transaction has."""

    hosts: str
    size: int

    async def open(self, work: str, clients: int) -> "GrowthClient":
        """Connect."""
        return GrowthClient(await aio.connect(self.hosts, autocommit=True, timeout_s=_TIMEOUT_S), self.size)


class GrowthClient:
    """A :class:`~f1deploy.bench.database.load.Driver`."""

    def __init__(self, connection: aio.Connection, size: int) -> None:
        self._connection = connection
        self._size = size
        self._inserted: list[int] = []

    def operation(self, work: str, share: Share, rng: random.Random) -> Operation:
        """Return what one client does over and over."""
        match work:
            case "point":
                return partial(self._point, rng)
            case "index":
                return partial(self._index, rng)
            case "insert":
                return _Inserts(self._connection, self._size, share, rng, self._inserted)
            case _:
                return partial(self._parts, share, rng)

    async def _point(self, rng: random.Random) -> None:
        number = rng.randrange(self._size)
        row = await self._connection.get("Grown", id_of(number))
        if row is None or row["Name"] != name_of(number):
            raise WrongAnswer("f1db", number, row, name_of(number))

    async def _index(self, rng: random.Random) -> None:
        number = rng.randrange(self._size)
        rows = await self._connection.read("Grown", index="GrownByName", prefix=name_of(number), columns=["Id"])
        if [row["Id"] for row in rows] != [id_of(number)]:
            raise WrongAnswer("f1db", name_of(number), rows, id_of(number))

    async def _parts(self, share: Share, rng: random.Random) -> None:
        key, amount = share.own(ROWS_EACH, rng), rng.randrange(1_000_000)

        async def write(tx: Transaction) -> None:
            for number in range(self._size):
                await tx.upsert(part_table(number), {"Id": key, "Amount": amount})

        await self._connection.run(write)

    async def check(self, rng: random.Random) -> int:
        """Read what was inserted, a sample."""
        wanted = rng.sample(self._inserted, min(len(self._inserted), 25))
        rows = await self._connection.read("Grown", wanted, columns=["Id"]) if wanted else []
        found = {row["Id"] for row in rows}
        for key in wanted:
            if key not in found:
                raise WrongAnswer("f1db", key, None, "a row")
        return len(wanted)

    def cpu_s(self) -> float:
        """The client is in this process."""
        return own_cpu_s()

    async def close(self) -> None:
        """Disconnect."""
        await self._connection.close()


class _Inserts:
    """Inserts rows between those that were loaded, at random places."""

    def __init__(
        self, connection: aio.Connection, size: int, share: Share, rng: random.Random, inserted: list[int]
    ) -> None:
        self._connection = connection
        self._size = size
        self._rng = rng
        self._inserted = inserted
        # Ids of one client and run; a hundred thousand of them are more than it inserts in a window.
        self._next = ((share.run * share.clients + share.number) << 20) + 1

    async def __call__(self) -> None:
        key, self._next = id_of(self._rng.randrange(self._size)) + self._next, self._next + 1
        await self._connection.insert("Grown", {"Id": key, "Name": f"inserted {key}", "Amount": 1})
        self._inserted.append(key)
