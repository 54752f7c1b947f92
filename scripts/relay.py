"""Cables between the servers of a local cluster: `python scripts/relay.py DIRECTORY`, which `scripts/chaos.py` starts.

The relay stands in front of storage servers and carries bytes between whoever connects and the server behind. Who that
is, it learns from the kernel: the socket at the other end belongs to a process of the cluster, or else to a client.
What is cut stops in that direction, and waits; as with packets that are lost, nobody is told, and when the cable is
mended what is still open goes on.

Commands come line by line on the standard input, and are answered in a line each on the standard output:

    front NAME          listen for this server; the answer is the port
    cut FROM TO         carry no bytes from one to the other any more; `client` is all who are no server
    mend                carry all bytes again
"""

import asyncio
import re
import socket
import struct
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from f1common.errors import F1Error
from f1deploy.directory import ClusterDirectory
from f1deploy.spec import HOST

CLIENT = "client"
_CHUNK_BYTES = 1 << 16
# Of linux/netlink.h, linux/sock_diag.h and linux/inet_diag.h.
_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST = 4, 20, 1
_ALL_STATES = _NO_COOKIE = 0xFFFFFFFF
_HEADER_BYTES = 16
_INODE_AT = 4 + 48 + 4 * 4


class Relay:
    """All cables of one cluster."""

    def __init__(self, directory: Path) -> None:
        self._directory = ClusterDirectory(directory)
        self._cut: set[tuple[str, str]] = set()
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    async def front(self, name: str) -> int:
        """Listen in front of a server, whether it is there already or not; return the port."""
        server = await asyncio.start_server(partial(self._accept, name), HOST, 0)
        return int(server.sockets[0].getsockname()[1])

    def cut(self, source: str, target: str) -> None:
        """Carry nothing from ``source`` to ``target``."""
        self._cut.add((source, target))

    async def mend(self) -> None:
        """Carry everything."""
        async with self._changed:
            self._cut.clear()
            self._changed.notify_all()

    async def _accept(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # First of all, because nothing is there mostly when it fails.
            port = self._directory.load().process(name).port
            behind_reader, behind_writer = await asyncio.open_connection(HOST, port)
        except (OSError, F1Error):
            writer.transport.abort()
            return
        source = self._whose(writer.get_extra_info("peername")[1], writer.get_extra_info("sockname")[1])
        there = self._pump(source, name, reader, behind_writer)
        back = self._pump(name, source, behind_reader, writer)
        await asyncio.gather(there, back)

    async def _pump(self, source: str, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(_CHUNK_BYTES):
                await self._carried(source, target)
                writer.write(data)
                await writer.drain()
        except (OSError, RuntimeError):
            pass  # one end broke (the latter is what uvloop says of an end that is closed); the other is told
        await self._carried(source, target)  # an end, too, is told by packets
        writer.close()

    async def _carried(self, source: str, target: str) -> None:
        """Wait until bytes from ``source`` to ``target`` are carried."""
        if (source, target) in self._cut:
            async with self._changed:
                await self._changed.wait_for(lambda: (source, target) not in self._cut)

    def _whose(self, port: int, front: int) -> str:
        """Return the server whose socket is at ``port``, connected to ours at ``front``."""
        inode = _inode(port, front)
        return next((name for name, pid in self._servers() if inode in _sockets(pid)), CLIENT)

    def _servers(self) -> Iterator[tuple[str, int]]:
        for process in self._directory.load().spanservers():
            identity = self._directory.state(process.name).identity
            if identity is not None:
                yield process.name, identity.pid


def _inode(port: int, peer: int) -> int:
    """Return the inode of the local socket at ``port`` that is connected to ``peer``; 0 if there is none.

    The kernel is asked for this one (sock_diag(7)): /proc/net/tcp walks through all that there could be, which takes
    tens of milliseconds, and whoever cannot reach a server tries many times a second.
    """
    here = socket.inet_aton(HOST)
    wanted = struct.pack(">HH4s12x4s12x", port, peer, here, here) + struct.pack("=III", 0, _NO_COOKIE, _NO_COOKIE)
    request = struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, _ALL_STATES) + wanted
    header = struct.pack("=IHHII", _HEADER_BYTES + len(request), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 0, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
        kernel.send(header + request)
        reply = kernel.recv(_CHUNK_BYTES)
    (kind,) = struct.unpack_from("=H", reply, 4)
    if kind != _SOCK_DIAG_BY_FAMILY:
        return 0
    return int(struct.unpack_from("=I", reply, _HEADER_BYTES + _INODE_AT)[0])


def _sockets(pid: int) -> set[int]:
    """Return the inodes of the sockets of a process."""
    found = set()
    try:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            try:
                match = re.fullmatch(r"socket:\[(\d+)\]", str(entry.readlink()))
            except OSError:
                continue
            if match:
                found.add(int(match[1]))
    except OSError:
        pass  # it has ended
    return found


async def serve(directory: Path) -> None:
    """Obey commands until there are no more."""
    relay = Relay(directory)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        match line.split():
            case ["front", name]:
                answer = str(await relay.front(name))
            case ["cut", source, target]:
                relay.cut(source, target)
                answer = "ok"
            case ["mend"]:
                await relay.mend()
                answer = "ok"
            case _:
                answer = f"no command: {line.strip()}"
        print(answer, flush=True)


if __name__ == "__main__":
    import uvloop

    uvloop.run(serve(Path(sys.argv[1])))
