"""Committing logical writes: one short storage transaction for each attempt, exactly once for each commit id."""

import asyncio
import hashlib
import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from f1common.aside import aside
from f1common.clock import Clock
from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from f1common.rpc.backoff import Backoff
from f1server.access.needs import require_read_set, require_writes
from f1server.access.rights import Caller, rights_of
from f1server.catalog.leases import Leased, SchemaLeases
from f1server.catalog.schema import Schema, Table
from f1server.catalog.types import hidden_key
from f1server.rows.coerce import coerce_row
from f1server.rows.columns import RowWrites, plan_rows
from f1server.rows.defaults import Evaluate, fill_defaults
from f1server.rows.images import Effect
from f1server.rows.layout import layout, of_schema
from f1server.rows.planner import CheckEvaluator, Needs, Plan, WritePlanner
from f1server.rows.single import single_write
from f1server.rows.writes import LogicalWrite, WriteKind, of_write
from f1server.txn.names import SchemaHistory, require_same_names
from f1server.txn.readset import Conflict, ReadSetEntry, moved, validate
from f1server.txn.together import ReadsTogether
from f1server.txn.unlocked import Foreseen, InTheWay, Trust, foresee, foresee_single
from spanstore.client import CommitId, KeyRange, SpanClient, Transaction, Version, Write
from spanstore.client.client import LAST_ATTEMPT
from spanstore.client.values import ExpectAbsent, ExpectExists, Precondition

_MAX_ATTEMPTS = 40
_NONE: frozenset[int] = frozenset()

MAX_COMMIT_BYTES = 32 << 20
"""Keys and values of one commit, index entries and history included: one message and log entry for each group."""


@dataclass(frozen=True, slots=True)
class CommitName:
    """What names a commit that comes with a statement, as in :class:`CommitRequest`."""

    unique: bytes
    created_ts: int
    priority_ts: int = 0


class CommitRequest(msgspec.Struct, frozen=True, gc=False):
    """What a role wants committed. ``unique`` and ``created_ts`` name the commit for ever."""

    writes: Sequence[LogicalWrite]
    read_set: Sequence[ReadSetEntry]
    read_ts: int
    unique: bytes
    created_ts: int
    caller: Caller
    priority_ts: int = 0
    schemas: Sequence[int] = ()
    """As for :func:`require_same_names`."""


class Committed(msgspec.Struct, frozen=True, gc=False):
    """What came of it. ``effects``: one for each logical write; empty when only the timestamp is known any more."""

    ts: int
    rows_affected: int
    effects: Sequence[Effect] = ()


@dataclass(frozen=True, slots=True)
class Evaluators:
    """SQL that commits need: defaults before the first attempt, checks in each. Both are synchronous and short."""

    defaults: Callable[[Schema], Evaluate]
    checks: Callable[[Schema], CheckEvaluator]


WayBack = Callable[[str], Awaitable[tuple[Collection[int], Precondition]]]
"""Returns the columns that a change of a database's schema may not lose, and what a commit has to expect, so that it is
still so when it commits."""


class Committer:
    """Commits for all clients of one f1server."""

    def __init__(
        self,
        client: SpanClient,
        leases: SchemaLeases,
        clock: Clock,
        rng: random.Random,
        evaluators: Evaluators,
        together: ReadsTogether,
        history: SchemaHistory,
        way_back: WayBack,
    ) -> None:
        self._client = client
        self._together = together
        self._trust = Trust()
        self._history = history
        self._way_back = way_back
        self._leases = leases
        self._clock = clock
        self._rng = rng
        self._evaluators = evaluators

    async def commit(self, database: str, request: CommitRequest, timeout_s: float = 10.0) -> Committed:
        """Commit, with as many attempts as it takes within ``timeout_s``. This server must be the only one that tries.

        Raises Conflict (ABORTED: the transaction must be run again), ALREADY_EXISTS, NOT_FOUND, FAILED_PRECONDITION,
        INVALID_ARGUMENT, PERMISSION_DENIED (nothing was written), UNKNOWN_OUTCOME (ambiguous: ask :meth:`outcome`).
        """
        if not request.writes:
            # A snapshot is consistent at its timestamp: there is nothing to validate.
            return Committed(request.read_ts, 0)
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        backoff = Backoff(2, 100, 1.7, self._rng)
        filled: Sequence[LogicalWrite] = ()
        version = filled_for = 0
        by_columns = request.writes if isinstance(request.writes, RowWrites) else None
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            try:
                async with self._leases.use(database) as leased:
                    version = leased.schema.version
                    # Under the version whose lease is the commit's deadline: after REVOKE this commits no more.
                    allow_commit(leased.schema, request.caller, request.writes, request.read_set)
                    if any(ts != leased.schema.commit_ts for ts in request.schemas):
                        used = {item.table for part in (request.writes, request.read_set) for item in part}
                        await self.require_same_names(leased.schema, request.schemas, used)
                    if by_columns is not None:
                        timeout_s = max(0.1, end - loop.time())
                        if (
                            done := await self._by_columns(leased, request, by_columns, attempt, timeout_s)
                        ) is not None:
                            return done
                    if filled_for != version:
                        # What is filled in stays. A column that has come since may have a default as well.
                        writes = filled or request.writes
                        filled = await self.filled(leased.schema, writes, request.unique, request.created_ts)
                        filled_for = version
                    return await self._attempt(leased, request, filled, attempt, max(0.1, end - loop.time()))
            except Conflict:
                raise
            except F1Error as error:
                if isinstance(error, _LookAtRows):
                    by_columns = None
                if loop.time() >= end or not await self._may_retry(database, error, version):
                    refuse_fenced(error)
                    raise
                await self._end_attempt(database, request, attempt, error)
            await asyncio.sleep(backoff.next_s())
        raise F1Error(Code.ABORTED, "the commit lost too many races for its locks; run the transaction again")

    async def _may_retry(self, database: str, error: F1Error, version: int) -> bool:
        """Tell whether the commit may go on with another attempt after ``error`` under a version of the schema."""
        if error.ambiguous:
            return False
        if error.code is Code.FENCED:
            await self._leases.refresh(database)
            return True
        if error.code is Code.NOT_FOUND:
            return (await self._leases.refresh(database)).version > version
        return error.retryable

    async def _end_attempt(self, database: str, request: CommitRequest, attempt: int, error: F1Error) -> None:
        """See that an attempt is over for good. Raises ABORTED if somebody has ended the whole commit meanwhile."""
        schema = (await self._leases.current(database)).schema
        commit_id = self.commit_id(schema, request.writes[0], request.unique, request.created_ts)
        decision = await self._client.outcome(commit_id, attempt)
        if decision.committed:
            raise F1Error(Code.INTERNAL, f"an attempt that failed with {error} had committed")
        if attempt > 1 and (await self._client.outcome(commit_id, LAST_ATTEMPT, peek=True)).committed is False:
            raise F1Error(Code.ABORTED, "the commit was given up by whoever asked for its outcome; run it again")

    async def filled(
        self, schema: Schema, writes: Sequence[LogicalWrite], unique: bytes, created_ts: int
    ) -> Sequence[LogicalWrite]:
        """As :meth:`fill`, and others are served meanwhile."""
        return await aside(len(writes), lambda: self.fill(schema, writes, unique, created_ts))

    def fill(
        self, schema: Schema, writes: Sequence[LogicalWrite], unique: bytes, created_ts: int
    ) -> Sequence[LogicalWrite]:
        """Fill in defaults and hidden keys, once for all attempts.

        Hidden keys follow from the commit id, so that any server finds the same ones, and rise with time and position,
        so that rows without a key come back in the order in which they were inserted.
        """
        counter = 0

        def new_id() -> bytes:
            nonlocal counter
            counter += 1
            return hidden_key(created_ts, counter, hashlib.blake2b(unique, digest_size=6).digest())

        return fill_defaults(schema, writes, evaluate=self._evaluators.defaults(schema), new_id=new_id)

    def overlay(self, schema: Schema, writes: Sequence[LogicalWrite], read_ts: int) -> Sequence[LogicalWrite]:
        """Return what a transaction has written, for its own reads to see. Raises Conflict as the commit would."""
        if not writes:
            return ()
        refuse_outdated(schema, writes)
        return self.fill(schema, writes, b"overlay", read_ts)

    async def require_same_names(self, schema: Schema, ran_under: Collection[int], names: Iterable[str]) -> None:
        """See :func:`f1server.txn.names.require_same_names`."""
        await require_same_names(self._history, schema, ran_under, names)

    def commit_id(self, schema: Schema, first: LogicalWrite, unique: bytes, created_ts: int) -> CommitId:
        """Return the storage tier's name of the commit whose first write, as its client sent it, is ``first``.

        Its anchor is the root row of that write. Defaults are no part of it, for another server may work out others
        when it is asked for the outcome: without the whole root key, the beginning of the root table is the anchor.
        """
        table = _written_to(schema, first)
        root = layout(schema, table).root
        anchor_id = table.anchor_id or root.id
        given = first.key if first.kind in (WriteKind.UPDATE, WriteKind.DELETE) else {**first.columns, **first.key}
        # A table that moves goes on naming its commits as before: one may be asked for under either form.
        wanted = table.anchor_column_ids or table.key_column_ids[: len(root.key_column_ids)]
        try:
            row = coerce_row(schema, table, {i: given[i] for i in wanted if i in given})
        except F1Error as error:
            raise of_write(0, error) from error
        whole = [row[i] for i in wanted if row.get(i) is not None]
        anchor = tuples.encode((anchor_id, *(whole if len(whole) == len(wanted) else ())))
        return CommitId(anchor, unique, created_ts)

    def anchor(self, schema: Schema, first: LogicalWrite) -> bytes:
        """Return the key that a commit is named by whose first write this is."""
        return self.commit_id(schema, first, b"", 0).anchor

    async def named_by(self, database: str, first: LogicalWrite, name: CommitName) -> CommitId:
        """As :meth:`commit_id`, under the schema as it is. Raises NOT_FOUND for a table that is no more."""
        schema = (await self._leases.current(database)).schema
        return self.commit_id(schema, first, name.unique, name.created_ts)

    async def outcome(self, commit_id: CommitId) -> int | None:
        """Return when the commit happened, or None: then it never will. Raises EXPIRED for one that is too old."""
        decision = await self._client.fence(commit_id)
        return decision.ts if decision.committed else None

    async def _by_columns(
        self, leased: Leased, request: CommitRequest, writes: RowWrites, attempt: int, timeout_s: float
    ) -> Committed | None:
        """Insert rows as they came, by columns; None if nothing was sent, since they have to be looked at one by one.

        That they are new and that their parents are there is tested by the commit. Raises as :meth:`carry_out`, and
        _LookAtRows where such a test fails: the next attempt looks at the rows and says which it is.
        """
        planned = await aside(len(writes), lambda: plan_rows(leased.schema, writes.batch, request.unique))
        if planned is None:
            return None
        tx = self._transaction(leased.schema, request, attempt)
        for parent in planned.parents:
            tx.expect(ExpectExists(parent))
        tx.put(planned.rows)
        if planned.history is not None:
            tx.put(planned.history)
        for key in planned.entries.alone:
            tx.expect(ExpectAbsent(key))
        try:
            ts = await self._send(tx, leased, planned.entries.writes, timeout_s)
        except F1Error as error:
            if error.code not in (Code.ALREADY_EXISTS, Code.NOT_FOUND):
                raise
            raise _LookAtRows(Code.ABORTED, f"the rows have to be looked at one by one: {error.message}") from error
        return Committed(ts, len(planned.rows))

    async def _attempt(
        self,
        leased: Leased,
        request: CommitRequest,
        filled: Sequence[LogicalWrite],
        attempt: int,
        timeout_s: float,
    ) -> Committed:
        tx = self._transaction(leased.schema, request, attempt)
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        try:
            if attempt == 1 and (done := await self._without_locks(tx, leased, request, filled, end)) is not None:
                return done
            left_s = max(0.1, end - loop.time())
            return await self.work(tx, leased, filled, request.read_set, request.read_ts, request.unique, left_s)
        except BaseException:
            await tx.rollback()
            raise

    def _transaction(self, schema: Schema, request: CommitRequest, attempt: int) -> Transaction:
        """Return the storage transaction of an attempt."""
        return self._client.transaction(
            request.priority_ts or request.created_ts,
            commit_id=self.commit_id(schema, request.writes[0], request.unique, request.created_ts),
            attempt=attempt,
        )

    async def _without_locks(
        self,
        tx: Transaction,
        leased: Leased,
        request: CommitRequest,
        filled: Sequence[LogicalWrite],
        end: float,
    ) -> Committed | None:
        """Commit in one round what was planned without locks; None if nothing was sent, since that does not do.

        ``end`` is when the attempt should be over, on the clock of the loop: looking may have to wait for a leader.
        """
        tables = {write.table for write in filled}
        if not self._trust.has(tables):
            return None
        try:
            found = await self._foresee(leased, request, filled)
        except InTheWay:
            self._trust.lose(tables)
            return None
        if found is None:
            return None
        for test in found.expected:
            tx.expect(test)
        try:
            left_s = max(0.1, end - asyncio.get_running_loop().time())
            done = await self.carry_out(tx, leased, found.plan, left_s)
        except F1Error as error:
            if error.code is Code.ABORTED:
                self._trust.lose(tables)
            raise
        self._trust.win(tables)
        return done

    async def _foresee(self, leased: Leased, request: CommitRequest, filled: Sequence[LogicalWrite]) -> Foreseen | None:
        if gives_other_keys(leased.schema, filled):
            return None  # whether the change of the schema may still be taken back has to be asked for
        single = None if request.read_set else single_write(leased.schema, filled)
        if single is not None:
            return await foresee_single(single, self._together, request.unique)
        planner = await aside(len(filled), lambda: self._planner(leased.schema, filled))
        return await foresee(planner, self._together, leased, request.read_set, request.read_ts, request.unique)

    def _planner(self, schema: Schema, filled: Sequence[LogicalWrite], kept: Collection[int] = ()) -> WritePlanner:
        refuse_moved(schema, filled)
        checks = self._evaluators.checks(schema)
        return WritePlanner(schema, filled, check_evaluator=checks, new_rows=_check_size, kept=kept)

    async def work(
        self,
        tx: Transaction,
        leased: Leased,
        filled: Sequence[LogicalWrite],
        read_set: Sequence[ReadSetEntry],
        read_ts: int,
        unique: bytes,
        timeout_s: float,
    ) -> Committed:
        """Lock, validate, plan and commit in the storage transaction ``tx``, which pessimistic ones bring with them."""
        schema, rows = leased.schema, len(filled)
        kept: Collection[int] = ()
        if gives_other_keys(schema, filled):
            kept, still_so = await self._way_back(schema.database)
            if kept:
                tx.expect(still_so)
        planner = await aside(rows, lambda: self._planner(schema, filled, kept))
        seen: dict[bytes, Version | None] = {}
        wanted = await aside(rows, planner.needs)
        await self._read(tx, planner, wanted, {entry.key for entry in read_set}, seen, timeout_s)
        await aside(len(read_set), lambda: validate(schema, read_set, read_ts, seen.get))
        while wanted := await aside(rows, planner.needs):
            await self._read(tx, planner, wanted, set(), seen, timeout_s)
        plan = await aside(rows, lambda: planner.plan(unique))
        return await self.carry_out(tx, leased, plan, timeout_s)

    async def carry_out(self, tx: Transaction, leased: Leased, plan: Plan, timeout_s: float) -> Committed:
        """Commit a plan, under the lease of the schema that it was made for. Raises as :meth:`commit`, and FENCED."""
        if plan.unfilled_ts:
            await self._leases.confirm(leased, plan.unfilled_ts)
        ts = await self._send(tx, leased, plan.writes, timeout_s)
        return Committed(ts, plan.rows_affected, plan.effects)

    @staticmethod
    async def _send(tx: Transaction, leased: Leased, writes: Sequence[Write], timeout_s: float) -> int:
        """Commit ``writes`` with what the transaction has, and return the commit timestamp."""

        def take() -> None:
            for write in writes:
                tx.write(write.key, write.value, key_offset=write.key_offset, value_offsets=write.value_offsets)
            _check_size(tx.size)

        await aside(len(writes), take)
        return await tx.commit(deadline=leased.deadline(), timeout_s=timeout_s)

    async def _read(
        self,
        tx: Transaction,
        planner: WritePlanner,
        wanted: Needs,
        validated: set[bytes],
        seen: dict[bytes, Version | None],
        timeout_s: float,
    ) -> None:
        """Take the locks of one round, for writing and for looking at the same time, and read under them."""
        exclusive = sorted(wanted.rows | wanted.unique)
        shared = sorted((wanted.shared_rows | validated) - wanted.rows - wanted.unique)
        spans = sorted(wanted.ranges)
        ranges = [KeyRange(start, end, wanted.limits.get((start, end), 0)) for start, end in spans]
        rows: dict[bytes, Version | None] = {}

        async def take(keys: Sequence[bytes], spans_too: Iterable[KeyRange], for_writing: bool) -> None:
            result = await tx.read(keys, list(spans_too), exclusive=for_writing, timeout_s=timeout_s)
            rows.update(zip(keys, result.versions, strict=True))
            for span, found in zip(spans if for_writing else (), result.ranges, strict=True):
                given[span] = [(row.key, Version(row.ts, row.value)) for row in found]

        given: dict[tuple[bytes, bytes], list[tuple[bytes, Version]]] = {}
        jobs = []
        if exclusive or ranges:
            jobs.append(take(exclusive, ranges, True))
        if shared:
            jobs.append(take(shared, (), False))
        if len(jobs) == 1:
            await jobs[0]
        else:
            for outcome in await asyncio.gather(*jobs, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    raise outcome
        seen.update(rows)
        planner.give(rows, given)


class _LookAtRows(F1Error):
    """Something is wrong with a row that was inserted without being looked at."""


def refuse_fenced(error: F1Error) -> None:
    """Raise ABORTED in the place of FENCED, which speaks of a lease that clients know nothing of."""
    if error.code is Code.FENCED:
        text = "the commit did not get done within a schema lease: the servers are overloaded; run it again"
        raise F1Error(Code.ABORTED, text) from error


def gives_other_keys(schema: Schema, writes: Iterable[LogicalWrite]) -> bool:
    """Tell whether rows get other keys whose values in columns that are being dropped may be wanted back.

    A row with another key is a new one, and what goes has to be written to no new row: the removal that follows when
    there is no way back would not find it. Until then it is taken along, or taking the change back would lose it.
    """
    tables = _with_returning(schema)
    if not tables:
        return False
    return any(
        write.kind is WriteKind.UPDATE and not tables.get(write.table.lower(), _NONE).isdisjoint(write.columns)
        for write in writes
    )


def _with_returning(schema: Schema) -> Mapping[str, frozenset[int]]:
    """Return the columns of the keys of tables with columns that are being dropped and may come back, by name."""

    def find() -> Mapping[str, frozenset[int]]:
        tables = (table for table in schema.tables if any(c.returns for c in table.columns))
        return {table.name.lower(): frozenset(table.key_column_ids) for table in tables}

    return of_schema(schema, ("returning",), find)


def refuse_moved(schema: Schema, writes: Iterable[LogicalWrite]) -> None:
    """Raise Conflict for a write of a row by the key of a form of its table that is not the public one."""
    for write in writes:
        table = schema.by_name.get(write.table.lower())
        if table is None or not (table.mirror_of or table.id in schema.forms):
            continue
        given, own = set(write.key), set(table.key_column_ids)
        if not given <= own or (write.kind is not WriteKind.INSERT and given != own):
            raise moved(table.name)


def _written_to(schema: Schema, write: LogicalWrite) -> Table:
    """Return the table of a write, whatever it is called by now. Raises NOT_FOUND for one that is no more."""
    ids = set(write.key or write.columns)
    named = schema.by_name.get(write.table.lower())
    if named is not None and ids <= named.by_id.keys():
        return named
    found = (table for table in schema.by_name.values() if ids and ids <= table.by_id.keys())
    return next(found, None) or schema.table(write.table)


def refuse_outdated(schema: Schema, writes: Iterable[LogicalWrite]) -> None:
    """Raise Conflict for a write of a column that is no more, or by a name that is another column's by now.

    Writes have ids in the place of names. Who has found them in an older version of the schema would write to the
    column that has lost the name: for ever, if a client keeps what it knows of the schema. A column that is gone may
    have been made anew.
    """
    for write in writes:
        table = schema.by_name.get(write.table.lower())
        if table is None or not 0 < write.schema_version < schema.version:
            continue
        ids = (*write.key, *write.columns)
        if not table.by_id.keys() >= set(ids) - set(write.defaults):
            text = f"table {table.name} is another, or lost a column, since the transaction wrote to it; run it again"
            raise Conflict(text, b"", "schema")
        if write.key_order and write.key_order != table.key_column_ids:
            raise moved(table.name)
        if write.schema_version >= table.names_since:
            continue
        for column in (table.by_id[i] for i in ids if i in table.by_id):
            name = column.name_in(write.schema_version)
            if table.by_name.get(name.lower(), column).id != column.id:
                text = f"{table.name}.{name} is another column since the transaction wrote to it; run it again"
                raise Conflict(text, b"", "schema")


def allow_commit(
    schema: Schema, caller: Caller, writes: Sequence[LogicalWrite], read_set: Sequence[ReadSetEntry] = ()
) -> None:
    """Raise PERMISSION_DENIED unless the role may make these writes, and learn whether these rows are unchanged.

    Raises Conflict as :func:`refuse_outdated`.
    """
    if not isinstance(writes, RowWrites):
        refuse_outdated(schema, writes)
    elif writes.batch.schema_version < schema.version:
        refuse_outdated(schema, writes[:1])
    rights = rights_of(schema, caller)
    if not rights.unlimited:
        # Rows that come by columns are all of one table and kind.
        require_writes(rights, schema, [writes[0]] if isinstance(writes, RowWrites) else writes)
        require_read_set(rights, schema, [entry.key for entry in read_set])


def _check_size(size: int) -> None:
    """Raise OUT_OF_RANGE for a commit of that size, or more, if it is too large, before anything is sent."""
    if size > MAX_COMMIT_BYTES:
        raise F1Error(
            Code.OUT_OF_RANGE,
            f"the transaction writes at least {size} bytes (rows, index entries and history); at most "
            f"{MAX_COMMIT_BYTES} fit into one commit: write in parts, or smaller values",
        )
