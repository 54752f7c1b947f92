"""The scan process, spoken to over its socket: credits, turns, cancellation, errors and the end."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from f1common.errors import Code
from spanstore.engine.base import WriteBatch
from spanstore.engine.lmdb_engine import LmdbEngine
from spanstore.group.storage import Applied, put_applied
from spanstore.mvcc.versions import put_version, version_key
from spanstore.scan.frames import (
    Cancel,
    Chunk,
    Credit,
    Failed,
    FrameBuffer,
    FromWorker,
    Open,
    Ready,
    ToWorker,
    decode_from_worker,
    frame,
)
from spanstore.scan.plan import Operator, Predicate
from spanstore.scan.worker import Worker
from tests.unit.scan.store import GROUP, key, plan

ROWS = 100
QUIET_S = 0.3


class Server:
    """The other end of a worker's socket."""

    def __init__(self, connection: socket.socket, worker: Worker) -> None:
        self.connection = connection
        self.worker = worker
        self._buffer = FrameBuffer(bytearray())
        self._got: list[FromWorker] = []
        assert self.get() == Ready()

    def send(self, message: ToWorker) -> None:
        self.connection.sendall(frame(message))

    def get(self) -> FromWorker:
        """The next message."""
        self.connection.settimeout(20)
        while not self._got:
            data = self.connection.recv(1 << 16)
            assert data, "the worker has ended"
            self._got += [decode_from_worker(body) for body in self._buffer.feed(data)]
        return self._got.pop(0)

    def chunk(self) -> Chunk:
        message = self.get()
        assert isinstance(message, Chunk), message
        return message

    def is_quiet(self) -> bool:
        """Nothing comes for a while."""
        self.connection.settimeout(QUIET_S)
        try:
            self._got += [decode_from_worker(body) for body in self._buffer.feed(self.connection.recv(1 << 16))]
        except TimeoutError:
            return True
        return False

    def rest(self, scan: int) -> list[Chunk]:
        """Take everything of a scan that has it to itself."""
        chunks = [self.chunk()]
        while not chunks[-1].last:
            self.send(Credit(scan, 1))
            chunks.append(self.chunk())
        return chunks


@contextmanager
def worker(path: Path) -> Iterator[Server]:
    """A worker in a thread, over an environment with a hundred rows; the test fails if it does not end."""

    async def fill() -> None:
        engine = LmdbEngine.open(path, cluster="c", server="s", map_bytes=1 << 26)
        batch = WriteBatch()
        for i in range(ROWS):
            put_version(batch, GROUP, key(i), 10, b"x")
        put_version(batch, GROUP + 1, key(1), 10, b"x")
        batch.put(version_key(GROUP + 1, key(2), 10), b"damaged")
        put_applied(batch, GROUP, Applied(5))
        await engine.commit(batch)
        await engine.close()

    asyncio.run(fill())
    engine = LmdbEngine.open_read_only(path, map_bytes=1 << 26)
    ours, theirs = socket.socketpair()
    served = Worker(theirs, engine)

    def run() -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # as the process does
            served.run()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield Server(ours, served)
    finally:
        ours.close()
        thread.join(20)
        theirs.close()
        asyncio.run(engine.close())
    assert not thread.is_alive()


def test_no_more_chunks_than_credits(tmp_path: Path) -> None:
    with worker(tmp_path) as server:
        server.send(Open(1, plan(batch_rows=10), 2))
        assert [server.chunk().rows for _ in range(3)] == [0, 10, 10]
        assert server.is_quiet()
        server.send(Credit(1, 3))
        assert [server.chunk().rows for _ in range(3)] == [10, 10, 10]
        assert server.is_quiet()
        server.send(Credit(1, 100))
        assert [chunk.rows for chunk in server.rest(1)] == [10] * 5 + [0]
        assert server.is_quiet()
        assert not server.worker._scans


def test_a_scan_without_credit_sends_its_schema_alone(tmp_path: Path) -> None:
    with worker(tmp_path) as server:
        server.send(Open(1, plan(), 0))
        assert server.chunk().rows == 0
        assert server.is_quiet()
        server.send(Credit(1, 1))
        assert server.chunk().rows == ROWS


def test_a_cancelled_scan_is_forgotten_and_late_credits_for_it_are_ignored(tmp_path: Path) -> None:
    with worker(tmp_path) as server:
        server.send(Open(1, plan(batch_rows=10), 1))
        assert [server.chunk().rows for _ in range(2)] == [0, 10]
        server.send(Cancel(1))
        server.send(Credit(1, 5))
        server.send(Cancel(1))
        assert server.is_quiet()
        assert not server.worker._scans
        server.send(Open(2, plan(), 1))
        assert [server.chunk().scan for _ in range(2)] == [2, 2]


def test_a_scan_that_is_cancelled_while_it_runs_does_not_run_on(tmp_path: Path) -> None:
    with worker(tmp_path) as server:
        server.connection.sendall(frame(Open(1, plan(batch_rows=1), 1000)) + frame(Cancel(1)))
        assert server.chunk().rows == 0
        assert server.is_quiet()


def test_scans_take_turns(tmp_path: Path) -> None:
    with worker(tmp_path) as server:
        opening = [Open(scan, plan(batch_rows=10), 100) for scan in (1, 2, 3)]
        server.connection.sendall(b"".join([frame(message) for message in opening]))
        scans = [server.chunk().scan for _ in range(3 * 12)]
        assert scans == [1, 2, 3] * 12


def test_an_error_ends_one_scan_alone(tmp_path: Path) -> None:
    with worker(tmp_path) as server:
        server.send(Open(1, plan(batch_rows=10), 1))
        assert [server.chunk().rows for _ in range(2)] == [0, 10]
        refused = plan(predicates=(Predicate(0, Operator.EQ, (key(1),)),))
        behind = plan(min_index=6)
        damaged = plan(group=GROUP + 1)
        for scan, wrong, code in (
            (2, refused, Code.INVALID_ARGUMENT),
            (3, behind, Code.UNAVAILABLE),
            (4, damaged, Code.DATA_CORRUPTION),
        ):
            server.send(Open(scan, wrong, 4))
            answers = [server.get()]
            if isinstance(answers[0], Chunk):
                answers.append(server.get())
            failed = answers[-1]
            assert isinstance(failed, Failed)
            assert (failed.scan, failed.code) == (scan, code)
        server.send(Credit(1, 1))
        assert server.chunk().rows == 10
        assert list(server.worker._scans) == [1]


def test_no_view_is_open_while_a_scan_waits(tmp_path: Path) -> None:
    with worker(tmp_path) as server:
        server.send(Open(1, plan(batch_rows=10), 2))
        assert [server.chunk().rows for _ in range(3)] == [0, 10, 10]
        assert server.is_quiet()
        assert server.worker._engine.info()["open_readers"] == 0


def test_steps_that_find_nothing_cost_no_credits_and_are_not_told(tmp_path: Path) -> None:
    # Every row is looked at, ten at a time, and the last alone is selected.
    with worker(tmp_path) as server:
        some = (Predicate(0, Operator.EQ, (key(key(ROWS - 1)),)),)
        server.send(Open(1, plan(predicates=some, batch_rows=10), 2))
        assert [(chunk.rows, chunk.last) for chunk in (server.chunk() for _ in range(3))] == [
            (0, False),
            (1, False),
            (0, True),
        ]


@pytest.mark.parametrize("scans", [0, 2])
def test_the_end_of_the_socket_ends_the_worker(tmp_path: Path, scans: int) -> None:
    with worker(tmp_path) as server:
        for scan in range(scans):
            server.send(Open(scan, plan(batch_rows=1), 1))
