"""A local cluster that grows and shrinks while it runs.

Each command first makes sure that it can be done, and writes what the cluster consists of before it acts on it; so
whoever is interrupted leaves a cluster that ``f1 cluster up`` and ``down`` can handle, and gives the command again.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from f1common.errors import Code, F1Error
from f1deploy.cluster import Cluster
from f1deploy.configs import write_configs
from f1deploy.ports import require_free
from f1deploy.processes import is_alive
from f1deploy.spec import HOST, ClusterSpec, Kind, ProcessSpec, grown, shrunk
from spanstore.client import SpanClient
from spanstore.client.servers import ServerAdmin
from spanstore.tools.target import from_directory

Progress = Callable[[str], None]
T = TypeVar("T")

_REGISTER_TIMEOUT_S = 60.0


def _quiet(_: str) -> None:
    pass


def add(
    cluster: Cluster, kind: Kind, count: int = 1, zone: str | None = None, progress: Progress = _quiet
) -> tuple[ProcessSpec, ...]:
    """Give the cluster more processes; where it runs they are started, and storage servers known to the others.

    Raises F1Error NOT_FOUND, INVALID_ARGUMENT, FAILED_PRECONDITION, PORT_IN_USE, UNAVAILABLE, DEADLINE_EXCEEDED.
    """
    cluster.spec()  # NOT_FOUND comes before a lock in a directory that is none
    with cluster.directory.command_lock():
        spec = cluster.spec()
        running = cluster.runs(spec)
        spec, new = grown(spec, kind, count, zone, cluster.free_ports(spec))
        spec.cluster_section()  # a topology that cannot be is refused before anything is written
        if running:
            require_free(HOST, (process.port for process in new))
        _write(cluster, spec)
        if running:
            progress(f"starting {_names(new)}")
            cluster.start_processes(new)
    if running and kind == "spanserver":
        names = {process.name for process in new}
        _with_admin(cluster, lambda admin: admin.until_known(names), progress, _REGISTER_TIMEOUT_S)
    return new


def drain(cluster: Cluster, name: str, *, any_zone: bool, timeout_s: float, progress: Progress = _quiet) -> list[int]:
    """Have all replicas of a storage server, dead or alive, moved to others; return their groups.

    Raises F1Error NOT_FOUND, INVALID_ARGUMENT, and what :meth:`ServerAdmin.drain` raises.
    """
    _require_storage(cluster, name)
    return _with_admin(cluster, lambda admin: admin.drain(name, any_zone=any_zone), progress, timeout_s)


def undrain(cluster: Cluster, name: str) -> None:
    """Let a storage server have replicas again. Raises F1Error NOT_FOUND, INVALID_ARGUMENT."""
    _require_storage(cluster, name)
    _with_admin(cluster, lambda admin: admin.undrain(name), _quiet, _REGISTER_TIMEOUT_S)


def rebuild(cluster: Cluster, name: str, *, timeout_s: float, progress: Progress = _quiet) -> list[int]:
    """Have all replicas of a storage server built anew from the others; return their groups.

    Raises F1Error NOT_FOUND, INVALID_ARGUMENT, and what :meth:`ServerAdmin.rebuild` raises.
    """
    _require_storage(cluster, name)
    return _with_admin(cluster, lambda admin: admin.rebuild(name), progress, timeout_s)


def remove(cluster: Cluster, name: str, *, force: bool, timeout_s: float, progress: Progress = _quiet) -> None:
    """Take a process out of the cluster; a storage server must be drained, or, with ``force``, dead.

    The name of a storage server is not used again; its data stay where they are, of no use to anybody. Raises F1Error
    NOT_FOUND, INVALID_ARGUMENT, FAILED_PRECONDITION, UNAVAILABLE, DEADLINE_EXCEEDED.
    """
    spec = cluster.spec()
    if name not in spec.removed:
        if spec.process(name).kind == "spanserver":
            _require_storage(cluster, name)
            shrunk(spec, name)
            if force:
                _require_dead(cluster, name)
                _with_admin(cluster, lambda admin: admin.drain(name, any_zone=True), progress, timeout_s)
            _with_admin(cluster, lambda admin: admin.retire(name), progress, timeout_s)
        with cluster.directory.command_lock():
            left = shrunk(cluster.spec(), name)
            progress(f"stopping {name}")
            cluster.stop_process(name)
            _write(cluster, left)
    if name in cluster.spec().removed:
        _with_admin(cluster, lambda admin: admin.remove(name), progress, timeout_s)


def _require_storage(cluster: Cluster, name: str) -> None:
    spec = cluster.spec()
    kind = spec.process(name).kind
    if kind != "spanserver":
        raise F1Error(Code.INVALID_ARGUMENT, f"{name} is a {kind}: it has no replicas")
    if not cluster.runs(spec):
        raise F1Error(Code.FAILED_PRECONDITION, "the cluster is down; `f1 cluster up` starts it")


def _require_dead(cluster: Cluster, name: str) -> None:
    if is_alive(cluster.directory.state(name).identity):
        raise F1Error(
            Code.FAILED_PRECONDITION, f"{name} runs: `f1 cluster drain {name}` empties it, --force is for the dead"
        )


def _write(cluster: Cluster, spec: ClusterSpec) -> None:
    """Write what the cluster consists of, then what follows from it; `f1 cluster up` writes the latter again."""
    cluster.directory.save(spec)
    write_configs(cluster.directory, spec)


def _with_admin(
    cluster: Cluster, work: Callable[[ServerAdmin], Awaitable[T]], progress: Progress, timeout_s: float
) -> T:
    async def run(client: SpanClient) -> T:
        return await work(ServerAdmin(client, timeout_s=timeout_s, progress=progress))

    return from_directory(cluster.directory.path).run(run)


def _names(processes: tuple[ProcessSpec, ...]) -> str:
    return ", ".join(process.name for process in processes)
