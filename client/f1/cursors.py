"""DB-API's cursor, awaited, and how many rows of an INSERT travel in one statement."""

from collections.abc import Iterable, Sequence
from typing import Protocol, Self, TypeVar

from f1.errors import InterfaceError
from f1.results import ResultSet, Rows
from f1.statements import Kind, kind_of, multiply_values
from f1.transactions import Transaction, Work
from f1common.errors import Code

T = TypeVar("T")

# Rows of one statement that executemany makes of an INSERT.
_ROWS_PER_STATEMENT = 200


class Executor(Protocol):
    """What a cursor needs of its connection."""

    def require_open(self) -> None:
        """Raise InterfaceError if the connection is closed."""
        ...

    async def run_statement(self, sql: str, params: Sequence[object] | None = None) -> ResultSet | None:
        """Run a statement as the state of the connection wants it; None for one that controls a transaction."""
        ...

    async def in_some_transaction(self, work: Work[T]) -> T:
        """Do work in the connection's transaction, or with autocommit in one of its own."""
        ...


class Cursor(Rows):
    """Runs statements, one after the other, and holds the rows of the last one."""

    def __init__(self, connection: Executor) -> None:
        super().__init__(NOTHING)
        self.connection = connection
        self._closed = False
        self._affected = -1

    @property
    def rowcount(self) -> int:
        """How many rows the last statement changed; -1 for a query, or before the first."""
        return self._affected

    async def close(self) -> None:
        """Give up the result. Idempotent."""
        await self._reset()
        self._closed = True

    async def _reset(self) -> None:
        result, self.result = self.result, NOTHING
        self._rows, self._next, self._affected = [], 0, -1
        await result.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _require_open(self) -> None:
        if self._closed:
            raise InterfaceError(Code.FAILED_PRECONDITION, "the cursor is closed")
        self.connection.require_open()

    async def execute(self, sql: str, params: Sequence[object] | None = None) -> Self:
        """Run a statement; ``params`` has one value for each ``?``."""
        self._require_open()
        await self._reset()
        result = await self.connection.run_statement(sql, params)
        self.result = result if result is not None else ResultSet.of_control(kind_of(sql).value.upper())
        self._affected = self.result.rows_affected if result is not None and result.is_change else -1
        return self

    async def executemany(self, sql: str, seq_of_params: Iterable[Sequence[object]]) -> Self:
        """Run a statement for each sequence of parameters, in one transaction; rows of an INSERT travel together."""
        self._require_open()
        await self._reset()
        if kind_of(sql) is not Kind.DML:
            raise InterfaceError(Code.INVALID_ARGUMENT, "executemany is for INSERT, UPDATE and DELETE")
        statements = batches(sql, [tuple(params) for params in seq_of_params])

        async def work(tx: Transaction) -> int:
            affected = 0
            for statement, params in statements:
                affected += (await tx.execute(statement, params)).rowcount
            return affected

        self._affected = await self.connection.in_some_transaction(work)
        return self


NOTHING = ResultSet.of_control("")
"""What a cursor holds before its first statement."""


def batches(sql: str, sets: Sequence[Sequence[object]]) -> list[tuple[str, Sequence[object]]]:
    """Return the statements that do what ``sql`` does for each set of parameters."""
    split = multiply_values(sql)
    if split is None or len(sets) < 2:
        return [(sql, params) for params in sets]
    before, row, after = split
    statements: list[tuple[str, Sequence[object]]] = []
    for start in range(0, len(sets), _ROWS_PER_STATEMENT):
        some = sets[start : start + _ROWS_PER_STATEMENT]
        values: list[object] = [value for params in some for value in params]
        statements.append((before + ", ".join([row] * len(some)) + after, values))
    return statements
