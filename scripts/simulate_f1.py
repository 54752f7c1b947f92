"""Run simulations of whole databases by seed: `python scripts/simulate_f1.py --seeds 0-99`.

Every seed is a cluster with f1servers, clients, a workload through SQL and faults (`f1server.testing.scenario`). A
failure is printed with the command that repeats it. The exit code is 0 when all seeds passed.
"""

import argparse
import sys
import time
import traceback
from collections.abc import Sequence

from f1server.testing.scenario import WORKLOADS, Scenario, draw, run
from scripts.quiet import quiet
from scripts.simulate import parse_seeds


def try_one(scenario: Scenario, verbose: bool = False) -> tuple[str, str]:
    """Runs a scenario, whatever it raises: returns a summary, or what failed."""
    started = time.process_time()
    try:
        with quiet(verbose):
            done = run(scenario)
    except Exception as error:
        lines = [*getattr(error, "__notes__", ()), *traceback.format_exception(error)] if verbose else []
        return "", "\n".join([f"{type(error).__name__}: {error}", *lines])
    value = done.value
    cpu_s = time.process_time() - started
    return (
        f"{value.ok} ok, {value.failed} failed, {value.unknown} unknown, {value.faults} faults, "
        f"{value.entries} entries, {value.exchanged_bytes} bytes of slaves, "
        f"{done.virtual_us / 1e6:.1f} s, {cpu_s:.1f} s CPU, trace {done.trace_hash}",
        "",
    )


def main(arguments: Sequence[str]) -> int:
    """Runs what the arguments select; returns the exit code."""
    parser = argparse.ArgumentParser(prog="simulate_f1.py", description="Runs simulations of databases by seed.")
    parser.add_argument("--seeds", type=parse_seeds, default=range(10), metavar="A-B", help="both inclusive")
    parser.add_argument("--workload", choices=WORKLOADS, help="what clients do; by default the seed picks it")
    parser.add_argument("--spread", action="store_true", help="with slaves, which run all queries that can be spread")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first failure")
    parser.add_argument("--verbose", action="store_true", help="tell everything")
    options = parser.parse_args(arguments)
    failed = 0
    for seed in options.seeds:
        scenario = draw(seed, options.workload, spread=options.spread)
        summary, failure = try_one(scenario, options.verbose)
        print(f"{'FAIL ' if failure else 'ok   '} seed {seed} {scenario.workload}: {failure or summary}", flush=True)
        failed += bool(failure)
        if failure and not options.keep_going:
            how = "--verbose" + (f" --workload {options.workload}" if options.workload else "")
            how += " --spread" if options.spread else ""
            print(f"      repeat with: python scripts/simulate_f1.py {how} --seeds {seed}", flush=True)
            break
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
