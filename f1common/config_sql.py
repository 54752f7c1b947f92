"""The sections of the configuration that concern the database tier: f1servers, the master, slaves."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from f1common.config_text import relate

_DAY_MS = 86_400_000
_INT64_MAX = (1 << 63) - 1

BOUNDS_OF_A_LEASE = 5
"""A schema lease is at least as many bounds of the clock long: its commit waits for two, and so does its renewal."""


class F1ServerSection(Struct, frozen=True, kw_only=True):
    """An f1server: schema leases and what its queries may use."""

    schema_lease_ms: Annotated[
        int,
        Meta(
            ge=200,
            le=600_000,
            description="How long a server may use a schema without confirming it; at least 5 times the clock's bound.",
        ),
    ] = 2_000
    schema_lease_renewal_percent: Annotated[
        int, Meta(ge=10, le=75, description="How much of a schema lease is over when it is renewed.")
    ] = 50
    exit_after_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=_DAY_MS,
            description="After so long without a lease a server exits, for its supervisor to restart it; 0: never.",
        ),
    ] = 60_000
    query_memory_mib: Annotated[
        int, Meta(ge=16, le=1_048_576, description="Memory of all running queries together; beyond it they spill.")
    ] = 512
    query_threads: Annotated[
        int, Meta(ge=1, le=256, description="Queries evaluated at a time, each by one thread.")
    ] = 2
    statistics_ms: Annotated[
        int, Meta(ge=1, le=_DAY_MS, description="How old the statistics may be that queries are planned with.")
    ] = 60_000
    distribute: Annotated[
        Literal["auto", "off", "force"],
        Meta(description="Whether queries run at slaves: the large ones, none, or all that the planner can spread."),
    ] = "auto"
    distribute_rows: Annotated[
        int, Meta(ge=0, le=_INT64_MAX, description="Queries that examine fewer rows run on the f1server alone.")
    ] = 5_000
    broadcast_rows: Annotated[
        int, Meta(ge=0, le=10_000_000, description="A side of a join with no more rows may go to every slave.")
    ] = 10_000
    reorganise_slowdown_percent: Annotated[
        int,
        Meta(ge=1, le=1_000, description="How much slower users may be served while a schema change works on rows."),
    ] = 5
    reorganise_min_rows_per_s: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000_000,
            description="How many rows of a large table a schema change works on in any case; of small ones fewer.",
        ),
    ] = 3_000
    reorganise_max_rows_per_s: Annotated[
        int, Meta(ge=1, le=10_000_000, description="How many rows a schema change works on at most.")
    ] = 50_000
    verify_schema_changes: Annotated[
        bool,
        Meta(description="Whether what a schema change has done with rows is checked before a query may rely on it."),
    ] = True
    authentication: Annotated[
        Literal["none", "password"],
        Meta(description="Whether clients have to log in; with none, whoever reaches the port is the superuser f1."),
    ] = "none"
    token_ms: Annotated[
        int,
        Meta(ge=1_000, le=_DAY_MS, description="How long a login is good for; clients log in again by themselves."),
    ] = 900_000
    force_join: Annotated[
        Literal["none", "broadcast", "repartition"],
        Meta(description="For tests: how distributed joins are made wherever that is possible."),
    ] = "none"

    def __post_init__(self) -> None:
        """Raise F1Error INVALID_ARGUMENT if the values contradict each other."""
        relate(
            (
                f"f1server.reorganise_max_rows_per_s ({self.reorganise_max_rows_per_s}) must not be below "
                f"f1server.reorganise_min_rows_per_s ({self.reorganise_min_rows_per_s})",
                self.reorganise_max_rows_per_s >= self.reorganise_min_rows_per_s,
            )
        )


def lease_outlasts(section: F1ServerSection, bound_us: int) -> tuple[str, bool]:
    """Return the relation between the schema lease and the bound of the clock."""
    least_ms = -(-BOUNDS_OF_A_LEASE * bound_us // 1000)
    text = (
        f"f1server.schema_lease_ms ({section.schema_lease_ms}) must be at least {BOUNDS_OF_A_LEASE} times "
        f"clock.bound_us ({bound_us / 1000:g} ms), or a lease is over before it can be used: set it to {least_ms} or "
        "more"
    )
    return text, section.schema_lease_ms >= least_ms


class MasterSection(Struct, frozen=True, kw_only=True):
    """The master: when it believes that a slave is gone, and how often it says that it is there itself."""

    suspect_ms: Annotated[
        int, Meta(ge=20, le=600_000, description="Silence after which a slave gets no more queries.")
    ] = 1_000
    dead_ms: Annotated[
        int,
        Meta(
            ge=50,
            le=3_600_000,
            description="Silence after which a slave is forgotten; also how long a new master waits for slaves.",
        ),
    ] = 5_000
    keepalive_ms: Annotated[int, Meta(ge=10, le=60_000, description="Longest silence towards f1servers.")] = 1_000

    def __post_init__(self) -> None:
        """Raise F1Error INVALID_ARGUMENT if the values contradict each other."""
        relate(
            (
                f"master.dead_ms ({self.dead_ms}) must be above master.suspect_ms ({self.suspect_ms})",
                self.dead_ms > self.suspect_ms,
            )
        )


class SlaveSection(Struct, frozen=True, kw_only=True):
    """A slave: how often it tells the master that it lives, and what the parts of queries may use."""

    heartbeat_ms: Annotated[int, Meta(ge=5, le=60_000, description="Time from one beat to the next.")] = 300
    memory_mib: Annotated[
        int, Meta(ge=16, le=1_048_576, description="Memory of the parts of all queries together; more queries wait.")
    ] = 512
    query_memory_mib: Annotated[
        int, Meta(ge=16, le=1_048_576, description="Memory of all parts of one query; beyond it they spill.")
    ] = 128
    threads: Annotated[int, Meta(ge=1, le=256, description="Threads that evaluate the parts of one query.")] = 2
    batch_rows: Annotated[
        int, Meta(ge=1, le=1_000_000, description="Rows that are given to other workers at a time, at most.")
    ] = 16_384


class OrchestratorSection(Struct, frozen=True, kw_only=True):
    """The services of the transaction orchestrator: timestamps and locks."""

    timestamp_lease_ms: Annotated[
        int,
        Meta(
            ge=50,
            le=600_000,
            description="How long a leader may give out timestamps after its last write; the next one waits as long.",
        ),
    ] = 1_000
    timestamp_range: Annotated[
        int,
        Meta(ge=1, le=1_000_000_000, description="How far the durable bound of timestamps is raised at a time."),
    ] = 1_000_000
    lock_lease_ms: Annotated[
        int, Meta(ge=20, le=3_600_000, description="How long locks are held without a refresh.")
    ] = 30_000
    lock_tenure_ms: Annotated[
        int, Meta(ge=20, le=_DAY_MS, description="How long locks are held at most, however often they are refreshed.")
    ] = 600_000

    def __post_init__(self) -> None:
        """Raise F1Error INVALID_ARGUMENT if the values contradict each other."""
        relate(
            (
                f"orchestrator.lock_tenure_ms ({self.lock_tenure_ms}) must be at least orchestrator.lock_lease_ms "
                f"({self.lock_lease_ms})",
                self.lock_tenure_ms >= self.lock_lease_ms,
            )
        )
