"""SQL files of the sqllogictest kind: `tests/golden/sql/*.slt`, each on an empty database in memory.

    statement ok | statement count N | statement error PATTERN     then the statements, up to an empty line
    query TYPES                                                     then one row on each line after `----`
    proto                                                           then a .proto file, up to `end`

Values are separated by one space; NULL is NULL, an empty text (empty), bytes hexadecimal. Every file runs also with
each rule turned off, with all of them off, and with batches of one to three rows: the answers must be the same. Most
of these combinations run in `make test-long` only.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path

import pytest

from f1common.errors import F1Error
from f1server.exec.duck import Duck, DuckConfig
from f1server.plan.rules import RULE_NAMES
from f1server.plan.spread.joins import JoinOptions
from f1server.testing.embedded import Connection, EmbeddedDatabase
from tests.amounts import some

FILES = sorted((Path(__file__).parents[2] / "golden" / "sql").glob("*.slt"))


@dataclass(frozen=True)
class Record:
    line: int
    head: list[str]
    text: str
    expected: list[str]

    @property
    def kind(self) -> str:
        return self.head[0]


@cache
def duck() -> Duck:
    return Duck(DuckConfig(threads=1))


def records(path: Path) -> Iterator[Record]:
    lines = path.read_text().split("\n")
    i = 0
    while i < len(lines):
        if not lines[i].strip() or lines[i].startswith("#"):
            i += 1
            continue
        start, head = i, lines[i].split(" ")
        i += 1
        end = {"proto": "end"}.get(head[0], "")
        body = []
        while i < len(lines) and lines[i].strip() not in (end, "----"):
            body.append(lines[i])
            i += 1
        expected = []
        if i < len(lines) and lines[i].strip() == "----":
            i += 1
            while i < len(lines) and lines[i].strip():
                expected.append(lines[i])
                i += 1
        i += 1
        yield Record(start + 1, head, "\n".join(body), expected)


def shown(value: object) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).lower()
        case "":
            return "(empty)"
        case bytes():
            return value.hex()
        case Decimal():
            # NUMERIC results have nine digits after the point; what they mean does not depend on the zeros.
            text = f"{value:f}"
            return text.rstrip("0").rstrip(".") if value.as_tuple().exponent == -9 else text
        case _:
            return str(value)


def run(path: Path, database: EmbeddedDatabase) -> None:
    cursor = Connection(database).cursor()
    for record in records(path):
        where = f"{path.name}:{record.line}"
        if record.kind == "proto":
            database.apply("", [("file.proto", record.text)])
            continue
        failure: F1Error | None = None
        try:
            cursor.execute(record.text)
        except F1Error as error:
            failure = error
        if record.head[:2] == ["statement", "error"]:
            pattern = " ".join(record.head[2:])
            assert failure is not None, f"{where}: no error"
            assert re.search(pattern, str(failure)), f"{where}: {failure}"
            continue
        assert failure is None, f"{where}: {failure}"
        if record.head[:2] == ["statement", "count"]:
            assert cursor.rowcount == int(record.head[2]), where
        if record.kind == "query":
            found = [" ".join(shown(value) for value in row) for row in cursor.fetchall()]
            wanted = record.expected
            if "ORDER BY" not in record.text.upper():
                found, wanted = sorted(found), sorted(wanted)
            assert found == wanted, f"{where}: {record.text}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_answers(path: Path) -> None:
    run(path, EmbeddedDatabase(duck=duck()))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_answers_without_rules(path: Path) -> None:
    """No rule changes an answer (DESIGN section 5)."""
    run(path, EmbeddedDatabase(duck=duck(), rules_off=RULE_NAMES))


def parted(*names: str) -> tuple[list[Path], list[Path]]:
    """The files of these names, and the others."""
    return [path for path in FILES if path.stem in names], [path for path in FILES if path.stem not in names]


# Most of what rules look at is in two files: the others go through them in long runs.
RULED = some(*parted("select", "hierarchy"))


@pytest.mark.parametrize("path", RULED, ids=lambda p: p.stem)
@pytest.mark.parametrize("off", RULE_NAMES)
def test_answers_without_a_rule(path: Path, off: str) -> None:
    """Nor does one that finds other ones turned on."""
    run(path, EmbeddedDatabase(duck=duck(), rules_off=(off,)))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
@pytest.mark.parametrize("rows", some([1], [2, 3]))
def test_answers_from_small_batches(path: Path, rows: int) -> None:
    run(path, EmbeddedDatabase(duck=duck(), batch_rows=rows))


JOINS = {
    "small sides go everywhere": JoinOptions(broadcast_rows=3),
    "broadcast": JoinOptions(force="broadcast"),
    "repartition": JoinOptions(broadcast_rows=0, force="repartition"),
}


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
@pytest.mark.parametrize("joins", some(["broadcast", "repartition"], ["small sides go everywhere"]))
@pytest.mark.parametrize("workers", some([3], [1]))
def test_answers_of_several_workers(path: Path, joins: str, workers: int) -> None:
    """Queries that are spread answer as others do, with batches of two rows."""
    database = EmbeddedDatabase(duck=duck(), batch_rows=2, joins=JOINS[joins], workers=workers)
    run(path, database)
    assert database.spread >= len(database.central), "\n".join(database.central)
