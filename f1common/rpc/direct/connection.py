"""One TCP connection of a direct stream, the same at both ends: frames in and out, flow control, keepalive."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import cast

from f1common.errors import F1Error
from f1common.rpc.direct.frames import FIRST_FRAME_BYTES, FrameReader, Kind, header

PING_S = 1.2
"""How often a silent peer is asked whether it is there."""
_SILENT_TICKS = 3
"""After so many times without a word from it, it is not."""
_LINGER_S = 5.0
"""How long what was sent before an orderly end may take to leave."""

_UNREAD_BYTES = 8 << 20
"""Nothing more is read from the network while so much waits for :meth:`Connection.receive`."""
_FRAME_COST = 100
"""What a frame takes in memory besides its payload."""
_UNSENT_BYTES = 1 << 20
"""A writer waits while so much has not been taken by the kernel."""
_JOINED_BYTES = 16 << 10
"""Payloads up to this length are copied behind their header: one piece is cheaper to write than two."""

_PING, _PONG = header(Kind.PING, 0), header(Kind.PONG, 0)


class Connection(asyncio.Protocol):
    """Frames of one call. Used from its event loop only.

    What arrives, but for pings, is kept in order until :meth:`receive` takes it; a peer that sends faster than that is
    held up by TCP. A peer that says nothing for four seconds or so, not even in answer to a ping, is given up; one that
    cannot read now says by itself that it is there.
    """

    def __init__(self, max_frame_bytes: int, on_open: Callable[["Connection"], None] | None = None) -> None:
        """``on_open`` hears of the connection once it stands: the server's side. Nothing is read behind its first
        frame until :meth:`trust`: nobody may make it keep more before it knows who speaks."""
        self._reader = FrameReader(max_frame_bytes, FIRST_FRAME_BYTES if on_open is not None else 0)
        self._on_open = on_open
        self._loop = asyncio.get_running_loop()  # asking each time costs a system call in Python 3.11
        self._inbox: deque[tuple[int, bytes]] = deque()
        self._unread_bytes = 0
        self._reader_waits: asyncio.Future[None] | None = None
        self._writers_wait: list[asyncio.Future[None]] = []
        self._full = False
        self._trusted = on_open is None
        self._discards = False
        self._reading_paused = False
        self._silent_ticks = 0
        self._sent_bytes = self._taken_before = 0
        self._ticker: asyncio.TimerHandle | None = None
        self._lingering: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self.lost: str | None = None
        """Why the connection is over, None while it stands."""
        self.on_lost: Callable[[], object] | None = None
        """Called once, when the connection is over for us."""
        self.on_closed: Callable[[], object] | None = None
        """Called once, when nothing of it is left: after an end in order, somewhat later."""

    # -- what asyncio calls --

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are of no class of asyncio
        self._transport.set_write_buffer_limits(high=_UNSENT_BYTES)
        self._ticker = self._loop.call_later(PING_S, self._tick)
        if self._on_open is not None:
            self._on_open(self)

    def data_received(self, data: bytes) -> None:
        """Take in what arrived."""
        if self._discards:
            return
        self._silent_ticks = 0
        try:
            frames = self._reader.feed(data)
        except F1Error as error:
            self.abort(error.message)
            return
        for kind, payload in frames:
            if kind == Kind.PING:
                if not self._full:
                    self._write(_PONG)
            elif kind != Kind.PONG:
                self._inbox.append((kind, payload))
                self._unread_bytes += len(payload) + _FRAME_COST
        if self._unread_bytes > _UNREAD_BYTES or (self._inbox and not self._trusted):
            self._pause()
        if self._inbox:
            self._wake_reader()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that it is over."""
        self._lose(f"the connection broke: {exc}" if exc is not None else "the connection was closed")
        if self._lingering is not None:
            self._lingering.cancel()
        if self.on_closed is not None:
            self.on_closed()

    def pause_writing(self) -> None:
        """Let writers wait."""
        self._full = True

    def resume_writing(self) -> None:
        """Let writers go on."""
        self._full = False
        self._wake_writers()

    # -- what the ends of a call use --

    def trust(self) -> None:
        """The first frame was good: go on reading."""
        self._trusted = True
        self._resume()

    async def receive(self) -> tuple[int, bytes] | None:
        """Return the next frame, None once the connection is over and everything that came before is taken."""
        while not self._inbox:
            if self.lost is not None:
                return None
            self._reader_waits = self._loop.create_future()
            try:
                await self._reader_waits
            finally:
                self._reader_waits = None
        frame = self._inbox.popleft()
        self._unread_bytes -= len(frame[1]) + _FRAME_COST
        if self._reading_paused and self._trusted and self._unread_bytes <= _UNREAD_BYTES // 2:
            self._resume()
        return frame

    def unread(self) -> list[tuple[int, bytes]]:
        """Return the frames that :meth:`receive` has yet to return."""
        return list(self._inbox)

    async def send(self, kind: Kind, payload: bytes = b"") -> None:
        """Give a frame to the transport, and wait while that has too much already.

        Raises ConnectionError when the connection is over; before that a frame may be lost as well.
        """
        if self.lost is not None or self._transport is None:
            raise ConnectionError(self.lost or "the connection does not stand yet")
        self._sent_bytes += len(payload)
        if len(payload) <= _JOINED_BYTES:
            self._transport.write(header(kind, len(payload)) + payload)
        else:
            self._transport.writelines((header(kind, len(payload)), payload))
        while self._full and self.lost is None:
            waiter = self._loop.create_future()
            self._writers_wait.append(waiter)
            await waiter

    def finish(self, payload: bytes) -> None:
        """End the call with a STATUS, behind everything that was sent, and wait for nobody.

        What still arrives is read and thrown away until the client closes the connection, which it does when it has
        the status: a socket that is closed with something unread resets the connection, and what was sent is lost.
        """
        if self.lost is not None or self._transport is None:
            return
        self._transport.write(header(Kind.STATUS, len(payload)) + payload)
        self._transport.write_eof()
        self._discards = True
        self._resume()
        self._linger()
        self._lose("it was ended here")

    def close(self) -> None:
        """Close the connection after what was sent. Idempotent."""
        if self.lost is None and self._transport is not None:
            self._transport.close()
            self._linger()
        self._lose("it was closed here")

    def abort(self, reason: str) -> None:
        """End the connection at once: what was sent may be lost. Idempotent."""
        if self._transport is not None:
            self._transport.abort()
        self._lose(reason)

    # -- inside --

    def _linger(self) -> None:
        if self._transport is not None:
            self._lingering = self._loop.call_later(_LINGER_S, self._transport.abort)

    def _pause(self) -> None:
        if not self._reading_paused and self._transport is not None:
            self._reading_paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._reading_paused and self._transport is not None:
            self._reading_paused = False
            self._silent_ticks = 0  # it was we who did not listen
            self._transport.resume_reading()

    def _tick(self) -> None:
        """Ask a silent peer whether it is there.

        Silence is counted in turns of the timer and not by the clock: a process that stood still itself has heard
        nothing, and finds what came meanwhile before the next turn.
        """
        self._ticker = None
        if self.lost is not None or self._transport is None:
            return
        taken = self._sent_bytes - self._transport.get_write_buffer_size()
        if self._reading_paused:
            self._write(_PONG)
        elif taken > self._taken_before:
            self._silent_ticks = 0  # it takes what it is sent, which may take long
        elif self._silent_ticks >= _SILENT_TICKS:
            self.abort("the peer does not answer")
            return
        elif self._silent_ticks:
            self._write(_PING)
        self._taken_before = taken
        self._silent_ticks += 1
        self._ticker = self._loop.call_later(PING_S, self._tick)

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _lose(self, reason: str) -> None:
        if self.lost is not None:
            return
        self.lost = reason
        if self._ticker is not None:
            self._ticker.cancel()
            self._ticker = None
        self._wake_reader()
        self._wake_writers()
        if self.on_lost is not None:
            self.on_lost()

    def _wake_reader(self) -> None:
        if self._reader_waits is not None and not self._reader_waits.done():
            self._reader_waits.set_result(None)

    def _wake_writers(self) -> None:
        waiting, self._writers_wait = self._writers_wait, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)
