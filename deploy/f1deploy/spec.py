"""What a local cluster consists of: a value that is planned once, kept as ``cluster.json`` and never guessed again.

Zones are ``a``, ``b``, ``c`` and so on; storage servers are named after zone and number (``span-a1``), others by number
(``f1-1``, ``slave-1``); where there are slaves there is one ``master``. Servers are dealt to zones in turn, and the
voters of a group lie in different zones as long as there are enough of them. Group 0 owns the range map; the data
groups share the root tables. Leadership is spread: each group prefers another zone.
"""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Literal

import msgspec

from f1common.config import ClusterGroup, ClusterRange, ClusterSection, ClusterServer
from f1common.errors import Code, F1Error
from spanstore.placement.range_map import META_GROUP, spread_tables

SPEC_VERSION = 1
HOST = "127.0.0.1"

MAX_SERVERS = 64
MAX_ZONES = 26
MAX_GROUPS = 1_000
_VOTERS = 3
_DEFAULT_SLAVES = 2

Kind = Literal["spanserver", "f1server", "master", "slave"]


class ProcessSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One process. ``metrics_port`` is its Prometheus endpoint on the same host."""

    name: str
    kind: Kind
    zone: str
    port: int
    metrics_port: int

    @property
    def address(self) -> str:
        """The address of the process, ``host:port``."""
        return f"{HOST}:{self.port}"


class ClusterSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A local cluster. ``port`` is where clients connect first; 0 means that free ports were asked for."""

    version: int = SPEC_VERSION
    cluster_id: str
    port: int
    processes: tuple[ProcessSpec, ...]
    groups: tuple[ClusterGroup, ...]
    ranges: tuple[ClusterRange, ...]
    overrides: tuple[str, ...] = ()

    def process(self, name: str) -> ProcessSpec:
        """Return the process ``name``. Raises F1Error NOT_FOUND naming those there are."""
        for process in self.processes:
            if process.name == name:
                return process
        names = ", ".join(process.name for process in self.processes)
        raise F1Error(Code.NOT_FOUND, f"the cluster has no process {name!r}; it has {names}")

    def spanservers(self) -> tuple[ProcessSpec, ...]:
        """Return the storage servers, in the order of their names' numbers."""
        return tuple(process for process in self.processes if process.kind == "spanserver")

    def f1servers(self) -> tuple[ProcessSpec, ...]:
        """Return the SQL servers, in the order of their names' numbers."""
        return tuple(process for process in self.processes if process.kind == "f1server")

    def slaves(self) -> tuple[ProcessSpec, ...]:
        """Return the slaves, in the order of their names' numbers."""
        return tuple(process for process in self.processes if process.kind == "slave")

    def cluster_section(self) -> ClusterSection:
        """Return the section ``[cluster]`` that all processes share."""
        servers = (ClusterServer(name=p.name, zone=p.zone, address=p.address) for p in self.spanservers())
        return ClusterSection(
            cluster_id=self.cluster_id,
            servers=tuple(servers),
            groups=self.groups,
            ranges=self.ranges,
            master="".join(process.address for process in self.processes if process.kind == "master"),
        )


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """How large a new cluster is to be, as the options of ``f1 cluster up`` say.

    ``slaves`` None: two, or none where there is no f1server to use them.
    """

    spanservers: int = 3
    f1servers: int = 2
    slaves: int | None = None
    groups: int = 4
    zones: int = 3

    @property
    def pool(self) -> int:
        """How many slaves there are."""
        if self.slaves is None:
            return _DEFAULT_SLAVES if self.f1servers else 0
        return self.slaves

    def check(self) -> None:
        """Raise F1Error INVALID_ARGUMENT for a cluster that cannot be."""
        for option, value, highest in (
            ("--spanservers", self.spanservers, MAX_SERVERS),
            ("--groups", self.groups, MAX_GROUPS),
            ("--zones", self.zones, MAX_ZONES),
        ):
            if not 1 <= value <= highest:
                raise F1Error(Code.INVALID_ARGUMENT, f"{option} is a number from 1 to {highest}, not {value}")
        for option, value in (("--f1servers", self.f1servers), ("--slaves", self.pool)):
            if not 0 <= value <= MAX_SERVERS:
                raise F1Error(Code.INVALID_ARGUMENT, f"{option} is a number from 0 to {MAX_SERVERS}, not {value}")
        if self.pool and not self.f1servers:
            raise F1Error(
                Code.INVALID_ARGUMENT,
                f"--slaves {self.pool} needs f1servers, whose queries slaves run; set one of the two options",
            )


def plan(shape: Shape, cluster_id: str, port: int, free_port: Callable[[], int]) -> ClusterSpec:
    """Return a new cluster of ``shape``.

    Clients connect to ``port`` and those after it (0: free ones); all other ports come from ``free_port``. Raises
    F1Error INVALID_ARGUMENT.
    """
    shape.check()
    zones = [chr(ord("a") + i) for i in range(shape.zones)]
    processes = []
    for i in range(shape.spanservers):
        zone, number = zones[i % len(zones)], i // len(zones) + 1
        processes.append(
            ProcessSpec(name=f"span-{zone}{number}", kind="spanserver", zone=zone, port=0, metrics_port=free_port())
        )
    groups = tuple(_group(number, processes) for number in range(shape.groups + 1))
    processes += [
        ProcessSpec(name=f"f1-{i + 1}", kind="f1server", zone=zones[i % len(zones)], port=0, metrics_port=free_port())
        for i in range(shape.f1servers)
    ]
    if shape.pool:
        processes.append(ProcessSpec(name="master", kind="master", zone=zones[0], port=0, metrics_port=free_port()))
    processes += [
        ProcessSpec(name=f"slave-{i + 1}", kind="slave", zone=zones[i % len(zones)], port=0, metrics_port=free_port())
        for i in range(shape.pool)
    ]
    ranges = spread_tables([group.id for group in groups]).ranges
    spec = ClusterSpec(
        cluster_id=cluster_id,
        port=port,
        processes=tuple(processes),
        groups=groups,
        ranges=tuple(ClusterRange(start=r.start.hex(), group=r.group) for r in ranges),
    )
    return with_ports(spec, port, free_port)


def _group(number: int, servers: Sequence[ProcessSpec]) -> ClusterGroup:
    """Place a group: its first voter lies in the zone that it prefers, the others in as many zones as there are."""
    first = (number - META_GROUP) % len(servers)
    order = [*servers[first:], *servers[:first]]
    seen: set[str] = set()
    spread = []
    for server in order:
        if server.zone not in seen:
            seen.add(server.zone)
            spread.append(server)
    spread += [server for server in order if server not in spread]
    voters = tuple(server.name for server in islice(spread, _VOTERS if len(servers) >= _VOTERS else 1))
    return ClusterGroup(id=number, voters=voters, preferred_zone=order[0].zone)


def with_ports(spec: ClusterSpec, port: int, free_port: Callable[[], int]) -> ClusterSpec:
    """Return ``spec`` with addresses given anew: ``port`` and those after it for the processes that clients connect to.

    Those are the f1servers, and the spanservers where there are none. Raises F1Error INVALID_ARGUMENT.
    """
    kinds = {process.kind for process in spec.processes}
    front: Kind = "f1server" if "f1server" in kinds else "spanserver"
    count = sum(process.kind == front for process in spec.processes)
    if port < 0 or port + count - 1 > 65535:
        raise F1Error(Code.INVALID_ARGUMENT, f"--port {port} leaves no room for {count} ports up to 65535")
    processes, taken = [], 0
    for process in spec.processes:
        number = free_port()
        if process.kind == front and port:
            number, taken = port + taken, taken + 1
        processes.append(msgspec.structs.replace(process, port=number, metrics_port=free_port()))
    return msgspec.structs.replace(spec, port=port, processes=tuple(processes))
