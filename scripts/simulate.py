"""Run whole-cluster simulations by seed: `python scripts/simulate.py --seeds 0-499`.

Every seed is a cluster, a network, a workload and faults (`spanstore.testing.scenarios`). A failure is printed with the
command that repeats it. The exit code is 0 when all seeds passed. This is to look at some runs; `scripts/seeds.py` runs
thousands and keeps what became of them.
"""

import argparse
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.quiet import quiet
from spanstore.testing.scenarios import WORKLOADS, Scenario, decode, draw, encode, failure_of, run


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one seed. `failure` is empty if it passed."""

    seed: int
    workload: str
    summary: str
    trace_hash: str
    failure: str
    details: str
    cpu_s: float


def try_one(scenario: Scenario, verbose: bool = False) -> Verdict:
    """Runs a scenario, whatever it raises."""
    started = time.process_time()
    try:
        with quiet(verbose):
            done = run(scenario)
    except Exception as error:
        failure = failure_of(error)
        notes = "\n".join(getattr(error, "__notes__", ())) if verbose else ""
        details = "".join(traceback.format_exception(error, limit=-12)) if verbose else ""
        cpu_s = time.process_time() - started
        text = f"caught by {failure.caught_by}: {failure.message}"
        return Verdict(scenario.seed, scenario.workload, "", "", text, details or notes, cpu_s)
    value = done.value
    summary = (
        f"{value.ok} ok, {value.failed} failed, {value.unknown} unknown, {value.faults} faults, "
        f"{value.entries} entries, {value.moves} moves, {done.events} events, {done.virtual_us / 1e6:.1f} s"
    )
    cpu_s = time.process_time() - started
    return Verdict(scenario.seed, scenario.workload, summary, done.trace_hash, "", "", cpu_s)


def parse_seeds(text: str) -> range:
    """The seeds of `A-B` (both inclusive), `A:B` (without B) or `A`."""
    first, colon, end = text.partition(":")
    try:
        if colon:
            return range(int(first), int(end))
        first, dash, last = text.partition("-")
        return range(int(first), int(last if dash else first) + 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no range of seeds such as 0-99") from None


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="simulate.py", description="Runs whole-cluster simulations by seed.")
    parser.add_argument(
        "--seeds", type=parse_seeds, default=range(20), metavar="A-B", help="both inclusive; A:B leaves B out"
    )
    parser.add_argument("--workload", choices=WORKLOADS, help="what clients do; by default the seed picks it")
    parser.add_argument("--moves-us", type=int, default=0, metavar="N", help="change the ranges every N microseconds")
    parser.add_argument("--scenario", type=Path, metavar="FILE", help="a kept scenario (JSON) instead of seeds")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first failure")
    parser.add_argument("--verbose", type=int, metavar="SEED", help="run this seed alone and tell everything")
    parser.add_argument("--show", action="store_true", help="print the scenario of each seed as JSON and run nothing")
    return parser.parse_args(arguments)


def scenarios(options: argparse.Namespace) -> Iterator[Scenario]:
    """What the arguments select."""
    if options.scenario is not None:
        yield decode(options.scenario.read_bytes())
        return
    seeds = options.seeds if options.verbose is None else [options.verbose]
    for seed in seeds:
        yield draw(seed, options.workload).with_(moves_us=options.moves_us)


def report(verdict: Verdict, options: argparse.Namespace) -> None:
    """Prints one line for a seed that passed, and all there is for one that failed."""
    name = f"seed {verdict.seed} {verdict.workload}"
    if not verdict.failure:
        print(f"ok    {name}: {verdict.summary}, {verdict.cpu_s:.1f} s CPU, trace {verdict.trace_hash}", flush=True)
        return
    again = f"--scenario {options.scenario}" if options.scenario else f"--verbose {verdict.seed}"
    if options.workload:
        again += f" --workload {options.workload}"
    if options.moves_us:
        again += f" --moves-us {options.moves_us}"
    print(f"FAIL  {name}: {verdict.failure}\n{verdict.details}", flush=True)
    print(f"      repeat with: python scripts/simulate.py {again}", flush=True)


def main(arguments: Sequence[str]) -> int:
    """Runs what the arguments select; returns the exit code."""
    options = parse(arguments)
    if options.show:
        for scenario in scenarios(options):
            print(encode(scenario).decode())
        return 0
    passed = failed = 0
    for scenario in scenarios(options):
        verdict = try_one(scenario, options.verbose is not None)
        report(verdict, options)
        passed, failed = passed + (not verdict.failure), failed + bool(verdict.failure)
        if failed and not options.keep_going:
            break
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
