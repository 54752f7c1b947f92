"""The benchmark of schema changes counts from the moment at which an operation was due, and in the right window."""

import asyncio
import multiprocessing
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import uvloop

from f1.errors import OperationalError
from f1common.errors import Code
from f1deploy.bench.local import LocalCluster
from f1deploy.bench.mixed import GAP, Mix, Operations, hand_over
from f1deploy.bench.schema_change import Build, Observed, Round, compare


class Cursor:
    async def fetchall(self) -> list[Any]:
        return []


class Standing:
    """Executes at once, but for a while in which it stands still; every tenth statement fails if asked to."""

    def __init__(self, stand_s: float = 0.0, *, failing: bool = False) -> None:
        self.gate = asyncio.Event()
        self.begun = 0
        self._stand_s = stand_s
        self._failing = failing

    async def __call__(self, text: str, parameters: tuple[Any, ...]) -> Cursor:
        self.begun += 1
        if self.begun == 20 and self._stand_s:
            await asyncio.sleep(self._stand_s)
            self.gate.set()
        elif self.begun > 20 and self._stand_s:
            await self.gate.wait()
        if self._failing and self.begun % 10 == 0:
            raise OperationalError(Code.UNAVAILABLE, "just now")
        return Cursor()


def open_loop(execute: Standing, rate: float, operations: int) -> Operations:
    done = Operations()

    async def run() -> None:
        stop = asyncio.Event()
        mix = Mix(execute, 1000, done)
        arriving = asyncio.create_task(mix.arrive(random.Random(3), rate, stop))
        while len(done.began_us) + len(done.failed_us) < operations:
            await asyncio.sleep(0.01)
        stop.set()
        await arriving

    asyncio.run(run())
    return done


def test_operations_that_were_due_while_a_server_stood_still_are_slow() -> None:
    done = open_loop(Standing(stand_s=0.5), rate=400.0, operations=300)
    # Half a second at 400 a second: the first that waited did so for all of it, the last for nothing.
    slow = [took for took in done.took_us if took > 50_000]
    assert len(slow) > 50
    assert max(done.took_us) >= 450_000
    assert statistics.median(slow) > 100_000


def test_arrivals_are_random_and_as_many_as_asked_for() -> None:
    done = open_loop(Standing(), rate=2000.0, operations=2000)
    began = sorted(done.began_us)
    gaps = [later - earlier for earlier, later in pairwise(began)]
    assert 400 < statistics.mean(gaps) < 600  # microseconds; by the clock of the arrivals, not of the machine
    assert 350 < statistics.stdev(gaps) < 700  # of an exponential distribution: the mean


def test_failures_are_counted_with_their_moment_and_take_no_part_in_latencies() -> None:
    done = open_loop(Standing(failing=True), rate=2000.0, operations=500)
    assert len(done.failed_us) == pytest.approx(len(done.began_us) / 9, rel=0.1)
    everything = (min([*done.began_us, *done.failed_us]), max([*done.began_us, *done.failed_us]) + 1)
    assert done.failed([everything]) == len(done.failed_us)
    assert done.failed([(0, everything[0])]) == 0
    assert done.first_error == "UNAVAILABLE: just now"


def test_the_mix_is_three_quarters_queries_and_hits_rows_that_are_there() -> None:
    mix = Mix(Standing.__call__, 500, Operations())
    rng = random.Random(1)
    drawn = [mix.draw(rng) for _ in range(8000)]
    assert 0.73 < sum(query for query, _, _ in drawn) / len(drawn) < 0.77
    words = Counter(text.split()[0] for _, text, _ in drawn)
    assert set(words) == {"SELECT", "UPDATE", "INSERT", "DELETE"}
    updated = [parameters[1] for _, text, parameters in drawn if text.startswith("UPDATE")]
    assert all(row % GAP == 0 and 0 <= row < 500 * GAP for row in updated)
    inserted = [parameters[0] for _, text, parameters in drawn if text.startswith("INSERT")]
    assert all(row % GAP for row in inserted)
    assert len(set(inserted)) == len(inserted)


def observed(during_ms: float, without_ms: float, *, failed: bool = False) -> Observed:
    done = Operations()
    for n in range(1000):
        # Two quiet windows, 0-1,000 and 2,000-3,000, and the build between them.
        for start, took in ((0, without_ms), (1000, during_ms), (2000, without_ms)):
            done.began_us.append(start + n)
            done.took_us.append(int(took * 1000))
            done.query.append(n % 4 > 0)
    # Outside of all windows: counts nowhere.
    done.began_us.append(5000)
    done.took_us.append(10**9)
    done.query.append(1)
    if failed:
        done.failed_us.append(1500)
        done.first_error = "ABORTED: lost"
    return Observed(done, (Round(((0, 1000), (2000, 3000)), ((1000, 2000),), Build(50.0, 20.0)),))


def test_of_several_rounds_figures_are_medians_and_each_is_told() -> None:
    done = Operations()
    rounds = []
    for number, (without_ms, during_ms, build_s) in enumerate([(4, 4, 100), (8, 40, 700), (2, 3, 50)]):
        start = number * 10_000
        for offset, took in ((0, without_ms), (1_000, during_ms), (2_000, without_ms)):
            for n in range(1_000):
                done.began_us.append(start + offset + n)
                done.took_us.append(took * 1_000)
                done.query.append(n % 4 > 0)
        windows = ((start, start + 1_000), (start + 2_000, start + 3_000))
        rounds.append(Round(windows, ((start + 1_000, start + 2_000),), Build(build_s, 20.0)))
    report = compare(10_000, 100.0, Build(10.0, 4.0), Observed(done, tuple(rounds)), None)
    row = report.rows[0]
    assert (row.work, row.ours, row.peer, row.ratio) == ("query p50", 4.0, 4.0, 1.5)
    assert report.ratios["query p50"] == report.ratios["write p99"] == [1.0, 5.0, 1.5]
    assert (report.operations, report.build_s) == (9_000, 100.0)
    late = next(goal for goal in report.goals if goal.goal.startswith("seconds"))
    assert late.value == 700.0 and not late.met


def test_latencies_with_a_change_stand_beside_those_without() -> None:
    report = compare(10_000, 100.0, Build(10.0, 4.0), observed(6.0, 4.0), (2.0, "PostgreSQL 15"))
    rows = {row.work: row for row in report.rows}
    assert [row.work for row in report.rows[:6]] == [f"{k} p{p}" for k in ("query", "write") for p in (50, 90, 99)]
    assert (rows["query p99"].ours, rows["query p99"].peer, rows["query p99"].ratio) == (6.0, 4.0, 1.5)
    build = rows["index build, nobody there"]
    assert (build.ours, build.peer, build.ratio, build.cpu_us) == (1000.0, 5000.0, 0.2, 400.0)
    assert rows["index build under load"].ours == 200.0
    assert (report.operations, report.errors, report.first_error) == (3000, 0, "")
    assert {goal.goal.split(",")[0]: goal.met for goal in report.goals} == {
        "query p50": False,
        "query p99": False,
        "write p50": False,
        "seconds for the build under load": True,
        "operations that failed": True,
    }


def test_goals_are_met_within_their_bounds_only() -> None:
    report = compare(10_000, 100.0, Build(10.0, 4.0), observed(4.1, 4.0, failed=True), None, "PostgreSQL is not there")
    assert [goal.met for goal in report.goals] == [True, True, True, True, False]
    assert report.first_error == "ABORTED: lost"
    assert report.rows[-2].ratio is None


def test_more_operations_than_a_pipe_holds_are_handed_over() -> None:
    """From a pipe that an event loop has watched, which leaves it not blocking."""
    done = Operations()
    for _ in range(100_000):
        done.began_us.append(1 << 40)
        done.took_us.append(1 << 40)
        done.query.append(1)
    ours, theirs = multiprocessing.Pipe()

    async def watch() -> None:
        asyncio.get_running_loop().add_reader(theirs.fileno(), asyncio.Event().set)
        asyncio.get_running_loop().remove_reader(theirs.fileno())

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, ThreadPoolExecutor(1) as beside:
        runner.run(watch())
        ours.send("stop")
        handing = beside.submit(hand_over, theirs, done)
        time.sleep(0.05)
        assert ours.recv() == done
        handing.result()


def test_processor_time_is_that_of_children_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Walks and scans, most of the work of a build, are done in child processes of slaves and spanservers."""
    work = "import subprocess, sys, time\n"
    work += "busy = 'import time\\nwhile time.process_time() < 0.4: pass\\nprint(flush=True)\\ntime.sleep(600)'\n"
    work += "child = subprocess.Popen([sys.executable, '-c', busy])\nchild.wait()"
    with tempfile.TemporaryDirectory() as folder:
        cluster = LocalCluster(Path(folder))
        with subprocess.Popen([sys.executable, "-c", work], stdout=subprocess.PIPE, start_new_session=True) as parent:
            try:
                listed = {"kind": "slave", "pid": parent.pid, "address": "127.0.0.1:1"}
                monkeypatch.setattr(cluster, "servers", lambda: [listed])
                cluster.find_hosts()
                assert parent.stdout is not None
                parent.stdout.readline()
                assert cluster.cpu_s()["slave"] >= 0.35
            finally:
                os.killpg(parent.pid, signal.SIGKILL)
