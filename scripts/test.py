"""Run the quick tests side by side: `python scripts/test.py [--only SUITE,...] [PYTEST-OPTION...]`; `make test` does.

Four suites: `unit` computes in small steps, `embedded` runs databases in one process, `sim` whole simulated clusters,
and `cluster` starts real processes and waits for them a lot. The files of each are dealt out into parts, a pytest
process each. As many parts run at the same time as there are processors, and one more, because tests wait now and then:
one for two processors is of `cluster` while there is anything else to do. So all are busy to the end.

Each line of output says which part it comes from; what failed is said once more at the end, where logs that keep only
their last lines still have it. The exit code is 0 when all passed.
"""

import argparse
import os
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WAITING = "cluster"


@dataclass(frozen=True, slots=True)
class Suite:
    """Folders, and into how many parts their files are dealt out."""

    folders: tuple[str, ...]
    parts: int


SUITES = {
    "unit": Suite(("tests/unit", "tests/property", "tests/contract"), 3),
    "embedded": Suite(("tests/embedded",), 3),
    "sim": Suite(("tests/sim",), 4),
    "cluster": Suite(("tests/integration",), 6),
}

NOTHING_COLLECTED = 5

# How the lines of pytest's short summary begin.
FAILURE = ("FAILED ", "ERROR ")


@dataclass(frozen=True, slots=True)
class Part:
    """What one pytest process runs."""

    suite: str
    name: str
    files: tuple[str, ...]


def deal(names: Sequence[str], root: Path = ROOT) -> list[Part]:
    """Return the parts of these suites: every file of tests is in one of them."""
    parts = []
    for name in names:
        suite = SUITES[name]
        paths = sorted(path for folder in suite.folders for path in (root / folder).rglob("test_*.py"))
        files = [path.relative_to(root).as_posix() for path in paths]
        for number in range(suite.parts):
            if files[number :: suite.parts]:
                parts.append(Part(name, f"{name} {number + 1}/{suite.parts}", tuple(files[number :: suite.parts])))
    return parts


def unclaimed(root: Path = ROOT) -> list[str]:
    """Return files of tests that no suite has."""
    claimed = {file for part in deal(list(SUITES), root) for file in part.files}
    files = {path.relative_to(root).as_posix() for path in (root / "tests").rglob("test_*.py")}
    return sorted(files - claimed)


class Run:
    """Parts that wait, run and have ended."""

    def __init__(self, parts: Sequence[Part], options: Sequence[str], processors: int, root: Path = ROOT) -> None:
        self.codes: dict[str, int] = {}
        self.failures: list[str] = []
        self._waiting = list(parts)
        self._options = tuple(options)
        self._root = root
        self._clusters = 0
        self._most_clusters = max(1, processors // 2)
        self._slots = processors + 1
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()

    def take(self) -> Part | None:
        """Return the next part to run: one of clusters unless enough of them run and there is something else."""
        with self._lock:
            wants_cluster = self._clusters < self._most_clusters
            self._waiting.sort(key=lambda part: (part.suite == WAITING) != wants_cluster)
            part = self._waiting.pop(0) if self._waiting else None
            self._clusters += part is not None and part.suite == WAITING
            return part

    def ended(self, part: Part, code: int) -> None:
        """Note the exit code of a part."""
        with self._lock:
            self.codes[part.name] = code
            self._clusters -= part.suite == WAITING

    def all(self) -> int:
        """Run everything; returns the exit code."""
        threads = [threading.Thread(target=self._slot, daemon=True) for _ in range(self._slots)]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except KeyboardInterrupt:
            with self._lock:
                self._waiting.clear()
                for process in self._running:
                    process.terminate()
            raise
        return verdict(list(self.codes.values()))

    def _slot(self) -> None:
        while part := self.take():
            # Whatever goes wrong with a part, it has not passed.
            code = -1
            try:
                code = self._one(part)
            finally:
                self.ended(part, code)

    def _one(self, part: Part) -> int:
        """Run a part, print its lines as they come and how long it took, and return its exit code."""
        command = [sys.executable, "-m", "pytest", "-m", "not long", "--color=no", *self._options, *part.files]
        began = time.monotonic()
        process = subprocess.Popen(command, cwd=self._root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        with self._lock:
            self._running.add(process)
        failures = []
        for line in process.stdout or ():
            print(f"{part.name:12} | {line}", end="", flush=True)
            if line.startswith(FAILURE):
                failures.append(line.rstrip())
        code = process.wait()
        with self._lock:
            self._running.discard(process)
            self.failures += [f"{part.name:12} | {failure}" for failure in failures]
            if code not in (0, NOTHING_COLLECTED) and not failures:
                self.failures.append(f"{part.name:12} | ended with {code}, and named no test")
        print(f"{part.name:12} | ended with {code} after {time.monotonic() - began:.0f} s", flush=True)
        return code


def verdict(codes: Collection[int]) -> int:
    """Return the exit code of all: some tests ran, and none failed. An expression (-k) may leave none in a part."""
    return 0 if 0 in codes and set(codes) <= {0, NOTHING_COLLECTED} else 1


def _suites(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in SUITES]
    if unknown:
        raise argparse.ArgumentTypeError(f"there is no suite {unknown[0]}; there are {', '.join(SUITES)}")
    return names


def main(arguments: Sequence[str]) -> int:
    """Run the suites that the arguments name; returns the exit code."""
    description = "Runs the quick tests side by side; further options are pytest's."
    parser = argparse.ArgumentParser(prog="test.py", description=description, allow_abbrev=False)
    parser.add_argument("--only", type=_suites, default=list(SUITES), metavar="SUITE,...", help="default: all")
    chosen, options = parser.parse_known_args(arguments)
    missing = unclaimed()
    if missing:
        raise SystemExit(f"{', '.join(missing)}: tests that are in no suite; see SUITES")
    began = time.monotonic()
    run = Run(deal(chosen.only), options, os.cpu_count() or 1)
    code = run.all()
    for failure in run.failures:
        print(failure)
    print(f"{'all':12} | ended with {code} after {time.monotonic() - began:.0f} s")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
