"""Servers run on the event loop of gRPC that is meant, and gRPC knows its name."""

import os
import subprocess
import sys
from pathlib import Path

from f1common.rpc.transport import EXPERIMENTS, POLLED_BY_PYTHON, with_transport

ROOT = Path(__file__).parents[3]
PINGS = 200
_BOTH_SIDES = """
import asyncio, grpc, sys
from pathlib import Path
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

def woken():
    tasks = [task for task in Path("/proc/self/task").iterdir() if "event_engine" in (task / "comm").read_text()]
    lines = [line for task in tasks for line in (task / "status").read_text().splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary"))

async def main():
    server = grpc.aio.server()
    health_pb2_grpc.add_HealthServicer_to_server(health.aio.HealthServicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        await stub.Check(health_pb2.HealthCheckRequest())
        before = woken()
        for _ in range(int(sys.argv[1])):
            await stub.Check(health_pb2.HealthCheckRequest())
        print(woken() - before)
    await server.stop(None)

asyncio.run(main())
"""


def both_sides(experiments: str) -> tuple[int, str]:
    """Have a server and a client talk in a process of its own; return how often threads of gRPC's event engine woke
    up for it, and what gRPC says on stderr."""
    environment = {**os.environ, EXPERIMENTS: experiments}
    command = [sys.executable, "-c", _BOTH_SIDES, str(PINGS)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    return int(done.stdout), done.stderr


def test_messages_are_read_by_the_thread_that_hands_them_on() -> None:
    woken, errors = both_sides(POLLED_BY_PYTHON)
    assert woken < PINGS / 2
    assert "Unknown experiment" not in errors


def test_names_that_grpc_does_not_know_would_be_seen() -> None:
    woken, errors = both_sides("-no_such_experiment")
    assert woken > PINGS
    assert "Unknown experiment: no_such_experiment" in errors


def test_what_the_user_has_set_stays() -> None:
    assert with_transport({"A": "b"}) == {"A": "b", EXPERIMENTS: POLLED_BY_PYTHON}
    assert with_transport({EXPERIMENTS: "other"}) == {EXPERIMENTS: "other"}


def test_image_has_the_same() -> None:
    assert f"ENV {EXPERIMENTS}={POLLED_BY_PYTHON}\n" in (ROOT / "deploy/Dockerfile").read_text()
