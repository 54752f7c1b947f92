"""Reads of keys and ranges that may lie in several groups, all at one timestamp."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from f1common.errors import Code, F1Error, check
from f1common.pb import spanstore_pb2 as pb
from spanstore.client.router import Router
from spanstore.client.values import KeyRange, ReadResult, Row, Version
from spanstore.placement.range_map import RangeMap

Send = Callable[[int, Callable[[], pb.Request], float], Awaitable[pb.Response]]


async def safe_times(send: Send, groups: Sequence[int], timeout_s: float) -> int:
    """Return the lowest of the safe timestamps that replicas of ``groups`` tell; 0 if one knows none yet.

    Reads at or below it wait for nobody at the replicas that answered, nor at the leaders.
    """
    asked = [send(group, lambda: pb.Request(safe_time=pb.SafeTime()), timeout_s) for group in groups]
    return min([int(answer.safe_time.safe_ts) for answer in await asyncio.gather(*asked)], default=0)


async def all_safe_times(router: Router, send: Send, timeout_s: float) -> int:
    """Return the lowest of the safe timestamps of all groups, also of those that this client has not heard of.

    The meta group tells with its own which groups are in the directory there. A group that is not among them owns
    nothing before it is, and so commits nothing at or below what is returned (:mod:`spanstore.placement.founding`).
    0 if one knows none yet. Raises also UNAVAILABLE while no server tells where such a group is.
    """
    told: dict[int, int] = {}
    known = set(router.groups())
    while known - told.keys():
        asked = sorted(known - told.keys())
        replies = [send(group, lambda: pb.Request(safe_time=pb.SafeTime()), timeout_s) for group in asked]
        for group, answer in zip(asked, await asyncio.gather(*replies), strict=True):
            told[group] = int(answer.safe_time.safe_ts)
            known.update(answer.safe_time.groups)
        await router.learn_of(known, timeout_s)
    return min(told.values(), default=0)


@dataclass(slots=True)
class Part:
    """One group's share of a read: positions of its keys, and (position, piece) of its ranges."""

    keys: list[int] = field(default_factory=list)
    ranges: list[tuple[int, KeyRange]] = field(default_factory=list)


def split(ranges_map: RangeMap, keys: Sequence[bytes], ranges: Sequence[KeyRange]) -> dict[int, Part]:
    """Deal keys and ranges to the groups that own them; a range over several groups is cut at the borders."""
    parts: dict[int, Part] = {}
    for position, key in enumerate(keys):
        parts.setdefault(ranges_map.group_of(key), Part()).keys.append(position)
    for position, wanted in enumerate(ranges):
        if wanted.end <= wanted.start:
            raise F1Error(Code.INVALID_ARGUMENT, "a range read needs start < end")
        for start, end, group in ranges_map.pieces(wanted.start, wanted.end):
            piece = KeyRange(start, end, wanted.limit, wanted.reverse, wanted.most_bytes)
            parts.setdefault(group, Part()).ranges.append((position, piece))
    return parts


async def read(
    router: Router,
    ranges_map: RangeMap,
    keys: Sequence[bytes],
    ranges: Sequence[KeyRange],
    timestamp: int,
    strong_ts: Callable[[], int],
    timeout_s: float,
    *,
    near: bool = False,
) -> ReadResult:
    """Read everything at ``timestamp``; 0: strong, one group picks it itself, several get the client's now().latest.

    ``near``: near replicas are asked first, which wait until their safe time has reached the timestamp.
    """
    send = router.send_near if near and timestamp else router.send
    parts = split(ranges_map, keys, ranges)
    if timestamp == 0 and len(parts) > 1:
        timestamp = strong_ts()
    result = ReadResult(timestamp, [None] * len(keys), [[] for _ in ranges])
    pieces: list[list[tuple[KeyRange, list[Row]]]] = [[] for _ in ranges]

    async def one(group: int, part: Part) -> None:
        used, found = await _read_part(send, group, keys, part, timestamp, timeout_s, result)
        result.timestamp = used
        for (position, piece), rows in zip(part.ranges, found, strict=True):
            pieces[position].append((piece, rows))

    if len(parts) == 1:  # as nearly always: no task has to be made
        await one(*next(iter(parts.items())))
    else:
        await asyncio.gather(*(one(group, parts[group]) for group in sorted(parts)))
    for position, wanted in enumerate(ranges):
        result.ranges[position] = join(wanted, pieces[position])
    return result


async def _read_part(
    send: Send,
    group: int,
    keys: Sequence[bytes],
    part: Part,
    timestamp: int,
    timeout_s: float,
    result: ReadResult,
) -> tuple[int, list[list[Row]]]:
    wanted = [keys[position] for position in part.keys]
    rest = [piece for _, piece in part.ranges]
    found: list[list[Row]] = [[] for _ in rest]
    open_ranges = list(range(len(rest)))
    while True:
        messages = [range_message(rest[i], len(found[i])) for i in open_ranges]

        body = pb.Read(timestamp=timestamp, keys=wanted, ranges=messages)
        reply = (await send(group, partial(pb.Request, read=body), timeout_s)).read
        wanted = take_versions(reply, part.keys[len(part.keys) - len(wanted) :], wanted, result)
        timestamp = reply.timestamp
        open_ranges = absorb(reply, rest, found, open_ranges)
        if not open_ranges and not wanted:
            return timestamp, found


async def read_apart(
    router: Router, ranges_map: RangeMap, keys: Sequence[bytes], timestamp: int, timeout_s: float
) -> tuple[int, dict[bytes, Version | None]]:
    """Read keys of one group for several readers; those that somebody would have to wait for are not in the answer."""
    group = ranges_map.group_of(keys[0])
    if any(ranges_map.group_of(key) != group for key in keys):
        return timestamp, {}  # some have moved away meanwhile
    body = pb.Read(timestamp=timestamp, keys=keys, apart=True)
    reply = (await router.send(group, partial(pb.Request, read=body), timeout_s)).read
    left_out = frozenset(reply.left_out)
    answered = [key for position, key in enumerate(keys) if position not in left_out]
    versions = map(version_from_pb, reply.versions)
    return reply.timestamp, dict(zip(answered, versions, strict=True))


def range_message(piece: KeyRange, have: int) -> pb.RangeRead:
    """Ask for what is left of a piece of which ``have`` rows were found."""
    limit = piece.limit - have if piece.limit else 0
    return pb.RangeRead(start=piece.start, end=piece.end, limit=limit, reverse=piece.reverse)


def take_versions(reply: pb.ReadReply, places: Sequence[int], wanted: list[bytes], result: ReadResult) -> list[bytes]:
    """Take in the versions of a reply, those of the first of the keys that were ``wanted``; return what is left."""
    check(bool(reply.versions) >= bool(wanted), "an answer has a version for the first key")
    for position, version in zip(places, reply.versions, strict=False):
        result.versions[position] = version_from_pb(version)
    return wanted[len(reply.versions) :]


def absorb(reply: pb.ReadReply, rest: list[KeyRange], found: list[list[Row]], open_ranges: list[int]) -> list[int]:
    """Take in the rows of a reply; narrow what was cut short, and return which ranges are still open."""
    still_open = []
    for i, row_set in zip(open_ranges, reply.ranges, strict=True):
        found[i].extend(Row(row.key, row.ts, row.value) for row in row_set.rows)
        piece = rest[i]
        if not row_set.more or (piece.limit and len(found[i]) >= piece.limit) or _are_enough(piece, found[i]):
            continue
        start, end = (piece.start, row_set.resume) if piece.reverse else (row_set.resume, piece.end)
        rest[i] = KeyRange(start, end, piece.limit, piece.reverse, piece.most_bytes)
        still_open.append(i)
    return still_open


def _are_enough(piece: KeyRange, rows: Sequence[Row]) -> bool:
    return piece.most_bytes > 0 and sum(len(row.value) for row in rows) >= piece.most_bytes


def join(wanted: KeyRange, pieces: list[tuple[KeyRange, list[Row]]]) -> list[Row]:
    """Put the pieces of a range together in its order, and cut at its limit."""
    pieces.sort(key=lambda item: item[0].start, reverse=wanted.reverse)
    rows: list[Row] = []
    for piece, found in pieces:
        rows += found
        if _are_enough(piece, found):
            break  # something may be missing between these and those of the next piece
    return rows[: wanted.limit] if wanted.limit else rows


def version_from_pb(version: pb.Version) -> Version | None:
    """Return the version in a message, None if the key was never written."""
    if not version.ts:
        return None
    return Version(version.ts, version.value if version.exists else None)
