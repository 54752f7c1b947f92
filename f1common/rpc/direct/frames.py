"""Frames of a direct stream: four bytes of length, one of kind, then the payload.

A connection carries one call. The client begins with OPEN, which the server answers with ACCEPTED, then both sides send
MESSAGE; the client may end its half with HALF_CLOSE, the server ends the call with STATUS. PING is answered by PONG.
The length counts the kind, too.
"""

from enum import IntEnum
from typing import Final

import grpc
import msgspec

from f1common.errors import Code, F1Error

HEADER_BYTES: Final = 5
FIRST_FRAME_BYTES: Final = 64 << 10
"""An OPEN is no longer: nobody may make a server keep more before it knows who speaks."""

Metadata = tuple[tuple[str, str | bytes], ...]
"""As gRPC has it: values of keys that end in ``-bin`` are bytes, all others are text."""
_Packed = tuple[tuple[str, bytes], ...]
_BYTES_SUFFIX = "-bin"


class Kind(IntEnum):
    """What a frame is."""

    OPEN = 1
    MESSAGE = 2
    HALF_CLOSE = 3
    STATUS = 4
    PING = 5
    PONG = 6
    ACCEPTED = 7


class Open(msgspec.Struct, array_like=True, frozen=True):
    """The first frame: ``method`` with its service, the server's ``secret``, and the call's metadata."""

    method: str
    secret: bytes
    metadata: _Packed = ()


class Status(msgspec.Struct, array_like=True, frozen=True):
    """The end of a call; ``code`` is the name of a gRPC status."""

    code: str
    details: str = ""
    trailing: _Packed = ()


def pack(metadata: Metadata) -> _Packed:
    """Return metadata as frames carry it."""
    return tuple((key, value if isinstance(value, bytes) else value.encode()) for key, value in metadata)


def unpack(packed: _Packed) -> Metadata:
    """Return metadata as gRPC gives it."""
    return tuple(
        (key, value if key.endswith(_BYTES_SUFFIX) else value.decode(errors="replace")) for key, value in packed
    )


encode = msgspec.msgpack.Encoder().encode
decode_open = msgspec.msgpack.Decoder(Open).decode
"""Raises msgspec.DecodeError for what is no OPEN."""
_decode_status = msgspec.msgpack.Decoder(Status).decode
_STATUS_NAMES = frozenset(code.name for code in grpc.StatusCode)


def decode_status(payload: bytes) -> Status:
    """Return the status that a frame carries; one that cannot be read is INTERNAL."""
    try:
        status = _decode_status(payload)
    except msgspec.DecodeError as error:
        return Status("INTERNAL", f"the status cannot be read: {error}")
    return status if status.code in _STATUS_NAMES else Status("INTERNAL", f"{status.code}: {status.details}")


def header(kind: Kind, payload_bytes: int) -> bytes:
    """Return what goes before a payload of that length."""
    return (payload_bytes + 1).to_bytes(4, "big") + kind.to_bytes(1, "big")


class FrameReader:
    """Cuts what arrives into frames."""

    __slots__ = ("_chunks", "_limit", "_max_frame_bytes", "_missing", "_rest")

    def __init__(self, max_frame_bytes: int, first_frame_bytes: int = 0) -> None:
        """``first_frame_bytes``: a lower bound for the first frame; what follows it may be longer. 0: none."""
        self._max_frame_bytes = max_frame_bytes
        self._limit = first_frame_bytes or max_frame_bytes
        self._rest = b""
        # A frame of many chunks is put together once, when its last is there.
        self._chunks: list[bytes] = []
        self._missing = 0

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Take in ``data``; return the frames that are complete now, each (kind, payload).

        Raises F1Error INVALID_ARGUMENT for bytes that are no frame, or one that is too long: nothing that follows can
        be read.
        """
        if self._missing > len(data):
            self._chunks.append(data)
            self._missing -= len(data)
            return []
        if self._chunks:
            self._chunks.append(data)
            data = b"".join(self._chunks)
            self._chunks.clear()
            self._missing = 0
        elif self._rest:
            data = self._rest + data
        return self._cut(data)

    def _cut(self, data: bytes) -> list[tuple[int, bytes]]:
        frames: list[tuple[int, bytes]] = []
        at, end = 0, len(data)
        while end - at >= HEADER_BYTES:
            length = int.from_bytes(data[at : at + 4], "big")
            if not 0 < length <= self._limit:
                text = f"a frame of {length} bytes, of {self._limit} at most: is the sender one of ours?"
                raise F1Error(Code.INVALID_ARGUMENT, text)
            if end - at - 4 < length:
                self._chunks.append(data[at:])
                self._missing = length - (end - at - 4)
                self._rest = b""
                return frames
            self._limit = self._max_frame_bytes
            frames.append((data[at + 4], data[at + HEADER_BYTES : at + 4 + length]))
            at += 4 + length
        self._rest = data[at:]
        return frames
