"""Run the quick tests, in lanes side by side: `python scripts/test.py [PYTEST-OPTION...]`; `make test` does.

One lane computes in small steps, one in whole simulations, and one starts clusters and waits for them a lot: three
together keep two cores busy. Each line of output says which lane it comes from. The exit code is 0 when all passed.
"""

import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
UNIT = ("tests/unit", "tests/property", "tests/contract")
"""What is run all the time: `make test-unit`."""
LANES = {
    "unit": (*UNIT, "tests/embedded"),
    "sim": ("tests/sim",),
    "cluster": ("tests/integration",),
}


def start(folders: Sequence[str], options: Sequence[str]) -> "subprocess.Popen[str]":
    """Start one lane."""
    command = [sys.executable, "-m", "pytest", "-m", "not long", "--color=no", *options, *folders]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def show(name: str, process: "subprocess.Popen[str]") -> None:
    """Print the lines of one lane as they come, and how long it took."""
    began = time.monotonic()
    for line in process.stdout or ():
        print(f"{name:7} | {line}", end="", flush=True)
    print(f"{name:7} | ended with {process.wait()} after {time.monotonic() - began:.0f} s", flush=True)


def main(options: Sequence[str]) -> int:
    """Run all lanes; returns the exit code."""
    folders = {path.relative_to(ROOT).parts[1] for path in ROOT.glob("tests/*/**/test_*.py")}
    missing = folders - {name.partition("/")[2] for lane in LANES.values() for name in lane}
    if missing:
        raise SystemExit(f"tests of {', '.join(sorted(missing))} are in no lane: see LANES")
    running = {name: start(folders, options) for name, folders in LANES.items()}
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
