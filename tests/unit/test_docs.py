"""The documents are true where that can be checked: links, folders, make targets, dependencies, locks."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def anchors(document: Path) -> set[str]:
    """The fragments that the headings of a document can be linked by, as GitHub makes them."""
    headings = re.findall(r"^#+ +(.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(document: Path) -> list[str]:
    """The links of a document to files or headings that do not exist."""
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text()):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, fragment = target.partition("#")
        path = document.parent / name if name else document
        if not path.exists() or (fragment and fragment not in anchors(path)):
            broken.append(target)
    return broken


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    assert broken_links(document) == []


def test_broken_links_are_noticed(tmp_path: Path) -> None:
    document = tmp_path / "a.md"
    document.write_text(
        "# Two words\n[x](b.md) [y](#two-words) [z](#three) [w](a.md#two-words) [v](https://example.org)\n"
    )
    assert broken_links(document) == ["b.md", "#three"]


def first_column(document: Path) -> list[str]:
    """The first cell of every table row, headings and rules left out."""
    rows = [line for line in document.read_text().splitlines() if line.startswith("| ")]
    return [row.split("|")[1].strip() for row in rows]


def test_architecture_names_folders_that_exist() -> None:
    named = [cell.strip("`") for cell in first_column(ROOT / "docs" / "architecture.md") if cell.endswith("/`")]
    assert "spanstore/paxos/" in named
    assert [name for name in named if not (ROOT / name).is_dir()] == []


def test_architecture_names_every_package() -> None:
    named = {cell.strip("`").rstrip("/") for cell in first_column(ROOT / "docs" / "architecture.md")}
    roots = ("f1common", "spanstore", "client", "deploy")
    packages = {
        str(path.parent.relative_to(ROOT))
        for root in roots
        for pattern in ("__init__.py", "*/__init__.py")
        for path in (ROOT / root).glob(pattern)
    }
    assert packages - named - {"spanstore"} == set()


def test_targets_in_the_readme_are_in_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    mentioned = set(re.findall(r"(?:`|^)make ([a-z-]+)", (ROOT / "README.md").read_text(), re.MULTILINE))
    assert "demo" in mentioned
    assert mentioned - targets == set()


def test_glossary_is_sorted_and_has_each_word_once() -> None:
    words = [cell.split("*")[1].lower() for cell in first_column(ROOT / "docs" / "glossary.md") if "*" in cell]
    assert len(words) > 20
    assert words == sorted(set(words))


def requirement_names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=~! ;]", requirement)[0] for requirement in requirements}


def test_dependencies_page_explains_exactly_what_the_project_asks_for() -> None:
    explained = [cell.strip("`") for cell in first_column(ROOT / "docs" / "dependencies.md") if cell.startswith("`")]
    asked = requirement_names(PROJECT["dependencies"] + PROJECT["optional-dependencies"]["dev"])
    assert sorted(explained) == sorted(asked)


def locked(name: str) -> dict[str, str]:
    """Package -> its block in a lock file."""
    blocks = re.split(r"^(?=[a-z0-9])", (ROOT / name).read_text(), flags=re.MULTILINE)[1:]
    return {re.split(r"[=\[]", block)[0]: block for block in blocks}


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-dev.lock"])
def test_lock_has_exact_versions_with_hashes_and_names_no_host(name: str) -> None:
    blocks = locked(name)
    loose = [package for package, block in blocks.items() if not re.match(r"[\w.\-\[\]]+==[\w.+!]+ ", block)]
    assert loose == []
    assert [package for package, block in blocks.items() if "--hash=sha256:" not in block] == []
    assert "://" not in (ROOT / name).read_text()


def test_locks_cover_what_the_project_asks_for_and_agree() -> None:
    runtime, everything = locked("requirements.lock"), locked("requirements-dev.lock")
    assert requirement_names(PROJECT["dependencies"]) <= set(runtime)
    assert requirement_names(PROJECT["optional-dependencies"]["dev"]) <= set(everything)
    assert {name: everything.get(name) for name in runtime} == runtime


def test_decision_records_are_numbered_without_gaps() -> None:
    numbers = sorted(int(path.name[:4]) for path in (ROOT / "docs" / "adr").glob("*.md"))
    assert numbers == list(range(1, len(numbers) + 1))
