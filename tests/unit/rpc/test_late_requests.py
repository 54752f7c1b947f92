"""Requests whose time is over at an f1server: each is answered once, on the event loop that servers run."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from itertools import product
from types import SimpleNamespace
from typing import Any, cast

import uvloop

from f1common.pb import f1_pb2 as pb
from f1common.rpc.batches import END_OF_STREAM
from f1server.service import F1Servicer

LONGEST_MS = (1 << 32) - 1


class Frontend:
    """Takes what a test says for every request."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self._work = work

    def __getattr__(self, name: str) -> Any:
        async def handle(database: str, request: Any, caller: Any) -> Any:
            await self._work()
            return {"ping": pb.PingReply, "commit": pb.CommitReply, "read": pb.ReadReply}[name]()

        return handle


class Stream:
    """A client's stream: sends batches, and goes when it has as many answers as it waits for."""

    def __init__(self, batches: AsyncIterator[Any]) -> None:
        self._batches = batches
        self.answers: list[pb.Response] = []

    async def read(self) -> Any:
        return await anext(self._batches, END_OF_STREAM)

    async def write(self, message: pb.ServerBatch) -> None:
        self.answers += message.responses

    def set_code(self, code: Any) -> None:
        raise AssertionError("the stream broke")

    def codes(self) -> Counter[str]:
        return Counter(answer.error.code or "done" for answer in self.answers)


def hello() -> Any:
    return SimpleNamespace(token=b"", protocol_version=0, requests=[])


def slowly(requests: list[pb.Request]) -> Iterator[pb.Request]:
    """Requests of one message, whose reading takes longer than some of them have."""
    for request in requests:
        time.sleep(0.0002)
        yield request


def served(work: Callable[[], Coroutine[Any, Any, Any]], requests: list[pb.Request]) -> tuple[Stream, F1Servicer]:
    async def batches() -> AsyncIterator[Any]:
        yield hello()
        yield SimpleNamespace(token=b"", protocol_version=0, requests=slowly(requests))

    async def main() -> tuple[Stream, F1Servicer]:
        stream, servicer = Stream(batches()), F1Servicer(cast(Any, Frontend(work)))
        async with asyncio.timeout(10):
            await servicer.Session(None, stream)  # ends once all are answered
        await asyncio.sleep(0)
        return stream, servicer

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


def ping(number: int, timeout_ms: int) -> pb.Request:
    return pb.Request(id=number, timeout_ms=timeout_ms, ping=pb.Ping())


def test_a_request_whose_time_is_over_before_it_begins_is_answered() -> None:
    stream, servicer = served(lambda: asyncio.sleep(60), [ping(number, 1) for number in range(1, 51)])
    assert stream.codes() == {"DEADLINE_EXCEEDED": 50}
    assert sorted(answer.id for answer in stream.answers) == list(range(1, 51))
    assert not (servicer._tasks or servicer._late or servicer._expiries._ends)


def test_only_what_commits_may_have_happened() -> None:
    requests = [
        ping(1, 1),
        pb.Request(id=2, timeout_ms=1, commit=pb.Commit()),
        pb.Request(id=3, timeout_ms=30, read=pb.Read()),
        pb.Request(id=4, timeout_ms=30, commit=pb.Commit()),
        pb.Request(id=5, timeout_ms=30, apply_schema=pb.ApplySchema()),
        pb.Request(id=6, timeout_ms=30, apply_schema=pb.ApplySchema(dry_run=True)),
    ]
    stream, _ = served(lambda: asyncio.sleep(60), requests)
    assert stream.codes() == {"DEADLINE_EXCEEDED": 6}
    assert {answer.id for answer in stream.answers if answer.error.ambiguous} == {2, 4, 5}


def test_a_statement_that_commits_by_itself_may_have_happened() -> None:
    update, read, defect = "UPDATE T SET V = V + 1 WHERE K = 0", "SELECT V FROM T", "UPDAT T"
    long = "INSERT INTO T VALUES " + ", ".join(["(1)"] * 3_000)
    created = "CREATE TABLE T (K INT64, PRIMARY KEY (K))"
    statements = [update, read, defect, long, created]
    requests = [
        pb.Request(id=number, timeout_ms=1, execute=pb.Execute(sql=sql, txn=pb.TxnContext(kind=kind)))
        for number, (kind, sql) in enumerate(product((pb.AUTOCOMMIT, pb.OPTIMISTIC), statements))
    ]
    stream, _ = served(lambda: asyncio.sleep(60), requests)
    assert stream.codes() == {"DEADLINE_EXCEEDED": 10}
    assert sorted(answer.id for answer in stream.answers if answer.error.ambiguous) == [0, 3, 4]


def test_without_a_timeout_or_with_the_longest_there_is_time() -> None:
    stream, servicer = served(lambda: asyncio.sleep(0.01), [ping(1, 0), ping(2, LONGEST_MS), ping(3, 60_000)])
    assert stream.codes() == {"done": 3}
    assert not (servicer._tasks or servicer._late or servicer._expiries._ends)
