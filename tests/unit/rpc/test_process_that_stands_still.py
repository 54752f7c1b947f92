"""A server process that the operating system stops: its connections stay open, and only keepalive tells."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from f1common.errors import Code, F1Error
from tests.unit.rpc.echo import Request, new_channels, request_stream

ROOT = Path(__file__).parents[3]
SERVER = """
import asyncio
import sys

import grpc.aio

from f1common.rpc.direct.listening import DirectServer
from f1common.rpc.server import ServerBootstrap, ServerOptions
from f1common.rpc.streams import serve_requests
from tests.unit.rpc import echo

async def main():
    def server(options):
        plain = grpc.aio.server(options=options)
        return DirectServer(plain, [echo.SESSION]) if sys.argv[1] == echo.DIRECT else plain

    bootstrap = ServerBootstrap(ServerOptions("still"), server_factory=server)

    async def session(_, context):
        def handle(request, reply):
            reply(echo.echo(request))

        await serve_requests(context, echo.items_of, echo.pack_responses, handle, draining=bootstrap.draining)

    echo.add_echo(bootstrap.server, session)
    print(await bootstrap.start(), flush=True)
    await bootstrap.run_until_signal()

asyncio.run(main())
"""


@contextmanager
def server_process(transport: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-c", SERVER, transport]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, f"127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def test_stopped_process_is_unavailable_and_comes_back(transports: str) -> None:
    async def scenario(process: subprocess.Popen[str], address: str) -> None:
        channels = new_channels()
        stream = request_stream(channels.get(address))
        assert (await stream.call(Request(text="before"))).text == "before"
        os.kill(process.pid, signal.SIGSTOP)
        with pytest.raises(F1Error) as caught:
            # Keepalive takes four to six seconds; that of gRPC took a minute until the time-out of its pings was set.
            await stream.call(Request(text="stopped"), timeout_s=40)
        assert (caught.value.code, caught.value.ambiguous) == (Code.UNAVAILABLE, True)
        with pytest.raises(F1Error) as caught:
            await stream.call(Request(text="still stopped"))
        assert (caught.value.code, caught.value.ambiguous) == (Code.UNAVAILABLE, False)
        os.kill(process.pid, signal.SIGCONT)
        while True:
            try:
                assert (await stream.call(Request(text="after"))).text == "after"
                break
            except F1Error as error:
                assert error.code is Code.UNAVAILABLE
        await stream.close()
        await channels.close()

    with server_process(transports) as (process, address):
        asyncio.run(scenario(process, address))


def test_terminated_process_drains_and_exits_cleanly(transports: str) -> None:
    async def scenario(process: subprocess.Popen[str], address: str) -> None:
        channels = new_channels()
        stream = request_stream(channels.get(address))
        assert (await stream.call(Request(text="before"))).text == "before"
        process.terminate()
        assert await asyncio.to_thread(process.wait) == 0
        await stream.close()
        await channels.close()

    with server_process(transports) as (process, address):
        asyncio.run(scenario(process, address))
