"""``f1 sample``: writes a sample's schema and data as files, for `f1 schema apply` and `f1 load`."""

from pathlib import Path
from typing import Annotated

import typer

from f1common.errors import Code, F1Error
from f1deploy.samples import adwords as adwords_sample
from f1deploy.samples import tpch as tpch_sample

app = typer.Typer(help="Sample schemas and data, written as files.", no_args_is_help=True)

OutOption = Annotated[Path, typer.Option("--out", help="Folder to write into; made if it is not there.")]


def _folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise F1Error(Code.INVALID_ARGUMENT, f"cannot write into {path}: {error.strerror}") from error
    return path


@app.command()
def adwords(
    out: OutOption = Path("adwords"),
    clicks: Annotated[int, typer.Option(min=1, help="Rows of AdClick; everything else grows with it.")] = 200_000,
    seed: Annotated[int, typer.Option(help="The same seed gives the same data.")] = 1,
) -> None:
    """Write the AdWords schema of the F1 paper and data for it."""
    folder = _folder(out)
    ddl, proto = adwords_sample.write_sources(folder)
    paths = adwords_sample.generate(folder, clicks=clicks, seed=seed)
    typer.echo(f"f1 schema apply --yes {ddl} {proto}")
    for table, path in paths.items():
        typer.echo(f"f1 load {table} {path}")


@app.command()
def tpch(
    out: OutOption = Path("tpch"),
    scale: Annotated[float, typer.Option(min=0.001, max=1.0, help="Scale factor; 0.1 is 600,000 line items.")] = 0.01,
    shape: Annotated[str, typer.Option(help="flat, or nested: line items interleaved in orders.")] = "flat",
) -> None:
    """Write the TPC-H schema and data for it (needs the package tpchgen-cli)."""
    if shape not in tpch_sample.SHAPES:
        raise F1Error(Code.INVALID_ARGUMENT, f"--shape is one of {', '.join(tpch_sample.SHAPES)}, not {shape}")
    folder = _folder(out)
    ddl = folder / f"tpch_{shape}.sql"
    ddl.write_text(tpch_sample.ddl(shape), encoding="utf-8")
    paths = tpch_sample.generate(folder, scale=scale)
    typer.echo(f"f1 schema apply --yes {ddl}")
    for table, path in paths.items():
        typer.echo(f"f1 load {table} {path}")
