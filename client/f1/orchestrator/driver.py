"""Performs the steps of the protocol with a store and the two services."""

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar, assert_never

from f1.orchestrator.services import LockService, TimestampService
from f1.orchestrator.steps import (
    Acquire,
    Delete,
    GetVersions,
    NextTimestamp,
    OldestBound,
    Put,
    PutIfAbsent,
    ReadRange,
    Release,
    Step,
    Steps,
    Validate,
)
from f1.orchestrator.stores.base import Store
from f1common.errors import F1Error
from f1common.orchestrator.lock_table import Token

__all__ = ["Surroundings", "drive", "release"]

_RELEASE_S = 1.0

T = TypeVar("T")


class Surroundings(NamedTuple):
    """What an orchestrator works with. ``timeout_s``: how long a transaction waits for locks."""

    store: Store
    timestamps: TimestampService
    locks: LockService
    timeout_s: float


async def drive(steps: Steps[T], around: Surroundings) -> T:
    """Perform ``steps`` to their end and return what they return. Raises what they, or the surroundings, raise."""
    answer: Any = None
    error: F1Error | None = None
    try:
        while True:
            try:
                step = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration as end:
                result: T = end.value
                return result
            answer = error = None
            try:
                answer = await _perform(step, around)
            except F1Error as failure:
                error = failure
    finally:
        steps.close()


async def _perform(step: Step, around: Surroundings) -> Any:
    match step:
        case GetVersions(asked):
            return await around.store.get_versions(asked)
        case ReadRange(start, end, below, limit, every):
            return await around.store.range(start, end, below, limit, every=every)
        case Put(writes):
            return await around.store.put(writes)
        case PutIfAbsent(write):
            return await around.store.put_if_absent(write)
        case Delete(versions):
            return await around.store.delete(versions)
        case Acquire(locks, bound):
            return await around.locks.acquire(locks, bound, around.timeout_s)
        case Validate(tokens):
            return all(await around.locks.validate(tokens))
        case Release(tokens):
            return await release(around.locks, tokens)
        case NextTimestamp():
            return await around.timestamps.next()
        case OldestBound():
            return await around.locks.oldest_bound()
    assert_never(step)


async def release(locks: LockService, tokens: Sequence[Token]) -> None:
    """Give leases back, so that others need not wait until they lapse, as those do that cannot be given back.

    Whoever ends a transaction waits for that, but not for a lock service that is away.
    """
    try:
        async with asyncio.timeout(_RELEASE_S):
            await locks.release(tokens)
    except (F1Error, TimeoutError):
        return
