"""How tables are printed, and what a command that waits says meanwhile."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

_PIPE_WIDTH = 180


def wide_console(*, stderr: bool = False) -> Console:
    """Return a console as wide as the terminal; where there is none, wide enough that no table is cut."""
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=_PIPE_WIDTH)


@contextmanager
def told(first: str) -> Iterator[Callable[[str], None]]:
    """Yield what a waiting command tells its progress to: one line at a terminal, else a line for each news."""
    console = wide_console(stderr=True)
    if console.is_terminal:
        with console.status(escape(first)) as status:
            yield lambda text: status.update(escape(text))
        return
    last = ""

    def tell(text: str) -> None:
        nonlocal last
        if text != last:
            console.print(escape(text), soft_wrap=True)
        last = text

    yield tell
