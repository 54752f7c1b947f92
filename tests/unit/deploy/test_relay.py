"""Cables between servers that chaos cuts: bytes of one direction wait, and go on when the cable is mended."""

import asyncio
import os
from pathlib import Path

import pytest

from f1common.clock import boot_id
from f1deploy.directory import ClusterDirectory, State
from f1deploy.processes import Identity
from f1deploy.spec import HOST, ClusterSpec, ProcessSpec
from scripts.relay import CLIENT, Relay

AWHILE_S = 0.2


def directory(path: Path, port: int, ours: bool) -> ClusterDirectory:
    """Of two servers: behind span-a1 is an echo, and span-b1 is this process, or nobody."""
    made = ClusterDirectory(path)
    made.create()
    processes = [
        ProcessSpec(name=name, kind="spanserver", zone=name[5], port=number, metrics_port=1)
        for name, number in (("span-a1", port), ("span-b1", 1))
    ]
    made.save(ClusterSpec(cluster_id="c", port=0, processes=tuple(processes), groups=(), ranges=()))
    if ours:
        made.save_state("span-b1", State("up", identity=Identity(os.getpid(), 0, boot_id())))
    return made


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(100):
        writer.write(data.upper())
    writer.close()


async def told(reader: asyncio.StreamReader) -> bytes | None:
    """What comes within a while, None if nothing does."""
    try:
        return await asyncio.wait_for(reader.read(100), AWHILE_S)
    except TimeoutError:
        return None


@pytest.mark.parametrize("ours", [True, False])
def test_bytes_wait_in_the_direction_that_is_cut_for_the_process_that_it_is_about(tmp_path: Path, ours: bool) -> None:
    async def main() -> None:
        behind = await asyncio.start_server(echo, HOST, 0)
        relay = Relay(directory(tmp_path / "c", behind.sockets[0].getsockname()[1], ours).path)
        source, other = ("span-b1", CLIENT) if ours else (CLIENT, "span-b1")
        reader, writer = await asyncio.open_connection(HOST, await relay.front("span-a1"))
        writer.write(b"one")
        assert await told(reader) == b"ONE"
        relay.cut(other, "span-a1")
        writer.write(b"two")
        assert await told(reader) == b"TWO"
        for cut in ((source, "span-a1"), ("span-a1", source)):
            relay.cut(*cut)
            writer.write(b"three")
            assert await told(reader) is None
            await relay.mend()
            assert await told(reader) == b"THREE"
        writer.close()
        assert await reader.read() == b""

    asyncio.run(main())


def test_a_connection_to_a_server_that_is_not_there_ends(tmp_path: Path) -> None:
    async def main() -> None:
        relay = Relay(directory(tmp_path / "c", 1, ours=False).path)
        reader, _ = await asyncio.open_connection(HOST, await relay.front("span-b1"))
        assert await reader.read() == b""

    asyncio.run(main())
