"""What a group has collected: the replicated record of it, and what collecting commands do to the rows and records.

Part of the replicated state: every replica applies the same, whoever leads. What is garbage is found by the leader
(:mod:`spanstore.group.collecting`).
"""

from collections.abc import Callable

import msgspec

from f1common.errors import Code, F1Error
from spanstore.engine import keyspace
from spanstore.engine.base import Reader, WriteBatch
from spanstore.mvcc.collect import remove_versions
from spanstore.txn import outcomes
from spanstore.txn.commands import CollectCmd, GcOutcomesCmd, RaiseMarkCmd

_NAME = "garbage"


class Collected(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How far a group's garbage is collected.

    ``mark_ts`` is the garbage mark: nobody reads below it. No garbage is left up to ``clean_ts``, as of some mark
    before. ``position`` is where the pass that is under way goes on (subspace and key), empty between passes.
    ``versions`` and ``size`` (bytes), ``outcomes`` and ``finished`` count what was removed since the group began,
    ``passes`` the passes that have ended, the last one at ``ended_ts`` (microseconds since the epoch).
    """

    mark_ts: int = 0
    clean_ts: int = 0
    position: bytes = b""
    versions: int = 0
    size: int = 0
    outcomes: int = 0
    finished: int = 0
    passes: int = 0
    ended_ts: int = 0


def load_collected(reader: Reader, group: int) -> Collected:
    """Return the record as of ``reader``. Raises F1Error DATA_CORRUPTION."""
    data = reader.get(keyspace.meta_key(group, _NAME))
    if data is None:
        return Collected()
    try:
        return msgspec.msgpack.decode(data, type=Collected)
    except msgspec.DecodeError as error:
        raise F1Error(
            Code.DATA_CORRUPTION, f"the garbage record of group {group} cannot be read: {error}; rebuild this replica"
        ) from error


def put_collected(batch: WriteBatch, group: int, collected: Collected) -> None:
    """Write the record beside what it speaks of."""
    batch.put(keyspace.meta_key(group, _NAME), msgspec.msgpack.encode(collected))


def check_readable(ts: int, mark_ts: int, group: int) -> None:
    """Refuse a timestamp below the garbage mark. Raises F1Error SNAPSHOT_TOO_OLD, which names the mark."""
    if ts >= mark_ts:
        return
    raise F1Error(
        Code.SNAPSHOT_TOO_OLD,
        f"timestamp {ts} is {(mark_ts - ts) / 1e6:.3f} s below {mark_ts}, up to which group {group} has collected old "
        "versions: read at a newer timestamp; pin timestamps that are needed for longer (f1 pin add), or raise "
        "storage.version_keep_ms",
        details={"mark": str(mark_ts), "ts": str(ts), "group": str(group)},
    )


def raised(collected: Collected, command: RaiseMarkCmd) -> Collected:
    """Return the record after ``command``: a mark is never lowered."""
    return msgspec.structs.replace(collected, mark_ts=max(collected.mark_ts, command.mark_ts))


def collect(batch: WriteBatch, group: int, collected: Collected, command: CollectCmd) -> Collected:
    """Remove the versions that ``command`` names, and return the record after it."""
    for removal in command.removed:
        remove_versions(batch, group, removal.key, removal.newest_ts, removal.oldest_ts)
    ended = bool(command.ended_ts)
    return msgspec.structs.replace(
        collected,
        versions=collected.versions + command.versions,
        size=collected.size + command.size,
        position=command.position,
        clean_ts=max(collected.clean_ts, command.pass_mark_ts),
        passes=collected.passes + ended,
        ended_ts=command.ended_ts if ended else collected.ended_ts,
    )


def forget(
    group: int,
    collected: Collected,
    command: GcOutcomesCmd,
    get: Callable[[bytes], bytes | None],
    delete: Callable[[bytes], None],
) -> Collected:
    """Drop the records that ``command`` names as far as they may be dropped, and return the record after it.

    They are tested again as they are now: since the leader looked, an id may have got another record.
    """
    dropped = finished = 0
    prefix = keyspace.prefix(group, keyspace.Subspace.OUTCOME)
    for name in command.outcomes:
        key = prefix + name
        data = get(key)
        if data is not None and outcomes.collectable(
            outcomes.decode_outcome(data), command.before_ts, command.unsettled
        ):
            delete(key)
            dropped += 1
    for unique in command.finished:
        key = keyspace.finished_key(group, unique)
        data = get(key)
        if data is not None and outcomes.forgettable(outcomes.decode_finished(data), command.before_ts):
            delete(key)
            finished += 1
    return msgspec.structs.replace(
        collected,
        position=command.position,
        outcomes=collected.outcomes + dropped,
        finished=collected.finished + finished,
    )
