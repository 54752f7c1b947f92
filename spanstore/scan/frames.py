"""Messages between a spanserver and its scan processes: four bytes of length, then msgpack.

The server asks (:class:`Open`), grants credits and cancels; the worker answers each scan with chunks, one credit each,
of which the last says so, or with a failure. Both sides are of one installation, so that no version is negotiated.
"""

import struct
from dataclasses import dataclass
from typing import Final

import msgspec

from f1common.errors import Code, F1Error, check
from spanstore.scan.plan import ScanPlan

HEADER: Final = struct.Struct(">I")
MAX_FRAME_BYTES: Final = 1 << 30


class Open(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Begin the scan ``scan`` and send up to ``credits`` chunks."""

    scan: int
    plan: ScanPlan
    credits: int


class Credit(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Send so many chunks more."""

    scan: int
    count: int


class Cancel(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Nobody wants the rest."""

    scan: int


class Ready(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The worker has opened the environment."""


class Chunk(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A step's result, see :class:`spanstore.scan.cursor.Step`."""

    scan: int
    ipc: bytes
    rows: int
    range: int
    resume: bytes
    last: bool


class Failed(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The scan ended with an error."""

    scan: int
    code: Code
    message: str
    retryable: bool
    details: dict[str, str]

    @classmethod
    def of(cls, scan: int, error: F1Error) -> "Failed":
        """Return the message that carries ``error``."""
        return cls(scan, error.code, error.message, error.retryable, dict(error.details))

    def error(self) -> F1Error:
        """Return the error that the message carries."""
        return F1Error(self.code, self.message, retryable=self.retryable, details=self.details)


ToWorker = Open | Credit | Cancel
FromWorker = Ready | Chunk | Failed

_encode = msgspec.msgpack.Encoder().encode
decode_to_worker = msgspec.msgpack.Decoder(ToWorker).decode
decode_from_worker = msgspec.msgpack.Decoder(FromWorker).decode


def frame(message: ToWorker | FromWorker) -> bytes:
    """Return the bytes of a message, its length before it."""
    body = _encode(message)
    check(len(body) <= MAX_FRAME_BYTES, "a frame is larger than any batch can be")
    return HEADER.pack(len(body)) + body


@dataclass(slots=True)
class FrameBuffer:
    """Cuts a stream of bytes into the bodies of frames."""

    data: bytearray

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes in and return the bodies that are complete."""
        self.data += data
        bodies = []
        position = 0
        while len(self.data) - position >= HEADER.size:
            (length,) = HEADER.unpack_from(self.data, position)
            end = position + HEADER.size + length
            if len(self.data) < end:
                break
            bodies.append(bytes(self.data[position + HEADER.size : end]))
            position = end
        del self.data[:position]
        return bodies
