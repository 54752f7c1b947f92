"""The rows of a statement as they arrive: the first in the answer, the others fetched from the server that has them."""

from collections.abc import Awaitable, Callable
from typing import Any, Self

import pyarrow as pa

from f1.errors import InterfaceError, translated
from f1.servers import Server
from f1.session import Session
from f1.values import MessageClasses, read_arrow, rows_of, table_of_rows, values_of_row
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb

Answer = tuple[pb.ExecuteReply, Server]
Again = Callable[[], Awaitable[Answer]]

_MAX_RUNS = 4
# What tells that the server with the rest of a result is gone, or has forgotten it.
_LOST = frozenset({Code.UNAVAILABLE, Code.NOT_FOUND, Code.CANCELLED})


class ResultSet:
    """What a statement gave. A statement may be run ``again`` as long as none of its rows were handed out."""

    def __init__(
        self, session: Session | None, answer: tuple[pb.ExecuteReply, Server | None], again: Again | None = None
    ) -> None:
        self._session = session
        self._again = again
        self._handed = False
        self._take(answer)

    @classmethod
    def of_control(cls, tag: str) -> "ResultSet":
        """Return the result of a statement that no server was asked to run."""
        return cls(None, (pb.ExecuteReply(tag=tag), None))

    def _take(self, answer: tuple[pb.ExecuteReply, Server | None]) -> None:
        reply, self._server = answer
        self.columns: list[pb.ColumnInfo] = list(reply.columns)
        self.rows_affected: int = reply.rows_affected
        self.tag: str = reply.tag
        self._cursor: bytes = reply.cursor
        self._first: bytes | None = reply.arrow or None
        self._few: list[bytes] = list(reply.rows)

    @property
    def has_rows(self) -> bool:
        """Whether the statement is one that gives rows, if perhaps none."""
        return bool(self.columns)

    @property
    def is_change(self) -> bool:
        """Whether the statement changed rows, or could have."""
        return not self.has_rows or self.tag.upper().startswith(("INSERT", "UPDATE", "DELETE", "UPSERT", "MERGE"))

    @property
    def more(self) -> bool:
        """Whether rows have yet to be handed out."""
        return self._first is not None or bool(self._cursor or self._few)

    @property
    def has_few(self) -> bool:
        """Whether the next rows are here already, and in no Arrow table."""
        return bool(self._few)

    async def next_rows(self) -> list[tuple[Any, ...]] | None:
        """Return the next rows as tuples of Python values, None after the last. Raises as :meth:`next_table`."""
        if not self._few:
            table = await self.next_table()
            return None if table is None else self.rows(table)
        few, self._few = self._few, []
        self._handed = True
        return [tuple(values_of_row(row, self.columns, self._classes())) for row in few]

    async def next_table(self) -> pa.Table | None:
        """Return the next rows, None after the last. Raises F1Error UNAVAILABLE if their server is gone."""
        if not self.more:
            return None
        table = await self._next()
        self._handed = True
        return table

    async def _next(self) -> pa.Table:
        if self._few:
            few, self._few = self._few, []
            return table_of_rows(few, self.columns)
        if self._first is not None:
            data, self._first = self._first, None
            return read_arrow(data)
        session, server = self._where()
        try:
            reply = await session.fetch(server, self._cursor, session.deadline())
        except F1Error as error:
            self._cursor = b""
            if error.code in _LOST:
                raise F1Error(
                    Code.UNAVAILABLE,
                    f"the server with the rest of the result is gone ({error.message}); run the query again",
                ) from error
            raise
        if not reply.more:
            self._cursor = b""
        return read_arrow(reply.arrow)

    async def read_all(self) -> pa.Table:
        """Return all rows that were not handed out yet. A query whose server dies meanwhile is run again."""
        for run in range(1, _MAX_RUNS + 1):
            try:
                tables: list[pa.Table] = []
                while self.more:
                    tables.append(await self._next())
                break
            except F1Error as error:
                if self._handed or self._again is None or run == _MAX_RUNS or error.code is not Code.UNAVAILABLE:
                    raise
                self._take(await self._again())
        self._handed = True
        if not tables:
            return pa.table({})
        return tables[0] if len(tables) == 1 else pa.concat_tables(tables)

    def rows(self, table: pa.Table) -> list[tuple[Any, ...]]:
        """Return the rows of a table of this result as tuples of Python values."""
        return rows_of(table, self.columns, self._classes())

    def _classes(self) -> MessageClasses:
        return {} if self._session is None else self._session.message_classes

    def _where(self) -> tuple[Session, Server]:
        if self._session is None or self._server is None:
            raise F1Error(Code.INTERNAL, "a result that no server gave has no cursor")
        return self._session, self._server

    async def close(self) -> None:
        """Give up what was not fetched. Idempotent."""
        cursor, self._cursor, self._first, self._few = self._cursor, b"", None, []
        if cursor:
            session, server = self._where()
            await session.close_cursor(server, cursor)


class Rows:
    """What a statement gave, to be fetched as DB-API does. Also an asynchronous iterator over the rows."""

    def __init__(self, result: ResultSet) -> None:
        self.arraysize = 1
        self.lastrowid: object = None
        self.result = result
        self._rows: list[tuple[Any, ...]] = []
        self._next = 0

    @property
    def description(self) -> list[tuple[Any, ...]] | None:
        """Name, type code, precision and nullability of each column of the result, None without one."""
        return description_of(self.result.columns)

    @property
    def columns(self) -> list[pb.ColumnInfo]:
        """The columns of the result, with the types of protos."""
        return self.result.columns

    @property
    def tag(self) -> str:
        """What the statement was: SELECT, INSERT, ..."""
        return self.result.tag

    @property
    def rowcount(self) -> int:
        """How many rows the statement changed; -1 for a query."""
        return self.result.rows_affected if self.result.is_change else -1

    def buffered(self) -> bool:
        """Whether the next row is at hand, so that nobody has to be asked."""
        return self._next < len(self._rows)

    def take(self, size: int) -> list[tuple[Any, ...]]:
        """Return at most ``size`` rows that are at hand."""
        rows = self._rows[self._next : self._next + size]
        self._next += len(rows)
        return rows

    @translated
    async def fill(self) -> bool:
        """Have at least one row at hand; False if there is no other."""
        result = self._fetchable()
        while not self.buffered():
            rows = await result.next_rows()
            if rows is None:
                return False
            self._rows, self._next = rows, 0
        return True

    def _fetchable(self) -> ResultSet:
        if not (self.result.has_rows or self._rows):
            raise InterfaceError(Code.FAILED_PRECONDITION, "there is no result to fetch rows of; execute a query first")
        return self.result

    async def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row, None after the last."""
        self._fetchable()
        if self.buffered() or await self.fill():
            return self.take(1)[0]
        return None

    async def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """Return the next ``size`` rows, by default ``arraysize``; fewer at the end."""
        self._fetchable()
        wanted = self.arraysize if size is None else size
        rows: list[tuple[Any, ...]] = []
        while len(rows) < wanted and (self.buffered() or await self.fill()):
            rows += self.take(wanted - len(rows))
        return rows

    @translated
    async def fetchall(self) -> list[tuple[Any, ...]]:
        """Return all rows that are left."""
        result = self._fetchable()
        rows = self.take(len(self._rows))
        if result.has_few:
            rows += await result.next_rows() or []
        return rows + result.rows(await result.read_all()) if result.more else rows

    @translated
    async def fetch_arrow(self) -> pa.Table:
        """Return all rows that are left as an Arrow table. Not after rows were fetched one by one."""
        result = self._fetchable()
        if self._rows:
            raise InterfaceError(Code.FAILED_PRECONDITION, "rows were fetched one by one; execute the query again")
        return await result.read_all()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[Any, ...]:
        row = await self.fetchone()
        if row is None:
            raise StopAsyncIteration
        return row

    async def nextset(self) -> bool | None:
        """Return None: a statement has one result."""
        return None

    def setinputsizes(self, sizes: object) -> None:
        """Do nothing, as DB-API permits."""

    def setoutputsize(self, size: object, column: object = None) -> None:
        """Do nothing, as DB-API permits."""


class Row(dict[str, Any]):
    """A row of a read by key: values by the names of the columns, whatever the case of their letters."""

    def __missing__(self, name: str) -> Any:
        for known, value in self.items():
            if known.lower() == name.lower():
                return value
        raise KeyError(name)


def dicts_of(message: pb.TableRows, session: Session) -> list[Row]:
    """Return the rows of a read. Raises F1Error OUT_OF_RANGE, DATA_CORRUPTION."""
    names = [column.name for column in message.columns]
    if not message.arrow:
        classes = session.message_classes
        return [Row(zip(names, values_of_row(data, message.columns, classes), strict=True)) for data in message.rows]
    table = read_arrow(message.arrow)
    found = rows_of(table, list(message.columns), session.message_classes)
    return [Row(zip(names, row, strict=True)) for row in found]


def description_of(columns: list[pb.ColumnInfo]) -> list[tuple[Any, ...]] | None:
    """Return DB-API's description: name, type code, and whether the column may be NULL."""
    if not columns:
        return None
    return [(c.name, c.type, None, None, *_size_of(c), bool(c.nullable)) for c in columns]


def _size_of(column: pb.ColumnInfo) -> tuple[int | None, int | None]:
    """Return precision and scale."""
    if column.type != "NUMERIC":
        return None, None
    return 38, column.scale if column.HasField("scale") else 9
