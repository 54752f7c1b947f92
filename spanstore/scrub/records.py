"""Is a stored record what was written, and are a group's records together what a replica needs? Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from f1common.errors import F1Error
from spanstore.engine.keyspace import PREFIX_BYTES, SERVER, Subspace, log_index, meta_key
from spanstore.engine.sealing import is_sealed, unseal
from spanstore.group.storage import INSTALLING, decode_entry
from spanstore.mvcc.versions import decode_version, split_version_key
from spanstore.txn.outcomes import decode_finished, decode_outcome, decode_prepared

_INDEX_BYTES = 8
_DECODERS = {
    Subspace.PREPARED: decode_prepared,
    Subspace.OUTCOME: decode_outcome,
    Subspace.FINISHED: decode_finished,
}


class Finding(msgspec.Struct, frozen=True):
    """Something that is not as it was written. ``group`` is :data:`~spanstore.engine.keyspace.SERVER` for a page."""

    group: int
    what: str
    key: str = ""

    def __str__(self) -> str:
        where = "pages of all groups" if self.group == SERVER else f"group {self.group}"
        return f"{where}: {self.what}"


def group_of(key: bytes) -> int:
    """Return the group that a key belongs to."""
    return int.from_bytes(key[:2], "big")


def check_record(key: bytes, stored: bytes) -> Finding | None:
    """Verify one record in its stored form, whatever its kind; None if it is sound."""
    if len(key) < PREFIX_BYTES:
        return Finding(SERVER, f"the key {key.hex()} is none of ours", key.hex())
    group, space = group_of(key), key[2]
    try:
        value = unseal(key, stored) if is_sealed(key) else stored
        if space == Subspace.LOG:
            if len(key) != PREFIX_BYTES + _INDEX_BYTES:
                return Finding(group, f"the key {key.hex()} is no log entry's", key.hex())
            decode_entry(group, log_index(key), value)
        elif space == Subspace.DATA:
            split_version_key(key)
            decode_version(key, value)
        elif space in (Subspace.HARD_STATE, Subspace.APPLIED):
            msgspec.msgpack.decode(value)
        elif space in _DECODERS:
            _DECODERS[Subspace(space)](value)
    except (F1Error, msgspec.DecodeError, UnicodeDecodeError) as error:
        return Finding(group, getattr(error, "message", str(error)), key.hex())
    return None


@dataclass(slots=True)
class _Group:
    promised: bool = False
    applied: int = 0
    first: int = 0
    last: int = 0
    installing: bool = False


class RecordCheck:
    """Checks all records of one state, given in key order."""

    def __init__(self) -> None:
        self.records = 0
        self.bytes = 0
        self._groups: dict[int, _Group] = {}

    def check(self, key: bytes, stored: bytes) -> Iterator[Finding]:
        """Verify the next record."""
        self.records += 1
        self.bytes += len(key) + len(stored)
        found = check_record(key, stored)
        if found is not None:
            yield found
            return
        group = self._groups.setdefault(group_of(key), _Group())
        match key[2]:
            case Subspace.HARD_STATE:
                group.promised = True
            case Subspace.APPLIED:
                group.applied = int(msgspec.msgpack.decode(unseal(key, stored))[0])
            case Subspace.LOG:
                index = log_index(key)
                if group.last and index != group.last + 1:
                    yield Finding(group_of(key), f"log entry {group.last + 1} is missing before {index}", key.hex())
                group.first = group.first or index
                group.last = index
            case Subspace.META:
                group.installing |= key == meta_key(group_of(key), INSTALLING)
            case _:
                pass

    def groups(self) -> Iterator[Finding]:
        """Say what is missing, once all records were seen."""
        for number, group in sorted(self._groups.items()):
            if group.last and not group.promised:
                yield Finding(number, "there are log entries, but what the replica promised is missing")
            if group.last and group.applied + 1 < group.first and not group.installing:
                yield Finding(number, f"the log begins at {group.first}, rows are applied up to {group.applied} only")
