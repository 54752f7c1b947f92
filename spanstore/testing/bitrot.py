"""Bit rot: a bit of a data file is flipped or a sector zeroed, and whoever reads the file must notice or be right.

``python -m spanstore.testing.bitrot DIR SEED COUNT`` makes a data directory, flips COUNT bits one after the other, each
for a reader in a process of its own, and prints what became of each. The reader opens the engine as a spanserver does
and reads everything, by key and by range. Its answers are compared with what was written:

=========  ============================================================================================
right      all answers are what was written
detected   it said DATA_CORRUPTION
died       the process died (SIGBUS, SIGSEGV, or it was stopped because it went in circles)
missing    a record was not found, and no error said so: only :mod:`spanstore.scrub` can know
wrong      an answer was something that was never written there: never permitted
=========  ============================================================================================

Whatever is not right must be found by ``check_directory``.
"""

import asyncio
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from f1common.errors import Code, F1Error, InvariantViolation, check
from spanstore.engine import keyspace
from spanstore.engine.base import WriteBatch
from spanstore.engine.directory import DATA_FILE
from spanstore.engine.lmdb_engine import LmdbEngine
from spanstore.engine.pages import Leaf, PageFile, Walk, free_pages
from spanstore.group.storage import Applied, put_applied, put_effects
from spanstore.mvcc.versions import put_version
from spanstore.paxos.effects import Effects
from spanstore.paxos.messages import Ballot, HardState, LogEntry
from spanstore.scrub.offline import check_directory
from spanstore.scrub.records import check_record
from spanstore.txn.commands import TxnRef
from spanstore.txn.outcomes import OutcomeRecord, encode_outcome

RIGHT, DETECTED, DIED, MISSING, WRONG = "right", "detected", "died", "missing", "wrong"

SECTOR = 8
"""In place of a bit: the sector that it lies in."""

_SECTOR_BYTES = 512
_GROUPS = (2, 3)
_READ_S = 10
_WORSE = (RIGHT, MISSING, WRONG)
_EXPECTED_FILE = "expected"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one flip: in which page and of what kind, what a reader saw, and whether the check found it."""

    page: int
    kind: str
    offset: int
    bit: int
    read: str
    found: bool

    @property
    def acceptable(self) -> bool:
        """Tell whether nobody was misled without a trace."""
        return self.read == RIGHT or (self.read != WRONG and self.found)


def make(path: Path, seed: int) -> None:
    """Fill a data directory as two replicas would, in many transactions, so that it has pages of every kind."""

    async def fill() -> None:
        engine = LmdbEngine.open(path, cluster="rot", server="span-a1", map_bytes=1 << 28)
        rng = random.Random(seed)
        for turn in range(60):
            batch = WriteBatch()
            for group in _GROUPS:
                _turn(batch, group, turn, rng)
            await engine.commit(batch)
        with engine.snapshot() as view:
            everything = dict(view.scan(b"", b"\xff\xff\x00"))
        (path / _EXPECTED_FILE).write_bytes(msgspec.msgpack.encode(everything))
        await engine.close()

    asyncio.run(fill())


def _turn(batch: WriteBatch, group: int, turn: int, rng: random.Random) -> None:
    ballot = Ballot(turn // 7 + 1, "span-a1")
    entries = [LogEntry(turn * 3 + i + 1, ballot, rng.randbytes(rng.choice((20, 200, 3000)))) for i in range(3)]
    keep = max(0, turn * 3 - 60)
    effects = Effects(hard_state=HardState(ballot, turn * 10, 5), append=entries, truncate_below=keep or None)
    put_effects(batch, group, effects)
    put_applied(batch, group, Applied(entries[-1].index, turn, turn))
    for _ in range(10):
        key = bytes((0x14 + group,)) + b"%04d" % rng.randrange(300) + b"k" * rng.choice((0, 0, 200, 400))
        value = None if rng.random() < 0.1 else rng.randbytes(rng.choice((10, 100, 900, 9_000)))
        put_version(batch, group, key, turn + 1, value)
        unique = rng.randbytes(16)
        record = OutcomeRecord.committed(TxnRef(key, unique, turn, 1), turn)
        batch.put(keyspace.outcome_key(group, unique, b"a%03d" % rng.randrange(100)), encode_outcome(record))


def kinds(path: Path) -> dict[int, str]:
    """Return the kind of each page that is in use."""
    pages = PageFile(path / DATA_FILE)
    try:
        meta = max((m for m in pages.metas() if m is not None), key=lambda m: m.transaction)
        walk = Walk(pages, meta, meta.main)
        leaves = {found.page for found in walk.leaves() if isinstance(found, Leaf)}
        listed, _, own = free_pages(pages, meta)
        found = dict.fromkeys(range(meta.last_page + 1), "large value")
        found |= dict.fromkeys(leaves, "leaf") | dict.fromkeys(listed, "free") | dict.fromkeys(own, "free list")
        found |= {0: "meta", 1: "meta"}
        branches = _branches(pages, meta.main.root, meta.page_bytes, leaves)
        return found | dict.fromkeys(branches, "branch")
    finally:
        pages.close()


def _branches(pages: PageFile, root: int, page_bytes: int, leaves: set[int]) -> set[int]:
    todo, found = [root], set()
    while todo:
        page = todo.pop()
        if page in leaves:
            continue
        found.add(page)
        data = pages.read(page, 1, page_bytes)
        for at in range(16, int.from_bytes(data[12:14], "little"), 2):
            node = int.from_bytes(data[at : at + 2], "little")
            todo.append(int.from_bytes(data[node : node + 6], "little"))
    return found


def flips(path: Path, seed: int, count: int, only: str = "") -> Iterator[tuple[int, str, int, int]]:
    """Draw (page, kind, offset, bit): as many of each kind of page, half of them where a page describes itself."""
    rng = random.Random(seed)
    by_kind: dict[str, list[int]] = {}
    for page, kind in kinds(path).items():
        by_kind.setdefault(kind, []).append(page)
    names = [only] if only else sorted(by_kind)
    for number in range(count):
        kind = names[number % len(names)]
        page = rng.choice(by_kind[kind])
        head = 152 if kind == "meta" else 64
        offset = rng.randrange(head if rng.random() < 0.5 or kind == "meta" else 4096)
        yield page, kind, offset, SECTOR if rng.random() < 0.1 else rng.randrange(8)


def flip(path: Path, page: int, offset: int, bit: int) -> None:
    """Flip one bit of a page, or zero the whole sector: a write that was torn."""
    if bit == SECTOR:
        with (path / DATA_FILE).open("r+b") as stream:
            stream.seek(page * 4096 + offset // _SECTOR_BYTES * _SECTOR_BYTES)
            stream.write(bytes(_SECTOR_BYTES))
        return
    with (path / DATA_FILE).open("r+b") as stream:
        stream.seek(page * 4096 + offset)
        byte = stream.read(1)[0]
        stream.seek(page * 4096 + offset)
        stream.write(bytes((byte ^ 1 << bit,)))


class Reader:
    """A process that reads directories until one kills it; then the next one takes over."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def read(self, path: Path) -> str:
        """Read everything in ``path`` and say what became of it."""
        if self._process is None:
            command = [sys.executable, "-m", "spanstore.testing.bitrot"]
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise InvariantViolation("the reader has pipes")
        stdin.write(f"{path}\n")
        stdin.flush()
        answer = stdout.readline().strip()
        if not answer:
            self.close()
            return DIED
        return answer

    def close(self) -> None:
        """End the process, whatever state it is in."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def read(path: Path) -> str:
    """Read everything, by range and by key, and say how it was. In the reader's process."""
    found: dict[bytes, bytes] = msgspec.msgpack.decode((path / _EXPECTED_FILE).read_bytes(), type=dict[bytes, bytes])
    expected = {key: value for key, value in found.items() if key[:2] != b"\xff\xff"}
    worst = RIGHT
    try:
        engine = LmdbEngine.open(path, cluster="rot", server="span-a1", map_bytes=1 << 28)
        try:
            with engine.snapshot() as view:
                seen = {key: value for borders in _ranges() for key, value in view.scan(*borders)}
                answers = [*seen.items(), *((key, view.get(key)) for key in expected)]
                answers += [(key, None) for key in expected if key not in seen]
            for key, value in answers:
                worst = max(worst, _judge(key, expected.get(key), value), key=_WORSE.index)
        finally:
            asyncio.run(engine.close())
    except F1Error as error:
        if error.code is Code.DATA_CORRUPTION:
            return DETECTED
        return f"{error.code.value}: {error.message}"
    return worst


def _ranges() -> Iterator[tuple[bytes, bytes]]:
    """Return what the replicas of the groups read: of rows, the ranges that their groups own."""
    for group in _GROUPS:
        for space in keyspace.Subspace:
            if space == keyspace.Subspace.DATA:
                table = keyspace.data_prefix(group) + bytes((0x14 + group,))
                yield table, table[:-1] + bytes((0x15 + group,))
            else:
                yield keyspace.subspace_range(group, space)


def _judge(key: bytes, expected: bytes | None, found: bytes | None) -> str:
    """Judge one answer as a replica would: rows and log entries verify themselves."""
    if found is None:
        return MISSING
    if found == expected:
        return RIGHT
    if key[2] in (keyspace.Subspace.DATA, keyspace.Subspace.LOG) and check_record(key, found) is not None:
        raise F1Error(Code.DATA_CORRUPTION, "as every read of this record would say")
    return WRONG


def try_flips(path: Path, seed: int, count: int, only: str = "") -> Iterator[Verdict]:
    """Flip bits of a copy of the directory ``path``, one at a time, ``only`` in one kind of page, and judge each."""
    copy = path.with_name(f"{path.name}-flipped")
    reader = Reader()
    try:
        for page, kind, offset, bit in flips(path, seed, count, only):
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(path, copy)
            flip(copy, page, offset, bit)
            found = bool(check_directory(copy).findings)
            yield Verdict(page, kind, offset, bit, reader.read(copy), found)
    finally:
        reader.close()
        shutil.rmtree(copy, ignore_errors=True)


def main(arguments: list[str]) -> int:
    """Read the directories that are named on the input, or flip bits and print the verdicts."""
    if not arguments:
        for line in sys.stdin:
            signal.alarm(_READ_S)
            sys.stdout.write(f"{read(Path(line.strip()))}\n")
            sys.stdout.flush()
        return 0
    path, seed, count = Path(arguments[0]), int(arguments[1]), int(arguments[2])
    make(path, seed)
    check(not check_directory(path).findings, "a fresh directory is sound")
    bad = 0
    for verdict in try_flips(path, seed, count):
        bad += not verdict.acceptable
        sys.stdout.write(f"{verdict} {'' if verdict.acceptable else 'NOT ACCEPTABLE'}\n")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
