"""Where ranges may begin and end (F1, section 2.1: at the borders of directories)."""

from f1common.encoding import tuple as tuples
from f1common.encoding.tuple import Timestamp
from f1common.errors import Code, F1Error
from spanstore.placement.range_map import KEY_MAX

FIRST_KEY = tuples.encode((1,))
"""What lies below belongs to the system, in the meta group, and never moves."""

_ROOT_ELEMENTS = 2


def check_border(key: bytes) -> None:
    """Refuse what no range may begin with. Raises INVALID_ARGUMENT.

    A border is a whole key, so that no key is a part of it and versions and records of a key lie on one side. And it
    holds no timestamp: keys that end in the commit timestamp are locked by what comes before it, which must not be cut.
    """
    if key < FIRST_KEY or key >= KEY_MAX:
        raise F1Error(Code.INVALID_ARGUMENT, "what lies below table 1 belongs to the system: no border can be there")
    try:
        elements = tuples.decode(key)
    except F1Error as error:
        raise F1Error(Code.INVALID_ARGUMENT, f"no range can begin with {key.hex()}: {error.message}") from error
    if any(isinstance(element, Timestamp) for element in elements):
        raise F1Error(
            Code.INVALID_ARGUMENT,
            "a border holds no timestamp: keys that end in one are kept together; leave it and what follows it out",
        )


def check_interval(start: bytes, end: bytes) -> None:
    """Refuse what cannot move as a whole. Raises INVALID_ARGUMENT."""
    check_border(start)
    if end != KEY_MAX:
        check_border(end)
    if start >= end:
        raise F1Error(Code.INVALID_ARGUMENT, "a range needs start < end")


def ancestors(key: bytes) -> list[bytes]:
    """Return the keys of the rows whose directories ``key`` may lie inside of: its beginnings with a root key."""
    elements = tuples.decode(key)
    return [tuples.encode(elements[:count]) for count in range(_ROOT_ELEMENTS, len(elements))]
