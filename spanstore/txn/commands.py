"""What goes through a group's Paxos log: one command per entry, and its bytes.

A command is everything that a replica needs in order to apply it: no replica ever asks a clock, a lock table or another
group while it applies. The leader therefore decides first (locks, preconditions, timestamps, fences) and logs the
decision. Commands are msgpack arrays with a small integer tag in front; fields are only ever appended, with a default,
so that an older log stays readable. Structs are untracked by the garbage collector: they hold no cycles.
"""

from enum import IntEnum

import msgspec

from f1common.errors import Code, F1Error
from spanstore.txn.locks import LockMode, Priority, Span


class _Record(msgspec.Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """A positional record: compact on disk, compared by value. A newer version's field is an error, not ignored."""


class TxnRef(_Record, frozen=True, array_like=True, gc=False):
    """A commit id and which attempt of it. The id is ``(anchor, unique, created_ts)``; see the package docstring.

    ``anchor`` is the encoded root key of the transaction's first write, ``unique`` the client's random bytes,
    ``created_ts`` the client's time of creation in microseconds since the epoch, ``attempt`` counts from 1.
    """

    anchor: bytes
    unique: bytes
    created_ts: int
    attempt: int


class Write(_Record, frozen=True, array_like=True, gc=False):
    """One new version of one key; ``value=None`` deletes.

    ``key_offset`` is the byte offset of the 8 placeholder bytes of the commit timestamp in ``key``, -1 for none;
    ``value_offsets`` are such offsets in ``value``.
    """

    key: bytes
    value: bytes | None
    key_offset: int = -1
    value_offsets: tuple[int, ...] = ()


class LockRecord(_Record, frozen=True, array_like=True, gc=False):
    """One lock of a prepared transaction, from which a new leader rebuilds it. ``end=None`` is the single key."""

    start: bytes
    end: bytes | None
    mode: LockMode

    @property
    def span(self) -> Span:
        """What the lock covers."""
        return Span(self.start, self.end)


class _Command(msgspec.Struct, frozen=True, array_like=True, gc=False, tag_field="type", forbid_unknown_fields=True):
    """A tagged positional record."""


class NewLeader(_Command, frozen=True, array_like=True, gc=False, tag=1):
    """First command of a leader's term: nothing of an older term follows it in the log.

    ``floor_ts``: the highest timestamp ceiling that the leader learnt; it gives out timestamps above this only.
    """

    ballot_round: int
    replica: str
    floor_ts: int


class CommitCmd(_Command, frozen=True, array_like=True, gc=False, tag=2):
    """Commit ``writes`` at ``ts`` and record the outcome: a one-group commit, or the decision of a coordinator.

    ``participants`` are the other groups that prepared, empty for a one-group commit; ``deadline`` is the write fence
    (microseconds since the epoch), which ``ts`` does not exceed.
    """

    txn: TxnRef
    ts: int
    writes: tuple[Write, ...]
    participants: tuple[int, ...]
    deadline: int


class AbortCmd(_Command, frozen=True, array_like=True, gc=False, tag=3):
    """The coordinator records that this attempt aborted, also when it never heard of it before.

    ``ts`` is when it decided so, in microseconds since the epoch: records are kept by age.
    """

    txn: TxnRef
    reason: str
    ts: int


class PrepareCmd(_Command, frozen=True, array_like=True, gc=False, tag=4):
    """A participant promises: it can commit ``writes`` at any timestamp at or above ``prepare_ts``.

    ``locks`` is every lock that the transaction holds in this group, shared and validated-absent ones included, all
    verified to be still held under the term that logs this. Past ``deadline`` the coordinator no longer commits.
    """

    txn: TxnRef
    prepare_ts: int
    priority: Priority
    writes: tuple[Write, ...]
    locks: tuple[LockRecord, ...]
    coordinator_group: int
    deadline: int


class DecideCmd(_Command, frozen=True, array_like=True, gc=False, tag=5):
    """A participant learns the coordinator's decision: commit at ``commit_ts``, or abort if it is None.

    ``deadline`` is kept for a decision about an attempt that was never prepared here, so that its late prepare is
    refused; 0 takes the deadline of the prepare.
    """

    txn: TxnRef
    commit_ts: int | None
    deadline: int = 0


class Bundled(_Record, frozen=True, array_like=True, gc=False):
    """One transaction of a bundle, as a CommitCmd without participants says it."""

    txn: TxnRef
    writes: tuple[Write, ...]
    deadline: int


class BundleCmd(_Command, frozen=True, array_like=True, gc=False, tag=7):
    """Commit each of some transactions at ``ts``, as if each had a CommitCmd of its own, in any order.

    No two of them have a key in common that one of them writes. What they append below one prefix is told apart by
    their own part of the key.
    """

    ts: int
    commits: tuple[Bundled, ...]

    def apart(self) -> "list[CommitCmd]":
        """Return what it says as a command for each transaction."""
        return [CommitCmd(one.txn, self.ts, one.writes, (), one.deadline) for one in self.commits]


class GcOutcomesCmd(_Command, frozen=True, array_like=True, gc=False, tag=6):
    """Drop outcome records of ids created and decided before ``before_ts``, and finished records whose deadline lies
    before it (microseconds since the epoch).

    ``unsettled`` are the groups that may still have such a transaction prepared, because they said so or did not
    answer: the records that name one of them as a participant stay.

    ``outcomes`` are the candidates among the outcome records and ``finished`` those among the finished records, by
    their engine keys without the prefix; each replica tests them again as they are when it applies this. ``position``
    is where the pass goes on, as in CollectCmd.
    """

    before_ts: int
    unsettled: tuple[int, ...] = ()
    outcomes: tuple[bytes, ...] = ()
    finished: tuple[bytes, ...] = ()
    position: bytes = b""


class RaiseMarkCmd(_Command, frozen=True, array_like=True, gc=False, tag=30):
    """Nobody reads below ``mark_ts`` (microseconds since the epoch) in this group any more: the garbage mark.

    Everything that is committed at or below it stands in the log before this entry.
    """

    mark_ts: int


class Removal(_Record, frozen=True, array_like=True, gc=False):
    """The versions of ``key`` from ``oldest_ts`` to ``newest_ts``, both included."""

    key: bytes
    newest_ts: int
    oldest_ts: int


class CollectCmd(_Command, frozen=True, array_like=True, gc=False, tag=31):
    """Remove versions that no read at or above the garbage mark can see.

    They are named, not computed by each replica: a replica applies several entries against one view from before all of
    them, and where it makes such a cut differs from replica to replica. ``versions`` and ``size``, in bytes, are how
    much that is. ``position`` is where the pass over the group goes on, empty at its end: then ``ended_ts`` is when
    (microseconds since the epoch), and ``pass_mark_ts`` the mark up to which no garbage is left.
    """

    removed: tuple[Removal, ...]
    versions: int
    size: int
    position: bytes
    pass_mark_ts: int = 0
    ended_ts: int = 0


# Moves of ranges between groups: spanstore.placement has the protocol. ``move`` is the number of the job.


class CopyStage(IntEnum):
    """How far the group that a range moves to has come."""

    CLEARING = 0
    """What is left of the range from an earlier move is removed."""
    ROWS = 1
    """A pass ships the versions that are new, while the old group serves."""
    OUTCOMES = 2
    """The same pass ships the records of outcomes whose anchor lies in the range."""
    LAST_ROWS = 3
    """The old group has ceded: what it wrote since the last pass."""
    LAST_OUTCOMES = 4
    """And what it decided."""
    LAST_FINISHED = 5
    """The old group's memory of finished attempts."""
    READY = 6
    """Everything is here."""


class Progress(_Record, frozen=True, array_like=True, gc=False):
    """Where a copy stands in the group that receives it.

    ``resume``: where the stage goes on, a stored key without group and subspace; empty: at its beginning. Versions at
    or below ``since_ts`` have been shipped, and with this pass those at or below ``until_ts`` (0: it has not begun);
    the other two say the same of outcomes. ``rows`` counts the versions of this pass, ``last_rows`` those of the pass
    before, ``total`` all.
    """

    stage: CopyStage = CopyStage.CLEARING
    resume: bytes = b""
    since_ts: int = 0
    until_ts: int = 0
    outcomes_since_ts: int = 0
    outcomes_until_ts: int = 0
    passes: int = 0
    rows: int = 0
    last_rows: int = 0
    total: int = 0


class BeginMoveCmd(_Command, frozen=True, array_like=True, gc=False, tag=20):
    """The group will receive ``[start, end)`` from the group ``source``. It owns nothing of it yet."""

    move: int
    start: bytes
    end: bytes
    source: int


class StageCmd(_Command, frozen=True, array_like=True, gc=False, tag=21):
    """The next piece of a copy, if the one before it was number ``seq - 1``; then the copy stands at ``progress``.

    ``versions``, ``outcomes`` and ``finished`` are (key, value) as stored, the key without group and subspace.
    ``clear`` are the borders, of such keys, between which versions and outcomes are removed before.
    """

    move: int
    seq: int
    progress: Progress
    versions: tuple[tuple[bytes, bytes], ...] = ()
    outcomes: tuple[tuple[bytes, bytes], ...] = ()
    finished: tuple[tuple[bytes, bytes], ...] = ()
    clear: tuple[bytes, bytes] | None = None


class CedeCmd(_Command, frozen=True, array_like=True, gc=False, tag=22):
    """The group gives ``[start, end)`` up to the group ``heir``, for good: from this entry on it serves none of it.

    ``last_ts`` is at or above every timestamp that the group gave out or promised; ``earliest_ts`` is the earlier edge
    of the leader's clock: finished attempts whose deadline it has passed need not be remembered by the heir.
    """

    move: int
    start: bytes
    end: bytes
    heir: int
    last_ts: int
    earliest_ts: int


class OwnCmd(_Command, frozen=True, array_like=True, gc=False, tag=23):
    """The group owns the range that it received, and gives out timestamps above ``floor_ts`` only.

    ``mark_ts`` is the garbage mark of the group that it comes from: nobody reads the range below it here either.
    """

    move: int
    floor_ts: int
    mark_ts: int = 0


class ClearCmd(_Command, frozen=True, array_like=True, gc=False, tag=24):
    """Remove versions and outcomes between the stored keys ``start`` and ``end``, which the group no longer owns."""

    move: int
    start: bytes
    end: bytes


class AbandonCmd(_Command, frozen=True, array_like=True, gc=False, tag=25):
    """The move is over here, unless this group has ceded for it: whatever arrives late about it is refused."""

    move: int


class DigestCmd(_Command, frozen=True, array_like=True, gc=False, tag=40):
    """Compute the digest of the records in ``[start, end)``, engine keys without the group, as of this entry.

    It changes nothing; replicas compare what they have (:mod:`spanstore.group.digests`).
    """

    start: bytes
    end: bytes


MoveCommand = BeginMoveCmd | StageCmd | CedeCmd | OwnCmd | ClearCmd | AbandonCmd

Command = (
    NewLeader
    | CommitCmd
    | BundleCmd
    | AbortCmd
    | PrepareCmd
    | DecideCmd
    | GcOutcomesCmd
    | DigestCmd
    | RaiseMarkCmd
    | CollectCmd
    | MoveCommand
)

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)


def encode_command(command: Command) -> bytes:
    """Return the bytes of ``command`` as they stand in a log entry."""
    return _ENCODER.encode(command)


def decode_command(data: bytes) -> Command:
    """Return the command in ``data``. Raises F1Error DATA_CORRUPTION if it is none that this version knows."""
    try:
        return _DECODER.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise F1Error(Code.DATA_CORRUPTION, f"a log entry of {len(data)} bytes is no command: {error}") from error
