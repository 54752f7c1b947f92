"""Members come and go and disks are lost for ever: agreement, leases, ceilings and progress hold all the same.

And the checkers notice when a rule of the changes is broken.
"""

from typing import Any

import pytest
from msgspec.structs import replace

from f1common.clock import Now
from f1common.errors import InvariantViolation
from spanstore.paxos import Accept, Effects, LogEntry, Message, Prepare, PreVote, Removed, Replica
from spanstore.paxos.leading import Leading
from spanstore.paxos.quorum import majority, reached_by
from spanstore.testing.paxos_members import MembersWorld
from spanstore.testing.paxos_nodes import Mutation, Violation
from tests.amounts import some

# Broken variants: each must be caught by the checkers.


class ChangesBeforeItsOwnEntry(Replica):
    """A leader changes the configuration before an entry of its own ballot is chosen."""

    def why_no_change(self) -> str:
        why = super().why_no_change()
        return "" if why == "the leader has just been elected" and self.configuration_settled else why


class ChangesWhileChanging(Replica):
    """A leader proposes the next configuration while the last one is not chosen."""

    def why_no_change(self) -> str:
        why = super().why_no_change()
        return "" if why == "the last change is not chosen yet" else why


class EntriesWithoutCeiling(Replica):
    """A leader asks for its ceiling with heartbeats only."""

    def flush(self, now: Now) -> Effects:
        effects = super().flush(now)
        effects.send_now = [
            (to, replace(m, ceiling=0) if isinstance(m, Accept) and m.entries else m) for to, m in effects.send_now
        ]
        return effects


class CountsOldConfiguration(Replica):
    """A leader sends to the members of the new configuration, but counts by the one that it was elected in."""

    def _take(self, entry: LogEntry, now: Now | None) -> None:
        leading = self._leading
        if leading is None:
            super()._take(entry, now)
            return
        voters, quorum, held = leading._voters, leading._quorum, leading.held
        names, needed = held._voters, held._needed
        super()._take(entry, now)
        for voter in voters:
            if voter != self.me and voter not in leading._progress:
                return
        leading._voters, leading._quorum = voters, quorum
        held._voters, held._quorum, held._needed = names, quorum, needed


class LearnersElect(Replica):
    """A candidate counts the promises of learners."""

    def _agreed(self, others: Any) -> bool:
        return len({*others, self.me}) >= majority(len(self.configuration.voters))


class LearnersChoose(Replica):
    """A leader takes for chosen what is on enough disks, those of learners included."""

    def _lead(self, floor: int, now: Now) -> None:
        super()._lead(floor, now)
        leading = self._leading
        if leading is not None:
            leading.chosen = lambda before: self._reached(leading, before)  # type: ignore[method-assign]

    def _reached(self, leading: Leading, before: int) -> int:
        matches = [self._log.durable_index, *[progress.match for progress in leading._progress.values()]]
        reached = reached_by(matches, leading._quorum)
        return reached if reached > before and self._log.ballot_at(reached) == leading.ballot else before


class SaysRemovedTooSoon(Replica):
    """A replica tells whoever it does not know that it was removed, and that one believes it."""

    def step(self, sender: str, message: Message, now: Now) -> None:
        if isinstance(message, PreVote | Prepare) and sender not in self.configuration.members and not self._newcomer:
            self._send_now.append((sender, Removed(message.ballot, 1 << 30)))
            return
        super().step(sender, message, now)


class NewcomerAgrees(Replica):
    """A newcomer answers as if its log matched."""

    def _on_accept(self, sender: str, message: Accept, now: Now) -> None:
        super()._on_accept(sender, message, now)
        if self._newcomer and message.ballot == self._promised:
            self._answer(message, ok=True, index=message.prev_index + len(message.entries))


# A world in which leaders change the group with nobody listening, and their successors do at once, see lie_in_wait.
AMBUSH = {
    "voters": 4,
    "pace": 50,
    "lease": (120, 5),
    "faults": (16,),
    "kinds": (5,),
    "loss": 0,
    "latency": 1,
    "sync": 1,
    "nervous": 0,
}
MUTATIONS = {
    "changes before an own entry is chosen": Mutation(ChangesBeforeItsOwnEntry, world=AMBUSH),
    "changes while the last change is not chosen": Mutation(ChangesWhileChanging),
    "sends entries without the ceiling": Mutation(EntriesWithoutCeiling),
    "counts by the configuration of its election": Mutation(CountsOldConfiguration),
    "learners elect": Mutation(LearnersElect),
    "learners choose": Mutation(LearnersChoose),
    "says removed to whoever it does not know": Mutation(SaysRemovedTooSoon),
    "a newcomer agrees with everything": Mutation(NewcomerAgrees),
    "a lost disk comes back under the old name": Mutation(keep_name=True),
    "a fetched state takes the promise with it": Mutation(install_forgets_promise=True),
}
SEEDS_TO_CATCH = 200


def run_seeds(first: int, last: int) -> tuple[int, int, int]:
    """Run worlds; return how often members changed, states were fetched and disks were lost."""
    changes = transferred = lost = 0
    for seed in range(first, last):
        world = MembersWorld(seed)
        try:
            world.run()
        except (Violation, InvariantViolation) as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        changes += world.changes
        transferred += world.transferred
        lost += world.lost
    return changes, transferred, lost


@pytest.mark.parametrize("block", some([0], [1, 2, 3]))
def test_the_group_survives_changes_of_its_members(block: int) -> None:
    changes, transferred, lost = run_seeds(block * 10, block * 10 + 10)
    assert changes > 100 and transferred > 50 and lost > 5, "the worlds are too calm to show anything"


@pytest.mark.long
@pytest.mark.parametrize("block", range(40))
def test_the_group_survives_changes_for_long(block: int) -> None:
    run_seeds(1000 + block * 100, 1100 + block * 100)


def test_the_same_seed_is_the_same_run() -> None:
    first, second = MembersWorld(1_000_000), MembersWorld(1_000_000)
    first.run()
    second.run()
    assert (first.steps, first.time, first.chosen) == (second.steps, second.time, second.chosen)


@pytest.mark.parametrize("name", MUTATIONS)
def test_the_checkers_catch(name: str) -> None:
    for seed in range(SEEDS_TO_CATCH):
        try:
            MembersWorld(seed, MUTATIONS[name]).run()
        except (Violation, InvariantViolation):
            return
    pytest.fail(f"no checker noticed within {SEEDS_TO_CATCH} seeds: {name}")
