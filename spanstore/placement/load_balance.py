"""Which range should be cut, joined or moved, and which server should lead: by policy, by size and by load.

Pure: what has been measured goes in, at most one action comes out (F1, section 2.1: the storage tier moves data for
balance). Whoever carries it out measures again afterwards. Measured numbers are estimates, so nothing is done for small
differences: an action is planned only if it leaves the largest or busiest clearly smaller than it was.

A range is cut where the keys of a directory end; only one that is too large as a single directory is cut through it
(a *fragment*). A range that is only busy is never cut through a directory: its transactions would take two groups.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from f1common.encoding import tuple as tuples
from f1common.encoding.tuple import Timestamp
from f1common.errors import F1Error
from spanstore.placement.borders import FIRST_KEY
from spanstore.placement.policy import ANYWHERE, Policy
from spanstore.placement.range_map import META_GROUP

_ROOT_ELEMENTS = 2
"""No directory has keys on both sides of a border of so few elements: a root's key has at least one after its table."""
_MAX_ELEMENTS = 16
_CANDIDATES = 64
_GAP = 0.3
"""The part of its load, or size, by which a group must be above another one before something moves."""
_CRUMB = 0.05
"""What is a smaller part of a group's load, or of the gap, is not worth a move."""
_IDLE_ROWS_PER_S = 50.0
"""A group costs its leader something even when nobody asks for anything."""

Weighted = tuple[tuple[bytes, float], ...]
"""Keys, ascending, and what each stands for."""


class Why(StrEnum):
    """The reason for an action."""

    POLICY = "its table's policy"
    SIZE = "size"
    LOAD = "load"
    JOIN = "its neighbour, which it is to be joined with"


@dataclass(frozen=True, slots=True)
class Limits:
    """A range is to have at most ``max_bytes``; above ``busy_rows_per_s`` the load of a range or group is divided."""

    max_bytes: int
    busy_rows_per_s: float


@dataclass(frozen=True, slots=True)
class RangeLoad:
    """What a range of the map holds, and how busy it is: ``sizes`` are bytes at keys, ``keys`` rows a second there."""

    start: bytes
    end: bytes
    group: int
    bytes: int = 0
    rows: int = 0
    rows_per_s: float = 0.0
    sizes: Weighted = ()
    keys: Weighted = ()

    @property
    def table(self) -> int | None:
        """The table, or global index, that the range begins with."""
        if self.start < FIRST_KEY:
            return None
        try:
            (table,), _ = tuples.decode_prefix(self.start, 1)
        except F1Error:
            return None
        return table if isinstance(table, int) else None


@dataclass(frozen=True, slots=True)
class GroupPlace:
    """Where a group is: the servers of its voters and of its leader, and the zone in which it should be led."""

    number: int
    voters: tuple[str, ...]
    leader: str = ""
    leader_zone: str = ""
    policy: Policy = ANYWHERE


@dataclass(frozen=True)
class View:
    """All that is known. ``able`` maps servers that may lead to their zones; ``borders`` were made automatically."""

    ranges: tuple[RangeLoad, ...]
    groups: Mapping[int, GroupPlace]
    tables: Mapping[int, Policy]
    able: Mapping[str, str]
    borders: frozenset[bytes] = frozenset()

    def load_of(self, group: int) -> float:
        """Return the rows a second of a group's ranges."""
        return sum(item.rows_per_s for item in self.ranges if item.group == group)

    def bytes_of(self, group: int) -> int:
        """Return the bytes of a group's ranges."""
        return sum(item.bytes for item in self.ranges if item.group == group)

    def policy_of(self, item: RangeLoad) -> Policy:
        """Return the policy of a range's table."""
        return ANYWHERE if item.table is None else self.tables.get(item.table, ANYWHERE)

    def homes(self, item: RangeLoad) -> list[int]:
        """Return the groups that a range may be in: those that meet its table's policy.

        Without one, those without a policy of their own; groups with one are there for the tables that ask for it.
        """
        data = [n for n in sorted(self.groups) if n != META_GROUP] or sorted(self.groups)
        policy = self.policy_of(item)
        if policy != ANYWHERE:
            return [n for n in data if policy.is_met_by(self.groups[n].policy)]
        return [n for n in data if self.groups[n].policy == ANYWHERE] or data


@dataclass(frozen=True, slots=True)
class Split:
    """Begin a new range at ``key``, which may lie inside of a directory if ``fragment``."""

    key: bytes
    fragment: bool
    why: Why


@dataclass(frozen=True, slots=True)
class Merge:
    """Join the ranges that meet at ``key``."""

    key: bytes


@dataclass(frozen=True, slots=True)
class Shift:
    """Move the range to another group."""

    start: bytes
    end: bytes
    target: int
    why: Why


@dataclass(frozen=True, slots=True)
class Lead:
    """Let the voter at ``server`` lead ``group``."""

    group: int
    server: str


Action = Split | Merge | Shift | Lead


def plan(view: View, limits: Limits) -> Action | None:
    """Return the action that matters most, None if all is well or nothing can be done."""
    rules: tuple[Callable[[View, Limits], Action | None], ...] = (
        _follow_policies,
        _split_large,
        _split_busy,
        _even_load,
        _even_sizes,
        _even_leaders,
        _merge_small,
    )
    return next((action for rule in rules if (action := rule(view, limits)) is not None), None)


def _movable(view: View) -> list[RangeLoad]:
    return [item for item in view.ranges if item.start >= FIRST_KEY]


def _follow_policies(view: View, limits: Limits) -> Action | None:
    for item in _movable(view):
        homes = view.homes(item)
        if view.policy_of(item) != ANYWHERE and homes and item.group not in homes:
            target = min(homes, key=lambda n: (view.load_of(n), view.bytes_of(n), n))
            return Shift(item.start, item.end, target, Why.POLICY)
    return None


def _split_large(view: View, limits: Limits) -> Action | None:
    for item in sorted(_movable(view), key=lambda r: -r.bytes):
        if item.bytes <= limits.max_bytes:
            return None
        split = _cut_by_size(item)
        if split is not None:
            return split
    return None


def _cut_by_size(item: RangeLoad) -> Split | None:
    """Return the cut that leaves the most even halves; through a directory only if it holds nearly everything."""
    enough = _CRUMB * sum(weight for _, weight in item.sizes)
    for elements in range(_ROOT_ELEMENTS, _MAX_ELEMENTS):
        border, smaller = _best_border(item, item.sizes, elements)
        if border is not None and smaller > enough:
            return Split(border, elements > _ROOT_ELEMENTS, Why.SIZE)
    return None


def _split_busy(view: View, limits: Limits) -> Action | None:
    for item in sorted(_movable(view), key=lambda r: -r.rows_per_s):
        if item.rows_per_s <= limits.busy_rows_per_s:
            return None
        split = _cut_by_load(item)
        if split is not None:
            return split
    return None


def _cut_by_load(item: RangeLoad) -> Split | None:
    border, smaller = _best_border(item, item.keys, _ROOT_ELEMENTS)
    if border is None or smaller < 0.25 * sum(weight for _, weight in item.keys):
        return None
    return Split(border, False, Why.LOAD)


def _best_border(item: RangeLoad, keys: Weighted, elements: int) -> tuple[bytes | None, float]:
    """Return the border of at most so many elements with the most even sides, and the weight of the smaller side."""
    total = sum(weight for _, weight in keys)
    best: tuple[float, bytes | None] = (0.0, None)
    for border in sorted({b for key in _thinned(keys) for b in _beginnings(key, elements)}):
        if item.start < border < item.end:
            left = sum(weight for key, weight in keys if key < border)
            best = max(best, (min(left, total - left), border), key=lambda pair: pair[0])
    return best[1], best[0]


def _thinned(keys: Weighted) -> list[bytes]:
    """Return some of the keys, with about the same weight between each and the next."""
    step = sum(weight for _, weight in keys) / _CANDIDATES
    found, passed, due = [], 0.0, 0.0
    for key, weight in keys:
        passed += weight
        if passed >= due:
            found.append(key)
            due = passed + step
    return found


def _beginnings(key: bytes, elements: int) -> Iterable[bytes]:
    """Yield the borders that ``key`` begins with: its first elements, up to so many, of which none is a timestamp."""
    try:
        values = tuples.decode(key)
    except F1Error:
        return
    for count in range(1, min(elements, len(values)) + 1):
        if isinstance(values[count - 1], Timestamp):
            return
        yield tuples.encode(values[:count])


def _even_load(view: View, limits: Limits) -> Action | None:
    """Return a move of a range from the busiest group, or a cut of one that is too busy to be moved as a whole."""
    hot = max(view.groups, key=lambda n: (view.load_of(n), n), default=None)
    if hot is None or view.load_of(hot) <= limits.busy_rows_per_s:
        return None
    load = view.load_of(hot)
    for item in sorted(_ranges_of(view, hot), key=lambda r: -r.rows_per_s):
        cold = _least(view, item, view.load_of)
        if item.rows_per_s < _CRUMB * load:
            return None
        if cold is None or load - view.load_of(cold) < _GAP * load:
            continue
        if item.rows_per_s <= (load - view.load_of(cold)) / 2:
            return Shift(item.start, item.end, cold, Why.LOAD)
        if (split := _cut_by_load(item)) is not None:
            return split
    return None


def _even_sizes(view: View, limits: Limits) -> Action | None:
    """Return a move of a range that is not busy from the group that holds most."""
    full = max(view.groups, key=lambda n: (view.bytes_of(n), n), default=None)
    if full is None:
        return None
    size = view.bytes_of(full)
    for item in sorted(_ranges_of(view, full), key=lambda r: -r.bytes):
        empty = _least(view, item, view.bytes_of)
        gap = 0 if empty is None else size - view.bytes_of(empty)
        busy = item.rows_per_s > limits.busy_rows_per_s / 4
        if empty is None or busy or gap < max(limits.max_bytes, _GAP * size):
            continue
        if _CRUMB * gap <= item.bytes <= gap / 2:
            return Shift(item.start, item.end, empty, Why.SIZE)
    return None


def _ranges_of(view: View, group: int) -> list[RangeLoad]:
    return [item for item in _movable(view) if item.group == group]


def _least(view: View, item: RangeLoad, measure: Callable[[int], float]) -> int | None:
    """Return the group with the least of something among the others that a range may go to."""
    return min((n for n in view.homes(item) if n != item.group), key=lambda n: (measure(n), n), default=None)


def _even_leaders(view: View, limits: Limits) -> Action | None:
    """Return a change of leadership that takes load from the server whose groups have most of it."""
    weights = {number: max(view.load_of(number), _IDLE_ROWS_PER_S) for number in view.groups}
    loads: dict[str, float] = defaultdict(float, dict.fromkeys(view.able, 0.0))
    for group in view.groups.values():
        if group.leader:
            loads[group.leader] += weights[group.number]
    for busy in sorted(loads, key=lambda name: (-loads[name], name)):
        lead = _lead_elsewhere(view, busy, loads, weights)
        if lead is not None:
            return lead
    return None


def _lead_elsewhere(view: View, busy: str, loads: Mapping[str, float], weights: Mapping[int, float]) -> Lead | None:
    for idle in sorted(view.able, key=lambda name: (loads[name], name)):
        for group in sorted(view.groups.values(), key=lambda g: (-weights[g.number], g.number)):
            fit = group.leader == busy and idle in group.voters and _may_lead(view, group, idle)
            if fit and loads[busy] - loads[idle] >= 1.5 * weights[group.number]:
                return Lead(group.number, idle)
    return None


def _may_lead(view: View, group: GroupPlace, server: str) -> bool:
    return not group.leader_zone or view.able[server] == group.leader_zone


def _merge_small(view: View, limits: Limits) -> Action | None:
    """Return a join of two neighbours that were cut automatically and have become small and quiet.

    Nearly empty ones in different groups are brought together first; they are too small for other rules to part them.
    """
    for left, right in pairwise(view.ranges):
        if right.start not in view.borders or left.table != right.table:
            continue
        if left.group == right.group and _is_small(left, right, limits, 0.25):
            return Merge(right.start)
        if left.group in view.homes(right) and _is_small(left, right, limits, _CRUMB):
            return Shift(right.start, right.end, left.group, Why.JOIN)
    return None


def _is_small(left: RangeLoad, right: RangeLoad, limits: Limits, part: float) -> bool:
    """Tell whether two ranges have together less than a part of what one may have."""
    quiet = left.rows_per_s + right.rows_per_s < part * limits.busy_rows_per_s
    return quiet and left.bytes + right.bytes < part * limits.max_bytes


def weigh(pieces: Sequence[tuple[bytes, float]]) -> Weighted:
    """Return keys with their weights, ascending, equal keys together."""
    sums: dict[bytes, float] = defaultdict(float)
    for key, weight in pieces:
        sums[key] += weight
    return tuple(sorted(sums.items()))
