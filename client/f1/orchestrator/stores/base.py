"""What the orchestrator asks of a store: durable, strongly consistent, and atomic for one version at a time."""

from collections.abc import Sequence
from typing import Protocol

from f1.orchestrator.steps import Version, Write
from f1common.errors import Code, F1Error

__all__ = ["KEY_MAX_BYTES", "Store", "check_keys"]

KEY_MAX_BYTES = 450


class Store(Protocol):
    """Versions of cells by key and timestamp. Keys are opaque bytes, no key begins another; timestamps are 0 to 2**62.

    What a call has answered is durable and seen by every later call of any client. A call that raises may have had its
    effect, or a part of it, or get it later; with one exception: see :meth:`put_if_absent`.
    """

    async def get_versions(self, asked: Sequence[tuple[bytes, int]]) -> list[Version | None]:
        """Return for each (key, below) the newest version with a timestamp below that, or None."""
        ...

    async def put(self, writes: Sequence[Write]) -> None:
        """Write versions, each atomically, replacing what is there with the same timestamp.

        Once this has returned, no trace of the call is still on its way, such as a request that was sent twice.
        """
        ...

    async def put_if_absent(self, write: Write) -> bytes:
        """Write a version unless the cell has one at its timestamp; return what is there now. The value is not None.

        Tells the truth also when it had to try more than once: if the first try did it, the own value is returned
        whatever became of it since. Raises F1Error with ``ambiguous`` when it is not known whether it was written.
        """
        ...

    async def range(
        self, start: bytes, end: bytes, below: int, limit: int, *, every: bool = False
    ) -> list[tuple[bytes, list[Version]]]:
        """Return up to ``limit`` cells with ``start <= key < end`` in order that have versions below a timestamp.

        Of each the newest of these versions, or with ``every`` all of them, newest first. A shorter result is the end.
        """
        ...

    async def delete(self, versions: Sequence[tuple[bytes, int]]) -> None:
        """Remove versions (key, timestamp) as if they had never been; if it breaks off, a later one is not gone
        before an earlier one. What is not there is no error."""
        ...

    async def close(self) -> None:
        """Give back what is held. Idempotent."""
        ...


def check_keys(keys: Sequence[bytes]) -> None:
    """Raise F1Error KEY_TOO_LONG, or INVALID_ARGUMENT for an empty key."""
    for key in keys:
        if not key:
            raise F1Error(Code.INVALID_ARGUMENT, "a key has at least one byte")
        if len(key) > KEY_MAX_BYTES:
            raise F1Error(Code.KEY_TOO_LONG, f"a key of {len(key)} bytes; a store takes up to {KEY_MAX_BYTES}")
