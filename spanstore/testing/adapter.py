"""The storage client as the workloads see it, and what only this store can be asked: fences, ids, other replicas."""

from collections.abc import Awaitable, Callable, Sequence

from f1common.errors import Code, F1Error
from f1common.pb import spanstore_pb2 as pb
from spanstore.client import (
    ExpectAbsent,
    ExpectUnchanged,
    ExpectVersion,
    SpanClient,
    Transaction,
    Version,
    Write,
)
from spanstore.client.values import Precondition
from spanstore.testing.workloads.base import Absent, Condition, KvTx, KvWrite, Unchanged


class SpanTx:
    """A :class:`~spanstore.testing.workloads.base.KvTx` over a transaction of the storage client."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._first: tuple[bytes, Version | None] | None = None
        self._written = False

    async def read(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Lock the keys and return their newest values, or this transaction's own."""
        result = await self._tx.read(keys)
        if self._first is None and keys:
            self._first = (keys[0], result.versions[0])
        return result.values()

    def write(self, key: bytes, value: bytes | None) -> None:
        """Write at commit; None deletes."""
        self._written = True
        self._tx.write(key, value)

    def finish(self) -> None:
        """Give a transaction that wrote nothing a commit of its own, so that it too has a timestamp to be checked."""
        if not self._written and self._first is not None:
            key, version = self._first
            self._tx.expect(ExpectVersion(key, 0 if version is None else version.ts))


class SpanKv:
    """A :class:`~spanstore.testing.workloads.base.KvClient` over the storage client.

    ``other`` is a second client with connections of its own, as if a request were repeated through another server.
    """

    def __init__(self, client: SpanClient, other: SpanClient | None = None) -> None:
        self.client = client
        self.other = other or client

    async def read(self, keys: Sequence[bytes]) -> tuple[int, list[bytes | None]]:
        """Read strongly."""
        result = await self.client.read(keys)
        return result.timestamp, result.values()

    async def read_at(self, ts: int, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read at ``ts``."""
        return (await self.client.read(keys, timestamp=ts)).values()

    async def transact(self, fn: Callable[[KvTx], Awaitable[None]]) -> int:
        """Run ``fn`` in a transaction, again if it was aborted, commit it and return the commit timestamp."""
        last: list[Transaction] = []

        async def body(tx: Transaction) -> None:
            last[:] = [tx]
            adapted = SpanTx(tx)
            await fn(adapted)
            adapted.finish()

        await self.client.run(body)
        return last[0].commit_ts

    async def commit(self, writes: Sequence[KvWrite], conditions: Sequence[Condition] = ()) -> int:
        """Apply ``writes`` at once if all conditions hold and return the commit timestamp, else raise."""
        return await self.client.commit([Write(w.key, w.value) for w in writes], [_condition(c) for c in conditions])


def _condition(condition: Condition) -> Precondition:
    match condition:
        case Absent(key):
            return ExpectAbsent(key)
        case Unchanged(key, since_ts):
            return ExpectUnchanged(key, key + b"\x01", since_ts)


async def read_replica(client: SpanClient, server: str, ts: int, keys: Sequence[bytes]) -> list[bytes | None]:
    """Read at ``ts`` from the replicas of one server, whoever leads. Raises DEADLINE_EXCEEDED if one is behind."""
    ranges = await client.range_map()
    router = client._router  # the client itself asks leaders only
    found: dict[bytes, bytes | None] = {}
    for group in ranges.groups():
        own = [key for key in keys if ranges.group_of(key) == group]
        if own:
            response = await router.send_to(server, pb.Request(group=group, read=pb.Read(timestamp=ts, keys=own)), 2.0)
            if len(response.read.versions) != len(own):
                raise F1Error(Code.INTERNAL, f"{server} answered {len(response.read.versions)} of {len(own)} keys")
            for key, version in zip(own, response.read.versions, strict=True):
                found[key] = version.value if version.exists else None
    return [found[key] for key in keys]


async def replica_safe_time(client: SpanClient, server: str) -> int:
    """Return up to which timestamp all replicas of one server answer without waiting; 0 if one does not know."""
    ranges = await client.range_map()
    stamps = []
    for group in ranges.groups():
        response = await client._router.send_to(server, pb.Request(group=group, safe_time=pb.SafeTime()), 2.0)
        stamps.append(int(response.safe_time.safe_ts))
    return min(stamps)
