"""Broken builds of what guards disks and clocks. Their checks are tests of whole clusters, not drawn scenarios.

``tests/sim/test_disk_mutations.py`` plays each against the check that must catch it, and the sound code too.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from spanstore.engine import memory
from spanstore.engine.pages import Walk
from spanstore.group import digests
from spanstore.mvcc import versions
from spanstore.runtime.casualties import Casualties
from spanstore.runtime.clockwatch import ClockWatch
from spanstore.runtime.supervision import Supervision
from spanstore.scrub import online
from spanstore.testing.mutations.mutation import replaced


@contextmanager
def checksum_not_verified() -> Iterator[None]:
    """Rows and records are taken as the disk gives them."""

    def believing(engine_key: bytes, data: bytes) -> versions.Version:
        _, ts = versions.split_version_key(engine_key)
        return versions.Version(ts, data[5:] if data[0] == 1 else None)

    with (
        replaced(versions, "decode_version", lambda _: believing),
        replaced(digests, "decode_version", lambda _: believing),
        replaced(memory, "unseal", lambda _: lambda key, data: data[4:]),
    ):
        yield


def scrubber_skips_records() -> AbstractContextManager[None]:
    """Pages are looked at, records are not."""
    return replaced(online, "check_record", lambda _: lambda key, stored: None)


def pages_not_checked_for_order() -> AbstractContextManager[None]:
    """Keys may stand anywhere."""
    return replaced(Walk, "_check_order", lambda _: lambda walk, nodes, low, high, *, skip_first: None)


def clock_check_ignored() -> AbstractContextManager[None]:
    """Whatever the others say, this server's clock is right."""
    return replaced(ClockWatch, "judge", lambda _: lambda watch, now: "")


def mark_forgotten() -> AbstractContextManager[None]:
    """A damaged replica is taken out, and back in after a restart."""

    def change(add: Callable[..., None]) -> Callable[..., None]:
        def broken(casualties: Casualties, group: int, reason: str) -> None:
            add(casualties, group, reason)
            casualties._marks.clear(group)

        return broken

    return replaced(Casualties, "_add", change)


def full_disk_writes_on() -> AbstractContextManager[None]:
    """Room is measured, and nothing follows from it."""
    return replaced(Supervision, "refuses", lambda _: lambda watch, request: "")


def digest_ignores_the_turn() -> AbstractContextManager[None]:
    """A range is compared without what the same turn has applied before."""

    def change(merged: Callable[..., Any]) -> Callable[..., Any]:
        def broken(reader: Any, batch: Any, start: bytes, end: bytes) -> Any:
            yield from reader.scan(start, end)

        return broken

    return replaced(digests, "_merged", change)
