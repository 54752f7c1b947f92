"""The orchestrator on a real cluster: both services as processes, the example bank, and a leader that is killed."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from f1.orchestrator import Locks, Orchestrator, SpanStore, Timestamps
from tests.integration.database import running
from tests.unit.orchestrator.test_bank import example


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def service(kind: str, name: str, config: Path) -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
    port = free_port()
    settings = {"server.name": name, "server.port": port, "server.metrics_port": 0}
    options = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "txservices.main", kind, "--config", str(config), *options]
    process = subprocess.Popen(command)
    try:
        yield process, f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def test_the_bank_over_the_storage_tier(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running(tmp_path) as database:
        config = database.directory / "conf" / "f1-1.toml"
        with (
            service("timestamps", "timestamps-1", config) as (first, one),
            service("timestamps", "timestamps-2", config) as (_, two),
            service("locks", "locks-1", config) as (_, locks),
        ):
            made = Orchestrator(
                SpanStore(database.hosts, timeout_s=60.0),
                Timestamps(f"{one},{two}", timeout_s=120.0),
                Locks(locks, timeout_s=120.0),
                timeout_s=120.0,
            )
            text = example()
            start = text.index("bank = ")
            names = {"made": made}
            exec(text.replace(text[start : text.index("\n", start)], "bank = made"), names)
            assert capsys.readouterr().out == "{'Alice': 12, 'Bob': 3} True\n"
            before = made.start().start_ts
            first.kill()
            first.wait()
            with made.start() as tx:
                assert tx.start_ts > before
                assert tx.get("accounts", "Alice", "balance") == 12
            database.command("check")  # fails on any finding: nothing of this is a stray
            made.close()
