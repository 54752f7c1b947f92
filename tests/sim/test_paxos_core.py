"""Agreement, leases, ceilings and progress of the Paxos core, and that the checkers notice when they are broken."""

from typing import Any

import pytest
from msgspec.structs import replace

from f1common.clock import Now
from f1common.errors import InvariantViolation
from spanstore.paxos import Accept, Accepted, Ballot, Replica, Role
from spanstore.paxos.leading import Leading
from spanstore.paxos.lease import Granted
from spanstore.testing.paxos_nodes import Mutation, Violation
from spanstore.testing.paxos_world import DRIFT_PPM, World

# Broken variants: each must be caught by the checkers.


class LeaseFromReceipt(Replica):
    """The leader counts its lease from when the answer comes in."""

    def _on_accepted(self, sender: str, message: Accepted, now: Now) -> None:
        if self._leading is not None and message.ballot == self._leading.ballot:
            self._leading._progress[sender].last_sent = now.boot_us
            message = replace(message, sent_boot_us=now.boot_us)
        super()._on_accepted(sender, message, now)


class NoQuarantine(Replica):
    """A restarted replica promises at once, inside the lease that it has forgotten."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._granted = Granted(kwargs["now"].boot_us)
        self._deadline = kwargs["now"].boot_us + self._jitter_us


class AcceptAnyBallot(Replica):
    """An acceptor takes Accepts of ballots below its promise."""

    def _on_accept(self, sender: str, message: Accept, now: Now) -> None:
        self._promised = min(self._promised, message.ballot)
        super()._on_accept(sender, message, now)


class CountsOldBallots(Replica):
    """A leader takes entries of older ballots for chosen because a quorum holds them."""

    def _lead(self, floor: int, now: Now) -> None:
        super()._lead(floor, now)
        leading = self._leading
        if leading is not None:
            leading.chosen = lambda before: max(before, self._reached(leading))  # type: ignore[method-assign]

    def _reached(self, leading: Leading) -> int:
        matches = sorted([self._log.durable_index, *[progress.match for progress in leading._progress.values()]])
        return matches[-(len(matches) // 2 + 1)]


class IgnoresLease(Replica):
    """An acceptor promises although the lease that it granted still runs."""

    def _may_elect(self, sender: str, message: Any, released: Ballot, boot_us: int) -> bool:
        self._granted.until = 0
        return super()._may_elect(sender, message, released, boot_us)


class IgnoresLog(Replica):
    """An acceptor promises to candidates whose log is behind its own."""

    def _may_elect(self, sender: str, message: Any, released: Ballot, boot_us: int) -> bool:
        return super()._may_elect(sender, replace(message, last_ballot=Ballot(1 << 40, "z")), released, boot_us)


class NoFloor(Replica):
    """A new leader does not ask what ceiling was promised."""

    def _lead(self, floor: int, now: Now) -> None:
        super()._lead(0, now)


class EarlyCeiling(Replica):
    """A leader uses a ceiling that it has only asked for."""

    @property
    def usable_ceiling(self) -> int:
        return self._leading.ceiling if self._leading is not None else 0


class NoDriftMargin(Replica):
    """A leader uses its lease for its full length, and its clock is slow."""

    def _lead(self, floor: int, now: Now) -> None:
        super()._lead(floor, now)
        if self._leading is not None:
            self._leading.held._held_us = self._config.lease_us


class KeepsLeaseOnTransfer(Replica):
    """A leader hands over its lease and goes on using it."""

    def transfer(self, to: str, highest_ts: int, now: Now) -> bool:
        leading = self._leading
        if not super().transfer(to, highest_ts, now) or leading is None:
            return False
        self._leading, self._role, self._lost_leadership = leading, Role.LEADER, False
        return True


class CutsUnapplied(Replica):
    """A replica cuts its log below what all members hold, whether or not it has applied that itself."""

    def _truncate(self) -> int | None:
        self._applied = self._log.last_index
        return super()._truncate()


class HandsOutUnchosen(Replica):
    """A follower takes everything that it accepted for chosen."""

    def _on_accept(self, sender: str, message: Accept, now: Now) -> None:
        super()._on_accept(sender, replace(message, chosen_index=message.prev_index + len(message.entries)), now)


SHORT = {"voters": 3, "lease": (120, 8), "latency": 1, "sync": 1}
LONG = {"voters": 3, "lease": (3000, 40), "latency": 1, "sync": 1, "load": 4}
MUTATIONS = {
    "answers are sent before the sync": Mutation(send_before_sync=True),
    "the promise is not on disk": Mutation(forget_hard_state=True),
    "lease from receipt": Mutation(LeaseFromReceipt, world=SHORT | {"latency": 20, "faults": (2, 3, 4, 8, 11)}),
    "no quarantine": Mutation(NoQuarantine, world=SHORT | {"faults": (8, 9, 11)}),
    "accepts any ballot": Mutation(AcceptAnyBallot, world=SHORT | {"tail": 0.2}),
    "counts old ballots": Mutation(
        CountsOldBallots,
        world=SHORT
        | {
            "nervous": 1,
            "loss": 0.3,
            "max_accept_bytes": 40,
            "max_inflight_bytes": 200,
            "faults": (4, 5, 11),
            "load": 30,
        },
    ),
    "ignores the lease": Mutation(IgnoresLease, world=SHORT | {"faults": (8, 11), "load": 0.2}),
    "ignores the log": Mutation(IgnoresLog),
    "no floor": Mutation(NoFloor),
    "early ceiling": Mutation(EarlyCeiling),
    "no drift margin": Mutation(NoDriftMargin, world=LONG | {"drift": DRIFT_PPM, "faults": (10, 10, 11)}),
    "keeps the lease on transfer": Mutation(KeepsLeaseOnTransfer),
    "cuts what is not applied": Mutation(CutsUnapplied),
    "hands out what is not chosen": Mutation(HandsOutUnchosen),
}
SEEDS_TO_CATCH = 500


def run_seeds(first: int, last: int) -> int:
    leaders = 0
    for seed in range(first, last):
        world = World(seed)
        try:
            world.run()
        except (Violation, InvariantViolation) as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        leaders += len(world.leaders)
    return leaders


@pytest.mark.parametrize("block", range(4))
def test_agreement_leases_and_progress_hold_in_a_hostile_world(block: int) -> None:
    assert run_seeds(block * 50, block * 50 + 50) > 100, "the worlds are too calm to show anything"


@pytest.mark.long
@pytest.mark.parametrize("block", range(40))
def test_agreement_leases_and_progress_hold_for_long(block: int) -> None:
    run_seeds(1000 + block * 500, 1500 + block * 500)


def test_a_replica_that_has_just_got_its_state_hears_of_the_leader_a_moment_later() -> None:
    """A short run ended between the two."""
    World(100_004).run(leases=6)


@pytest.mark.parametrize("seed", [3213, 3689, 4517, 10523])
def test_seeds_that_once_failed(seed: int) -> None:
    """A safe time given out before an own entry was chosen; a log cut under an acceptor that had gone back."""
    run_seeds(seed, seed + 1)


def test_the_same_seed_is_the_same_run() -> None:
    for seed in range(1_000_000, 1_000_003):
        first, second = World(seed), World(seed)
        first.run()
        second.run()
        assert (first.steps, first.time, first.chosen) == (second.steps, second.time, second.chosen)


@pytest.mark.parametrize("name", MUTATIONS)
def test_the_checkers_catch(name: str) -> None:
    for seed in range(SEEDS_TO_CATCH):
        try:
            World(seed, MUTATIONS[name]).run()
        except (Violation, InvariantViolation):
            return
    pytest.fail(f"no checker noticed within {SEEDS_TO_CATCH} seeds: {name}")
