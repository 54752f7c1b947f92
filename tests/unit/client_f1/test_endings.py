"""A process that ends while something of it still holds a transaction."""

import asyncio
import subprocess
import sys

import pytest

from f1.runtime import Runtime
from f1common.errors import Code, F1Error

# The last reference to the generator goes when the process ends, after what it registered for that has run.
_HOLDS = """
import asyncio
from f1.runtime import runtime

def rows():
    try:
        yield "a row"
    finally:
        runtime().{leave}(asyncio.sleep(0))

runtime().call(asyncio.sleep(0))
held = rows()
print(next(held))
"""


def ended(leave: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", _HOLDS.format(leave=leave)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_what_is_held_when_a_process_ends_is_given_up_in_silence() -> None:
    done = ended("give_up")
    assert (done.returncode, done.stdout, done.stderr) == (0, "a row\n", "")


def test_a_call_of_a_process_that_ends_is_refused() -> None:
    done = ended("call")
    assert (done.returncode, done.stdout) == (0, "a row\n")
    assert "the process is ending" in done.stderr


def test_a_stopped_runtime_does_nothing_more() -> None:
    runtime = Runtime()
    assert runtime.call(asyncio.sleep(0, 7)) == 7
    runtime.give_up(asyncio.sleep(0))
    runtime.stop()
    runtime.give_up(asyncio.sleep(3600))
    with pytest.raises(F1Error) as caught:
        runtime.call(asyncio.sleep(0))
    assert caught.value.code is Code.CANCELLED
