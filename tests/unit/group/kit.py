"""Short ways to say what a client asks a group for."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from f1common.errors import Code, F1Error
from spanstore.group.config import GroupConfig
from spanstore.group.requests import (
    Answer,
    Commit,
    CommitReply,
    LockRead,
    OutcomeReply,
    Prepare,
    PrepareReply,
    RangeRead,
    Read,
    ReadReply,
    TxnWork,
)
from spanstore.testing.replicas import EPOCH, FAST, Replicas
from spanstore.txn.commands import TxnRef, Write
from spanstore.txn.locks import LockMode
from spanstore.txn.outcomes import Precondition
from spanstore.txn.spans import Span

ELSEWHERE = b"z9"
"""An anchor that the group of these tests does not own, when it is told to own up to ``z``."""
OWNED = ((b"", b"z"),)
COORDINATOR = 7


@contextmanager
def group(leader: str = "a", **options: object) -> Iterator[Replicas]:
    """Yield replicas of a group that owns everything below ``z``, led by ``leader``."""
    settings = {"paxos": FAST, **options}
    with Replicas(config=GroupConfig(**settings), owned=OWNED) as world:  # type: ignore[arg-type]
        world.lead(leader)
        yield world


def ref(name: str, attempt: int = 1, *, anchor: bytes = b"k", created: int = EPOCH) -> TxnRef:
    return TxnRef(anchor, name.encode(), created, attempt)


def writes(values: dict[bytes, bytes | None]) -> tuple[Write, ...]:
    return tuple(Write(key, value) for key, value in values.items())


def held(*keys: bytes, mode: LockMode = LockMode.SHARED) -> tuple[tuple[Span, LockMode], ...]:
    return tuple((Span(key), mode) for key in keys)


def age_of(txn: TxnRef) -> int:
    """Transactions are as old as their names say: t1 is older than t2."""
    digits = "".join(c for c in txn.unique.decode() if c.isdigit())
    return EPOCH + int(digits or 0)


def commit(
    txn: TxnRef,
    values: dict[bytes, bytes | None],
    *,
    tests: Sequence[Precondition] = (),
    locks: tuple[tuple[Span, LockMode], ...] = (),
    term: int = 0,
    deadline: int = 0,
    above: int = 0,
    participants: tuple[tuple[int, int], ...] = (),
) -> Commit:
    work = TxnWork(txn, age_of(txn), writes(values), tuple(tests), locks, term, deadline, above)
    return Commit(work, participants)


def prepare(
    txn: TxnRef,
    values: dict[bytes, bytes | None],
    *,
    tests: Sequence[Precondition] = (),
    locks: tuple[tuple[Span, LockMode], ...] = (),
    term: int = 0,
    deadline: int = EPOCH + 60_000_000,
    above: int = 0,
) -> Prepare:
    work = TxnWork(txn, age_of(txn), writes(values), tuple(tests), locks, term, deadline, above)
    return Prepare(work, COORDINATOR)


def far(name: str, attempt: int = 1) -> TxnRef:
    """A transaction that another group coordinates."""
    return ref(name, attempt, anchor=ELSEWHERE)


def lock(
    txn: TxnRef, *keys: bytes, exclusive: bool = False, ranges: Sequence[tuple[bytes, bytes]] = (), term: int = 0
) -> LockRead:
    mode = LockMode.EXCLUSIVE if exclusive else LockMode.SHARED
    return LockRead(txn, age_of(txn), mode, keys, tuple(RangeRead(*r) for r in ranges), term)


def value(world: Replicas, name: str, key: bytes, timestamp: int = 0) -> bytes | None:
    """Read one key, at the leader unless a timestamp is given."""
    return read_one(world.get(name, Read(timestamp, (key,))))


def put(world: Replicas, name: str, txn: str, values: dict[bytes, bytes | None]) -> int:
    """Commit and return the timestamp."""
    return committed(world.get(name, commit(ref(txn), values)))


def committed(answer: Answer) -> int:
    assert isinstance(answer, CommitReply), answer
    return answer.ts


def prepared(answer: Answer) -> int:
    assert isinstance(answer, PrepareReply), answer
    return answer.prepare_ts


def code(answer: Answer) -> Code:
    assert isinstance(answer, F1Error), answer
    return answer.code


def decided(answer: Answer) -> tuple[bool | None, int]:
    assert isinstance(answer, OutcomeReply), answer
    return answer.committed, answer.ts


def read_one(answer: Answer) -> bytes | None:
    """Return the value in the answer to a read of one key."""
    assert isinstance(answer, ReadReply), answer
    (version,) = answer.versions
    return None if version is None else version.value


def term_of(answer: Answer) -> int:
    assert isinstance(answer, ReadReply), answer
    return answer.term
