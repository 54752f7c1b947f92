"""The driver of a spanserver: one task that owns all groups and moves them in turns.

A turn takes everything that arrived, lets the groups work, sends what promises nothing, writes what all of them must
keep in one engine transaction with one sync, and only then sends what promises something. While the disk works, the
next turn's inputs gather; that is all the batching there is, and no timer takes part in it. Reads are answered
meanwhile (:mod:`spanstore.runtime.beside`).

A failed commit is the end of this object: its owner discards it, and the process with it.
"""

import asyncio
import logging
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from f1common.clock import Clock, Now
from f1common.errors import Code, F1Error
from f1common.rpc.queues import Inbox
from spanstore.engine import keyspace
from spanstore.engine.base import Engine, EngineFailed, Reader, WriteBatch
from spanstore.group.checkpoint import load_installing
from spanstore.group.config import GroupConfig
from spanstore.group.digests import RangeDigest
from spanstore.group.group import Group, Outgoing
from spanstore.group.load import LoadMeter
from spanstore.group.members import is_later_life, load_lives, put_life
from spanstore.group.outbox import Ticket
from spanstore.group.requests import Read
from spanstore.group.state import Done
from spanstore.group.versions import VersionOf, newest_everywhere
from spanstore.mvcc.versions import MAX_TS, scan_versions
from spanstore.paxos.configuration import Configuration, founder, home_of, joined_at, server_of
from spanstore.paxos.messages import Accept, Message
from spanstore.placement.range_map import RANGE_MAP_KEY, RangeMap
from spanstore.placement.settings import Settings
from spanstore.runtime.beside import FromClient, ReadsBeside, refused_as_crowded
from spanstore.runtime.casualties import Casualties, OnDamaged
from spanstore.runtime.comparing import Comparison, Finding
from spanstore.runtime.supervision import ServerReport, Supervision
from spanstore.runtime.topology import Topology

_log = logging.getLogger(__name__)

_TURN_MESSAGES = 2_000
_TURN_BYTES = 16 << 20
_READ_US = 20_000
"""For how long a turn takes in reads: some are answered with megabytes, and leases are not renewed meanwhile."""
_IDLE_TICK_US = 100_000
_SWEEP_KEYS = 2_000


@dataclass(frozen=True, slots=True)
class _FromPeer:
    group: int
    sender: str
    receiver: str
    message: Message


class SpanServer:
    """All replicas of one spanserver and the task that drives them."""

    def __init__(
        self,
        *,
        name: str,
        topology: Topology,
        engine: Engine,
        clock: Clock,
        config: GroupConfig,
        send: Callable[[int, str, str, Message], None],
        rng: random.Random,
        inbox_messages: int = 10_000,
        on_applied: Callable[[int, Done], None] | None = None,
        founder: bool = True,
        on_damaged: OnDamaged | None = None,
        supervision: Supervision | None = None,
        home: str = "",
        version_of: VersionOf = newest_everywhere,
    ) -> None:
        """Load every replica that is here, and, for a ``founder``, those that ``topology`` places here at first.

        ``send`` takes a group, the names of the sending and the receiving replica, and what the one says to the other.
        ``on_damaged`` is told of each replica that is taken out of service; those that are damaged are not loaded.
        ``home`` names the data directory: a replica that is to live in another one does not begin here.
        ``version_of`` tells which version of the protocol a server speaks.
        Raises EngineFailed.
        """
        self.home = home
        self.name = name
        self.topology = topology
        self.config = config
        self.is_server: Callable[[str], bool] = lambda server: server in topology.servers
        """Tells whether a server of that name belongs to the cluster."""
        self.absent: set[int] = set()
        """Groups whose replica here is not running, because it fetches its state."""
        self.turns = 0
        self.settings = Settings(config.version_keep_us, config.outcome_keep_us)
        """What its configuration says of what must be the same in all servers."""
        self.unlike: tuple[str, str] = ("", "")
        """How that differs from the cluster's: in what is wrong only, and in what keeps this server from leading."""
        self._engine, self._clock, self._send = engine, clock, send
        # Apart, so that however many requests wait, the leases of the groups are renewed.
        self._inbox: Inbox[FromClient] = Inbox(inbox_messages, 256 << 20)
        self._reads: Inbox[FromClient] = Inbox(inbox_messages, 256 << 20)
        self._peers: Inbox[_FromPeer] = Inbox(inbox_messages, 256 << 20)
        self._wake = asyncio.Event()
        self._stopping = False
        self._due: dict[int, int] = {}
        self._clocks_reported: dict[int, set[str]] = {}
        self._config = config
        self._rng = rng
        self._on_applied = on_applied
        self._version_of = version_of
        self._between: list[tuple[Callable[[], None], asyncio.Future[None]]] = []
        self._unwritten = WriteBatch()
        self.has_group: Callable[[int], bool] = topology.groups.__contains__
        """Tells whether a group of that number exists, as far as is known: nobody would remove a replica of another."""
        self.supervision = supervision
        self.comparison = Comparison()
        self.send_digest: Callable[[int, str, RangeDigest], None] = lambda group, member, digest: None
        """Tells the other servers of a group what a replica here has in a range."""
        self.groups: dict[int, Group] = {}
        self.loads: dict[int, LoadMeter] = defaultdict(lambda: LoadMeter(config.load_window_us))
        """What the replicas here are asked for, by group."""
        self._leaders: Mapping[int, frozenset[str]] = topology.leaders()
        self.casualties = Casualties(name, engine.damage, clock, self.groups, self._due, on_damaged)
        self._beside = ReadsBeside(engine, clock, self.groups, self.loads, self.casualties, self._reads)
        with engine.snapshot() as reader:
            self._lives = load_lives(reader)
            self._swept = {number for number, (_, alive) in self._lives.items() if not alive}
            if founder:
                self._note_founded(topology.groups)
            for number, (member, alive) in sorted(self._lives.items()):
                if alive and load_installing(reader, number) is not None:
                    self.absent.add(number)
                elif alive:
                    self._load(number, member, reader)

    async def found(self, foundings: Mapping[int, Configuration]) -> None:
        """Begin the replicas of new groups that belong here and never lived: ``foundings`` are the first members."""

        def act() -> None:
            with self._engine.snapshot() as reader:
                for number in self._note_founded(foundings):
                    self._load(number, self._lives[number][0], reader, foundings[number])

        if any(self._founder_in(founding) and number not in self._lives for number, founding in foundings.items()):
            await self._between_turns(act)

    def _founder_in(self, founding: Configuration) -> str:
        """Return which of a group's first members may begin here, empty if none may."""
        return next((m for m in founding.members if m in (self.name, founder(self.name, self.home))), "")

    def _note_founded(self, foundings: Mapping[int, Configuration]) -> list[int]:
        """Note the first replicas that begin here, and return their groups."""
        begun = []
        for number, founding in sorted(foundings.items()):
            mine = self._founder_in(founding)
            if mine and number not in self._lives:
                self._note_life(number, mine, alive=True)
                begun.append(number)
        return begun

    def _load(self, number: int, member: str, reader: Reader, founding: Configuration | None = None) -> None:
        """Load a replica, unless it is damaged; ``founding``: it begins, as one of these members."""
        with self.casualties.found_in(number):
            if not self.casualties.is_out(number):
                self.groups[number] = self._loaded(number, member, reader, founding)

    def _loaded(self, number: int, member: str, reader: Reader, founding: Configuration | None) -> Group:
        topology = self.topology
        group = Group(
            group=number,
            me=member,
            founding=founding or (topology.groups.get(number) if member == self.name else None),
            owned=tuple((r.start, r.end) for r in topology.ranges.owned_by(number)),
            config=self._config,
            reader=reader,
            now=self._clock.sample(),
            rng=random.Random(self._rng.random()),
            on_applied=self._on_applied,
            version_of=self._version_of,
        )
        group.preferred.servers = self._leaders.get(number, frozenset())
        return group

    def _note_life(self, number: int, member: str, *, alive: bool) -> None:
        """Remember which replica is here; the next turn makes it durable, before anything of it is sent."""
        self._lives[number] = (member, alive)
        put_life(self._unwritten, number, member, alive=alive)

    # ------------------------------------------------------------------ inputs

    def submit(self, group: int, ticket: Ticket, size: int) -> None:
        """Take in a client's request; a full inbox answers OVERLOADED at once."""
        if self.casualties.is_out(group):
            ticket.reply(self.casualties.error(group))
        elif group not in self.groups:
            ticket.reply(self._no_replica(group))
        elif self._stopping:
            ticket.reply(F1Error(Code.UNAVAILABLE, f"{self.name} is shutting down; ask another server"))
        elif self.supervision is not None and (refusal := self.supervision.refuses(ticket.request)):
            leaves = self.supervision.others_may_lead()
            code = Code.UNAVAILABLE if leaves else Code.DISK_FULL
            ticket.reply(F1Error(code, f"{self.name} takes no new data: {refusal}"))
        elif not self._inbox_of(ticket).put(FromClient(group, ticket, size), size):
            ticket.reply(F1Error(Code.OVERLOADED, f"{self.name} has too many requests waiting; retry later"))
        else:
            self._wake.set()
            self._beside.arrived()

    def _inbox_of(self, ticket: Ticket) -> Inbox[FromClient]:
        return self._reads if isinstance(ticket.request, Read) else self._inbox

    def receive(self, group: int, sender: str, receiver: str, message: Message, size: int) -> None:
        """Take in a Paxos message between two replicas; dropped when inbox or disk is full, since Paxos sends again."""
        if self.supervision is not None and self.supervision.drops(server_of(sender), message):
            return
        mine = self.groups.get(group)
        if (mine is None or mine.member != receiver) and not self._may_begin(group, receiver, message):
            return
        if self._peers.put(_FromPeer(group, sender, receiver, message), size):
            self._wake.set()

    def _no_replica(self, group: int) -> F1Error:
        text = f"{self.name} has no replica of group {group}; refresh the range map"
        if group in self._lives or self.has_group(group):
            return F1Error(Code.NOT_LEADER, text, retryable=True, details={"group": str(group), "no_replica": "1"})
        return F1Error(Code.WRONG_RANGE, text, retryable=True)

    # ------------------------------------------------------------------ replicas that come and go

    def _may_begin(self, group: int, receiver: str, message: Message) -> bool:
        """Tell whether ``receiver`` is a replica that should begin here: a leader writes to it, and it never lived."""
        known, alive = self._lives.get(group, ("", False))
        mine = server_of(receiver) == self.name and home_of(receiver) == self.home
        if not isinstance(message, Accept) or not mine or joined_at(receiver) == 0 or not self.has_group(group):
            return False
        return is_later_life(receiver, known) and group not in self.absent and (alive or group not in self._swept)

    def _begin_life(self, number: int, member: str, reader: Reader) -> None:
        """A leader has made this server a member of a group: begin with nothing, and wait for the group's state."""
        if number in self.groups:
            # A life is added only after the end of the one before was chosen.
            self._end_life(number)
        elif self.casualties.is_out(number) and self._lives.get(number, ("", False))[1]:
            self._note_life(number, self._lives[number][0], alive=False)
            self._swept.add(number)
        if number in self._swept:
            return  # what the life before has left goes first; the leader will write again
        _log.info("group %d: the replica %s begins", number, member)
        self._note_life(number, member, alive=True)
        self.casualties.rebuilt(number)
        self._load(number, member, reader)

    def _end_life(self, number: int) -> None:
        """A replica was removed from its group: forget it, and what it stored, a little each turn."""
        group = self.groups.pop(number)
        _log.info("group %d: the replica %s was removed", number, group.member)
        group.leave()
        group.deliver(self._clock.sample())
        self._note_life(number, group.member, alive=False)
        self._swept.add(number)

    def _sweep(self, reader: Reader, batch: WriteBatch) -> None:
        """Delete some of what removed replicas have left."""
        for number in sorted(self._swept):
            try:
                keys = [key for key, _ in islice(reader.scan(*keyspace.group_range(number)), _SWEEP_KEYS)]
            except EngineFailed:
                raise
            except F1Error:
                batch.delete_range(*keyspace.group_range(number))  # damaged, and of no use any more
                return
            for key in keys:
                batch.delete(key)
            if not keys:
                self._swept.discard(number)
            return

    async def take_out(self, number: int) -> None:
        """Stop the replica of a group: whoever waits for it is sent elsewhere, and it hears nothing more."""

        def act() -> None:
            self.absent.add(number)
            group = self.groups.pop(number, None)
            if group is not None:
                group.leave()
                group.deliver(self._clock.sample())

        await self._between_turns(act)

    async def load(self, number: int) -> None:
        """Start the replica of a group again from what is on disk. Raises DATA_CORRUPTION."""

        def act() -> None:
            member, alive = self._lives.get(number, ("", False))
            if alive:
                with self._engine.snapshot() as reader:
                    self._load(number, member, reader)
                self._due[number] = 0
            self.absent.discard(number)

        await self._between_turns(act)

    async def _between_turns(self, act: Callable[[], None]) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._between.append((act, done))
        self._wake.set()
        await done

    def _do_between(self) -> None:
        between, self._between = self._between, []
        for act, done in between:
            try:
                act()
            except F1Error as error:
                if not done.done():
                    done.set_exception(error)
                continue
            if not done.done():
                done.set_result(None)

    # ------------------------------------------------------------------ the loop

    async def run(self) -> None:
        """Drive turns until :meth:`stop`. Raises EngineFailed when the disk fails: the replicas have crashed."""
        loop = asyncio.get_running_loop()
        while not self._stopping:
            wait_us = 0 if self._swept or self._between else self._microseconds_to_wait()
            if wait_us > 0 and not (len(self._inbox) or len(self._peers) or len(self._reads)):
                self._wake.clear()
                timer = loop.call_later(wait_us / 1_000_000, self._wake.set)
                try:
                    await self._wake.wait()
                finally:
                    timer.cancel()
            try:
                await self.turn()
            except EngineFailed as error:
                self.casualties.pages_damaged(error)
                raise

    def stop(self) -> None:
        """End :meth:`run` after the current turn."""
        self._stopping = True
        self._wake.set()

    async def turn(self) -> None:
        """Do one turn."""
        self.turns += 1
        self.casualties.bury()
        most_bytes = _TURN_BYTES if self.supervision is None else self.supervision.disk.turn_bytes(_TURN_BYTES)
        self._do_between()
        # Reads before writes, whose locks they would have to wait for.
        inputs: list[_FromPeer | FromClient] = [
            *self._peers.drain(_TURN_MESSAGES, most_bytes),
            *self._reads.drain(_TURN_MESSAGES, most_bytes),
            *self._inbox.drain(_TURN_MESSAGES, most_bytes),
        ]
        now = self._clock.sample()
        outgoing: list[tuple[int, Outgoing]] = []
        with self._engine.snapshot() as reader:
            active = self._begin(inputs, reader, now)
            batch, self._unwritten = self._unwritten, WriteBatch()
            self._sweep(reader, batch)
            for number in active:
                part = WriteBatch()
                out = self.casualties.guarded(number, Group.end_turn, part)
                if out is not None:
                    batch.extend(part)
                    outgoing.append((number, out))
        members = {number: self.groups[number].member for number in active if number in self.groups}
        for number, out in outgoing:
            for to, message in out.now:
                self._send(number, members[number], to, message)
        self._deliver(active)
        busy = await self._commit(batch) if batch else set[int]()
        now = self._clock.sample()
        with self._engine.snapshot() as reader:
            for number in active:
                self.casualties.guarded(number, Group.durable, reader, now)
                self._compare(number)
        for number, out in outgoing:
            for to, message in out.synced:
                self._send(number, members[number], to, message)
        self._deliver(active)
        for number in busy.union(active):
            group = self.groups.get(number)
            if group is None:
                continue
            if group.replica.removed:
                self._end_life(number)
                continue
            if group.damage is not None:
                self.casualties.take_out(number, group.damage)
            self._due[number] = now.boot_us if group.has_work() else group.next_wakeup(now)
        if not batch:
            await asyncio.sleep(0)

    async def _commit(self, batch: WriteBatch) -> set[int]:
        """Make a turn's writes durable, under the eyes of whoever watches the disk; return who answered reads then."""
        if self.supervision is not None:
            self.supervision.sync_began(self._clock.sample().boot_us)
        with self._beside.during_a_sync() as busy:
            await self._engine.commit(batch)
        if self.supervision is not None:
            self.supervision.sync_ended(self._clock.sample().boot_us)
        return busy

    def _compare(self, number: int) -> None:
        """Tell the other servers what the replica here has in ranges that are being compared."""
        group = self.groups.get(number)
        for digest in () if group is None else group.take_digests():
            if group is not None:
                self.send_digest(number, group.member, digest)
                self.hear_digest(number, group.member, digest)

    def hear_digest(self, number: int, member: str, digest: RangeDigest) -> None:
        """Take in what a replica has in a range; the one here is out of service if a majority has something else."""
        group = self.groups.get(number)
        if group is None:
            return
        voters = group.replica.configuration.voters
        for wrong in sorted(self.comparison.heard(number, member, digest, voters)):
            text = self.comparison.findings[-1].text
            _log.error("%s", text)
            if wrong == group.member:
                self.mark_damaged(number, f"it differs from the other replicas: {text}")

    def supervise(self, peers: Iterable[str]) -> Mapping[str, ServerReport]:
        """Look after clock and disk, let groups lead or not accordingly, and return what to tell each peer."""
        if self.supervision is None:
            return {}
        reports = self.supervision.look(peers)
        for number, group in sorted(self.groups.items()):
            voters = tuple(server_of(voter) for voter in group.replica.configuration.voters)
            may = self.supervision.may_lead(voters, self.name) and not self.casualties.is_out(number)
            may = may and not self.unlike[1]
            if may != group.may_lead:
                group.set_may_lead(may)
                self._due[number] = 0
                self._wake.set()
        return reports

    def conditions(self) -> list[str]:
        """Say what is wrong with this server, for an operator."""
        led = {n: g.versions.waiting(g.replica.configuration) for n, g in sorted(self.groups.items()) if g.leads()}
        waiting = [f"group {number}: {text}" for number, text in led.items() if text]
        found = [
            *self.casualties.texts(),
            *filter(None, self.unlike),
            *waiting,
            *(f"replicas differ: {found.text}" for found in self.comparison.findings if self._is_member(found)),
        ]
        return found if self.supervision is None else [*found, *self.supervision.conditions()]

    def _is_member(self, found: Finding) -> bool:
        """Tell whether a replica that was found to differ is in its group still, and not built anew since."""
        group = self.groups.get(found.group)
        return group is not None and found.member in group.replica.configuration.members

    def _begin(self, inputs: list[_FromPeer | FromClient], reader: Reader, now: Now) -> list[int]:
        """Start the turn of every group that has something to do, hand out the inputs, and tell who takes part."""
        for item in inputs:
            if isinstance(item, _FromPeer) and self._may_begin(item.group, item.receiver, item.message):
                self._begin_life(item.group, item.receiver, reader)
        inputs = [item for item in inputs if self._is_here(item)]
        due = {n for n in self.groups if self._due.get(n, 0) <= now.boot_us}
        active = sorted(due | {item.group for item in inputs})
        for number in active:
            self.casualties.guarded(number, Group.begin_turn, reader, now)
        until_us, late = 0, []
        for item in inputs:
            if isinstance(item, _FromPeer):
                self.casualties.guarded(item.group, Group.on_peer, item.sender, item.message)
            elif isinstance(item.ticket.request, Read) and refused_as_crowded(item.ticket):
                pass
            elif until_us and isinstance(item.ticket.request, Read) and self._clock.sample().boot_us >= until_us:
                late.append((item, item.size))
            elif item.group in self.groups:
                until_us = until_us or self._clock.sample().boot_us + _READ_US
                self.loads[item.group].count(item.ticket.request, now.boot_us)
                self.casualties.guarded(item.group, Group.on_request, item.ticket)
            else:
                item.ticket.reply(self.casualties.error(item.group))  # it was thrown away in this turn
        self._reads.put_back(late)
        for number in sorted(due):
            self.casualties.guarded(number, Group.tick)
        active = [number for number in active if number in self.groups]
        for number in active:
            self._report_clocks(number, self.groups[number].clocks_ahead)
        return active

    def _is_here(self, item: _FromPeer | FromClient) -> bool:
        """Tell whether the replica that an input is for is here; a client is told if it is not."""
        group = self.groups.get(item.group)
        if isinstance(item, _FromPeer):
            return group is not None and group.member == item.receiver
        if group is None:
            item.ticket.reply(self._no_replica(item.group))
        return group is not None

    def mark_damaged(self, group: int, reason: str) -> None:
        """Take a replica out of service, for good: its data on this disk are not what was written.

        ``group`` may be :data:`~spanstore.engine.damage.WHOLE_SERVER`. The replica answers nobody from now on, gives
        leadership away and is then thrown away; a mark beside the data keeps it out after a restart until it has been
        rebuilt. Told once, later calls change nothing.
        """
        self.casualties.take_out(group, F1Error(Code.DATA_CORRUPTION, reason))
        self._wake.set()

    def _report_clocks(self, number: int, ahead: Mapping[str, int]) -> None:
        """Say once about each leader that its clock and the one here differ by more than clocks may."""
        known = self._clocks_reported.setdefault(number, set())
        for sender in sorted(ahead.keys() - known):
            text = "group %d: %s leads by a clock that is ahead of this server's by %d us more than clocks may differ; "
            _log.error(text + "it is refused: repair its clock, or this server's", number, sender, ahead[sender])
        known.clear()
        known.update(ahead)

    def _deliver(self, active: list[int]) -> None:
        now = self._clock.sample()
        for number in active:
            if number in self.groups:
                self.groups[number].deliver(now)

    def _microseconds_to_wait(self) -> int:
        now = self._clock.sample().boot_us
        due = min((self._due.get(n, 0) for n in self.groups), default=now + _IDLE_TICK_US)
        return min(due - now, _IDLE_TICK_US * 10)

    # ------------------------------------------------------------------ questions

    def stored_range_map(self) -> RangeMap | None:
        """Return the range map as this server's replica of the meta group has it, None if it has none."""
        meta = self.groups.get(0)
        if meta is None:
            return None
        with self._engine.snapshot() as reader:
            value = meta.newest_value(reader, RANGE_MAP_KEY)
        return None if value is None else RangeMap.decode(value)

    def stored_rows(self, group: int, ranges: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]] | None:
        """Return the newest rows in ``ranges`` that this server's replica of ``group`` has, None if it has none.

        They may be stale. Raises DATA_CORRUPTION.
        """
        if group not in self.groups:
            return None
        with self._engine.snapshot() as reader:
            return [
                (key, version.value or b"")
                for start, end in ranges
                for key, version in scan_versions(reader, group, start, end, MAX_TS)
            ]

    def leader_of(self, group: int) -> str:
        """Return the leader of ``group`` as far as this server knows, or an empty string."""
        found = self.groups.get(group)
        return "" if found is None else server_of(found.replica.leader or "")

    def hand_over(self) -> None:
        """Give leadership of every group to a caught-up voter, before this server goes away."""
        for number in sorted(self.groups):
            self.groups[number].hand_over()
            self._due[number] = 0
        self._wake.set()

    def prefer(self, leaders: Mapping[int, frozenset[str]]) -> None:
        """Say which servers should lead the groups; one that is not named may be led anywhere."""
        self._leaders = leaders
        for number, group in self.groups.items():
            group.preferred.servers = leaders.get(number, frozenset())

    def leave(self) -> None:
        """Send clients elsewhere, those that wait and those that come: the peers are not heard any more."""
        for number in sorted(self.groups):
            self.groups[number].leave()
            self._due[number] = 0
        self._wake.set()

    def leads_any(self) -> bool:
        """Tell whether a group is led from here."""
        return any(group.leads() for group in self.groups.values())

    def check_identity(self, sender: str, cluster_id: str) -> None:
        """Refuse peers of another cluster. Raises FAILED_PRECONDITION."""
        if cluster_id != self.topology.cluster_id or not self.is_server(sender):
            raise F1Error(
                Code.FAILED_PRECONDITION,
                f"server {sender!r} of cluster {cluster_id!r} is no member of cluster {self.topology.cluster_id!r}",
            )
