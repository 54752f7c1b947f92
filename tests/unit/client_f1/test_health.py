"""``f1 health``: the exit code of container health checks."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import entry_points

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from f1.cli import GROUP, build, run


class Server:
    """A server whose health the test sets."""

    def __init__(self) -> None:
        self.health = health.HealthServicer()
        self.server = grpc.server(ThreadPoolExecutor(2))
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self.server)
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.server.stop(None).wait()


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    full = ["health", *arguments]
    code = run(build(entry_points(group=GROUP), full), full)
    out, err = capsys.readouterr()
    return code, out, err


def test_only_a_server_that_serves_is_healthy(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    address = f"127.0.0.1:{server.port}"
    server.health.set("", health_pb2.HealthCheckResponse.SERVING)
    assert asked(capsys, address) == (0, f"{address} is SERVING\n", "")
    server.health.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
    code, out, err = asked(capsys, address)
    assert (code, out) == (1, "")
    assert err.startswith(f"UNAVAILABLE: {address} is NOT_SERVING")


def test_a_container_asks_its_own_server(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("F1_SERVER_HOST", "127.0.0.1")
    monkeypatch.setenv("F1_SERVER_PORT", str(server.port))
    server.health.set("", health_pb2.HealthCheckResponse.SERVING)
    assert asked(capsys) == (0, f"127.0.0.1:{server.port} is SERVING\n", "")


def test_a_port_without_a_server_is_not_healthy(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # taken, so that nobody else listens on it, but not listening
        code, _, err = asked(capsys, f"127.0.0.1:{unused.getsockname()[1]}")
    assert code == 1
    assert err.startswith("UNAVAILABLE: ")


@pytest.mark.parametrize("wrong", [(), ("nonsense",), ("a:1,b:2",)])
def test_mistakes_are_named(
    wrong: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("F1_SERVER_HOST", raising=False)
    code, _, err = asked(capsys, *wrong)
    assert code == 1
    assert err.startswith("INVALID_ARGUMENT: ")
