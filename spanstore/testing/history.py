"""What clients did and saw: the common input of all checkers, from the simulator and from real processes alike.

An operation has the interval from its invocation to its return, a status and its reads and writes. ``UNKNOWN`` means
that the client does not know whether it took effect: it may have at any time after the invocation, also later than the
return, or never. Times are microseconds on one clock that all clients of a history share: virtual time in the
simulator, the machine's monotonic clock otherwise.
"""

from collections.abc import Awaitable, Callable, Iterable
from enum import StrEnum
from pathlib import Path

import msgspec

from f1common.errors import Code, F1Error


class Status(StrEnum):
    """What the client knows of the effect of an operation."""

    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"


class Read(msgspec.Struct, frozen=True, array_like=True, tag="r"):
    """A key that was read and what was seen; None: absent."""

    key: bytes
    value: bytes | None


class Write(msgspec.Struct, frozen=True, array_like=True, tag="w"):
    """A key that was written and its new value; None: deleted."""

    key: bytes
    value: bytes | None


class Op(msgspec.Struct, frozen=True, kw_only=True):
    """One operation of a client.

    ``ts`` is its commit timestamp, or the timestamp of a snapshot read. ``steps`` are its reads and writes in their
    order; the reads of an operation that writes were made under locks, just below ``ts``.
    """

    process: int
    kind: str
    invoke_us: int
    return_us: int
    status: Status
    steps: tuple[Read | Write, ...] = ()
    ts: int | None = None
    error: str = ""

    @property
    def reads(self) -> tuple[Read, ...]:
        """The reads among the steps."""
        return tuple(step for step in self.steps if isinstance(step, Read))

    @property
    def writes(self) -> tuple[Write, ...]:
        """The writes among the steps."""
        return tuple(step for step in self.steps if isinstance(step, Write))

    @property
    def end_us(self) -> float:
        """When the operation had certainly happened if it did: never, for an unknown outcome."""
        return self.return_us if self.status is Status.OK else float("inf")


class Attempt:
    """The operation while it runs. Whoever performs it notes each read and write here."""

    __slots__ = ("_steps", "error", "invoke_us", "kind", "process", "ts")

    def __init__(self, process: int, kind: str, invoke_us: int) -> None:
        self.process = process
        self.kind = kind
        self.invoke_us = invoke_us
        self.ts: int | None = None
        self.error = ""
        self._steps: list[Read | Write] = []

    def begin(self) -> None:
        """Forget the steps: a transaction's function runs again, so that its last run had no effect."""
        self._steps.clear()

    def read(self, key: bytes, value: bytes | None) -> None:
        """Note a read."""
        self._steps.append(Read(key, value))

    def write(self, key: bytes, value: bytes | None) -> None:
        """Note a write, before it is sent."""
        self._steps.append(Write(key, value))

    def op(self, status: Status, return_us: int) -> Op:
        """Return the operation as it stands."""
        return Op(
            process=self.process,
            kind=self.kind,
            invoke_us=self.invoke_us,
            return_us=return_us,
            status=status,
            steps=tuple(self._steps),
            ts=self.ts,
            error=self.error,
        )


class History:
    """Records operations. ``now_us`` is the clock that all its clients share."""

    def __init__(self, now_us: Callable[[], int]) -> None:
        self._now_us = now_us
        self._finished: list[Op] = []
        self._open: dict[Attempt, None] = {}

    @property
    def ops(self) -> tuple[Op, ...]:
        """All operations in the order of their ends. Those under way, or whose client was killed, are unknown."""
        now = self._now_us()
        return (*self._finished, *(attempt.op(Status.UNKNOWN, now) for attempt in self._open))

    async def run(self, process: int, kind: str, body: Callable[[Attempt], Awaitable[int | None]]) -> Op:
        """Perform and record one operation; ``body`` returns its timestamp, None or 0 if it has none.

        F1Errors are recorded, ambiguous ones and cancellation as unknown. A read that failed saw nothing, whatever
        the error. Raises what else ``body`` raises.
        """
        attempt = Attempt(process, kind, self._now_us())
        self._open[attempt] = None
        status = Status.UNKNOWN
        try:
            attempt.ts = await body(attempt) or None
            status = Status.OK
        except F1Error as error:
            if error.code is Code.INTERNAL:
                raise
            attempt.error = str(error)
            if not error.ambiguous:
                status = Status.FAIL
        except TimeoutError as error:
            attempt.error = f"timeout {error}"
        finally:
            del self._open[attempt]
            op = attempt.op(status, self._now_us())
            self._finished.append(op)
        return op


def dump(ops: Iterable[Op], path: Path) -> None:
    """Write a history as JSON lines."""
    encoder = msgspec.json.Encoder()
    path.write_bytes(b"".join(encoder.encode(op) + b"\n" for op in ops))


def load(path: Path) -> tuple[Op, ...]:
    """Read a history from JSON lines. Raises msgspec.DecodeError if it is none."""
    decoder = msgspec.json.Decoder(Op)
    return tuple(decoder.decode(line) for line in path.read_bytes().splitlines())
