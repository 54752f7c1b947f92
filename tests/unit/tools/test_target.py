"""Which cluster the options name."""

from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from f1common.clock import BoundedClock, SameHostClock
from f1common.errors import Code, F1Error
from f1deploy.configs import write_configs
from f1deploy.directory import ClusterDirectory
from f1deploy.spec import Shape, plan
from spanstore.tools.target import DEFAULT_HOST, Target, cpu_seconds, parse_hosts, process_rng, resolve


def make_cluster(path: Path) -> None:
    directory = ClusterDirectory(path)
    directory.create()
    numbers = iter(range(20_000, 30_000))
    write_configs(directory, plan(Shape(f1servers=0), "c", 7400, lambda: next(numbers)))


def test_hosts_are_split() -> None:
    assert parse_hosts("a:1, [::1]:2,") == ("a:1", "[::1]:2")


@pytest.mark.parametrize("text", ["", ",", "localhost", "h:x", "h:0", "h:65536", ":7400"])
def test_no_hosts_are_refused(text: str) -> None:
    with pytest.raises(F1Error, match="--host") as raised:
        parse_hosts(text)
    assert raised.value.code is Code.INVALID_ARGUMENT


def test_a_directory_gives_addresses_metrics_and_the_clock_of_the_cluster(tmp_path: Path) -> None:
    make_cluster(tmp_path / "c")
    target = resolve(None, tmp_path / "c")
    assert target.addresses == ("127.0.0.1:7400", "127.0.0.1:7401", "127.0.0.1:7402")
    assert len(target.metrics) == 3
    assert isinstance(target.clock, SameHostClock)


def test_without_options_the_cluster_here_or_the_default_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("F1_HOST", raising=False)
    assert resolve(None, None).addresses == (DEFAULT_HOST,)
    make_cluster(tmp_path / "f1-cluster")
    assert len(resolve(None, None).addresses) == 3
    assert isinstance(resolve("h:1", None).clock, BoundedClock)


def test_the_environment_names_a_cluster_as_it_does_for_other_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_cluster(tmp_path / "f1-cluster")
    monkeypatch.setenv("F1_HOST", "127.0.0.1:1,127.0.0.1:2")
    assert resolve(None, None).addresses == ("127.0.0.1:1", "127.0.0.1:2")
    assert resolve("127.0.0.1:3", None).addresses == ("127.0.0.1:3",)
    assert len(resolve(None, tmp_path / "f1-cluster").addresses) == 3
    monkeypatch.setenv("F1_HOST", "")
    assert len(resolve(None, None).addresses) == 3


def test_two_names_for_the_cluster_are_one_too_many(tmp_path: Path) -> None:
    with pytest.raises(F1Error, match="one of them"):
        resolve("h:1", tmp_path)


def test_a_directory_without_a_cluster_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(F1Error) as raised:
        resolve(None, tmp_path)
    assert raised.value.code is Code.NOT_FOUND


class Metrics(BaseHTTPRequestHandler):
    """Answers as a server's metrics endpoint does."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total 1.25\nother 3\n")

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_processor_time_is_added_up_from_the_metrics() -> None:
    with HTTPServer(("127.0.0.1", 0), Metrics) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            address = f"127.0.0.1:{server.server_port}"
            clock = BoundedClock(1)
            assert cpu_seconds(Target(("h:1",), clock, (address, address))) == 2.5
            assert cpu_seconds(Target(("h:1",), clock)) is None
            assert cpu_seconds(Target(("h:1",), clock, (address, "127.0.0.1:9"))) is None
        finally:
            server.shutdown()
            thread.join()


def test_two_generators_of_a_process_differ() -> None:
    assert process_rng().randbytes(16) != process_rng().randbytes(16)
