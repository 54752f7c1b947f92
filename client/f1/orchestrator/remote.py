"""Clients of the orchestrator's two services, each one stream of batched requests."""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from f1.errors import translating
from f1.orchestrator import options
from f1.orchestrator.services import not_free
from f1common.errors import Code, F1Error
from f1common.ids import new_id, process_rng
from f1common.observe.logs import get_logger
from f1common.orchestrator.lock_table import Mode, Token, WantedLock
from f1common.pb import orchestrator_pb2 as pb
from f1common.pb import orchestrator_pb2_grpc as stubs
from f1common.rpc.backoff import Backoff
from f1common.rpc.channels import ChannelCache
from f1common.rpc.status import error_from_wire
from f1common.rpc.streams import RequestStream

__all__ = ["Locks", "Timestamps"]

_log = get_logger(__name__)

_PROTOCOL_VERSION = 1
_TRY_S = 2.0
_MAX_COUNT = 100_000
_LEASE_S = 30.0
_GRACE_S = 1.0
_MODES = {Mode.READ: pb.WantedLock.READ, Mode.WRITE: pb.WantedLock.WRITE}


def _explained(error: F1Error, what: str) -> F1Error:
    """Return the error as its caller is to see it. What was done in doubt has no consequence."""
    text = error.message
    if error.code is Code.VERSION_MISMATCH:
        text = f"{what} does not answer as one does, or is of another version ({text}): check the address"
    return F1Error(error.code, text, retryable=error.retryable)


def _raise_error(reply: Any) -> None:
    if reply.HasField("error"):
        error = reply.error
        raise error_from_wire(error.code, error.message, error.retryable, error.ambiguous, error.details)


class Timestamps:
    """Implements :class:`~f1.orchestrator.services.TimestampService` with the processes of a timestamp service.

    Of all who wait for a timestamp while one request is under way, the next request asks for all.
    """

    def __init__(
        self,
        address: str,
        *,
        timeout_s: float = 10.0,
        channels: ChannelCache | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """``address``: ``host:port,...`` of all processes of the service. Connects when it is first used.

        ``timeout_s``: how long a call may take. Raises F1Error INVALID_ARGUMENT.
        """
        with translating():
            self._names = options.addresses("a timestamp service", address)
            self._timeout_s = options.seconds("timeout_s", timeout_s)
        self._rng = rng or process_rng()
        self._channels = channels
        self._own_channels = channels is None
        self._streams: list[RequestStream[pb.TimestampRequest, pb.TimestampReply]] = []
        self._leader = 0
        self._waiting: deque[asyncio.Future[int]] = deque()
        self._asking: asyncio.Task[None] | None = None

    async def next(self) -> int:
        """Return a timestamp above all that were given out before. Raises F1Error UNAVAILABLE, DEADLINE_EXCEEDED."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask_all(), name="asking for timestamps")
        return await future

    async def _ask_all(self) -> None:
        try:
            while self._waiting:
                # Whoever comes from now on is in the next request: its timestamp must be given out after it asked.
                count = min(len(self._waiting), _MAX_COUNT)
                batch = [self._waiting.popleft() for _ in range(count)]
                await self._answer(batch)
        finally:
            self._asking = None

    async def _answer(self, batch: "Sequence[asyncio.Future[int]]") -> None:
        """Ask for a whole batch. Whatever goes wrong, nobody in it waits for ever."""
        failure = F1Error(Code.INTERNAL, "the request for timestamps has failed")
        try:
            first = await self._ask(len(batch))
            for position, future in enumerate(batch):
                if not future.done():
                    future.set_result(first + position)
        except F1Error as error:
            failure = error
        except Exception as error:
            _log.error("a request for timestamps has failed", exc=error)
        finally:
            for future in batch:
                if not future.done():
                    future.set_exception(F1Error(failure.code, failure.message, retryable=failure.retryable))

    async def _ask(self, count: int) -> int:
        """Ask one process after the other. Timestamps whose answer is lost are never used: nothing is ambiguous."""
        streams = self._open()
        loop = asyncio.get_running_loop()
        end = loop.time() + self._timeout_s
        backoff = Backoff(5, 200, 1.7, self._rng)
        while True:
            left_s = end - loop.time()
            try:
                stream = streams[self._leader]
                reply = await stream.call(pb.TimestampRequest(count=count), min(_TRY_S, max(left_s, 0.01)))
                _raise_error(reply)
                return int(reply.first)
            except F1Error as error:
                again = error.retryable or error.ambiguous or error.code is Code.DEADLINE_EXCEEDED
                if not again or loop.time() >= end:
                    failure = _explained(error, f"the timestamp service at {self._names[self._leader]}")
                    raise F1Error(Code.UNAVAILABLE, f"no timestamp: {failure.message}", retryable=again) from error
            self._leader = (self._leader + 1) % len(streams)
            await asyncio.sleep(backoff.next_s())

    def _open(self) -> list[RequestStream[pb.TimestampRequest, pb.TimestampReply]]:
        if not self._streams:
            self._channels = channels = self._channels or ChannelCache()
            self._streams = [
                RequestStream(
                    stubs.TimestampsStub(channels.get(name)).Session,
                    lambda requests: pb.TimestampRequests(requests=requests),
                    lambda batch: batch.replies,
                    rng=self._rng,
                    hello=lambda: pb.TimestampRequests(protocol_version=_PROTOCOL_VERSION),
                    name=f"the timestamp service at {name}",
                )
                for name in self._names
            ]
        return self._streams

    async def close(self) -> None:
        """Disconnect. Idempotent."""
        for stream in self._streams:
            await stream.close()
        self._streams = []
        if self._channels is not None and self._own_channels:
            await self._channels.close()
            self._channels = None


class Locks:
    """Implements :class:`~f1.orchestrator.services.LockService` with a lock service."""

    def __init__(
        self,
        address: str,
        *,
        timeout_s: float = 10.0,
        channels: ChannelCache | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """``address``: ``host:port`` of the one lock service. Connects when it is first used.

        ``timeout_s``: how long a call may take beyond waiting for locks. Raises F1Error INVALID_ARGUMENT.
        """
        with translating():
            names = options.addresses("a lock service", address)
            if len(names) != 1:
                text = "there is one lock service at a time: two could grant one lock twice"
                raise F1Error(Code.INVALID_ARGUMENT, text)
            self._name = names[0]
            self._timeout_s = options.seconds("timeout_s", timeout_s)
        self._rng = rng or process_rng()
        self._channels = channels
        self._own_channels = channels is None
        self._stream: RequestStream[pb.LockRequest, pb.LockReply] | None = None
        self._withdrawals: set[asyncio.Task[None]] = set()
        self.lease_s = _LEASE_S

    async def acquire(self, locks: Sequence[WantedLock], bound: int | None, timeout_s: float) -> Token:
        """Lease all of ``locks``. Raises F1Error DEADLINE_EXCEEDED, UNAVAILABLE, INVALID_ARGUMENT."""
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        wanted = [pb.WantedLock(name=lock.name, mode=_MODES[lock.mode]) for lock in locks]
        backoff = Backoff(5, 200, 1.7, self._rng)
        while True:
            # The service withdraws what waits when a stream breaks, so that a request is not sent on another one.
            name = new_id(self._rng)
            left_s = max(end - loop.time(), 0.001)
            body = pb.AcquireLocks(request=name, locks=wanted, bound=bound, wait_ms=max(int(left_s * 1000), 1))
            try:
                reply = await self._open().call(pb.LockRequest(acquire=body), left_s + _GRACE_S)
                _raise_error(reply)
                break
            except F1Error as error:
                if error.ambiguous:
                    self._give_back(name)
                if not (error.retryable or error.ambiguous) or loop.time() >= end:
                    raise _explained(error, f"the lock service at {self._name}") from error
            except asyncio.CancelledError:
                self._give_back(name)
                raise
            await asyncio.sleep(backoff.next_s())
        self.lease_s = reply.lease_ms / 1000
        if not reply.HasField("token"):
            raise not_free(timeout_s)
        return Token(reply.token.incarnation, reply.token.number)

    def _give_back(self, name: bytes) -> None:
        """It may have been granted all the same: nobody should have to wait for that to lapse."""
        task = asyncio.create_task(self._withdraw(name), name="withdrawing a request for locks")
        self._withdrawals.add(task)
        task.add_done_callback(self._withdrawals.discard)

    async def _withdraw(self, name: bytes) -> None:
        try:
            await self._call(lambda: pb.LockRequest(withdraw=pb.WithdrawLocks(request=name)), self._timeout_s)
        except F1Error:
            return  # what was granted lapses

    async def refresh(self, tokens: Sequence[Token]) -> list[bool]:
        """Prolong leases."""
        return list((await self._call(lambda: pb.LockRequest(refresh=_wire(tokens)), self._timeout_s)).alive)

    async def validate(self, tokens: Sequence[Token]) -> list[bool]:
        """Tell which leases are held."""
        return list((await self._call(lambda: pb.LockRequest(validate=_wire(tokens)), self._timeout_s)).alive)

    async def release(self, tokens: Sequence[Token]) -> list[bool]:
        """End leases."""
        return list((await self._call(lambda: pb.LockRequest(release=_wire(tokens)), self._timeout_s)).alive)

    async def oldest_bound(self) -> int | None:
        """Return the lowest bound."""
        asked = pb.LockRequest(oldest_bound=pb.AskOldestBound())
        reply = await self._call(lambda: asked, self._timeout_s)
        return reply.bound if reply.HasField("bound") else None

    async def _call(self, make: Callable[[], pb.LockRequest], timeout_s: float) -> pb.LockReply:
        """Ask until there is an answer: every request may be sent twice. Raises F1Error."""
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        backoff = Backoff(5, 200, 1.7, self._rng)
        while True:
            try:
                reply = await self._open().call(make(), max(end - loop.time(), 0.01))
                _raise_error(reply)
                return reply
            except F1Error as error:
                if not (error.retryable or error.ambiguous) or loop.time() >= end:
                    raise _explained(error, f"the lock service at {self._name}") from error
            await asyncio.sleep(backoff.next_s())

    def _open(self) -> RequestStream[pb.LockRequest, pb.LockReply]:
        if self._stream is None:
            self._channels = channels = self._channels or ChannelCache()
            self._stream = RequestStream(
                stubs.LocksStub(channels.get(self._name)).Session,
                lambda requests: pb.LockRequests(requests=requests),
                lambda batch: batch.replies,
                rng=self._rng,
                hello=lambda: pb.LockRequests(protocol_version=_PROTOCOL_VERSION),
                name=f"the lock service at {self._name}",
            )
        return self._stream

    async def close(self) -> None:
        """Disconnect. Idempotent."""
        for task in list(self._withdrawals):
            task.cancel()
        if self._stream is not None:
            await self._stream.close()
            self._stream = None
        if self._channels is not None and self._own_channels:
            await self._channels.close()
            self._channels = None


def _wire(tokens: Sequence[Token]) -> pb.LockTokens:
    return pb.LockTokens(tokens=[pb.LockToken(incarnation=token.incarnation, number=token.number) for token in tokens])
