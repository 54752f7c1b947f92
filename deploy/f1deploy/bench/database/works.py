"""What is compared with what, and what is to be reached."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from f1common.errors import Code, F1Error
from f1deploy.bench.database.clients import BATCH

__all__ = ["CONTESTS", "LINES", "NAMES", "Comparison", "Contestant", "Goal", "chosen", "parse_names", "unit_of"]


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound on a ratio: a rate is to reach it, a latency not to exceed it."""

    bound: float
    at_least: bool

    def __str__(self) -> str:
        return f"{'at least' if self.at_least else 'at most'} {self.bound:g}"

    def met(self, ratio: float) -> bool:
        """Tell whether a ratio is what was to be reached."""
        return ratio >= self.bound if self.at_least else ratio <= self.bound


def at_least(bound: float) -> Goal:
    """A rate is to be this many times the other's."""
    return Goal(bound, True)


def at_most(bound: float) -> Goal:
    """A latency is to be no more than this many times the other's."""
    return Goal(bound, False)


@dataclass(frozen=True, slots=True)
class Contestant:
    """A system and what its clients do; ``title`` is for people."""

    system: str
    work: str
    title: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two contestants. ``name`` is what ``--only`` takes.

    ``clients`` empty: what ``--clients`` says. ``rates`` and ``p50s``: goals by the number of clients. A median latency
    is a figure of its own where it has a goal, a rate unless it is not to be ``rate_shown``.
    """

    name: str
    ours: Contestant
    peer: Contestant
    clients: tuple[int, ...] = ()
    rates: Mapping[int, Goal] = field(default_factory=dict)
    p50s: Mapping[int, Goal] = field(default_factory=dict)
    rate_shown: bool = True


_UPSERT = Contestant("f1db", "upsert", "upsert by key, change history")
_UPSERT_PLAIN = Contestant("f1db", "upsert-plain", "upsert by key, no history")
_PUT = Contestant("etcd", "upsert", "put")
_READ = Contestant("f1db", "read", "strong read by key")
_GET = Contestant("etcd", "read", "linearizable get")
_SELECT = Contestant("f1db", "select", "SELECT by key")
_ROWS = Contestant("f1db", "rows", f"{BATCH} rows, one directory, history")
_ROWS_PLAIN = Contestant("f1db", "rows-plain", f"{BATCH} rows, one directory, no history")
_INSERT = Contestant("PostgreSQL", "rows", f"INSERT of {BATCH} rows")
_TRANSFER = Contestant("f1db", "transfer-2", "transfer, two groups")
_TRANSFER_ONE = Contestant("f1db", "transfer-1", "transfer, one group")

CONTESTS: Sequence[Sequence[Comparison]] = (
    (
        Comparison("upsert", _UPSERT, _PUT, (), {64: at_least(1.0), 256: at_least(1.5)}, {1: at_most(3)}),
        Comparison("upsert-plain", _UPSERT_PLAIN, _PUT, (), {64: at_least(1.5), 256: at_least(1.5)}, {1: at_most(3)}),
    ),
    (Comparison("read", _READ, _GET, (), {64: at_least(1.5), 256: at_least(2)}, {1: at_most(3)}),),
    (Comparison("select", _SELECT, _READ, (1,), {}, {1: at_most(1.3)}, rate_shown=False),),
    (
        Comparison("rows", _ROWS, _INSERT, (8,), {8: at_least(0.3)}),
        Comparison("rows-plain", _ROWS_PLAIN, _INSERT, (8,), {8: at_least(0.3)}),
    ),
    (
        Comparison("transfer", _TRANSFER, _TRANSFER_ONE, (16,), {}, {16: at_most(2.2)}, rate_shown=False),
        Comparison("transfer", _TRANSFER, _UPSERT, (16,), {}, {16: at_most(2.2)}, rate_shown=False),
    ),
)
"""Comparisons of one contest share their turns: a contestant of several is measured once a round.

"Our own one-group write" is taken twice: as the same transaction within one group, and, which is harder, as a write of
one row without a read.
"""

LINES: Mapping[str, Goal | None] = {"load": at_least(0.15), "load-plain": at_least(0.15), "scan": at_least(3)}
"""Works on whole tables; see :mod:`f1deploy.bench.database.lines`."""

NAMES = tuple(dict.fromkeys([c.name for contest in CONTESTS for c in contest] + list(LINES)))


def parse_names(text: str) -> frozenset[str]:
    """Split ``--only``; nothing is all. Raises F1Error INVALID_ARGUMENT."""
    names = frozenset(name.strip() for name in text.split(",") if name.strip())
    unknown = sorted(names - set(NAMES))
    if unknown:
        what = f"--only takes some of {', '.join(NAMES)}, not {', '.join(unknown)}"
        raise F1Error(Code.INVALID_ARGUMENT, what)
    return names or frozenset(NAMES)


def chosen(names: Iterable[str]) -> list[list[Comparison]]:
    """Return the contests with the comparisons of these names only."""
    wanted = set(names)
    contests = [[comparison for comparison in contest if comparison.name in wanted] for contest in CONTESTS]
    return [contest for contest in contests if contest]


def unit_of(work: str) -> tuple[str, int]:
    """Return the unit of a work's rate, and how many of it one operation is."""
    if work.startswith("rows"):
        return "rows/s", BATCH
    if work in ("read", "select"):
        return "reads/s", 1
    return ("tx/s" if work.startswith("transfer") else "writes/s"), 1
