"""The layout of engine keys: the one place that knows where a spanserver keeps what.

======================================= ==============================================================================
key                                     value
======================================= ==============================================================================
``gg gg 01``                            HARD_STATE: what an acceptor promised (term, vote, lease, membership)
``gg gg 02`` index, 8 bytes             LOG: one entry
``gg gg 03``                            APPLIED: index, safe time and counters as of the rows beside it
``gg gg 04`` name                       META: the group's own records (range, epoch, garbage mark)
``gg gg 10`` key ``00`` ~ts, 8 bytes    DATA: one version of one row, see :mod:`spanstore.mvcc.versions`
``gg gg 11`` transaction                PREPARED: a participant's prepared transaction and its locks
``gg gg 12`` anchor ``00`` transaction  OUTCOME: a coordinator's decision
``gg gg 13`` transaction                FINISHED: a participant's memory of finished attempts
``ff ff 04`` name                       META of the whole server: format version, cluster, server
======================================= ==============================================================================

``gg gg`` is the group's number, big-endian, so that all of a group is one range: it is dropped by one
``delete_range``, and groups never share a leaf for long. Numbers are big-endian so that byte order is their order.
"""

import struct
from enum import IntEnum
from functools import lru_cache

from f1common.errors import check

MAX_GROUP = 0xFFFE
"""The highest number of a group; 0xFFFF is the server itself."""

SERVER = 0xFFFF
"""The "group" under which the records of the whole spanserver lie."""

PREFIX_BYTES = 3
"""Length of every prefix: group and subspace."""

_INDEX = struct.Struct(">Q")
_MAX_INDEX = 0xFFFF_FFFF_FFFF_FFFF


class Subspace(IntEnum):
    """The byte after the group's number."""

    HARD_STATE = 0x01
    LOG = 0x02
    APPLIED = 0x03
    META = 0x04
    DATA = 0x10
    PREPARED = 0x11
    OUTCOME = 0x12
    FINISHED = 0x13


@lru_cache(maxsize=4096)
def prefix(group: int, subspace: Subspace) -> bytes:
    """Return the 3 bytes with which all keys of a group's subspace begin."""
    check(0 <= group <= SERVER, f"group {group} is no 16-bit number")
    return group.to_bytes(2, "big") + bytes((subspace,))


@lru_cache(maxsize=4096)
def subspace_range(group: int, subspace: Subspace) -> tuple[bytes, bytes]:
    """Return the half-open range of all keys of a group's subspace."""
    start = prefix(group, subspace)
    return start, start[:2] + bytes((subspace + 1,))


def group_range(group: int) -> tuple[bytes, bytes]:
    """Return the half-open range of all keys of a group."""
    check(0 <= group <= MAX_GROUP, f"{group} is no number of a group")
    return group.to_bytes(2, "big"), (group + 1).to_bytes(2, "big")


def hard_state_key(group: int) -> bytes:
    """Return the key of the acceptor's hard state."""
    return prefix(group, Subspace.HARD_STATE)


def applied_key(group: int) -> bytes:
    """Return the key of the record of what the rows contain."""
    return prefix(group, Subspace.APPLIED)


def log_key(group: int, index: int) -> bytes:
    """Return the key of the log entry ``index``."""
    check(0 <= index <= _MAX_INDEX, f"log index {index} is no unsigned 64-bit number")
    return prefix(group, Subspace.LOG) + _INDEX.pack(index)


def log_range(group: int, first: int = 0, last: int | None = None) -> tuple[bytes, bytes]:
    """Return the half-open key range of the entries ``first`` to ``last``, both included; None is no upper limit."""
    if last is None or last >= _MAX_INDEX:
        return log_key(group, first), subspace_range(group, Subspace.LOG)[1]
    return log_key(group, first), log_key(group, last + 1)


def log_index(key: bytes) -> int:
    """Return the index of an entry from its key."""
    check(len(key) == PREFIX_BYTES + _INDEX.size and key[2] == Subspace.LOG, f"{key.hex()} is no key of a log entry")
    (index,) = _INDEX.unpack_from(key, PREFIX_BYTES)
    return int(index)


@lru_cache(maxsize=4096)
def data_prefix(group: int) -> bytes:
    """Return the prefix of all row versions of a group."""
    return prefix(group, Subspace.DATA)


def data_range(group: int) -> tuple[bytes, bytes]:
    """Return the half-open range of all row versions of a group."""
    return subspace_range(group, Subspace.DATA)


def prepared_key(group: int, transaction: bytes) -> bytes:
    """Return the key of a participant's prepared transaction."""
    return prefix(group, Subspace.PREPARED) + transaction


def outcome_key(group: int, transaction: bytes, anchor: bytes = b"") -> bytes:
    """Return the key of a decision; ``anchor``, the root key, keeps it beside the directory that it moves with."""
    return prefix(group, Subspace.OUTCOME) + anchor + b"\x00" + transaction


def finished_key(group: int, transaction: bytes) -> bytes:
    """Return the key of a participant's memory of a transaction's finished attempts."""
    return prefix(group, Subspace.FINISHED) + transaction


def meta_key(group: int, name: str) -> bytes:
    """Return the key of a named record of a group, or of the server when ``group`` is :data:`SERVER`."""
    return prefix(group, Subspace.META) + name.encode()


def server_meta_key(name: str) -> bytes:
    """Return the key of a named record of the whole spanserver."""
    return meta_key(SERVER, name)
