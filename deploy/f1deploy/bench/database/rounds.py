"""Contestants take turns: A B A B, each for a window after a warm-up, by processes that make the load."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from f1common.clock import boot_us
from f1deploy.bench.database.figures import Figure, Round, figure
from f1deploy.bench.database.load import Opener, Task, run_task
from f1deploy.bench.database.works import Comparison, Contestant, unit_of
from f1deploy.bench.local import cpu_of_trees
from spanstore.tools.bench import run_window, shares_of, summary
from spanstore.tools.load import LoadResult

__all__ = ["Rounds", "System"]

_WARM_UP_US = 1_200_000
_FEW = 16
"""Fewer clients are all in one process."""

_LONGER = 6
"""How many times a window is tried, each time twice as long."""

Say = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class System:
    """A system that is up: name and version, how it is set, how to reach it, and the kind of each of its processes by
    pid."""

    name: str
    settings: str
    opener: Opener
    processes: Mapping[int, str]

    def cpu_s(self) -> dict[str, float]:
        """Return the processor time of its processes and of those below them so far, in seconds, by kind."""
        used: Counter[str] = Counter()
        for pid, spent_s in cpu_of_trees(self.processes).items():
            used[self.processes[pid]] += spent_s  # type: ignore[assignment]
        return dict(used)


class Rounds:
    """Measures contests."""

    def __init__(
        self,
        pool: ProcessPoolExecutor,
        systems: Mapping[str, System],
        *,
        seconds: float,
        rounds: int,
        processes: int,
        say: Say,
    ) -> None:
        """``systems`` by the names that contestants have; those of a contestant may be missing if it is a peer."""
        self._pool = pool
        self._systems = systems
        self._seconds = seconds
        self._rounds = rounds
        self._processes = processes
        self._say = say
        self._run = 0

    async def contest(self, comparisons: Sequence[Comparison], clients: int) -> list[Figure]:
        """Let the contestants of some comparisons take turns.

        Raises F1Error DATA_CORRUPTION for a wrong answer, UNAVAILABLE if nothing of a work succeeds.
        """
        everyone = [c.ours for c in comparisons] + [c.peer for c in comparisons]
        contestants = [one for one in dict.fromkeys(everyone) if one.system in self._systems]
        found: dict[Contestant, list[Round]] = {one: [] for one in contestants}
        for number in range(self._rounds):
            for one in contestants:
                where = f"round {number + 1} of {self._rounds}"
                self._say(f"{one.system}: {one.title}, {clients} clients, {where}")
                found[one].append(await self.measure(one, clients))
        return [made for comparison in comparisons for made in self._figures(comparison, clients, found)]

    async def measure(self, one: Contestant, clients: int) -> Round:
        """Measure one contestant once. Raises F1Error as :meth:`contest` does."""
        seconds = self._seconds
        for _ in range(_LONGER):
            results, spent_s = await self._window(one, clients, seconds)
            if any(result.latencies_us or result.errors for result in results):
                break
            seconds *= 2  # on a slow machine no operation may end in a short window
        all_in_all = summary(one.work, results, seconds, sum(spent_s.values()))
        operations = all_in_all.rate * seconds
        return Round(
            rate=all_in_all.rate,
            p50_ms=all_in_all.p50_ms,
            p99_ms=all_in_all.p99_ms,
            cpu_us=all_in_all.cpu_us or 0.0,
            parts={kind: spent / operations * 1_000_000 for kind, spent in spent_s.items()},
            load_us=all_in_all.load_cpu / all_in_all.rate * 1_000_000,
            errors=all_in_all.errors,
            first_error=all_in_all.first_error,
            checked=sum(result.checked for result in results),
        )

    async def _window(self, one: Contestant, clients: int, seconds: float) -> tuple[list[LoadResult], dict[str, float]]:
        """Return what each load process saw, and the processor time of the system within the window, in seconds by
        kind of process."""
        system = self._systems[one.system]
        self._run += 1
        begin_us = boot_us() + _WARM_UP_US
        end_us = begin_us + int(seconds * 1_000_000)
        tasks: list[Task] = []
        for share in shares_of(clients, self._processes if clients >= _FEW else 1):
            first = sum(task.count for task in tasks)
            tasks.append(Task(system.opener, one.work, first, share, clients, begin_us, end_us, self._run))
        seen: list[dict[str, float]] = []

        def look() -> float:
            seen.append(system.cpu_s())
            return sum(seen[-1].values())

        results, _ = await run_window(self._pool, run_task, tasks, (begin_us, end_us), look)
        before, after = seen
        return results, {kind: spent - before[kind] for kind, spent in after.items()}

    def _figures(self, comparison: Comparison, clients: int, found: Mapping[Contestant, list[Round]]) -> list[Figure]:
        ours, peer = found[comparison.ours], found.get(comparison.peer)
        unit, rows = unit_of(comparison.ours.work)
        rate, p50 = comparison.rates.get(clients), comparison.p50s.get(clients)
        shown = [(unit, rate, rows)] if comparison.rate_shown else []
        if p50 is not None:
            shown.append(("ms, p50", p50, 1))
        peer_name, ran = self._peer_name(comparison), self._ran(comparison)
        return [
            figure(comparison.ours.title, clients, unit, ours, peer, peer_name=peer_name, goal=goal, rows=rows, ran=ran)
            for unit, goal, rows in shown
        ]

    def _peer_name(self, comparison: Comparison) -> str:
        system = self._systems.get(comparison.peer.system)
        return "" if system is None else f"{system.name}: {comparison.peer.title}"

    def _ran(self, comparison: Comparison) -> str:
        both = dict.fromkeys([comparison.ours.system, comparison.peer.system])
        systems = [self._systems[name] for name in both if name in self._systems]
        return "; ".join(f"{system.name}, {system.settings}" for system in systems)
