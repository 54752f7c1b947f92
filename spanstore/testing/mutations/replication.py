"""Defects of the log: leases, promises, syncs, and what replicas make of chosen entries."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from spanstore.engine.base import Reader, WriteBatch
from spanstore.engine.memory import MemoryEngine
from spanstore.group import storage
from spanstore.group.group import Group, Outgoing
from spanstore.group.state import Done, ReplicatedState
from spanstore.paxos.acceptor import Acceptor
from spanstore.paxos.core import ReplicaCore
from spanstore.paxos.leading import Leading
from spanstore.paxos.lease import Granted, Held
from spanstore.paxos.messages import LogEntry
from spanstore.paxos.replica import Replica
from spanstore.testing.mutations.mutation import FAST, Mutation, replaced
from spanstore.testing.scenarios import Scenario

_NEVER = 1 << 62


def _outages(scenario: Scenario) -> Scenario:
    """All machines lose their power again and again, and syncs take a while."""
    return scenario.with_(
        workload="bank",
        servers=3,
        clients=5,
        faults=(("blackout", 1),),
        fault_interval_us=1_200_000,
        fault_duration_us=20_000,
        max_down=None,
        **FAST,
        pause_us=2_000,
        run_us=8_000_000,
        link_min_us=100,
        link_mean_extra_us=150,
        disk_min_us=1_000,
        disk_mean_extra_us=20_000,
    )


def _acknowledged_at_once() -> Any:
    def change(init: Callable[..., None]) -> Callable[..., None]:
        def broken(engine: MemoryEngine, **arguments: Any) -> None:
            init(engine, **arguments)
            engine.ack_before_sync = True

        return broken

    return replaced(MemoryEngine, "__init__", change)


def _accepted_at_once() -> Any:
    def change(end_turn: Callable[..., Outgoing]) -> Callable[..., Outgoing]:
        def broken(group: Group, batch: WriteBatch) -> Outgoing:
            out = end_turn(group, batch)
            return Outgoing([*out.now, *out.synced], [])

        return broken

    return replaced(Group, "end_turn", change)


@contextmanager
def _lease_ignored() -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(replaced(Held, "valid", lambda _: lambda held, boot_us: True))
        stack.enter_context(replaced(Leading, "lost_quorum_at", lambda _: lambda leading: _NEVER))
        yield


def _cut_off_leaders(scenario: Scenario) -> Scenario:
    """Leaders are cut off from their peers, not from all clients, and stand still for longer than their leases.

    As with forgotten leases, the ceiling keeps most of it from clients, and it is for the checker of leases to see.
    """
    return scenario.with_(
        workload="register" if scenario.seed % 2 else "ring",
        servers=3,
        clients=5,
        pause_us=5_000,
        **FAST,
        run_us=6_000_000,
        faults=(("partition", 3), ("pause", 1)),
        fault_interval_us=500_000,
        fault_duration_us=1_000_000,
        max_down=1,
    )


def _no_quarantine() -> Any:
    def change(init: Callable[..., None]) -> Callable[..., None]:
        def broken(granted: Granted, quarantine_until: int) -> None:
            init(granted, 0)

        return broken

    return replaced(Granted, "__init__", change)


@contextmanager
def _promises_after_restart() -> Iterator[None]:
    def change(init: Callable[..., None]) -> Callable[..., None]:
        def broken(replica: Replica, **arguments: Any) -> None:
            init(replica, **arguments)
            replica._deadline = arguments["now"].boot_us + replica._jitter_us

        return broken

    with ExitStack() as stack:
        stack.enter_context(_no_quarantine())
        stack.enter_context(replaced(ReplicaCore, "__init__", change))
        yield


def _restarts_in_leases(scenario: Scenario) -> Scenario:
    """Leases are long. A leader is cut off, and the voters on the other side restart meanwhile.

    Clients hardly notice: a successor starts above the ceiling of the timestamps that the leader may give out, and
    what the leader cannot finish blocks its own reads. The checker of leases sees it.
    """
    return scenario.with_(
        workload="commits",
        servers=3,
        clients=4,
        pause_us=60_000,
        lease_ms=3_000,
        heartbeat_ms=100,
        election_timeout_ms=400,
        run_us=9_000_000,
        faults=(("leader_cut", 2), ("bounce", 1)),
        fault_interval_us=2_000_000,
        fault_duration_us=5_000_000,
        max_down=None,
    )


def _divergent_logs(scenario: Scenario) -> Scenario:
    """Leaders change under load, with entries on some of the disks only."""
    return scenario.with_(
        workload="bank",
        clients=5,
        pause_us=2_000,
        **FAST,
        max_batch_bytes=4096,
        faults=(("partition", 3), ("crash", 2), ("pause", 1)),
        fault_interval_us=200_000,
        fault_duration_us=400_000,
        max_down=None,
        drop_ppm=100_000,
        reorder_ppm=20_000,
    )


def _ignores_previous() -> Any:
    """Entries that follow another previous entry are taken all the same."""

    def change(match_log: Callable[..., int | None]) -> Callable[..., int | None]:
        def broken(replica: Replica, message: Any, now: Any) -> int | None:
            found = match_log(replica, message, now)
            log = replica._log
            if found is not None or message.prev_index > log.last_index or message.prev_index <= replica._chosen:
                return found
            for entry in message.entries:
                if entry.index <= log.last_index:
                    replica._drop_suffix(entry.index)
                replica._take(entry, now)
            return int(message.prev_index) + len(message.entries)

        return broken

    return replaced(Acceptor, "_match_log", change)


def _skips_an_entry() -> Any:
    """The second of several entries that are applied together is forgotten, as by an index that advances twice."""

    def change(apply: Callable[..., list[Done]]) -> Callable[..., list[Done]]:
        def broken(state: ReplicatedState, entries: list[LogEntry], batch: WriteBatch, reader: Reader) -> list[Done]:
            if len(entries) < 2:
                return apply(state, entries, batch, reader)
            forgotten = WriteBatch()
            done = apply(state, entries[:1], batch, reader)
            done += apply(state, entries[1:2], forgotten, reader)
            storage.put_applied(batch, state.group, storage.Applied(state._index, state._max_ts, state._digest))
            return done + apply(state, entries[2:], batch, reader)

        return broken

    return replaced(ReplicatedState, "apply", change)


def _applies_backwards() -> Any:
    """Entries that are applied together take effect in reverse."""

    def change(apply: Callable[..., list[Done]]) -> Callable[..., list[Done]]:
        def broken(state: ReplicatedState, entries: list[LogEntry], batch: WriteBatch, reader: Reader) -> list[Done]:
            turned = [
                LogEntry(entry.index, entry.ballot, other.payload)
                for entry, other in zip(entries, reversed(entries), strict=True)
            ]
            return apply(state, turned, batch, reader)

        return broken

    return replaced(ReplicatedState, "apply", change)


def _laggards(scenario: Scenario) -> Scenario:
    """Replicas fall behind and catch up with many entries at once."""
    return scenario.with_(
        clients=5,
        pause_us=2_000,
        faults=(("pause", 2), ("slow_disk", 1), ("crash", 1)),
        fault_interval_us=400_000,
        fault_duration_us=300_000,
        max_down=1,
    )


MUTATIONS: tuple[Mutation, ...] = (
    Mutation(
        "ack_before_sync",
        "the engine acknowledges commits before they are synced, as LMDB does with NOSYNC",
        _acknowledged_at_once,
        _outages,
    ),
    Mutation(
        "accepted_before_sync",
        "acceptors send promises and acceptances before what they state is on disk",
        _accepted_at_once,
        _outages,
    ),
    Mutation(
        "lease_ignored",
        "a leader serves without a lease, also when it has been deposed",
        _lease_ignored,
        _cut_off_leaders,
    ),
    Mutation(
        "promise_in_forgotten_lease",
        "a restarted acceptor promises at once, inside a lease that it granted and forgot",
        _promises_after_restart,
        _restarts_in_leases,
    ),
    Mutation(
        "previous_entry_unchecked",
        "an acceptor takes entries although its log does not match what precedes them",
        _ignores_previous,
        _divergent_logs,
    ),
    Mutation(
        "entry_skipped",
        "a replica that applies several entries at once leaves one out",
        _skips_an_entry,
        _laggards,
    ),
    Mutation(
        "entries_reversed",
        "a replica that applies several entries at once applies them backwards",
        _applies_backwards,
        _laggards,
    ),
)
