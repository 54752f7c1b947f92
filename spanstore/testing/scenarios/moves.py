"""Ranges on the move: somebody who splits, merges and moves them all the time, and who owns what meanwhile."""

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from f1common.encoding import tuple as tuples
from f1common.errors import F1Error
from spanstore.client import SpanClient
from spanstore.client.founding import create_group
from spanstore.client.groups import read_directory
from spanstore.client.placement import cancel_move, merge_ranges, move_jobs, split_range, stored_map, submit_move
from spanstore.placement.range_map import KEY_MAX, KEY_MIN, META_GROUP, RangeMap
from spanstore.testing.checkers import Applied, Installed, Violation
from spanstore.testing.cluster import SimCluster
from spanstore.txn.commands import (
    AbandonCmd,
    AbortCmd,
    BeginMoveCmd,
    BundleCmd,
    CedeCmd,
    Command,
    CommitCmd,
    OwnCmd,
    PrepareCmd,
    decode_command,
)

OWNERS = "owners"
"""Name of the checker: every key has one owner, and never two."""

_SAMPLE_S = 0.005
_QUIET_S = 0.1
_SHUTTLE_S = 0.02


class Shuffler:
    """Changes of the range map at random, always around keys that the workload uses."""

    def __init__(self, client: SpanClient, keys: Sequence[bytes], groups: Sequence[int], rng: random.Random) -> None:
        self.moved = 0
        """Moves that were asked for."""
        self._client = client
        self._keys = list(keys)
        self._groups = list(groups)
        self._rng = rng

    def add(self, group: int) -> None:
        """Move ranges to a group that is new."""
        self._groups.append(group)

    async def run(self, every_us: int, until: Callable[[], bool]) -> None:
        """Change something every so often. What is refused, or fails of a fault, is not tried again."""
        while not until():
            await asyncio.sleep(self._rng.expovariate(1e6 / every_us))
            try:
                await self._change()
            except F1Error:
                continue

    async def _change(self) -> None:
        ranges, _ = await stored_map(self._client)
        key = self._rng.choice(self._keys)
        choice = self._rng.random()
        if choice < 0.1:
            await split_range(self._client, key)
        elif choice < 0.2:
            await merge_ranges(self._client, ranges.lookup(key).start)
        elif choice < 0.3:
            running = [job.number for job in await move_jobs(self._client) if not job.ended]
            if running:
                await cancel_move(self._client, self._rng.choice(running))
        elif len([job for job in await move_jobs(self._client) if not job.ended]) < 3:
            await self._move(ranges, key)

    async def _move(self, ranges: RangeMap, key: bytes) -> None:
        """Move the range of a key, or a part of it, whatever borders there are."""
        found = ranges.lookup(key)
        start = self._rng.choice((found.start, found.start, key))
        after = tuples.encode((*tuples.decode(key), ""))  # the first key in the directory of this one
        end = self._rng.choice((found.end, found.end, after))
        target = self._rng.choice([group for group in self._groups if group != found.group])
        await submit_move(self._client, start, end, target)
        self.moved += 1

    async def settle(self) -> None:
        """Wait until no move is under way."""
        while True:
            try:
                if all(job.ended for job in await move_jobs(self._client)):
                    return
            except F1Error:
                pass
            await asyncio.sleep(_QUIET_S)


class Founder:
    """Somebody who founds a group while the cluster runs, and lets a :class:`Shuffler` move ranges there.

    All servers have a replica of it, so that every server can be asked for all rows in the end.
    """

    def __init__(self, cluster: SimCluster, client: SpanClient, rng: random.Random) -> None:
        self.founded = 0
        self._cluster = cluster
        self._client = client
        self._rng = rng

    async def run(self, shuffler: Shuffler, within_s: float, until: Callable[[], bool]) -> None:
        """Found the group at some time, and try again if that fails."""
        await asyncio.sleep(self._rng.uniform(0.0, within_s))
        while not until():
            try:
                shuffler.add(await self._create(2.0))
                return
            except F1Error:
                await asyncio.sleep(_QUIET_S)

    async def settle(self) -> None:
        """Wait until the group serves, if it was founded, and have it checked like the others. May be repeated."""
        while not self.founded:
            try:
                if (await read_directory(self._client)).foundings:
                    self._cluster.groups.append(await self._create(60.0))
                    self.founded = 1
                return
            except F1Error:
                await asyncio.sleep(_QUIET_S)

    async def _create(self, timeout_s: float) -> int:
        return await create_group(self._client, "late", voters=len(self._cluster.names), timeout_s=timeout_s)


class Shuttle(Shuffler):
    """The first keys move to another group and back, again and again; some moves are cancelled on their way.

    So a group gets what it had before, and has to have forgotten what it knew of that.
    """

    async def _change(self) -> None:
        ranges, _ = await stored_map(self._client)
        key = self._rng.choice(self._keys[:2])
        now = ranges.lookup(key).group
        target = next(group for group in self._groups if group not in (META_GROUP, now))
        job = await submit_move(self._client, key, tuples.encode((*tuples.decode(key), "")), target)
        self.moved += 1
        if self._rng.random() < 0.2:
            await asyncio.sleep(self._rng.uniform(0.0, 0.1))
            await cancel_move(self._client, job.number)
        while not all(job.ended for job in await move_jobs(self._client)):
            await asyncio.sleep(_SHUTTLE_S)


class OwnerWatch:
    """Checks again and again that no key is served by the leaders of two groups."""

    def __init__(self, cluster: SimCluster, keys: Sequence[bytes]) -> None:
        self.violations: list[Violation] = []
        self._cluster = cluster
        self._keys = list(keys)
        self._seen: set[tuple[bytes, tuple[int, ...]]] = set()

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            self._look()
            await asyncio.sleep(_SAMPLE_S)

    def _look(self) -> None:
        owners: dict[bytes, set[int]] = {}
        for _, process in sorted(self._cluster.processes.items()):
            node = self._cluster.world.nodes[process.server.name]
            if not node.running:
                continue
            # A server that was paused takes note of the time before it serves anybody.
            boot_us = node.clock.sample().boot_us
            for number, group in process.server.groups.items():
                if group.is_serving_leader() and group.replica.lease_valid(boot_us):
                    for key in self._keys:
                        if group.state.holding.owned.has_key(key):
                            owners.setdefault(key, set()).add(number)
        for key, groups in owners.items():
            mark = (key, tuple(sorted(groups)))
            if len(groups) > 1 and mark not in self._seen:
                self._seen.add(mark)
                message = f"at {self._cluster.world.now_us()} us groups {mark[1]} owned {key.hex()}"
                self.violations.append(Violation(OWNERS, message))


def count_moves(applied: Iterable[Applied | Installed]) -> int:
    """Return how many ranges changed their owner."""
    entries = {(e.group, e.index): e.entry for e in applied if isinstance(e, Applied)}
    return sum(isinstance(decode_command(entry), OwnCmd) for entry in entries.values())


@dataclass(slots=True)
class _Owner:
    """What one group's log says of who may write what: the last event that covers a key counts."""

    group: int
    events: list[tuple[bytes, bytes, bool, int]]
    """(start, end, owned from now on, above this timestamp), oldest first."""
    coming: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)
    closed: int = 0

    def apply(self, command: Command) -> Iterator[str]:
        """Take in an entry, and say what is wrong with it."""
        match command:
            case CommitCmd(txn=txn, ts=ts, writes=writes):
                yield from self._look([txn.anchor], 0, "decides about")
                yield from self._look([write.key for write in writes], ts, "commits")
            case BundleCmd():
                for commit in command.apart():
                    yield from self.apply(commit)
            case AbortCmd(txn=txn):
                yield from self._look([txn.anchor], 0, "decides about")
            case PrepareCmd(prepare_ts=ts, writes=writes):
                yield from self._look([write.key for write in writes], ts, "prepares")
            case BeginMoveCmd(move=move, start=start, end=end):
                self.coming[move] = (start, end)
            case CedeCmd(move=move, start=start, end=end) if move > self.closed:
                self.events.append((start, end, False, 0))
                self.closed = move
            case OwnCmd(move=move, floor_ts=floor_ts) if move > self.closed:
                self.events.append((*self.coming[move], True, floor_ts))
                self.closed = move
            case AbandonCmd(move=move):
                self.closed = max(self.closed, move)
            case _:
                pass  # it writes no rows of clients

    def _look(self, keys: Sequence[bytes], ts: int, does: str) -> Iterator[str]:
        for key in keys:
            owned, floor_ts = next(((o, f) for s, e, o, f in reversed(self.events) if s <= key < e), (False, 0))
            if not owned:
                yield f"{does} {key.hex()}, which the group does not own"
            elif 0 < ts <= floor_ts:
                yield f"{does} {key.hex()} at {ts}, but was to stay above {floor_ts}"


def check_moves(cluster: SimCluster, first: RangeMap) -> list[Violation]:
    """Check by their logs that groups write and decide only what they own, above what the owner before promised.

    ``first`` is the range map before anything moved.
    """
    owners = {
        group: _Owner(group, [(r.start, r.end, True, 0) for r in first.owned_by(group)]) for group in cluster.groups
    }
    entries = {(e.group, e.index): e.entry for e in cluster.applied if isinstance(e, Applied)}
    return [
        Violation(OWNERS, f"entry {index} of group {group} {wrong}")
        for (group, index), entry in sorted(entries.items())
        for wrong in owners[group].apply(decode_command(entry))
    ]


def check_owners(cluster: SimCluster, ranges: RangeMap) -> list[Violation]:
    """Check, once all is at rest, that the groups' own records are a partition of the keys and agree with the map."""
    violations = []
    owned: list[tuple[bytes, bytes, int]] = []
    for group in cluster.groups:
        records = {replica.state.holding.record for _, replica in cluster.replicas(group)}
        if len(records) != 1:
            violations.append(Violation(OWNERS, f"the replicas of group {group} have {len(records)} records of ranges"))
        for record in records:
            owned.extend((start, end, group) for start, end in record.ranges)
            if record.incoming is not None:
                message = f"group {group} still receives {record.incoming.start.hex()}"
                violations.append(Violation(OWNERS, message))
    owned.sort()
    if owned != ranges.pieces(KEY_MIN, KEY_MAX):
        violations.append(Violation(OWNERS, f"the groups own {owned}, the map says {ranges.pieces(KEY_MIN, KEY_MAX)}"))
    return violations
