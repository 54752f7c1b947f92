"""Show that broken code is caught: `python scripts/mutations.py`.

For each mutation of `spanstore.testing.mutations`, seeds are run until a checker objects, and the same seed is run
without the mutation, where nobody may. Prints what was caught by whom and where. The exit code is 0 when all were
caught within `--seeds` seeds and every control passed.
"""

import argparse
import multiprocessing
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass

from scripts.quiet import quiet
from spanstore.testing.mutations import MUTATIONS, Mutation, try_seed
from spanstore.testing.scenarios import ERROR, Failure

BY_NAME = {mutation.name: mutation for mutation in MUTATIONS}


@dataclass(frozen=True, slots=True)
class Hunt:
    """What became of one mutation: `seed` caught it, None did not; `control` is what the sound code failed of."""

    name: str
    seed: int | None
    caught: Failure | None
    control: Failure | None
    seeds: int
    cpu_s: float


def hunt(name: str, first: int, seeds: int) -> Hunt:
    """Runs seeds until a checker catches the mutation; that broken code stumbles by itself counts if nothing else is
    found, or the sound code fails of the same seed."""
    mutation = BY_NAME[name]
    started = time.process_time()
    stumbled: Hunt | None = None
    for seed in range(first, first + seeds):
        with quiet():
            caught = try_seed(mutation, seed)
            control = try_seed(mutation, seed, broken=False) if caught is not None else None
        if caught is None:
            continue
        found = Hunt(name, seed, caught, control, seed - first + 1, time.process_time() - started)
        if caught.caught_by != ERROR or control is not None:
            return found
        stumbled = stumbled or found
    return stumbled or Hunt(name, None, None, None, seeds, time.process_time() - started)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mutations.py", description="Shows that broken code is caught.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="which mutations (default: all)")
    parser.add_argument("--nth", type=int, metavar="N", help="only the one at this place of the list, from 0")
    parser.add_argument("--seeds", type=int, default=500, help="how many seeds each may take (default 500)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--processes", type=int, default=1, help="mutations at the same time (default 1)")
    parser.add_argument("--verbose", action="store_true", help="print what the checkers say in full")
    options = parser.parse_args(arguments)
    for name in options.names:
        if name not in BY_NAME:
            parser.error(f"there is no mutation {name}; there are {', '.join(BY_NAME)}")
    return options


def hunts(options: argparse.Namespace) -> Iterator[Hunt]:
    """Hunts what the arguments select."""
    chosen: list[Mutation] = [m for m in MUTATIONS if not options.names or m.name in options.names]
    if options.nth is not None:
        chosen = [MUTATIONS[options.nth]]
    if options.processes <= 1:
        for mutation in chosen:
            yield hunt(mutation.name, options.first, options.seeds)
        return
    with ProcessPoolExecutor(options.processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        for future in as_completed([pool.submit(hunt, m.name, options.first, options.seeds) for m in chosen]):
            yield future.result()


def report(found: Hunt, verbose: bool) -> None:
    """Prints what became of one mutation."""
    print(f"{found.name}: {BY_NAME[found.name].breaks}")
    if found.caught is None:
        print(f"    NOT CAUGHT in {found.seeds} seeds, {found.cpu_s:.1f} s CPU", flush=True)
        return
    message = found.caught.message if verbose else found.caught.message.partition("\n")[0][:200]
    if found.caught.caught_by == ERROR:
        print(f"    THE MUTATION ITSELF FAILED at seed {found.seed}: {found.caught.message}", flush=True)
        return
    print(f"    caught by {found.caught.caught_by} at seed {found.seed}, {found.cpu_s:.1f} s CPU: {message}")
    if found.control is not None:
        print(f"    BUT THE SOUND CODE FAILED TOO: {found.control.caught_by}: {found.control.message}")
    sys.stdout.flush()


def main(arguments: Sequence[str]) -> int:
    """Hunts and reports; returns the exit code."""
    options = parse(arguments)
    failed = 0
    for found in hunts(options):
        report(found, options.verbose)
        failed += found.caught is None or found.caught.caught_by == ERROR or found.control is not None
    print("every mutation was caught" if not failed else f"{failed} mutations were not caught, or not rightly")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
