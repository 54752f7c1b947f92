"""The mix of operations of `f1 bench schema-change`."""

import random
from typing import Any

from f1deploy.bench.mixed import GAP, Mix, Operations


async def nothing(*_: Any) -> None:
    raise AssertionError("nothing is executed here")


def inserted(*, odd: bool) -> set[int]:
    mix, rng = Mix(nothing, 50, Operations(), odd=odd), random.Random(1)
    drawn = [mix.draw(rng) for _ in range(2_000)]
    ids = [parameters[0] for _, text, parameters in drawn if text.startswith("INSERT")]
    assert len(ids) == len(set(ids)) > 50
    return set(ids)


def test_the_two_loads_of_a_measurement_never_insert_the_same_row() -> None:
    even, odd = inserted(odd=False), inserted(odd=True)
    assert not even & odd
    assert not any(number % GAP == 0 for number in even | odd), "those are loaded"
