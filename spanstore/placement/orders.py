"""Moves of replicas as rows of the meta group: the one that is under way, and those that operators have ordered.

The placement driver alone carries them out, so that no two hands move one replica to two places. What an operator does
with a single group, step by step, is not an order; but whoever makes a learner that is to vote notes it in a row first
(:class:`Joining`), so that it can be told from a read-only replica, and somebody goes on with it if he does not.
"""

import msgspec

from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from spanstore.placement.balance import Move, Why
from spanstore.placement.range_map import SYSTEM_TABLE_ID

_ORDER = "replica_order"
_JOINING = "replica_joining"

DRIVER = "placement driver"
OPERATOR = "operator"

MOVE_KEY = tuples.encode((SYSTEM_TABLE_ID, "replica_move"))
"""The row of the move that is under way."""


class Joining(msgspec.Struct, frozen=True, array_like=True):
    """A learner of ``group`` at ``server`` that is to become a voter, ``instead_of`` a member, or of nobody if empty.

    ``owner`` sees to it until ``until_ts`` (microseconds since the epoch); afterwards it is the placement driver's.
    """

    group: int
    server: str
    instead_of: str
    owner: str
    until_ts: int

    def is_free(self, owner: str, now_ts: int) -> bool:
        """Tell whether ``owner`` may see to it."""
        return self.owner == owner or self.until_ts < now_ts


def joining_key(group: int, server: str) -> bytes:
    """Return the key of the row of a learner that is to become a voter."""
    return tuples.encode((SYSTEM_TABLE_ID, _JOINING, group, server))


def joining_range() -> tuple[bytes, bytes]:
    """Return the key range of all such rows."""
    prefix = tuples.encode((SYSTEM_TABLE_ID, _JOINING))
    return prefix, prefix + b"\xff"


def encode_joining(joining: Joining) -> bytes:
    """Return the value of such a row."""
    return msgspec.msgpack.encode(joining)


def decode_joining(value: bytes) -> Joining:
    """Read the value of such a row. Raises DATA_CORRUPTION."""
    try:
        return msgspec.msgpack.decode(value, type=Joining)
    except msgspec.MsgspecError as error:
        raise F1Error(Code.DATA_CORRUPTION, f"the record of a learner cannot be read: {error}") from error


def order_key(move: Move) -> bytes:
    """Return the key of the row of an ordered move."""
    return tuples.encode((SYSTEM_TABLE_ID, _ORDER, move.group, move.old))


def order_range() -> tuple[bytes, bytes]:
    """Return the key range of all ordered moves, in the order in which they are carried out."""
    prefix = tuples.encode((SYSTEM_TABLE_ID, _ORDER))
    return prefix, prefix + b"\xff"


def encode_move(move: Move) -> bytes:
    """Return the value of a move's row."""
    return msgspec.msgpack.encode((move.group, move.old, move.new, move.votes, move.why.value))


def decode_move(value: bytes) -> Move:
    """Read the value of a move's row. Raises DATA_CORRUPTION."""
    try:
        group, old, new, votes, why = msgspec.msgpack.decode(value, type=tuple[int, str, str, bool, str])
        return Move(group, old, new, votes, Why(why))
    except (msgspec.DecodeError, ValueError) as error:
        raise F1Error(Code.DATA_CORRUPTION, f"the record of a replica's move cannot be read: {error}") from error
