"""A copy of a group's state, read while the group goes on, becomes the state once the log is replayed over it.

Spanstore's state transfer rests on this (:mod:`spanstore.runtime.transfer`): records as of one entry, every row key as
of some entry not before it, in any order and from any replica, then the log from the next entry on.
"""

import asyncio
import random
from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from spanstore.engine import keyspace
from spanstore.engine.base import Reader, WriteBatch
from spanstore.engine.keyspace import Subspace, outcome_key
from spanstore.engine.memory import MemoryEngine
from spanstore.group import checkpoint
from spanstore.group.checkpoint import Installing, Item, Stage
from spanstore.group.digests import RangeDigest
from spanstore.group.state import ReplicatedState
from spanstore.group.storage import encode_entry, put_effects
from spanstore.mvcc.versions import put_version
from spanstore.paxos.configuration import Configuration
from spanstore.paxos.effects import Effects
from spanstore.paxos.messages import Ballot, LogEntry
from spanstore.txn.commands import (
    AbandonCmd,
    AbortCmd,
    BeginMoveCmd,
    CedeCmd,
    ClearCmd,
    CollectCmd,
    Command,
    CommitCmd,
    CopyStage,
    DecideCmd,
    DigestCmd,
    GcOutcomesCmd,
    LockRecord,
    NewLeader,
    OwnCmd,
    PrepareCmd,
    Progress,
    RaiseMarkCmd,
    Removal,
    StageCmd,
    TxnRef,
    Write,
    encode_command,
)
from spanstore.txn.locks import LockMode, Priority
from spanstore.txn.outcomes import FinishedRecord, encode_finished
from tests.amounts import examples

GROUP = 3
KEYS = [b"\x01" + bytes([k]) for k in range(1, 7)]
BALLOT = Ballot(1, "a")


class Author:
    """Writes a random log that a leader could have written, without ever looking at rows."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._ts = 1_000
        self._version = 0
        self._ids = 0
        self._move = 0
        self._script: list[Command] = []
        self._prepared: list[TxnRef] = []
        self._ended: list[TxnRef] = []

    def payload(self) -> bytes:
        """Return the next entry's payload."""
        self._ts += self._rng.randint(1, 5)
        kind = self._rng.choice(
            (
                *("commit", "commit", "commit", "prepare", "prepare", "decide", "abort", "lead", "join", "move"),
                *("digest", "mark", "collect", "collect", "forget"),
            )
        )
        if kind == "join":
            self._version += 1
            return Configuration(self._version, ("a", "b", "c"), (f"d#{self._version}",)).encode()
        return encode_command(self._command(kind))

    def _command(self, kind: str) -> Command:
        rng = self._rng
        match kind:
            case "commit":
                participants = rng.choice(((), (), (2,)))
                return CommitCmd(self._again_or_new(), self._ts, self._writes(), participants, 0)
            case "prepare":
                txn = self._new()
                self._prepared.append(txn)
                locks = (LockRecord(KEYS[0], None, LockMode.EXCLUSIVE),)
                return PrepareCmd(txn, self._ts, Priority(self._ts, txn.unique), self._writes(), locks, 1, 9_999_999)
            case "decide" if self._prepared:
                txn = self._prepared.pop(rng.randrange(len(self._prepared)))
                self._ended.append(txn)
                return DecideCmd(txn, self._ts if rng.random() < 0.7 else None)
            case "decide" if self._ended:
                return DecideCmd(rng.choice(self._ended), self._ts)  # once more: it changes nothing
            case "move":
                self._script = self._script or self._moves()
                return self._script.pop(0)
            case "digest":
                return DigestCmd(bytes((Subspace.DATA,)), bytes((Subspace.FINISHED + 1,)))
            case "mark":
                return RaiseMarkCmd(rng.randint(1, self._ts))
            case "collect":
                return self._collect()
            case "forget":
                return self._forget()
            case "abort":
                return AbortCmd(self._again_or_new(), "test", self._ts)
            case _:
                return NewLeader(1, "a", self._ts)

    def _collect(self) -> Command:
        """Versions of some keys go, also such as a pass of a leader would leave: replay must not depend on what."""
        removed = []
        for key in sorted(self._rng.sample(KEYS, self._rng.randint(0, 3))):
            oldest_ts, newest_ts = sorted(self._rng.randint(1_000, self._ts) for _ in range(2))
            removed.append(Removal(key, newest_ts, oldest_ts))
        ended = self._rng.random() < 0.4
        position = b"" if ended else bytes((Subspace.DATA,)) + self._rng.choice(KEYS)
        return CollectCmd(tuple(removed), len(removed), 10, position, self._ts - 50, self._ts if ended else 0)

    def _forget(self) -> Command:
        """Records of what has ended, or is about to be decided once more, are candidates; each replica tests them."""
        chosen = self._rng.sample(self._ended, min(len(self._ended), 4))
        outcomes = tuple(sorted(outcome_key(GROUP, t.unique, t.anchor)[keyspace.PREFIX_BYTES :] for t in chosen))
        finished = tuple(sorted(t.unique for t in chosen))
        before_ts = self._rng.choice((self._ts, self._ts - 30, 10_000_000))
        unsettled = self._rng.choice(((), (2,)))
        return GcOutcomesCmd(before_ts, unsettled, outcomes, finished, self._rng.choice((b"", b"\x20")))

    def _moves(self) -> list[Command]:
        """A range goes, its rows are removed in pieces, and it comes back with other rows; or it does not."""
        low, high = sorted(self._rng.sample(KEYS, 2))
        away, back = self._move + 1, self._move + 2
        self._move = back
        ready = StageCmd(back, 4, Progress(CopyStage.READY))
        owned: list[Command] = [ready, OwnCmd(back, self._ts)] if self._rng.random() < 0.7 else []
        stages = [
            StageCmd(back, 1, Progress(), clear=(low, high)),
            self._stage(back, 2, low),
            self._stage(back, 3, low),
        ]
        return [
            CedeCmd(away, low, high, 2, self._ts, self._ts),
            *(ClearCmd(away, low, low + b"\x01"), ClearCmd(away, low, high)),
            BeginMoveCmd(back, low, high, 2),
            *stages,
            *owned,
            AbandonCmd(back),
        ]

    def _stage(self, move: int, seq: int, key: bytes) -> Command:
        batch = WriteBatch()
        put_version(batch, GROUP, key, self._rng.randint(1, self._ts), self._rng.randbytes(2))
        versions = tuple((k[keyspace.PREFIX_BYTES :], v) for _, k, v in batch.ops)
        finished = encode_finished(FinishedRecord(1, None, self._ts))
        return StageCmd(move, seq, Progress(CopyStage.ROWS), versions, (), ((self._new().unique, finished),))

    def _new(self) -> TxnRef:
        self._ids += 1
        return TxnRef(self._rng.choice(KEYS), self._ids.to_bytes(4, "big"), self._ts, 1)

    def _again_or_new(self) -> TxnRef:
        """A commit that is repeated, or comes after the abort of its attempt, must change nothing."""
        if self._ended and self._rng.random() < 0.2:
            return self._rng.choice(self._ended)
        txn = self._new()
        self._ended.append(txn)
        return txn

    def _writes(self) -> tuple[Write, ...]:
        keys = self._rng.sample(KEYS, self._rng.randint(1, 3))
        return tuple(Write(k, None if self._rng.random() < 0.3 else self._rng.randbytes(3)) for k in sorted(keys))


def contents(reader: Reader) -> dict[bytes, bytes]:
    """Return what the log makes, without what is about one replica."""
    return {
        key: value
        for space in checkpoint.STATE
        for key, value in reader.scan(*keyspace.subspace_range(GROUP, space))
        if space is not Subspace.META or not checkpoint.is_local(key)
    }


async def apply(engine: MemoryEngine, entries: list[LogEntry]) -> list[RangeDigest]:
    """Append and apply entries as a group does; return the digests that were asked for."""
    batch = WriteBatch()
    with engine.snapshot() as reader:
        state = ReplicatedState(GROUP, reader)
        put_effects(batch, GROUP, Effects(append=entries))
        state.apply(entries, batch, reader)
        await engine.commit(batch)
    return state.digests


def turns(entries: list[LogEntry], rng: random.Random) -> Iterator[list[LogEntry]]:
    """Cut a log into the turns of one replica; each has its own."""
    entries = list(entries)
    while entries:
        size = rng.randint(1, 4)
        yield entries[:size]
        del entries[:size]


async def straight(
    entries: list[LogEntry], rng: random.Random, digests: dict[int, RangeDigest]
) -> tuple[MemoryEngine, list[tuple[int, Reader]]]:
    """Apply the log; return the disk and a view after each turn with its index, and the digests in ``digests``."""
    engine = MemoryEngine()
    views: list[tuple[int, Reader]] = []
    for turn in turns(entries, rng):
        digests |= {found.index: found for found in await apply(engine, turn)}
        views.append((turn[-1].index, engine.snapshot()))
    return engine, views


def rows_from(views: list[tuple[int, Reader]], base: int, rng: random.Random) -> Iterator[tuple[int, list[Item]]]:
    """Read the rows in small chunks, each in some view from the base on, whichever: the source may change."""
    usable = [(index, view) for index, view in views if index >= base]
    after = b""
    while True:
        index, view = rng.choice(usable)
        rows = checkpoint.read_rows(view, GROUP, after, rng.choice((1, 20, 60)))
        if not rows:
            return
        yield index, rows
        after = rows[-1][0]


async def copied(views: list[tuple[int, Reader]], rng: random.Random) -> tuple[int, MemoryEngine]:
    """Install a copy on an empty disk; return its base."""
    index, view = rng.choice(views)
    base = checkpoint.read_base(view, GROUP)
    assert base.index == index
    engine = MemoryEngine()
    records = [(index, items) for items in checkpoint.in_chunks(checkpoint.read_records(view, GROUP), 30)]
    chunks = [*records, *rows_from(views, index, rng)]
    for _, items in chunks:
        batch = WriteBatch()
        checkpoint.put_base(batch, GROUP, base)
        checkpoint.put_installing(batch, GROUP, Installing(Stage.ROWS, "a", 0, index))
        checkpoint.put_items(batch, GROUP, items)
        await engine.commit(batch)
    batch = WriteBatch()
    with engine.snapshot() as reader:
        if reader.get(keyspace.meta_key(GROUP, checkpoint.BASE)) is None:
            checkpoint.put_base(batch, GROUP, base)
            await engine.commit(batch)
            batch = WriteBatch()
    with engine.snapshot() as reader:
        assert checkpoint.finish(reader, GROUP, batch, max([seen for seen, _ in chunks], default=0)) == index
    await engine.commit(batch)
    return index, engine


def check_seed(seed: int, length: int) -> None:
    async def work() -> None:
        rng = random.Random(seed)
        author = Author(rng)
        entries = [LogEntry(index, BALLOT, author.payload()) for index in range(1, length + 1)]
        digests: dict[int, RangeDigest] = {}
        engine, views = await straight(entries, rng, digests)
        base, copy = await copied(views, rng)
        for turn in turns(entries[base:], rng):
            for digest in await apply(copy, turn):
                assert digest == digests[digest.index]
        with engine.snapshot() as wanted, copy.snapshot() as found:
            assert contents(found) == contents(wanted)
            assert found.get(keyspace.log_key(GROUP, base)) == encode_entry(entries[base - 1])
            assert ReplicatedState(GROUP, found).prepared == ReplicatedState(GROUP, wanted).prepared

    asyncio.run(work())


@settings(max_examples=examples(150))
@given(st.integers(0, 1 << 32), st.integers(1, 40))
def test_a_copy_made_while_the_group_goes_on_is_the_state_after_the_replay(seed: int, length: int) -> None:
    check_seed(seed, length)


def test_records_from_a_later_view_are_noticed() -> None:
    """The oracle is none if it passes what must not pass: here the outcomes are newer than the base."""

    async def differs(seed: int) -> bool:
        rng = random.Random(seed)
        author = Author(rng)
        entries = [LogEntry(index, BALLOT, author.payload()) for index in range(1, 31)]
        engine, views = await straight(entries, rng, {})
        base, copy = await copied(views[:-1], rng)
        batch = WriteBatch()
        for space in (Subspace.OUTCOME, Subspace.FINISHED):
            for key, value in views[-1][1].scan(*keyspace.subspace_range(GROUP, space)):
                batch.put(key, value)
        await copy.commit(batch)
        for turn in turns(entries[base:], rng):
            await apply(copy, turn)
        with engine.snapshot() as wanted, copy.snapshot() as found:
            return contents(found) != contents(wanted)

    assert any(asyncio.run(differs(seed)) for seed in range(20))
