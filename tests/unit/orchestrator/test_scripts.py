"""Golden scripts of the orchestrator's protocol: the figures of patent 9619507, and what goes wrong around them.

A script is blocks of commands, a line `---`, and the steps that they took with their answers. Comments begin with `#`.
`python tests/unit/orchestrator/test_scripts.py --rewrite` writes the answers anew.
"""

import sys
from pathlib import Path

import pytest

from tests.unit.orchestrator.scripted import Script

SCRIPTS = sorted((Path(__file__).parents[2] / "golden" / "orchestrator").glob("*.txt"))


def play(text: str) -> str:
    script = Script()
    blocks = []
    for block in text.strip().split("\n\n"):
        commands, _, _ = block.partition("\n---")
        printed = [
            line for command in commands.splitlines() if not command.startswith("#") for line in script.command(command)
        ]
        blocks.append("\n".join([commands, "---", *(printed or ["ok"])]))
    return "\n\n".join(blocks) + "\n"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(path: Path) -> None:
    text = path.read_text()
    assert play(text) == text, f"see the difference with `python {Path(__file__).name} --rewrite` and git diff"


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 5


if __name__ == "__main__" and "--rewrite" in sys.argv:
    for script_path in SCRIPTS:
        script_path.write_text(play(script_path.read_text()))
