"""What a local cluster consists of: a value that is planned once, kept as ``cluster.json`` and never guessed again.

Zones are ``a``, ``b``, ``c`` and so on; storage servers are named after zone and number (``span-a1``), others by number
(``f1-1``, ``slave-1``); where there are slaves there is one ``master``. Beside f1servers there are the orchestrator's
services, ``timestamps-1``, ``timestamps-2`` and ``locks``. Servers are dealt to zones in turn, and the
voters of a group lie in different zones as long as there are enough of them. Group 0 owns the range map; the data
groups share the root tables. Leadership is spread: each group prefers another zone.

``groups`` says how the groups were founded, for ever: who is a member now, the groups themselves know. So it may name
servers that were removed since; names of storage servers are never used twice.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
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
MAX_READONLY = 10
_VOTERS = 3
_DEFAULT_SLAVES = 2

_DEFAULT_TIMESTAMPS = 2

Kind = Literal["spanserver", "f1server", "master", "slave", "timestamps", "locks"]
_NUMBERED = {"f1server": "f1-", "slave": "slave-", "timestamps": "timestamps-"}
_SERVICE_PORTS: dict[Kind, range] = {"timestamps": range(80, 90), "locks": range(90, 91)}
"""Where clients find the orchestrator's services, above the first of the ports that clients connect to."""


class ProcessSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One process. ``metrics_port`` is its Prometheus endpoint on the same host.

    ``front``: the port of a relay on the same host through which servers and clients reach a storage server; 0: they
    connect to itself. Tests cut connections there (``scripts/relay.py``).
    """

    name: str
    kind: Kind
    zone: str
    port: int
    metrics_port: int
    front: int = 0

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
    removed: tuple[str, ...] = ()
    """Storage servers that belonged to the cluster once."""

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

    def services(self, kind: Literal["timestamps", "locks"]) -> tuple[ProcessSpec, ...]:
        """Return the orchestrator's services of a kind, in the order of their names' numbers."""
        return tuple(process for process in self.processes if process.kind == kind)

    def cluster_section(self) -> ClusterSection:
        """Return the section ``[cluster]`` that all processes share."""
        servers = (
            ClusterServer(name=p.name, zone=p.zone, address=f"{HOST}:{p.front}" if p.front else p.address)
            for p in self.spanservers()
        )
        return ClusterSection(
            cluster_id=self.cluster_id,
            servers=tuple(servers),
            groups=self.groups,
            ranges=self.ranges,
            removed=self.removed,
            master="".join(process.address for process in self.processes if process.kind == "master"),
            timestamps=tuple(process.address for process in self.services("timestamps")),
            locks="".join(process.address for process in self.services("locks")),
        )


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """How large a new cluster is to be, as the options of ``f1 cluster up`` say.

    ``slaves`` None: two, or none where there is no f1server to use them. ``voters`` None: three, or one where there are
    fewer storage servers. ``readonly`` counts the replicas of each group that do not vote. ``orchestrator``: whether
    the orchestrator's services run; None: where there are f1servers.
    """

    spanservers: int = 3
    f1servers: int = 2
    slaves: int | None = None
    groups: int = 4
    zones: int = 3
    voters: int | None = None
    readonly: int = 0
    orchestrator: bool | None = None

    @property
    def has_orchestrator(self) -> bool:
        """Whether the orchestrator's services run."""
        return self.f1servers > 0 if self.orchestrator is None else self.orchestrator

    @property
    def voters_of_a_group(self) -> int:
        """How many servers vote in each group."""
        if self.voters is None:
            return _VOTERS if self.spanservers >= _VOTERS else 1
        return self.voters

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
        self._check_replicas()
        if self.pool and not self.f1servers:
            raise F1Error(
                Code.INVALID_ARGUMENT,
                f"--slaves {self.pool} needs f1servers, whose queries slaves run; set one of the two options",
            )

    def _check_replicas(self) -> None:
        voters, readonly = self.voters_of_a_group, self.readonly
        if voters not in (1, 3, 5):
            raise F1Error(Code.INVALID_ARGUMENT, f"--voters is 1, 3 or 5, not {voters}")
        if not 0 <= readonly <= MAX_READONLY:
            raise F1Error(Code.INVALID_ARGUMENT, f"--readonly is a number from 0 to {MAX_READONLY}, not {readonly}")
        if voters + readonly > self.spanservers:
            raise F1Error(
                Code.INVALID_ARGUMENT,
                f"{voters} voters and {readonly} read-only replicas of a group need {voters + readonly} spanservers, "
                f"not {self.spanservers}; give --spanservers {voters + readonly}",
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
    groups = _groups(shape, processes)
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
    if shape.has_orchestrator:
        processes += _services(zones, free_port)
    ranges = spread_tables([group.id for group in groups]).ranges
    spec = ClusterSpec(
        cluster_id=cluster_id,
        port=port,
        processes=tuple(processes),
        groups=groups,
        ranges=tuple(ClusterRange(start=r.start.hex(), group=r.group) for r in ranges),
    )
    return with_ports(spec, port, free_port)


def _services(zones: Sequence[str], free_port: Callable[[], int]) -> list[ProcessSpec]:
    """Place the orchestrator's services: of the timestamp services one leads, the others stand by elsewhere."""
    named: list[tuple[str, Kind]] = [(f"timestamps-{i + 1}", "timestamps") for i in range(_DEFAULT_TIMESTAMPS)]
    named.append(("locks", "locks"))
    return [
        ProcessSpec(name=name, kind=kind, zone=zones[i % len(zones)], port=0, metrics_port=free_port())
        for i, (name, kind) in enumerate(named)
    ]


def _groups(shape: Shape, servers: Sequence[ProcessSpec]) -> tuple[ClusterGroup, ...]:
    """Place the groups, and their read-only replicas where there are fewest."""
    load: Counter[str] = Counter()
    groups = []
    for number in range(shape.groups + 1):
        group = _group(number, servers, shape.voters_of_a_group)
        others = [server.name for server in servers if server.name not in group.voters]
        readers = tuple(sorted(others, key=lambda name: load[name])[: shape.readonly])
        load.update(readers)
        groups.append(msgspec.structs.replace(group, readers=readers))
    return tuple(groups)


def _group(number: int, servers: Sequence[ProcessSpec], voters: int) -> ClusterGroup:
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
    names = tuple(server.name for server in spread[:voters])
    return ClusterGroup(id=number, voters=names, preferred_zone=order[0].zone)


def with_ports(spec: ClusterSpec, port: int, free_port: Callable[[], int]) -> ClusterSpec:
    """Return ``spec`` with addresses given anew: ``port`` and those after it for the processes that clients connect to.

    Those are the f1servers, and the spanservers where there are none, and further up the orchestrator's services; with
    ``port`` 0 they keep those that they have. Raises F1Error INVALID_ARGUMENT.
    """
    front = _front_kinds(spec)
    processes: list[ProcessSpec] = []
    taken: Counter[Kind] = Counter()
    for process in spec.processes:
        kind = process.kind
        if kind in front and port:
            number = port + front[kind] + taken[kind]
            taken[kind] += 1
            _check_room(port, number)
        elif kind in front and process.port:
            number = process.port
        else:
            number = free_port()
        processes.append(msgspec.structs.replace(process, port=number, metrics_port=free_port()))
    return msgspec.structs.replace(spec, port=port, processes=tuple(processes))


def front_ports(spec: ClusterSpec) -> list[int]:
    """Return the ports that clients connect to."""
    return [process.port for process in spec.processes if process.kind in _front_kinds(spec)]


def without_front_ports(spec: ClusterSpec) -> ClusterSpec:
    """Return ``spec`` without the ports that clients connect to, so that they are given anew."""
    front = _front_kinds(spec)
    processes = [msgspec.structs.replace(p, port=0) if p.kind in front else p for p in spec.processes]
    return msgspec.structs.replace(spec, processes=tuple(processes))


def _front_kinds(spec: ClusterSpec) -> dict[Kind, int]:
    """Return the kinds of processes that clients connect to, and how far above the first port theirs begin."""
    services = {kind: ports.start for kind, ports in _SERVICE_PORTS.items()}
    return {"f1server" if spec.f1servers() else "spanserver": 0, **services}


def _check_room(port: int, last: int) -> None:
    if port < 0 or last > 65535:
        raise F1Error(Code.INVALID_ARGUMENT, f"--port {port} leaves no room: ports up to {last} would be needed")


def grown(
    spec: ClusterSpec, kind: Kind, count: int, zone: str | None, free_port: Callable[[], int]
) -> tuple[ClusterSpec, tuple[ProcessSpec, ...]]:
    """Return ``spec`` with ``count`` more processes of a kind, and these.

    Each goes to ``zone``, or to the zone with the fewest of its kind; clients find it at the next port after those that
    they know, if it is of the kind that they connect to. Raises F1Error INVALID_ARGUMENT, FAILED_PRECONDITION.
    """
    _check_growth(spec, kind, count, zone)
    new: list[ProcessSpec] = []
    for _ in range(count):
        process = _next_process(spec, kind, zone, free_port)
        # Behind the last of its kind: the order is that of `status` and of the ports.
        last = max((i for i, p in enumerate(spec.processes) if p.kind == kind), default=len(spec.processes) - 1)
        processes = (*spec.processes[: last + 1], process, *spec.processes[last + 1 :])
        spec = msgspec.structs.replace(spec, processes=processes)
        new.append(process)
    return spec, tuple(new)


def _check_growth(spec: ClusterSpec, kind: Kind, count: int, zone: str | None) -> None:
    if kind == "master":
        kinds = "spanserver, f1server, slave, timestamps or locks"
        raise F1Error(Code.INVALID_ARGUMENT, f"a cluster has one master; --kind is {kinds}")
    has = sum(process.kind == kind for process in spec.processes)
    room = len(_SERVICE_PORTS.get(kind, range(MAX_SERVERS))) - has
    if kind == "locks" and not room:
        text = "a cluster has one lock service: two could grant one lock twice"
        raise F1Error(Code.INVALID_ARGUMENT, text)
    if not 1 <= count <= room:
        raise F1Error(Code.INVALID_ARGUMENT, f"--count is a number from 1 to {room}, not {count}")
    if zone is not None and not re.fullmatch(r"[a-z]+", zone):
        raise F1Error(Code.INVALID_ARGUMENT, f"--zone takes small letters, such as `a`, not {zone!r}")
    if kind == "slave" and not spec.slaves():
        raise F1Error(
            Code.FAILED_PRECONDITION,
            "this cluster was made without slaves, so it has no master that they could report to; make another one",
        )


def _next_process(spec: ClusterSpec, kind: Kind, zone: str | None, free_port: Callable[[], int]) -> ProcessSpec:
    mine = [process for process in spec.processes if process.kind == kind]
    if zone is None:
        load = Counter(process.zone for process in mine)
        zone = min({process.zone for process in spec.processes}, key=lambda name: (load[name], name))
    prefix = _NUMBERED.get(kind, f"span-{zone}")
    taken = [process.name for process in mine] + list(spec.removed)
    numbers = [int(name.removeprefix(prefix)) for name in taken if re.fullmatch(rf"{prefix}\d+", name)]
    port, front = free_port(), _front_kinds(spec)
    if spec.port and kind in front:
        port = max((process.port for process in mine), default=spec.port + front[kind] - 1) + 1
        _check_room(spec.port, port)
    name = "locks" if kind == "locks" else f"{prefix}{max(numbers, default=0) + 1}"
    return ProcessSpec(name=name, kind=kind, zone=zone, port=port, metrics_port=free_port())


def shrunk(spec: ClusterSpec, name: str) -> ClusterSpec:
    """Return ``spec`` without a process. Raises F1Error NOT_FOUND, INVALID_ARGUMENT for one that has to stay."""
    process = spec.process(name)
    alone = sum(other.kind == process.kind for other in spec.processes) == 1
    if process.kind == "master" or (alone and process.kind not in _SERVICE_PORTS):
        raise F1Error(Code.INVALID_ARGUMENT, f"{name} is the only {process.kind}: the cluster needs it")
    removed = (*spec.removed, name) if process.kind == "spanserver" else spec.removed
    processes = tuple(other for other in spec.processes if other.name != name)
    return msgspec.structs.replace(spec, processes=processes, removed=removed)
