"""The workloads of the simulator on real processes, while these are killed, paused, cut off and restarted.

`python scripts/chaos.py --seconds 1200` starts a cluster of four spanservers and runs rounds of a minute: clients move
money, append to lists and write registers, a nemesis disturbs one server after the other, and then the checkers look
at everything that the clients saw. Meanwhile ranges split, merge and move between groups, and replicas move between
servers; after a third of the time a fifth server joins and a group is founded, and after two thirds one server is
drained and removed. All connections go through `scripts/relay.py`, where cables are cut, but for direct streams in a
run without faults of cables. Beside all that a probe for each group writes a row again and again; its acknowledgements
tell how long the group was away after its leader was lost. Exits 0 if no checker objects and nothing hung (with
`--strict`: and no group was away for more than five seconds); otherwise the cluster's directory, with its logs and the
histories, is kept.

The seed fixes which faults come in which order. Real processes do not run twice alike: the simulator does that.
"""

import argparse
import asyncio
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from f1common.clock import boot_us
from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from f1deploy.cluster import Cluster, UpOptions, shape_of
from f1deploy.ports import FreePorts
from f1deploy.processes import send_signal
from f1deploy.spec import HOST, plan
from scripts.relay import CLIENT
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
SHORT_ROUND_S = 10.0
"""Rounds after the time, while a server is still being drained."""

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
GROWTH_S = 300.0
"""A server that joins, or is drained and removed, has done so after that long, whatever fails meanwhile."""

AWAY_MS = 5000.0
"""No group may be away for longer when its leader is lost."""

SHARES = (10, 50, 90, 99)
FAULTS = ("crash", "pause", "absence", "restart", "isolate", "cut pair")
CABLES = frozenset({"isolate", "cut pair"})
"""Faults of the cables, which the relay has. Direct streams go past it (docs/adr/0013), so that in a run with one of
these everything goes over gRPC, and in a run without any the streams between servers are direct ones."""
"""What a nemesis knows to do."""

LONG_S = 1.5
"""What lasts longer than this, a lease, costs a group its leader."""


@dataclass(frozen=True, slots=True)
class Death:
    """A server was killed, stopped or cut off: when, how, and which groups it led."""

    at_us: int
    how: str
    server: str
    led: tuple[int, ...]
    detail: str = ""
    """What a partition cuts, and for how long."""


@dataclass(slots=True)
class Outcome:
    """What a run has shown."""

    operations: int = 0
    unknown: int = 0
    failed: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    changes: Counter[str] = field(default_factory=Counter)
    """What became of ranges, replicas and servers meanwhile; ``refused``: it was asked for and not done."""
    violations: list[Violation] = field(default_factory=list)
    deaths: list[Death] = field(default_factory=list)
    acknowledged: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    def pauses_ms(self, how: str) -> list[float]:
        """How long groups were away after their leader's deaths of that kind, ascending."""
        return sorted(pause for death in self.deaths if death.how == how for _, pause in self._pauses_of(death))

    def _pauses_of(self, death: Death) -> Iterator[tuple[int, float]]:
        """Yield each group that the server led and how long it was away, in ms."""
        for group in death.led:
            acknowledged = self.acknowledged.get(group, ())
            after = [end for begin, end in acknowledged if begin >= death.at_us]
            if after:
                # What was under way may still have been acknowledged by the dying leader: the longest gap counts.
                ends = [end for begin, end in acknowledged if begin < death.at_us <= end]
                moments = [death.at_us, *sorted(ends), min(after)]
                yield group, max(later - earlier for earlier, later in itertools.pairwise(moments)) / 1000

    def too_long(self) -> list[str]:
        """Say which groups were away for longer than a client may have to wait."""
        return [
            f"group {group} away for {pause:.0f} ms: {death.how} of {death.server}{death.detail}, at {death.at_us} us"
            for death in self.deaths
            for group, pause in self._pauses_of(death)
            if pause > AWAY_MS
        ]


class Cables:
    """The relay of a cluster, in a process of its own."""

    def __init__(self, directory: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(ROOT / "scripts" / "relay.py"), str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def ask(self, *words: str) -> str:
        """Give a command and return the answer. Raises RuntimeError if the relay has ended."""
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the relay has no pipes")
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        if not answer:
            raise RuntimeError("the relay has ended")
        return answer

    def end(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


class Nemesis:
    """Disturbs one server after the other."""

    def __init__(
        self,
        cluster: Cluster,
        cables: Cables,
        client: SpanClient,
        rng: random.Random,
        outcome: Outcome,
        kinds: Sequence[str] = FAULTS,
    ) -> None:
        """Make one that knows the faults of ``kinds``."""
        self._kinds = kinds
        self._cluster = cluster
        self._cables = cables
        self._client = client
        self._rng = rng
        self._outcome = outcome

    async def run(self, until_us: int) -> None:
        """Make faults until the given moment of the boot clock; then all is well again."""
        every = (self._crash, self._pause, self._absence, self._restart, self._isolate, self._cut_pair)
        faults = [fault for kind, fault in zip(FAULTS, every, strict=True) if kind in self._kinds]
        while boot_us() < until_us:
            await asyncio.sleep(self._rng.uniform(*BREATH_S))
            # Whoever is being removed ends by order, and is left alone.
            names = [process.name for process in self._cluster.spec().spanservers()]
            fault = self._rng.choice(faults)
            try:
                await fault(self._rng.choice(names))
            except F1Error as error:
                if error.code is not Code.NOT_FOUND:
                    raise

    async def _died(self, how: str, server: str, detail: str = "") -> None:
        """Note what is about to happen to a server."""
        led = [group for group, leader in leaders_of(await self._client.status()).items() if leader == server]
        self._outcome.deaths.append(Death(boot_us(), how, server, tuple(sorted(led)), detail))

    def _counted(self, fault: str) -> None:
        self._outcome.faults[fault] += 1

    async def _crash(self, server: str) -> None:
        """SIGKILL; started again at once."""
        await self._died("crash", server)
        await asyncio.to_thread(self._cluster.kill, server)
        self._counted("killed, started at once")
        await asyncio.to_thread(self._cluster.start, server)

    async def _restart(self, server: str) -> None:
        """SIGTERM: the server hands over and ends; the supervisor starts it again."""
        await self._died("restart", server)
        send_signal(self._cluster.directory.state(server).identity, signal.SIGTERM)
        self._counted("restarted")
        await asyncio.sleep(1.0)
        await asyncio.to_thread(self._cluster.start, server)

    async def _absence(self, server: str) -> None:
        """SIGKILL; started again after some seconds."""
        await self._died("crash", server)
        await asyncio.to_thread(self._cluster.kill, server)
        self._counted("killed, started after seconds")
        await asyncio.sleep(self._rng.uniform(2.0, 8.0))
        await asyncio.to_thread(self._cluster.start, server)

    async def _pause(self, server: str) -> None:
        """SIGSTOP and SIGCONT: from an instant to several leases."""
        length_s = self._rng.choice([0.05, 0.3, 1.0, 2.0, 5.0])
        how = "long pause" if length_s > LONG_S else "short pause"
        await self._died(how, server)
        await asyncio.to_thread(self._cluster.pause, server)
        self._counted(how)
        await asyncio.sleep(length_s)
        await asyncio.to_thread(self._cluster.resume, server)

    async def _isolate(self, server: str) -> None:
        """Cut a server off from the others, and mostly from clients; sometimes only what it sends, or hears."""
        length_s = self._rng.choice([0.5, 3.0, 8.0])
        others = [process.name for process in self._cluster.spec().spanservers() if process.name != server]
        if self._rng.random() < 0.7:
            others.append(CLIENT)
        ways = self._rng.choice(["both", "both", "out", "in"])
        detail = f", {ways}, {'clients too' if CLIENT in others else 'clients not'}, {length_s} s"
        await self._died("partition" if length_s > LONG_S else "short partition", server, detail)
        for other in others:
            if ways != "in":
                self._cables.ask("cut", server, other)
            if ways != "out":
                self._cables.ask("cut", other, server)
        self._counted(f"partition, {'one way' if ways != 'both' else 'both ways'}")
        await asyncio.sleep(length_s)
        self._cables.ask("mend")

    async def _cut_pair(self, server: str) -> None:
        """Two servers do not reach each other; the others, and clients, reach both."""
        others = [process.name for process in self._cluster.spec().spanservers() if process.name != server]
        other = self._rng.choice(others)
        self._cables.ask("cut", server, other)
        self._cables.ask("cut", other, server)
        self._counted("two servers cut from each other")
        await asyncio.sleep(self._rng.choice([1.0, 4.0, 8.0]))
        self._cables.ask("mend")


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
                self._outcome.changes["refused"] += 1

    async def _move(self) -> None:
        if self._rng.random() < 0.3:
            await self._split_or_merge(self._rng.choice(self._kinds))
            return
        start, end = self._rng.choice(self._spans)
        ranges = await self._client.range_map(refresh=True)
        owners = {group for _, _, group in ranges.pieces(start, end)}
        # Groups that own nothing yet are among them.
        others = sorted(self._client.groups() - {0, *owners}) or [1]
        target = self._rng.choice(others)
        job = await submit_move(self._client, start, end, target)
        await wait_for_move(self._client, job.number, timeout_s=30.0)
        self._outcome.changes["moves of ranges"] += 1

    async def _split_or_merge(self, key: bytes) -> None:
        ranges = await self._client.range_map(refresh=True)
        if any(item.start == key for item in ranges.ranges):
            await merge_ranges(self._client, key)
            self._outcome.changes["merges"] += 1
        else:
            await split_range(self._client, key, fragment=True)
            self._outcome.changes["splits"] += 1

    async def _replace(self) -> None:
        admin = GroupAdmin(self._client, timeout_s=40.0)
        members = self._rng.choice(await admin.all_members())
        servers = sorted((await read_directory(self._client)).servers)
        absent = [server for server in servers if members.of(server) is None]
        if absent:
            old = server_of(self._rng.choice(members.voters))
            await admin.replace(members.group, old, self._rng.choice(absent))
            self._outcome.changes["replicas replaced"] += 1


async def grow_and_shrink(cluster: Cluster, seconds: float, rng: random.Random, outcome: Outcome) -> None:
    """Let a server join and found a group after a third of the time; after two thirds, drain and remove a server."""
    await asyncio.sleep(seconds / 3)
    await _insist("servers joined", ("cluster", "add", "--kind", "spanserver"), cluster, outcome)
    await _insist("groups founded", ("group", "create", "late"), cluster, outcome)
    await asyncio.sleep(seconds / 3)
    name = rng.choice(cluster.spec().spanservers()[:SERVERS]).name
    patience = ("--timeout", str(GROWTH_S))
    await _insist("servers drained", ("cluster", "drain", name, "--any-zone", *patience), cluster, outcome)
    await _insist("servers removed", ("cluster", "remove", name, *patience), cluster, outcome)


async def _insist(what: str, command: Sequence[str], cluster: Cluster, outcome: Outcome) -> None:
    """Give an order, and again what faults have made fail, as an operator would. Raises what fails all the time."""
    end_us = boot_us() + int(GROWTH_S * 1_000_000)
    words = (sys.executable, "-m", "f1", *command, "--dir", str(cluster.directory.path))
    while True:
        process = await asyncio.create_subprocess_exec(
            *words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        said, _ = await process.communicate()
        if process.returncode == 0:
            outcome.changes[what] += 1
            return
        outcome.changes["refused"] += 1
        print(f"  not yet: {what}: {said.decode(errors='replace').strip()}", file=sys.stderr, flush=True)
        if boot_us() > end_us:
            raise RuntimeError(f"{' '.join(command)} does not succeed")
        await asyncio.sleep(1.0)


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
        print(f"  {len(found)} violations; the history is in {dump_to}\n  {found[0]}", file=sys.stderr, flush=True)
        outcome.violations += found


async def run_round(
    cluster: Cluster,
    cables: Cables,
    target: Target,
    homes: dict[int, bytes],
    number: int,
    seconds: float,
    seed: int,
    outcome: Outcome,
    dumps: Path,
    faults: Sequence[str],
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
        nemesis = Nemesis(cluster, cables, client, random.Random(f"{seed} {number}"), outcome, faults)
        await nemesis.run(end_us)
        await asyncio.wait_for(moving, 2 * STUCK_S)
        await asyncio.sleep(2.0)  # a phase without faults, in which everything must go on
        healed.set()
        await asyncio.wait_for(asyncio.gather(*running, *probes), STUCK_S)


async def run(directory: Path, cables: Cables, seconds: float, seed: int, faults: Sequence[str]) -> Outcome:
    """Run rounds against the cluster in ``directory``. Raises what a change of the cluster fails with for good."""
    outcome = Outcome()
    cluster, target = Cluster(directory), from_directory(directory)
    end_us = boot_us() + int(seconds * 1_000_000)
    number = 0
    async with target.client() as client:
        ranges: RangeMap = await client.range_map()
        # Chosen once: what moves in a round lies below a home, which itself stays where it is.
        homes = {ranges.group_of(home): home for home in group_prefixes(ranges)}
    growing = asyncio.create_task(grow_and_shrink(cluster, seconds, random.Random(f"{seed} growth"), outcome))
    while (left_s := (end_us - boot_us()) / 1_000_000) > 0 or not growing.done():
        number += 1
        length_s = min(max(left_s, SHORT_ROUND_S), ROUND_S)
        await run_round(cluster, cables, target, homes, number, length_s, seed, outcome, directory, faults)
        total = outcome.faults.total()
        print(f"round {number}: {outcome.operations} operations, {total} faults", file=sys.stderr, flush=True)
    await growing
    return outcome


LOSSES = ("crash", "long pause", "partition", "restart")
"""What costs groups their leaders."""


def report(outcome: Outcome) -> str:
    """Say what happened, the times without a leader as a distribution."""
    changes = ", ".join(f"{count} {what}" for what, count in sorted(outcome.changes.items()))
    faults = ", ".join(f"{count} {what}" for what, count in sorted(outcome.faults.items()))
    lines = [
        f"{outcome.operations} operations: {outcome.failed} failed, {outcome.unknown} of unknown outcome",
        f"{outcome.faults.total()} faults ({faults})",
        f"changes meanwhile: {changes}",
        f"{len(outcome.violations)} violations",
    ]
    every = sorted(pause for how in LOSSES for pause in outcome.pauses_ms(how))
    for how, pauses in (
        *((f"a {how} of its leader", outcome.pauses_ms(how)) for how in (*LOSSES, "short pause", "short partition")),
        ("any loss of its leader", every),
    ):
        if pauses:
            lines.append(f"group away after {how}, ms: {_distribution(pauses)}")
    lines += outcome.too_long()
    return "\n".join(lines)


def _distribution(pauses: Sequence[float]) -> str:
    shares = ", ".join(f"p{share} {pauses[min(len(pauses) * share // 100, len(pauses) - 1)]:.0f}" for share in SHARES)
    return f"{shares}, longest {pauses[-1]:.0f} ({len(pauses)})"


def figures(outcome: Outcome) -> dict[str, object]:
    """The same for programs; times in ms."""
    return {
        "operations": outcome.operations,
        "failed": outcome.failed,
        "unknown": outcome.unknown,
        "faults": dict(outcome.faults),
        "changes": dict(outcome.changes),
        "violations": len(outcome.violations),
        "away_ms": {how: outcome.pauses_ms(how) for how in (*LOSSES, "short pause", "short partition")},
    }


def start(directory: Path, kinds: Sequence[str] = FAULTS) -> tuple[Cluster, Cables]:
    """Start a cluster with a relay in front of each server, for faults of these kinds."""
    cluster, cables = Cluster(directory), Cables(directory)
    try:
        options = UpOptions(port=0, spanservers=SERVERS, f1servers=0)
        rng = random.Random(os.getpid())
        spec = plan(shape_of(options), f"chaos-{os.getpid()}", 0, FreePorts(HOST, rng))
        fronted = [msgspec.structs.replace(p, front=int(cables.ask("front", p.name))) for p in spec.processes]
        cluster.directory.create()
        cluster.directory.save(msgspec.structs.replace(spec, processes=tuple(fronted)))
        direct = "false" if CABLES.intersection(kinds) else "true"
        cluster.up(UpOptions(overrides=(f"streams.direct={direct}",)))
    except BaseException:
        cables.end()
        raise
    return cluster, cables


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", default=",".join(FAULTS), help="kinds, with commas between them")
    parser.add_argument("--strict", action="store_true", help="no group may be away for more than five seconds")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    given = parser.parse_args(arguments)
    directory = ROOT / "build" / "chaos" / f"seed-{given.seed}-{os.getpid()}"
    kinds = given.faults.split(",")
    cluster, cables = start(directory, kinds)
    print(f"the cluster is in {directory.relative_to(ROOT)}", file=sys.stderr, flush=True)
    try:
        outcome = asyncio.run(run(directory, cables, given.seconds, given.seed, kinds))
    finally:
        cluster.down()
        cables.end()
    print(json.dumps(figures(outcome)) if given.format == "json" else report(outcome))
    if outcome.violations or (given.strict and outcome.too_long()):
        return 1
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
