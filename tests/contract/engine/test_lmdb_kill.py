"""A process that is killed at any moment loses nothing that it acknowledged, and keeps whole commits only."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from spanstore.engine.lmdb_engine import LmdbEngine

WRITER = """
import asyncio, sys
from pathlib import Path
from spanstore.engine.base import WriteBatch
from spanstore.engine.lmdb_engine import LmdbEngine

async def main():
    engine = LmdbEngine.open(Path(sys.argv[1]), cluster="c", server="s")
    with engine.snapshot() as reader:
        last = reader.get(b"last")
    start = int(last) + 1 if last else 0

    async def write(n):
        batch = WriteBatch()
        batch.put(b"last", b"%d" % n)
        for part in range(3):
            batch.put(b"n/%08d/%d" % (n, part), b"x" * 3000)
        if n >= 10:
            batch.delete_range(b"n/%08d/" % (n - 10), b"n/%08d0" % (n - 10))
        await engine.commit(batch)
        print(n, flush=True)

    n = start
    while True:
        await asyncio.gather(*(write(n + i) for i in range(4)))
        n += 4

asyncio.run(main())
"""


def _run_and_kill(path: Path, acknowledgements: int) -> int:
    """Let a writer acknowledge so many commits, kill it, return the last that it acknowledged."""
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    last = -1
    for _ in range(acknowledgements):
        last = int(process.stdout.readline())
    os.kill(process.pid, signal.SIGKILL)
    for line in process.stdout:  # acknowledged before the signal arrived
        if line.endswith("\n"):
            last = int(line)
    process.wait()
    process.stdout.close()
    return last


@pytest.mark.parametrize("rounds", [(1, 7, 30)])
def test_killed_writers_keep_every_acknowledged_commit(tmp_path: Path, rounds: tuple[int, ...]) -> None:
    path = tmp_path / "data"

    async def contents() -> dict[bytes, bytes]:
        engine = LmdbEngine.open(path, cluster="c", server="s")
        with engine.snapshot() as reader:
            found = dict(reader.scan(b"", b"\xff\xff"))
        await engine.close()
        return found

    for acknowledgements in rounds:
        acknowledged = _run_and_kill(path, acknowledgements)
        found = asyncio.run(contents())
        last = int(found.pop(b"last"))
        assert last >= acknowledged
        expected = {
            b"n/%08d/%d" % (n, part): b"x" * 3000 for n in range(max(0, last - 9), last + 1) for part in range(3)
        }
        assert found == expected
