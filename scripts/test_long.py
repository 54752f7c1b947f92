"""`make test-long`: the tests that take minutes or hours, in units that are run once per revision.

`JOBS` declares what there is to run. Each job falls into units: one pytest node, or one range of simulator seeds. Every
finished unit is a line in `build/long/REVISION/ledger.jsonl`, its output a file beside it. A later call skips what the
ledger has, so that an interrupted run goes on where it stopped; an interrupted unit leaves no line and runs again. A
work tree with changes has a revision of its own, named after the changes.

The exit code is 0 when every unit of the selection has passed, 1 when one failed, 2 when interrupted.
"""

import argparse
import contextlib
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from scripts.worlds import KINDS

ROOT = Path(__file__).resolve().parent.parent
PASSED = "passed"
FAILED = "failed"
POLL_S = 0.05
SELECTED = "long or hypothesis"
"""The marks of tests that are units."""


@dataclass(frozen=True, slots=True)
class Unit:
    """What is run, and recorded, as a whole. `name` identifies it in the ledger."""

    name: str
    command: tuple[str, ...]
    timeout_s: float


class Job(Protocol):
    """Something long to run; `units` is the same sequence at every call of one revision."""

    @property
    def name(self) -> str: ...

    def units(self, root: Path) -> Iterator[Unit]: ...


@dataclass(frozen=True, slots=True)
class PytestJob:
    """Every test below `path` that is marked long and every property, one unit each, under the wide profile.

    Properties run with few examples in quick runs and with thousands here: hypothesis marks them.
    """

    name: str
    path: str
    timeout_s: float = 7_200.0

    def units(self, root: Path) -> Iterator[Unit]:
        """Collects the tests. Raises RuntimeError when pytest cannot."""
        collect = [sys.executable, "-m", "pytest", "-m", SELECTED, "--collect-only", "-q", self.path]
        done = subprocess.run(collect, cwd=root, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 5):  # 5: nothing collected
            raise RuntimeError(f"pytest cannot collect {self.path}:\n{done.stdout}{done.stderr}")
        for line in done.stdout.splitlines():
            if "::" in line and not line.startswith(" "):
                yield Unit(f"{self.name}:{line}", self._command(line), self.timeout_s)

    def _command(self, node: str) -> tuple[str, ...]:
        return (sys.executable, "-m", "pytest", "-q", "-m", SELECTED, "--hypothesis-profile=long", "--timeout=0", node)


@dataclass(frozen=True, slots=True)
class SeedJob:
    """A command for ranges of seeds: `{seed_from}` (inclusive) and `{seed_to}` (exclusive) are filled in."""

    name: str
    command: tuple[str, ...]
    seeds: range
    per_unit: int
    timeout_s: float = 3_600.0

    def units(self, root: Path) -> Iterator[Unit]:
        """One unit per `per_unit` seeds; the last may be smaller."""
        del root
        for start in range(self.seeds.start, self.seeds.stop, self.per_unit):
            stop = min(start + self.per_unit, self.seeds.stop)
            fill = {"python": sys.executable, "seed_from": start, "seed_to": stop}
            command = tuple(part.format(**fill) for part in self.command)
            yield Unit(f"{self.name}:{start}-{stop}", command, self.timeout_s)


# Everything that `make test-long` runs, the quickest to find a fault first.
SEEDS = ("{python}", "scripts/seeds.py", "--processes", "1", "--seeds", "{seed_from}:{seed_to}", "--kinds")
UNITS_OF_A_KIND = 20
JOBS: tuple[Job, ...] = (
    *(
        SeedJob(kind.name, (*SEEDS, kind.name), kind.range, max(1, kind.seeds // UNITS_OF_A_KIND))
        for kind in KINDS.values()
    ),
    PytestJob("pytest", "tests"),
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the ledger: a unit that has finished."""

    unit: str
    outcome: str
    seconds: float
    exit_code: int
    log: str


class Ledger:
    """The finished units of one revision, in the order in which they finished."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._path = directory / "ledger.jsonl"

    def entries(self) -> Mapping[str, Entry]:
        """The newest entry of each unit. A line torn by a crash is ignored, so its unit runs again."""
        found: dict[str, Entry] = {}
        if self._path.exists():
            for line in self._path.read_text().splitlines():
                try:
                    entry = Entry(**json.loads(line))
                except (ValueError, TypeError):
                    continue
                found[entry.unit] = entry
        return found

    def append(self, entry: Entry) -> None:
        """Adds a line and syncs it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with self._path.open("a+b") as file:
            file.seek(0, os.SEEK_END)
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    file.write(b"\n")  # end the torn line of an earlier crash
            file.write(json.dumps(asdict(entry)).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def revision(root: Path) -> str:
    """The commit of the work tree, and a digest of what differs from it when something does."""

    def git(*arguments: str) -> bytes:
        command = ["git", "-c", "safe.directory=*", "-C", str(root), *arguments]
        return subprocess.run(command, check=True, capture_output=True).stdout

    commit = git("rev-parse", "HEAD").decode().strip()
    changes = hashlib.sha256(git("diff", "--binary", "HEAD"))
    new_files = [name for name in git("ls-files", "-z", "--others", "--exclude-standard").split(b"\0") if name]
    for name in sorted(new_files):
        path = root / os.fsdecode(name)
        changes.update(name + b"\0" + (path.read_bytes() if path.is_file() else b""))
    clean = hashlib.sha256().digest() == changes.digest()
    return commit if clean else f"{commit}-{changes.hexdigest()[:12]}"


class Running:
    """A unit that has been started, in a process group of its own, its output going to a log file."""

    def __init__(self, unit: Unit, root: Path, directory: Path) -> None:
        self.unit = unit
        digest = hashlib.sha256(unit.name.encode()).hexdigest()[:8]
        self._log = Path("logs") / f"{re.sub(r'[^0-9A-Za-z_.-]+', '_', unit.name)[:120]}-{digest}.log"
        (directory / self._log).parent.mkdir(parents=True, exist_ok=True)
        self._output = (directory / self._log).open("wb")
        self._started = time.monotonic()
        self._process = subprocess.Popen(
            unit.command,
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            start_new_session=True,
        )

    def poll(self) -> Entry | None:
        """The entry for the ledger once the unit has ended; kills it when its time is over."""
        seconds = time.monotonic() - self._started
        if self._process.poll() is None:
            if seconds < self.unit.timeout_s:
                return None
            self.kill(f"killed after {self.unit.timeout_s:g} s")
        code = self._process.wait()
        self._output.close()
        outcome = PASSED if code == 0 else FAILED
        return Entry(self.unit.name, outcome, round(seconds, 3), code, self._log.as_posix())

    def kill(self, reason: str) -> None:
        """Kills the process group and says why in the log."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._output.write(f"\n{reason}\n".encode())
        self._output.flush()


def select(units: Sequence[Unit], ledger: Ledger, retry_failed: bool) -> list[Unit]:
    """The units that have still to run."""
    finished = ledger.entries()
    return [
        unit for unit in units if unit.name not in finished or (retry_failed and finished[unit.name].outcome != PASSED)
    ]


def run_all(units: Sequence[Unit], root: Path, ledger: Ledger, workers: int, report: Callable[[Entry], None]) -> None:
    """Runs units, `workers` at a time, each into the ledger as it finishes. Kills what still runs at an exception."""
    queue = list(reversed(units))
    running: list[Running] = []
    try:
        while queue or running:
            while queue and len(running) < workers:
                running.append(Running(queue.pop(), root, ledger.directory))
            for item in list(running):
                entry = item.poll()
                if entry is not None:
                    running.remove(item)
                    ledger.append(entry)
                    report(entry)
            time.sleep(POLL_S)
    finally:
        for item in running:
            item.kill("the run was interrupted")


def summary(console: Console, units: Sequence[Unit], ledger: Ledger) -> int:
    """Prints what the ledger says of `units`; returns the exit code."""
    finished = ledger.entries()
    known = [finished[unit.name] for unit in units if unit.name in finished]
    failed = [entry for entry in known if entry.outcome != PASSED]
    for entry in failed:
        console.print(
            f"failed: {entry.unit} (exit code {entry.exit_code}, {ledger.directory / entry.log})", soft_wrap=True
        )
    seconds = sum(entry.seconds for entry in known)
    waiting = len(units) - len(known)
    console.print(
        f"{len(known) - len(failed)} passed, {len(failed)} failed, {waiting} not run, {seconds:.1f} s of work"
    )
    return 1 if failed or waiting else 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make test-long", description="Runs the long tests of this revision once.")
    parser.add_argument("--list", action="store_true", help="show the units and what the ledger has on each")
    parser.add_argument("--only", default="", metavar="TEXT", help="only units whose name contains TEXT")
    parser.add_argument("--retry-failed", action="store_true", help="run failed units again")
    parser.add_argument("--workers", type=int, default=1, help="units at the same time (default 1)")
    return parser.parse_args(arguments)


def main(
    arguments: Sequence[str], jobs: Sequence[Job] = JOBS, root: Path = ROOT, console: Console | None = None
) -> int:
    """Runs what the arguments select; returns the exit code."""
    options = parse(arguments)
    console = console or Console(highlight=False, markup=False)
    ledger = Ledger(root / "build" / "long" / revision(root))
    units = [unit for job in jobs for unit in job.units(root) if options.only in unit.name]
    if options.list:
        finished = ledger.entries()
        for unit in units:
            console.print(
                f"{finished[unit.name].outcome if unit.name in finished else 'not run':8} {unit.name}", soft_wrap=True
            )
        return 0
    waiting = select(units, ledger, options.retry_failed)
    console.print(
        f"{len(units)} units, {len(units) - len(waiting)} already in {ledger.directory.relative_to(root)}",
        soft_wrap=True,
    )
    columns = (TextColumn("long tests"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=len(units), completed=len(units) - len(waiting))

        def report(entry: Entry) -> None:
            progress.advance(task)
            progress.console.print(f"{entry.outcome} {entry.unit} {entry.seconds:.1f} s", soft_wrap=True)

        try:
            run_all(waiting, root, ledger, options.workers, report)
        except KeyboardInterrupt:
            console.print("interrupted; the next call goes on from here")
            return 2
    return summary(console, units, ledger)


def interrupt(signum: int, frame: object) -> None:
    """Ends a run on SIGTERM as on Ctrl-C, so that no unit is left running."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, interrupt)
    sys.exit(main(sys.argv[1:]))
