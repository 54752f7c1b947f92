"""The source of a state transfer: reads a group's state in pieces and sends them, while the group goes on serving.

Why it may read rows in many views is said in :mod:`spanstore.runtime.transfer`. Each chunk is small and is followed by
a pause, so that turns of the groups come in between; only the records are read in one view, whose age is bounded.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from f1common.config import StorageSection
from f1common.errors import Code, F1Error
from f1common.pb import spanstore_pb2 as pb
from spanstore.engine.base import Engine
from spanstore.group import checkpoint
from spanstore.group.checkpoint import Part

_log = logging.getLogger(__name__)

_CLIENT_GONE = (grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError, ConnectionError)

_TAKE_S = 30.0
"""How long a receiver may take for one chunk."""
_RECORDS_S = 600.0
"""How long all records may take: their view keeps the disk from reusing pages."""


class StateSource:
    """Serves ``FetchState`` of one spanserver."""

    def __init__(
        self, name: str, cluster_id: str, engine: Engine, serves: Callable[[int], bool], storage: StorageSection
    ) -> None:
        """``serves`` tells whether a replica of a group is here and in service."""
        self._name = name
        self._cluster_id = cluster_id
        self._engine = engine
        self._serves = serves
        self._storage = storage
        self._sending = 0

    async def serve(self, request: pb.StateRequest, context: Any) -> None:
        """Answer one request.

        Raises FAILED_PRECONDITION for another cluster's server, WRONG_RANGE when there is no replica of the group here,
        OVERLOADED when enough others are being served, UNAVAILABLE when the replica lacks what is asked for.
        """
        if request.cluster_id != self._cluster_id:
            text = f"server {request.receiver!r} is of cluster {request.cluster_id!r}, {self._name} of another"
            raise F1Error(Code.FAILED_PRECONDITION, text)
        self._check_serves(request.group)
        if self._sending >= self._storage.transfers_out and not request.probe:
            raise F1Error(Code.OVERLOADED, f"{self._name} sends state to {self._sending} others; ask again later")
        self._sending += 1
        try:
            await _Transfer(self, request, context).send()
        except _CLIENT_GONE as error:
            _log.info("group %d: %s takes no more of the state: %s", request.group, request.receiver, error)
        finally:
            self._sending -= 1

    def _check_serves(self, group: int) -> None:
        if not self._serves(group):
            text = f"{self._name} has no replica of group {group} in service; ask another server"
            raise F1Error(Code.WRONG_RANGE, text)

    def view(self, group: int) -> Any:
        """Open a fresh view, while the replica is in service. Raises WRONG_RANGE."""
        self._check_serves(group)
        return self._engine.snapshot()

    @property
    def storage(self) -> StorageSection:
        """Sizes and rates."""
        return self._storage


class _Transfer:
    """One stream."""

    def __init__(self, source: StateSource, request: pb.StateRequest, context: Any) -> None:
        self._source = source
        self._request = request
        self._context = context
        self._base = int(request.base_index)
        self._number = 0
        own = source.storage.transfer_chunk_bytes
        self._chunk_bytes = min(own, request.max_chunk_bytes or own)

    async def send(self) -> None:
        group = self._request.group
        began = asyncio.get_running_loop().time()
        with self._source.view(group) as reader:
            applied = checkpoint.check_source(reader, group, self._base)
            base = checkpoint.read_base(reader, group)
            await self._send(Part.HEADER, applied, checkpoint.encode_base(base))
            if self._request.probe:
                return
            if not self._base:
                self._base = base.index
                for items in checkpoint.in_chunks(checkpoint.read_records(reader, group), self._chunk_bytes):
                    await self._send(Part.RECORDS, applied, checkpoint.encode_items(items))
                    if asyncio.get_running_loop().time() - began > _RECORDS_S:
                        raise F1Error(Code.DEADLINE_EXCEEDED, f"{_RECORDS_S:g} s were not enough for the records")
        await self._send_rows()

    async def _send_rows(self) -> None:
        group, after = self._request.group, self._request.after
        while True:
            with self._source.view(group) as reader:
                applied = checkpoint.check_source(reader, group, self._base)
                rows = checkpoint.read_rows(reader, group, after, self._chunk_bytes)
            if not rows:
                break
            after = rows[-1][0]
            await self._send(Part.ROWS, applied, checkpoint.encode_items(rows))
        await self._send(Part.END, applied, b"")

    async def _send(self, part: Part, applied: int, payload: bytes) -> None:
        checksum = checkpoint.checksum(payload, self._request.group, self._base, part, applied, self._number)
        self._number += 1
        chunk = pb.StateChunk(part=part.name, applied_index=applied, payload=payload, checksum=checksum)
        try:
            async with asyncio.timeout(_TAKE_S):
                await self._context.write(chunk)
        except TimeoutError as error:
            raise F1Error(Code.DEADLINE_EXCEEDED, f"{self._request.receiver} stands still") from error
        rate = self._source.storage.transfer_bytes_per_s
        await asyncio.sleep(len(payload) / rate if rate else 0)
