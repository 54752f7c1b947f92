"""Broken f1servers are caught: each way to break one fails a simulation within a few seeds."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from unittest.mock import patch

import pytest

from f1.session import Session
from f1common.pb import f1_pb2 as pb
from f1server.rows.entries import Entries
from f1server.testing import scenario
from f1server.testing.scenario import Scenario, draw
from f1server.txn import committer, unlocked
from f1server.txn.pessimistic import Open
from f1server.txn.reader import RowReader
from scripts.simulate_f1 import try_one
from spanstore.client import SpanClient

_F1_FAULTS = (("crash", 3), ("reset", 5), ("pause", 2))


async def reads_without_locks(self: Open, keys: Sequence[bytes] = (), ranges: Sequence[Any] = (), **_: Any) -> Any:
    """Serves a pessimistic read from a snapshot."""
    client: SpanClient = _CLIENTS[-1]
    return await client.read(keys, ranges)


_CLIENTS: list[SpanClient] = []
_strong = SpanClient.strong_timestamp
_writes = Entries.writes
_note_lock = RowReader.note_lock
_apart = SpanClient.read_apart


def a_second_ago(self: SpanClient) -> int:
    return _strong(self) - 1_000_000


def notes_rows_that_are_there(self: RowReader, table: Any, key: bytes, ts: int, columns: Any) -> None:
    if ts:
        _note_lock(self, table, key, ts, columns)


def leaves_old_entries(self: Entries, read: Any) -> list[Any]:
    return [write for write in _writes(self, read) if write.value is not None]


async def reads_apart_a_second_ago(self: SpanClient, keys: Sequence[bytes], timestamp: int, *rest: Any) -> Any:
    return await _apart(self, keys, timestamp - 1_000_000, *rest)


async def exchanges_rows(self: SpanClient, keys: Sequence[bytes], *rest: Any) -> Any:
    """Answers each reader with what the next one asked for."""
    ts, found = await _apart(self, keys, *rest)
    return ts, {key: found.get(keys[(i + 1) % len(keys)]) for i, key in enumerate(keys)}


async def knows_without_asking(self: Session, commit: pb.Commit, *_: Any) -> pb.OutcomeReply:
    """The library takes a lost answer for a commit that did not happen."""
    return pb.OutcomeReply(committed=False)


@dataclasses.dataclass(frozen=True)
class Mutation:
    target: Any
    name: str
    broken: Callable[..., Any]
    workload: str
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    seeds: int = 6
    first: int = 3_000

    def scenario(self, seed: int) -> Scenario:
        usual: dict[str, Any] = {"faults": (), "f1_faults": (), "client_crashes": False, "churn": False}
        usual |= {"duplicate_ppm": 0, "drop_ppm": 0, "clients": 3, "run_us": 800_000, "pause_us": 5_000}
        return draw(seed, self.workload).with_(**{**usual, **self.changes})


LOSSY = {"f1_faults": _F1_FAULTS, "fault_interval_us": 100_000, "fault_duration_us": 50_000, "run_us": 2_500_000}

MUTATIONS = {
    "nothing is validated": Mutation(committer, "validate", lambda *_: None, "bank"),
    "what was seen without locks is not tested": Mutation(unlocked, "_expected", lambda _: [], "bank"),
    "absent rows are not in the read set": Mutation(RowReader, "note_lock", notes_rows_that_are_there, "list_append"),
    "pessimistic reads take no locks": Mutation(Open, "read", reads_without_locks, "bank"),
    "strong reads are a second old": Mutation(SpanClient, "strong_timestamp", a_second_ago, "register"),
    "rows read together are a second old": Mutation(SpanClient, "read_apart", reads_apart_a_second_ago, "register"),
    "rows read together are exchanged": Mutation(SpanClient, "read_apart", exchanges_rows, "register"),
    "old index entries stay": Mutation(Entries, "writes", leaves_old_entries, "register"),
    "the library does not ask": Mutation(Session, "_outcome", knows_without_asking, "counters", LOSSY, 8, 3_022),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_broken_code_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation = MUTATIONS[name]
    made = SpanClient.__init__

    def remember(self: SpanClient, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        _CLIENTS.append(self)

    monkeypatch.setattr(SpanClient, "__init__", remember)
    for seed in range(mutation.first, mutation.first + mutation.seeds):
        with patch.object(mutation.target, mutation.name, mutation.broken):
            _, failure = try_one(mutation.scenario(seed))
        if failure:
            return
    pytest.fail(f"{mutation.seeds} seeds did not notice: {name}")


def test_the_check_of_databases_alone_sees_old_index_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the simpler checkers out of the way."""

    async def nothing(*_: Any) -> list[Any]:
        return []

    monkeypatch.setattr(scenario, "check_indexes", nothing)
    monkeypatch.setattr(scenario, "check_history", nothing)
    mutation = MUTATIONS["old index entries stay"]
    assert not try_one(mutation.scenario(3_000))[1]
    with patch.object(mutation.target, mutation.name, mutation.broken):
        _, failure = try_one(mutation.scenario(3_000))
    assert "consistency: " in failure and "wrong entry in Flat FlatByV" in failure
