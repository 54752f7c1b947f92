"""Tests that leave tasks behind are told (tests/conftest.py)."""

import asyncio

from tests import loops


def closed_with(task_ends: bool) -> list[str]:
    """Close a loop with one task in it and return what is told."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(asyncio.sleep(0 if task_ends else 60), name="straggler")
    loop.run_until_complete(asyncio.sleep(0.001))
    loop.close()
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    return loops.taken()


def test_a_task_that_has_not_ended_with_its_loop_is_told() -> None:
    assert closed_with(task_ends=True) == []
    (told,) = closed_with(task_ends=False)
    assert "straggler" in told
    assert loops.taken() == []
