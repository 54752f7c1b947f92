"""The client's side of a scan: which group is asked for what, and where it goes on."""

import asyncio
import random
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import grpc.aio
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from f1common.errors import Code, F1Error
from f1common.pb import spanstore_pb2 as pb
from f1common.rpc.backoff import Backoff
from spanstore.client import KeyRange, ScanColumn
from spanstore.client.router import Router
from spanstore.client.scanning import Scan, ScanSpec, merged, rest
from spanstore.placement.range_map import RangeMap

keys = st.binary(min_size=1, max_size=2)
pairs = st.tuples(keys, keys).filter(lambda pair: pair[0] < pair[1])
SCHEMA = pa.schema([("key", pa.binary())])
COLUMN = (ScanColumn("key", "BYTES"),)


@given(st.lists(pairs, min_size=1, max_size=6), st.lists(keys, max_size=10))
def test_merged_ranges_cover_the_same_keys_once(ranges: list[tuple[bytes, bytes]], some: list[bytes]) -> None:
    pieces = merged([KeyRange(start, end) for start, end in ranges])
    assert all(a[1] < b[0] for a, b in pairwise(pieces))
    for key in [*some, *(key for pair in ranges for key in pair)]:
        covered = any(start <= key < end for start, end in ranges)
        assert sum(start <= key < end for start, end in pieces) == covered


@pytest.mark.parametrize(
    "ranges", [[], [KeyRange(b"b", b"a")], [KeyRange(b"a", b"b", 5)], [KeyRange(b"a", b"b", 0, True)]]
)
def test_ranges_that_cannot_be_scanned(ranges: list[KeyRange]) -> None:
    with pytest.raises(F1Error) as caught:
        merged(ranges)
    assert caught.value.code is Code.INVALID_ARGUMENT


@given(st.lists(pairs, min_size=1, max_size=4), st.integers(0, 4), keys)
def test_what_is_left_is_what_was_not_passed(ranges: list[tuple[bytes, bytes]], position: int, resume: bytes) -> None:
    pieces = merged([KeyRange(start, end) for start, end in ranges])
    left = rest(pieces, position, resume)
    expected = [
        (max(start, resume), end) if index == position else (start, end)
        for index, (start, end) in enumerate(pieces)
        if index >= position
    ]
    assert left == [pair for pair in expected if pair[0] < pair[1]]


class FakeCall:
    """A stream of chunks that ends as told; the keys of a request's ranges, two to a batch."""

    def __init__(self, items: list[pb.ScanChunk | F1Error]) -> None:
        self._items = items
        self.cancelled = False

    async def read(self) -> Any:
        await asyncio.sleep(0)
        if not self._items:
            return grpc.aio.EOF  # type: ignore[attr-defined]
        item = self._items.pop(0)
        if isinstance(item, F1Error):
            raise item
        return item

    def cancel(self) -> None:
        self.cancelled = True


class FakeCluster:
    """A router over servers that hold a few keys; ``faults`` says after how many chunks a call breaks, and how."""

    background = False

    def __init__(self, stored: list[bytes], maps: list[RangeMap], faults: list[tuple[int, F1Error | None]]) -> None:
        self.stored = stored
        self.maps = maps
        self.faults = faults
        self.requests: list[pb.ScanRequest] = []
        self.calls: list[FakeCall] = []
        self.now_ts = 1000

    async def range_map(self, timeout_s: float, *, refresh: bool = False) -> RangeMap:
        if refresh and len(self.maps) > 1:
            del self.maps[0]
        return self.maps[0]

    def pick(self, group: int, *, leader: bool = True) -> str:
        return f"{'leader' if leader else 'replica'} of {group}"

    def stub(self, server: str) -> Any:
        return SimpleNamespace(Scan=self.scan)

    async def elsewhere(self, group: int, server: str, error: F1Error, end: float, backoff: Backoff) -> str:
        if error.code is not Code.UNAVAILABLE:
            raise error
        return server

    def scan(self, request: pb.ScanRequest) -> FakeCall:
        self.requests.append(request)
        chunks = self.chunks(request)
        after, error = self.faults.pop(0) if self.faults else (len(chunks), None)
        items: list[pb.ScanChunk | F1Error] = list(chunks[:after])
        if error is not None:
            items.append(error)
        call = FakeCall(items)
        self.calls.append(call)
        return call

    def chunks(self, request: pb.ScanRequest) -> list[pb.ScanChunk]:
        self.now_ts += 1
        schema = SCHEMA.serialize().to_pybytes()
        chunks = [pb.ScanChunk(ipc=schema, timestamp=request.timestamp or self.now_ts, resume=request.ranges[0].start)]
        left = request.limit or 1 << 30
        for index, wanted in enumerate(request.ranges):
            found = [key for key in self.stored if wanted.start <= key < wanted.end]
            for low in range(0, len(found), 2):
                batch = pa.record_batch([pa.array(found[low : low + 2][:left], pa.binary())], schema=SCHEMA)
                left -= batch.num_rows
                chunks.append(
                    pb.ScanChunk(
                        ipc=batch.serialize().to_pybytes(),
                        rows=batch.num_rows,
                        range=index,
                        resume=found[low : low + 2][-1] + b"\x00",
                    )
                )
                if left <= 0:
                    break
        chunks.append(pb.ScanChunk(range=len(request.ranges), last=True))
        return chunks


def scan_of(cluster: FakeCluster, start: bytes = b"a", end: bytes = b"z", **spec: Any) -> Scan:
    return Scan(
        ScanSpec((KeyRange(start, end),), COLUMN, **spec),
        cast(Router, cluster),
        lambda: 5555,
        lambda: Backoff(1, 1, 1, random.Random(0)),
    )


def read(scan: Scan) -> list[bytes]:
    return cast("list[bytes]", asyncio.run(scan.read_all()).column("key").to_pylist())


LETTERS = [bytes([letter]) for letter in b"bcdefghijk"]
ONE = RangeMap.from_starts([(b"", 1)])
TWO = RangeMap.from_starts([(b"", 1), (b"f", 2)])
BROKEN = F1Error(Code.UNAVAILABLE, "broken off")


@given(st.lists(st.tuples(st.integers(0, 7), st.sampled_from([BROKEN, None])), max_size=5), st.booleans())
def test_each_row_comes_once_however_often_the_call_breaks(
    faults: list[tuple[int, F1Error | None]], split: bool
) -> None:
    cluster = FakeCluster(LETTERS, [TWO if split else ONE], list(faults))
    scan = scan_of(cluster)
    assert sorted(read(scan)) == LETTERS
    assert all(call.cancelled for call in cluster.calls)
    # One timestamp: all requests after the first chunk of the first carry it.
    stamps = {request.timestamp for request in cluster.requests} - {0}
    assert stamps <= {scan.timestamp}
    assert scan.schema == SCHEMA


def test_one_group_picks_the_timestamp_and_several_get_the_clients() -> None:
    cluster = FakeCluster(LETTERS, [ONE], [])
    scan = scan_of(cluster)
    read(scan)
    assert (cluster.requests[0].timestamp, scan.timestamp) == (0, 1001)
    cluster = FakeCluster(LETTERS, [TWO], [])
    scan = scan_of(cluster)
    read(scan)
    assert {request.timestamp for request in cluster.requests} == {scan.timestamp} == {5555}


@pytest.mark.parametrize("after", range(6))
def test_a_range_that_moved_is_asked_for_where_it_is_now(after: int) -> None:
    moved = F1Error(Code.WRONG_RANGE, "not mine")
    cluster = FakeCluster(LETTERS, [ONE, TWO], [(after, moved)])
    scan = scan_of(cluster)
    assert sorted(read(scan)) == LETTERS
    assert {request.group for request in cluster.requests[1:]} <= {1, 2}
    assert len({request.timestamp for request in cluster.requests} - {0}) == 1


def test_a_range_that_is_nowhere_fails_in_the_end() -> None:
    moved = F1Error(Code.WRONG_RANGE, "not mine")
    cluster = FakeCluster(LETTERS, [ONE], [(0, moved)] * 10_000)
    with pytest.raises(F1Error) as caught:
        read(scan_of(cluster, timeout_s=0.1))
    assert caught.value.code is Code.WRONG_RANGE
    assert len(cluster.requests) > 1


@given(st.integers(1, 12), st.lists(st.tuples(st.integers(0, 7), st.just(BROKEN)), max_size=3), st.booleans())
def test_the_limit_holds_over_groups_and_retries(
    limit: int, faults: list[tuple[int, F1Error | None]], split: bool
) -> None:
    cluster = FakeCluster(LETTERS, [TWO if split else ONE], list(faults))
    got = read(scan_of(cluster, limit=limit))
    assert len(got) == len(set(got)) == min(limit, len(LETTERS))
    if not split:
        assert got == LETTERS[:limit]


@pytest.mark.parametrize("code", [Code.DATA_CORRUPTION, Code.INVALID_ARGUMENT, Code.DEADLINE_EXCEEDED])
def test_final_errors_end_the_scan_of_all_groups(code: Code) -> None:
    cluster = FakeCluster(LETTERS, [TWO], [(2, F1Error(code, "final"))])
    with pytest.raises(F1Error) as caught:
        read(scan_of(cluster))
    assert caught.value.code is code
    assert all(call.cancelled for call in cluster.calls)


def test_a_scan_is_iterated_once() -> None:
    scan = scan_of(FakeCluster(LETTERS, [ONE], []))
    read(scan)
    with pytest.raises(F1Error) as caught:
        read(scan)
    assert caught.value.code is Code.FAILED_PRECONDITION


def test_any_replica_may_be_asked_only_where_that_is_said() -> None:
    asked: list[str] = []

    class Watched(FakeCluster):
        def stub(self, server: str) -> Any:
            asked.append(server)
            return super().stub(server)

    read(scan_of(Watched(LETTERS, [ONE], [])))
    read(scan_of(Watched(LETTERS, [ONE], []), timestamp=7, anywhere=True))
    assert asked == ["leader of 1", "replica of 1"]


def test_who_stops_early_leaves_nothing_running() -> None:
    cluster = FakeCluster(LETTERS, [TWO], [])

    async def run() -> None:
        batches = aiter(scan_of(cluster))
        await anext(batches)
        await batches.aclose()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert not others

    asyncio.run(run())
    assert all(call.cancelled for call in cluster.calls)
