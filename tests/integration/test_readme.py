"""The tour of the README, on a cluster."""

import re
import subprocess
import sys
from pathlib import Path

from tests.integration.database import Database, running

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, re.DOTALL)
PROMPT = re.compile(r"^(default>|\.+>) ?")
ADDRESSES = "127.0.0.1:7400,127.0.0.1:7401"


def test_the_tour(tmp_path: Path) -> None:
    (shell,) = (text for _, text in BLOCKS if "$ f1 sql" in text)
    (program,) = (text for kind, text in BLOCKS if kind == "python" and "f1.connect" in text)
    statements = [PROMPT.sub("", line) for line in shell.splitlines() if PROMPT.match(line)]
    assert ADDRESSES in program
    with running(tmp_path) as database:
        (tmp_path / "tour.sql").write_text("\n".join(statements))
        said = database.command("sql", "-f", str(tmp_path / "tour.sql"))
        assert re.search(r"Flowers Ltd +\| +350\.5", said)
        assert said.count("INSERT | Campaign") == 2
        command = [sys.executable, "-c", program.replace(ADDRESSES, database.hosts)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert "'Budget': Decimal('150')" in done.stdout
        assert "UPDATE Campaign (1, 2)  Budget: 250.5 -> 200.5" in database.command("changes", "tail", "Customer")
        _make_files(database, tmp_path)


def _make_files(database: Database, folder: Path) -> None:
    """The files that the table of commands names are made as it says."""
    (makes_rows,) = re.findall(r"`(printf .*?> customers\.csv)`, `f1 load Customer customers\.csv`", README)
    subprocess.run(["sh", "-c", makes_rows], cwd=folder, check=True)
    assert database.command("load", "Customer", str(folder / "customers.csv")).startswith("1 rows loaded")
    assert "`f1 schema show > schema.sql`, change the file, `f1 schema plan schema.sql`" in README
    schema = folder / "schema.sql"
    schema.write_text(database.command("schema", "show") + "CREATE INDEX ByName ON Customer (Name);")
    assert "fill index ByName: 2 entries" in database.command("schema", "plan", str(schema))
    assert "Applied" in database.command("schema", "apply", str(schema))
