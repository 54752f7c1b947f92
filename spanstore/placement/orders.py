"""Moves of replicas as rows of the meta group: the one that is under way, and those that operators have ordered.

The placement driver alone carries them out, so that no two hands move one replica to two places.
"""

import msgspec

from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from spanstore.placement.balance import Move, Why
from spanstore.placement.range_map import SYSTEM_TABLE_ID

_ORDER = "replica_order"

MOVE_KEY = tuples.encode((SYSTEM_TABLE_ID, "replica_move"))
"""The row of the move that is under way."""


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
