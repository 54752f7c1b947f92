"""Programs that a command of ours runs for a while, and how they end with it."""

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

__all__ = ["deaf_to_interrupts", "exit_at_sigterm", "interrupted_with_us", "run_with_us"]


@contextmanager
def exit_at_sigterm() -> Iterator[None]:
    """Have SIGTERM raise SystemExit. Only the main thread may say so; elsewhere it stays what it was."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, _: object) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def deaf_to_interrupts() -> Iterator[None]:
    """Have processes that are started within take no notice of ctrl-C for as long as they live.

    A terminal interrupts all processes of a command at once. Those that only work for another are ended by that one:
    else each of them would print where it was.
    """
    resource_tracker.ensure_running()  # which lets interrupts through again when it is started
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def interrupted_with_us(process: "subprocess.Popen[Any]") -> Iterator[None]:
    """Interrupt a program, as ctrl-C does, if what is within ends early; wait for its end: it may have to tidy up."""
    try:
        yield
    except BaseException:
        process.send_signal(signal.SIGINT)
        process.wait()
        raise


def run_with_us(
    command: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run a command and return what it printed. :func:`subprocess.run` kills it if it is interrupted itself."""
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    with (
        subprocess.Popen(command, cwd=cwd, env=env, text=True, stdin=nothing, stdout=pipe, stderr=pipe) as process,
        interrupted_with_us(process),
    ):
        out, err = process.communicate()
    return subprocess.CompletedProcess(command, process.returncode, out, err)
