"""What commits and reads cost between five data centres: `python bench/sites.py`, next to what F1 reports (section 10).

The sites are simulated in virtual time, so the figures say how often an operation crosses the continent, not how fast
the machine is that plays it.
"""

import argparse
import json

from rich.console import Console
from rich.table import Table

from scripts.quiet import quiet
from spanstore.testing.sim.world import WorldConfig, run_sim
from spanstore.testing.sites import ROUND_TRIP_MS, SITES, Report, measure, second_nearest_us

_CLOCK_BOUND_US = 2_000
_PAPER = {
    "commit, one group": "50-150 ms; 50 ms is the least, the round trip to the second-nearest voter",
    "commit, two groups": "typically twice the least",
    "read under locks, commit": "50-150 ms",
    "strong read in the east": "5-10 ms",
}


def main() -> None:
    """Runs the sites and prints the latencies."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=200, help="operations of each kind")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    options = parser.parse_args()
    config = WorldConfig(clock_bound_us=_CLOCK_BOUND_US, max_drift_ppm=100)
    with quiet(False):
        report = run_sim(lambda world: measure(world, options.rounds), options.seed, config)
    if options.format == "json":
        print(json.dumps(to_json(report), indent=2))
    else:
        show(report)


def to_json(report: Report) -> dict[str, object]:
    """The latencies in milliseconds, and what they were measured against."""
    kinds = {
        name: {"p50_ms": found.p50_us / 1000, "p99_ms": found.quantile_us(0.99) / 1000}
        for name, found in report.kinds.items()
    }
    return {
        "round_trip_ms": ROUND_TRIP_MS,
        "second_nearest_voter_ms": second_nearest_us() / 1000,
        "kinds": kinds,
        "writes_after_loss_of_a_site_and_a_machine": report.writes_after_loss,
    }


def show(report: Report) -> None:
    """Prints a table for people."""
    console = Console()
    table = Table(box=None, pad_edge=False, title="five sites, virtual time", title_justify="left")
    table.add_column("")
    for column in ("p50 ms", "p99 ms", "round trips"):
        table.add_column(column, justify="right")
    table.add_column("F1")
    for name, found in report.kinds.items():
        trips = f"{found.p50_us / second_nearest_us():.2f}"
        p50, p99 = found.p50_us / 1000, found.quantile_us(0.99) / 1000
        table.add_row(name, f"{p50:.1f}", f"{p99:.1f}", trips, _PAPER.get(name, ""))
    console.print(table)
    sites = ", ".join(f"{zone} {place}" for zone, place in SITES.items())
    console.print(f"sites: {sites}; leaders in {SITES['a']}; clocks known to {_CLOCK_BOUND_US / 1000:g} ms")
    console.print(f"a round trip is that to the second-nearest voter, {second_nearest_us() / 1000:g} ms")
    console.print(f"with a site and one machine elsewhere lost, {report.writes_after_loss} commits went on")


if __name__ == "__main__":
    main()
