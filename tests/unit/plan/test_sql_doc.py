"""docs/sql.md is complete: every setting and every rule is in it, and nothing else."""

import re
from pathlib import Path

from f1server.exec.duck import SETTINGS
from f1server.plan.rules import RULE_NAMES

DOC = (Path(__file__).parents[3] / "docs" / "sql.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return DOC.split(f"\n{title}", 1)[1].split("\n## ", 1)[0]


def test_every_setting_is_explained() -> None:
    said = re.findall(r"`(\w+) = ('?[\w]+'?)`", section("## What makes DuckDB answer"))
    assert sorted(f"{name} = {value}" for name, value in said) == sorted(SETTINGS)


def test_every_rule_is_explained_in_order() -> None:
    assert tuple(re.findall(r"^\| `(\w+)` \|", section("## How tables are read"), re.MULTILINE)) == RULE_NAMES
