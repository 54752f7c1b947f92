"""The works on the peers: etcd through gRPC, PostgreSQL through one ``psql`` for each client.

``psql`` is the client that comes with PostgreSQL: C, with less processor time for a row than any client in Python, so
the comparison is in PostgreSQL's favour. It gets a statement when the one before was answered.
"""

import asyncio
import os
import random
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from f1common.errors import Code, F1Error
from f1deploy.bench.database.clients import BATCH, DIRECTORY, ROW_BYTES, ROWS, item, line
from f1deploy.bench.database.load import Acknowledged, Operation, Share, WrongAnswer
from f1deploy.bench.local import cpu_of_trees
from spanstore.tools.etcdstore import EtcdStore
from spanstore.tools.load import own_cpu_s

__all__ = ["POSTGRES_DDL", "EtcdClient", "EtcdOpener", "PostgresClient", "PostgresOpener", "item_key"]

POSTGRES_DDL = """\
CREATE TABLE Directory (Id bigint NOT NULL, PRIMARY KEY (Id));
CREATE TABLE Entry (Id bigint NOT NULL REFERENCES Directory, Number bigint NOT NULL, Name text NOT NULL,
  Amount bigint NOT NULL, PRIMARY KEY (Id, Number));
"""


def item_key(number: int) -> bytes:
    """Return the key of a row that is read only."""
    return b"item/%06d" % number


@dataclass(frozen=True, slots=True)
class EtcdOpener:
    """A cluster of etcd by the addresses of its members."""

    addresses: tuple[str, ...]

    async def open(self, work: str, clients: int) -> "EtcdClient":
        """Connect."""
        return EtcdClient(EtcdStore(self.addresses))


class EtcdClient:
    """A :class:`~f1deploy.bench.database.load.Driver` of etcd."""

    def __init__(self, store: EtcdStore) -> None:
        self._store = store
        self._known: Acknowledged[bytes, bytes] = Acknowledged()

    def operation(self, work: str, share: Share, rng: random.Random) -> Operation:
        """Return what one client does over and over."""
        match work:
            case "upsert":
                return partial(self._put, share, rng)
            case "read":
                return partial(self._get, rng)
            case _:
                raise F1Error(Code.INVALID_ARGUMENT, f"{work!r} is no work that etcd does here")

    async def _put(self, share: Share, rng: random.Random) -> None:
        key, value = b"row/%06d" % share.own(ROWS, rng), rng.randbytes(ROW_BYTES)
        self._known.begin(key)
        await self._store.put(key, value, rng)
        self._known.end(key, value)

    async def _get(self, rng: random.Random) -> None:
        number = rng.randrange(ROWS)
        found = await self._store.get(item_key(number), rng)
        if found != item(number):
            raise WrongAnswer("etcd", number, found, item(number))

    async def check(self, rng: random.Random) -> int:
        """Read a sample of what was acknowledged."""
        wanted = self._known.sample(rng)
        for key, value in wanted.items():
            found = await self._store.get(key, rng)
            if found != value:
                raise WrongAnswer("etcd", key, found, value)
        return len(wanted)

    def cpu_s(self) -> float:
        """The client is in this process."""
        return own_cpu_s()

    async def close(self) -> None:
        """Disconnect."""
        await self._store.close()


@dataclass(frozen=True, slots=True)
class PostgresOpener:
    """A PostgreSQL server by the command that talks to it."""

    psql: tuple[str, ...]

    async def open(self, work: str, clients: int) -> "PostgresClient":
        """Start a ``psql`` for each client."""
        started = [await _Psql.start(self.psql) for _ in range(clients)]
        return PostgresClient(started)


class _Psql:
    """One ``psql`` that is given a statement at a time."""

    def __init__(self, process: Process) -> None:
        self.pid = process.pid
        self._process = process
        if process.stdin is None or process.stdout is None:
            raise F1Error(Code.INTERNAL, "psql was started without pipes")
        self._input, self._output = process.stdin, process.stdout

    @classmethod
    async def start(cls, command: Sequence[str]) -> "_Psql":
        # Messages of errors come in order with the answers.
        return cls(await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=STDOUT))

    async def run(self, statement: bytes) -> bytes:
        """Run a statement with one line of answer and return that line. Raises F1Error INTERNAL for an error."""
        self._input.write(statement + b";\n")
        await self._input.drain()
        answer = (await self._output.readline()).strip()
        if not answer or answer.startswith((b"ERROR", b"FATAL", b"psql")):
            raise F1Error(Code.INTERNAL, f"PostgreSQL: {answer.decode() or 'the connection ended'}")
        return answer

    async def close(self) -> None:
        with suppress(ConnectionError):
            self._input.close()
            await self._input.wait_closed()
        await self._process.wait()


class PostgresClient:
    """A :class:`~f1deploy.bench.database.load.Driver` of PostgreSQL: each client has a connection."""

    def __init__(self, connections: Sequence[_Psql]) -> None:
        self._all = connections
        self._free = list(connections)
        self._known: Acknowledged[int, str] = Acknowledged()

    def operation(self, work: str, share: Share, rng: random.Random) -> Operation:
        """Return what one client does over and over."""
        if work != "rows":
            raise F1Error(Code.INVALID_ARGUMENT, f"{work!r} is no work that PostgreSQL does here")
        return _Insert(self._free.pop(), share, self._known)

    async def check(self, rng: random.Random) -> int:
        """Read a sample of what was acknowledged."""
        wanted = self._known.sample(rng)
        for key, value in wanted.items():
            query = f"SELECT Name || '|' || Amount FROM Entry WHERE Id = {DIRECTORY} AND Number = {key}"
            found = (await self._all[0].run(query.encode())).decode()
            if found != value:
                raise WrongAnswer("PostgreSQL", key, found, value)
        return len(wanted)

    def cpu_s(self) -> float:
        """This process and those of ``psql``."""
        return cpu_of_trees([os.getpid()])[os.getpid()]

    async def close(self) -> None:
        """Disconnect."""
        for connection in self._all:
            await connection.close()


class _Insert:
    """Inserts :data:`BATCH` new rows of one directory in one statement."""

    def __init__(self, connection: _Psql, share: Share, known: Acknowledged[int, str]) -> None:
        self._connection = connection
        self._share = share
        self._known = known
        self._sent = 0

    async def __call__(self) -> None:
        lines = [line(self._share, self._sent, position) for position in range(BATCH)]
        self._sent += 1
        values = ",".join([f"({DIRECTORY},{number},'{name}',{amount})" for number, name, amount in lines])
        statement = f"INSERT INTO Entry (Id, Number, Name, Amount) VALUES {values}"
        answer = await self._connection.run(statement.encode())
        if answer != b"INSERT 0 %d" % BATCH:
            raise WrongAnswer("PostgreSQL", "an INSERT", answer, f"INSERT 0 {BATCH}")
        number, name, amount = lines[self._sent % BATCH]
        self._known.end(number, f"{name}|{amount}")
