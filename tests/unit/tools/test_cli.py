"""The `f1` command line: commands by entry points, errors in one line, exit codes."""

import subprocess
import sys
from importlib.metadata import EntryPoint
from typing import Annotated

import pytest
import typer

from f1.cli import build, main, run
from f1common.errors import Code, F1Error

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _group() -> None:
    """A group of commands."""


@app.command()
def pour(
    cups: int,
    sugar: Annotated[
        int, typer.Option(help="Lumps. [default: $F1_SUGAR, else none]", show_default=False, metavar="N")
    ] = 0,
) -> None:
    """Pour tea."""
    if cups > 10:
        raise F1Error(Code.OUT_OF_RANGE, "the pot holds\nten cups")
    if cups < 0:
        raise ZeroDivisionError("no such cup")
    typer.echo(f"{cups} cups, {sugar} sugar")


def single(exit_code: int = 0) -> None:
    """One command."""
    raise typer.Exit(exit_code)


POINTS = (
    EntryPoint("tea", f"{__name__}:app", "f1.commands"),
    EntryPoint("single", f"{__name__}:single", "f1.commands"),
    EntryPoint("broken", "no.such.module:app", "f1.commands"),
)


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, __name__, sys.modules[pour.__module__])
    monkeypatch.delenv("F1_TRACEBACK", raising=False)


def f1(*arguments: str) -> int:
    return run(build(POINTS, arguments), arguments)


def test_a_command_of_a_group_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert f1("tea", "pour", "2", "--sugar", "1") == 0
    assert capsys.readouterr().out == "2 cups, 1 sugar\n"


def test_the_version_is_shown_without_loading_commands(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []
    load = EntryPoint.load

    def noted(point: EntryPoint) -> object:
        loaded.append(point.name)
        return load(point)

    monkeypatch.setattr(EntryPoint, "load", noted)
    assert f1("--version") == 0
    assert (capsys.readouterr().out.split(" ")[0], loaded) == ("f1", [])
    assert f1("tea", "pour", "2") == 0
    assert loaded == ["tea"]


def test_an_interrupt_while_commands_are_loaded_is_as_one_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(point: EntryPoint) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(EntryPoint, "load", interrupted)
    monkeypatch.setattr(sys, "argv", ["f1", "sql"])
    assert main() == 130


def test_help_shows_what_is_in_brackets(capsys: pytest.CaptureFixture[str]) -> None:
    assert f1("tea", "pour", "--help") == 0
    assert "Lumps. [default: $F1_SUGAR, else none]" in capsys.readouterr().out


def test_an_error_is_code_and_message_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert f1("tea", "pour", "11") == 1
    assert capsys.readouterr() == ("", "OUT_OF_RANGE: the pot holds ten cups\n")


@pytest.mark.parametrize(
    "arguments",
    [("tea", "pour"), ("tea", "pour", "many"), ("tea", "brew"), ("tee",), ("tea", "pour", "1", "--milk"), ("--milk",)],
)
def test_a_wrong_command_line_is_an_invalid_argument(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert f1(*arguments) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("INVALID_ARGUMENT: ")
    assert err.count("\n") == 1
    assert "--help" in err


def test_a_defect_shows_no_traceback_unless_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert f1("tea", "pour", "--", "-1") == 1
    assert capsys.readouterr().err == "INTERNAL: ZeroDivisionError: no such cup; F1_TRACEBACK=1 shows where\n"
    monkeypatch.setenv("F1_TRACEBACK", "1")
    assert f1("tea", "pour", "--", "-1") == 1
    assert "Traceback" in capsys.readouterr().err


def test_a_command_that_cannot_be_loaded_says_so_and_spares_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert f1("broken") == 1
    assert capsys.readouterr().err.startswith("UNAVAILABLE: `f1 broken` cannot be loaded")
    assert f1("--help") == 0
    out = capsys.readouterr().out
    assert "tea" in out
    assert "single" in out


def test_exit_codes_of_commands_are_kept() -> None:
    assert f1("single") == 0
    assert f1("single", "--exit-code", "5") == 5


def test_the_installed_command_knows_its_version_and_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert f1("--version") == 0
    assert capsys.readouterr().out.startswith("f1 0.")
    done = subprocess.run([sys.executable, "-m", "f1", "--help"], capture_output=True, text=True, check=True)
    for name in ("bench", "cluster", "range", "spanserver", "status"):
        assert name in done.stdout


def test_a_reader_that_leaves_early_causes_no_noise() -> None:
    script = "import sys, typer; from f1.cli import run; app = typer.Typer();"
    script += "app.command()(lambda: [typer.echo('x' * 1000) for _ in range(1000)]); sys.exit(run(app, []))"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
