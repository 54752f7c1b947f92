"""What is refused of a request before anything is locked or written."""

from f1common.errors import Code, F1Error
from spanstore.group.move_requests import BeginMove, Cede, Clear, Export
from spanstore.group.requests import (
    Bundle,
    Commit,
    Decide,
    LockRead,
    Outcome,
    Prepare,
    Read,
    Release,
    Request,
    Settle,
    TxnWork,
)
from spanstore.mvcc.placeholders import check_places
from spanstore.mvcc.versions import check_key
from spanstore.txn import outcomes
from spanstore.txn.commands import TxnRef
from spanstore.txn.spans import Span, check_span

_MAX_UNIQUE_BYTES = 16


def validate(request: Request, max_bytes: int) -> None:
    """Refuse what is not ours or cannot be stored. Raises F1Error INVALID_ARGUMENT, KEY_TOO_LONG, OUT_OF_RANGE."""
    if isinstance(request, LockRead | Decide | Outcome | Release):
        validate_txn(request.txn)
    if isinstance(request, Read | Settle) and request.timestamp < 0:
        raise F1Error(Code.INVALID_ARGUMENT, "a timestamp is not negative")
    if isinstance(request, Read | LockRead | Settle):
        for wanted in request.ranges:
            if wanted.end <= wanted.start:
                raise F1Error(Code.INVALID_ARGUMENT, "a range read needs start < end")
        for key in () if isinstance(request, Settle) else request.keys:
            check_key(key)
    elif isinstance(request, Commit | Prepare):
        validate_work(request, max_bytes)
    elif isinstance(request, Bundle):
        _check_size(sum(map(size_of, request.works)), max_bytes)  # the rest is looked at work by work
    elif isinstance(request, BeginMove | Export | Cede | Clear):
        check_span(Span(request.start, request.end))


def validate_txn(txn: TxnRef) -> None:
    """Refuse a transaction without a proper name. Raises F1Error INVALID_ARGUMENT, KEY_TOO_LONG."""
    if not 1 <= len(txn.unique) <= _MAX_UNIQUE_BYTES or txn.attempt < 1:
        raise F1Error(Code.INVALID_ARGUMENT, "a transaction needs a unique id of 1 to 16 bytes and an attempt from 1")
    if txn.anchor:
        check_key(txn.anchor)


def size_of(work: TxnWork) -> int:
    """Return how many bytes the keys and values have that a transaction's share writes, tests and has locked."""
    locked = sum(len(span.start) + len(span.end or b"") for span, _ in work.held)
    tested = sum(len(span.start) + len(span.end or b"") for span in work.tested)
    return sum(len(write.key) + len(write.value or b"") for write in work.writes) + locked + tested


def validate_work(request: Commit | Prepare, max_bytes: int) -> None:
    """Refuse what no group could apply, or not in time. Raises F1Error INVALID_ARGUMENT, KEY_TOO_LONG, OUT_OF_RANGE."""
    work = request.work
    validate_txn(work.txn)
    _check_size(size_of(work), max_bytes)
    for span in work.tested:
        check_span(span)
    bare = not any(isinstance(test, outcomes.NoNewer) for test in work.preconditions)
    for write in work.writes:
        if write.key_offset >= 0 and not bare:
            raise F1Error(Code.INVALID_ARGUMENT, "a key that holds the commit timestamp has no newer version")
        # What a replica refuses when it applies it would stop the group for ever.
        check_key(write.key)
        if write.key_offset >= 0 or write.value_offsets:
            offset = write.key_offset if write.key_offset >= 0 else None
            check_places(write.key, offset, write.value, write.value_offsets)
    if isinstance(request, Prepare) and not work.deadline:
        raise F1Error(Code.INVALID_ARGUMENT, "a prepare needs a deadline")


def _check_size(size: int, max_bytes: int) -> None:
    if size > max_bytes:
        # It is one entry of the log: while it is copied and synced, no heartbeat is, of any group, and leases end.
        raise F1Error(
            Code.OUT_OF_RANGE,
            f"the transaction has {size} bytes of keys and values in one group, {max_bytes} at most are taken "
            "(storage.txn_max_bytes): commit it in parts",
            details={"limit": str(max_bytes)},
        )
