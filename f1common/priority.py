"""Processes whose work nobody waits for: ``python -m f1common.priority SHARE MODULE ARGUMENTS`` runs a module as one.

It gives way before the module is imported, which takes a second of a processor, too.
"""

import os
import runpy
import sys
from contextlib import suppress
from pathlib import Path

_LOWEST = 19
_MUST_END = 5
"""A third of the share of other sessions: what has to come to an end does so where processors are busy all the time."""
_SHARE_OF_SESSION = Path("/proc/self/autogroup")


def give_way(share: int = _LOWEST) -> None:
    """Let everybody else on this machine go first, for the rest of this process.

    ``share``: the priority of its session, 0 (that of others) to 19.

    A low priority alone is not enough: a process that wakes up has to wait for the end of the time slice of whoever
    runs, be its priority ever so low, and a request of a user wakes up one process after another. A process of the idle
    class is interrupted at once.

    Both only count among processes of one session where the kernel divides processors among sessions first (sched(7),
    autogroups): as a part of its server's session this process would have the session's whole share whenever the server
    itself has nothing to do. So it gets a session of its own, of a lower priority. Of control groups with shares of
    processors the same is true, and left to who sets them up.
    """
    with suppress(PermissionError):  # it leads a group of processes already
        os.setsid()
    with suppress(OSError):  # another kernel, or it is asked too often
        _SHARE_OF_SESSION.write_text(str(share))
    os.nice(_LOWEST)
    with suppress(OSError):  # a sandbox may forbid it; the priority is low in any case
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def module_that_gives_way(name: str, *, must_end: bool = False) -> tuple[str, ...]:
    """Return the arguments of Python that run a module of ours as a process that gives way; its own follow.

    ``must_end``: somebody will wait for it in the end, however busy the machine is.
    """
    # -P: what lies in the working directory is not to be imported.
    return "-P", "-m", "f1common.priority", str(_MUST_END if must_end else _LOWEST), name


if __name__ == "__main__":
    give_way(int(sys.argv[1]))
    del sys.argv[:2]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
