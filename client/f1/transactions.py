"""The three kinds of transactions (F1 section 5), seen from the client.

* **Optimistic**, the default: all reads at one timestamp; what was read and what is to be written is kept here, at the
  client, so that any server can answer the next statement and no server keeps anything. The commit validates what was
  read. A conflict is found at the commit, as :class:`~f1.errors.TransactionAborted`.
* **Pessimistic**: rows are locked as they are read, at one server that holds the transaction until its end.
* **Snapshot**: reads only, at one timestamp in the past, waiting for nobody.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar

from f1 import nosql
from f1.errors import translated
from f1.metadata import Metadata
from f1.newrows import MANY, NewRows, new_rows
from f1.nosql import Key, Read, RowLike, keys_of
from f1.results import Answer, ResultSet, Row, Rows, dicts_of
from f1.servers import Resend, Server, ends_within
from f1.session import Committed, Session
from f1.values import encode_params
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from f1common.rpc.deadlines import Deadline

T = TypeVar("T")

KINDS = ("optimistic", "pessimistic", "snapshot")

# The tries of an optimistic transaction after which it takes locks instead, and after which it gives up.
_STARVED_AFTER = 4
_MAX_TRIES = 40
# Errors after which a server holds a pessimistic transaction no longer.
_ENDS_IT = frozenset({Code.ABORTED, Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED, Code.CANCELLED, Code.EXPIRED})
_AGAIN = "; run it again"


class Reads(ABC):
    """What one read of a table is, for whatever can make several."""

    @abstractmethod
    async def read_many(self, reads: Sequence[Read]) -> list[list[Row]]:
        """Read from any number of tables in one round; the results in the order of ``reads``."""

    async def read(
        self,
        table: str,
        keys: Any = None,
        columns: Sequence[str] | None = None,
        *,
        prefix: Key = None,
        prefixes: Iterable[Key] | None = None,
        ranges: Iterable[tuple[Key, Key]] | None = None,
        index: str | None = None,
        limit: int = 0,
        reverse: bool = False,
        exclusive: bool = False,
    ) -> list[Row]:
        """Read rows of one table; see :class:`Read`. ``keys`` is a list of keys or one key, ``prefix`` one prefix."""
        several = [*(prefixes or ()), *(() if prefix is None else (prefix,))]
        wanted = Read(
            table,
            None if keys is None else keys_of(keys),
            columns,
            None if prefix is None and prefixes is None else several,
            None if ranges is None else list(ranges),
            index,
            limit,
            reverse,
            exclusive,
        )
        return (await self.read_many([wanted]))[0]


class Transaction(Reads):
    """What the kinds have in common. Begun by a connection; ends with :meth:`commit` or :meth:`rollback`.

    One transaction is for one task at a time, except that reads may run at once.
    """

    kind = ""

    def __init__(self, session: Session, priority_ts: int = 0) -> None:
        self._session = session
        self._statement = asyncio.Lock()
        self._state = "open"
        self._read_ts = 0
        self._writes: list[pb.LogicalWrite] = []
        self._keys: dict[str, tuple[int, ...]] = {}
        """The columns of the primary keys by which it reads and deletes, by table."""
        self._new: NewRows | None = None
        """Rows to be inserted by columns, as long as they are all that the transaction does."""
        self.priority_ts = priority_ts or session.servers.now_us()
        """The age of the transaction, which a retry keeps: older ones win against younger ones."""

    @property
    def is_open(self) -> bool:
        """Whether the transaction takes statements."""
        return self._state == "open"

    @property
    def has_writes(self) -> bool:
        """Whether there is anything to commit."""
        return bool(self._writes) or self._new is not None

    @property
    def read_ts(self) -> int:
        """The timestamp of all reads, in microseconds since the Unix epoch; 0 before the first, and with locks."""
        return self._read_ts

    def _require_open(self) -> None:
        if not self.is_open:
            raise F1Error(Code.FAILED_PRECONDITION, f"the transaction is {self._state} already; begin a new one")

    async def start(self) -> None:
        """Do what has to be done before the first statement."""

    # ------------------------------------------------------------------------------------------------ statements

    @translated
    async def execute(self, sql: str, params: Sequence[object] | None = None) -> Rows:
        """Run a statement. It sees what the transaction wrote so far."""
        self._require_open()
        encoded = encode_params(params)
        async with self._statement:
            self._one_by_one()
            before = len(self._writes)

            async def run() -> Answer:
                context = self._context()
                del context.writes[before:]
                execute = pb.Execute(sql=sql, params=encoded, txn=context, few_as_rows=True)
                return await self._execute(execute, self._session.deadline())

            reply, server = await self._guarded(run())
            self._note(reply)
            self._add(reply.writes)
            return Rows(ResultSet(self._session, (reply, server), None if reply.writes else run))

    async def execute_alone(self, sql: str, params: Sequence[object] | None = None) -> Rows:
        """Run a statement that is all of the transaction, which may have been committed by the time it returns."""
        return await self.execute(sql, params)

    @translated
    async def read_many(self, reads: Sequence[Read]) -> list[list[Row]]:
        """Read from any number of tables in one round; the results in the order of ``reads``."""
        reply = await self._read(reads)
        return [dicts_of(result, self._session) for result in reply.results]

    async def _read(self, reads: Sequence[Read]) -> pb.ReadReply:
        self._require_open()
        if self._read_ts and self.kind != "pessimistic":
            return await self._read_now(reads)
        async with self._statement:  # the first read decides about the timestamp of all
            return await self._read_now(reads)

    async def _read_now(self, reads: Sequence[Read]) -> pb.ReadReply:
        keys: list[tuple[str, tuple[int, ...]]] = []

        async def send(messages: Sequence[pb.TableRead]) -> pb.ReadReply:
            keys[:] = [(m.table, tuple(m.key_columns)) for m in messages if m.key_columns and not m.keys.all]
            self._require_same_keys(keys)
            read = pb.Read(reads=messages, txn=self._context(), few_as_rows=True)
            return await self._guarded(self._session.read(read, self._session.deadline(), self._server()))

        reply = await nosql.read_many(self._session, reads, send)
        self._keys.update(keys)
        self._note(reply)
        return reply

    def _require_same_keys(self, keys: Iterable[tuple[str, tuple[int, ...]]]) -> None:
        """Raise ABORTED, to be run again, if tuples were the keys of other rows earlier in the transaction."""
        for table, columns in keys:
            if self._keys.get(table, columns) != columns:
                text = f"the primary key of {table} is not what it was when the transaction began{_AGAIN}"
                raise F1Error(Code.ABORTED, text, details={"conflict": "schema", "table": table})

    async def get(self, table: str, key: Key, columns: Sequence[str] | None = None) -> Row | None:
        """Return the row with a key, None if there is none."""
        rows = await self.read_many([Read(table, [key], columns)])
        return rows[0][0] if rows[0] else None

    # ------------------------------------------------------------------------------------------------ writes by key

    async def insert(self, table: str, rows: RowLike | Iterable[RowLike]) -> int:
        """Insert a row (a mapping by column name) or several; ALREADY_EXISTS at the commit if one is there."""
        listed = _rows(rows)
        return await self._write(lambda metadata: [nosql.insert(metadata, table, row) for row in listed])

    async def update(self, table: str, rows: RowLike | Iterable[RowLike]) -> int:
        """Change columns of a row or several; each mapping holds the key, too. NOT_FOUND at the commit if one is not
        there."""
        listed = _rows(rows)
        return await self._write(lambda metadata: [nosql.update(metadata, table, row) for row in listed])

    async def upsert(self, table: str, rows: RowLike | Iterable[RowLike]) -> int:
        """Insert rows, or update those whose keys are there already."""
        listed = _rows(rows)
        return await self._write(lambda metadata: [nosql.upsert(metadata, table, row) for row in listed])

    async def delete(self, table: str, keys: Any, *, must_exist: bool = False) -> int:
        """Delete the row with a key, or those with a list of keys."""
        listed = keys_of(keys)

        def make(metadata: Metadata) -> list[pb.LogicalWrite]:
            writes = [nosql.delete(metadata, table, key, must_exist=must_exist) for key in listed]
            keys = {(write.table, tuple(write.key_order)) for write in writes if write.key_order}
            self._require_same_keys(keys)
            self._keys.update(keys)
            return writes

        return await self._write(make)

    @translated
    async def _write(self, make: Callable[[Any], list[pb.LogicalWrite]]) -> int:
        self._require_open()
        writes = await nosql.with_metadata(self._session, make)
        self._add(writes)
        return len(writes)

    def _add(self, writes: Iterable[pb.LogicalWrite]) -> None:
        self._one_by_one()
        self._writes.extend(writes)

    def _one_by_one(self) -> None:
        """Make a write of each row that was to be inserted by columns: something else goes on."""
        if self._new is not None:
            new, self._new = self._new, None
            self._writes.extend(new.writes())

    # ------------------------------------------------------------------------------------------------ the end

    @translated
    async def commit(self, timeout_s: float | None = None) -> Committed:
        """Commit. Raises Error: nothing was written unless it is ``ambiguous``."""
        self._require_open()
        committed = await self._ending(self._commit(self._session.deadline(timeout_s)))
        self._state = "committed"
        return committed

    async def _ending(self, work: Awaitable[T]) -> T:
        """Await what commits the transaction, or may do so."""
        self._state = "being committed"
        try:
            return await work
        except F1Error as error:
            self._state = "lost" if error.ambiguous else "aborted"
            if error.code is Code.NOT_FOUND and "key" not in error.details:
                self._session.forget_metadata()  # the ids in the writes are of an older schema
            self._session.heed(error)
            raise
        except BaseException:
            self._state = "lost"
            raise

    async def rollback(self) -> None:
        """Give up. Idempotent, and never fails: what was not committed is nowhere."""
        if self.is_open:
            self._state = "rolled back"
            await self._rollback()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if error is not None:
            await self.rollback()
        elif self.is_open:
            await self.commit()

    # ------------------------------------------------------------------------------------------------ of each kind

    @abstractmethod
    def _context(self) -> pb.TxnContext:
        """Return what servers must know of the transaction."""

    def _server(self) -> Server | None:
        return None

    async def _execute(self, execute: pb.Execute, deadline: Deadline) -> Answer:
        return await self._session.execute(execute, deadline, Resend.ALWAYS, self._server())

    def _note(self, reply: pb.ExecuteReply | pb.ReadReply) -> None:
        self._read_ts = self._read_ts or reply.read_ts

    async def _guarded(self, work: Awaitable[T]) -> T:
        """Await what a server does for the transaction: whatever comes of it, it changed nothing."""
        try:
            return await work
        except F1Error as error:
            self._session.heed(error)
            raise without_effect(error) from error

    @abstractmethod
    async def _commit(self, deadline: Deadline) -> Committed:
        """Commit what was written."""

    async def _rollback(self) -> None:
        """Tell whoever holds something for the transaction."""


class OptimisticTransaction(Transaction):
    """Reads at one timestamp; what was read is validated at the commit."""

    kind = "optimistic"

    def __init__(self, session: Session, priority_ts: int = 0) -> None:
        super().__init__(session, priority_ts)
        self._read_set: dict[tuple[bytes, tuple[int, ...]], pb.ReadSetEntry] = {}
        self._schemas: list[int] = []
        """The versions of the schema under which its statements ran, as servers name them."""

    def _context(self) -> pb.TxnContext:
        self._one_by_one()
        return pb.TxnContext(kind=pb.OPTIMISTIC, read_ts=self._read_ts, writes=self._writes, schemas=self._schemas)

    @translated
    async def execute_alone(self, sql: str, params: Sequence[object] | None = None) -> Rows:
        """As :meth:`Transaction.execute_alone`: a statement that says which row it writes goes with its commit."""
        self._require_open()
        execute = pb.Execute(sql=sql, params=encode_params(params), txn=self._context(), few_as_rows=True)
        alone = self._session.execute_alone(execute, priority_ts=self.priority_ts, deadline=self._session.deadline())
        async with self._statement:
            reply, server = await self._ending(alone)
            self._state = "committed" if reply.commit_ts else "open"
            if not reply.commit_ts:
                self._note(reply)
                self._add(reply.writes)
            return Rows(ResultSet(self._session, (reply, server), None))

    async def insert(self, table: str, rows: RowLike | Iterable[RowLike]) -> int:
        """Insert a row (a mapping by column name) or several; ALREADY_EXISTS at the commit if one is there."""
        listed = _rows(rows)
        if len(listed) >= MANY and not self.has_writes and not self._read_set and await self._by_columns(table, listed):
            return len(listed)
        return await super().insert(table, listed)

    @translated
    async def _by_columns(self, table: str, rows: list[RowLike]) -> bool:
        self._require_open()
        found = await nosql.with_metadata(self._session, lambda metadata: new_rows(metadata, table, rows))
        if found is None or self.has_writes:
            return False
        self._new = found
        return True

    def _note(self, reply: pb.ExecuteReply | pb.ReadReply) -> None:
        super()._note(reply)
        if reply.schema_ts and reply.schema_ts not in self._schemas:
            self._schemas.append(reply.schema_ts)
        for entry in reply.read_set:
            self._read_set.setdefault((entry.key, tuple(entry.columns)), entry)

    async def _commit(self, deadline: Deadline) -> Committed:
        if self._new is not None and not self._read_set:
            return await self._session.insert_rows(self._new, priority_ts=self.priority_ts, deadline=deadline)
        self._one_by_one()
        if not self._writes:
            return Committed(0, 0)  # all was read at one timestamp: there is nothing to validate
        return await self._session.commit(
            self._writes,
            list(self._read_set.values()),
            self._read_ts,
            priority_ts=self.priority_ts,
            schemas=self._schemas,
            deadline=deadline,
        )


class SnapshotTransaction(Transaction):
    """Reads only, at one timestamp: a given one, or the newest that waits for nobody."""

    kind = "snapshot"

    def __init__(self, session: Session, timestamp: int = 0) -> None:
        super().__init__(session)
        self._read_ts = timestamp

    def _context(self) -> pb.TxnContext:
        return pb.TxnContext(kind=pb.SNAPSHOT, read_ts=self._read_ts)

    def _add(self, writes: Iterable[pb.LogicalWrite]) -> None:
        if list(writes):
            raise F1Error(Code.FAILED_PRECONDITION, "a snapshot transaction only reads; use an optimistic one to write")

    async def _read_now(self, reads: Sequence[Read]) -> pb.ReadReply:
        async def send(messages: Sequence[pb.TableRead], timestamp: int) -> pb.ReadReply:
            context = pb.TxnContext(kind=pb.SNAPSHOT, read_ts=timestamp)
            read = pb.Read(reads=messages, txn=context, few_as_rows=True)
            return await self._guarded(self._session.read(read, self._session.deadline()))

        reply = await nosql.read_snapshot(self._session, reads, send, self._read_ts)
        self._note(reply)
        return reply

    async def _commit(self, deadline: Deadline) -> Committed:
        return Committed(0, 0)


class PessimisticTransaction(Transaction):
    """Locks what it reads and writes, at one server, which ends it when it stands idle."""

    kind = "pessimistic"

    def __init__(self, session: Session, priority_ts: int = 0) -> None:
        super().__init__(session, priority_ts)
        self._handle = b""
        self._holder: Server | None = None

    async def start(self) -> None:
        """Begin at some server."""
        reply, self._holder = await self._session.begin(pb.PESSIMISTIC, self.priority_ts, self._session.deadline())
        self._handle = reply.handle
        self._read_ts = reply.read_ts
        self.priority_ts = reply.priority_ts or self.priority_ts

    def _context(self) -> pb.TxnContext:
        return pb.TxnContext(kind=pb.PESSIMISTIC, handle=self._handle, writes=self._writes)

    def _server(self) -> Server | None:
        return self._holder

    def _note(self, reply: pb.ExecuteReply | pb.ReadReply) -> None:
        """Keep nothing: the locks are at the server."""

    async def _guarded(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except F1Error as error:
            self._session.heed(error)
            if error.code not in _ENDS_IT:
                raise without_effect(error) from error
            self._state = "aborted"
            await self._rollback()
            raise _aborted("the transaction is over", error) from error

    async def _commit(self, deadline: Deadline) -> Committed:
        if self._holder is None:
            return Committed(0, 0)
        try:
            reply = await self._session.end(self._holder, self._handle, self._writes, deadline, commit=True)
        except F1Error as error:
            if error.ambiguous:
                text = f"the commit may have happened or not: {error.message}"
                raise F1Error(Code.UNKNOWN_OUTCOME, text, details=error.details) from error
            if error.code in _ENDS_IT:
                raise _aborted("nothing was committed", error) from error
            raise
        return Committed(reply.commit_ts, len(self._writes))

    async def _rollback(self) -> None:
        if self._holder is None or not self._handle:
            return
        try:
            await self._session.end(self._holder, self._handle, (), Deadline.after(2.0), commit=False)
        except F1Error:
            return  # the server ends it by itself when it stands idle


def _aborted(what: str, cause: F1Error) -> F1Error:
    """Return the error of a transaction that its server gave up because of ``cause``, which may say what to do."""
    text = f"{what}: {cause.message.removesuffix(_AGAIN)}{_AGAIN}"
    return F1Error(Code.ABORTED, text, details=cause.details)


def without_effect(error: F1Error) -> F1Error:
    """Return the error of a request that changed nothing, whatever came of it."""
    if not error.ambiguous:
        return error
    return F1Error(error.code, error.message, retryable=error.retryable, details=error.details)


def _rows(rows: RowLike | Iterable[RowLike]) -> list[RowLike]:
    return [rows] if isinstance(rows, Mapping) else list(rows)


def begin(session: Session, kind: str, *, priority_ts: int = 0, timestamp: int = 0) -> Transaction:
    """Return a transaction that has not started. Raises F1Error INVALID_ARGUMENT for a kind that there is not."""
    if timestamp and kind != "snapshot":
        raise F1Error(Code.INVALID_ARGUMENT, "only a snapshot transaction reads at a timestamp")
    match kind:
        case "optimistic":
            return OptimisticTransaction(session, priority_ts)
        case "pessimistic":
            return PessimisticTransaction(session, priority_ts)
        case "snapshot":
            return SnapshotTransaction(session, timestamp)
        case _:
            raise F1Error(Code.INVALID_ARGUMENT, f"{kind!r} is no kind of transaction; it is one of {', '.join(KINDS)}")


Work = Callable[[Transaction], Awaitable[T]]
"""What is done in a transaction, perhaps several times."""


class Retries:
    """The policy of the one retry loop: what is tried again, when, and when with locks instead."""

    def __init__(self, session: Session, kind: str, timeout_s: float | None = None) -> None:
        self._session = session
        self._version = session.known_version
        self._asked = kind
        self._deadline = session.deadline(timeout_s)
        self._backoff = session.backoff()
        self._tries = 0
        self.priority_ts = session.servers.now_us()

    @property
    def kind(self) -> str:
        """The kind of the next try: an optimistic transaction that keeps losing takes locks."""
        starved = self._asked == "optimistic" and self._tries >= _STARVED_AFTER
        return "pessimistic" if starved else self._asked

    async def after(self, error: F1Error) -> float:
        """Return how long to wait before the next try. Raises ``error`` if there is none."""
        return self.delay_s(error, may_pass=error.retryable or await self._is_of_an_old_schema(error))

    def delay_s(self, error: F1Error, *, may_pass: bool | None = None) -> float:
        """Do what :meth:`after` does; whether the error may pass is by default what it says itself."""
        self._tries += 1
        may_pass = error.retryable if may_pass is None else may_pass
        if error.ambiguous or not may_pass or self._tries >= _MAX_TRIES:
            raise error
        delay_s = self._backoff.next_s()
        if ends_within(self._deadline, delay_s):
            raise error
        return delay_s

    async def _is_of_an_old_schema(self, error: F1Error) -> bool:
        """Tell whether writes named columns by ids that are gone, because a table was dropped and made again, say."""
        if error.code is not Code.NOT_FOUND or "key" in error.details or self._version is None:
            return False
        before, self._version = self._version, (await self._session.metadata(fresh=True)).version
        return self._version != before
