"""The keys that sign tokens: two at a time, in the storage tier, so that every f1server takes the tokens of all.

=========================== ====================================================================================
key (a tuple)               value
=========================== ====================================================================================
``(0, "signing_keys")``     a row: 1 number and 2 bytes of the key that signs, 3 and 4 of the one before (0 and
                            empty: none), 5 since when (us), 6 a secret that never changes (for users that there
                            are not)
=========================== ====================================================================================

A key signs for a day. Whoever is to sign then makes the next one, and the one before last is forgotten, with whatever
it has signed; that expired long before. A server that is shown a token of a key that it does not know reads the row
again, at most once a second. Whoever can read the storage tier can read the keys: see docs/operations.md.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from f1common.clock import Clock
from f1common.encoding import tuple as tuples
from f1common.encoding.row import Cell, decode_row, encode_row
from f1common.errors import Code, F1Error
from f1server.access.tokens import Purpose, Signed, key_number, open_token, sign
from f1server.catalog.places import SYSTEM_TABLE
from f1server.catalog.store import StorageClient
from spanstore.client import ExpectVersion, Write

__all__ = ["SigningKeys"]

_ROTATE_US = 86_400_000_000
_AGAIN_US = 1_000_000
_KEY = tuples.encode((SYSTEM_TABLE, "signing_keys"))
_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class _Row:
    """The row as read at ``ts`` (0: there is none)."""

    number: int = 0
    key: bytes = field(default=b"", repr=False)
    before: int = 0
    key_before: bytes = field(default=b"", repr=False)
    since_us: int = 0
    secret: bytes = field(default=b"", repr=False)
    ts: int = 0


class SigningKeys:
    """The keys as one server knows them."""

    def __init__(self, client: StorageClient, clock: Clock, random_bytes: Callable[[int], bytes]) -> None:
        """``random_bytes``: unpredictable ones, but in tests."""
        self.rotate_us = _ROTATE_US
        """How long a key signs; longer than tokens are good."""
        self._client = client
        self._clock = clock
        self._random_bytes = random_bytes
        self._row = _Row()
        self._read_us = 0
        self._lock = asyncio.Lock()

    async def sign(self, purpose: Purpose, says: bytes, life_us: int) -> bytes:
        """Return a token that is good for so long."""
        row = await self._current()
        return sign(purpose, says, self._now() + life_us, row.number, row.key)

    async def opened(self, token: bytes, purpose: Purpose) -> Signed:
        """Return what a token says. Raises F1Error UNAUTHENTICATED. Whether it has expired is the caller's question."""
        if self._key(key_number(token)) is None:
            await self._read_again()
        return open_token(token, purpose, self._key)

    async def secret(self) -> bytes:
        """Return a secret that is the same at all servers and at all times."""
        return (await self._current()).secret

    def _now(self) -> int:
        return self._clock.sample().tt.latest

    def _key(self, number: int) -> bytes | None:
        row = self._row
        if not number:
            return None
        return row.key if number == row.number else row.key_before if number == row.before else None

    async def _read_again(self) -> None:
        async with self._lock:
            now_us = self._clock.sample().boot_us
            if not self._read_us or now_us - self._read_us >= _AGAIN_US:
                await self._read()

    async def _current(self) -> _Row:
        """Return the row with a key that may sign, making one if need be."""
        if self._row.number and self._now() - self._row.since_us < self.rotate_us:
            return self._row
        async with self._lock:
            for _ in range(_ATTEMPTS):
                row = await self._read()
                if row.number and self._now() - row.since_us < self.rotate_us:
                    return row
                await self._rotate(row)
        raise F1Error(Code.UNAVAILABLE, "the keys that sign tokens keep being changed by others")

    async def _read(self) -> _Row:
        version = (await self._client.read([_KEY])).versions[0]
        self._read_us = self._clock.sample().boot_us
        if version is None or version.value is None:
            self._row = _Row(ts=0)
            return self._row
        cells = decode_row(version.value)
        self._row = _Row(
            _number(cells.get(1)),
            _bytes(cells.get(2)),
            _number(cells.get(3)),
            _bytes(cells.get(4)),
            _number(cells.get(5)),
            _bytes(cells.get(6)),
            version.ts,
        )
        return self._row

    async def _rotate(self, row: _Row) -> None:
        """Write the next key, if nobody else does at the same time."""
        cells: dict[int, Cell] = {
            1: row.number + 1,
            2: self._random_bytes(32),
            3: row.number,
            4: row.key,
            5: self._now(),
            6: row.secret or self._random_bytes(32),
        }
        try:
            await self._client.commit([Write(_KEY, encode_row(cells))], [ExpectVersion(_KEY, row.ts)])
        except F1Error as error:
            if error.code not in (Code.ABORTED, Code.ALREADY_EXISTS) and not error.ambiguous:
                raise


def _number(cell: object) -> int:
    return cell if isinstance(cell, int) else 0


def _bytes(cell: object) -> bytes:
    return cell if isinstance(cell, bytes) else b""
