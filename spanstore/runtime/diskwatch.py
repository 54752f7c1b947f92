"""Has the disk room, and is it quick enough to lead with? Pure: measurements in, a state out.

Room is what the file can still grow by. While it is above the reserve all is well. Below (*low*), the reserve itself is
being used: the server gives leadership away, and if nobody takes it refuses what would add data; deletions, decisions
of prepared transactions and the log's own records go on. In its last half (*full*) a follower also refuses new
entries of the log; it keeps its promises, votes and answers reads. Nothing of that loses data, and all of it ends by
itself when there is room again.

A disk is *slow* when syncs longer than ``slow_sync_us`` filled half of the last ten seconds: one long sync is none.
"""

from collections import deque
from enum import Enum

from spanstore.engine.base import Space

_WINDOW_US = 10_000_000
_SLOW_SHARE = 2
_LEAST_TURN_BYTES = 64 << 10
_TURN_SHARE = 16


class Room(Enum):
    """How much room there is."""

    ENOUGH = "enough"
    LOW = "low"
    FULL = "full"


class DiskWatch:
    """What one server knows of its disk."""

    def __init__(self, slow_sync_us: int) -> None:
        self._slow_sync_us = slow_sync_us
        self._slow: deque[tuple[int, int]] = deque()
        self.space: Space | None = None
        self.room = Room.ENOUGH
        self.sync_us = 0
        """Duration of a sync, averaged over the last few."""
        self.longest_us = 0

    def measured(self, space: Space | None) -> None:
        """Take in how much room there is; None if that cannot be told, as of a simulated disk."""
        self.space = space
        if space is None:
            self.room = Room.ENOUGH
            return
        # To leave a state takes a quarter more than to enter it, lest it changes with every write.
        low = space.reserve if self.room is Room.ENOUGH else space.reserve * 5 // 4
        full = space.reserve // 2 if self.room is not Room.FULL else space.reserve * 5 // 8
        self.room = Room.FULL if space.room < full else Room.LOW if space.room < low else Room.ENOUGH

    def near_the_end(self) -> bool:
        """Tell whether the room should be measured after every write."""
        return self.space is not None and self.space.room < 4 * self.space.reserve

    def turn_bytes(self, most: int) -> int:
        """Return how much one turn of the server may take in: a fraction of the room, so that it fits for certain."""
        if self.space is None:
            return most
        return min(most, max(_LEAST_TURN_BYTES, self.space.room // _TURN_SHARE))

    def synced(self, began_us: int, ended_us: int) -> None:
        """Take in one sync, in boot time."""
        duration_us = ended_us - began_us
        self.sync_us += (duration_us - self.sync_us) // 8
        self.longest_us = max(self.longest_us, duration_us)
        if duration_us >= self._slow_sync_us:
            self._slow.append((began_us, ended_us))

    def slow(self, now_us: int, since_us: int | None = None) -> bool:
        """Tell whether the disk is slow; ``since_us`` is when the sync under way began, if there is one."""
        start_us = now_us - _WINDOW_US
        while self._slow and self._slow[0][1] <= start_us:
            self._slow.popleft()
        spent_us = sum(ended - max(began, start_us) for began, ended in self._slow)
        if since_us is not None and now_us - since_us >= self._slow_sync_us:
            spent_us += now_us - max(since_us, start_us)
        return spent_us * _SLOW_SHARE >= _WINDOW_US

    def text(self, now_us: int, since_us: int | None = None) -> str:
        """Say what is wrong with the disk, nothing if it is well."""
        if self.room is not Room.ENOUGH and self.space is not None:
            left = f"{self.space.room >> 20} MiB of room left, {self.space.reserve >> 20} MiB are kept in reserve"
            return f"DISK_FULL: {left}; free space on the disk of server.data_dir"
        if self.slow(now_us, since_us):
            average = f"syncs take {self.sync_us / 1000:.0f} ms on average"
            return f"the disk is slow: {average}; look at the disk of server.data_dir"
        return ""
