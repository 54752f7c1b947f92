"""Measures what load processes do to one system, in turns."""

import asyncio
from collections.abc import Sequence

import uvloop

from f1deploy.bench.database.figures import Round
from f1deploy.bench.database.rounds import Rounds, System
from f1deploy.bench.database.works import Contestant
from f1deploy.bench.growth.curves import Options, Say
from spanstore.tools.bench import load_processes

__all__ = ["turns"]


def turns(
    system: System, contestants: Sequence[Contestant], clients: int, options: Options, say: Say
) -> dict[str, list[Round]]:
    """Let the contestants of one system take turns; return what each round saw by work. Raises F1Error."""
    found: dict[str, list[Round]] = {one.work: [] for one in contestants}
    with load_processes(min(options.processes, clients)) as pool:
        processes, seconds = options.processes, options.seconds
        rounds = Rounds(pool, {"f1db": system}, seconds=seconds, rounds=1, processes=processes, say=say)

        async def run() -> None:
            for number in range(options.rounds):
                for one in contestants:
                    say(f"{one.title}, {clients} clients, round {number + 1} of {options.rounds}")
                    found[one.work].append(await rounds.measure(one, clients))

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run())
    return found
