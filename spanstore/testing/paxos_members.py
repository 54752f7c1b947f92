"""The world of :mod:`spanstore.testing.paxos_world` in which members come and go and disks are lost for ever.

An operator changes the group in random steps at random moments, through whoever leads; servers lose their disks (a
minority of the voters at a time, more is beyond what the protocol survives) and come back as new members only. At the
end the operator replaces the dead, and everybody who is a member must have everything.
"""

from dataclasses import replace

from f1common.errors import F1Error
from spanstore.paxos import (
    NO_BALLOT,
    Accept,
    Accepted,
    Ballot,
    Configuration,
    Message,
    PaxosConfig,
    Promise,
    Replica,
    Role,
    joined_at,
    server_of,
)
from spanstore.testing.paxos_nodes import NO_MUTATION, Disk, Mutation, Node, require
from spanstore.testing.paxos_world import World


class MembersWorld(World):
    """One run with changes of the members."""

    def __init__(self, seed: int, mutation: Mutation = NO_MUTATION) -> None:
        super().__init__(seed, mutation)
        self.pace = self.choose("pace", (0.2, 2, 2))
        """The operator's longest rest, in leases."""
        self.kinds = self.choose("kinds", (range(6),))
        self.changes = 0
        self.lost = 0
        self.deposed = ""
        self.forgets = self.choose("forgets", (False,))
        self.forgotten: set[str] = set()
        """Whether a server that loses its disk forgets which lives it had, and which those were."""
        self.answered: dict[str, tuple[Ballot, int]] = {}
        self.born: set[str] = set()
        """Every life that began. Servers know theirs by heart: whoever forgot one must not live it again."""

    def servers(self) -> str:
        return "abcdefg"

    def in_danger(self, first: Configuration) -> tuple[str, ...]:
        return tuple(self.nodes)

    def choose_config(self) -> PaxosConfig:
        """With logs that do not wait for members that are away, and learners that must have caught up."""
        return replace(
            super().choose_config(),
            log_hold_entries=self.choose("log_hold_entries", (5, 30, 200_000)),
            promote_lag_entries=self.choose("promote_lag_entries", (0, 5, 1000)),
        )

    def run(self, leases: int = 30) -> None:
        self.faults = self.choose("faults", ((*range(13), *[13] * 8, 14, 14, 15, 16),))
        self.at(self.lease, self.operate)
        super().run(leases)
        require(len(self.configuration.voters) >= 1, "no voters")

    def more_faults(self, fault: int, name: str) -> None:
        match fault:
            case 13:
                self.change_members()
            case 14:
                self.lose_disk(name)
            case 15:
                self.divide({other for other in self.names if self.rng.random() < 0.5})
            case _:
                self.lie_in_wait()

    def divide(self, half: set[str]) -> None:
        self.blocked = {(a, b) for a in self.names for b in self.names if (a in half) != (b in half)}

    def lie_in_wait(self) -> None:
        """A trap: a leader changes the group with nobody listening. Its successor does so as well, see below."""
        for node in self.nodes.values():
            if node.replica is not None and node.replica.role is Role.LEADER and self.time >= node.paused_until:
                self.blocked = self.around(node.name)
                self.deposed = node.name
                self.change_members()
                return

    def check_new_leader(self, node: Node, replica: Replica) -> None:
        """The successor of a leader that was cut off finds it back, and with it some other."""
        super().check_new_leader(node, replica)
        if self.deposed not in ("", node.name) and not self.healed:
            voters = [server_of(voter) for voter in replica.configuration.voters if voter != node.member]
            self.divide({self.deposed, *self.rng.sample(voters, min(1, len(voters)))})
            self.deposed = ""
            for attempt in range(5):
                self.at((1 + attempt) * (self.latency + self.sync) // 2, self.change_members)

    # The operator.

    def operate(self) -> None:
        """Now and then a step; after the healing, replace the dead until all members live."""
        dead = [m for m in self.configuration.members if self.is_lost(m)]
        if not self.healed or dead or len(self.configuration.voters) < 3:
            self.change_members(dead if self.healed else ())
        rest = self.lease // 4 if self.healed else 1 + self.rng.randrange(int(self.pace * self.lease))
        self.at(rest, self.operate)

    def change_members(self, dead: tuple[str, ...] | list[str] = ()) -> None:
        for node in self.nodes.values():
            replica = node.replica
            if replica is None or replica.role is not Role.LEADER or self.time < node.paused_until:
                continue
            step = self.replacement(replica, dead) if self.healed else self.any_step(replica)
            if step is None or self.too_few(step):
                continue
            try:
                replica.change(step, node.now(self.time))
            except F1Error:
                continue
            self.check_ceilings_held(replica)
            self.changes += 1
            self.turn(node)

    def check_ceilings_held(self, replica: Replica) -> None:
        """The configuration that is replaced holds all ceilings used: the quorums after the next meet only its own."""
        used = max((used for ballot, used in self.used.items() if ballot <= replica.ballot), default=0)
        voters = self.configuration.voters
        held = [self.nodes[server_of(v)].disk.hard_state.ceiling >= used or self.is_lost(v) for v in voters]
        require(sum(held) > len(voters) // 2, f"{self.configuration} is replaced before it holds the ceiling {used}")

    def is_lost(self, member: str) -> bool:
        """Also if the same life begins again at a server that forgot it."""
        return super().is_lost(member) or member in self.forgotten

    def too_few(self, step: Configuration) -> bool:
        """Tell whether the step would leave a majority of lost disks: its leader may not have noticed yet."""
        lost = [voter for voter in step.voters if self.is_lost(voter)]
        return len(lost) > (len(step.voters) - 1) // 2

    def any_step(self, replica: Replica) -> Configuration | None:
        now = replica.configuration
        member = self.rng.choice(now.members)
        match self.rng.choice(self.kinds):
            case 0 | 1:
                absent = [name for name in self.nodes if name not in {server_of(m) for m in now.members}]
                return now.with_learner(self.rng.choice(absent)) if absent else None
            case 2 | 3:
                return now.with_voter(self.rng.choice(now.learners)) if now.learners else None
            case 4:
                return now.with_demoted(member) if member in now.voters and len(now.voters) > 1 else None
            case _:
                return now.without(member) if member not in now.voters or len(now.voters) > 1 else None

    def replacement(self, replica: Replica, dead: tuple[str, ...] | list[str]) -> Configuration | None:
        """First the dead learners go, then living ones replace the dead voters."""
        now = replica.configuration
        for member in now.learners:
            return now.without(member) if member in dead else now.with_voter(member)
        for member in now.voters:
            if member in dead and len(now.voters) > 3:
                return now.without(member)
        absent = [name for name in self.nodes if name not in {server_of(m) for m in now.members}]
        return now.with_learner(self.rng.choice(absent)) if absent else None

    # Disks that are lost, and newcomers.

    def lose_disk(self, name: str) -> None:
        node = self.nodes[name]
        if self.healed or not node.member or not self.can_lose(name) or (self.mutation.keep_name and self.lost):
            return
        self.lost += 1
        if self.forgets:
            self.born.discard(node.member)
            self.forgotten.add(node.member)
        self.crash(name)
        if self.mutation.keep_name:
            node.disk = Disk(self.initial if node.member in self.initial.members else None)
            node.installing = False
            self.at(self.rng.randrange(self.lease), self.start, name)
        else:
            self.vacate(node)

    def vacate(self, node: Node) -> None:
        node.member = ""
        node.installing = False
        node.replica = None
        node.life += 1
        node.disk = Disk()
        self.ruling.discard(node.name)

    def can_lose(self, name: str) -> bool:
        """Tell whether every configuration that may count keeps a majority whose disks were never lost."""
        version = self.configuration.version
        counted = [self.configuration, *[c for c in self.proposed if c.version == version + 1]]
        for configuration in counted:
            lost = [v for v in configuration.voters if self.is_lost(v) or server_of(v) == name]
            if len(lost) > (len(configuration.voters) - 1) // 2:
                return False
        return True

    def send(self, sender: str, receiver: str, message: Message) -> None:
        """Whoever promised a ballot or a ceiling never answers below it: a life has one memory."""
        if (isinstance(message, Promise) and message.granted) or (isinstance(message, Accepted) and message.hint >= 0):
            ballot, ceiling = self.answered.get(sender, (NO_BALLOT, 0))
            if message.promised == message.ballot:
                require(message.ballot >= ballot, f"{sender} answers {message.ballot} after {ballot}")
                require(message.ceiling >= ceiling, f"{sender} holds {message.ceiling}, after {ceiling}")
                self.answered[sender] = (message.ballot, message.ceiling)
        super().send(sender, receiver, message)

    def arrives(self, node: Node, receiver: str, message: Message) -> None:
        """A leader writes to a member that this server does not have yet: it begins, with nothing, but never twice."""
        if isinstance(message, Accept) and joined_at(receiver) > joined_at(node.member) and receiver not in self.born:
            if node.replica is not None:
                self.crash(node.name)
            self.vacate(node)
            node.member = receiver
            self.born.add(receiver)
            self.start(node.name)

    def heal(self) -> None:
        super().heal()
        self.at(1, self.operate)

    def turn(self, node: Node) -> None:
        super().turn(node)
        if node.replica is not None and node.replica.removed:
            require(node.member not in self.configuration.members, f"{node.member} is told that it was removed")
            self.crash(node.name)
            self.vacate(node)

    def require_progress(self) -> None:
        for _ in range(40):
            dead = [m for m in self.configuration.members if self.is_lost(m)]
            if dead or len(self.configuration.voters) < 3 or self.configuration.learners:
                self.run_until(self.time + self.lease)
        super().require_progress()
