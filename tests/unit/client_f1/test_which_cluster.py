"""How commands are told of a cluster: every one that takes addresses takes a directory instead."""

from importlib.metadata import entry_points
from pathlib import Path

import pytest

from f1.cli import GROUP, build, run

COMMANDS = [
    "sql -c x",
    "status",
    "check",
    "load T file.csv",
    "changes tail T",
    "schema show",
    "schema diff s.sql",
    "schema plan s.sql",
    "schema apply s.sql",
    "schema ids",
    "schema jobs",
    "schema history",
    "schema pause 1",
    "schema resume 1",
    "schema cancel 1",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_directory_names_a_cluster(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.sql").write_text("CREATE TABLE T (A INT64, PRIMARY KEY (A));")
    words = [*command.split(), "--dir", "c"]
    for more, told in (([], "c is no directory of a cluster"), (["--host", "h:1"], "--host and --dir both name")):
        if command != "status" or more:  # which shows an empty directory as such
            code = run(build(entry_points(group=GROUP), words + more), words + more)
            assert (code, told in capsys.readouterr().err) == (1, True), (words, more)
