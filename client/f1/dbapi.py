"""The blocking connection: DB-API 2.0, transactions and reads by key. :mod:`f1.aio` has the same, awaited."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self, TypeVar

import pyarrow as pa
from google.protobuf.message import Message

from f1 import aio, errors
from f1.aio import DEFAULT_CONNECT_TIMEOUT_S, DEFAULT_TIMEOUT_S, Params
from f1.changes import ChangeBatch
from f1.cursors import Cursor as AsyncCursor
from f1.errors import translating
from f1.interrupts import what_goes_on
from f1.logins import credentials_of
from f1.metadata import Metadata
from f1.nosql import Key, Read, RowLike
from f1.results import Row
from f1.results import Rows as AsyncRows
from f1.runtime import Runtime, new_servers, runtime
from f1.servers import parse_hosts
from f1.session import Committed
from f1.transactions import Retries, begin
from f1.transactions import Transaction as AsyncTransaction
from f1common.errors import F1Error
from f1common.pb import f1_pb2 as pb
from f1common.rpc.channels import ChannelFactory

T = TypeVar("T")


def connect(
    hosts: str | Iterable[str] = "127.0.0.1:7400",
    database: str | None = None,
    autocommit: bool = False,
    *,
    user: str | None = None,
    password: str | None = None,
    kind: str = "optimistic",
    timeout_s: float = DEFAULT_TIMEOUT_S,
    connect_timeout_s: float = DEFAULT_CONNECT_TIMEOUT_S,
    channel_factory: ChannelFactory | None = None,
) -> "Connection":
    """Connect to a cluster: ``hosts`` are addresses of f1servers, ``"host:port,host:port"``.

    ``autocommit``: each statement commits by itself; otherwise a transaction, of kind ``kind`` (optimistic, pessimistic
    or snapshot), begins with the first statement and ends with ``commit()`` or ``rollback()``. ``timeout_s``: for each
    statement. ``user`` and ``password``: of a role of the database, where clients log in; the environment's F1_USER and
    F1_PASSWORD if they are not given. Raises Error UNAVAILABLE if no server answers within ``connect_timeout_s``,
    UNAUTHENTICATED if they do not know the role or its password.
    """
    with translating():
        addresses = parse_hosts(hosts)
        credentials = credentials_of(user, password, database or aio.DEFAULT_DATABASE)
        loop = runtime()

        async def connected() -> aio.Connection:
            if channel_factory is not None:
                servers = new_servers(addresses, channel_factory, credentials)
                close = servers.close
            else:
                key = (addresses, credentials)
                servers = loop.pool.take(key, lambda: new_servers(addresses, None, credentials))

                async def close() -> None:
                    await loop.pool.give_back(key)

            try:
                connection = await aio.connect(
                    addresses,
                    database,
                    autocommit=autocommit,
                    kind=kind,
                    timeout_s=timeout_s,
                    connect_timeout_s=connect_timeout_s,
                    servers=servers,
                )
            except BaseException:
                await close()
                raise
            connection.on_close(close)
            return connection

        return Connection(loop, loop.call(connected()))


class _Blocking:
    """Awaits on the loop's thread what the asyncio twin does, and raises its errors as DB-API's."""

    def __init__(self, loop: Runtime) -> None:
        self._loop = loop

    def _call(self, work: Any) -> Any:
        with translating():
            return self._loop.call(work)

    def _give_up(self, work: Any) -> None:
        with translating():
            self._loop.give_up(work)


class _ByKey(_Blocking):
    """Reads and writes of rows by key, in a transaction or each in one of its own."""

    _aio: aio.Connection | AsyncTransaction

    def read_many(self, reads: Sequence[Read]) -> list[list[Row]]:
        """Read from any number of tables in one round; see :class:`Read`."""
        return self._call(self._aio.read_many(reads))  # type: ignore[no-any-return]

    def read(self, table: str, keys: Any = None, columns: Sequence[str] | None = None, **how: Any) -> list[Row]:
        """Read rows of one table; see :class:`Read` and :meth:`f1.aio.Connection.read`."""
        return self._call(self._aio.read(table, keys, columns, **how))  # type: ignore[no-any-return]

    def get(self, table: str, key: Key, columns: Sequence[str] | None = None) -> Row | None:
        """Return the row with a key, None if there is none."""
        return self._call(self._aio.get(table, key, columns))  # type: ignore[no-any-return]

    def insert(self, table: str, rows: RowLike | Iterable[RowLike]) -> int:
        """Insert a row (a mapping by column name) or several."""
        return self._call(self._aio.insert(table, rows))  # type: ignore[no-any-return]

    def update(self, table: str, rows: RowLike | Iterable[RowLike]) -> int:
        """Change columns of a row or several; each mapping holds the key, too."""
        return self._call(self._aio.update(table, rows))  # type: ignore[no-any-return]

    def upsert(self, table: str, rows: RowLike | Iterable[RowLike]) -> int:
        """Insert rows, or update those whose keys are there already."""
        return self._call(self._aio.upsert(table, rows))  # type: ignore[no-any-return]

    def delete(self, table: str, keys: Any, *, must_exist: bool = False) -> int:
        """Delete the row with a key, or those with a list of keys."""
        return self._call(self._aio.delete(table, keys, must_exist=must_exist))  # type: ignore[no-any-return]


class Connection(_ByKey):
    """A connection to one database. Threads may share it; they share its transaction unless each begins its own."""

    Warning = errors.Warning
    Error = errors.Error
    InterfaceError = errors.InterfaceError
    DatabaseError = errors.DatabaseError
    DataError = errors.DataError
    OperationalError = errors.OperationalError
    IntegrityError = errors.IntegrityError
    InternalError = errors.InternalError
    ProgrammingError = errors.ProgrammingError
    NotSupportedError = errors.NotSupportedError

    _aio: aio.Connection

    def __init__(self, loop: Runtime, connection: aio.Connection) -> None:
        super().__init__(loop)
        self._aio = connection

    @property
    def autocommit(self) -> bool:
        """Whether each statement commits by itself."""
        return self._aio.autocommit

    @autocommit.setter
    def autocommit(self, value: bool) -> None:
        self._aio.autocommit = value

    @property
    def database(self) -> str:
        """The name of the database."""
        return self._aio.database

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction has begun that ``commit()`` or ``rollback()`` ends."""
        return self._aio.in_transaction

    def close(self) -> None:
        """Roll back what is open and end the connection. Idempotent."""
        self._give_up(self._aio.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        leave = self._call if error is None else self._give_up
        leave(self._aio.__aexit__(kind, error, trace))

    def cursor(self) -> "Cursor":
        """Return a new cursor."""
        return Cursor(self, self._aio.cursor(), self._loop)

    def execute(self, sql: str, params: Params = None) -> "Cursor":
        """Run a statement on a new cursor."""
        return self.cursor().execute(sql, params)

    def begin(self, kind: str | None = None, *, timestamp: int = 0) -> "Transaction":
        """Begin the connection's transaction by hand; statements are part of it until its end."""
        transaction: AsyncTransaction = self._call(self._aio.begin(kind, timestamp=timestamp))
        return Transaction(self._loop, transaction)

    def commit(self) -> Committed:
        """Commit the open transaction. Without one: nothing."""
        return self._call(self._aio.commit())  # type: ignore[no-any-return]

    def rollback(self) -> None:
        """Roll back the open transaction. Without one: nothing."""
        self._give_up(self._aio.rollback())

    @contextmanager
    def transaction(
        self, kind: str = "optimistic", *, timestamp: int = 0, priority_ts: int = 0
    ) -> "Iterator[Transaction]":
        """A transaction of its own: ``with conn.transaction() as tx``. Commits at the end, rolls back on an exception.

        ``timestamp`` (microseconds since the Unix epoch): what a snapshot transaction reads at.
        """
        transaction = self._started(kind, priority_ts, timestamp)
        with transaction:
            yield transaction

    def _started(self, kind: str, priority_ts: int = 0, timestamp: int = 0) -> "Transaction":
        async def start() -> AsyncTransaction:
            transaction = begin(self._aio.session, kind, priority_ts=priority_ts, timestamp=timestamp)
            await transaction.start()
            return transaction

        return Transaction(self._loop, self._call(start()))

    def run(self, fn: "Callable[[Transaction], T]", *, kind: str = "optimistic", timeout_s: float | None = None) -> T:
        """Run ``fn(tx)`` in a transaction of its own and commit it: the one retry loop.

        ``fn`` runs again, from its beginning and with a new ``tx``, when the transaction lost a conflict: it may run
        several times, and must do nothing outside of ``tx`` that must not happen twice. One that keeps losing takes
        locks. Raises what ``fn`` raises, and UnknownOutcome: it is not run again then.
        """

        async def policy() -> Retries:
            return Retries(self._aio.session, kind, timeout_s)

        async def failed(error: F1Error) -> float:
            return await retries.after(error)

        retries: Retries = self._call(policy())
        while True:
            try:
                with self._started(retries.kind, retries.priority_ts) as transaction:
                    result = fn(transaction)
                return result
            except F1Error as error:
                delay_s: float = self._call(failed(error))
            time.sleep(delay_s)

    def metadata(self, *, fresh: bool = True) -> Metadata:
        """Return the tables of the database, as a server has them now."""
        return self._call(self._aio.metadata(fresh=fresh))  # type: ignore[no-any-return]

    def register(self, *classes: type[Message]) -> None:
        """Have results give messages of these classes. (Generated classes that were imported are known anyway.)"""
        self._aio.register(*classes)

    def message_class(self, name: str) -> type[Message]:
        """Return the class of a message type of the schema, and have results give such messages. Raises Error."""
        return self._call(self._aio.message_class(name))  # type: ignore[no-any-return]

    def show_schema(self) -> str:
        """Return the DDL that describes the whole database."""
        return self._call(self._aio.show_schema())  # type: ignore[no-any-return]

    def show_protos(self) -> dict[str, str]:
        """Return the .proto files of the database by name."""
        return self._call(self._aio.show_protos())  # type: ignore[no-any-return]

    def apply_schema(
        self, files: Mapping[str, str], *, dry_run: bool = False, allow_data_loss: bool = False
    ) -> pb.ApplySchemaReply:
        """Make the database what .sql and .proto files, by name, describe; ``dry_run``: tell the steps only."""
        work = self._aio.apply_schema(files, dry_run=dry_run, allow_data_loss=allow_data_loss)
        return self._call(work)  # type: ignore[no-any-return]

    def what_goes_on(self) -> str:
        """Return what to tell a person who no longer waits for a schema change."""
        return self._call(what_goes_on(self._aio.session))  # type: ignore[no-any-return]

    def read_changes(
        self, table: str, root_key: Key = None, *, after_ts: int = 0, limit: int = 1000
    ) -> tuple[list[ChangeBatch], int]:
        """Return change batches of a root table that committed after ``after_ts``, and up to when they are complete."""
        return self._call(  # type: ignore[no-any-return]
            self._aio.read_changes(table, root_key, after_ts=after_ts, limit=limit)
        )


class Transaction(_ByKey):
    """A transaction: :class:`f1.transactions.Transaction`, blocking. Ends with the ``with`` block that it is for."""

    _aio: AsyncTransaction

    def __init__(self, loop: Runtime, transaction: AsyncTransaction) -> None:
        super().__init__(loop)
        self._aio = transaction

    @property
    def kind(self) -> str:
        """optimistic, pessimistic or snapshot."""
        return self._aio.kind

    @property
    def is_open(self) -> bool:
        """Whether the transaction takes statements."""
        return self._aio.is_open

    @property
    def read_ts(self) -> int:
        """The timestamp of all reads, in microseconds since the Unix epoch; 0 before the first, and with locks."""
        return self._aio.read_ts

    def execute(self, sql: str, params: Params = None) -> "Rows":
        """Run a statement. It sees what the transaction wrote so far."""
        return Rows(self._loop, self._call(self._aio.execute(sql, params)))

    def commit(self) -> Committed:
        """Commit. Raises Error: nothing was written unless it is ``ambiguous``."""
        return self._call(self._aio.commit())  # type: ignore[no-any-return]

    def rollback(self) -> None:
        """Give up. Idempotent, and never fails: what was not committed is nowhere."""
        self._give_up(self._aio.rollback())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        leave = self._call if error is None else self._give_up
        leave(self._aio.__aexit__(kind, error, trace))


class Rows(_Blocking):
    """What a statement gave, to be fetched as DB-API does. Also an iterator over the rows."""

    def __init__(self, loop: Runtime, rows: AsyncRows) -> None:
        super().__init__(loop)
        self._aio = rows

    @property
    def arraysize(self) -> int:
        """How many rows ``fetchmany`` returns when it is not told."""
        return self._aio.arraysize

    @arraysize.setter
    def arraysize(self, value: int) -> None:
        self._aio.arraysize = value

    @property
    def description(self) -> list[tuple[Any, ...]] | None:
        """Name, type code, precision and nullability of each column of the result, None without one."""
        return self._aio.description

    @property
    def columns(self) -> list[pb.ColumnInfo]:
        """The columns of the result, with the types of protos."""
        return self._aio.columns

    @property
    def tag(self) -> str:
        """What the statement was: SELECT, INSERT, ..."""
        return self._aio.tag

    @property
    def rowcount(self) -> int:
        """How many rows the statement changed; -1 for a query."""
        return self._aio.rowcount

    @property
    def lastrowid(self) -> None:
        """Always None: rows are named by their keys."""
        return

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row, None after the last."""
        with translating():
            if self._aio.buffered():
                return self._aio.take(1)[0]
        return self._call(self._aio.fetchone())  # type: ignore[no-any-return]

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """Return the next ``size`` rows, by default ``arraysize``; fewer at the end."""
        return self._call(self._aio.fetchmany(size))  # type: ignore[no-any-return]

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return all rows that are left."""
        return self._call(self._aio.fetchall())  # type: ignore[no-any-return]

    def fetch_arrow(self) -> pa.Table:
        """Return all rows that are left as an Arrow table. Not after rows were fetched one by one."""
        return self._call(self._aio.fetch_arrow())

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        while (row := self.fetchone()) is not None:
            yield row

    def nextset(self) -> bool | None:
        """Return None: a statement has one result."""
        return None

    def setinputsizes(self, sizes: object) -> None:
        """Do nothing, as DB-API permits."""

    def setoutputsize(self, size: object, column: object = None) -> None:
        """Do nothing, as DB-API permits."""


class Cursor(Rows):
    """DB-API's cursor: runs statements, one after the other, and holds the rows of the last one."""

    def __init__(self, connection: Connection, cursor: AsyncCursor, loop: Runtime) -> None:
        super().__init__(loop, cursor)
        self._cursor = cursor
        self.connection = connection

    def close(self) -> None:
        """Give up the result. Idempotent."""
        self._give_up(self._cursor.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def execute(self, sql: str, params: Params = None) -> Self:
        """Run a statement; ``params`` has one value for each ``?``."""
        self._call(self._cursor.execute(sql, params))
        return self

    def executemany(self, sql: str, seq_of_params: Iterable[Sequence[object]]) -> Self:
        """Run a statement for each sequence of parameters, in one transaction; rows of an INSERT travel together."""
        sets = list(seq_of_params)  # the caller's iterator runs in the caller's thread
        self._call(self._cursor.executemany(sql, sets))
        return self
