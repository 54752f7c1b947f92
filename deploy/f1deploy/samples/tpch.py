"""TPC-H: its schema, flat and as a hierarchy, its 22 queries, and its data by ``tpchgen-cli``."""

import re
import shutil
import subprocess
import sys
from decimal import Decimal
from importlib.resources import files
from pathlib import Path

from f1common.errors import Code, F1Error

TABLES = ("region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem")
"""In the order in which they can be loaded: what is referenced first."""

SHAPES = ("flat", "nested")
"""Every table a root; or lines below their orders and part suppliers below their parts."""

_GENERATOR = "tpchgen-cli"
_HEADING = re.compile(r"^-- Q(\d+): .*$", re.MULTILINE)


def ddl(shape: str) -> str:
    """Return the DDL of one of the :data:`SHAPES`."""
    return files("f1deploy.samples").joinpath(f"tpch_{shape}.sql").read_text(encoding="utf-8")


def queries(scale: float) -> dict[int, str]:
    """Return the text of each query by its number, for data of a scale."""
    text = files("f1deploy.samples").joinpath("tpch_queries.sql").read_text(encoding="utf-8")
    fraction = Decimal("0.0001") / Decimal(str(scale))
    parts = _HEADING.split(text.replace(":fraction", f"{fraction:f}"))[1:]
    return {int(number): query.strip().rstrip(";") for number, query in zip(parts[::2], parts[1::2], strict=True)}


def generate(directory: Path, *, scale: float) -> dict[str, Path]:
    """Write one Parquet file per table and return their paths by table name.

    Raises F1Error NOT_FOUND if the generator is not installed, INTERNAL if it fails.
    """
    beside = Path(sys.executable).with_name(_GENERATOR)
    command = str(beside) if beside.exists() else shutil.which(_GENERATOR)
    if command is None:
        raise F1Error(Code.NOT_FOUND, f"{_GENERATOR} is not installed: it is a development dependency, `make install`")
    made = subprocess.run(
        [command, "parquet", "--scale-factor", str(scale), f"--output-dir={directory}"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if made.returncode:
        raise F1Error(Code.INTERNAL, f"{_GENERATOR} failed: {made.stderr.strip()}")
    return {name: directory / f"{name}.parquet" for name in TABLES}
