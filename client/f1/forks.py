"""A process that was forked from one that had connected cannot connect: gRPC's threads are not there in the child.

With gRPC's own handlers the child crashes now and then, without them it waits for ever; so they are switched off
(in ``f1/__init__.py``), and the child gets an error. Who has to fork connects afterwards, or lets multiprocessing
start processes by "spawn".
"""

import os

from f1common.errors import Code, F1Error

_owner = 0
"""The process that has connected, or whose parent had."""


def note_connect() -> None:
    """Call before a channel is made or used. Raises F1Error FAILED_PRECONDITION in the child of a process that did."""
    global _owner
    _owner = _owner or os.getpid()
    if _owner != os.getpid():
        raise F1Error(
            Code.FAILED_PRECONDITION,
            "this process was forked from one that was connected, which gRPC does not survive: connect after the fork "
            'only, or start processes with multiprocessing.get_context("spawn")',
        )
