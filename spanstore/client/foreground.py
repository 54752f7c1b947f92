"""How the storage tier serves users, as the answers to requests tell that are made in the background."""

from collections.abc import Callable
from dataclasses import dataclass

from f1common.pb import spanstore_pb2 as pb

__all__ = ["Foreground", "ForegroundLoad"]

_FRESH_S = 3.0


@dataclass(frozen=True, slots=True)
class ForegroundLoad:
    """How users are served: how many reads and commits of the last second or so, and how long one takes on average.

    It is ``age_s`` since a server has said so.
    """

    reads: float = 0.0
    read_us: float = 0.0
    commits: float = 0.0
    commit_us: float = 0.0
    age_s: float = 0.0


class Foreground:
    """What the servers said last. ``now_s`` tells the time by which that grows old."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._heard: dict[str, tuple[float, pb.Foreground]] = {}

    def hear(self, server: str, said: pb.Foreground) -> None:
        """Take in what a server says."""
        self._heard[server] = (self._now_s(), said)

    def load(self) -> ForegroundLoad:
        """Return the figures of all servers that were heard of late, together."""
        now_s = self._now_s()
        since_s = now_s - _FRESH_S
        fresh = [said for heard_s, said in self._heard.values() if heard_s >= since_s]
        reads, commits = sum(s.reads for s in fresh), sum(s.commits for s in fresh)
        return ForegroundLoad(
            reads,
            sum(s.reads * s.read_us for s in fresh) / reads if reads else 0.0,
            commits,
            sum(s.commits * s.commit_us for s in fresh) / commits if commits else 0.0,
            now_s - max((heard_s for heard_s, _ in self._heard.values()), default=now_s),
        )
