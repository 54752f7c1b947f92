"""Names of things that outlive a process: groups, servers, transactions."""

import os
import random
from dataclasses import dataclass
from typing import NewType, Self

from f1common.errors import Code, F1Error

GroupId = NewType("GroupId", int)
"""A Paxos group. Group 0 is the meta group, which owns the range map."""

ServerId = NewType("ServerId", str)
"""A process as ``f1 cluster status`` names it, such as ``span-a1``."""

META_GROUP = GroupId(0)

UNIQUE_BYTES = 16
_TS_BYTES = 8
_HEAD_BYTES = _TS_BYTES + UNIQUE_BYTES


def process_rng() -> random.Random:
    """Return a generator whose numbers no other process draws: what it makes names transactions for ever."""
    return random.Random(int.from_bytes(os.urandom(32), "big"))


def secret_bytes(count: int) -> bytes:
    """Return bytes that nobody can guess, for keys, salts and nonces: those of a ``random.Random`` can be foretold."""
    return os.urandom(count)


def new_id(rng: random.Random) -> bytes:
    """Return 16 random bytes. Processes pass ``random.Random()`` as the system seeds it, the simulator a seeded one."""
    return rng.randbytes(UNIQUE_BYTES)


@dataclass(frozen=True, slots=True, order=True)
class CommitId:
    """The name of a transaction's commit, chosen by the client and the same in all its attempts.

    ``anchor`` is the encoded root key of the first write. It fixes the coordinator: whoever holds the id can find the
    outcome without knowing who drives the commit. ``unique`` is 16 bytes from :func:`new_id`; ``created_ts``, in
    microseconds since the Unix epoch, tells whether the outcome may have been forgotten already.
    """

    anchor: bytes
    unique: bytes
    created_ts: int

    def __post_init__(self) -> None:
        """Raise F1Error INVALID_ARGUMENT unless the parts have their sizes."""
        if len(self.unique) != UNIQUE_BYTES:
            raise F1Error(Code.INVALID_ARGUMENT, f"a commit id has {UNIQUE_BYTES} unique bytes, not {len(self.unique)}")
        if not 0 <= self.created_ts < 1 << 63:
            raise F1Error(Code.INVALID_ARGUMENT, "a commit id is created between 0 and 2**63-1 us after the Unix epoch")

    def to_bytes(self) -> bytes:
        """Encode: 8 bytes of ``created_ts``, big-endian, the 16 unique bytes, then the anchor to the end."""
        return self.created_ts.to_bytes(_TS_BYTES, "big") + self.unique + self.anchor

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Decode. Raises F1Error DATA_CORRUPTION for bytes that are no commit id."""
        created_ts = int.from_bytes(data[:_TS_BYTES], "big")
        if len(data) < _HEAD_BYTES or created_ts >= 1 << 63:
            raise F1Error(Code.DATA_CORRUPTION, f"no commit id: {data[:_HEAD_BYTES].hex()} ({len(data)} bytes)")
        return cls(data[_HEAD_BYTES:], data[_TS_BYTES:_HEAD_BYTES], created_ts)

    def __str__(self) -> str:
        """Return the short form for logs: the unique bytes, in hexadecimal."""
        return self.unique.hex()
