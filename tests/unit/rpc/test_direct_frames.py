"""What is on the wire of a direct stream, and which streams go so."""

import pytest
from google.protobuf.descriptor import ServiceDescriptor
from hypothesis import given
from hypothesis import strategies as st

from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2, spanstore_pb2
from f1common.rpc.direct.frames import FrameReader, Kind, Status, decode_status, encode
from f1common.rpc.direct.methods import CLIENT_METHODS, STORAGE_METHODS
from tests.unit.rpc.direct import frame


@given(
    st.lists(st.tuples(st.sampled_from(Kind), st.binary(max_size=300)), max_size=8),
    st.lists(st.integers(1, 400), max_size=40),
)
def test_frames_arrive_as_they_were_sent_however_they_are_cut(sent: list[tuple[Kind, bytes]], cuts: list[int]) -> None:
    stream = b"".join(frame(kind, payload) for kind, payload in sent)
    reader = FrameReader(1000)
    got = []
    for size in cuts:
        if stream:
            got += reader.feed(stream[:size])
            stream = stream[size:]
    if stream:
        got += reader.feed(stream)
    assert got == sent


@pytest.mark.parametrize(
    "bad", [b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n", bytes(8), (1002).to_bytes(4, "big") + b"\2"]
)
def test_what_is_no_frame_is_refused(bad: bytes) -> None:
    with pytest.raises(F1Error) as caught:
        FrameReader(1000).feed(bad)
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_a_status_that_cannot_be_read_is_internal() -> None:
    assert decode_status(b"\xff").code == "INTERNAL"
    assert decode_status(encode(Status("NO_SUCH"))).code == "INTERNAL"
    assert decode_status(encode(Status("ABORTED", "why", (("key-bin", b"1"),)))).trailing == (("key-bin", b"1"),)


@pytest.mark.parametrize(
    ("service", "methods"),
    [
        (spanstore_pb2.DESCRIPTOR.services_by_name["SpanServer"], STORAGE_METHODS),
        (f1_pb2.DESCRIPTOR.services_by_name["F1Server"], CLIENT_METHODS),
    ],
    ids=["storage", "clients"],
)
def test_the_methods_that_go_directly_are_streams(service: ServiceDescriptor, methods: tuple[str, ...]) -> None:
    for method in methods:
        _, name, short = method.split("/")
        assert name == service.full_name
        assert service.methods_by_name[short].client_streaming
        assert service.methods_by_name[short].server_streaming
