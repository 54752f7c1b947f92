"""What goes through a group's Paxos log: one command per entry, and its bytes.

A command is everything that a replica needs in order to apply it: no replica ever asks a clock, a lock table or another
group while it applies. The leader therefore decides first (locks, preconditions, timestamps, fences) and logs the
decision. Commands are msgpack arrays with a small integer tag in front; fields are only ever appended, with a default,
so that an older log stays readable. Structs are untracked by the garbage collector: they hold no cycles.
"""

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


class GcOutcomesCmd(_Command, frozen=True, array_like=True, gc=False, tag=6):
    """Drop outcome records of ids created and decided before ``before_ts``, and finished records whose deadline lies
    before it (microseconds since the epoch).

    ``unsettled`` are the groups that may still have such a transaction prepared, because they said so or did not
    answer: the records that name one of them as a participant stay.
    """

    before_ts: int
    unsettled: tuple[int, ...] = ()


Command = NewLeader | CommitCmd | AbortCmd | PrepareCmd | DecideCmd | GcOutcomesCmd

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
