"""Participants of a transaction: what two-phase commit costs over more and more groups."""

import f1
from f1deploy.bench.database.figures import Round
from f1deploy.bench.database.systems import our_system
from f1deploy.bench.database.works import Contestant
from f1deploy.bench.growth.clients import ROWS_EACH, GrowthOpener, part_table
from f1deploy.bench.growth.curves import Curve, Line, Options, Say, places
from f1deploy.bench.growth.turns import turns
from f1deploy.bench.local import local_cluster

__all__ = ["measure"]

_COUNTS = (1, 2, 5, 10, 20, 50)
_CLIENTS = 4
_BATCH = 500
_SETTINGS = "three spanservers, two f1servers, fsync on"


def measure(options: Options, say: Say) -> Curve:
    """Write a row of each of so many tables in one transaction; each table lies in a group of its own."""
    counts = [count for count in _COUNTS if count <= options.most_groups]
    found: list[tuple[float, list[Round]]] = []
    groups = ("--groups", str(max(counts)))
    with local_cluster("--slaves", "0", *groups, "--set", "placement.balance_load=false") as cluster:
        say("participants: writing rows")
        _fill(cluster.hosts, max(counts))
        for count in counts:
            system = our_system(cluster, GrowthOpener(cluster.hosts, count), _SETTINGS)
            one = Contestant("f1db", "parts", f"a row in each of {count} groups")
            found.append((float(count), turns(system, [one], _CLIENTS, options, say)["parts"]))
    costs = [(count, [one.cpu_us for one in rounds]) for count, rounds in found]
    waits = [(count, [one.p50_ms for one in rounds]) for count, rounds in found]
    lines = (
        Line("a transaction, servers", "us of CPU", places(costs), whole=True),
        Line("a transaction, p50", "ms", places(waits), whole=True),
    )
    title = "Participants of a transaction"
    return Curve("participants", title, "groups", lines, f"{system.name}, {_SETTINGS}; {_CLIENTS} clients")


def _fill(hosts: str, tables: int) -> None:
    """Make the tables, which a new cluster deals to its groups in turn, and their rows."""
    create = "CREATE TABLE {} (Id INT64 NOT NULL, Amount INT64 NOT NULL, PRIMARY KEY (Id));"
    ddl = "\n".join(create.format(part_table(number)) for number in range(tables))
    with f1.connect(hosts, autocommit=True, timeout_s=120.0) as connection:
        connection.apply_schema({"parts.sql": ddl})
        for number in range(tables):
            for at in range(0, ROWS_EACH, _BATCH):
                rows = [{"Id": key, "Amount": 0} for key in range(at, at + _BATCH)]
                connection.upsert(part_table(number), rows)
