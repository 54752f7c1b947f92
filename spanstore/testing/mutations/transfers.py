"""Defects of state transfer: what is read when, and what of the receiver's own must stay."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from spanstore.engine import keyspace
from spanstore.engine.base import Reader, WriteBatch
from spanstore.engine.keyspace import Subspace
from spanstore.group import checkpoint
from spanstore.group.checkpoint import Part
from spanstore.runtime.state_source import _Transfer
from spanstore.runtime.transfer import Chunk, Installation, Stream
from spanstore.testing.mutations.mutation import Mutation, replaced
from spanstore.testing.scenarios.aims import quiet_absences


@contextmanager
def _outcomes_after_rows() -> Iterator[None]:
    """The source sends outcomes once more, after the rows and as they are then; the receiver takes them."""

    def send_late(send: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        async def broken(transfer: _Transfer, part: Part, applied: int, payload: bytes) -> None:
            if part is Part.END:
                with transfer._source.view(transfer._request.group) as reader:
                    items = list(checkpoint.read_records(reader, transfer._request.group))
                late = [item for item in items if item[0][0] in (Subspace.OUTCOME, Subspace.FINISHED)]
                await send(transfer, Part.RECORDS, applied, checkpoint.encode_items(late))
            await send(transfer, part, applied, payload)

        return broken

    def take_late(check: Callable[..., None]) -> Callable[..., None]:
        def broken(stream: Stream, chunk: Chunk, found: int) -> None:
            if chunk.part is Part.RECORDS:
                stream._part = Part.RECORDS
            check(stream, chunk, found)

        return broken

    with ExitStack() as stack:
        stack.enter_context(replaced(_Transfer, "_send", send_late))
        stack.enter_context(replaced(Stream, "_check", take_late))
        yield


@contextmanager
def _resumed_behind_the_base() -> Iterator[None]:
    """Rows are taken from whatever source answers."""

    def any_source(check: Callable[..., int]) -> Callable[..., int]:
        return lambda reader, group, base: check(reader, group, 0)

    with ExitStack() as stack:
        stack.enter_context(replaced(checkpoint, "check_source", any_source))
        stack.enter_context(replaced(Installation, "_check_reaches", lambda _: lambda self, chunk, base: None))
        yield


def _old_state_kept() -> Any:
    """Nothing is removed before the new state comes."""

    def change(_: Callable[..., bool]) -> Callable[..., bool]:
        return lambda reader, group, batch: False

    return replaced(checkpoint, "drop_some", change)


def _chunks_unchecked() -> Any:
    """What comes is what was sent."""

    def change(_: Callable[..., None]) -> Callable[..., None]:
        return lambda stream, chunk, found: None

    return replaced(Stream, "_check", change)


def _log_dropped() -> Any:
    """What the log has above the base goes, though this replica may be one of the quorum that holds it."""

    def change(finish: Callable[..., int]) -> Callable[..., int]:
        def broken(reader: Reader, group: int, batch: WriteBatch, whole_from: int) -> int:
            index = finish(reader, group, batch, whole_from)
            batch.delete_range(*keyspace.log_range(group, index + 1))
            return index

        return broken

    return replaced(checkpoint, "finish", change)


def _promise_forgotten() -> Any:
    """The hard state goes with the rest."""

    def change(finish: Callable[..., int]) -> Callable[..., int]:
        def broken(reader: Reader, group: int, batch: WriteBatch, whole_from: int) -> int:
            batch.delete(keyspace.hard_state_key(group))
            return finish(reader, group, batch, whole_from)

        return broken

    return replaced(checkpoint, "finish", change)


MUTATIONS = (
    Mutation(
        "outcomes_after_rows",
        "a replica that fetches the state gets outcomes that are newer than its rows",
        _outcomes_after_rows,
        quiet_absences,
    ),
)

BUILDS: Mapping[str, Callable[[], AbstractContextManager[None]]] = {
    "resumed behind the base": _resumed_behind_the_base,
    "old state kept": _old_state_kept,
    "chunks unchecked": _chunks_unchecked,
    "log dropped": _log_dropped,
    "promise forgotten": _promise_forgotten,
}
"""Defects that whole runs show too rarely: each is caught by a test of transfers between disks."""
