"""What the ranges hold and how busy they are, put together from sketches of the rows and the servers' own counts."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from f1common.errors import F1Error
from f1common.pb import spanstore_pb2 as pb
from spanstore.client.client import SpanClient
from spanstore.client.groups import read_directory
from spanstore.client.values import KeyRange
from spanstore.paxos.configuration import server_of
from spanstore.placement.directory import Directory
from spanstore.placement.load_balance import GroupPlace, RangeLoad, View, weigh
from spanstore.placement.policy import ANYWHERE, Policy, decode_policies, leader_zones, table_policy_range
from spanstore.placement.range_map import BORDERS_KEY, RangeMap, decode_borders

_MAX_KEYS = 500_000
_SEGMENT_KEYS = 256
_SKETCH_TIMEOUT_S = 60.0

Statuses = Mapping[str, pb.StatusReply | F1Error]


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Bytes and rows at the keys of a group's ranges, when it had applied ``index``."""

    index: int
    at_us: int
    segments: tuple[tuple[bytes, int, int], ...]


class Surveyor:
    """Measures the cluster again and again; a group's rows are only counted again when it may have changed."""

    def __init__(
        self, client: SpanClient, founding_zones: Mapping[int, str] | None = None, *, background: bool = False
    ) -> None:
        """``founding_zones``: where the groups should be led that have no policy. ``background``: nobody waits."""
        self._client = client
        self._background = background
        self._founding_zones = founding_zones or {}
        self._sizes: dict[int, _Sizes] = {}

    async def view(self, *, boot_us: int = 0, count_every_us: int = 0) -> View:
        """Return what is known now. Raises what reads and scans raise.

        ``boot_us`` is the time now; a group is not counted again for ``count_every_us``.
        """
        directory = await read_directory(self._client)
        answers = await self._client.status()
        ranges = await self._client.range_map()
        applied = _applied(answers)
        for group in ranges.groups():
            sizes = self._sizes.get(group)
            fresh = sizes is not None and boot_us < sizes.at_us + count_every_us
            if not fresh and (sizes is None or sizes.index != applied.get(group, -1)):
                self._sizes[group] = _Sizes(applied.get(group, -1), boot_us, await self._count(ranges, group))
        return View(
            self._loads(ranges, answers),
            self._places(directory, answers),
            await table_policies(self._client),
            _able(directory, answers),
            await automatic_borders(self._client),
        )

    async def _count(self, ranges: RangeMap, group: int) -> tuple[tuple[bytes, int, int], ...]:
        pieces = [KeyRange(item.start, item.end) for item in ranges.owned_by(group)]
        sketch = await self._client.sketch(
            pieces,
            every=_SEGMENT_KEYS,
            max_keys=_MAX_KEYS,
            timeout_s=_SKETCH_TIMEOUT_S,
            background=self._background,
        )
        return tuple(
            (
                segment.key,
                sum(count.bytes for count in segment.counts.values()),
                sum(count.rows for count in segment.counts.values()),
            )
            for segment in sketch.segments
        )

    def _loads(self, ranges: RangeMap, answers: Statuses) -> tuple[RangeLoad, ...]:
        sizes: dict[bytes, list[tuple[bytes, int, int]]] = defaultdict(list)
        for group, counted in self._sizes.items():
            for segment in counted.segments:
                item = ranges.lookup(segment[0])
                if item.group == group:
                    sizes[item.start].append(segment)
        keys: dict[bytes, list[tuple[bytes, float]]] = defaultdict(list)
        for key, weight in _asked(answers):
            keys[ranges.lookup(key).start].append((key, weight))
        return tuple(
            RangeLoad(
                item.start,
                item.end,
                item.group,
                bytes=sum(size for _, size, _ in sizes[item.start]),
                rows=sum(rows for _, _, rows in sizes[item.start]),
                rows_per_s=sum(weight for _, weight in keys[item.start]),
                sizes=weigh([(key, float(size)) for key, size, _ in sizes[item.start]]),
                keys=weigh(keys[item.start]),
            )
            for item in ranges.ranges
        )

    def _places(self, directory: Directory, answers: Statuses) -> dict[int, GroupPlace]:
        zones = leader_zones(self._founding_zones, directory.policies)
        leaders = _leaders(answers)
        return {
            number: GroupPlace(
                number,
                tuple(server_of(voter) for voter in members.voters),
                leaders.get(number, ""),
                zones.get(number, ""),
                directory.policies.get(number, ANYWHERE),
            )
            for number, members in directory.groups.items()
        }


async def table_policies(client: SpanClient) -> dict[int, Policy]:
    """Return the policies of tables, by their ids."""
    (rows,) = (await client.read(ranges=[KeyRange(*table_policy_range())])).ranges
    return decode_policies((row.key, row.value) for row in rows)


async def automatic_borders(client: SpanClient) -> frozenset[bytes]:
    """Return the borders of ranges that nobody asked for."""
    return decode_borders((await client.read([BORDERS_KEY])).values()[0])


def _applied(answers: Statuses) -> dict[int, int]:
    found: dict[int, int] = {}
    for answer in answers.values():
        for view in answer.groups if isinstance(answer, pb.StatusReply) else ():
            found[view.group] = max(found.get(view.group, 0), view.applied_index)
    return found


def _leaders(answers: Statuses) -> dict[int, str]:
    return {
        view.group: answer.name
        for answer in answers.values()
        if isinstance(answer, pb.StatusReply)
        for view in answer.groups
        if view.role == "leader" and view.lease_valid
    }


def _able(directory: Directory, answers: Statuses) -> dict[str, str]:
    """Return the servers that answer and stay, with their zones."""
    up = {answer.name for answer in answers.values() if isinstance(answer, pb.StatusReply) and not answer.conditions}
    return {n: s.zone for n, s in directory.servers.items() if n in up and not directory.is_draining(n)}


def _asked(answers: Statuses) -> Sequence[tuple[bytes, float]]:
    """Return keys that were asked for, and the rows a second that each stands for."""
    return [
        (key, view.load_rows_per_s / len(view.load_keys))
        for answer in answers.values()
        if isinstance(answer, pb.StatusReply)
        for view in answer.groups
        for key in view.load_keys
    ]
