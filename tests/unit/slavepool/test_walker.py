"""The child of a slave that does walks leaves nothing behind, however its parent ends."""

import asyncio
import json
import os
import subprocess
import sys
import time
from asyncio.subprocess import Process
from pathlib import Path
from typing import Any

import msgspec
import pytest

from f1common.config import Config
from slavepool.reorganising import ChildWalks

CONFIG = {
    "server": {"name": "slave-1", "zone": "a", "port": 0, "data_dir": "none"},
    "clock": {"offset_us": 1},
    "cluster": {
        "cluster_id": "test",
        "servers": [{"name": "a", "zone": "a", "address": "127.0.0.1:1"}],
        "groups": [{"id": 0, "voters": ["a"]}],
        "ranges": [{"start": "", "group": 0}],
    },
}

SLAVE = """
import asyncio, sys, msgspec
from f1common.config import Config
from slavepool.reorganising import ChildWalks

async def main():
    walks = ChildWalks(lambda: msgspec.json.decode(sys.argv[1], type=Config))
    await walks._ready()
    print("ready", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def folders(under: Path) -> list[Path]:
    return list(under.glob("f1-walks-*"))


def test_the_folder_of_a_slave_that_was_killed_goes_with_its_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    command = [sys.executable, "-c", SLAVE, json.dumps(CONFIG)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as slave:
        assert slave.stdout is not None and slave.stdout.readline() == "ready\n"
        assert len(folders(tmp_path)) == 1
        slave.kill()
    end = time.monotonic() + 30
    while folders(tmp_path):
        assert time.monotonic() < end, "the folder is there still"
        time.sleep(0.05)


def test_folders_of_slaves_that_were_killed_with_their_children_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    for name in (f"f1-walks-{dead.pid}-x1", f"f1-walks-{os.getppid()}-x2", "f1-walks-older"):
        (tmp_path / name / "1").mkdir(parents=True)

    async def main() -> None:
        walks = ChildWalks(lambda: msgspec.convert(CONFIG, Config))
        await walks._ready()
        assert len(folders(tmp_path)) == 3
        await walks.close()

    asyncio.run(main())
    assert {folder.name for folder in folders(tmp_path)} == {f"f1-walks-{os.getppid()}-x2", "f1-walks-older"}


def test_the_folder_of_a_slave_that_lives_outlasts_its_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    async def main() -> None:
        walks = ChildWalks(lambda: msgspec.convert(CONFIG, Config))
        for _ in range(2):
            await walks._ready()
            await walks._end()
            assert len(folders(tmp_path)) == 1
        await walks.close()
        assert not folders(tmp_path)

    asyncio.run(main())


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Process]:
    """The processes that have been started."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found: list[Process] = []
    start = asyncio.create_subprocess_exec

    async def watched(*arguments: Any, **more: Any) -> Process:
        found.append(await start(*arguments, **more))
        return found[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", watched)
    return found


def test_a_stream_that_is_given_up_while_the_child_starts_leaves_it_to_the_next(started: list[Process]) -> None:
    """On busy processors a start takes longer than a stream waits: each would leave one more process behind."""

    async def main() -> None:
        walks = ChildWalks(lambda: msgspec.convert(CONFIG, Config))
        for _ in range(3):
            stream = asyncio.create_task(walks.serve(None))
            while not started:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0)
            stream.cancel()
            await asyncio.gather(stream, return_exceptions=True)
        child = await walks._ready()
        assert [process.pid for process in started] == [child.process.pid]
        await walks.close()
        assert child.process.returncode is not None

    asyncio.run(main())


def test_a_child_that_nobody_waited_for_ends_with_its_slave(started: list[Process]) -> None:
    async def main() -> None:
        walks = ChildWalks(lambda: msgspec.convert(CONFIG, Config))
        stream = asyncio.create_task(walks.serve(None))
        while not started:
            await asyncio.sleep(0.01)
        stream.cancel()
        await asyncio.gather(stream, return_exceptions=True)
        await walks.close()
        assert [process.returncode is not None for process in started] == [True]

    asyncio.run(main())
