"""Splitting, merging and moving ranges, for the command line and whoever else manages a cluster.

A split or a merge is one commit of the range map. A move is a row that describes it, which the server that leads the
meta group carries out; nobody need stay connected.
"""

import asyncio
from collections.abc import Callable

from msgspec.structs import replace

from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from spanstore.client.client import SpanClient
from spanstore.client.groups import read_directory
from spanstore.client.values import ExpectVersion, KeyRange, Precondition, Version, Write
from spanstore.placement.borders import ancestors, check_border
from spanstore.placement.jobs import (
    COUNTER_KEY,
    FIRST_JOB_KEY,
    JOBS_END,
    KEPT_JOBS,
    JobState,
    MoveJob,
    decode_job,
    encode_job,
    job_key,
    source_of,
)
from spanstore.placement.range_map import BORDERS_KEY, RANGE_MAP_KEY, RangeMap, decode_borders, encode_borders

_TRIES = 20
_POLL_S = 0.05
_TOO_LATE = frozenset({JobState.OWNING, JobState.CLEANING, JobState.DONE})


async def split_range(client: SpanClient, key: bytes, *, fragment: bool = False, automatic: bool = False) -> RangeMap:
    """Begin a new range at ``key`` and return the new map. An ``automatic`` border may go again by itself.

    Raises INVALID_ARGUMENT (no border can be there, or, unless ``fragment``, it lies inside of a directory that has
    rows), ALREADY_EXISTS.
    """
    check_border(key)
    above = ancestors(key)
    if above and not fragment:
        found = await client.read(above)
        for ancestor, value in zip(above, found.values(), strict=True):
            if value is not None:
                name = "/".join(map(str, tuples.decode(ancestor)))
                raise F1Error(
                    Code.INVALID_ARGUMENT,
                    f"the border lies inside of the directory of row {name}: choose its end, or ask for a fragment",
                )
    return await _change_map(
        client, lambda ranges: ranges.split(key), lambda borders: borders | {key} if automatic else borders
    )


async def merge_ranges(client: SpanClient, key: bytes) -> RangeMap:
    """Join the two ranges that meet at ``key`` and return the new map. Raises NOT_FOUND, FAILED_PRECONDITION."""
    return await _change_map(client, lambda ranges: ranges.merge(key), lambda borders: borders - {key})


async def _change_map(
    client: SpanClient,
    change: Callable[[RangeMap], RangeMap],
    change_borders: Callable[[frozenset[bytes]], frozenset[bytes]],
) -> RangeMap:
    for _ in range(_TRIES):
        # Whoever changes the borders changes the map: what is read at once with it has not changed either.
        found = await client.read([RANGE_MAP_KEY, BORDERS_KEY])
        ranges, unchanged = _map_in(found.versions[0])
        borders = decode_borders(found.values()[1])
        changed, wanted = change(ranges), change_borders(borders)
        writes = [Write(RANGE_MAP_KEY, changed.encode())]
        if wanted != borders:
            writes.append(Write(BORDERS_KEY, encode_borders(wanted)))
        try:
            await client.commit(writes, [unchanged])
            return changed
        except F1Error as error:
            if error.code is not Code.ABORTED:
                raise
    raise F1Error(Code.ABORTED, "others keep changing the range map; retry")


async def stored_map(client: SpanClient) -> tuple[RangeMap, Precondition]:
    """Return the range map as it is, and what to expect when changing it."""
    return _map_in((await client.read([RANGE_MAP_KEY])).versions[0])


def _map_in(version: Version | None) -> tuple[RangeMap, Precondition]:
    if version is None or version.value is None:
        raise F1Error(Code.UNAVAILABLE, "the range map is not stored yet; retry")
    return RangeMap.decode(version.value), ExpectVersion(RANGE_MAP_KEY, version.ts)


async def submit_move(client: SpanClient, start: bytes, end: bytes, target: int) -> MoveJob:
    """Have ``[start, end)`` moved to the group ``target``, and return the job. It need not be a whole range of the map.

    Raises INVALID_ARGUMENT, NOT_FOUND (no such group), FAILED_PRECONDITION (several groups own it, or ``target`` does).
    """
    ranges, _ = await stored_map(client)
    # It may have been founded since this client read the map.
    groups = client.groups() | (await read_directory(client)).groups.keys()
    source = source_of(ranges, groups, start, end, target)
    if source == target:
        raise F1Error(Code.FAILED_PRECONDITION, f"group {target} owns the range already")
    for _ in range(_TRIES):
        counter = (await client.read([COUNTER_KEY])).versions[0]
        newest = _number_in(counter)
        now = client.strong_timestamp()
        job = MoveJob(newest + 1, start, end, target, now, updated_ts=now)
        ended = [old for old in await move_jobs(client) if old.ended]
        writes = [
            Write(COUNTER_KEY, tuples.encode((job.number,))),
            Write(job_key(job.number), encode_job(job)),
            *(Write(job_key(old.number), None) for old in ended[:-KEPT_JOBS]),
        ]
        try:
            await client.commit(writes, [ExpectVersion(COUNTER_KEY, 0 if counter is None else counter.ts)])
            return job
        except F1Error as error:
            if error.code is not Code.ABORTED:
                raise
    raise F1Error(Code.ABORTED, "others keep adding jobs; retry")


def _number_in(counter: Version | None) -> int:
    if counter is None or counter.value is None:
        return 0
    (number,) = tuples.decode(counter.value)
    if not isinstance(number, int):
        raise F1Error(Code.DATA_CORRUPTION, "the counter of range jobs is no number")
    return number


async def move_jobs(client: SpanClient) -> list[MoveJob]:
    """Return the moves that wait or run, and the last that ended, oldest first."""
    found = await client.read((), [KeyRange(FIRST_JOB_KEY, JOBS_END)])
    return [decode_job(row.value) for row in found.ranges[0]]


async def cancel_move(client: SpanClient, number: int) -> None:
    """Give a move up. Raises NOT_FOUND, FAILED_PRECONDITION (the old group has given the range up, or it has ended)."""
    for _ in range(_TRIES):
        version = (await client.read([job_key(number)])).versions[0]
        if version is None or version.value is None:
            raise F1Error(Code.NOT_FOUND, f"there is no range job {number}")
        job = decode_job(version.value)
        if job.state in _TOO_LATE:
            raise F1Error(Code.FAILED_PRECONDITION, f"job {number} is {job.state}: it can no longer be cancelled")
        if job.cancel or job.ended:
            return
        try:
            write = Write(job_key(number), encode_job(replace(job, cancel=True)))
            await client.commit([write], [ExpectVersion(job_key(number), version.ts)])
            return
        except F1Error as error:
            if error.code is not Code.ABORTED:
                raise
    raise F1Error(Code.ABORTED, "the job changes all the time; retry")


async def wait_for_move(client: SpanClient, number: int, timeout_s: float) -> MoveJob:
    """Return a job once it has ended. Raises NOT_FOUND, DEADLINE_EXCEEDED (it goes on all the same)."""
    end = asyncio.get_running_loop().time() + timeout_s
    while True:
        version = (await client.read([job_key(number)])).versions[0]
        if version is None or version.value is None:
            raise F1Error(Code.NOT_FOUND, f"there is no range job {number}")
        job = decode_job(version.value)
        if job.ended:
            return job
        if asyncio.get_running_loop().time() >= end:
            text = f"job {number} is still {job.state}"
            raise F1Error(Code.DEADLINE_EXCEEDED, f"{text}: {job.message}" if job.message else text)
        await asyncio.sleep(_POLL_S)
