"""The scrub process: ``python -m spanstore.scrub.worker DATA_DIR MAP_BYTES BYTES_PER_S START``, started by the server.

One pass from the key START (hexadecimal) to the end of the data. Writes a line of JSON for each step; the end of its
output without a last line that says ``done`` means that it died. It ends itself when the server no longer reads.
"""

import os
import signal
import sys
import time
from pathlib import Path

import msgspec

from f1common.clock import boot_us
from spanstore.scrub.online import OnlineScrub
from spanstore.scrub.records import Finding

_STEP_BYTES = 1 << 20
_MICROS = 1_000_000


class Progress(msgspec.Struct, frozen=True):
    """One line: what the last step saw, and where the next one begins (hexadecimal)."""

    resume: str
    records: int
    bytes: int
    findings: tuple[Finding, ...] = ()
    done: bool = False


def _tell(progress: Progress) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(progress) + b"\n")
    sys.stdout.buffer.flush()


def main(arguments: list[str]) -> int:
    """Make one pass."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    data_dir, map_bytes, bytes_per_s, start = arguments
    rate = int(bytes_per_s)
    step_bytes = max(1, min(_STEP_BYTES, rate))
    scrub = OnlineScrub(Path(data_dir), int(map_bytes))
    position: bytes | None = bytes.fromhex(start)
    try:
        _tell(Progress(start, 0, 0, tuple(scrub.groups())))
        while position is not None:
            begun_us = boot_us()
            step = scrub.step(position, step_bytes)
            position = step.resume
            resume = "" if position is None else position.hex()
            _tell(Progress(resume, step.records, step.bytes, tuple(step.findings), position is None))
            pause_us = step.bytes * _MICROS // rate - (boot_us() - begun_us)
            if position is not None and pause_us > 0:
                time.sleep(pause_us / _MICROS)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the server is gone
    finally:
        scrub.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
