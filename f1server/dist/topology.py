"""Who runs which part, and which way rows go between workers. Pure.

The workers of a run have positions from 0; the f1server, which runs the root part, is :data:`ROOT`. Both ends of an
exchange work out from the same parts who sends what to whom, so that a consumer knows when it has heard from all.
"""

from collections.abc import Sequence

from f1common.errors import check
from f1server.plan.parts import Output, Part, Spread, Workers

__all__ = ["ROOT", "check_parts", "destinations", "givers", "runs_at"]

ROOT = -1


def runs_at(part: Part, position: int) -> bool:
    """Tell whether the worker at ``position`` runs a part."""
    match part.workers:
        case Workers.ALL:
            return position != ROOT
        case Workers.ONE:
            return position == 0
        case Workers.SERVER:
            return position == ROOT


def _positions(part: Part, workers: int) -> range:
    """Return the positions of a part's workers."""
    match part.workers:
        case Workers.ALL:
            return range(workers)
        case Workers.ONE:
            return range(1)
        case Workers.SERVER:
            return range(ROOT, ROOT + 1)


def destinations(output: Output, consumer: Part, workers: int, position: int) -> tuple[int, ...]:
    """Return whom the worker at ``position`` gives rows of an output, in the order of the numbers that hashes give."""
    if output.spread is Spread.KEEP:
        return (position,)
    return tuple(_positions(consumer, workers))


def givers(parts: Sequence[Part], consumer: Part, workers: int, position: int) -> dict[str, frozenset[int]]:
    """Return, for each input of a part that runs at ``position``, who gives it rows there."""
    by_id = {part.id: part for part in parts}
    found = {}
    for relation, producer_id in consumer.inputs.items():
        producer = by_id[producer_id]
        output = next(o for o in producer.outputs if (o.consumer, o.relation) == (consumer.id, relation))
        everyone = _positions(producer, workers)
        found[relation] = frozenset(p for p in everyone if position in destinations(output, consumer, workers, p))
    return found


def check_parts(parts: Sequence[Part]) -> None:
    """Hold a plan against what the exchange can do. Raises InvariantViolation: planners make no other plans."""
    by_id = {part.id: part for part in parts}
    check(len(by_id) == len(parts), "parts have ids of their own")
    check(
        [p.id for p in parts if p.workers is Workers.SERVER] == [parts[-1].id], "the root part is the last, and alone"
    )
    seen: set[int] = set()
    for part in parts:
        check(all(i in seen for i in part.inputs.values()), f"the producers of part {part.id} come before it")
        check(bool(part.outputs) or part is parts[-1], f"somebody consumes part {part.id}")
        for output in part.outputs:
            consumer = by_id.get(output.consumer)
            check(
                consumer is not None and consumer.inputs.get(output.relation) == part.id,
                f"part {output.consumer} knows what part {part.id} gives it as {output.relation}",
            )
            if consumer is not None:
                _check_output(part, output, consumer)
        seen.add(part.id)
    for part in parts:
        for relation, producer in part.inputs.items():
            given = [o for o in by_id[producer].outputs if (o.consumer, o.relation) == (part.id, relation)]
            check(len(given) == 1, f"one output of part {producer} is {relation} of part {part.id}")


def _check_output(part: Part, output: Output, consumer: Part) -> None:
    alone = consumer.workers is not Workers.ALL
    match output.spread:
        case Spread.HASH:
            check(output.keys, f"part {part.id} has keys to hash")
        case Spread.GATHER:
            check(alone, f"part {part.id} gathers its rows at one worker")
        case Spread.KEEP:
            check(part.workers is consumer.workers, f"parts {part.id} and {consumer.id} run at the same workers")
        case Spread.BROADCAST:
            pass
