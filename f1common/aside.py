"""Work on many rows goes to a thread, so that the requests of everybody else are answered meanwhile.

An event loop answers nobody while it works. A statement that writes a hundred thousand rows takes seconds of that in
one step; on a thread the interpreter changes to the loop again and again. It takes one thread: several would share the
interpreter with the loop, and each would leave it less. A few rows are quicker done in place.

The simulator's loop does everything in place, so that runs can be repeated.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

__all__ = ["MANY_ROWS", "aside"]

T = TypeVar("T")

MANY_ROWS: Final = 1_000
"""So many rows take a few tens of milliseconds to plan."""

_THREAD: Final = ThreadPoolExecutor(1, thread_name_prefix="many rows")


async def aside(rows: int, work: Callable[[], T]) -> T:
    """Return what ``work`` on so many ``rows`` returns. Nothing else may use what it works on. Raises what it raises.

    Who is cancelled meanwhile leaves the work to its end.
    """
    if rows < MANY_ROWS:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_THREAD, work)
