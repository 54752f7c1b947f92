"""A scan process: ``python -m spanstore.scan.worker SOCKET DATA_DIR MAP_BYTES FOR_WHOM``, started by the pool alone.

One thread. Its scans take turns, one step each, as far as they have credits. No view of the environment is open while
it waits: not for the socket, not for a credit. The end of the socket is the end of the process.
"""

import os
import signal
import socket
import sys
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

import pyarrow as pa

from f1common.clock import boot_us
from f1common.errors import Code, F1Error
from spanstore.engine.lmdb_engine import LmdbEngine
from spanstore.scan.cursor import Step
from spanstore.scan.frames import (
    Cancel,
    Chunk,
    Credit,
    Failed,
    FrameBuffer,
    FromWorker,
    Open,
    Ready,
    decode_to_worker,
    frame,
)
from spanstore.scan.sketch import Cursor, open_cursor

_NICE = 10
_RECEIVE_BYTES = 1 << 16
_PROGRESS_US = 300_000
"""Steps that find no rows are told of only so often."""


@dataclass(slots=True)
class _Scan:
    number: int
    cursor: Cursor
    credits: int
    told_us: int


class Worker:
    """The scans of one process over one socket."""

    def __init__(self, connection: socket.socket, engine: LmdbEngine) -> None:
        self._connection = connection
        self._engine = engine
        self._buffer = FrameBuffer(bytearray())
        self._scans: dict[int, _Scan] = {}
        self._runnable: deque[int] = deque()

    def run(self) -> None:
        """Serve until the server closes its end. Raises OSError when the server is gone while an answer is sent."""
        self._send(Ready())
        while self._receive():
            if self._runnable:
                self._step(self._runnable.popleft())

    def _receive(self) -> bool:
        """Take in what has arrived, and wait for it if there is nothing else to do; False at the end."""
        try:
            data = self._connection.recv(_RECEIVE_BYTES, socket.MSG_DONTWAIT if self._runnable else 0)
        except BlockingIOError:
            return True
        for body in self._buffer.feed(data):
            self._handle(decode_to_worker(body))
        return bool(data)

    def _handle(self, message: Open | Credit | Cancel) -> None:
        match message:
            case Open(scan=number):
                self._open(message)
            case Credit(scan=number, count=count):
                scan = self._scans.get(number)
                if scan is not None:
                    scan.credits += count
                    if scan.credits == count:
                        self._runnable.append(number)
            case Cancel(scan=number):
                if self._scans.pop(number, None) is not None and number in self._runnable:
                    self._runnable.remove(number)
            case _:
                assert_never(message)

    def _open(self, message: Open) -> None:
        try:
            cursor = open_cursor(message.plan, boot_us)
        except F1Error as error:
            self._send(Failed.of(message.scan, error))
            return
        # The schema takes no credit: the server counts chunks that a client has to take.
        self._tell(message.scan, cursor.schema())
        self._scans[message.scan] = _Scan(message.scan, cursor, message.credits, boot_us())
        if message.credits:
            self._runnable.append(message.scan)

    def _step(self, number: int) -> None:
        scan = self._scans[number]
        try:
            with self._engine.snapshot() as reader:
                step = scan.cursor.step(reader)
        except F1Error as error:
            self._end(number, error)
            return
        except Exception as error:
            self._end(number, F1Error(Code.INTERNAL, f"a scan failed: {type(error).__name__}: {error}"))
            return
        now = boot_us()
        if step.rows or step.last or now - scan.told_us >= _PROGRESS_US:
            scan.told_us = now
            scan.credits -= 1
            self._tell(number, step)
        if step.last:
            del self._scans[number]
        elif scan.credits:
            self._runnable.append(number)

    def _end(self, number: int, error: F1Error) -> None:
        del self._scans[number]
        self._send(Failed.of(number, error))

    def _tell(self, number: int, step: Step) -> None:
        self._send(Chunk(number, step.ipc, step.rows, step.range, step.resume, step.last))

    def _send(self, message: FromWorker) -> None:
        self._connection.sendall(frame(message))


def main(arguments: list[str]) -> int:
    """Run a worker until its server is gone."""
    # Ctrl-C in a terminal reaches the whole process group; the server decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    descriptor, data_dir, map_bytes, priority = arguments
    if priority == "users":
        os.nice(_NICE)
    connection = socket.socket(fileno=int(descriptor))
    engine = LmdbEngine.open_read_only(Path(data_dir), map_bytes=int(map_bytes))
    try:
        Worker(connection, engine).run()
    except (BrokenPipeError, ConnectionResetError):
        pass  # the server is gone
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
