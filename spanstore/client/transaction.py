"""A pessimistic transaction: locked reads, buffered writes, one commit (F1 section 5)."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from f1common.errors import Code, F1Error, check
from f1common.pb import spanstore_pb2 as pb
from spanstore.client import reading, twophase
from spanstore.client.bundling import Bundles
from spanstore.client.reading import Part
from spanstore.client.router import Router
from spanstore.client.twophase import Plan, Share, Spawn
from spanstore.client.values import CommitId, KeyRange, Precondition, Puts, ReadResult, Row, Version, Write, size_of
from spanstore.placement.range_map import RangeMap

_FENCE_US = 30_000_000
_REFRESH_S = 2.0


class Transaction:
    """Reads take locks at the leaders and hold them until the end; writes stay here until :meth:`commit`.

    Reads see the transaction's own writes. Any error of :meth:`read` or :meth:`commit` ends it: ABORTED says that it
    was wounded by an older one, or that a leader changed; run it again (:meth:`SpanClient.run` does). Several reads may
    run at once.
    """

    def __init__(
        self,
        router: Router,
        *,
        unique: bytes,
        created_ts: int,
        priority_ts: int,
        seen_ts: int,
        spawn: Spawn,
        bundles: Bundles,
        saw: Callable[[int], None],
        anchor: bytes = b"",
        attempt: int = 1,
    ) -> None:
        """Use :meth:`SpanClient.transaction`. ``anchor``: by default the first key written."""
        self._router = router
        self._unique = unique
        self._created_ts = created_ts
        self.priority_ts = priority_ts
        """Age for wound-wait: give it to the transaction that retries this one."""
        self._anchor = anchor
        self._attempt = attempt
        self._seen_ts = seen_ts
        self._spawn = spawn
        self._bundles = bundles
        self._saw = saw
        self._writes: dict[bytes, Write] = {}
        self._appends: list[Write] = []
        self._puts: list[Puts] = []
        self._preconditions: list[Precondition] = []
        self._held: dict[int, Share] = {}
        self._lock_requests = 0
        self._first_key = b""
        self._done = False
        self.commit_id: CommitId | None = None
        """Set by :meth:`commit`, for :meth:`SpanClient.outcome`."""
        self.commit_ts = 0
        """What :meth:`commit` returned."""

    async def read(
        self,
        keys: Sequence[bytes] = (),
        ranges: Sequence[KeyRange] = (),
        *,
        exclusive: bool = False,
        timeout_s: float = 10.0,
    ) -> ReadResult:
        """Lock and read the newest versions. ``exclusive`` for rows that will be written: it saves an upgrade.

        Waits for a range that is on its way to another group, unless the transaction holds locks there, which are lost.
        Raises ABORTED (run the transaction again), DEADLINE_EXCEEDED, UNAVAILABLE, DATA_CORRUPTION.
        """
        self._check_open()

        async def attempt(ranges_map: RangeMap, left_s: float) -> ReadResult:
            return await self._read_once(ranges_map, keys, ranges, pb.EXCLUSIVE if exclusive else pb.SHARED, left_s)

        try:
            result = await self._router.with_map(attempt, timeout_s)
        except F1Error as error:
            if error.code is not Code.WRONG_RANGE:
                raise
            raise await self._definite(error) from error
        for position, key in enumerate(keys):
            own = self._writes.get(key)
            if own is not None:
                result.versions[position] = Version(0, own.value)
        return result

    async def _read_once(
        self, ranges_map: RangeMap, keys: Sequence[bytes], ranges: Sequence[KeyRange], mode: int, timeout_s: float
    ) -> ReadResult:
        parts = reading.split(ranges_map, keys, ranges)
        result = ReadResult(0, [None] * len(keys), [[] for _ in ranges])
        pieces: list[list[tuple[KeyRange, list[Row]]]] = [[] for _ in ranges]

        async def one(group: int, part: Part) -> None:
            found = await self._lock_part(group, keys, part, mode, timeout_s, result)
            for (position, piece), rows in zip(part.ranges, found, strict=True):
                pieces[position].append((piece, rows))

        if len(parts) == 1:  # as nearly always: no task has to be made
            await one(*next(iter(parts.items())))
        else:
            await self._together([one(group, parts[group]) for group in sorted(parts)])
        for position, wanted in enumerate(ranges):
            # The limit counts what is left when own deletes are gone.
            whole = KeyRange(wanted.start, wanted.end, 0, wanted.reverse)
            result.ranges[position] = self._overlay(wanted, reading.join(whole, pieces[position]))
        return result

    @staticmethod
    async def _together(reads: Sequence[Coroutine[Any, Any, None]]) -> None:
        tasks = [asyncio.ensure_future(read) for read in reads]
        try:
            await asyncio.gather(*tasks)
        except F1Error as error:
            if error.code is Code.WRONG_RANGE:
                await asyncio.wait(tasks)  # the read is repeated: what is still under way must not fall into that
            raise

    async def _lock_part(
        self, group: int, keys: Sequence[bytes], part: Part, mode: int, timeout_s: float, result: ReadResult
    ) -> list[list[Row]]:
        share = self._held.setdefault(group, Share())
        wanted = [keys[position] for position in part.keys]
        # Own deletes would hide rows that a limit counted: with own writes about, a range is read whole.
        unlimited = bool(self._writes)
        rest = [KeyRange(p.start, p.end, 0 if unlimited else p.limit, p.reverse) for _, p in part.ranges]
        locks = [(key, None, mode) for key in wanted] + [(p.start, p.end, mode) for p in rest]
        found: list[list[Row]] = [[] for _ in rest]
        open_ranges = list(range(len(rest)))
        self._first_key = self._first_key or (wanted or [p.start for p in rest])[0]
        while True:
            messages = [reading.range_message(rest[i], len(found[i])) for i in open_ranges]
            body = pb.LockRead(
                txn=self._txn(), priority_ts=self.priority_ts, keys=wanted, ranges=messages, term=share.term
            )
            body.mode = pb.EXCLUSIVE if mode == pb.EXCLUSIVE else pb.SHARED
            self._lock_requests += 1
            try:
                response = await self._router.send(group, partial(pb.Request, lock_read=body), timeout_s)
            except F1Error as error:
                if error.code is Code.WRONG_RANGE and not share.term:
                    raise  # nothing is held there that could be lost
                raise await self._definite(error) from error
            reply = response.read
            if share.term and share.term != reply.term:
                raise F1Error(Code.ABORTED, "the transaction's locks were lost when the leader changed; run it again")
            share.term = reply.term
            share.held.extend(locks)
            locks = []
            wanted = reading.take_versions(reply, part.keys[len(part.keys) - len(wanted) :], wanted, result)
            result.timestamp = max(result.timestamp, reply.timestamp)
            open_ranges = reading.absorb(reply, rest, found, open_ranges)
            if not open_ranges and not wanted:
                return found

    def _overlay(self, wanted: KeyRange, rows: list[Row]) -> list[Row]:
        """Lay the transaction's own writes over the rows of a range."""
        own = {k: w for k, w in self._writes.items() if wanted.start <= k < wanted.end}
        if not own:
            return rows[: wanted.limit] if wanted.limit else rows
        merged = {row.key: row for row in rows}
        for key, write in own.items():
            if write.value is None:
                merged.pop(key, None)
            else:
                merged[key] = Row(key, 0, write.value)
        ordered = [merged[key] for key in sorted(merged, reverse=wanted.reverse)]
        return ordered[: wanted.limit] if wanted.limit else ordered

    def write(
        self, key: bytes, value: bytes | None, *, key_offset: int = -1, value_offsets: tuple[int, ...] = ()
    ) -> None:
        """Buffer a write; ``value`` None deletes. A later write of the same key replaces it."""
        self._check_open()
        write = Write(key, value, key_offset, value_offsets)
        if key_offset >= 0:
            self._appends.append(write)
        else:
            self._writes[key] = write

    def put(self, puts: Puts) -> None:
        """Buffer many writes of keys that nothing else of the transaction writes. Its own reads do not see them."""
        self._check_open()
        self._puts.append(puts)

    @property
    def size(self) -> int:
        """How many bytes the keys and values of all buffered writes have."""
        return size_of([*self._writes.values(), *self._appends], self._puts)

    def expect(self, test: Precondition) -> None:
        """Commit only if ``test`` holds then."""
        self._check_open()
        self._preconditions.append(test)

    async def commit(self, *, deadline: int = 0, timeout_s: float = 10.0) -> int:
        """Commit everything at one timestamp and return it; 0 if it wrote nothing and read all in one request.

        Raises ABORTED and the like: nothing happened. UNKNOWN_OUTCOME (ambiguous): ask about :attr:`commit_id`.
        """
        self._check_open()
        self._done = True
        ranges_map = await self._router.range_map(timeout_s)
        writes = [*self._writes.values(), *self._appends]
        nothing = not (writes or self._puts or self._preconditions)
        if nothing and self._lock_requests <= 1:
            # One request read everything at one moment under locks: there is nothing left to verify.
            self._release_all(ranges_map)
            return 0
        plan = self._plan(ranges_map, writes, deadline)
        try:
            self.commit_ts = await self._bundles.commit(plan, timeout_s)
        except F1Error as error:
            if error.code is not Code.WRONG_RANGE:
                raise
            raise await self._definite(error) from error
        self._saw(self.commit_ts)
        return self.commit_ts

    def _plan(self, ranges_map: RangeMap, writes: list[Write], deadline: int) -> Plan:
        shares = twophase.share_out(ranges_map, writes, self._preconditions, self._puts)
        for group, held in self._held.items():
            if not held.term:
                continue  # it was asked, and did not own what was asked for
            share = shares.setdefault(group, Share())
            share.held, share.term = held.held, held.term
        anchor = self._anchor or (writes[0].key if writes else self._first_key)
        self.commit_id = CommitId(anchor, self._unique, self._created_ts)
        return Plan(
            id=self.commit_id,
            attempt=self._attempt,
            priority_ts=self.priority_ts,
            coordinator=ranges_map.group_of(anchor),
            shares=shares,
            deadline=deadline or self._created_ts + _FENCE_US,
            above=self._seen_ts,
        )

    async def rollback(self) -> None:
        """Give everything up; harmless after :meth:`commit`."""
        if self._done:
            return
        self._done = True
        if self._held:
            self._release_all(await self._router.range_map())

    def _release_all(self, ranges_map: RangeMap) -> None:
        plan = self._plan(ranges_map, [], 0)
        for group in sorted(self._held):
            self._spawn(twophase.release(self._router, plan, group), "release")

    def _txn(self) -> pb.TxnRef:
        return pb.TxnRef(anchor=b"", unique=self._unique, created_ts=self._created_ts, attempt=self._attempt)

    def _check_open(self) -> None:
        check(not self._done, "a transaction that has ended is not used again")

    async def _definite(self, error: F1Error) -> F1Error:
        """Return the error of a request that changed nothing for good.

        A lost answer to a locked read leaves nothing but locks, which end by themselves; a range that has moved took
        none of the locks with it. In both cases the transaction is to be retried, in the latter with a newer map.
        """
        if error.code is Code.WRONG_RANGE:
            with contextlib.suppress(F1Error):
                await self._router.range_map(_REFRESH_S, refresh=True)
            heir = error.details.get("heir")
            where = f"group {heir}" if heir else "another group"
            return F1Error(Code.ABORTED, f"a range that the transaction uses is moving to {where}; run it again")
        if not error.ambiguous:
            return error
        return F1Error(Code.ABORTED, f"the transaction lost touch with a leader: {error.message}; run it again")
