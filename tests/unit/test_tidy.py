"""Each rule of `scripts/tidy.py` fails on a bad snippet and passes its good twin.

`make static`, which is part of `make test`, runs them over the repository.
"""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scripts import tidy
from scripts.tidy import Finding, Source

Rule = Callable[[Source], Iterator[Finding]]


def found(rule: Rule, text: str, path: str = "spanstore/x.py") -> list[str]:
    return [str(finding) for finding in rule(Source(path, text))]


def function_of(lines: int, docstring_lines: int = 0) -> str:
    prose = ['    """One.', *["    More."] * (docstring_lines - 2), '    """'] if docstring_lines else []
    return "\n".join(["def f():", *prose, *["    x = 1"] * (lines - 1)]) + "\n"


def test_function_of_70_lines_is_too_long() -> None:
    assert found(tidy.long_functions, function_of(70)) == [
        "spanstore/x.py:1: f has 70 lines; keep it under 70 [long-function]"
    ]
    assert found(tidy.long_functions, function_of(69)) == []


def test_docstring_does_not_count_as_function_length() -> None:
    assert found(tidy.long_functions, function_of(69, docstring_lines=40)) == []
    assert found(tidy.long_functions, function_of(70, docstring_lines=40))


def test_file_of_600_lines_is_too_long() -> None:
    assert found(tidy.long_files, "x = 1\n" * 600) == [
        "spanstore/x.py:1: 600 lines; split it to stay under 600 [long-file]"
    ]
    assert found(tidy.long_files, "x = 1\n" * 599) == []


def test_named_long_file_has_its_own_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tidy, "LONG_FILES", {"spanstore/x.py": (700, "one state machine")})
    assert found(tidy.long_files, "x = 1\n" * 699) == []
    assert found(tidy.long_files, "x = 1\n" * 700)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import time\nx = time.time()", "time.time"),
        ("import time as t\nx = t.monotonic()", "time.monotonic"),
        ("from time import perf_counter\nx = perf_counter()", "time.perf_counter"),
        ("import time\nclock = time.monotonic_ns", "time.monotonic_ns"),
        ("import datetime\nx = datetime.datetime.now()", "datetime.datetime.now"),
        ("from datetime import datetime as d\nx = d.utcnow()", "datetime.datetime.utcnow"),
        ("import random\nx = random.choice([1])", "random.choice"),
        ("from random import shuffle\nshuffle([1])", "random.shuffle"),
        ("import asyncio\nx = asyncio.get_event_loop()", "asyncio.get_event_loop"),
        ("import uuid\nx = uuid.uuid4()", "uuid.uuid4"),
        ("import secrets\nx = secrets.token_hex()", "secrets.token_hex"),
        ("import os\nos.fork()", "os.fork"),
        ("import multiprocessing\nmultiprocessing.Process()", "multiprocessing.Process"),
        ("import pickle\npickle.loads(b'')", "pickle.loads"),
    ],
)
def test_banned_name_is_found_and_replaced(text: str, name: str) -> None:
    (finding,) = set(found(tidy.banned_names, text))
    assert f": {name} is banned; use " in finding
    assert found(tidy.banned_names, text, "scripts/x.py") == []


@pytest.mark.parametrize(
    "text",
    [
        "import time\ntime.sleep(1)",
        "import random\nrng = random.Random(7)\nrng.choice([1])",
        "def f(time: int, random: object) -> None: print(time.time, random.random)",
        "from f1common import clock\nclock.time()",
        "import asyncio\nasyncio.get_running_loop()",
    ],
)
def test_harmless_name_is_left_alone(text: str) -> None:
    assert found(tidy.banned_names, text) == []


def test_the_clock_module_may_read_the_clock() -> None:
    assert found(tidy.banned_names, "import time\ntime.time_ns()", "f1common/clock.py") == []


@pytest.mark.parametrize("text", ["print(1)", "eval('1')", "exec('1')", "hash('a')"])
def test_banned_builtin_is_found(text: str) -> None:
    (finding,) = found(tidy.banned_builtins, text)
    assert "is banned; use " in finding


def test_builtins_that_are_meant() -> None:
    assert found(tidy.banned_builtins, "class A:\n    def __hash__(self): return hash(self.x)") == []
    assert found(tidy.banned_builtins, "print(1)", "client/f1/cli.py") == []
    assert found(tidy.banned_builtins, "from rich import print\nprint(1)") == []


def test_unseeded_random_is_found_in_tests_too() -> None:
    assert found(tidy.unseeded_random, "import random\nr = random.Random()", "tests/unit/test_x.py")
    assert found(tidy.unseeded_random, "import random\nr = random.Random(1)") == []


@pytest.mark.parametrize("option", ["sync=False", "metasync=False", "map_async=True", "writemap=True", "sync=fast"])
def test_lmdb_without_its_syncs_is_found(option: str) -> None:
    (finding,) = found(tidy.unsafe_lmdb, f"import lmdb\nlmdb.open('x', max_dbs=1, {option})")
    assert option in finding


def test_lmdb_with_its_syncs_is_fine() -> None:
    assert found(tidy.unsafe_lmdb, "import lmdb\nlmdb.open('x', sync=True, map_async=False, map_size=1)") == []


def test_assert_belongs_to_tests() -> None:
    assert found(tidy.product_asserts, "assert 1") == [
        "spanstore/x.py:1: assert is for tests; use f1common.errors.check [assert]"
    ]
    assert found(tidy.product_asserts, "assert 1", "tests/unit/test_x.py") == []


def test_except_that_swallows_everything_is_found() -> None:
    assert found(tidy.bare_excepts, "try: pass\nexcept: pass")
    assert found(tidy.bare_excepts, "try: pass\nexcept BaseException: pass")
    assert found(tidy.bare_excepts, "try: pass\nexcept BaseException as error: pass")
    assert found(tidy.bare_excepts, "try: pass\nexcept BaseException as error: future.set_exception(error)") == []
    assert found(tidy.bare_excepts, "try: pass\nexcept BaseException:\n    raise") == []
    assert found(tidy.bare_excepts, "try: pass\nexcept Exception: pass") == []


def test_module_without_docstring_is_found() -> None:
    assert found(tidy.missing_module_docstrings, "x = 1\n")
    assert found(tidy.missing_module_docstrings, '"""What x is."""\nx = 1\n') == []


@pytest.mark.parametrize("mark", ["mark.skip", "mark.skipif(True)", "mark.xfail"])
def test_skipped_test_is_found(mark: str) -> None:
    text = f"import pytest\n@pytest.{mark}\ndef test_x(): ..."
    assert found(tidy.skipped_tests, text, "tests/unit/test_x.py")
    assert found(tidy.skipped_tests, text.replace(mark, "mark.long"), "tests/unit/test_x.py") == []


def dead(*files: tuple[str, str]) -> list[str]:
    sources = [Source(path, text) for path, text in files]
    return [finding.path for finding in tidy.dead_modules(sources, {"spanstore.main"})]


def test_module_that_only_tests_import_is_dead() -> None:
    assert dead(("spanstore/a.py", ""), ("tests/test_a.py", "import spanstore.a")) == ["spanstore/a.py"]
    assert dead(("spanstore/a.py", "import spanstore.a")) == ["spanstore/a.py"]


def test_module_in_use_is_alive() -> None:
    assert dead(("spanstore/a.py", ""), ("spanstore/main.py", "from spanstore import a")) == []
    assert dead(("spanstore/a.py", ""), ("spanstore/main.py", "from spanstore.a import b")) == []
    assert dead(("spanstore/p/a.py", ""), ("spanstore/p/__init__.py", "from .a import b")) == []
    assert dead(("client/f1/a.py", ""), ("client/f1/__init__.py", "import f1.a")) == []
    assert dead(("spanstore/worker.py", ""), ("scripts/x.py", "run(['python', '-m', 'spanstore.worker'])")) == []


def test_simulator_module_is_alive_when_a_test_uses_it() -> None:
    simulator = ("spanstore/testing/net.py", "")
    assert dead(simulator) == ["spanstore/testing/net.py"]
    assert dead(simulator, ("tests/test_net.py", "import spanstore.testing.net")) == []


def test_path_of_a_machine_is_found() -> None:
    home = "/" + "home/somebody/f1"
    assert [str(finding) for finding in tidy.machine_paths("README.md", f"one\nrun {home}\n")] == [
        f"README.md:2: {home} exists on one machine only; use a relative path [machine-path]"
    ]
    assert list(tidy.machine_paths("README.md", "docs/home/x, $BASE/home/x, https://example.org/home/x")) == []


def test_check_repository_covers_new_files_but_not_ignored_ones(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\n')
    (tmp_path / ".gitignore").write_text("ignored/\n")
    for name in ("spanstore/bad.py", "ignored/bad.py"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("assert True\n")
    rules = [(finding.path, finding.rule) for finding in tidy.check_repository(tmp_path)]
    assert rules == [
        ("spanstore/bad.py", "assert"),
        ("spanstore/bad.py", "dead-module"),
        ("spanstore/bad.py", "no-docstring"),
    ]


def test_unpacked_archive_is_checked_without_git(tmp_path: Path) -> None:
    for name in ("README.md", "spanstore/a.py", "spanstore/__pycache__/a.pyc", ".venv/lib/b.py", ".ci/run"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert tidy.repository_files(tmp_path) == [".ci/run", "README.md", "spanstore/a.py"]
