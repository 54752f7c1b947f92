"""Run the quick tests, two halves at a time: `python scripts/test.py [PYTEST-OPTION...]`; `make test` does.

One half computes, the other starts clusters and waits for them a lot: side by side they take two cores about two
thirds of the time. Each line of output says which half it comes from. The exit code is 0 when both passed.
"""

import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HALVES = {
    "unit": ("tests/unit", "tests/property", "tests/contract"),
    "cluster": ("tests/sim", "tests/integration"),
}


def start(folders: Sequence[str], options: Sequence[str]) -> "subprocess.Popen[str]":
    """Start one half."""
    command = [sys.executable, "-m", "pytest", "-m", "not long", "--color=no", *options, *folders]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def show(name: str, process: "subprocess.Popen[str]") -> None:
    """Print the lines of one half as they come."""
    for line in process.stdout or ():
        print(f"{name:7} | {line}", end="", flush=True)


def main(options: Sequence[str]) -> int:
    """Run both halves; returns the exit code."""
    folders = {path.relative_to(ROOT).parts[1] for path in ROOT.glob("tests/*/**/test_*.py")}
    missing = folders - {name.partition("/")[2] for half in HALVES.values() for name in half}
    if missing:
        raise SystemExit(f"tests of {', '.join(sorted(missing))} are in no half: see HALVES")
    running = {name: start(folders, options) for name, folders in HALVES.items()}
    readers = [threading.Thread(target=show, args=item) for item in running.items()]
    for reader in readers:
        reader.start()
    try:
        codes = [process.wait() for process in running.values()]
    except KeyboardInterrupt:
        for process in running.values():
            process.terminate()
        raise
    finally:
        for reader in readers:
            reader.join()
    return 1 if any(codes) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
