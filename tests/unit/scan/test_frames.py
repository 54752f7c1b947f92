"""Messages between server and worker survive any cutting of the stream."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from f1common.errors import Code, F1Error
from spanstore.scan.frames import (
    Cancel,
    Chunk,
    Credit,
    Failed,
    FrameBuffer,
    Open,
    Ready,
    decode_from_worker,
    decode_to_worker,
    frame,
)
from spanstore.scan.plan import KeyShape, Operator, Predicate
from tests.unit.scan.store import plan

TO_WORKER = (
    Open(1, plan(predicates=(Predicate(0, Operator.IN, (b"\x18", b"\x19")),), shape=KeyShape(2, b"\x19", 1)), 4),
    Credit(1, 2),
    Cancel(1),
)
FROM_WORKER = (
    Ready(),
    Chunk(1, b"\x00" * 300, 7, 1, b"resume", False),
    Failed(2, Code.DATA_CORRUPTION, "damaged", False, {"key": "18"}),
)


@given(st.lists(st.integers(0, 900), max_size=20))
def test_frames_survive_any_cutting(cuts: list[int]) -> None:
    data = b"".join([frame(message) for message in TO_WORKER])
    buffer = FrameBuffer(bytearray())
    got = []
    borders = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for low, high in pairwise(borders):
        got += [decode_to_worker(body) for body in buffer.feed(data[low:high])]
    assert tuple(got) == TO_WORKER
    assert not buffer.data


def test_both_directions_keep_their_kinds() -> None:
    buffer = FrameBuffer(bytearray())
    assert (
        tuple(decode_from_worker(body) for body in buffer.feed(b"".join([frame(message) for message in FROM_WORKER])))
        == FROM_WORKER
    )


def test_errors_keep_what_a_caller_acts_on() -> None:
    error = F1Error(Code.UNAVAILABLE, "behind", retryable=False, details={"a": "b"})
    got = Failed.of(3, error).error()
    assert (got.code, got.message, got.retryable, dict(got.details)) == (Code.UNAVAILABLE, "behind", False, {"a": "b"})
