"""Statements that write and are transactions of their own."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

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
from f1server.txn.committer import CommitName, CommitRequest, Committer
from f1server.txn.names import SchemaHistory
from f1server.txn.pessimistic import PessimisticTransactions
from spanstore.client import CommitId

__all__ = ["Named", "OwnTransactions", "may_name"]

Change = Callable[[SqlRequest, DmlStatement], Awaitable[SqlAnswer]]
"""Works out what a statement writes, in its transaction; nothing is written yet."""

_OPTIMISTIC_TRIES = 3
_STATEMENT_TRIES = 20
_VERSIONS = 3
"""Of the schema, that a server may run a named statement under, counted back from the name's time: that time may be
later by all clocks' bounds than the statement runs, and servers may be one version behind."""

_LONGEST_LEASE_US = 660_000_000
"""Nobody uses the version of a schema before one that is older than this."""


class Named(NamedTuple):
    """A commit that comes with a statement, and what kind of statement that is."""

    commit_id: CommitId
    tag: str


def may_name(schema: Schema, name: CommitName, now_us: int) -> bool:
    """May the commit of a statement that runs now, under this schema, have the statement's name?

    Not if the schema is of later than the name, or the name of later than now: whoever is asked for the outcome has to
    know all versions of the schema that may be used, and more may come as long as the statement is under way.
    """
    return schema.commit_ts <= name.created_ts <= now_us


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

    async def named(self, newest: Schema, sql: str, params: Sequence[Value], name: CommitName) -> Named | None:
        """Return the commit that may have come with a statement, whatever server ran it; None: no commit comes with it.

        ``newest`` is the schema as of a time after the name's. Raises NOT_FOUND if under versions of the schema that
        may have been used, it names commits of different rows.
        """
        version = newest
        if newest.commit_ts > name.created_ts:
            version = await self._history.at(newest, name.created_ts)
        found: dict[bytes, Named] = {}
        for _ in range(_VERSIONS):
            if (named := await self._named(version, sql, params, name)) is not None:
                found.setdefault(named.commit_id.anchor, named)
            if version.version <= 1 or version.commit_ts + _LONGEST_LEASE_US < name.created_ts:
                break
            version = await self._history.at(version, version.commit_ts - 1)
        if len(found) > 1:
            text = "the schema has changed, and the statement may have been about another row then"
            raise F1Error(Code.NOT_FOUND, text)
        return next(iter(found.values()), None)

    async def _named(self, schema: Schema, sql: str, params: Sequence[Value], name: CommitName) -> Named | None:
        """Return the commit that comes with a statement under a version of the schema."""
        try:
            match parse(sql):
                case [DmlStatement() as statement]:
                    said = said_write(await self._prepared(schema, statement), params, name.created_ts)
                case _:
                    return None
            if said is None:
                return None
            return Named(self._committer.commit_id(schema, said, name.unique, name.created_ts), statement.tag)
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
