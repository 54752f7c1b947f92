"""A store in the storage tier of this project: replicated, and spread over its groups.

Each version is a row there, the inverted timestamp the last element of its key. The tier's own versions and timestamps
play no part. This is the one module of the client library that uses the storage tier's client: what others do through
f1servers, the orchestrator does itself.
"""

import asyncio
import random
from collections.abc import Sequence
from typing import TypeVar

import grpc

from f1.errors import translating
from f1.orchestrator import options
from f1.orchestrator.protocol import EVERYTHING
from f1.orchestrator.steps import Version, Write
from f1.orchestrator.stores.base import check_keys
from f1common.clock import BoundedClock, Clock
from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from f1common.ids import process_rng
from f1common.orchestrator.spans import CELLS, DECISIONS
from f1common.pb import f1_pb2, f1_pb2_grpc
from f1common.rpc.backoff import Backoff
from f1common.rpc.channels import ChannelCache
from spanstore import client as span

__all__ = ["SpanStore"]

T = TypeVar("T")

_CLOCK_BOUND_US = 50_000
_ASK_S = 2.0
_MAX_WRITES = 500
_MAX_BYTES = 4 << 20
_MAX_ROWS = 2_000
_NULL = b"\x02"  # the first element of the keys of the transaction table
_DELETED = b"\x00"
_VALUE = b"\x01"


def _place(key: bytes) -> bytes:
    """Return where a key, or a bound of a range of keys, lies in the storage tier; order is kept."""
    if key[:1] > _NULL:
        return CELLS + key
    return DECISIONS + key[1:] if key[:1] == _NULL else DECISIONS


def _version_key(key: bytes, ts: int) -> bytes:
    return _place(key) + tuples.encode((EVERYTHING - ts,))


def _split(row_key: bytes) -> tuple[bytes, int]:
    """Return the key and the timestamp of a version. Raises F1Error DATA_CORRUPTION."""
    head = b"" if row_key.startswith(CELLS) else _NULL
    *elements, inverted = tuples.decode(row_key[len(CELLS) :])
    if not isinstance(inverted, int):
        raise F1Error(Code.DATA_CORRUPTION, f"{row_key.hex()} is no key of the orchestrator")
    return head + tuples.encode(elements), EVERYTHING - inverted


def _beyond(row_key: bytes, below: int, every: bool) -> bytes:
    """Return where to read on after a version, without the others of its cell that are not wanted: it may have many."""
    key, ts = _split(row_key)
    if ts >= below:
        return _version_key(key, below - 1)
    return row_key if every else _place(key) + b"\xff"


def _version(row: "span.Row") -> Version:
    return Version(_split(row.key)[1], None if row.value[:1] == _DELETED else row.value[1:])


def _span_write(write: Write) -> "span.Write":
    value = _DELETED if write.value is None else _VALUE + write.value
    return span.Write(_version_key(write.key, write.ts), value)


class SpanStore:
    """Implements :class:`~f1.orchestrator.stores.base.Store` for one event loop."""

    shared = True
    """Other processes may use it too."""

    def __init__(
        self,
        address: str,
        *,
        clock: Clock | None = None,
        timeout_s: float = 10.0,
        client: "span.SpanClient | None" = None,
        rng: random.Random | None = None,
    ) -> None:
        """``address``: ``host:port,...`` of f1servers or spanservers. Connects when it is first used.

        ``clock`` is this machine's, by default the system clock, which is used only to name commits and to limit how
        late they may come. ``timeout_s``: how long a call may take. ``client`` replaces the address: for simulations.
        Raises F1Error INVALID_ARGUMENT.
        """
        with translating():
            self._addresses = tuple(options.addresses("a store", address)) if client is None else ()
            self._timeout_s = options.seconds("timeout_s", timeout_s)
        self._clock = clock or BoundedClock(_CLOCK_BOUND_US)
        self._rng = rng or process_rng()
        self._client = client
        self._own = client is None
        self._connecting = asyncio.Lock()
        self._closed = False

    async def _span(self) -> "span.SpanClient":
        if self._closed:
            raise F1Error(Code.FAILED_PRECONDITION, "the store is closed")
        if self._client is None:
            async with self._connecting:
                if self._client is None:
                    addresses = await storage_of(self._addresses)
                    self._client = span.SpanClient(addresses, clock=self._clock, rng=self._rng)
        return self._client

    # ------------------------------------------------------------------ reads

    async def get_versions(self, asked: Sequence[tuple[bytes, int]]) -> list[Version | None]:
        """Return the newest versions below the timestamps."""
        found: list[Version | None] = [None] * len(asked)
        ranges = {
            position: span.KeyRange(_version_key(key, below - 1), _place(key) + b"\xff", 1)
            for position, (key, below) in enumerate(asked)
            if below > 0
        }
        client = await self._span()
        groups = await client.range_map(timeout_s=self._timeout_s)
        parts: dict[int, list[int]] = {}
        for position, wanted in ranges.items():
            parts.setdefault(groups.group_of(wanted.start), []).append(position)

        # Each group is asked by itself, so that it picks the timestamp: no clock of ours has a say in what is read.
        async def one(positions: list[int]) -> None:
            try:
                result = await client.read(ranges=[ranges[p] for p in positions], timeout_s=self._timeout_s)
            except F1Error as error:
                if error.code is not Code.OUT_OF_RANGE or len(positions) == 1:
                    raise
                # Together they are more than a message holds; how large values are is known only when they are read.
                await one(positions[: len(positions) // 2])
                await one(positions[len(positions) // 2 :])
                return
            for position, rows in zip(positions, result.ranges, strict=True):
                found[position] = _version(rows[0]) if rows else None

        await asyncio.gather(*(one(parts[group]) for group in sorted(parts)))
        return found

    async def range(
        self, start: bytes, end: bytes, below: int, limit: int, *, every: bool = False
    ) -> list[tuple[bytes, list[Version]]]:
        """Return cells in the order of their keys."""
        if start >= end or below <= 0:
            return []
        page: list[tuple[bytes, list[Version]]] = []
        at, last = _place(start), _place(end)
        while at < last:
            rows, at = await self._rows(at, last, min(2 * limit + 1, _MAX_ROWS))
            for row in rows:
                key, ts = _split(row.key)
                if key < start or ts >= below:  # a bound just above a key comes before the versions of that key
                    continue
                if page and page[-1][0] == key:
                    if every:
                        page[-1][1].append(_version(row))
                    continue
                if len(page) == limit:
                    return page
                page.append((key, [_version(row)]))
            if rows:
                at = max(at, _beyond(rows[-1].key, below, every))
        return page

    async def _rows(self, start: bytes, end: bytes, limit: int) -> tuple[list["span.Row"], bytes]:
        """Read up to ``limit`` rows from one group; return them and where to go on."""
        client = await self._span()
        groups = await client.range_map(timeout_s=self._timeout_s)
        _, piece_end, _ = next(iter(groups.pieces(start, end)))
        result = await client.read(ranges=[span.KeyRange(start, piece_end, limit)], timeout_s=self._timeout_s)
        (rows,) = result.ranges
        return rows, piece_end if len(rows) < limit else rows[-1].key + b"\x00"

    # ------------------------------------------------------------------ writes

    async def put(self, writes: Sequence[Write]) -> None:
        """Write versions. Raises F1Error KEY_TOO_LONG, UNAVAILABLE."""
        check_keys([write.key for write in writes])
        await self._commit_all([_span_write(write) for write in writes])

    async def put_if_absent(self, write: Write) -> bytes:
        """Write a version unless there is one; return what is there. Raises F1Error KEY_TOO_LONG, UNKNOWN_OUTCOME."""
        check_keys([write.key])
        row = _span_write(write)
        while True:
            try:
                await self._commit([row], [span.ExpectAbsent(row.key)])
                return write.value or b""
            except F1Error as error:
                if error.code is not Code.ALREADY_EXISTS:
                    raise
            (found,) = (await (await self._span()).read([row.key], timeout_s=self._timeout_s)).values()
            if found is not None:
                return found[1:]

    async def delete(self, versions: Sequence[tuple[bytes, int]]) -> None:
        """Remove versions, in their order."""
        await self._commit_all([span.Write(_version_key(key, ts), None) for key, ts in versions])

    async def _commit_all(self, writes: Sequence["span.Write"]) -> None:
        """Commit in batches, one after the other."""
        batch: list[span.Write] = []
        size = 0
        for write in writes:
            length = len(write.key) + len(write.value or b"")
            if batch and (len(batch) == _MAX_WRITES or size + length > _MAX_BYTES):
                await self._commit(batch, [])
                batch, size = [], 0
            batch.append(write)
            size += length
        if batch:
            await self._commit(batch, [])

    async def _commit(self, writes: Sequence["span.Write"], expected: Sequence["span.ExpectAbsent"]) -> None:
        """Commit once. A try whose outcome is not known is fenced, so that it has happened or never will.

        One that came too late did nothing, and is made once more: this process has stood still. Raises CLOCK_SKEW if
        that comes too late as well.
        """
        client = await self._span()
        backoff = Backoff(5, 200, 1.7, self._rng)
        loop = asyncio.get_running_loop()
        end = loop.time() + self._timeout_s
        was_late = False
        while True:
            name = client.new_commit_id(writes[0].key)
            try:
                await client.commit(writes, expected, commit_id=name, timeout_s=self._timeout_s)
                return
            except F1Error as error:
                failure = error
            if failure.ambiguous and await self._has_happened(name):
                return
            if failure.code is Code.FENCED and not was_late:
                was_late = True
                continue
            if failure.code is Code.FENCED:
                text = f"this machine's clock is behind those of the storage tier: set it right ({failure.message})"
                raise F1Error(Code.CLOCK_SKEW, text)
            if not (failure.ambiguous or failure.retryable) or loop.time() >= end:
                raise F1Error(failure.code, failure.message, retryable=failure.retryable, details=failure.details)
            await asyncio.sleep(backoff.next_s())

    async def _has_happened(self, name: "span.CommitId") -> bool:
        """Tell whether a commit has happened; if not, it never will. Raises F1Error, ambiguous: it may yet."""
        try:
            return bool((await (await self._span()).fence(name, timeout_s=self._timeout_s)).committed)
        except F1Error as error:
            text = error.message
            if error.code is Code.EXPIRED:
                text += (
                    "; either this process stood still for that long, or this machine's clock is behind: set it right"
                )
            raise F1Error(error.code, text, ambiguous=True, details=error.details) from error

    async def close(self) -> None:
        """Disconnect. Idempotent."""
        self._closed = True
        if self._client is not None and self._own:
            await self._client.close()
            self._client = None


async def storage_of(addresses: Sequence[str]) -> tuple[str, ...]:
    """Return the spanservers behind f1servers; other addresses, and those where nobody answers, stay as they are."""
    channels = ChannelCache()
    try:
        for address in addresses:
            try:
                stub = f1_pb2_grpc.F1ServerStub(channels.get(address))
                reply = await stub.Status(f1_pb2.StatusRequest(), timeout=_ASK_S)
            except grpc.RpcError:
                continue  # it is a spanserver, or it is not there: whoever uses it says so
            if reply.storage:
                return tuple(reply.storage)
    finally:
        await channels.close()
    return tuple(addresses)
