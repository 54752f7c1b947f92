"""Showing the logs of several processes, each line under its process's name, and following them."""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

_TAIL_BLOCK = 65_536
_FOLLOW_POLL_S = 0.2


def last_lines(path: Path, count: int) -> tuple[list[str], int]:
    """Return the last ``count`` lines of a log and where it ended; nothing for a log that does not exist."""
    try:
        with path.open("rb") as file:
            end = position = file.seek(0, os.SEEK_END)
            data = b""
            while position > 0 and data.count(b"\n") <= count:
                step = min(_TAIL_BLOCK, position)
                position -= step
                file.seek(position)
                data = file.read(step) + data
    except FileNotFoundError:
        return [], 0
    return data.decode("utf-8", "replace").splitlines()[-count:] if count else [], end


def show(files: Mapping[str, Path], count: int, emit: Callable[[str, str], None]) -> dict[str, int]:
    """Emit (name, line) for the last lines of every log, one log after the other; return where each ended."""
    ends = {}
    for name, path in files.items():
        lines, ends[name] = last_lines(path, count)
        for line in lines:
            emit(name, line)
    return ends


def follow(
    files: Mapping[str, Path],
    ends: dict[str, int],
    emit: Callable[[str, str], None],
    keep_on: Callable[[], bool] = lambda: True,
) -> None:
    """Emit complete lines as they are written, until ``keep_on`` says no."""
    partial = dict.fromkeys(files, b"")
    while keep_on():
        for name, path in files.items():
            try:
                with path.open("rb") as file:
                    if file.seek(0, os.SEEK_END) < ends[name]:  # begun anew
                        ends[name], partial[name] = 0, b""
                    file.seek(ends[name])
                    data = file.read()
            except FileNotFoundError:
                continue
            ends[name] += len(data)
            *lines, partial[name] = (partial[name] + data).split(b"\n")
            for line in lines:
                emit(name, line.decode("utf-8", "replace"))
        time.sleep(_FOLLOW_POLL_S)
