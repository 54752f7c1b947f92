"""Pins: named, leased promises that a timestamp stays readable in every group.

A pin is a row of the meta group, written by an ordinary commit, so it is replicated and exactly-once like everything
else. What makes it sound is timestamps alone. Let ``keep`` be how long versions are kept anyway.

* A leader raises its garbage mark only after a strong read of all pins. If that read was at r, the mark rises to
  r - keep at most, and not past any pin that it found.
* A pin of t commits at some c with the fence c <= t + keep. A leader whose read did not see it read at r < c, so its
  mark stays below c - keep <= t. One that saw it keeps its mark at or below t. So when the commit is acknowledged, t is
  at or above every mark, and of every later one; nobody was asked.
* A pin counts for a leader unless it had expired *at the read*: expiry < r. It is refreshed by a commit at c with the
  fence c <= its expiry as it was. A leader that read the older row at r < c <= expiry still honoured it; so a refreshed
  pin never had a gap. No two clocks are compared anywhere.

All of it rests on one ``keep`` for the whole cluster, which is a row as well (:mod:`spanstore.placement.settings`): a
leader reads it with the pins, and the commit of a pin expects it unchanged since it was read. After a change at L, a
leader that read before may have marks up to L - the old ``keep``: the row says so, and nobody pins below that.
"""

import msgspec

from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from spanstore.placement.range_map import SYSTEM_TABLE_ID

_FIRST = "pin"
_PREFIX = tuples.encode((SYSTEM_TABLE_ID, _FIRST))
MAX_NAME_BYTES = 200


class Pin(msgspec.Struct, frozen=True, array_like=True):
    """``ts`` stays readable until ``expires_ts`` (microseconds since the epoch); ``owner`` says for whom."""

    name: str
    ts: int
    expires_ts: int
    owner: str = ""

    def expired(self, read_ts: int) -> bool:
        """Tell whether somebody who read the pins at ``read_ts`` need not honour it."""
        return self.expires_ts < read_ts


def pin_key(name: str) -> bytes:
    """Return the key of a pin's row. Raises F1Error INVALID_ARGUMENT for a name that is empty or too long."""
    if not 0 < len(name.encode()) <= MAX_NAME_BYTES:
        raise F1Error(Code.INVALID_ARGUMENT, f"the name of a pin has 1 to {MAX_NAME_BYTES} bytes")
    return tuples.encode((SYSTEM_TABLE_ID, _FIRST, name))


def pin_range() -> tuple[bytes, bytes]:
    """Return the range of the rows of all pins."""
    return _PREFIX, tuples.successor(_PREFIX)


def encode_pin(pin: Pin) -> bytes:
    """Return the row of a pin."""
    return msgspec.msgpack.encode(pin)


def decode_pin(data: bytes) -> Pin:
    """Read the row of a pin. Raises F1Error DATA_CORRUPTION."""
    try:
        return msgspec.msgpack.decode(data, type=Pin)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise F1Error(Code.DATA_CORRUPTION, f"{len(data)} bytes are no pin: {error}") from error


def highest_mark(read_ts: int, keep_us: int, pins: list[Pin]) -> int:
    """Return how far marks may rise for somebody who has read all ``pins`` strongly at ``read_ts``."""
    return min([read_ts - keep_us, *(pin.ts for pin in pins if not pin.expired(read_ts))])
