"""Scenarios that are bent towards what few seeds reach by themselves."""

from spanstore.testing.scenarios.scenario import Scenario


def absences(scenario: Scenario) -> Scenario:
    """Servers are absent until the logs go on without them; while they fetch the state, everything dies and breaks off.

    Chunks are small and slow, so that most faults strike in the middle of a transfer.
    """
    seed = scenario.seed
    return scenario.with_(
        servers=3,
        groups=1,
        keys=10,
        clients=3,
        pause_us=10_000,
        run_us=7_000_000,
        lease_ms=300,
        heartbeat_ms=40,
        election_timeout_ms=140,
        log_keep_entries=(0, 5, 10)[seed % 3],
        log_hold_entries=20,
        transfer_chunk_bytes=512,
        transfer_bytes_per_s=(30_000, 100_000)[seed % 2],
        link_min_us=100,
        link_mean_extra_us=150,
        disk_min_us=100,
        disk_mean_extra_us=200,
        drop_ppm=0,
        duplicate_ppm=0,
        reorder_ppm=0,
        faults=(("absence", 3), ("bounce", 6), ("power_cut", 1), ("link_cut", 1), ("reset", 2), ("disk_error", 1)),
        fault_interval_us=250_000,
        fault_duration_us=300_000,
        max_down=1,
    )


def quiet_absences(scenario: Scenario) -> Scenario:
    """The same with few other faults and more load: what a transfer gets wrong then stays."""
    return absences(scenario).with_(
        clients=4,
        pause_us=5_000,
        run_us=5_000_000,
        log_hold_entries=50,
        faults=(("absence", 1),),
        fault_interval_us=900_000,
    )


def there_and_back(scenario: Scenario) -> Scenario:
    """The same keys move there and back, while rows are deleted, and deletes are collected before they are back."""
    return scenario.with_(
        workload="register",
        groups=2,
        keys=4,
        clients=2,
        pause_us=50_000,
        run_us=8_000_000,
        moves_us=200_000,
        shuttle=True,
        lease_ms=300,
        heartbeat_ms=40,
        election_timeout_ms=140,
        version_keep_ms=20,
        clock_bound_us=0,
        link_min_us=100,
        link_mean_extra_us=150,
        disk_min_us=100,
        disk_mean_extra_us=200,
        max_down=1,
    )
