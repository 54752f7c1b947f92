"""The storage client: reads, one-shot commits and pessimistic transactions over any number of groups."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import grpc.aio

from f1common.clock import Clock
from f1common.encoding.tuple import Value
from f1common.errors import Code, F1Error
from f1common.ids import new_id
from f1common.pb import spanstore_pb2 as pb
from f1common.pb import spanstore_pb2_grpc as stubs
from f1common.rpc.backoff import Backoff
from f1common.rpc.channels import ChannelCache
from f1common.rpc.status import error_from_rpc
from spanstore.client import reading, twophase
from spanstore.client.bundling import Bundles
from spanstore.client.foreground import ForegroundLoad
from spanstore.client.pinning import Pins
from spanstore.client.router import Router
from spanstore.client.scanning import Scan, ScanColumn, ScanPredicate, ScanSpec, SketchSpec, TableRows
from spanstore.client.sketching import Sketch, read_sketch
from spanstore.client.transaction import Transaction
from spanstore.client.twophase import Plan
from spanstore.client.values import (
    CommitId,
    Decision,
    KeyRange,
    Precondition,
    ReadResult,
    Version,
    Write,
)
from spanstore.placement.range_map import RangeMap

T = TypeVar("T")

_FAREWELL_S = 2.0
_SAFE_TIME_POLL_S = 0.05
_NEAR_LAG_US = 1_000_000
"""A near replica whose safe time is further behind is not asked for the global safe timestamp."""

DEADLINE_S = 30.0
"""How long after its start a commit may still get its timestamp (the write fence)."""

LAST_ATTEMPT = (1 << 31) - 1
"""An abort of this attempt leaves no number for another."""


class SpanClient:
    """One client of the storage tier, for any number of tasks of one event loop."""

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        clock: Clock,
        rng: random.Random,
        channels: ChannelCache | None = None,
        zone: str = "",
        background: bool = False,
    ) -> None:
        """Take some spanservers' addresses. ``clock`` must be within its bound: reads of several groups rest on it.

        ``rng`` gives commit ids, so outside the simulator it must never repeat itself: ``random.SystemRandom()``.
        ``zone`` is where this client runs: reads that any replica can answer go to one in that zone first.
        ``background``: nobody waits for what it does, and :meth:`foreground` tells how those are served that wait.
        """
        self._own_channels = channels is None
        self._channels = channels if channels is not None else ChannelCache()
        self._clock = clock
        self._rng = rng
        self._router = Router(addresses, channels=self._channels, rng=rng, zone=zone, background=background)
        self._zone = zone
        self._near_ts = 0  # near replicas have said that they can answer here
        self._tasks: set[asyncio.Task[None]] = set()
        self._seen_ts = 0
        self._bundles = Bundles(self._router, self._spawn)
        self.pins = Pins(self)
        """Timestamps that stay readable for longer than versions are kept."""

    # ------------------------------------------------------------------ reads

    async def read(
        self,
        keys: Sequence[bytes] = (),
        ranges: Sequence[KeyRange] = (),
        *,
        timestamp: int = 0,
        max_staleness_ms: int = 0,
        anywhere: bool = False,
        timeout_s: float = 10.0,
    ) -> ReadResult:
        """Read rows at one timestamp, by default one that sees every commit acknowledged before the call.

        ``timestamp`` (microseconds since the epoch) reads there; with ``anywhere`` near replicas are asked first, which
        wait until their safe time has reached it. ``max_staleness_ms`` reads at the newest timestamp that near replicas
        can serve without waiting, if it is not older than that, else at the newest that the leaders can, and in any
        case not further back: every commit that was acknowledged before then is seen.

        Raises DEADLINE_EXCEEDED (naming the transaction that was waited for, if any), UNAVAILABLE, SNAPSHOT_TOO_OLD,
        DATA_CORRUPTION, INVALID_ARGUMENT.
        """
        if max_staleness_ms < 0 or (max_staleness_ms and timestamp):
            raise F1Error(Code.INVALID_ARGUMENT, "max_staleness_ms is above 0, and no timestamp is given beside it")
        near = anywhere or 0 < timestamp <= self._near_ts

        async def work(ranges_map: RangeMap, left_s: float) -> ReadResult:
            ts, at_near = timestamp, near
            if max_staleness_ms:
                groups = sorted(reading.split(ranges_map, keys, ranges))
                ts, at_near = await self._stale_ts(groups, max_staleness_ms * 1000, left_s)
            router = self._router
            return await reading.read(router, ranges_map, keys, ranges, ts, self._strong_ts, left_s, near=at_near)

        result = await self._router.with_map(work, timeout_s)
        if timestamp == 0 and not max_staleness_ms and 0 < result.timestamp < self._seen_ts:
            # A clock beyond its bound: the order in which this client saw things is kept all the same.
            return await self.read(keys, ranges, timestamp=self._seen_ts, timeout_s=timeout_s)
        return result

    def group_of(self, key: bytes) -> int | None:
        """Return the group that owns a key as far as is known without asking; None before anything was asked."""
        return self._router.group_of(key)

    async def read_apart(
        self, keys: Sequence[bytes], timestamp: int, timeout_s: float = 10.0
    ) -> tuple[int, Mapping[bytes, Version | None]]:
        """Read rows of one group for several readers, none of whom waits for a transaction in another's way.

        A key that is not in the answer must be read by itself. Raises what :meth:`read` raises.
        """

        async def work(ranges_map: RangeMap, left_s: float) -> tuple[int, dict[bytes, Version | None]]:
            return await reading.read_apart(self._router, ranges_map, keys, timestamp, left_s)

        return await self._router.with_map(work, timeout_s)

    async def _stale_ts(self, groups: Sequence[int], staleness_us: int, timeout_s: float) -> tuple[int, bool]:
        """Return the timestamp of a read with bounded staleness, and whether near replicas can serve it at once."""
        oldest_ts = self._strong_ts() - staleness_us
        near_ts = await reading.safe_times(self._router.send_near, groups, timeout_s)
        if near_ts >= oldest_ts:
            return near_ts, True
        return max(oldest_ts, await reading.safe_times(self._router.send, groups, timeout_s)), False

    def scan(
        self,
        ranges: Sequence[KeyRange],
        columns: Sequence[ScanColumn],
        *,
        timestamp: int = 0,
        predicates: Sequence[ScanPredicate] = (),
        table: TableRows | None = None,
        limit: int = 0,
        batch_rows: int = 0,
        anywhere: bool = False,
        timeout_s: float = 30.0,
    ) -> Scan:
        """Read many rows at one timestamp, by default a strong one, as Arrow record batches: ``async for`` over it.

        All ``predicates`` hold for the rows, which are those of ``table`` if it is given. With ``anywhere`` a replica
        nearby is asked, which waits until its safe time has reached ``timestamp``. ``timeout_s`` is how long the scan
        may make no progress. Nothing is sent before the iteration begins. Raises INVALID_ARGUMENT.
        """
        spec = ScanSpec(
            tuple(ranges),
            tuple(columns),
            timestamp,
            tuple(predicates),
            table,
            limit,
            batch_rows,
            timestamp > 0 and (anywhere or timestamp <= self._near_ts),
            timeout_s,
        )
        return Scan(spec, self._router, self._strong_ts, lambda: Backoff(5, 500, 1.7, self._rng))

    async def sketch(
        self,
        ranges: Sequence[KeyRange],
        *,
        tables: Sequence[Sequence[tuple[Value, int]]] = (),
        every: int = 1000,
        max_keys: int = 2_000_000,
        timeout_s: float = 30.0,
        background: bool = False,
    ) -> Sketch:
        """Count the keys in ``ranges``, of each table and where, as estimates: the newest versions are looked at.

        ``tables``: the paths of those to be told apart, as (table id, how many elements its own part of the key has)
        from the root down. ``every``: keys of a segment at most. Of each range in each group about ``max_keys`` keys
        are walked over (some 500,000 a second), the rest is extrapolated. ``timeout_s`` is how long it may make no
        progress. ``background``: nobody waits for it, as if the client were one in the background. Raises as iterating
        over a :class:`Scan` does.
        """
        wanted = SketchSpec(tuple(tuple(path) for path in tables), every, max_keys)
        spec = ScanSpec(tuple(ranges), (), timeout_s=timeout_s, sketch=wanted, background=background)
        scan = Scan(spec, self._router, self._strong_ts, lambda: Backoff(5, 500, 1.7, self._rng))
        return await read_sketch(scan, len(wanted.tables))

    def strong_timestamp(self) -> int:
        """Return a timestamp at which every commit acknowledged before this call can be seen, through any client."""
        return self._strong_ts()

    def _strong_ts(self) -> int:
        return max(self._clock.sample().tt.latest, self._seen_ts)

    async def safe_time(self, timeout_s: float = 5.0) -> int:
        """Return the global safe timestamp: reads at or below it wait for nobody, at any leader (F1 section 2.1).

        A client with a zone asks near replicas, unless they are behind: reads at what they say go to them first.
        Raises UNAVAILABLE while some group has none, which a server that has just started may not know yet.
        """
        await self._router.range_map(timeout_s)
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        while True:
            if self._zone:
                near_ts = await reading.all_safe_times(self._router, self._router.send_near, timeout_s)
                if near_ts > self._strong_ts() - _NEAR_LAG_US:
                    self._near_ts = max(self._near_ts, near_ts)
                    return near_ts
            safe_ts = await reading.all_safe_times(self._router, self._router.send, timeout_s)
            # As the timestamp of a read, 0 would mean the newest, another one for each read.
            if safe_ts > 0:
                return safe_ts
            if loop.time() >= end:
                raise F1Error(Code.UNAVAILABLE, "some group knows no safe timestamp yet; retry")
            await asyncio.sleep(_SAFE_TIME_POLL_S)

    # ------------------------------------------------------------------ writes

    async def commit(
        self,
        writes: Sequence[Write],
        preconditions: Sequence[Precondition] = (),
        *,
        deadline: int = 0,
        above: int = 0,
        commit_id: CommitId | None = None,
        attempt: int = 1,
        timeout_s: float = 10.0,
    ) -> int:
        """Apply ``writes`` atomically if all ``preconditions`` hold, and return the commit timestamp.

        ``deadline`` fences it: no commit timestamp passes it. ``above``: the timestamp will be higher. The same
        ``commit_id`` and ``attempt`` sent again never executes twice. Raises ABORTED, ALREADY_EXISTS, NOT_FOUND,
        FENCED (nothing happened), UNKNOWN_OUTCOME (ambiguous).
        """
        if not writes:
            raise F1Error(Code.INVALID_ARGUMENT, "a commit needs at least one write")

        async def attempt_once(ranges_map: RangeMap, left_s: float) -> int:
            # A new name for each map: what aborts the try before may still be on its way to some participant.
            identity = commit_id or self.new_commit_id(writes[0].key)
            shares = twophase.share_out(ranges_map, writes, preconditions)
            plan = Plan(
                id=identity,
                attempt=attempt,
                priority_ts=identity.created_ts,
                coordinator=ranges_map.group_of(identity.anchor),
                shares=shares,
                deadline=deadline or identity.created_ts + int(DEADLINE_S * 1_000_000),
                above=max(above, self._seen_ts),
                named=commit_id is not None,
            )
            try:
                return await self._bundles.commit(plan, left_s)
            except F1Error as error:
                if commit_id is None or error.code is not Code.WRONG_RANGE:
                    raise
                await self._router.range_map(left_s, refresh=True)
                raise F1Error(Code.ABORTED, f"{error.message}; retry with the next attempt") from error

        ts = await self._router.with_map(attempt_once, timeout_s)
        self.saw(ts)
        return ts

    def new_commit_id(self, anchor: bytes) -> CommitId:
        """Make a commit id; ``anchor`` is a key of the group that decides about it for ever."""
        return CommitId(anchor, new_id(self._rng), self._clock.sample().tt.latest)

    async def outcome(
        self, commit_id: CommitId, attempt: int = 1, *, peek: bool = False, timeout_s: float = 10.0
    ) -> Decision:
        """Did it commit? Unless ``peek``, an attempt nobody heard of is aborted by asking. Raises EXPIRED."""
        return await twophase.outcome(self._router, commit_id, attempt, timeout_s, peek=peek)

    def transaction(self, priority_ts: int = 0, *, commit_id: CommitId | None = None, attempt: int = 1) -> Transaction:
        """Begin a pessimistic transaction; ``priority_ts`` keeps the age of one that is retried.

        ``commit_id`` and ``attempt`` name its commit, when somebody must be able to ask for the outcome who does not
        have this object. Each attempt has one driver, and attempt n + 1 may begin when :meth:`outcome` has said that
        n did not commit.
        """
        now = self._clock.sample().tt.latest
        return Transaction(
            self._router,
            unique=commit_id.unique if commit_id is not None else new_id(self._rng),
            created_ts=commit_id.created_ts if commit_id is not None else now,
            priority_ts=priority_ts or now,
            seen_ts=self._seen_ts,
            spawn=self._spawn,
            bundles=self._bundles,
            saw=self.saw,
            anchor=commit_id.anchor if commit_id is not None else b"",
            attempt=attempt,
        )

    async def fence(self, commit_id: CommitId, *, timeout_s: float = 10.0) -> Decision:
        """Did any attempt of this commit succeed? If not, none ever will. Raises EXPIRED."""
        return await self.outcome(commit_id, LAST_ATTEMPT, timeout_s=timeout_s)

    async def run(
        self,
        fn: Callable[[Transaction], Awaitable[T]],
        *,
        attempts: int = 50,
        deadline: Callable[[], int] = lambda: 0,
    ) -> T:
        """Run ``fn`` in a transaction and commit it: the one retry loop. ``fn`` may run several times.

        ``deadline`` is asked before each commit for the latest timestamp that it may have; 0: none but the usual one.

        Retries what cannot have happened (ABORTED and other retryable errors that are not ambiguous), with the age of
        the first try, so that it gets its turn. Raises the last error after ``attempts`` tries.
        """
        backoff = Backoff(2, 200, 1.7, self._rng)
        priority_ts = 0
        for left in range(attempts - 1, -1, -1):
            tx = self.transaction(priority_ts)
            priority_ts = tx.priority_ts
            try:
                result = await fn(tx)
                await tx.commit(deadline=deadline())
                return result
            except F1Error as error:
                await tx.rollback()
                if error.ambiguous or not error.retryable or not left:
                    raise
                if error.code is Code.WRONG_RANGE:
                    await self._router.range_map(refresh=True)
            except BaseException:
                await tx.rollback()
                raise
            await asyncio.sleep(backoff.next_s())
        raise F1Error(Code.INTERNAL, "run() needs at least one attempt")

    # ------------------------------------------------------------------ the cluster

    async def range_map(self, *, refresh: bool = False, timeout_s: float = 10.0) -> RangeMap:
        """Return the range map. Raises UNAVAILABLE when no server has one in time."""
        return await self._router.range_map(timeout_s, refresh=refresh)

    async def change_members(
        self,
        group: int,
        step: pb.ChangeMembers.Step,
        name: str,
        *,
        version: int | None = None,
        home: str = "",
        timeout_s: float = 10.0,
    ) -> pb.MembersReply:
        """Take one step (``pb.ChangeMembers``) with the members of ``group`` and return them once it is chosen.

        ``name`` is a member's or its server's; ``version``, if given, must be that of the present members; ``home``,
        for a new replica, is that of its server's status. Raises
        FAILED_PRECONDITION (retryable if waiting helps), NOT_FOUND, ALREADY_EXISTS, INVALID_ARGUMENT; after an
        ambiguous error the step may have been taken.
        """
        await self._router.range_map(timeout_s)
        change = pb.ChangeMembers(step=step, name=name, version=version, home=home)
        response = await self._router.send(group, lambda: pb.Request(change_members=change), timeout_s)
        return response.members

    async def foreground(self, timeout_s: float = 1.0) -> ForegroundLoad:
        """Ask the leaders of all groups how users are served, and return that; of a client in the background only.

        What does not answer in time counts with what it said last.
        """
        groups = (await self._router.range_map()).groups()
        # Any request is answered with it; this one costs next to nothing.
        asked = [self._router.send(g, lambda: pb.Request(safe_time=pb.SafeTime()), timeout_s) for g in sorted(groups)]
        for failure in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(failure, BaseException) and not isinstance(failure, F1Error):
                raise failure
        return self._router.foreground.load()

    def groups(self) -> set[int]:
        """Return the numbers of all groups, once the range map is known."""
        return self._router.groups()

    async def learn_of(self, groups: Sequence[int], timeout_s: float = 10.0) -> None:
        """Find out where groups are that were founded since the range map was read. Raises UNAVAILABLE."""
        await self._router.range_map(timeout_s)
        await self._router.learn_of(groups, timeout_s)

    async def status(self, timeout_s: float = 2.0) -> dict[str, pb.StatusReply | F1Error]:
        """Ask every server for its status, by address; one that does not answer has an error instead."""
        await self._router.range_map(timeout_s * 5, refresh=True)
        servers = self._router.servers()

        async def ask(address: str) -> pb.StatusReply | F1Error:
            try:
                stub = stubs.SpanServerStub(self._channels.get(address))
                reply: pb.StatusReply = await stub.Status(pb.StatusRequest(), timeout=timeout_s)
                return reply
            except grpc.aio.AioRpcError as error:
                return error_from_rpc(error)

        names = sorted(servers)
        answers = await asyncio.gather(*(ask(servers[name]) for name in names))
        return {servers[name]: answer for name, answer in zip(names, answers, strict=True)}

    async def scrub(self, server: str, bytes_per_s: int = 0, timeout_s: float = 5.0) -> int:
        """Have a server read all of its data now, and return its count of passes once it has.

        ``bytes_per_s`` 0 is the server's own rate. Raises NOT_FOUND, UNAVAILABLE.
        """
        await self._router.range_map(timeout_s)
        if server not in self._router.servers():
            known = ", ".join(sorted(self._router.servers()))
            raise F1Error(Code.NOT_FOUND, f"there is no spanserver {server!r}; there are {known}")
        request = pb.Request(scrub=pb.Scrub(bytes_per_s=bytes_per_s))
        return int((await self._router.send_to(server, request, timeout_s)).scrub.passes)

    async def close(self) -> None:
        """Let decisions and releases that are on their way arrive, for a moment, and end the streams."""
        if self._tasks:
            # Without them the servers find out by themselves, but rows stay locked until then.
            await asyncio.wait(list(self._tasks), timeout=_FAREWELL_S)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._bundles.close()
        await self._router.close()
        if self._own_channels:
            await self._channels.close()

    def saw(self, ts: int) -> None:
        """Remember a timestamp: later commits of this client come after it, whatever its clock says."""
        self._seen_ts = max(self._seen_ts, ts)

    # ------------------------------------------------------------------ inside

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
