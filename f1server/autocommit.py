"""Statements that write and are transactions of their own."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from f1common.clock import Clock
from f1common.errors import Code, F1Error
from f1common.ids import new_id
from f1common.rpc.backoff import Backoff
from f1server.answers import SqlAnswer, SqlRequest
from f1server.catalog.schema import Schema
from f1server.exec.dml import said_write
from f1server.plan.dml import PreparedDml
from f1server.plan.statements import DmlStatement, parse
from f1server.rows.values import Value
from f1server.rows.writes import LogicalWrite
from f1server.txn.committer import CommitName, CommitRequest, Committer
from f1server.txn.names import MOST_SCHEMAS, SchemaHistory
from f1server.txn.pessimistic import PessimisticTransactions

__all__ = ["OwnTransactions"]

Change = Callable[[SqlRequest, DmlStatement], Awaitable[SqlAnswer]]
"""Works out what a statement writes, in its transaction; nothing is written yet."""

_OPTIMISTIC_TRIES = 3
_STATEMENT_TRIES = 20
_BEHIND_US = 10_000_000
"""How far servers may be behind with the schema, and clocks of clients wrong."""


class OwnTransactions:
    """Runs such statements, and commits what they write."""

    def __init__(
        self,
        change: Change,
        prepared: Callable[[Schema, DmlStatement], Awaitable[PreparedDml]],
        history: SchemaHistory,
        committer: Committer,
        pessimistic: PessimisticTransactions,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._change = change
        self._prepared = prepared
        self._history = history
        self._committer = committer
        self._pessimistic = pessimistic
        self._clock = clock
        self._rng = rng

    async def run_named(self, request: SqlRequest, statement: DmlStatement, name: CommitName) -> SqlAnswer:
        """Run a statement, and commit it under its client's name if it says by itself what names the commit.

        Otherwise a client that lost its answer could not ask what became of it: the writes are the answer then, for it
        to commit them. Raises as :meth:`f1server.txn.committer.Committer.commit`.
        """
        answer = await self._change(request, statement)
        return await self._committed(request, answer, name) if answer.says_row else answer

    async def said_write(
        self, schema: Schema, sql: str, params: Sequence[Value], created_ts: int
    ) -> tuple[LogicalWrite, str] | None:
        """Return the write that names the commit of a statement that came with one, and what kind of statement it is.

        None: no commit comes with such a statement. Raises NOT_FOUND if it named another one under a version of the
        schema that the server may have used then.
        """
        found = await self._said(schema, sql, params, created_ts)
        version, named = schema, found
        for _ in range(MOST_SCHEMAS):
            if named is not None and (found is None or named[2] != found[2]):
                break
            if version.commit_ts + _BEHIND_US < created_ts or version.version <= 1:
                return None if found is None else (found[0], found[1])
            version = await self._history.at(schema, version.commit_ts - 1)
            named = await self._said(version, sql, params, created_ts)
        raise F1Error(Code.NOT_FOUND, "the schema has changed, and the statement may have been about another row then")

    async def _said(
        self, schema: Schema, sql: str, params: Sequence[Value], created_ts: int
    ) -> tuple[LogicalWrite, str, bytes] | None:
        """Return the write, the kind of statement, and the anchor of a commit that is named by the write."""
        try:
            match parse(sql):
                case [DmlStatement() as statement]:
                    found = said_write(await self._prepared(schema, statement), params, created_ts)
                case _:
                    return None
            return None if found is None else (found, statement.tag, self._committer.anchor(schema, found))
        except (F1Error, RecursionError):  # so deeply nested that it was refused
            return None

    async def run(self, request: SqlRequest, statement: DmlStatement) -> SqlAnswer:
        """Run a statement until it has committed. Raises F1Error."""
        backoff = Backoff(2, 200, 1.7, self._rng)
        priority_ts = self._clock.sample().tt.latest
        for tried in range(_STATEMENT_TRIES):
            try:
                if tried < _OPTIMISTIC_TRIES:
                    return await self._once(request, statement)
                # Somebody was faster each time: under locks, and as old as the first try, it gets its turn.
                return await self._locked(request, statement, priority_ts)
            except F1Error as error:
                # A definite ABORTED: nothing happened, so that the statement may run again on what is there now.
                if error.code is not Code.ABORTED or error.ambiguous or tried + 1 == _STATEMENT_TRIES:
                    raise
            await asyncio.sleep(backoff.next_s())
        raise F1Error(Code.INTERNAL, "a statement was not tried")

    async def _once(self, request: SqlRequest, statement: DmlStatement) -> SqlAnswer:
        """Run a statement as an optimistic transaction of its own. Raises Conflict if a row changed meanwhile."""
        created_ts = self._clock.sample().tt.latest
        answer = await self._change(replace(request, kind="OPTIMISTIC"), statement)
        return await self._committed(request, answer, CommitName(new_id(self._rng), created_ts))

    async def _committed(self, request: SqlRequest, answer: SqlAnswer, name: CommitName) -> SqlAnswer:
        wanted = CommitRequest(
            writes=answer.writes,
            read_set=answer.read_set,
            read_ts=answer.read_ts,
            unique=name.unique,
            created_ts=name.created_ts,
            caller=request.caller,
            priority_ts=name.priority_ts,
            schemas=(answer.schema_ts,),
        )
        answer.commit_ts = (await self._committer.commit(request.database, wanted)).ts
        answer.writes, answer.read_set = (), ()
        return answer

    async def _locked(self, request: SqlRequest, statement: DmlStatement, priority_ts: int) -> SqlAnswer:
        """Run a statement as a pessimistic transaction of its own."""
        held = self._pessimistic.begin(request.database, request.caller, priority_ts)
        try:
            with held.working():
                answer = await self._change(replace(request, kind="PESSIMISTIC", handle=held.handle), statement)
        except BaseException:
            await self._pessimistic.rollback(held.handle)
            raise
        done = await self._pessimistic.commit(held.handle, request.database, request.caller, answer.writes)
        answer.commit_ts = done.ts
        answer.writes = ()
        return answer
