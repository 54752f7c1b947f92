"""A program that runs transactions of the orchestrator against a cluster, and writes down what it sees as it sees it.

It may be killed or stopped anywhere: each line is written as a whole before the step that it tells of is over, so that
what is missing at the end of a file is known to be unknown. ``python -m tests.integration.orchestrator_load OPTIONS``
runs until SIGTERM; the options are those of :class:`Options` as JSON.
"""

import asyncio
import json
import os
import random
import signal
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from f1.orchestrator import Locks, SpanStore, Timestamps, aio, cells, protocol
from f1.orchestrator.steps import Write
from f1common.clock import boot_us
from f1common.errors import Code, F1Error
from spanstore.testing.checkers import SnapshotRange, SnapshotTxn

ACCOUNTS = 6
BALANCE = 100
SERIALIZABLE = "audited"
TABLES = ("plain", SERIALIZABLE)


class Options(msgspec.Struct, frozen=True):
    """Where the cluster is, where to write, and how patient to be."""

    storage: str
    timestamps: str
    locks: str
    path: str
    seed: int
    timeout_s: float = 60.0


class Book:
    """The file of one client: a line for each thing that it knows."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def note(self, **what: Any) -> None:
        """Write a line at once; whoever is killed afterwards has written it."""
        os.write(self._file, json.dumps(what).encode() + b"\n")


class Recorded(SpanStore):
    """Notes every decision that it meets, also those that a sweep of its own removes."""

    def __init__(self, book: Book, address: str, timeout_s: float) -> None:
        super().__init__(address, timeout_s=timeout_s)
        self._book = book

    async def put_if_absent(self, write: Write) -> bytes:
        found = await super().put_if_absent(write)
        self._book.note(decision=protocol.transaction_of(write.key), commit=protocol.decode_decision(found))
        return found

    async def delete(self, versions: Sequence[tuple[bytes, int]]) -> None:
        rows = [(key, protocol.EVERYTHING) for key, _ in versions if key[:1] == b"\x02"]
        for (key, _), row in zip(rows, await self.get_versions(rows), strict=True):
            if row is not None:
                self._book.note(decision=protocol.transaction_of(key), commit=protocol.decode_decision(row.value))
        await super().delete(versions)


def connect(options: Options, book: Book) -> aio.Orchestrator:
    return aio.Orchestrator(
        Recorded(book, options.storage, options.timeout_s),
        Timestamps(options.timestamps, timeout_s=options.timeout_s),
        Locks(options.locks, timeout_s=options.timeout_s),
        serializable_tables=[SERIALIZABLE],
        timeout_s=options.timeout_s,
    )


async def fill(o: aio.Orchestrator, book: Book) -> None:
    """Give every account the same balance, in one transaction."""
    began = boot_us()
    async with await o.start() as tx:
        book.note(start=tx.start_ts, began=began, serializable=False)
        for table in TABLES:
            for n in range(ACCOUNTS):
                tx.set(table, n, "b", [BALANCE, tx.start_ts])
        note_writes(book, tx, TABLES, range(ACCOUNTS))
        committed = await tx.commit()
        book.note(of=tx.start_ts, committed=committed, ended=boot_us())
        assert committed


def note_writes(book: Book, tx: aio.Transaction, tables: Iterable[str], rows: Iterable[int]) -> None:
    numbers = list(rows)
    book.note(of=tx.start_ts, writes=[cells.cell_key(t, n, "b").hex() for t in tables for n in numbers])


async def transfer(o: aio.Orchestrator, book: Book, rng: random.Random) -> None:
    """Move money between two accounts, or look at all of them; values name who wrote them."""
    table = rng.choice(TABLES)
    began = boot_us()
    async with await o.start() as tx:
        book.note(start=tx.start_ts, began=began, serializable=table == SERIALIZABLE)
        if rng.random() < 0.3:
            await look_at_all(book, tx, table)
            return
        rows = sorted(rng.sample(range(ACCOUNTS), 2))
        found = await tx.get_many([(table, n, "b") for n in rows])
        keys = [cells.cell_key(table, n, "b").hex() for n in rows]
        book.note(of=tx.start_ts, reads=[(key, value[1]) for key, value in zip(keys, found, strict=True)])
        amount = rng.randrange(5)
        for n, value, change in zip(rows, found, (-amount, amount), strict=True):
            tx.set(table, n, "b", [value[0] + change, tx.start_ts])
        note_writes(book, tx, [table], rows)
        committed = await tx.commit()
        book.note(of=tx.start_ts, committed=committed, ended=boot_us())


async def look_at_all(book: Book, tx: aio.Transaction, table: str) -> None:
    rows = [row async for row in tx.get_range(table, batch=4)]
    total = sum(row.columns["b"][0] for row in rows)
    assert total == BALANCE * ACCOUNTS, f"transaction {tx.start_ts} sees {total} in {table}"
    seen = [(cells.cell_key(table, row.row, "b").hex(), row.columns["b"][1]) for row in rows]
    start = cells.table_prefix(table)
    book.note(of=tx.start_ts, range=[start.hex(), (start + b"\xff").hex(), seen])


async def work(options: Options) -> None:
    """Run transactions, and sweeps now and then, until SIGTERM."""
    book, rng = Book(Path(options.path)), random.Random(options.seed)
    o = connect(options, book)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    while not stop.is_set():
        try:
            if rng.random() < 0.03:
                await o.sweep()
            else:
                await transfer(o, book, rng)
        except F1Error as error:
            book.note(error=error.code.name, message=error.message)
            assert error.code not in (Code.INTERNAL, Code.DATA_CORRUPTION), error
        except AssertionError as error:
            book.note(violation=str(error))
            raise
    await o.close()


class History:
    """What the files of all clients say together."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.transactions: dict[int, SnapshotTxn] = {}
        self.decisions: dict[int, int] = {}
        self.violations: list[str] = []
        self.errors: dict[str, int] = {}
        for path in sorted(paths):
            for line in path.read_text().splitlines():
                self._take(json.loads(line))

    def _take(self, said: dict[str, Any]) -> None:
        match said:
            case {"start": start, "began": began, "serializable": serializable}:
                self.transactions[start] = SnapshotTxn(start, began, serializable=serializable)
            case {"of": start, "reads": reads}:
                self.transactions[start].reads += [(bytes.fromhex(key), writer) for key, writer in reads]
            case {"of": start, "range": [first, last, seen]}:
                found = tuple((bytes.fromhex(key), writer) for key, writer in seen)
                self.transactions[start].ranges.append(SnapshotRange(bytes.fromhex(first), bytes.fromhex(last), found))
            case {"of": start, "writes": writes}:
                self.transactions[start].writes.update((bytes.fromhex(key), True) for key in writes)
                self.transactions[start].checked.update(self.transactions[start].writes)
            case {"of": start, "committed": committed, "ended": ended}:
                self.transactions[start].committed, self.transactions[start].ended = committed, ended
            case {"decision": start, "commit": commit}:
                self.decide(start, commit)
            case {"error": code, **_rest}:
                self.errors[code] = self.errors.get(code, 0) + 1
            case {"violation": text}:
                self.violations.append(text)
            case _:
                raise ValueError(said)

    def decide(self, start: int, commit: int) -> None:
        """Take a decision; two that differ are a violation, but for a row that a sweep had removed."""
        known = self.decisions.setdefault(start, commit)
        if known > 0 and commit > 0 and known != commit:
            self.violations.append(f"transaction {start} is committed at {known} and at {commit}")
        self.decisions[start] = max(known, commit)

    @property
    def commits(self) -> int:
        """How many writers know that they have committed."""
        return sum(bool(txn.committed) for txn in self.transactions.values())


if __name__ == "__main__":
    asyncio.run(work(msgspec.json.decode(sys.argv[1], type=Options)))
