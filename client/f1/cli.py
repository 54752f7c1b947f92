"""The ``f1`` command line: finds its commands by entry points and says errors in one line.

Servers and deployment are not imported here: each contributes an entry point of the group ``f1.commands``, a typer
application or a function, and only the one that is named on the command line is loaded. A command raises
:class:`~f1common.errors.F1Error`; the user reads ``CODE: message`` on stderr and the exit code is 1. A traceback
appears only when ``F1_TRACEBACK=1`` is set in the environment.
"""

import os
import sys
import traceback
from collections.abc import Iterable, Sequence
from importlib.metadata import EntryPoint, entry_points, version
from typing import Annotated, Any

import typer

from f1common.errors import Code, F1Error

GROUP = "f1.commands"
DISTRIBUTION = "f1db"

EXIT_ERROR = 1
EXIT_INTERRUPTED = 130


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"f1 {version(DISTRIBUTION)}")
        raise typer.Exit


def _root(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """F1: a distributed SQL database over a replicated, externally consistent storage tier."""


def _unavailable(name: str, reason: Exception) -> Any:
    def command() -> None:
        raise F1Error(Code.UNAVAILABLE, f"`f1 {name}` cannot be loaded ({reason}); run `make install` again")

    command.__doc__ = f"Not available: {reason}."
    return command


def _load(point: EntryPoint) -> Any:
    """Return what the entry point names, or a command that tells why it cannot be loaded."""
    try:
        return point.load()
    except Exception as error:
        if wants_traceback():
            raise
        return _unavailable(point.name, error)


def build(points: Iterable[EntryPoint], arguments: Sequence[str]) -> typer.Typer:
    """Return the application with the command that ``arguments`` name, or with all if they name none (help, typos).

    Loading all of them takes a second, so whoever asks for the version gets the application without any.
    """
    known = {point.name: point for point in points}
    named = next((word for word in arguments if not word.startswith("-")), "")
    # Not "rich", which takes "[default: ...]" in help texts for a style, and leaves it out.
    app = typer.Typer(name="f1", no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="markdown")
    app.callback()(_root)
    wanted = [named] if named in known else [] if not named and "--version" in arguments else sorted(known)
    for name in wanted:
        command = _load(known[name])
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)
    return app


def wants_traceback() -> bool:
    """Tell whether the user asked for tracebacks."""
    return os.environ.get("F1_TRACEBACK", "") not in ("", "0")


def run(app: typer.Typer, arguments: Sequence[str]) -> int:
    """Run ``app`` and return the exit code; whatever goes wrong is one line on stderr."""
    try:
        result = app(args=list(arguments), prog_name="f1", standalone_mode=False)
        sys.stdout.flush()
    except F1Error as error:
        return _failed(error)
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has seen enough; the interpreter's own flush at exit must not complain either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_ERROR
    except Exception as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            return _help(error)
        if hasattr(error, "format_message"):  # what the parser of the command line raises
            return _failed(F1Error(Code.INVALID_ARGUMENT, _usage_message(error)))
        return _failed(F1Error(Code.INTERNAL, f"{type(error).__name__}: {error}; F1_TRACEBACK=1 shows where"))
    return result if isinstance(result, int) else 0


def _failed(error: F1Error) -> int:
    if wants_traceback():
        traceback.print_exc()
    # One line whatever the message quotes.
    typer.echo(" ".join(str(error).split("\n")), err=True)
    return EXIT_ERROR


def _help(error: Any) -> int:
    typer.echo(error.ctx.get_help())
    return EXIT_ERROR


def _usage_message(error: Any) -> str:
    text = str(error.format_message()).rstrip(".")
    context = getattr(error, "ctx", None)
    return f"{text}; see `{context.command_path} --help`" if context is not None else text


def main() -> int:
    """Run the command line of this process and return its exit code."""
    arguments = sys.argv[1:]
    try:
        app = build(entry_points(group=GROUP), arguments)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return run(app, arguments)
