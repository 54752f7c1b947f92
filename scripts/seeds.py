"""Run simulated worlds by the thousand: `python scripts/seeds.py`; what has run is kept, and does not run again.

Every finished seed is a line in `build/seeds/REVISION.jsonl`. A seed counts for the text of the code that its kind of
world runs (`scripts/worlds.py`), so that a commit that changes something else lets it stand, and any other makes it run
again. A call goes on where the last one stopped, however that ended. A seed that fails is printed with the command that
replays it.

`--summary` writes what the ledgers say to `bench/results/seeds.md`. The exit code is 0 when all that the ledger has on
the selection passed, 1 when something failed, 2 when interrupted.
"""

import argparse
import gc
import heapq
import json
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from scripts.quiet import quiet
from scripts.simulate import parse_seeds
from scripts.test_long import revision
from scripts.worlds import CORE_CODE, KINDS, ROOT, Kind

PASSED, FAILED = "passed", "failed"
HUNG_CPU_S = 600.0
"""A seed that computes for longer than this is taken for hung: the slowest take a tenth."""

PAGE = """\
# Simulated worlds that have run

`python scripts/seeds.py --summary` wrote this from the ledgers in `build/seeds`. A line counts the seeds that ran one
text of the code that such a world runs (`scripts/worlds.py`): *code* stands for that text, *revisions* are the commits
that had it then. The newest text of a kind comes last. Failures are listed below, with what became of the same seed
later.
"""

_TASKS_PER_PROCESS = 400
_LOOK_S = 10.0


class Hung(KeyboardInterrupt):
    """A world used up its processor time. Of this base, because an event loop lets no other through."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the ledger: what became of a seed. ``ended_s`` is when, in seconds since the epoch."""

    kind: str
    seed: int
    revision: str
    code: str
    outcome: str
    failure: str
    simulated_s: float
    wall_s: float
    cpu_s: float
    ended_s: int


def try_seed(kind: Kind, seed: int, verbose: bool = False) -> tuple[str, float]:
    """Run a seed, whatever it raises. Returns what failed, empty if nothing did, and then the simulated seconds."""
    failure, simulated_s = "", 0.0
    signal.signal(signal.SIGVTALRM, _hung)
    signal.setitimer(signal.ITIMER_VIRTUAL, HUNG_CPU_S, 1.0)
    try:
        with quiet(verbose):
            simulated_s = kind.run(seed)
    except Hung:
        failure = f"hung: more than {HUNG_CPU_S:g} s of processor time"
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        failure = f"{type(error).__name__}: {error}".partition("\n")[0][:500]
        failure += f" ({Path(where.filename).name}:{where.lineno})"
        if verbose:
            traceback.print_exc()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
    return failure, simulated_s


def _hung(_signal: int, _frame: object) -> None:
    raise Hung


def try_batch(name: str, seeds: Sequence[int], revised: str, code: str) -> list[Line]:
    """Run seeds of a kind in this process."""
    kind, lines = KINDS[name], []
    for seed in seeds:
        began, began_cpu = time.monotonic(), time.process_time()
        failure, simulated_s = try_seed(kind, seed)
        wall_s, cpu_s = time.monotonic() - began, time.process_time() - began_cpu
        outcome = FAILED if failure else PASSED
        simulated_s, wall_s, cpu_s = round(simulated_s, 3), round(wall_s, 3), round(cpu_s, 3)
        lines.append(Line(name, seed, revised, code, outcome, failure, simulated_s, wall_s, cpu_s, int(time.time())))
    return lines


def _begin_process(databases: bool) -> None:
    """What is imported by now is no garbage: worlds collect before and after they run."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if databases:
        import f1server.testing.scenario  # noqa: F401

    gc.collect()
    gc.freeze()


class Ledger:
    """All lines there are, of every revision, and one file to add to."""

    def __init__(self, directory: Path, revised: str) -> None:
        self.directory = directory
        self.revision = revised
        self._path = directory / f"{revised}.jsonl"
        # A run that was killed may have left half a line: the next one begins a new one.
        self._torn = self._path.exists() and self._path.read_bytes()[-1:] not in (b"", b"\n")
        lines = [line for path in sorted(directory.glob("*.jsonl")) for line in _read(path)]
        self.lines = sorted(lines, key=lambda line: line.ended_s)

    def add(self, line: Line) -> None:
        """Keep a line."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(("\n" if self._torn else "") + json.dumps(asdict(line)) + "\n")
        self._torn = False
        self.lines.append(line)

    def of(self, kind: Kind, code: str) -> dict[int, Line]:
        """Return the newest line of each seed of a kind that ran this very code."""
        return {line.seed: line for line in self.lines if (line.kind, line.code) == (kind.name, code)}


def _read(path: Path) -> Iterator[Line]:
    for text in path.read_text().splitlines():
        try:
            yield Line(**json.loads(text))
        except (ValueError, TypeError):
            continue  # torn when a run was killed: its seed runs again


@dataclass(slots=True)
class Work:
    """What is left to do of one kind."""

    kind: Kind
    code: str
    wanted: Sequence[int]
    left: list[int]

    @property
    def share(self) -> float:
        """How much has been handed out, from 0 to 1."""
        return 1 - len(self.left) / max(1, len(self.wanted))

    def take(self) -> list[int]:
        """Return the next seeds to run."""
        taken, self.left = self.left[: self.kind.batch], self.left[self.kind.batch :]
        return taken


def plan(ledger: Ledger, options: argparse.Namespace) -> list[Work]:
    """Say what the arguments select and the ledger has not."""
    works = []
    for kind in options.kinds:
        seeds = options.seeds or replace(kind, seeds=options.count or kind.seeds).range
        code = kind.digest()
        known = ledger.of(kind, code)
        left = [s for s in seeds if s not in known or (options.retry_failed and known[s].outcome == FAILED)]
        works.append(Work(kind, code, seeds, left))
    return works


def batches(works: Sequence[Work]) -> Iterator[tuple[Work, list[int]]]:
    """Hand out all seeds, so that the kinds come along evenly."""
    queue = [(work.share, number) for number, work in enumerate(works) if work.left]
    heapq.heapify(queue)
    while queue:
        _, number = heapq.heappop(queue)
        yield works[number], works[number].take()
        if works[number].left:
            heapq.heappush(queue, (works[number].share, number))


def run_all(works: Sequence[Work], ledger: Ledger, processes: int, minutes: float) -> Iterator[Line]:
    """Run everything, each seed into the ledger as it is known. Raises RuntimeError when the code changes meanwhile."""
    end = time.monotonic() + minutes * 60 if minutes else float("inf")
    look = time.monotonic() + _LOOK_S
    todo = batches(works)
    running: set[Future[list[Line]]] = set()
    # Databases take a second to import, which the state machines of a Paxos group alone do not need.
    databases = any(work.kind.code != CORE_CODE for work in works)
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, spawn, _begin_process, (databases,), max_tasks_per_child=_TASKS_PER_PROCESS)
    try:
        while True:
            while len(running) < 2 * processes and time.monotonic() < end and (item := next(todo, None)):
                work, seeds = item
                running.add(pool.submit(try_batch, work.kind.name, seeds, ledger.revision, work.code))
            if not running:
                return
            done, running = wait(running, _LOOK_S, FIRST_COMPLETED)
            if time.monotonic() > look:
                look = time.monotonic() + _LOOK_S
                if any(work.kind.digest() != work.code for work in works):
                    raise RuntimeError("the code has changed since this run began: start it again")
            for future in sorted(done, key=id):
                for line in future.result():
                    ledger.add(line)
                    yield line
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def replay_command(line: Line) -> str:
    """Return the command that runs a seed alone and tells everything."""
    return f'python scripts/seeds.py --replay "{line.kind}" {line.seed}'


def show_progress(console: Console, works: Sequence[Work], lines: Iterator[Line]) -> None:
    """Run, with a bar of progress or, without a terminal, a line a minute."""
    total = sum(len(work.wanted) for work in works)
    done = total - sum(len(work.left) for work in works)
    columns = (
        TextColumn("seeds"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[kind]}"),
    )
    said = time.monotonic()
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=total, completed=done, kind="")
        for line in lines:
            done += 1
            progress.update(task, completed=done, kind=line.kind)
            if line.outcome == FAILED:
                progress.console.print(f"failed: {line.kind} {line.seed}: {line.failure}", soft_wrap=True)
                progress.console.print(f"  {replay_command(line)}", soft_wrap=True)
            if not console.is_terminal and time.monotonic() > said + 60:
                said = time.monotonic()
                console.print(f"{done} of {total}")


@dataclass(frozen=True, slots=True)
class Total:
    """What the ledger has of one kind and one text of its code."""

    kind: str
    code: str
    revisions: list[str]
    seeds: int
    failed: int
    simulated_hours: float
    cpu_s: float


def totals(ledger: Ledger, kinds: Sequence[Kind]) -> list[Total]:
    """Count; the oldest code first."""
    found: dict[tuple[str, str], dict[int, Line]] = {}
    for line in ledger.lines:
        found.setdefault((line.kind, line.code), {})[line.seed] = line
    result = []
    for kind in kinds:
        for (name, code), lines in found.items():
            if name == kind.name:
                each = list(lines.values())
                result.append(
                    Total(
                        name,
                        code,
                        list(dict.fromkeys(line.revision for line in each)),
                        len(each),
                        sum(line.outcome == FAILED for line in each),
                        round(sum(line.simulated_s for line in each) / 3600, 2),
                        round(sum(line.cpu_s for line in each) / len(each), 3),
                    )
                )
    return result


def report(console: Console, ledger: Ledger, works: Sequence[Work], as_json: bool) -> int:
    """Print what the ledger has; returns the exit code."""
    now = {(work.kind.name, work.code) for work in works}
    counted = totals(ledger, [work.kind for work in works])
    current = [total for total in counted if (total.kind, total.code) in now]
    known = [(work, ledger.of(work.kind, work.code)) for work in works]
    failed = [
        lines[seed] for work, lines in known for seed in work.wanted if seed in lines and lines[seed].outcome == FAILED
    ]
    if as_json:
        rows = [asdict(total) | {"current": total in current} for total in counted]
        failures = [asdict(line) | {"replay": replay_command(line)} for line in failed]
        print(json.dumps({"revision": ledger.revision, "totals": rows, "failures": failures}))
        return 1 if failed else 0
    table = Table("kind", "seeds", "failed", "simulated hours", "CPU s a seed", title="this code")
    for total in current:
        table.add_row(total.kind, f"{total.seeds:,}", str(total.failed), f"{total.simulated_hours:,}", f"{total.cpu_s}")
    console.print(table)
    whole = sum(total.seeds for total in current if KINDS[total.kind].whole)
    console.print(f"{whole:,} seeds of whole clusters, {len(failed)} seeds failed, at {ledger.revision[:20]}")
    for line in failed:
        console.print(f"failed: {line.kind} {line.seed}: {line.failure}\n  {replay_command(line)}", soft_wrap=True)
    return 1 if failed else 0


def write_summary(ledger: Ledger, path: Path) -> None:
    """Write the page of what has run."""
    text = [
        *PAGE.splitlines(),
        "",
        "| kind | code | revisions | seeds | failed | simulated hours | CPU s a seed |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    counted = totals(ledger, list(KINDS.values()))
    for total in counted:
        revisions = ", ".join(r[:9] + ("-dirty" if "-" in r else "") for r in total.revisions)
        text.append(
            f"| {total.kind} | {total.code[:8]} | {revisions} | {total.seeds:,} | {total.failed} | "
            f"{total.simulated_hours:,} | {total.cpu_s} |"
        )
    whole = sum(total.seeds for total in counted if KINDS[total.kind].whole)
    clean = whole - sum(total.failed for total in counted if KINDS[total.kind].whole)
    core = sum(total.seeds for total in counted if not KINDS[total.kind].whole)
    text += [
        "",
        f"Whole clusters: {whole:,} runs, {clean:,} of them without failure. "
        f"Smaller worlds, without whole replicas: {core:,} runs.",
    ]
    failures = [line for line in ledger.lines if line.outcome == FAILED]
    if failures:
        text += ["", "| failed | seed | code | message | later |", "|---|---:|---|---|---|"]
        text += [_failure_row(ledger, line) for line in failures]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(text) + "\n")


def _failure_row(ledger: Ledger, failed: Line) -> str:
    later = [other for other in ledger.lines if (other.kind, other.seed) == (failed.kind, failed.seed)]
    newest = later[-1]
    now = "" if newest is failed else f"{newest.outcome} with {newest.code[:8]}"
    message = failed.failure.replace("|", "\\|")[:160]
    return f"| {failed.kind} | {failed.seed} | {failed.code[:8]} | {message} | {now} |"


def _kinds(text: str) -> list[Kind]:
    names = [name.strip() for name in text.split(",")]
    unknown = [name for name in names if name not in KINDS]
    if unknown:
        raise argparse.ArgumentTypeError(f"there is no kind {unknown[0]}; there are {', '.join(KINDS)}")
    return [KINDS[name] for name in names]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="seeds.py", description="Runs simulated worlds by the thousand.")
    parser.add_argument("--kinds", type=_kinds, default=list(KINDS.values()), metavar="A,B", help="default: all")
    parser.add_argument("--seeds", type=parse_seeds, metavar="A-B", help="both inclusive; A:B leaves B out")
    parser.add_argument("--count", type=int, default=0, metavar="N", help="so many seeds of each kind")
    parser.add_argument("--minutes", type=float, default=0.0, metavar="M", help="begin nothing after so long")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="default: one a processor")
    parser.add_argument("--retry-failed", action="store_true", help="run seeds again that failed with this code")
    parser.add_argument("--ledgers", type=Path, default=ROOT / "build" / "seeds", metavar="DIR")
    parser.add_argument("--replay", nargs=2, metavar=("KIND", "SEED"), help="run one seed here, and tell everything")
    parser.add_argument("--list", action="store_true", help="say what the ledger has, and run nothing")
    parser.add_argument("--summary", action="store_true", help="write bench/results/seeds.md, and run nothing")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    options = parser.parse_args(arguments)
    if options.replay and (options.replay[0] not in KINDS or not options.replay[1].isdigit()):
        parser.error(f"--replay takes a kind ({', '.join(KINDS)}) and a seed")
    return options


def replay(kind: Kind, seed: int) -> int:
    """Run one seed and print all that is known; returns the exit code."""
    failure, simulated_s = try_seed(kind, seed, verbose=True)
    print(f"{kind.name} {seed}: {failure or PASSED}, {simulated_s:.1f} s simulated")
    return 1 if failure else 0


def main(arguments: Sequence[str]) -> int:
    """Run what the arguments select; returns the exit code."""
    options = parse(arguments)
    if options.replay:
        return replay(KINDS[options.replay[0]], int(options.replay[1]))
    console = Console(highlight=False, markup=False, stderr=options.format == "json")
    ledger = Ledger(options.ledgers, revision(ROOT))
    works = plan(ledger, options)
    if options.summary:
        write_summary(ledger, ROOT / "bench" / "results" / "seeds.md")
        return 0
    if not options.list:
        try:
            show_progress(console, works, run_all(works, ledger, options.processes, options.minutes))
        except KeyboardInterrupt:
            console.print("interrupted; the next call goes on from here")
            return 2
    return report(console, ledger, works, options.format == "json")


def interrupt(signum: int, frame: object) -> None:
    """End a run on SIGTERM as on Ctrl-C."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, interrupt)
    sys.exit(main(sys.argv[1:]))
