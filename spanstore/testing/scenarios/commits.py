"""Commits with names, fences and questions: sent again, asked about while they run, and tried once more.

Whatever becomes of the network and the servers, a commit id has one outcome: everyone who is told of it hears the same,
its rows appear once at that timestamp or never, and not past its deadline. Unknown outcomes are asked for at the end,
so that nothing stays open.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from f1common.errors import Code, F1Error
from spanstore.client import CommitId, ExpectVersion, SpanClient, Write
from spanstore.client.values import Precondition
from spanstore.testing.adapter import SpanKv, read_replica, replica_safe_time
from spanstore.testing.checkers import Violation, check_snapshot_replay, check_timestamp_order
from spanstore.testing.history import Attempt, History, Op, Status
from spanstore.testing.workloads.base import (
    READ_AT,
    Final,
    KvClient,
    breathe,
    in_real_time,
    persist,
    put_all,
    read_all,
    strong_read,
)

EXACTLY_ONCE = "exactly_once"
FENCE = "fence"
NAMED = "named commit"
LOCKED = "locked read"
STALE = "stale_read"
EXPIRY = "expiry"
PINNED = "pinned read"

_PAST_US = 1_000_000
_MAX_FENCE_US = 60_000
_QUICK_S = 0.3
_SKEW_US = 200_000
"""More than clocks differ in any scenario."""


@dataclass(slots=True)
class _Named:
    """One commit id: what was sent under it, and what anybody was told of it."""

    id: CommitId
    writes: list[Write]
    conditions: list[Precondition]
    deadline: int
    attempt: int = 1
    committed: set[int] = field(default_factory=set)
    refused: list[str] = field(default_factory=list)
    """Answers which say that it did not happen, for good."""


class CommitsWorkload:
    """Blind and conditional commits of one to three keys, in one group or several."""

    def __init__(
        self,
        keys: Sequence[bytes],
        servers: Sequence[str],
        *,
        pause_us: int = 20_000,
        outcome_keep_us: int = 3_600_000_000,
    ) -> None:
        self.keys = sorted(keys)
        self._outcome_keep_us = outcome_keep_us
        self._servers = list(servers)
        self._pause_us = pause_us
        self._values = 0
        self._pins = 0
        self._named: dict[bytes, _Named] = {}
        self._resolved: dict[bytes, tuple[int | None, int]] = {}
        self._violations: list[Violation] = []

    def _value(self) -> bytes:
        self._values += 1
        return b"%d" % self._values

    async def setup(self, client: KvClient, history: History) -> None:
        """Give each key a value."""
        await put_all(client, history, {key: self._value() for key in self.keys})

    async def client_loop(
        self,
        process: int,
        client: KvClient,
        rng: random.Random,
        history: History,
        until: Callable[[], bool],
    ) -> None:
        """Commit and look; every second client only looks, since whoever writes soon waits for what cannot be had."""
        kv = _span(client)
        newest_ts = 0
        while not until():
            choice = rng.random()
            if process % 2 == 0:
                kind, look = (LOCKED, self._locked_read) if rng.random() < 0.5 else ("read", self._quick_read)
                op = await history.run(process, kind, look(kv, rng.choice(self.keys)))
            elif choice < 0.6:
                op = await history.run(process, NAMED, self._commit(kv, rng))
            elif choice < 0.65 and self._named:
                op = await history.run(process, "late question", self._ask_late(kv, rng))
            elif choice < 0.7 and newest_ts:
                op = await history.run(process, READ_AT, self._pinned_read(kv, rng, process, newest_ts))
            elif choice < 0.85 or not newest_ts:
                some = rng.sample(self.keys, rng.randint(1, len(self.keys)))
                op = await history.run(process, "read", strong_read(client, some))
            else:
                past_ts = max(1, newest_ts - rng.randrange(_PAST_US))
                op = await history.run(process, READ_AT, self._replica_read(kv, rng, past_ts))
            newest_ts = max(newest_ts, op.ts or 0)
            await breathe(rng, op, self._pause_us)

    def _quick_read(self, kv: SpanKv, key: bytes) -> Callable[[Attempt], Awaitable[int]]:
        async def body(attempt: Attempt) -> int:
            result = await kv.client.read([key], timeout_s=_QUICK_S)
            attempt.read(key, result.values()[0])
            return result.timestamp

        return body

    def _locked_read(self, kv: SpanKv, key: bytes) -> Callable[[Attempt], Awaitable[None]]:
        """Read in a transaction that does nothing else: it has no timestamp, and nothing is verified at its end."""

        async def body(attempt: Attempt) -> None:
            tx = kv.client.transaction()
            try:
                result = await tx.read([key], timeout_s=_QUICK_S)
                attempt.read(key, result.values()[0])
                await tx.commit(timeout_s=_QUICK_S)
            finally:
                await tx.rollback()

        return body

    def _replica_read(self, kv: SpanKv, rng: random.Random, ts: int) -> Callable[[Attempt], Awaitable[int]]:
        """Read at ``ts``, or as late as a replica allows."""
        server = rng.choice(self._servers)
        newest = rng.random() < 0.6

        async def body(attempt: Attempt) -> int:
            at = max(1, await replica_safe_time(kv.client, server)) if newest else ts
            for key, value in zip(self.keys, await read_replica(kv.client, server, at, self.keys), strict=True):
                attempt.read(key, value)
            return at

        return body

    def _commit(self, kv: SpanKv, rng: random.Random) -> Callable[[Attempt], Awaitable[int]]:
        keys = rng.sample(self.keys, rng.randint(1, 3))
        writes = [Write(key, self._value()) for key in keys]
        conditional = rng.random() < 0.3
        fence_us = rng.randrange(_MAX_FENCE_US) if rng.random() < 0.4 else 0
        style = rng.choice((self._once, self._again, self._asked, self._next_attempt))

        async def body(attempt: Attempt) -> int:
            conditions: list[Precondition] = []
            if conditional:
                seen = (await kv.client.read(keys[:1])).versions[0]
                attempt.read(keys[0], None if seen is None else seen.value)
                conditions.append(ExpectVersion(keys[0], 0 if seen is None else seen.ts))
            for write in writes:
                attempt.write(write.key, write.value)
            identity = kv.client.new_commit_id(keys[0])
            named = _Named(identity, writes, conditions, identity.created_ts + fence_us if fence_us else 0)
            self._named[writes[0].value or b""] = named
            try:
                return await style(kv, rng, named)
            finally:
                self._judge(named)

        return body

    async def _send(self, client: SpanClient, named: _Named, timeout_s: float) -> int:
        """Drive the commit once and note what it is said to have become."""
        try:
            ts = await client.commit(
                named.writes,
                named.conditions,
                deadline=named.deadline,
                commit_id=named.id,
                attempt=named.attempt,
                timeout_s=timeout_s,
            )
        except F1Error as error:
            if not error.ambiguous:
                named.refused.append(f"{error.code.value}: {error.message}")
            raise
        named.committed.add(ts)
        return ts

    async def _once(self, kv: SpanKv, rng: random.Random, named: _Named) -> int:
        return await self._send(kv.client, named, rng.choice((0.1, 10.0)))

    async def _again(self, kv: SpanKv, rng: random.Random, named: _Named) -> int:
        """Whatever became of it, send the same again through another client; after a success it must succeed."""
        try:
            ts = await self._send(kv.client, named, rng.choice((0.1, 1.0, 10.0)))
        except F1Error as error:
            if not error.ambiguous:
                raise
            return await self._send(kv.other, named, 10.0)
        await asyncio.sleep(rng.random() * rng.choice((0.01, 1.0)))
        try:
            await self._send(kv.other, named, 10.0)
        except F1Error:
            return ts  # what was said stands; _judge looks for contradictions
        return ts

    async def _asked(self, kv: SpanKv, rng: random.Random, named: _Named) -> int:
        """Another client asks for the outcome while the commit runs: one of the two comes first, and both agree."""
        sending = asyncio.create_task(self._send(kv.client, named, 10.0))
        await asyncio.sleep(rng.random() * rng.choice((0.002, 0.02, 0.5)))
        try:
            await self._ask(kv.other, named)
        except F1Error:
            pass  # nobody answered: the commit speaks for itself
        try:
            return await sending
        except F1Error as error:
            if error.ambiguous and named.refused:
                raise named_aborted(named) from error
            raise

    async def _next_attempt(self, kv: SpanKv, rng: random.Random, named: _Named) -> int:
        """After a refusal, have the abort recorded, and try again under the same id."""
        try:
            return await self._send(kv.client, named, rng.choice((0.1, 1.0, 10.0)))
        except F1Error:
            ts = await self._ask(kv.other, named)
            if ts is not None:
                return ts
        self._judge(named)
        named.refused.clear()
        named.attempt, named.deadline = 2, 0
        return await self._send(kv.other, named, 10.0)

    async def _ask(self, client: SpanClient, named: _Named) -> int | None:
        """Return the commit timestamp or None for an abort, and note it."""
        try:
            decision = await client.outcome(named.id, named.attempt)
        except F1Error as error:
            if error.code is not Code.EXPIRED:
                raise
            self._check_expired(client, named)
            text = f"nobody knows any more what became of it: {error.message}"
            raise F1Error(Code.UNKNOWN_OUTCOME, text) from error
        if decision.committed:
            named.committed.add(decision.ts)
            return decision.ts
        named.refused.append("outcome: aborted")
        return None

    def _ask_late(self, kv: SpanKv, rng: random.Random) -> Callable[[Attempt], Awaitable[None]]:
        """Ask about some commit of before, perhaps when nobody remembers it any more."""
        named = rng.choice(list(self._named.values()))
        number = named.attempt

        async def body(attempt: Attempt) -> None:
            try:
                decision = await kv.client.outcome(named.id, number, peek=True)
            except F1Error as error:
                if error.code is Code.EXPIRED:
                    self._check_expired(kv.client, named)
                raise
            if decision.committed:
                named.committed.add(decision.ts)
            elif decision.committed is False and named.committed and named.attempt == number:
                message = f"commit {named.id.unique.hex()} committed at {named.committed}, and is called aborted now"
                self._violations.append(Violation(EXACTLY_ONCE, message))

        return body

    def _pinned_read(
        self, kv: SpanKv, rng: random.Random, process: int, ts: int
    ) -> Callable[[Attempt], Awaitable[int]]:
        """Pin a timestamp, let versions below it grow old, and read there: what is pinned stays readable."""
        ttl_s = rng.choice((0.2, 1.0, 3.0))
        wait_s = rng.random() * 1.5 * ttl_s

        async def body(attempt: Attempt) -> int:
            self._pins += 1
            name = f"{process}-{self._pins}"
            pin = await kv.client.pins.add(name, ts, ttl_s=ttl_s)
            await asyncio.sleep(wait_s)
            if rng.random() < 0.5:
                pin = await kv.client.pins.refresh(name, ttl_s=ttl_s)
                await asyncio.sleep(rng.random() * ttl_s)
            try:
                values = (await kv.client.read(self.keys, timestamp=ts, anywhere=rng.random() < 0.5)).values()
            except F1Error as error:
                # Whoever reads the pins has a clock no further ahead than this one's by the bound.
                if error.code is Code.SNAPSHOT_TOO_OLD and kv.client.strong_timestamp() < pin.expires_ts - _SKEW_US:
                    self._violations.append(Violation(PINNED, f"pin {name} of {ts} does not hold: {error}"))
                raise
            for key, value in zip(self.keys, values, strict=True):
                attempt.read(key, value)
            await kv.client.pins.remove(name)
            return ts

        return body

    def _check_expired(self, client: SpanClient, named: _Named) -> None:
        """An outcome is kept for as long as it is said to be."""
        age_us = client.strong_timestamp() - named.id.created_ts
        if age_us < self._outcome_keep_us:
            message = f"commit {named.id.unique.hex()} expired after {age_us} us"
            self._violations.append(Violation(EXPIRY, message))

    def _judge(self, named: _Named) -> None:
        """Hold everything that was said about an attempt against each other."""
        what = f"commit {named.id.unique.hex()}, attempt {named.attempt},"
        if len(named.committed) > 1:
            self._violations.append(Violation(EXACTLY_ONCE, f"{what} committed at {sorted(named.committed)}"))
        if named.committed and named.refused:
            message = f"{what} committed at {sorted(named.committed)}, but somebody was told {named.refused}"
            self._violations.append(Violation(EXACTLY_ONCE, message))
        for ts in named.committed:
            if named.deadline and ts > named.deadline:
                message = f"{what} committed at {ts}, {ts - named.deadline} us past its deadline"
                self._violations.append(Violation(FENCE, message))

    async def final(self, client: KvClient, history: History) -> Final:
        """Ask for every outcome that nobody knows, then read all keys."""
        kv = _span(client)
        for op in history.ops:
            named = self._of(op)
            if op.status is Status.UNKNOWN and named is not None:
                expired: list[bool] = []

                async def body(attempt: Attempt, named: _Named = named, expired: list[bool] = expired) -> None:
                    try:
                        await self._ask(kv.client, named)
                    except F1Error as error:
                        if error.code is not Code.UNKNOWN_OUTCOME:
                            raise
                        expired.append(True)

                done = await persist(history, "outcome", body)
                self._judge(named)
                if expired and not named.committed:
                    continue  # nobody will ever say; the reads may tell
                ts = next(iter(sorted(named.committed)), None)
                self._resolved[named.id.unique] = (ts, done.return_us)
        return await read_all(client, history, self.keys)

    def _of(self, op: Op) -> _Named | None:
        return self._named.get(op.writes[0].value or b"") if op.kind == NAMED and op.writes else None

    def _resolve(self, op: Op) -> Op:
        """Return the operation with its outcome as it is known by now."""
        named = self._of(op)
        if op.status is not Status.UNKNOWN or named is None or named.id.unique not in self._resolved:
            return op
        ts, asked_us = self._resolved[named.id.unique]
        status = Status.FAIL if ts is None else Status.OK
        return msgspec.structs.replace(op, status=status, ts=ts, return_us=asked_us)

    def check(self, ops: Sequence[Op], final: Final) -> list[Violation]:
        """Check outcomes and fences, external consistency, and every read against a replay."""
        resolved = [self._resolve(op) for op in ops]
        return [
            *self._violations,
            *check_timestamp_order(in_real_time(resolved)),
            *check_snapshot_replay(resolved),
            *check_locked_reads(resolved),
        ]


def check_locked_reads(ops: Sequence[Op]) -> list[Violation]:
    """Check that locked reads, which have no timestamp, saw every commit that had returned. Values are unique."""
    commits: dict[bytes, list[Op]] = {}
    written: dict[tuple[bytes, bytes | None], int] = {}
    for op in ops:
        if op.status is Status.OK and op.ts:
            for write in op.writes:
                commits.setdefault(write.key, []).append(op)
                written[write.key, write.value] = op.ts
    violations = []
    for op in ops:
        if op.kind != LOCKED or op.status is not Status.OK:
            continue
        for read in op.reads:
            seen_ts = written.get((read.key, read.value))
            before = [c for c in commits.get(read.key, ()) if c.return_us < op.invoke_us]
            newest = max(before, key=lambda c: c.ts or 0, default=None)
            if seen_ts is not None and newest is not None and seen_ts < (newest.ts or 0):
                message = f"a locked read of {read.key!r} saw the version of {seen_ts}, but {newest.ts} had returned"
                violations.append(Violation(STALE, message, (newest, op)))
    return violations


def _span(client: KvClient) -> SpanKv:
    if not isinstance(client, SpanKv):
        raise F1Error(Code.INTERNAL, "this workload asks what only the storage client knows")
    return client


def named_aborted(named: _Named) -> F1Error:
    """Return the error that says what was said about a commit by others."""
    return F1Error(Code.ABORTED, f"told otherwise: {named.refused}")
