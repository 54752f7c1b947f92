"""Work that nobody waits for is out of the way of everybody, also where sessions share the processors."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from f1common.clock import ManualClock
from f1common.config import PlacementSection
from f1common.priority import module_that_gives_way
from spanstore.runtime.load_balancer import LoadBalancer

AUTOGROUP = Path("/proc/self/autogroup")
SAY = (
    "import os, sys\n"
    "from f1common.priority import give_way\n"
    "give_way()\n"
    "print(os.getsid(0) == os.getpid(), os.nice(0), os.sched_getscheduler(0) == os.SCHED_IDLE)\n"
    "print(open(sys.argv[1]).read().strip() if os.path.exists(sys.argv[1]) else 'nice 19')"
)


def test_a_process_that_gives_way_does_so_beside_other_sessions_too() -> None:
    done = subprocess.run([sys.executable, "-c", SAY, str(AUTOGROUP)], capture_output=True, text=True, check=True)
    own, group = done.stdout.splitlines()
    assert own == "True 19 True"
    assert group.endswith("nice 19")


@pytest.mark.parametrize(("must_end", "share"), [(False, 19), (True, 5)])
def test_a_module_gives_way_before_it_is_imported(tmp_path: Path, must_end: bool, share: int) -> None:
    said = "print(os.nice(0), sys.argv, __name__, open('/proc/self/autogroup').read().split()[-1])"
    if not AUTOGROUP.exists():
        said = f"print(os.nice(0), sys.argv, __name__, {share})"
    (tmp_path / "lowly.py").write_text(f"import os, sys\n{said}\n")
    command = [sys.executable, *module_that_gives_way("lowly", must_end=must_end), "a", "b"]
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", ""), os.getcwd()])
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": path})
    assert done.stdout.split(maxsplit=1) == ["19", f"['{tmp_path / 'lowly.py'}', 'a', 'b'] __main__ {share}\n"]


def test_counts_of_the_balancer_are_asked_for_in_the_background() -> None:
    """Nobody waits for them, and they walk over every row."""

    class Client:
        async def sketch(self, ranges: object, **options: object) -> SimpleNamespace:
            asked.append(options["background"])
            return SimpleNamespace(segments=())

    asked: list[object] = []
    ranges = SimpleNamespace(owned_by=lambda group: [SimpleNamespace(start=b"", end=b"x")])
    server = SimpleNamespace(topology=SimpleNamespace(leader_zones={}))
    balancer = LoadBalancer(cast(Any, server), cast(Any, Client()), ManualClock(), PlacementSection())
    asyncio.run(balancer._surveyor._count(cast(Any, ranges), 1))
    assert asked == [True]
