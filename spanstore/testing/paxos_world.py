"""A Paxos core under a hostile world: one event heap, virtual time, no asyncio; the same seed is the same run.

The network loses, duplicates, delays (sometimes for many leases), reorders and partitions; nodes crash and lose what
was not synced (or keep it without knowing), stop for several leases in mid-work, and their clocks run fast or slow.
After every step the checkers compare with what an observer who sees everything knows; at the end the world heals
and the group must make progress. Broken variants of the code must be caught by the same checkers.
"""

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from spanstore.paxos import Ballot, Configuration, HardState, LogEntry, Message, PaxosConfig, Replica, Role, server_of
from spanstore.paxos.configuration import decode_configuration
from spanstore.testing.paxos_nodes import MS, NO_MUTATION, TT_BOUND, Disk, Job, Mutation, Node, require

DRIFT_PPM = 9_900


class World:
    """One run. Raises Violation from a checker, InvariantViolation from the core."""

    def __init__(self, seed: int, mutation: Mutation = NO_MUTATION) -> None:
        rng = self.rng = random.Random(seed)
        self.mutation = mutation
        self.time = 0
        self.heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self.seq = 0
        self.steps = 0
        self.healed = False
        self.config = self.choose_config()
        self.lease = self.config.lease_us
        drift = self.choose("drift", (0, DRIFT_PPM))
        slow = rng.randrange(8)  # which clocks run slow, as bits; the others run fast
        self.nodes = {
            name: Node(
                name, -drift if slow >> at & 1 else drift, rng.randrange(10**9), rng.randint(-TT_BOUND, TT_BOUND)
            )
            for at, name in enumerate(self.servers())
        }
        first = Configuration(0, tuple(self.nodes)[: self.choose("voters", (1, 2, 3, 3, 3, 3, 5, 5))])
        self.names = self.in_danger(first)
        for name in first.voters:
            self.nodes[name].disk = Disk(first)
            self.nodes[name].member = name
        self.initial = self.configuration = first
        self.proposed: list[Configuration] = []
        self.loss = self.choose("loss", (0, 0, 0.02, 0.1, 0.3))
        self.dup = self.choose("dup", (0, 0.05, 0.2))
        self.tail = self.choose("tail", (0, 0.02, 0.2))
        self.nervous = self.choose("nervous", (0, 0, 0.7))
        self.faults = self.choose("faults", (range(13),))
        self.latency = self.choose("latency", (1, 3, 8)) * MS
        self.sync = self.choose("sync", (1, 3, 10)) * MS
        self.load = int(self.lease / self.choose("load", (4, 10, 30)))
        self.blocked: set[tuple[str, str]] = set()
        # Checkers.
        self.ruling: set[str] = set()
        """The nodes whose replica leads, or believes so."""
        self.leaders: dict[Ballot, str] = {}
        self.seen: dict[tuple[int, Ballot], tuple[bytes, Ballot | None]] = {}
        self.chosen: dict[int, LogEntry] = {}
        self.chosen_by: dict[int, Ballot] = {}
        self.chosen_ts: list[tuple[int, int]] = [(0, 0)]
        self.floors: dict[Ballot, int] = {}
        self.used: dict[Ballot, int] = {}
        self.released: dict[Ballot, int] = {}
        self.rivals = 0
        self.transfers = 0
        self.transferred = 0

    def choose(self, name: str, options: Sequence[Any]) -> Any:
        return self.mutation.world.get(name, self.rng.choice(options))

    def servers(self) -> str:
        """The names of all nodes; the first few begin as voters."""
        return "abcde"

    def in_danger(self, first: Configuration) -> tuple[str, ...]:
        """The nodes that faults happen to."""
        return first.voters

    def choose_config(self) -> PaxosConfig:
        """Short leases against the latencies, so that much happens; or long ones, so that drift matters."""
        lease, beats = self.choose("lease", ((120, 5), (120, 8), (1000, 30)))
        return PaxosConfig(
            lease_us=lease * MS,
            heartbeat_us=lease * MS // beats,
            election_timeout_us=lease * MS * 3 // beats,
            retry_us=lease * MS // 4,
            max_accept_bytes=self.choose("max_accept_bytes", (40, 300)),
            max_inflight_bytes=self.choose("max_inflight_bytes", (200, 900)),
            cache_bytes=self.choose("cache_bytes", (0, 500)),
            log_keep_entries=self.choose("log_keep_entries", (0, 3)),
        )

    # The machinery.

    def at(self, delay: int, call: Callable[..., None], *args: Any) -> None:
        self.seq += 1
        heapq.heappush(self.heap, (self.time + delay, self.seq, call, args))

    def run(self, leases: int = 12) -> None:
        for name in self.configuration.voters:
            self.start(name)
        self.at(self.load, self.propose)
        self.at(self.rng.randrange(self.lease), self.disturb)
        self.run_until(leases * self.lease)
        self.heal()
        self.run_until((leases + 6) * self.lease)
        self.require_progress()

    def run_until(self, end: int) -> None:
        while self.heap and self.heap[0][0] <= end:
            self.time, _, call, args = heapq.heappop(self.heap)
            call(*args)
            self.steps += 1
            self.check_leases()
        self.time = end

    def start(self, name: str) -> None:
        node = self.nodes[name]
        if node.replica is not None or not node.member:
            return
        node.life += 1
        node.jobs = []
        node.wakeup = -1
        if node.installing:
            self.at(self.latency, self.install, name, node.life)
            return
        node.applied = node.disk.applied
        node.configuration = node.disk.configuration
        node.replica = self.mutation.replica(
            group=1,
            me=node.member,
            configuration=node.disk.configuration,
            config=self.config,
            log=node.disk,
            hard_state=node.disk.hard_state,
            applied_index=node.disk.applied,
            now=node.now(self.time),
            rng=random.Random(self.rng.random()),
        )
        self.turn(node)

    def crash(self, name: str) -> None:
        node = self.nodes[name]
        if node.replica is None:
            return
        # What was written and not yet synced may have reached the disk or not, but in order.
        for job in node.jobs[: self.rng.randint(0, len(node.jobs))]:
            node.disk.write(job.effects, job.applied, job.configuration)
        node.replica = None
        node.life += 1
        self.ruling.discard(name)

    def heal(self) -> None:
        self.healed = True
        self.loss = self.dup = self.tail = 0
        self.load = self.lease // 4
        self.latency, self.sync = min(self.latency, 3 * MS), min(self.sync, 3 * MS)
        self.blocked = set()
        for name, node in self.nodes.items():
            node.paused_until = 0
            self.start(name)  # those that have a replica

    def disturb(self) -> None:
        """One fault. The last kinds are traps: two faults at once, of which each alone is harmless."""
        if self.healed:
            return
        rng = self.rng
        name = rng.choice(self.names)
        leader = next((n.name for n in self.nodes.values() if n.replica and n.replica.role is Role.LEADER), name)
        rest = rng.randrange(self.lease)
        fault = rng.choice(self.faults)
        match fault:
            case 0 | 1:
                self.crash(name)
                self.at(rng.randrange(rng.choice((5 * MS, self.lease, 3 * self.lease))), self.start, name)
            case 2 | 3:
                self.pause(name)
            case 4:
                self.blocked = self.around(name)
            case 5:
                self.blocked = {(a, b) for a in self.names for b in self.names if rng.random() < 0.3}
            case 6 | 7:
                self.transfer()
            case 8:  # a follower that lost touch long ago returns while the leader is silent
                if name != leader:
                    self.blocked = self.around(name)
                    self.at(self.lease + rng.randrange(self.lease), self.trap, leader)
                    rest += 2 * self.lease
            case 9:  # all followers restart within the lease
                for other in self.names:
                    if other != leader:
                        self.crash(other)
                        self.at(1 + rng.randrange(5 * MS), self.start, other)
                self.trap(leader)
            case 10:
                self.trap(leader)
            case 11 | 12:
                self.blocked = set()
            case _:
                self.more_faults(fault, name)
        self.at(rest, self.disturb)

    def more_faults(self, fault: int, name: str) -> None:
        """Faults of other kinds of worlds."""
        raise NotImplementedError(f"fault {fault}")

    def around(self, name: str) -> set[tuple[str, str]]:
        return {(name, other) for other in self.names} | {(other, name) for other in self.names}

    def pause(self, name: str) -> None:
        if not self.healed:
            self.nodes[name].paused_until = self.time + self.rng.randrange(3 * self.lease)

    def trap(self, leader: str) -> None:
        """Silence the leader, which goes on believing in its lease, and connect everybody else."""
        self.blocked = set()
        if self.healed:
            return
        if self.rng.random() < 0.5:
            self.pause(leader)
        else:
            self.blocked = self.around(leader)

    def transfer(self) -> None:
        for node in self.nodes.values():
            replica = node.replica
            if replica is None or self.time < node.paused_until or replica.role is not Role.LEADER:
                continue
            ballot, given = replica.ballot, max(node.last_given, replica.ceiling_floor)
            to = self.rng.choice(replica.configuration.members)
            if replica.transfer(to, given, node.now(self.time)):
                self.transfers += 1
                self.released[ballot] = given
                self.used[ballot] = given
                self.turn(node)

    def send(self, sender: str, receiver: str, message: Message) -> None:
        rng = self.rng
        if (server_of(sender), server_of(receiver)) in self.blocked or rng.random() < self.loss:
            return
        for _ in range(2 if rng.random() < self.dup else 1):
            delay = 1 + rng.randrange(self.latency)
            if rng.random() < self.tail:
                delay += rng.randrange(rng.choice((self.lease // 4, 4 * self.lease)))
            self.at(delay, self.deliver, sender, receiver, message)

    def deliver(self, sender: str, receiver: str, message: Message) -> None:
        node = self.nodes[server_of(receiver)]
        self.arrives(node, receiver, message)
        if node.replica is None or node.member != receiver:
            return
        if self.time < node.paused_until:
            self.at(node.paused_until - self.time, self.deliver, sender, receiver, message)
            return
        node.replica.step(sender, message, node.now(self.time))
        self.turn(node)

    def arrives(self, node: Node, receiver: str, message: Message) -> None:
        """A message comes to a node, whoever lives there."""

    def wake(self, name: str, life: int, due: int) -> None:
        node = self.nodes[name]
        if node.life != life or node.wakeup != due:
            return
        node.wakeup = -1
        self.turn(node)

    def turn(self, node: Node) -> None:
        """Tick, flush, apply, act: what the runtime does for a group in one turn."""
        replica = node.replica
        if replica is None:
            return
        if self.time < node.paused_until:
            self.schedule(node, node.paused_until - self.time)
            return
        if replica.offered_state is not None and self.begin_install(node, replica):
            return
        now = node.now(self.time)
        replica.tick(now)
        if replica.role is Role.LEADER and replica.ballot not in self.leaders:
            self.check_new_leader(node, replica)
            node.last_given = 0
            replica.propose(b"0")
            if not self.healed and self.rng.random() < self.nervous:
                self.at(self.rng.randrange(4 * self.sync), self.crash, node.name)
                self.at(self.rng.randrange(4 * self.sync, 4 * self.sync + self.lease), self.start, node.name)
        effects = replica.flush(now)
        for entry in effects.append:
            self.check_entry(replica, entry)
        applied_before = node.applied
        while batch := replica.take_chosen(200):
            for entry in batch:
                self.check_chosen(node, entry)
                node.applied = entry.index
                node.configuration = decode_configuration(entry.payload) or node.configuration
        if replica.role is Role.LEADER:
            self.check_ceiling(replica)
        for to, message in effects.send_now:
            self.send(node.member, to, message)
        if self.mutation.send_before_sync:
            for to, message in effects.send_synced:
                self.send(node.member, to, message)
            effects.send_synced = []
        if effects.writes() or effects.send_synced or node.applied > applied_before:
            delay = 1 + self.rng.randrange(self.sync)
            due = self.time + (delay if effects.writes() or node.applied > applied_before else 0)
            if node.jobs:
                due = max(due, node.jobs[-1].due)
            node.jobs.append(Job(effects, node.applied, due, node.configuration))
            self.at(due - self.time, self.finish, node.name, node.life)
        if replica.role is Role.LEADER:
            self.ruling.add(node.name)
        else:
            self.ruling.discard(node.name)
        self.schedule(node, max(1, (replica.next_wakeup(now) - now.boot_us) * 101 // 100))

    def schedule(self, node: Node, delay: int) -> None:
        due = self.time + delay
        if node.wakeup < 0 or due < node.wakeup or node.wakeup <= self.time:
            node.wakeup = due
            self.at(delay, self.wake, node.name, node.life, due)

    def finish(self, name: str, life: int) -> None:
        """The oldest write of a node is durable."""
        node = self.nodes[name]
        if node.life != life or node.replica is None:
            return
        if self.time < node.paused_until:
            self.at(node.paused_until - self.time, self.finish, name, life)
            return
        job = node.jobs.pop(0)
        if self.mutation.forget_hard_state and job.effects.hard_state is not None:
            node.disk.write(replace(job.effects, hard_state=None), job.applied, job.configuration)
        else:
            node.disk.write(job.effects, job.applied, job.configuration)
        if job.effects.truncate_from is not None:
            for index in range(job.effects.truncate_from, len(self.chosen) + 1):
                self.check_copies(self.chosen[index])
        for to, message in job.effects.send_synced:
            self.send(node.member, to, message)
        node.replica.synced(job.effects, node.now(self.time))
        node.replica.applied(job.applied)
        self.turn(node)

    # State transfer: a replica whose log cannot catch up takes over the state of another.

    def begin_install(self, node: Node, replica: Replica) -> bool:
        """From here to the end of the transfer there is no replica, also after a crash."""
        offer = replica.offered_state
        replica.decline_state()
        source = self.nodes[server_of(offer[0])] if offer else node
        if source.disk.configuration is None or source.disk.applied <= node.applied:
            return False
        self.crash(node.name)
        node.installing = True
        self.start(node.name)
        return True

    def install(self, name: str, life: int) -> None:
        """Read the state of some member, and have it a while later."""
        node = self.nodes[name]
        if node.life != life:
            return
        sources = [n for n in self.nodes.values() if n.replica and n.disk.configuration and n.name != name]
        source = self.rng.choice(sources).disk if sources else None
        if source is None or source.applied <= node.disk.applied or self.rng.random() < 0.2:
            self.at(self.lease // 4, self.install, name, life)
            return
        border = source.log[source.applied - source.first]
        delay = self.rng.randrange(self.lease // 2)
        self.at(delay, self.finish_install, name, life, source.applied, border, source.configuration)

    def finish_install(self, name: str, life: int, applied: int, border: LogEntry, state: Configuration | None) -> None:
        node = self.nodes[name]
        if node.life != life:
            return
        self.transferred += 1
        node.disk.install(applied, border, state)
        if self.mutation.install_forgets_promise:
            node.disk.hard_state = HardState()
        node.installing = False
        self.start(name)

    # The load: entries with timestamps that must rise along the log, given out as a leader of a group would.

    def propose(self) -> None:
        for node in self.nodes.values():
            replica = node.replica
            if replica is None or replica.role is not Role.LEADER or self.time < node.paused_until:
                continue
            now = node.now(self.time)
            if replica.ballot not in self.leaders:
                continue
            low = max(replica.ceiling_floor, node.last_given) + 1
            high = replica.usable_ceiling
            for _ in range(self.rng.randint(0, 3)):
                if low <= high and replica.lease_valid(now.boot_us):
                    low = self.rng.randint(low, min(high, low + 2 * MS))
                    node.last_given = low
                    self.used[replica.ballot] = max(self.used.get(replica.ballot, 0), low)
                    replica.propose(b"%d" % low + b"." * self.rng.randrange(60))
                    low += 1
            if node.last_given and replica.lease_valid(now.boot_us) and self.rng.random() < 0.3:
                replica.set_safe(replica.last_index, node.last_given)
            if self.rng.random() < 0.1:
                replica.want_ceiling(high + self.rng.randrange(5 * MS))
            self.turn(node)
        self.at(1 + self.rng.randrange(2 * self.load), self.propose)

    # The checkers.

    def check_leases(self) -> None:
        if len(self.ruling) > 1:
            leaders = [self.nodes[name] for name in sorted(self.ruling)]
            self.rivals += 1
            holders = [n.name for n in leaders if n.replica and n.replica.lease_valid(n.now(self.time).boot_us)]
            require(len(holders) <= 1, f"two leases at once: {holders}")

    def check_new_leader(self, node: Node, replica: Replica) -> None:
        ballot = replica.ballot
        require(ballot.replica == node.member, "a leader leads under another's ballot")
        require(ballot not in self.leaders, f"{ballot} has two leaders")
        self.leaders[ballot] = node.name
        self.floors[ballot] = replica.ceiling_floor
        pending: dict[int, Ballot] = {}
        last = 0
        for job in node.jobs:
            for entry in job.effects.append:
                pending[entry.index] = entry.ballot
        for index, entry in self.chosen.items():
            held = pending.get(index) or (entry.ballot if index < node.disk.first else node.disk.ballot_at(index))
            if self.chosen_by[index] > ballot:
                break  # this leader was elected late, by promises that a newer one has made worthless
            last = index
            require(held == entry.ballot, f"new leader {node.name} lacks chosen entry {index}")
        require(replica.last_index >= last, f"new leader {node.name} has a short log")
        for earlier, used in self.used.items():
            if earlier < ballot:
                require(self.floors[ballot] >= used, f"{ballot} starts at {self.floors[ballot]}, {earlier} used {used}")

    def check_entry(self, replica: Replica, entry: LogEntry) -> None:
        configuration = decode_configuration(entry.payload)
        if configuration is not None and configuration not in self.proposed:
            self.proposed.append(configuration)
        before = self.seen.get((entry.index, entry.ballot))
        if before is None:
            self.seen[(entry.index, entry.ballot)] = (entry.payload, None)
        else:
            require(before[0] == entry.payload, f"entry {entry.index} of {entry.ballot} has two payloads")

    def check_chosen(self, node: Node, entry: LogEntry) -> None:
        require(entry.index == node.applied + 1, "chosen entries come in order")
        known = self.chosen.get(entry.index)
        if known is not None:
            require(known == entry, f"two entries chosen at {entry.index}: {known}, {entry}")
            return
        require(entry.index == len(self.chosen) + 1, "an entry is chosen before its predecessor")
        self.check_copies(entry)
        self.chosen[entry.index] = entry
        self.chosen_by[entry.index] = node.replica.ballot if node.replica else entry.ballot
        configuration = decode_configuration(entry.payload)
        if configuration is not None:
            require(configuration.version == self.configuration.version + 1, "a change is not a step")
            self.configuration = configuration
            return
        ts = int(entry.payload.partition(b".")[0])
        if ts:
            require(ts > self.chosen_ts[-1][1], f"timestamps go back at {entry.index}")
            self.chosen_ts.append((entry.index, ts))
            for other in self.nodes.values():
                if other.replica is not None:
                    index, safe = other.replica.safe
                    require(ts > safe or entry.index <= index, f"{other.name} thinks {safe} safe at {index}")

    def check_copies(self, entry: LogEntry) -> None:
        version = self.configuration.version
        counted = [self.configuration, *[c for c in self.proposed if c.version == version + 1]]
        require(
            any(self.copies(entry, c.voters) > len(c.voters) // 2 for c in counted),
            f"entry {entry.index} is called chosen with {self.copies(entry, self.configuration.voters)} copies on disk",
        )

    def copies(self, entry: LogEntry, voters: tuple[str, ...]) -> int:
        """How many of ``voters`` hold ``entry``, in logs or states, or may have held it and vote no more."""
        count = 0
        for voter in voters:
            node = self.nodes[server_of(voter)]
            held = entry.index < node.disk.first or node.disk.ballot_at(entry.index) == entry.ballot
            count += held or self.is_lost(voter)
        return count

    def is_lost(self, member: str) -> bool:
        """Tell whether what ``member`` knew is gone for ever."""
        return self.nodes[server_of(member)].member != member

    def check_ceiling(self, replica: Replica) -> None:
        ballot, usable = replica.ballot, replica.usable_ceiling
        if usable > self.used.get(ballot, 0):
            self.used[ballot] = usable
            for later, floor in self.floors.items():
                require(later <= ballot or floor >= usable, f"{later} starts at {floor}, {ballot} may use {usable}")

    def require_progress(self) -> None:
        leaders = [node for node in self.nodes.values() if node.replica and node.replica.role is Role.LEADER]
        require(len(leaders) == 1, f"{len(leaders)} leaders after healing")
        leader = leaders[0]
        require(leader.replica and leader.replica.lease_valid(leader.now(self.time).boot_us), "no lease after healing")
        before = (leader.replica and leader.replica.propose(b"0")) or 0
        self.turn(leader)
        members = [self.nodes[server_of(member)] for member in self.configuration.members]
        # An acceptor may have much to catch up with, a few entries at a time, or has just got its state from another.
        for _ in range(20):
            if any(n.applied < before or not n.replica or n.replica.leader != leader.member for n in members):
                self.run_until(self.time + self.lease)
        for node in members:
            require(node.applied >= before, f"{node.name} does not catch up: {node.applied} of {before}")
            require(node.replica and node.replica.leader == leader.member, f"{node.name} does not know the leader")
