"""Clients, and f1servers: what an operation costs, the more of them there are."""

from f1deploy.bench.database.figures import Round
from f1deploy.bench.database.systems import running
from f1deploy.bench.database.works import Contestant
from f1deploy.bench.growth.curves import Curve, Line, Options, Say, places
from f1deploy.bench.growth.turns import turns

__all__ = ["measure_clients", "measure_f1servers"]

_CLIENTS = (1, 4, 16, 64, 256)
_SERVERS = (1, 2, 4)
_AT_CLIENTS = 64
_WORKS = (Contestant("f1db", "upsert", "upsert by key, history"), Contestant("f1db", "read", "strong read by key"))


def measure_clients(options: Options, say: Say) -> Curve:
    """Let more and more clients use one cluster."""
    found: dict[str, list[tuple[float, list[Round]]]] = {one.work: [] for one in _WORKS}
    with running(frozenset(), 2, say) as up:
        system = up.systems["f1db"]
        for clients in _CLIENTS:
            for work, rounds in turns(system, _WORKS, clients, options, say).items():
                found[work].append((float(clients), rounds))
    return Curve("clients", "Clients", "clients", _lines(found), f"{system.name}, {system.settings}")


def measure_f1servers(options: Options, say: Say) -> Curve:
    """Have one cluster after the other with more f1servers for as many clients."""
    found: dict[str, list[tuple[float, list[Round]]]] = {one.work: [] for one in _WORKS}
    for count in _SERVERS:
        with running(frozenset(), count, say) as up:
            system = up.systems["f1db"]
            for work, rounds in turns(system, _WORKS, _AT_CLIENTS, options, say).items():
                found[work].append((float(count), rounds))
    ran = f"{system.name}, three spanservers, fsync on; {_AT_CLIENTS} clients"
    return Curve("f1servers", "f1servers", "f1servers", _lines(found), ran)


def _lines(found: dict[str, list[tuple[float, list[Round]]]]) -> tuple[Line, ...]:
    lines: list[Line] = []
    for one in _WORKS:
        costs = [(x, [r.cpu_us for r in rounds]) for x, rounds in found[one.work]]
        # A closed loop: of n clients each waits for the n - 1 others, if the machine is what limits them.
        waits = [(x, [r.p50_ms for r in rounds]) for x, rounds in found[one.work]]
        lines.append(Line(f"{one.title}, servers", "us of CPU", places(costs), whole=False))
        lines.append(Line(f"{one.title}, p50", "ms", places(waits), whole=True))
    return tuple(lines)
