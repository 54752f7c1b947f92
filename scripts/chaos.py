"""The workloads of the simulator on real processes, while these are killed, paused and restarted.

`python scripts/chaos.py --seconds 1200` starts a cluster of three spanservers and runs rounds of a minute: clients move
money, append to lists and write registers, a nemesis disturbs one server after the other, and then the checkers look
at everything that the clients saw. Meanwhile the rows move between groups, and replicas between servers, of which there
is one more than a group has voters. Beside them a probe for each group writes a row again and again; its
acknowledgements tell how long the group was away after the death of its leader. Exits 0 if no checker objects and
nothing hung; otherwise the cluster's directory, with its logs and the histories, is kept.

The seed fixes which faults come in which order. Real processes do not run twice alike: the simulator does that.
"""

import argparse
import asyncio
import itertools
import os
import random
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from f1common.clock import boot_us
from f1common.encoding import tuple as tuples
from f1common.errors import F1Error
from f1deploy.cluster import Cluster, UpOptions
from f1deploy.processes import send_signal
from spanstore.client import SpanClient, Write
from spanstore.client.groups import GroupAdmin, read_directory
from spanstore.client.placement import merge_ranges, split_range, submit_move, wait_for_move
from spanstore.paxos.configuration import server_of
from spanstore.placement.range_map import RangeMap
from spanstore.testing.adapter import SpanKv
from spanstore.testing.checkers import Violation
from spanstore.testing.history import History, dump
from spanstore.testing.workloads.bank import BankWorkload
from spanstore.testing.workloads.base import Workload
from spanstore.testing.workloads.list_append import ListAppendWorkload
from spanstore.testing.workloads.register import RegisterWorkload
from spanstore.tools.ourstore import group_prefixes
from spanstore.tools.ranges import leaders_of
from spanstore.tools.target import Target, from_directory

ROOT = Path(__file__).resolve().parent.parent
ROUND_S = 60.0
CLIENTS = 3
"""Clients of each workload."""

BREATH_S = (1.0, 5.0)
"""How long the cluster is left alone between two faults."""

STUCK_S = 60.0
"""Everything has to work again so long after the last fault."""

PROBE_PAUSE_S = 0.02
SERVERS = 4
MOVE_EVERY_S = 1.0
REPLACE_EVERY_S = 12.0


@dataclass(frozen=True, slots=True)
class Death:
    """A server was killed or stopped: when, how, and which groups it led."""

    at_us: int
    how: str
    server: str
    led: tuple[int, ...]


@dataclass(slots=True)
class Outcome:
    """What a run has shown."""

    operations: int = 0
    unknown: int = 0
    failed: int = 0
    moves: int = 0
    splits: int = 0
    replacements: int = 0
    refused: int = 0
    violations: list[Violation] = field(default_factory=list)
    deaths: list[Death] = field(default_factory=list)
    acknowledged: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    def pauses_ms(self, how: str) -> list[float]:
        """How long groups were away after their leader's deaths of that kind, ascending."""
        pauses = []
        for death in self.deaths:
            for group in death.led if death.how == how else ():
                after = [end for begin, end in self.acknowledged.get(group, ()) if begin >= death.at_us]
                if after:
                    # What was under way may still have been acknowledged by the dying leader: the longest gap counts.
                    ends = [end for begin, end in self.acknowledged[group] if begin < death.at_us <= end]
                    moments = [death.at_us, *sorted(ends), min(after)]
                    pauses.append(max(later - earlier for earlier, later in itertools.pairwise(moments)) / 1000)
        return sorted(pauses)


class Nemesis:
    """Disturbs one server after the other."""

    def __init__(self, cluster: Cluster, client: SpanClient, rng: random.Random, outcome: Outcome) -> None:
        self._cluster = cluster
        self._client = client
        self._rng = rng
        self._outcome = outcome
        self._names = [process.name for process in cluster.spec().spanservers()]

    async def run(self, until_us: int) -> None:
        """Make faults until the given moment of the boot clock; then all is well again."""
        while boot_us() < until_us:
            await asyncio.sleep(self._rng.uniform(*BREATH_S))
            fault = self._rng.choice([self._crash, self._pause, self._absence, self._restart])
            await fault(self._rng.choice(self._names))

    async def _died(self, how: str, server: str) -> None:
        """Note what is about to happen to a server."""
        led = [group for group, leader in leaders_of(await self._client.status()).items() if leader == server]
        self._outcome.deaths.append(Death(boot_us(), how, server, tuple(sorted(led))))

    async def _crash(self, server: str) -> None:
        """SIGKILL; started again at once."""
        await self._died("crash", server)
        await asyncio.to_thread(self._cluster.kill, server)
        await asyncio.to_thread(self._cluster.start, server)

    async def _restart(self, server: str) -> None:
        """SIGTERM: the server hands over and ends; the supervisor starts it again."""
        await self._died("restart", server)
        send_signal(self._cluster.directory.state(server).identity, signal.SIGTERM)
        await asyncio.sleep(1.0)
        await asyncio.to_thread(self._cluster.start, server)

    async def _absence(self, server: str) -> None:
        """SIGKILL; started again after some seconds."""
        await self._died("crash", server)
        await asyncio.to_thread(self._cluster.kill, server)
        await asyncio.sleep(self._rng.uniform(2.0, 8.0))
        await asyncio.to_thread(self._cluster.start, server)

    async def _pause(self, server: str) -> None:
        """SIGSTOP and SIGCONT: from an instant to several leases."""
        length_s = self._rng.choice([0.05, 0.3, 1.0, 2.0, 5.0])
        # A pause that is shorter than a lease costs the group no leader.
        await self._died("long pause" if length_s > 1.5 else "short pause", server)
        await asyncio.to_thread(self._cluster.pause, server)
        await asyncio.sleep(length_s)
        await asyncio.to_thread(self._cluster.resume, server)


class Mover:
    """Moves the rows of a round between the groups, and replicas between the servers, as fast as they let it."""

    def __init__(
        self, client: SpanClient, homes: Sequence[bytes], number: int, rng: random.Random, outcome: Outcome
    ) -> None:
        self._client = client
        self._spans = [(home + tuples.encode((number,)), home + tuples.encode((number + 1,))) for home in homes]
        self._kinds = [home + tuples.encode((number, kind)) for home in homes for kind in ("list", "register")]
        self._rng = rng
        self._outcome = outcome

    async def run(self, running: Callable[[], bool]) -> None:
        """Do both until told to stop. What is refused, because servers are away, is counted."""
        await asyncio.gather(
            self._often(running, MOVE_EVERY_S, self._move), self._often(running, REPLACE_EVERY_S, self._replace)
        )

    async def _often(self, running: Callable[[], bool], pause_s: float, act: Callable[[], Awaitable[None]]) -> None:
        while running():
            await asyncio.sleep(self._rng.uniform(0.5, 1.5) * pause_s)
            try:
                await act()
            except F1Error:
                self._outcome.refused += 1

    async def _move(self) -> None:
        if self._rng.random() < 0.3:
            await self._split_or_merge(self._rng.choice(self._kinds))
        start, end = self._rng.choice(self._spans)
        ranges = await self._client.range_map(refresh=True)
        owners = {group for _, _, group in ranges.pieces(start, end)}
        target = self._rng.choice([group for group in ranges.groups() if group and group not in owners] or [1])
        job = await submit_move(self._client, start, end, target)
        await wait_for_move(self._client, job.number, timeout_s=30.0)
        self._outcome.moves += 1

    async def _split_or_merge(self, key: bytes) -> None:
        ranges = await self._client.range_map(refresh=True)
        if any(item.start == key for item in ranges.ranges):
            await merge_ranges(self._client, key)
        else:
            await split_range(self._client, key, fragment=True)
        self._outcome.splits += 1

    async def _replace(self) -> None:
        admin = GroupAdmin(self._client, timeout_s=40.0)
        members = self._rng.choice(await admin.all_members())
        servers = sorted((await read_directory(self._client)).servers)
        absent = [server for server in servers if members.of(server) is None]
        if absent:
            old = server_of(self._rng.choice(members.voters))
            await admin.replace(members.group, old, self._rng.choice(absent))
            self._outcome.replacements += 1


async def probe(target: Target, group: int, key: bytes, outcome: Outcome, running: Callable[[], bool]) -> None:
    """Write a row of one group again and again and note when each write began and was acknowledged."""
    noted = outcome.acknowledged.setdefault(group, [])
    async with target.client() as client:
        while running():
            began = boot_us()
            try:
                await client.commit([Write(key, b"probe")], timeout_s=15.0)
            except F1Error:
                await asyncio.sleep(PROBE_PAUSE_S)
            else:
                noted.append((began, boot_us()))
                await asyncio.sleep(PROBE_PAUSE_S)


def workloads(homes: Sequence[bytes], number: int) -> dict[str, Workload]:
    """Return the workloads of a round, with keys of their own in every group."""

    def keys(kind: str, count: int) -> list[bytes]:
        return [home + tuples.encode((number, kind, each)) for home in homes for each in range(count)]

    return {
        "bank": BankWorkload(keys("account", 3)),
        "append": ListAppendWorkload(keys("list", 2)),
        "register": RegisterWorkload(keys("register", 2)),
    }


async def run_workload(
    target: Target, workload: Workload, seed: str, running: Callable[[], bool], outcome: Outcome, dump_to: Path
) -> None:
    """Run one workload with its clients and check what they saw."""
    history = History(boot_us)
    async with target.client() as first:
        await asyncio.wait_for(workload.setup(SpanKv(first), history), STUCK_S)

        async def client(process: int) -> None:
            async with target.client() as own:
                rng = random.Random(f"{seed} {process}")
                await workload.client_loop(process, SpanKv(own), rng, history, lambda: not running())

        await asyncio.gather(*(client(process) for process in range(CLIENTS)))
        final = await asyncio.wait_for(workload.final(SpanKv(first), history), STUCK_S)
    ops = history.ops
    outcome.operations += len(ops)
    outcome.unknown += sum(op.status.value == "unknown" for op in ops)
    outcome.failed += sum(op.status.value == "fail" for op in ops)
    found = await asyncio.to_thread(workload.check, ops, final)
    if found:
        dump(ops, dump_to)
        print(f"  {len(found)} violations; the history is in {dump_to}\n  {found[0]}", flush=True)
        outcome.violations += found


async def run_round(
    cluster: Cluster,
    target: Target,
    homes: dict[int, bytes],
    number: int,
    seconds: float,
    seed: int,
    outcome: Outcome,
    dumps: Path,
) -> None:
    """Run all workloads under faults for some seconds, then without until they have ended, and check."""
    end_us = boot_us() + int(seconds * 1_000_000)
    healed = asyncio.Event()
    async with target.client() as client:
        running = [
            asyncio.create_task(
                run_workload(
                    target,
                    load,
                    f"{seed} {number} {name}",
                    lambda: not healed.is_set(),
                    outcome,
                    dumps / f"{number}-{name}.jsonl",
                )
            )
            for name, load in workloads(list(homes.values()), number).items()
        ]
        probes = [
            asyncio.create_task(
                probe(
                    target,
                    group,
                    home + tuples.encode(("probe",)),
                    outcome,
                    lambda: not healed.is_set(),
                )
            )
            for group, home in homes.items()
        ]
        mover = Mover(client, list(homes.values()), number, random.Random(f"{seed} {number} moves"), outcome)
        moving = asyncio.create_task(mover.run(lambda: boot_us() < end_us))
        await Nemesis(cluster, client, random.Random(f"{seed} {number}"), outcome).run(end_us)
        await asyncio.wait_for(moving, 2 * STUCK_S)
        await asyncio.sleep(2.0)  # a phase without faults, in which everything must go on
        healed.set()
        await asyncio.wait_for(asyncio.gather(*running, *probes), STUCK_S)


async def run(directory: Path, seconds: float, seed: int) -> Outcome:
    """Run rounds against the cluster in ``directory``."""
    outcome = Outcome()
    cluster, target = Cluster(directory), from_directory(directory)
    end_us = boot_us() + int(seconds * 1_000_000)
    number = 0
    async with target.client() as client:
        ranges: RangeMap = await client.range_map()
        # Chosen once: what moves in a round lies below a home, which itself stays where it is.
        homes = {ranges.group_of(home): home for home in group_prefixes(ranges)}
    while (left_s := (end_us - boot_us()) / 1_000_000) > 0:
        number += 1
        await run_round(cluster, target, homes, number, min(left_s, ROUND_S), seed, outcome, directory)
        print(f"round {number}: {outcome.operations} operations, {len(outcome.deaths)} faults", flush=True)
    return outcome


def report(outcome: Outcome) -> str:
    """Say what happened, pauses as a distribution."""
    lines = [
        f"{outcome.operations} operations: {outcome.failed} failed, {outcome.unknown} of unknown outcome",
        f"{len(outcome.deaths)} faults, {len(outcome.violations)} violations",
        f"{outcome.moves} moves of ranges, {outcome.splits} splits, {outcome.replacements} replicas replaced; "
        f"{outcome.refused} of these not done",
    ]
    for how in ("crash", "long pause", "short pause", "restart"):
        pauses = outcome.pauses_ms(how)
        if pauses:
            shares = ", ".join(
                f"p{share} {pauses[min(len(pauses) * share // 100, len(pauses) - 1)]:.0f}" for share in (10, 50, 90, 99)
            )
            lines.append(
                f"group away after a {how} of its leader, ms: {shares}, longest {pauses[-1]:.0f} ({len(pauses)})"
            )
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    directory = ROOT / "build" / "chaos" / f"seed-{given.seed}-{os.getpid()}"
    cluster = Cluster(directory)
    cluster.up(UpOptions(port=0, spanservers=SERVERS, f1servers=0))
    print(f"the cluster is in {directory.relative_to(ROOT)}", flush=True)
    try:
        outcome = asyncio.run(run(directory, given.seconds, given.seed))
    finally:
        cluster.down()
    print(report(outcome))
    if outcome.violations:
        return 1
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
