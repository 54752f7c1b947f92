"""Answers on their way out, and the two conditions that may still stop them.

An answer that rests on the leader's lease (a strong read, a locked read) leaves only if a clock sample taken *now*
finds the lease still valid: the process may have been paused between doing the work and this point. An answer that
makes a timestamp visible leaves only once that timestamp has definitely passed (Spanner's commit-wait); until then
it waits here, overlapped with whatever else goes on.
"""

import heapq
from collections.abc import Callable

import msgspec

from f1common.clock import Now
from f1common.errors import Code, F1Error
from spanstore.group.requests import Answer, Reply, Request


def _never() -> bool:
    return False


class Ticket(msgspec.Struct, frozen=True):
    """A request, where its answer goes, and the boot time at which the caller stops waiting."""

    request: Request
    reply: Reply
    deadline_us: int
    is_crowded: Callable[[], bool] = _never
    """Whether so much waits for the caller unread that large answers should be put off."""


def elsewhere(damage: F1Error) -> F1Error:
    """Return what a client is told of damage at one replica: the others have what it wants."""
    text = f"{damage.message}; ask another replica"
    return F1Error(damage.code, text, retryable=True, ambiguous=damage.ambiguous, details=damage.details)


class Outbox:
    """Collects the answers of a turn."""

    __slots__ = ("_leased", "_not_leader", "_plain", "_sequence", "_waiting", "damage")

    def __init__(self, not_leader: Callable[[], F1Error]) -> None:
        self._not_leader = not_leader
        self._plain: list[tuple[Reply, Answer]] = []
        self._leased: list[tuple[Reply, Answer, int, int]] = []
        self._waiting: list[tuple[int, int, Reply, Answer]] = []
        self._sequence = 0
        self.damage: F1Error | None = None
        """The first damaged record that an answer ran into: the replica must be taken out of service."""

    def send(self, reply: Reply, answer: Answer) -> None:
        """Answer without conditions: errors, and statements that are durable or state no fact about rows.

        DATA_CORRUPTION is damage of this replica, unless it may be retried: then it is known already, or was sent so.
        """
        if isinstance(answer, F1Error) and answer.code is Code.DATA_CORRUPTION and not answer.retryable:
            self.damage = self.damage or answer
            answer = elsewhere(answer)
        self._plain.append((reply, answer))

    def fail(self, reply: Reply, code: Code, message: str, *, ambiguous: bool = False) -> None:
        """Answer with an error."""
        self._plain.append((reply, F1Error(code, message, ambiguous=ambiguous)))

    def send_leased(self, reply: Reply, answer: Answer, term: int, visible_ts: int = 0) -> None:
        """Answer if the lease of ``term`` still holds when it leaves, and not before ``visible_ts`` has passed."""
        self._leased.append((reply, answer, term, visible_ts))

    def send_after(self, reply: Reply, answer: Answer, visible_ts: int) -> None:
        """Answer once ``visible_ts`` has definitely passed."""
        self._sequence += 1
        heapq.heappush(self._waiting, (visible_ts, self._sequence, reply, answer))

    def abandon(self) -> None:
        """The replica is thrown away: what was to be answered under its lease or after a wait is not vouched for."""
        held = [(reply, answer) for reply, answer, _, _ in self._leased]
        held += [(reply, answer) for _, _, reply, answer in self._waiting]
        self._leased, self._waiting = [], []
        for reply, answer in held:
            error = self._not_leader()
            ambiguous = not isinstance(answer, F1Error)
            self._plain.append((reply, F1Error(error.code, error.message, retryable=True, ambiguous=ambiguous)))

    def next_ts(self) -> int | None:
        """Return the earliest timestamp that an answer waits for."""
        return self._waiting[0][0] if self._waiting else None

    def deliver(self, now: Now, lease_holds: Callable[[int], bool]) -> None:
        """Let go of everything whose condition holds; ``now`` must be sampled after the work, just before this call."""
        plain, self._plain = self._plain, []
        leased, self._leased = self._leased, []
        for reply, answer in plain:
            reply(answer)
        for reply, answer, term, visible_ts in leased:
            if not lease_holds(term):
                reply(self._not_leader())
            elif visible_ts and not now.tt.after(visible_ts):
                self.send_after(reply, answer, visible_ts)
            else:
                reply(answer)
        while self._waiting and now.tt.after(self._waiting[0][0]):
            _, _, reply, answer = heapq.heappop(self._waiting)
            reply(answer)
