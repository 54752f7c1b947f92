"""`f1 pin`: what it asks of the cluster and what it prints."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from f1common.errors import Code, F1Error
from spanstore.client import Pin
from spanstore.tools import pins


class FakePins:
    def __init__(self) -> None:
        self.kept: dict[str, Pin] = {}
        self.seconds = 3600.0

    async def add(self, name: str, ts: int, *, ttl_s: float, owner: str) -> Pin:
        self.kept[name] = Pin(name, ts, ts + int(ttl_s * 1e6), owner)
        return self.kept[name]

    async def refresh(self, name: str, *, ttl_s: float) -> Pin:
        old = self.kept[name]
        self.kept[name] = Pin(name, old.ts, old.expires_ts + int(ttl_s * 1e6), old.owner)
        return self.kept[name]

    async def remove(self, name: str) -> bool:
        return self.kept.pop(name, None) is not None

    async def keep(self, seconds: float | None) -> float:
        self.seconds = self.seconds if seconds is None else seconds
        return self.seconds

    async def list(self) -> list[Pin]:
        return [self.kept[name] for name in sorted(self.kept)]


class FakeCluster:
    def __init__(self) -> None:
        self.pins = FakePins()

    async def safe_time(self) -> int:
        return 7_000_000

    def run(self, work: Callable[[Any], Awaitable[Any]]) -> Any:
        async def whole() -> Any:
            return await work(self)

        return asyncio.run(whole())


def test_pins_are_added_listed_refreshed_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster()
    monkeypatch.setattr(pins, "resolve", lambda host, directory: cluster)

    def say(*arguments: str) -> str:
        result = CliRunner().invoke(pins.app, list(arguments))
        assert result.exit_code == 0, result.output
        return result.output

    assert say("add", "export", "--ttl-s", "2") == "export pins 7000000 until 9000000\n"
    assert say("add", "old", "--ts", "5", "--ttl-s", "1", "--owner", "me") == "old pins 5 until 1000005\n"
    assert say("refresh", "export", "--ttl-s", "1") == "export pins 7000000 until 10000000\n"
    listed = json.loads(say("list", "--format", "json"))
    assert listed == [
        {"name": "export", "ts": 7_000_000, "expires_ts": 10_000_000, "owner": ""},
        {"name": "old", "ts": 5, "expires_ts": 1_000_005, "owner": "me"},
    ]
    assert say("list").splitlines()[0].split() == ["name", "ts", "expires_ts", "owner"]
    assert say("remove", "old") == "removed old\n"
    gone = CliRunner().invoke(pins.app, ["remove", "old"])
    assert isinstance(gone.exception, F1Error) and gone.exception.code is Code.NOT_FOUND
    assert say("keep") == "old versions are kept for 3600 s\n"
    assert say("keep", "60") == say("keep") == "old versions are kept for 60 s\n"
