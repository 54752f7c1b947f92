"""What becomes of the tasks of event loops that tests close."""

import asyncio
from asyncio import base_events

left_behind: list[str] = []
"""Tasks whose loop was closed before they had ended; whoever looks takes them away."""

_close = base_events.BaseEventLoop.close


def _close_and_note(loop: base_events.BaseEventLoop) -> None:
    left_behind.extend(repr(task) for task in asyncio.all_tasks(loop))
    _close(loop)


def watch() -> None:
    """From now on, note the tasks that can never run on.

    The garbage collector finds such a task in the middle of another test, into whose output it then complains.
    """
    base_events.BaseEventLoop.close = _close_and_note  # type: ignore[assignment]


def taken() -> list[str]:
    """Return what was left behind since the last call."""
    found = left_behind.copy()
    left_behind.clear()
    return found
