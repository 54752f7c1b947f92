"""What the style asks and neither ruff nor mypy nor import-linter checks.

Each rule is a function from one parsed file to findings (`RULES`); two more look at all text and at the import graph.
`python scripts/tidy.py` (`make static`) prints the findings of the repository and fails on any; their test
shows each rule failing on a bad snippet. A finding names what to use instead.
"""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

MAX_FUNCTION_LINES = 70
MAX_FILE_LINES = 600

PRODUCT = ("f1common/", "spanstore/", "f1server/", "master/", "slavepool/", "txservices/", "client/", "deploy/")
GENERATED = ("f1common/pb/",)
SOURCE_ROOTS = ("client/", "deploy/")
# Processes that answer over the network. The command line and the deployment tool may write to the terminal.
SERVERS = ("f1common/", "spanstore/", "f1server/", "master/", "slavepool/", "txservices/")

# Files that may be longer than the rest, each with its own limit and the reason.
LONG_FILES: Mapping[str, tuple[int, str]] = {
    "spanstore/paxos/replica.py": (800, "the consensus core is one state machine and is read as a whole"),
}

# Modules that no product code imports yet, each with what will.
AWAITED: Mapping[str, str] = {}

# Modules that are there for tests: simulators, and the model that the states of schema changes are tested by.
FOR_TESTS = ("spanstore/testing/", "f1server/testing/", "f1server/schemachange/model/")

# Tests that need what a machine may lack. They say what it is when they are skipped.
MAY_SKIP: Mapping[str, str] = {
    "tests/integration/test_bench_peers.py": "etcd and PostgreSQL may not be installed",
    "tests/integration/test_compose.py": "network namespaces need root",
    "tests/integration/test_disk.py": "mounting small file systems needs root",
}

CLOCK_FILE = "f1common/clock.py"
IDS_FILE = "f1common/ids.py"


@dataclass(frozen=True, slots=True)
class Ban:
    """A name that product code does not use: what to use instead, and the files that may after all."""

    instead: str
    allowed: frozenset[str] = frozenset()


_CLOCK = Ban("an injected Clock, or f1common.clock.boot_us where nothing is simulated", frozenset({CLOCK_FILE}))
_IDS = Ban("f1common.ids", frozenset({IDS_FILE}))
_SPAWN = Ban('multiprocessing.get_context("spawn") or asyncio.create_subprocess_exec')
_SERIALISE = Ban("a protobuf message or msgspec")

# Imported name (ending in a dot: everything below it) -> the ban.
BANNED: Mapping[str, Ban] = {
    "asyncio.get_event_loop": Ban("asyncio.get_running_loop"),
    "datetime.date.today": _CLOCK,
    "datetime.datetime.now": _CLOCK,
    "datetime.datetime.today": _CLOCK,
    "datetime.datetime.utcnow": _CLOCK,
    "multiprocessing.Pool": _SPAWN,
    "multiprocessing.Process": _SPAWN,
    "os.fork": _SPAWN,
    "os.urandom": _IDS,
    "pickle.": _SERIALISE,
    "random.": Ban("an injected random.Random"),
    "secrets.": _IDS,
    "time.clock_gettime": _CLOCK,
    "time.clock_gettime_ns": _CLOCK,
    "time.gmtime": _CLOCK,
    "time.localtime": _CLOCK,
    "time.monotonic": _CLOCK,
    "time.monotonic_ns": _CLOCK,
    "time.perf_counter": _CLOCK,
    "time.perf_counter_ns": _CLOCK,
    "time.time": _CLOCK,
    "time.time_ns": _CLOCK,
    "uuid.uuid1": _IDS,
    "uuid.uuid4": _IDS,
}
NOT_BANNED = frozenset({"random.Random"})

# Builtin -> (the folders where it is banned, what to use instead).
BANNED_BUILTINS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "eval": (PRODUCT, "a parser or ast.literal_eval"),
    "exec": (PRODUCT, "a function"),
    "hash": (PRODUCT, "zlib.crc32 or hashlib: hash() differs from process to process"),
    "print": (SERVERS, "the structured log"),
}

# Each of these options of lmdb.open gives up a sync that an acknowledged write relies on.
LMDB_UNSAFE: Mapping[str, bool] = {"sync": False, "metasync": False, "map_async": True, "writemap": True, "lock": False}

SKIPS = frozenset(
    {"pytest.skip", "pytest.importorskip", "pytest.xfail", "unittest.skip"}
    | {f"pytest.mark.{name}" for name in ("skip", "skipif", "xfail")}
)

DOTTED = re.compile(r"[a-z_][a-z0-9_]*(?:\.[a-z_][a-z0-9_]*)+")
MACHINE_PATH = re.compile(r"(?<![\w.$}])/(?:home|root|Users|work|mnt|private)/[\w./-]+")


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One violation: where it is, which rule found it, and what to do."""

    path: str
    line: int
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message} [{self.rule}]"


@dataclass(frozen=True)
class Source:
    """One Python file: `path` is relative to the repository, with forward slashes."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @cached_property
    def nodes(self) -> Sequence[ast.AST]:
        """All nodes of the tree: every rule looks at them, and walking takes longer than looking."""
        return list(ast.walk(self.tree))

    @cached_property
    def names(self) -> Mapping[str, str]:
        """Local name -> dotted name that it was imported as."""
        names: dict[str, str] = {}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    top = alias.name.split(".")[0]
                    names[alias.asname or top] = alias.name if alias.asname else top
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        return names

    @cached_property
    def imports(self) -> frozenset[str]:
        """Every name that may be a module used here."""
        return frozenset(imported_modules(self))

    def forget(self) -> None:
        """Let the tree go once the rules have seen it: the trees of the whole repository are half a gigabyte."""
        self.__dict__.pop("nodes", None)
        self.__dict__.pop("tree", None)

    @property
    def is_product(self) -> bool:
        return self.path.startswith(PRODUCT)

    @property
    def module(self) -> str:
        """The dotted name under which the file is imported."""
        path = self.path
        for root in SOURCE_ROOTS:
            path = path.removeprefix(root)
        return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    def finding(self, node: ast.AST | int, rule: str, message: str) -> Finding:
        line = node if isinstance(node, int) else getattr(node, "lineno", 1)
        return Finding(self.path, line, rule, message)

    def dotted(self, node: ast.expr) -> str | None:
        """The full name that `a.b.c` stands for when `a` was imported, else None."""
        match node:
            case ast.Name(id=name):
                return self.names.get(name)
            case ast.Attribute(value=value, attr=attribute):
                base = self.dotted(value)
                return None if base is None else f"{base}.{attribute}"
            case _:
                return None


def long_functions(source: Source) -> Iterator[Finding]:
    """Functions of 70 lines or more; the docstring does not count, prose is welcome."""
    for node in source.nodes:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        first = node.body[0]
        if ast.get_docstring(node, clean=False) is not None:
            lines -= (first.end_lineno or first.lineno) - first.lineno + 1
        if lines >= MAX_FUNCTION_LINES:
            yield source.finding(
                node, "long-function", f"{node.name} has {lines} lines; keep it under {MAX_FUNCTION_LINES}"
            )


def long_files(source: Source) -> Iterator[Finding]:
    """Files of 600 lines or more that LONG_FILES does not name."""
    limit, _ = LONG_FILES.get(source.path, (MAX_FILE_LINES, ""))
    lines = source.text.count("\n")
    if lines >= limit:
        yield source.finding(1, "long-file", f"{lines} lines; split it to stay under {limit}")


def banned_names(source: Source) -> Iterator[Finding]:
    """Product code that reads clocks, draws randomness or forks on its own.

    A mention is as bad as a call: it is how a clock gets passed on.
    """
    if not source.is_product:
        return
    for node in source.nodes:
        if not isinstance(node, ast.Attribute | ast.Name):
            continue
        name = source.dotted(node)
        if name is None or name in NOT_BANNED:
            continue
        ban = BANNED.get(name) or (BANNED.get(name.split(".")[0] + ".") if "." in name else None)
        if ban is not None and source.path not in ban.allowed:
            yield source.finding(node, "banned-name", f"{name} is banned; use {ban.instead}")


def banned_builtins(source: Source) -> Iterator[Finding]:
    """Calls of builtins that have no place in the product; hash() only inside `__hash__`."""
    excused = {
        id(inner)
        for outer in source.nodes
        if isinstance(outer, ast.FunctionDef) and outer.name == "__hash__"
        for inner in ast.walk(outer)
    }
    for node in source.nodes:
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in BANNED_BUILTINS and name not in source.names:
                folders, instead = BANNED_BUILTINS[name]
                if source.path.startswith(folders) and not (name == "hash" and id(node) in excused):
                    yield source.finding(node, "banned-builtin", f"{name}() is banned; use {instead}")


def unseeded_random(source: Source) -> Iterator[Finding]:
    """`random.Random()` without a seed, in product code and tests alike: the same seed must give the same run."""
    for node in source.nodes:
        if isinstance(node, ast.Call) and source.dotted(node.func) == "random.Random" and not node.args:
            yield source.finding(node, "unseeded-random", "random.Random() is banned; give it a seed")


def unsafe_lmdb(source: Source) -> Iterator[Finding]:
    """`lmdb.open` with an option that gives up a sync or a lock."""
    if not source.is_product:
        return
    for node in source.nodes:
        if not (isinstance(node, ast.Call) and source.dotted(node.func) in {"lmdb.open", "lmdb.Environment"}):
            continue
        for option, value in ((keyword.arg or "", keyword.value) for keyword in node.keywords):
            safe = option not in LMDB_UNSAFE or is_constant(value, not LMDB_UNSAFE[option])
            if not safe:
                yield source.finding(node, "unsafe-lmdb", f"{option}={ast.unparse(value)} loses data; leave it out")


def is_constant(node: ast.expr, value: bool) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def product_asserts(source: Source) -> Iterator[Finding]:
    """`assert` in product code: it vanishes under -O."""
    if not source.is_product:
        return
    for node in source.nodes:
        if isinstance(node, ast.Assert):
            yield source.finding(node, "assert", "assert is for tests; use f1common.errors.check")


def bare_excepts(source: Source) -> Iterator[Finding]:
    """`except:`, and `except BaseException` that neither raises nor uses what it caught: both swallow cancellation."""
    for node in source.nodes:
        if not isinstance(node, ast.ExceptHandler):
            continue
        if node.type is None:
            yield source.finding(node, "bare-except", "name the exceptions; `except:` swallows cancellation")
        elif isinstance(node.type, ast.Name) and node.type.id == "BaseException" and not handed_on(node):
            yield source.finding(node, "bare-except", "raise again, hand it on, or catch Exception")


def handed_on(handler: ast.ExceptHandler) -> bool:
    return any(
        isinstance(node, ast.Raise) or (isinstance(node, ast.Name) and node.id == handler.name)
        for statement in handler.body
        for node in ast.walk(statement)
    )


def missing_module_docstrings(source: Source) -> Iterator[Finding]:
    """Modules that do not say what they are for."""
    if source.text.strip() and ast.get_docstring(source.tree) is None:
        yield source.finding(1, "no-docstring", "say in a module docstring what this file is for")


def skipped_tests(source: Source) -> Iterator[Finding]:
    """A test that does not run is no test."""
    if not source.path.startswith("tests/") or source.path in MAY_SKIP:
        return
    for node in source.nodes:
        if isinstance(node, ast.Attribute) and source.dotted(node) in SKIPS:
            yield source.finding(node, "skipped-test", "fix the test or delete it; slow ones are marked long")


def dead_modules(sources: Sequence[Source], entry_points: Collection[str]) -> Iterator[Finding]:
    """Product modules that nothing but tests imports, and which no entry point or command line names.

    Simulators and models (FOR_TESTS) are there for tests, so for them their imports count.
    """
    used = set(entry_points) | set(AWAITED)
    used_by_tests: set[str] = set()
    for source in sources:
        target = used_by_tests if source.path.startswith("tests/") else used
        target.update(name for name in source.imports if name != source.module)
    for source in sources:
        if not source.is_product or source.path.endswith(("__init__.py", "__main__.py")):
            continue
        for_tests = source.path.startswith(FOR_TESTS)
        alive = used | used_by_tests if for_tests else used
        if source.module not in alive:
            yield source.finding(1, "dead-module", f"nothing imports {source.module}; use it or delete it")


def imported_modules(source: Source) -> Iterator[str]:
    """Every dotted name that may be a module used here: imports, and strings as in `python -m NAME`."""
    package = source.module if source.path.endswith("__init__.py") else source.module.rpartition(".")[0]
    for node in source.nodes:
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                parts = package.split(".")[: len(package.split(".")) - level + 1] if level else []
                base = ".".join([*parts, module] if module else parts)
                yield base
                yield from (f"{base}.{alias.name}" for alias in names)
            case ast.Constant(value=str(text)) if DOTTED.fullmatch(text):
                yield text


def machine_paths(path: str, text: str) -> Iterator[Finding]:
    """Paths of somebody's machine in any text file."""
    for number, line in enumerate(text.splitlines(), 1):
        for match in MACHINE_PATH.finditer(line):
            yield Finding(
                path, number, "machine-path", f"{match.group()} exists on one machine only; use a relative path"
            )


RULES: tuple[Callable[[Source], Iterator[Finding]], ...] = (
    long_functions,
    long_files,
    banned_names,
    banned_builtins,
    unseeded_random,
    unsafe_lmdb,
    product_asserts,
    bare_excepts,
    missing_module_docstrings,
    skipped_tests,
)


def repository_files(root: Path) -> list[str]:
    """All files of the work tree but the ignored ones, relative to `root`, sorted.

    Outside a git repository (an unpacked archive) there is nothing ignored but folders that nobody writes by hand.
    """
    if (root / ".git").exists():
        # In a container the repository may belong to another user, which git would refuse.
        git = ["git", "-c", "safe.directory=*", "-C", str(root)]
        listing = [*git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listing, check=True, capture_output=True, text=True).stdout.split("\0")
    else:
        paths = (path.relative_to(root) for path in root.rglob("*"))
        names = [path.as_posix() for path in paths if not any(is_by_product(part) for part in path.parts)]
    return sorted({name for name in names if name and (root / name).is_file()})


def is_by_product(folder: str) -> bool:
    return folder in {"build", "dist", "__pycache__"} or (folder.startswith(".") and folder != ".ci")


def entry_points(root: Path) -> set[str]:
    """The modules that pyproject.toml names as commands."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    groups = [project.get("scripts", {}), *project.get("entry-points", {}).values()]
    return {target.split(":")[0] for group in groups for target in group.values()}


def check_repository(root: Path) -> list[Finding]:
    """All findings of the work tree at `root`, sorted."""
    findings: list[Finding] = []
    sources: list[Source] = []
    for name in repository_files(root):
        try:
            text = (root / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # not a text file
        findings.extend(machine_paths(name, text))
        if name.endswith(".py") and not name.startswith(GENERATED):
            sources.append(Source(name, text))
    for source in sources:
        for rule in RULES:
            findings.extend(rule(source))
        _ = source.imports
        source.forget()
    findings.extend(dead_modules(sources, entry_points(root)))
    return sorted(findings)


def main() -> int:
    findings = check_repository(ROOT)
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
