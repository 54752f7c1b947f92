"""The asyncio twin of the library: ``conn = await f1.aio.connect(...)``; the same names, awaited.

The blocking connection (:mod:`f1.dbapi`) is this one, run on a background loop.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self, TypeVar

from google.protobuf.message import Message

from f1 import nosql
from f1.changes import ChangeBatch, read_batches
from f1.cursors import Cursor
from f1.errors import InterfaceError, translated, translating
from f1.forks import note_connect
from f1.logins import Login, credentials_of
from f1.metadata import Metadata
from f1.nosql import Key, Read, RowLike
from f1.results import ResultSet, Row, dicts_of
from f1.runtime import process_rng
from f1.servers import Resend, Servers, parse_hosts
from f1.session import SMALL, Committed, Session
from f1.statements import Kind, kind_of, words
from f1.transactions import KINDS, Reads, Retries, Transaction, begin, without_effect
from f1.values import encode_params
from f1common.clock import Clock
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from f1common.rpc.channels import ChannelFactory
from f1common.rpc.deadlines import Deadline

__all__ = ["DEFAULT_DATABASE", "Connection", "Cursor", "connect"]

T = TypeVar("T")

DEFAULT_DATABASE = "default"
DEFAULT_TIMEOUT_S = 60.0
DEFAULT_CONNECT_TIMEOUT_S = 5.0
# A schema change waits for leases, and for rows to be checked.
_DDL_TIMEOUT_S = 600.0

Params = Sequence[object] | None


@translated
async def connect(
    hosts: str | Iterable[str] = "127.0.0.1:7400",
    database: str | None = None,
    *,
    autocommit: bool = False,
    user: str | None = None,
    password: str | None = None,
    kind: str = "optimistic",
    timeout_s: float = DEFAULT_TIMEOUT_S,
    connect_timeout_s: float = DEFAULT_CONNECT_TIMEOUT_S,
    servers: Servers | None = None,
    channel_factory: ChannelFactory | None = None,
    rng: random.Random | None = None,
    clock: Clock | None = None,
) -> "Connection":
    """Connect to a cluster: ``hosts`` are addresses of f1servers, ``"host:port,host:port"``.

    ``autocommit``: each statement commits by itself; otherwise a transaction begins with the first statement and ends
    with ``commit()`` or ``rollback()``. ``kind``: of such transactions. ``timeout_s``: for each statement. ``user`` and
    ``password``: see :func:`f1.connect`. The others are for tests. Raises Error UNAVAILABLE if no server answers within
    ``connect_timeout_s``.
    """
    if kind not in KINDS:
        raise F1Error(Code.INVALID_ARGUMENT, f"{kind!r} is no kind of transaction; it is one of {', '.join(KINDS)}")
    note_connect()
    rng = rng if rng is not None else process_rng()
    own = servers is None
    if servers is None:
        credentials = credentials_of(user, password, database or DEFAULT_DATABASE)
        # Only tests bring their own clock, and time that stands still while a thread works.
        login = Login(credentials, threads=clock is None) if credentials is not None else None
        servers = Servers(parse_hosts(hosts), rng=rng, channel_factory=channel_factory, clock=clock, login=login)
    try:
        await servers.connect(Deadline.after(connect_timeout_s))
    except BaseException:
        if own:
            await servers.close()
        raise
    session = Session(servers, database or DEFAULT_DATABASE, rng, timeout_s)
    return Connection(session, autocommit=autocommit, kind=kind, close=servers.close if own else None)


class Connection(Reads):
    """A connection to one database. Tasks that use it at once share its transaction, unless each begins its own."""

    def __init__(
        self,
        session: Session,
        *,
        autocommit: bool,
        kind: str,
        close: Callable[[], Awaitable[None]] | None,
    ) -> None:
        self._session = session
        self.autocommit = autocommit
        self.kind = kind
        self._close = close
        self._closed = False
        self._transaction: Transaction | None = None
        self._by_hand = False
        self._beginning = asyncio.Lock()

    @property
    def session(self) -> Session:
        """What the connection says to servers."""
        return self._session

    @property
    def database(self) -> str:
        """The name of the database."""
        return self._session.database

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction has begun that ``commit()`` or ``rollback()`` ends."""
        return self._transaction is not None

    def on_close(self, close: Callable[[], Awaitable[None]]) -> None:
        """Set what is to be done once the connection is closed."""
        self._close = close

    def require_open(self) -> None:
        """Raise InterfaceError if the connection is closed."""
        if self._closed:
            raise InterfaceError(Code.FAILED_PRECONDITION, "the connection is closed")

    async def close(self) -> None:
        """Roll back what is open and end the connection. Idempotent."""
        if self._closed:
            return
        await self.rollback()
        self._closed = True
        if self._close is not None:
            await self._close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        try:
            if not self._closed:
                await (self.commit() if error is None else self.rollback())
        finally:
            await self.close()

    def cursor(self) -> "Cursor":
        """Return a new cursor."""
        self.require_open()
        return Cursor(self)

    async def execute(self, sql: str, params: Params = None) -> "Cursor":
        """Run a statement on a new cursor."""
        return await self.cursor().execute(sql, params)

    # ------------------------------------------------------------------------------------------------ transactions

    @translated
    async def begin(self, kind: str | None = None, *, timestamp: int = 0) -> Transaction:
        """Begin the connection's transaction by hand; statements are part of it until its end."""
        self.require_open()
        async with self._beginning:
            if self._transaction is not None:
                raise F1Error(Code.FAILED_PRECONDITION, "a transaction is open already; commit or roll it back first")
            transaction = begin(self._session, kind or self.kind, timestamp=timestamp)
            await transaction.start()
            self._transaction, self._by_hand = transaction, True
            return transaction

    async def commit(self) -> Committed:
        """Commit the open transaction. Without one: nothing."""
        self.require_open()
        transaction, self._transaction = self._transaction, None
        return Committed(0, 0) if transaction is None else await transaction.commit()

    async def rollback(self) -> None:
        """Roll back the open transaction. Without one: nothing."""
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            await transaction.rollback()

    @asynccontextmanager
    async def transaction(
        self, kind: str = "optimistic", *, timestamp: int = 0, priority_ts: int = 0
    ) -> AsyncIterator[Transaction]:
        """A transaction of its own: ``async with conn.transaction() as tx``. Commits at the end, rolls back on an
        exception.

        ``timestamp`` (microseconds since the Unix epoch): what a snapshot transaction reads at.
        """
        self.require_open()
        with translating():
            transaction = begin(self._session, kind, priority_ts=priority_ts, timestamp=timestamp)
            await transaction.start()
        async with transaction:
            yield transaction

    async def run(
        self,
        fn: Callable[[Transaction], Awaitable[T]],
        *,
        kind: str = "optimistic",
        timeout_s: float | None = None,
    ) -> T:
        """Run ``fn(tx)`` in a transaction of its own and commit it: the one retry loop.

        ``fn`` runs again, from its beginning and with a new ``tx``, when the transaction lost a conflict: it may run
        several times, and must do nothing outside of ``tx`` that must not happen twice. One that keeps losing takes
        locks. Raises what ``fn`` raises, and UnknownOutcome: it is not run again then.
        """
        self.require_open()
        with translating():
            retries = Retries(self._session, kind, timeout_s)
            while True:
                transaction = begin(self._session, retries.kind, priority_ts=retries.priority_ts)
                try:
                    await transaction.start()
                    async with transaction:
                        result = await fn(transaction)
                    return result
                except F1Error as error:
                    delay_s = await retries.after(error)
                await asyncio.sleep(delay_s)

    async def _current(self) -> Transaction:
        """Return the open transaction, begun now if there is none."""
        async with self._beginning:
            if self._transaction is None:
                transaction = begin(self._session, self.kind)
                await transaction.start()
                self._transaction, self._by_hand = transaction, False
            return self._transaction

    # ------------------------------------------------------------------------------------------------ statements

    @translated
    async def run_statement(self, sql: str, params: Params = None) -> ResultSet | None:
        """Run a statement as the state of the connection wants it; None for one that controls a transaction."""
        self.require_open()
        match kind_of(sql):
            case Kind.EMPTY:
                raise F1Error(Code.INVALID_ARGUMENT, "the statement is empty")
            case Kind.BEGIN:
                await self.begin(_kind_in(sql) or self.kind)
                return None
            case Kind.COMMIT:
                await self.commit()
                return None
            case Kind.ROLLBACK:
                await self.rollback()
                return None
            case Kind.DDL:
                return await self._ddl(sql, params)
            case Kind.QUERY if self.autocommit and self._transaction is None:
                return await self._query(sql, params)
            case Kind.DML if self.autocommit and self._transaction is None:
                return (await self.run(lambda tx: tx.execute_alone(sql, params))).result
            case _:
                return (await (await self._current()).execute(sql, params)).result

    async def _query(self, sql: str, params: Params) -> ResultSet:
        execute = pb.Execute(
            sql=sql, params=encode_params(params), txn=pb.TxnContext(kind=pb.AUTOCOMMIT), few_as_rows=True
        )

        async def run() -> Any:
            return await self._session.execute(execute, self._session.deadline(), Resend.ALWAYS)

        return ResultSet(self._session, await run(), run)

    async def _ddl(self, sql: str, params: Params) -> ResultSet:
        # One that has only read, and that nobody asked for, is in nobody's way.
        if self._transaction is not None and (self._by_hand or self._transaction.has_writes):
            what = "was begun by hand" if self._by_hand else "has writes"
            raise F1Error(
                Code.FAILED_PRECONDITION,
                f"the open transaction {what}, and DDL is no part of it: it counts at once and is not rolled back; "
                "commit or roll back first",
            )
        execute = pb.Execute(sql=sql, params=encode_params(params), txn=pb.TxnContext(kind=pb.AUTOCOMMIT))
        answer = await self._session.execute_ddl(execute, max(_DDL_TIMEOUT_S, self._session.timeout_s))
        return ResultSet(self._session, answer)

    # ------------------------------------------------------------------------------------------------ by key

    async def in_some_transaction(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Do work in the connection's transaction, or with autocommit in one of its own."""
        self.require_open()
        if self.autocommit and self._transaction is None:
            return await self.run(work)
        with translating():
            return await work(await self._current())

    async def read_many(self, reads: Sequence[Read]) -> list[list[Row]]:
        """Read from any number of tables in one round; see :class:`Read`."""
        if self.autocommit and self._transaction is None and self.kind == "optimistic":
            return await self._read_now(reads)
        return await self.in_some_transaction(lambda tx: tx.read_many(reads))

    @translated
    async def _read_now(self, reads: Sequence[Read]) -> list[list[Row]]:
        """Read outside of any transaction: all at one timestamp, and nothing of it is validated later."""
        self.require_open()
        session = self._session
        deadline = session.deadline()
        retries: Retries | None = None
        small = all(read.keys is not None and len(read.keys) <= SMALL for read in reads)

        async def send(messages: Sequence[pb.TableRead]) -> pb.ReadReply:
            return await session.read(pb.Read(reads=messages, few_as_rows=True), deadline, small=small)

        while True:
            try:
                reply = await nosql.read_many(session, reads, send)
                return [dicts_of(result, session) for result in reply.results]
            except F1Error as error:
                retries = retries or Retries(session, self.kind, deadline.remaining_s())
                delay_s = await retries.after(without_effect(error))
            await asyncio.sleep(delay_s)

    async def get(self, table: str, key: Key, columns: Sequence[str] | None = None) -> Row | None:
        """Return the row with a key, None if there is none."""
        rows = await self.read_many([Read(table, [key], columns)])
        return rows[0][0] if rows[0] else None

    async def insert(self, table: str, rows: RowLike | Iterable[RowLike]) -> int:
        """Insert a row (a mapping by column name) or several."""
        rows = _listed(rows)
        return await self.in_some_transaction(lambda tx: tx.insert(table, rows))

    async def update(self, table: str, rows: RowLike | Iterable[RowLike]) -> int:
        """Change columns of a row or several; each mapping holds the key, too."""
        rows = _listed(rows)
        return await self.in_some_transaction(lambda tx: tx.update(table, rows))

    async def upsert(self, table: str, rows: RowLike | Iterable[RowLike]) -> int:
        """Insert rows, or update those whose keys are there already."""
        rows = _listed(rows)
        return await self.in_some_transaction(lambda tx: tx.upsert(table, rows))

    async def delete(self, table: str, keys: Any, *, must_exist: bool = False) -> int:
        """Delete the row with a key, or those with a list of keys."""
        return await self.in_some_transaction(lambda tx: tx.delete(table, keys, must_exist=must_exist))

    # ------------------------------------------------------------------------------------------------ schema, history

    @translated
    async def metadata(self, *, fresh: bool = True) -> Metadata:
        """Return the tables of the database, as a server has them now."""
        self.require_open()
        return await self._session.metadata(fresh=fresh)

    def register(self, *classes: type[Message]) -> None:
        """Have results give messages of these classes. (Generated classes that were imported are known anyway.)"""
        self._session.message_classes.update({kind.DESCRIPTOR.full_name: kind for kind in classes})

    async def message_class(self, name: str) -> type[Message]:
        """Return the class of a message type of the schema, and have results give such messages. Raises Error."""
        found = (await self.metadata(fresh=False)).message_class(name)
        self.register(found)
        return found

    @translated
    async def show_schema(self) -> str:
        """Return the DDL that describes the whole database."""
        return (await self._session.show_schema()).ddl

    @translated
    async def show_protos(self) -> dict[str, str]:
        """Return the .proto files of the database by name."""
        reply = await self._session.show_schema(with_protos=True)
        return {file.name: file.text for file in reply.protos}

    @translated
    async def apply_schema(
        self, files: Mapping[str, str], *, dry_run: bool = False, allow_data_loss: bool = False
    ) -> pb.ApplySchemaReply:
        """Make the database what .sql and .proto files, by name, describe; ``dry_run``: tell the steps only."""
        sources = [pb.SourceFile(name=name, text=text) for name, text in files.items()]
        apply = pb.ApplySchema(files=sources, dry_run=dry_run, allow_data_loss=allow_data_loss)
        return await self._session.apply_schema(apply, max(_DDL_TIMEOUT_S, self._session.timeout_s))

    @translated
    async def read_changes(
        self, table: str, root_key: Key = None, *, after_ts: int = 0, limit: int = 1000
    ) -> tuple[list[ChangeBatch], int]:
        """Return change batches of a root table that committed after ``after_ts``, and up to when they are complete."""
        self.require_open()
        return await read_batches(self._session, table, root_key, after_ts, limit)


def _listed(rows: RowLike | Iterable[RowLike]) -> list[RowLike]:
    # A retry goes over the rows again, so an iterator has to be kept.
    return [rows] if isinstance(rows, Mapping) else list(rows)


def _kind_in(sql: str) -> str | None:
    return next((word for word in words(sql) if word in KINDS), None)
