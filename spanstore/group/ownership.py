"""Whether a group owns what a request touches, as of what it has applied."""

from collections.abc import Sequence

from f1common.errors import Code, F1Error
from spanstore.group import reads
from spanstore.group.holding import Holding
from spanstore.group.move_requests import Export
from spanstore.group.requests import Bundle, Commit, LockRead, Outcome, Prepare, Read, Request, Settle, TxnWork
from spanstore.placement.range_map import KEY_MAX
from spanstore.txn.spans import Span

_MANY = 8


def touched_by(request: Request) -> Sequence[Span]:
    """Return what a group must own to work on ``request``; decisions and releases touch what they find here."""
    match request:
        case Read() | Settle() | LockRead() | Export():
            return reads.spans_of(request)
        case Commit(work=work):
            return [*_spans_of(work), Span(work.txn.anchor)]
        case Bundle(works=works):
            return [span for work in works for span in (*_spans_of(work), Span(work.txn.anchor))]
        case Prepare(work=work):
            return _spans_of(work)
        case Outcome(txn=txn):
            # Only the owner of the anchor decides: two groups that did could decide differently.
            return [Span(txn.anchor)]
        case _:
            return []


def _spans_of(work: TxnWork) -> list[Span]:
    # Of a key that holds the commit timestamp, wherever that will put it.
    spans = [span for span, _ in work.locks]
    spans.extend(work.tested)
    return spans


def check_owned(holding: Holding, request: Request, group: int) -> None:
    """Raise WRONG_RANGE unless the group owns all that ``request`` touches; ``details["heir"]`` if it is known."""
    owned = holding.owned
    touched = touched_by(request)
    if len(touched) >= _MANY:
        first, last = min(start for start, _ in touched), max(end or start + b"\x00" for start, end in touched)
        if owned.has_range(first, last):
            touched = ()  # nearly always, all lies in one range
    for start, end in touched:
        if not (owned.has_key(start) if end is None else owned.has_range(start, end)):
            heir = holding.record.heir_of(start, end if end is not None else start + b"\x00")
            raise wrong_range(group, Span(start, end), heir)
    if isinstance(request, Prepare) and owned.has_key(request.work.txn.anchor):
        raise F1Error(
            Code.WRONG_RANGE,
            f"group {group} owns the anchor: it coordinates; refresh the range map",
            retryable=True,
        )


def wrong_range(group: int, span: Span, heir: int | None = None) -> F1Error:
    """Return the error that sends a client to the range map."""
    last = span.end.hex() if span.end not in (None, KEY_MAX) else "the end" if span.end else span.start.hex()
    where = "" if heir is None else f": group {heir} has some of it, or is to receive it"
    return F1Error(
        Code.WRONG_RANGE,
        f"group {group} does not own all of {span.start.hex()}..{last}{where}; refresh the range map",
        retryable=True,
        details={} if heir is None else {"heir": str(heir)},
    )
