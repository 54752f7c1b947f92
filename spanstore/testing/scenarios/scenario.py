"""A whole-cluster run as data: everything that a seed decides, so that a failing run can be kept, bent and repeated."""

import random
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from f1common.config import PaxosSection, PlacementSection, StorageSection
from spanstore.testing.sim import LinkProfile, Loss, NetConfig, WorldConfig

_T = TypeVar("_T")

WORKLOADS = ("ring", "bank", "register", "list_append", "commits")
"""What clients do. ``commits`` is about commit ids, fences and outcomes; the others are in testing.workloads."""

COMMON_FAULTS = (
    "crash",
    "power_cut",
    "pause",
    "partition",
    "reset",
    "clock_jump",
    "clock_drift",
    "slow_disk",
    "slow_link",
)
"""Faults that the nemesis of the simulator knows."""

OWN_FAULTS = (
    "handover",
    "client_crash",
    "reboot",
    "bounce",
    "blackout",
    "disk_error",
    "disk_full",
    "link_cut",
    "leader_cut",
)
"""Faults of :mod:`spanstore.testing.scenarios.faults`."""

TRANSFER_FAULTS = ("absence",)
"""Faults that make a replica fetch the state of its group, if the others' logs are short enough."""

PEER_METHOD = "/f1.span.SpanServer/Peer"


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run. Names carry the units; ``_ppm`` are parts per million.

    ``faults`` are (kind, weight). ``max_down`` bounds how many servers are dead, stopped or cut off at once; None does
    not. ``run_us`` is the safety phase, after which everything is healed and progress must return.
    """

    seed: int
    workload: str
    servers: int = 3
    groups: int = 2
    keys: int = 6
    clients: int = 3
    together: int = 1
    """So many loops of the workload share a client, whose commits then go together."""
    pause_us: int = 20_000
    run_us: int = 6_000_000

    lease_ms: int = 1_500
    heartbeat_ms: int = 200
    election_timeout_ms: int = 700
    log_keep_entries: int = 10_000
    log_hold_entries: int = 200_000
    transfer_chunk_bytes: int = 512 << 10
    transfer_bytes_per_s: int = 0
    max_batch_bytes: int = 1 << 20
    txn_idle_ms: int = 10_000
    digest_every_ms: int = 10_000
    version_keep_ms: int = 3_600_000
    outcome_keep_ms: int = 3_600_000

    clock_bound_us: int = 0
    max_drift_ppm: int = 0
    link_min_us: int = 100
    link_mean_extra_us: int = 150
    link_spike_ppm: int = 500
    drop_ppm: int = 0
    duplicate_ppm: int = 0
    reorder_ppm: int = 0
    disk_min_us: int = 100
    disk_mean_extra_us: int = 200

    moves_us: int = 0
    """How often somebody splits, merges or moves ranges; 0: never."""
    founds: bool = False
    """Whether somebody founds a group meanwhile; ranges then move there too."""
    balance: bool = False
    """Whether the load balancer is at work, and so eager that it has something to do."""
    shuttle: bool = False
    """The same few keys move to another group and back, instead of anything anywhere."""

    faults: tuple[tuple[str, int], ...] = ()
    fault_interval_us: int = 1_000_000
    fault_duration_us: int = 1_000_000
    max_down: int | None = 1

    def with_(self, **changes: Any) -> "Scenario":
        """Return the scenario with some fields replaced."""
        return msgspec.structs.replace(self, **changes)

    def with_transfers(self, rng: random.Random) -> "Scenario":
        """Return the scenario, in one of three cases with logs so short that replicas fetch each other's state."""
        if rng.randrange(3):
            return self
        return self.with_(
            log_keep_entries=min(self.log_keep_entries, 5),
            log_hold_entries=rng.choice((10, 40)),
            transfer_chunk_bytes=rng.choice((200, 1_000, 512 << 10)),
            transfer_bytes_per_s=rng.choice((0, 30_000, 100_000)),
            faults=(*self.faults, ("absence", rng.randint(3, 10))),
        )

    def rng(self, purpose: str) -> random.Random:
        """Return the random numbers of one purpose, which no other purpose draws from."""
        return random.Random(f"{self.seed}/scenario/{purpose}")

    def paxos(self) -> PaxosSection:
        """Return the settings of the replicas."""
        return PaxosSection(
            lease_ms=self.lease_ms,
            heartbeat_ms=self.heartbeat_ms,
            election_timeout_ms=self.election_timeout_ms,
            log_keep_entries=self.log_keep_entries,
            log_hold_entries=self.log_hold_entries,
            max_batch_bytes=self.max_batch_bytes,
        )

    def storage(self) -> StorageSection:
        """Return the settings of storage and transactions."""
        return StorageSection(
            txn_idle_ms=self.txn_idle_ms,
            transfer_chunk_bytes=self.transfer_chunk_bytes,
            transfer_bytes_per_s=self.transfer_bytes_per_s,
            version_keep_ms=self.version_keep_ms,
            outcome_keep_ms=self.outcome_keep_ms,
        )

    def placement(self) -> PlacementSection:
        """Return the settings of placement: no replica moves by itself, and ranges and leaders only if wanted."""
        return PlacementSection(
            replace_after_ms=0,
            rebalance=False,
            balance_load=self.balance,
            balance_period_ms=200,
            load_window_ms=300,
            count_every_ms=0,
            busy_rows_per_s=5,
        )

    def world(self, tolerated: tuple[type[BaseException], ...]) -> WorldConfig:
        """Return the parameters of the world; nodes may exit with ``tolerated`` errors."""
        profile = LinkProfile(
            min_us=self.link_min_us, mean_extra_us=self.link_mean_extra_us, spike_per_million=self.link_spike_ppm
        )
        return WorldConfig(
            net=NetConfig(
                profile=profile,
                unordered_methods=frozenset((PEER_METHOD,)),
                loss=Loss(drop=self.drop_ppm, duplicate=self.duplicate_ppm, reorder=self.reorder_ppm),
            ),
            clock_bound_us=self.clock_bound_us,
            max_drift_ppm=self.max_drift_ppm,
            disk_min_us=self.disk_min_us,
            disk_mean_extra_us=self.disk_mean_extra_us,
            limit_us=self.run_us + 600_000_000,
            tolerated_exits=tolerated,
        )


def draw(seed: int, workload: str | None = None) -> Scenario:
    """Draw the scenario of a seed; ``workload`` fixes what clients do and leaves the rest to the seed."""
    rng = random.Random(f"{seed}/draw")
    drawn = rng.choice(WORKLOADS)
    servers = rng.choice((3, 3, 3, 3, 5))
    lease_ms, election_timeout_ms, heartbeat_ms = rng.choice(
        ((1_500, 700, 200), (600, 300, 80), (300, 140, 40), (3_000, 400, 100))
    )
    bound_us = rng.choice((0, 0, 500, 5_000, 50_000))
    min_us, extra_us = rng.choice(((100, 150), (100, 150), (50, 20), (1_000, 3_000), (5_000, 10_000)))
    lossy = rng.random() < 0.6
    version_keep_ms, outcome_keep_ms = _draw_windows(random.Random(f"{seed}/windows"))
    return Scenario(
        seed=seed,
        workload=workload or drawn,
        servers=servers,
        groups=rng.choice((1, 2, 2, 3)),
        keys=rng.choice((4, 6, 10)),
        clients=rng.choice((2, 3, 5)),
        together=random.Random(f"{seed}/together").choice((1, 1, 3)),
        pause_us=rng.choice((5_000, 20_000, 60_000)),
        run_us=rng.choice((3_000_000, 5_000_000, 9_000_000)),
        lease_ms=lease_ms,
        election_timeout_ms=election_timeout_ms,
        heartbeat_ms=heartbeat_ms,
        log_keep_entries=rng.choice((10_000, 0, 20)),
        max_batch_bytes=rng.choice((1 << 20, 4096)),
        txn_idle_ms=rng.choice((500, 3_000)),
        version_keep_ms=version_keep_ms,
        outcome_keep_ms=outcome_keep_ms,
        founds=random.Random(f"{seed}/founding").random() < 0.3,
        clock_bound_us=bound_us,
        max_drift_ppm=rng.choice((0, 9_000)),
        link_min_us=min_us,
        link_mean_extra_us=extra_us,
        link_spike_ppm=rng.choice((0, 500, 20_000)),
        drop_ppm=_rate(rng, lossy),
        duplicate_ppm=_rate(rng, lossy),
        reorder_ppm=_rate(rng, lossy),
        disk_min_us=rng.choice((100, 100, 2_000)),
        disk_mean_extra_us=rng.choice((0, 200, 5_000)),
        faults=_draw_faults(rng),
        fault_interval_us=rng.choice((150_000, 500_000, 1_500_000)),
        fault_duration_us=rng.choice((50_000, 500_000, 2_000_000)),
        max_down=rng.choice((None, (servers - 1) // 2)),
    ).with_transfers(rng)


def _draw_windows(rng: random.Random) -> tuple[int, int]:
    """Draw how long versions and outcomes are kept, in ms: as in production, or so short that they go in the run."""
    return rng.choice((3_600_000, 3_600_000, 300, 800, 1_500)), rng.choice((3_600_000, 3_600_000, 1_500, 3_000))


def _rate(rng: random.Random, lossy: bool) -> int:
    return rng.choice((0, 1_000, 20_000, 100_000)) if lossy else 0


def _draw_faults(rng: random.Random) -> tuple[tuple[str, int], ...]:
    """Draw a few kinds of faults: few together reach deeper than all at once."""
    if rng.random() < 0.05:
        return ()
    kinds = COMMON_FAULTS + OWN_FAULTS
    chosen = rng.sample(kinds, rng.randint(1, 6))
    return tuple((kind, rng.randint(1, 5)) for kind in kinds if kind in chosen)


Tweak = Callable[[Scenario], Scenario]
"""Bends a scenario towards what somebody looks for."""


def encode(scenario: Scenario) -> bytes:
    """Return the scenario as JSON."""
    return msgspec.json.format(msgspec.json.encode(scenario), indent=2)


def decode(data: bytes) -> Scenario:
    """Read a scenario from JSON. Raises msgspec.DecodeError if it is none."""
    return msgspec.json.decode(data, type=Scenario)
