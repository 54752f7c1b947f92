"""Processes of this machine: starting them detached, knowing them again, sending them signals.

A pid alone is no name: the kernel gives it to another process later. So a process is remembered as pid, start time
(since boot) and boot, and a signal goes through a pidfd that is opened before the start time is compared, so that it
can never reach another process.
"""

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import msgspec

from f1common.clock import boot_id
from f1common.errors import Code, F1Error
from f1common.rpc.transport import with_transport

_DEAD_STATES = frozenset("ZX")
_STOPPED_STATES = frozenset("Tt")
# In /proc/PID/stat, counted after the command's closing parenthesis.
_STATE_FIELD = 0
_START_FIELD = 19


class Identity(msgspec.Struct, frozen=True):
    """A process for ever: ``start_ticks`` is its start time in clock ticks since the boot ``boot``."""

    pid: int
    start_ticks: int
    boot: str


def _stat(pid: int) -> list[str] | None:
    """Return the fields of ``/proc/PID/stat`` from the state on, None if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command's name may hold anything, spaces and parentheses included.
    return text[text.rindex(")") + 1 :].split()


def identify(pid: int) -> Identity | None:
    """Return who the process ``pid`` is now, None if it is dead."""
    fields = _stat(pid)
    if fields is None or fields[_STATE_FIELD] in _DEAD_STATES:
        return None
    return Identity(pid, int(fields[_START_FIELD]), boot_id())


def is_alive(identity: Identity | None) -> bool:
    """Tell whether that very process still runs (or is stopped by a signal)."""
    return identity is not None and identify(identity.pid) == identity


def is_stopped(identity: Identity) -> bool:
    """Tell whether a signal has stopped the process (SIGSTOP), so that it does nothing until SIGCONT."""
    fields = _stat(identity.pid)
    return fields is not None and fields[_STATE_FIELD] in _STOPPED_STATES and is_alive(identity)


def send_signal(identity: Identity | None, number: signal.Signals) -> bool:
    """Send a signal to that very process; False if it is dead. Raises F1Error FAILED_PRECONDITION if not ours."""
    if identity is None:
        return False
    try:
        fd = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return False
    try:
        if not is_alive(identity):
            return False
        signal.pidfd_send_signal(fd, number)
    except ProcessLookupError:
        return False
    except PermissionError as error:
        raise F1Error(
            Code.FAILED_PRECONDITION, f"process {identity.pid} belongs to another user; run this command as that user"
        ) from error
    finally:
        os.close(fd)
    return True


def spawn(arguments: Sequence[str], log: Path, *, new_session: bool = False) -> Identity:
    """Start a detached process whose output goes to the end of ``log``. Raises F1Error UNAVAILABLE.

    It gets its own process group, so that a Ctrl-C in a terminal does not reach it; with ``new_session`` also a session
    of its own, so that it outlives the terminal.
    """
    output = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.fspath(log), output, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    group = {"setsid": True} if new_session else {"setpgroup": 0}
    try:
        pid = os.posix_spawn(
            arguments[0],
            list(arguments),
            with_transport(),
            file_actions=actions,
            setsigmask=[],
            setsigdef=[signal.SIGCHLD, signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE],
            **group,
        )
    except OSError as error:
        raise F1Error(Code.UNAVAILABLE, f"cannot start {arguments[0]}: {error.strerror}") from error
    # A child is no zombie's heir: until somebody waits for it, its pid is not given away.
    identity = identify(pid)
    return identity if identity is not None else Identity(pid, 0, boot_id())


def reap(pid: int) -> int | None:
    """Collect the child ``pid`` if it has ended: its exit code, negative for the signal that killed it; else None."""
    try:
        status = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)
    except ChildProcessError:
        return None  # somebody else's child, or collected before
    if status is None:
        return None
    return status.si_status if status.si_code == os.CLD_EXITED else -status.si_status
