"""``f1 bench NAME``: the benchmarks of all tiers, each contributed as an entry point of the group ``f1.bench``."""

from importlib.metadata import entry_points

import typer

GROUP = "f1.bench"

app = typer.Typer(help="Benchmarks, with another system beside ours where there is one.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Benchmarks, with another system beside ours where there is one."""


for _point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
    app.command(_point.name)(_point.load())
