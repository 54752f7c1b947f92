"""The master's stream of beats over real gRPC: one stream, one slave, and names that people can read."""

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest

from f1common.clock import SameHostClock, measure_same_host_offset_us
from f1common.config import MasterSection
from f1common.pb import master_pb2 as pb
from f1common.pb import master_pb2_grpc as stubs
from master.process import MasterProcess


def slave(name: str = "slave-1", address: str = "127.0.0.1:7500", zone: str = "a") -> pb.SlaveIdentity:
    return pb.SlaveIdentity(name=name, address=address, zone=zone, version="1", incarnation=7, threads=2)


def beats(*slaves: pb.SlaveIdentity) -> list[str]:
    """Send one beat of each on one stream; return the codes of the answers, empty for none, and who is in the list."""

    async def go() -> list[str]:
        server = grpc.aio.server()
        port = server.add_insecure_port("127.0.0.1:0")
        master = MasterProcess(MasterSection(), SameHostClock(measure_same_host_offset_us()))
        await master.start(server)
        await server.start()
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                return await ask(stubs.MasterStub(channel), slaves)
        finally:
            await master.stop()
            await server.stop(None)

    return asyncio.run(go())


async def ask(stub: Any, slaves: tuple[pb.SlaveIdentity, ...]) -> list[str]:
    call = stub.Beat()
    batch = pb.BeatBatch(protocol_version=1)
    batch.beats.extend(pb.Beat(id=i + 1, slave=s) for i, s in enumerate(slaves))
    await call.write(batch)
    codes: dict[int, str] = {}
    async with asyncio.timeout(20):
        while len(codes) < len(slaves):
            codes.update({reply.id: reply.error.code for reply in (await call.read()).replies})
    watch = stub.Watch(pb.WatchRequest(protocol_version=1, server="f1-1"))
    listed = await watch.read()
    watch.cancel()
    call.cancel()
    return [*(codes[i + 1] for i in range(len(slaves))), *(entry.slave.name for entry in listed.slaves)]


def test_a_stream_carries_the_beats_of_one_slave() -> None:
    assert beats(slave(), slave("slave-2"), slave()) == ["", "INVALID_ARGUMENT", "", "slave-1"]


@pytest.mark.parametrize(
    "wrong",
    [
        slave(name="x" * 1_000_000),
        slave(name="two\nlines"),
        slave(zone="a b"),
        slave(address="not an address"),
        slave(address="h" * 300 + ":1"),
        pb.SlaveIdentity(name="slave-1", address="127.0.0.1:7500"),
    ],
)
def test_what_nobody_could_read_is_refused(wrong: pb.SlaveIdentity) -> None:
    assert beats(wrong) == ["INVALID_ARGUMENT"]
