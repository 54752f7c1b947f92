"""Processes whose work nobody waits for."""

import os

_LOWEST = 19


def give_way() -> None:
    """Let everybody else on this machine go first, for the rest of this process.

    A low priority alone is not enough: a process that wakes up has to wait for the end of the time slice of whoever
    runs, be its priority ever so low, and a request of a user wakes up one process after another. A process of the idle
    class is interrupted at once. Both only count among processes of one control group, or of one session where the
    kernel makes a group of each (sched(7), autogroups).
    """
    os.nice(_LOWEST)
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except OSError:
        pass  # a sandbox may forbid it; the priority is low in any case
