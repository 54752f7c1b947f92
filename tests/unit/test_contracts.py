"""The import contracts of pyproject.toml keep what is right and break on what is wrong.

`make lint` runs them over the code; here they run over skeletons of the packages, with one forbidden import each.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = ROOT / "pyproject.toml"
OURS = ("f1common", "f1server", "master", "slavepool", "spanstore", "txservices", "f1", "f1deploy")

# Module that imports, what it imports, and a word of the contract that must break.
FORBIDDEN = (
    ("spanstore.paxos.replica", "spanstore.mvcc.versions", "Layers"),
    ("spanstore.txn.locks", "spanstore.paxos", "Layers"),
    ("spanstore.engine.base", "spanstore.mvcc", "Layers"),
    ("spanstore.placement.range_map", "spanstore.group", "Layers"),
    ("spanstore.client.router", "spanstore.runtime", "Layers"),
    ("spanstore.group.driver", "spanstore.client", "Layers"),
    ("spanstore.group.driver", "spanstore.scan", "Layers"),
    ("spanstore.client.router", "spanstore.scan.plan", "Layers"),
    ("spanstore.group.driver", "asyncio", "Cores are pure"),
    ("spanstore.runtime.main", "spanstore.testing", "Layers"),
    ("f1common.ids", "spanstore.engine", "f1common imports none"),
    ("f1server.catalog.schema", "f1server.rows", "Layers of the database"),
    ("f1server.catalog.compile", "spanstore.client", "The schema is pure"),
    ("f1server.schemachange.steps.plan", "time", "The states of schema changes"),
    ("f1server.schemachange.steps.plan", "f1server.schemachange.work", "Schema changes"),
    ("f1server.schemachange.jobs.jobs", "f1server.schemachange.executor", "Schema changes"),
    ("spanstore.client.router", "f1server.catalog", "The storage tier"),
    ("f1server.dist.pool", "f1server.sql", "Layers of the database"),
    ("f1server.exec.engine", "f1server.dist", "Layers of the database"),
    ("f1server.dist.pool", "slavepool.process", "An f1server reaches"),
    ("slavepool.process", "f1server.session", "Slaves evaluate"),
    ("slavepool.process", "master.registry", "Slaves evaluate"),
    ("master.service", "f1server.catalog", "The master sees"),
    ("master.registry", "time", "The registry of the master"),
    ("f1.cli", "spanstore.client", "The client library"),
    ("f1.cli", "f1deploy.cli", "The client library"),
    ("f1.orchestrator.stores.lmdb", "spanstore.client", "The client library"),
    ("f1.orchestrator.protocol", "asyncio", "The orchestrator's protocol"),
    ("txservices.locks", "spanstore.group", "The orchestrator's services"),
    ("f1deploy.cli", "spanstore.runtime.main", "Deployment"),
    ("spanstore.paxos.replica", "asyncio", "Cores are pure"),
    ("spanstore.mvcc.versions", "time", "Cores are pure"),
    ("spanstore.txn.locks", "grpc", "Cores are pure"),
    ("spanstore.txn.locks", "f1common.pb", "Cores are pure"),
    ("spanstore.group.driver", "lmdb", "The process chooses the engine"),
)
ALLOWED = (
    ("spanstore.testing.sim", "spanstore.runtime"),
    ("spanstore.runtime.main", "spanstore.group.driver"),
    ("spanstore.runtime.main", "spanstore.engine.lmdb_engine"),
    ("spanstore.client.router", "spanstore.placement"),
    ("spanstore.group.driver", "spanstore.paxos.replica"),
    ("spanstore.runtime.main", "spanstore.client"),
    ("spanstore.runtime.main", "spanstore.scan.pool"),
    ("spanstore.scan.worker", "spanstore.engine.lmdb_engine"),
    ("spanstore.mvcc.versions", "spanstore.engine.base"),
    ("spanstore.paxos.replica", "random"),
    ("spanstore.engine.lmdb_engine", "lmdb"),
    ("f1deploy.cli", "spanstore.client"),
    ("f1server.session", "f1server.txn"),
    ("f1server.sql", "f1server.dist"),
    ("f1server.dist.pool", "f1server.exec"),
    ("slavepool.process", "f1server.exec"),
    ("slavepool.process", "spanstore.client"),
    ("f1server.testing.cluster", "slavepool.process"),
    ("master.service", "f1common.rpc"),
    ("f1server.catalog.store", "spanstore.client"),
    ("f1.cli", "f1common.ids"),
    ("f1.orchestrator.stores.span", "spanstore.client"),
)


def skeleton(root: Path, imports: list[tuple[str, str]]) -> None:
    """Every module that a contract or an import names, as a package, with these imports in them."""
    settings = PYPROJECT.read_text()
    (root / "pyproject.toml").write_text(settings[settings.index("[tool.importlinter]") :])
    contracts = tomllib.loads(settings)["tool"]["importlinter"]["contracts"]
    named = set(re.findall(r"[\w.]+", repr(contracts))) | {name for pair in imports for name in pair}
    # With containers, layers are named as they are called within.
    named |= {f"{c}.{layer}" for item in contracts for c in item.get("containers", ()) for layer in item["layers"]}
    for name in sorted(named):
        if name.split(".")[0] not in OURS:
            continue
        parts = name.split(".")
        for depth in range(1, len(parts) + 1):
            package = root.joinpath(*parts[:depth])
            package.mkdir(parents=True, exist_ok=True)
            (package / "__init__.py").touch()
    for importer, imported in imports:
        with root.joinpath(*importer.split("."), "__init__.py").open("a") as file:
            file.write(f"import {imported}\n")


# One process for all of them: starting import-linter takes longer than a skeleton. Its code is looked for there first.
LINT = """
import importlib, os, sys
from importlinter.cli import lint_imports
for root in sys.argv[1:]:
    os.chdir(root)
    sys.path[0] = root
    importlib.invalidate_caches()
    print("exit code", lint_imports(no_cache=True), flush=True)
"""


def broken(roots: list[Path]) -> list[list[str]]:
    """The names of the contracts that each of the skeletons breaks."""
    command = [sys.executable, "-c", LINT, *map(str, roots)]
    done = subprocess.run(command, cwd=roots[0], capture_output=True, text=True, check=True)
    found = []
    for report in re.findall(r"(.+?)^exit code (\d)$", done.stdout, re.MULTILINE | re.DOTALL):
        verdicts = re.findall(r"^(.+) (KEPT|BROKEN)\b", report[0], re.MULTILINE)
        assert verdicts, report[0] + done.stderr
        assert (report[1] != "0") == any(verdict == "BROKEN" for _, verdict in verdicts)
        found.append([name for name, verdict in verdicts if verdict == "BROKEN"])
    assert len(found) == len(roots), done.stdout + done.stderr
    return found


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], list[str]]:
    """For each forbidden import the contracts that break with it."""
    roots = [tmp_path_factory.mktemp("forbidden") for _ in FORBIDDEN]
    for root, (importer, imported, _) in zip(roots, FORBIDDEN, strict=True):
        skeleton(root, [(importer, imported)])
    found = broken(roots)
    return {item[:2]: names for item, names in zip(FORBIDDEN, found, strict=True)}


def test_what_the_architecture_allows_is_kept(tmp_path: Path) -> None:
    skeleton(tmp_path, list(ALLOWED))
    assert broken([tmp_path]) == [[]]


@pytest.mark.parametrize(("importer", "imported", "contract"), FORBIDDEN, ids=lambda value: str(value))
def test_forbidden_import_breaks_its_contract(
    verdicts: dict[tuple[str, str], list[str]], importer: str, imported: str, contract: str
) -> None:
    names = verdicts[importer, imported]
    assert any(name.startswith(contract) for name in names)
