"""The world of :mod:`spanstore.testing.paxos_world` in which members come and go and disks are lost for ever.

An operator changes the group in random steps at random moments, through whoever leads; servers lose their disks (a
minority of the voters at a time, more is beyond what the protocol survives) and come back as new members only. At the
end the operator replaces the dead, and everybody who is a member must have everything.
"""

from f1common.errors import F1Error
from spanstore.paxos import Accept, Configuration, Message, Replica, Role, joined_at, server_of
from spanstore.testing.paxos_world import Disk, Node, World, require


class MembersWorld(World):
    """One run with changes of the members."""

    changes = 0
    lost = 0

    def servers(self) -> str:
        return "abcdefg"

    def in_danger(self, first: Configuration) -> tuple[str, ...]:
        return tuple(self.nodes)

    def run(self, leases: int = 30) -> None:
        self.faults = self.choose("faults", ((*range(13), *[13] * 8, 14, 14),))
        self.at(self.lease, self.operate)
        super().run(leases)
        require(len(self.configuration.voters) >= 1, "no voters")

    def more_faults(self, fault: int, name: str) -> None:
        if fault == 13:
            self.change_members()
        else:
            self.lose_disk(name)

    # The operator.

    def operate(self) -> None:
        """Now and then a step; after the healing, replace the dead until all members live."""
        dead = [m for m in self.configuration.members if self.nodes[server_of(m)].member != m]
        if not self.healed or dead or len(self.configuration.voters) < 3:
            self.change_members(dead if self.healed else ())
        self.at(self.lease // 4 if self.healed else 1 + self.rng.randrange(2 * self.lease), self.operate)

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
            self.changes += 1
            self.turn(node)

    def too_few(self, step: Configuration) -> bool:
        """Tell whether the step would leave a majority of lost disks: its leader may not have noticed yet."""
        lost = [voter for voter in step.voters if self.nodes[server_of(voter)].member != voter]
        return len(lost) > (len(step.voters) - 1) // 2

    def any_step(self, replica: Replica) -> Configuration | None:
        now = replica.configuration
        member = self.rng.choice(now.members)
        match self.rng.randrange(6):
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
        if self.healed or not node.member or not self.can_lose(name):
            return
        self.lost += 1
        self.crash(name)
        if self.mutation.world.get("keeps its name"):
            node.disk = Disk(Configuration(0, tuple("abc")))
            self.at(self.rng.randrange(self.lease), self.start, name)
        else:
            self.vacate(node)

    def vacate(self, node: Node) -> None:
        node.member = ""
        node.installing = False
        node.replica = None
        node.life += 1
        node.disk = Disk()

    def can_lose(self, name: str) -> bool:
        """Tell whether every configuration that may count keeps a majority whose disks were never lost."""
        version = self.configuration.version
        counted = [self.configuration, *[c for c in self.proposed if c.version == version + 1]]
        for configuration in counted:
            lost = [v for v in configuration.voters if self.nodes[server_of(v)].member != v or server_of(v) == name]
            if len(lost) > (len(configuration.voters) - 1) // 2:
                return False
        return True

    def arrives(self, node: Node, receiver: str, message: Message) -> None:
        """A leader writes to a member that this server does not have yet: it begins, with nothing."""
        if isinstance(message, Accept) and joined_at(receiver) > joined_at(node.member) and self.is_new(node, receiver):
            if node.replica is not None:
                self.crash(node.name)
            self.vacate(node)
            node.member = receiver
            self.born.add(receiver)
            self.start(node.name)

    def is_new(self, node: Node, receiver: str) -> bool:
        """A server never begins the same life twice: it remembers the newest that it began."""
        if not hasattr(self, "born"):
            self.born: set[str] = set()
        return receiver not in self.born

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
            dead = [m for m in self.configuration.members if self.nodes[server_of(m)].member != m]
            if dead or len(self.configuration.voters) < 3 or self.configuration.learners:
                self.run_until(self.time + self.lease)
        super().require_progress()
