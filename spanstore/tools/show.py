"""How tables are printed."""

from rich.console import Console

_PIPE_WIDTH = 160


def wide_console(*, stderr: bool = False) -> Console:
    """Return a console as wide as the terminal; where there is none, wide enough that no table is cut."""
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=_PIPE_WIDTH)
