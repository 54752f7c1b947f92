"""Groups: what a cluster costs that does nothing, and what each group adds."""

import time

from f1common.clock import boot_us
from f1deploy.bench.database.clients import F1Opener
from f1deploy.bench.database.rounds import System
from f1deploy.bench.database.systems import our_system
from f1deploy.bench.growth.curves import Curve, Line, Options, Say, places
from f1deploy.bench.growth.fit import slope_of
from f1deploy.bench.local import local_cluster

__all__ = ["measure"]

_COUNTS = (1, 4, 16, 64)
_SETTLE_S = 15.0
_SETTINGS = "three spanservers, one f1server"


def measure(options: Options, say: Say) -> Curve:
    """Start a cluster for each number of groups and look at it while nobody uses it."""
    found: list[tuple[float, list[float]]] = []
    for count in [count for count in _COUNTS if count <= options.most_groups]:
        say(f"groups: {count}")
        with local_cluster("--f1servers", "1", "--slaves", "0", "--groups", str(count)) as cluster:
            system = our_system(cluster, F1Opener(cluster.hosts), _SETTINGS)
            time.sleep(_SETTLE_S)
            found.append((float(count), [_idle(system, options.seconds) for _ in range(options.rounds)]))
    line = places(found)
    each = slope_of([(place.x, place.median) for place in line])
    note = f"A further group costs {each:.2f} ms of CPU a second, on all of its three replicas together"
    lines = (Line("idle spanservers", "ms of CPU a second", line, whole=True, note=note),)
    return Curve("groups", "Groups", "groups", lines, f"{system.name}, {_SETTINGS}; nobody uses it")


def _idle(system: System, seconds: float) -> float:
    """Return the processor time of all spanservers in a second, in milliseconds."""
    before, began_us = system.cpu_s()["spanserver"], boot_us()
    time.sleep(seconds)
    return (system.cpu_s()["spanserver"] - before) * 1e9 / (boot_us() - began_us)
