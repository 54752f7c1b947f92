"""How much a leader reads, in one turn, for requests that waited.

One commit or one raised ceiling may let thousands of readers go on at once. Were they all answered in the turn that
follows, no lease would be renewed meanwhile; so a turn answers some, and the next one goes on.
"""

_LEAST_BYTES = 4 << 10
"""What any answer counts for at least: finding a small row takes about as long as copying this much."""


class Room:
    """What is left of a turn."""

    __slots__ = ("_left", "_most")

    def __init__(self, most_bytes: int) -> None:
        self._most = self._left = most_bytes

    def begin_turn(self) -> None:
        """A turn begins with all of the room."""
        self._left = self._most

    def take(self, answer_bytes: int) -> None:
        """Count an answer of about that size."""
        self._left -= max(answer_bytes, _LEAST_BYTES)

    def is_left(self) -> bool:
        """Tell whether this turn may go on with one more."""
        return self._left > 0
