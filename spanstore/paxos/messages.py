"""What replicas of one Paxos group say to each other, and the values that they agree on.

Every message is addressed by the group runtime (group, sender, receiver); the ballot in it says under whose
leadership it was sent. All times are microseconds.
"""

from typing import NamedTuple

import msgspec


class Ballot(NamedTuple):
    """A proposal number: rounds are ordered first, equal rounds by the name of the replica. ``NO_BALLOT`` is none."""

    round: int
    replica: str


NO_BALLOT = Ballot(0, "")


class LogEntry(msgspec.Struct, frozen=True, gc=False):
    """One position of the log. ``ballot`` is the one that it was proposed under and never changes."""

    index: int
    ballot: Ballot
    payload: bytes


class HardState(msgspec.Struct, frozen=True, gc=False):
    """What a replica must have on disk before a promise, vote or Accepted that depends on it leaves.

    ``promised``: the highest ballot promised or accepted. ``ceiling``: the highest timestamp ceiling acknowledged.
    ``max_lease_us``: the longest lease ever granted, which a restart must wait out.
    """

    promised: Ballot = NO_BALLOT
    ceiling: int = 0
    max_lease_us: int = 0


class PreVote(msgspec.Struct, frozen=True, gc=False):
    """Would you promise this ballot? Nothing changes at either end; see Ongaro's thesis, section 9.6."""

    ballot: Ballot
    last_index: int
    last_ballot: Ballot


class PreVoteReply(msgspec.Struct, frozen=True, gc=False):
    """``ballot`` repeats the question's; ``promised`` is the acceptor's own, to be exceeded by a candidate."""

    ballot: Ballot
    granted: bool
    promised: Ballot


class Prepare(msgspec.Struct, frozen=True, gc=False):
    """Phase 1. ``released`` names the ballot whose leader gave up its lease in the sender's favour, or NO_BALLOT."""

    ballot: Ballot
    last_index: int
    last_ballot: Ballot
    released: Ballot = NO_BALLOT


class Promise(msgspec.Struct, frozen=True, gc=False):
    """The answer to Prepare. ``ballot`` repeats the question's.

    ``promised``: the acceptor's promised ballot now (``ballot`` if granted). ``previous``: what it had promised
    before. ``ceiling``: its durable timestamp ceiling.
    """

    ballot: Ballot
    granted: bool
    promised: Ballot
    previous: Ballot
    ceiling: int


class Accept(msgspec.Struct, frozen=True, gc=False):
    """Phase 2, heartbeat and lease request in one: from a leader to one acceptor.

    ``entries`` follow ``prev_index``, whose entry the leader holds under ``prev_ballot``. ``chosen_index``: all
    up to it is chosen. ``ceiling``: timestamp ceiling to promise. ``sent_boot_us``: the leader's boot clock, which
    the lease runs from. ``lease_us``: how long the acceptor refuses other candidates from receipt.
    ``safe_index``, ``safe_ts``: a replica that has applied ``safe_index`` has everything up to ``safe_ts``.
    ``truncate_below``: no member needs the entries below this index, or one was away too long and fetches the state.
    """

    ballot: Ballot
    prev_index: int
    prev_ballot: Ballot
    entries: tuple[LogEntry, ...]
    chosen_index: int
    ceiling: int
    sent_boot_us: int
    lease_us: int
    safe_index: int
    safe_ts: int
    truncate_below: int


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """The answer to Accept, true once durable. ``ballot`` and ``sent_boot_us`` repeat the Accept's.

    ``promised`` above ``ballot``: refused, the leader is deposed; nothing else counts. Otherwise the lease and the
    ``ceiling`` are granted, and ``ok`` tells whether the log matched: then all up to ``match_index`` is as the
    leader's; if not, ``hint`` is the highest index that may still match, -1 for a newcomer that has no state at all.
    """

    ballot: Ballot
    promised: Ballot
    ok: bool
    match_index: int
    hint: int
    sent_boot_us: int
    ceiling: int


class TransferLeadership(msgspec.Struct, frozen=True, gc=False):
    """The leader of ``ballot`` has given up its lease; the receiver, a caught-up voter, should become leader at once.

    ``highest_ts`` is at or above every timestamp that this leader, or any before it, gave out.
    """

    ballot: Ballot
    highest_ts: int


class OfferState(msgspec.Struct, frozen=True, gc=False):
    """The log of the leader of ``ballot`` begins at ``first_index``, above what the receiver lacks: fetch the state."""

    ballot: Ballot
    first_index: int


class Removed(msgspec.Struct, frozen=True, gc=False):
    """The receiver asked to be elected, but ``version``, which is chosen, does not name it: one of its own or later."""

    ballot: Ballot
    version: int


Message = PreVote | PreVoteReply | Prepare | Promise | Accept | Accepted | TransferLeadership | OfferState | Removed
