"""What ``f1 cluster`` does to a local cluster, without the command line around it.

A process that is ended by order first gets the order not to run (so that the supervisor lets it rest), and then the
signal. The supervisor confirms each order; until it has, it may still be starting the process, so that the signal is
repeated to whoever the process is by then.
"""

import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from f1common.clock import boot_id, boot_us
from f1common.errors import Code, F1Error
from f1deploy.configs import merge_overrides, write_configs
from f1deploy.directory import ClusterDirectory, Order, State
from f1deploy.health import Prober
from f1deploy.ports import FreePorts, require_free
from f1deploy.processes import Identity, is_alive, is_stopped, send_signal, spawn
from f1deploy.spec import HOST, ClusterSpec, ProcessSpec, Shape, front_ports, plan, with_ports, without_front_ports

DEFAULT_PORT = 7400

READY_TIMEOUT_S = 60.0
_START_TIMEOUT_S = 30.0
_SUPERVISOR_TIMEOUT_S = 10.0
_TERM_TIMEOUT_S = 12.0
_KILL_TIMEOUT_S = 10.0
_POLL_S = 0.05
_LOG_TAIL_BYTES = 16_384

T = TypeVar("T")

ProcessState = Literal["running", "starting", "paused", "restarting", "failed", "stopped"]


class ProcessStatus(msgspec.Struct, frozen=True):
    """One process as ``f1 cluster status`` shows it. ``pid`` is None while there is none.

    ``running``: serves. ``starting``: lives and does not serve yet. ``paused``: stopped by SIGSTOP. ``restarting``: has
    exited by itself and is about to be started again. ``failed``: exits whenever it is started. ``stopped``: by order.
    """

    name: str
    kind: str
    pid: int | None
    address: str
    state: ProcessState


@dataclass(frozen=True, slots=True)
class UpOptions:
    """What the options of ``f1 cluster up`` say; None: not given, so that an existing cluster keeps what it has."""

    port: int | None = None
    spanservers: int | None = None
    f1servers: int | None = None
    slaves: int | None = None
    groups: int | None = None
    zones: int | None = None
    voters: int | None = None
    readonly: int | None = None
    orchestrator: bool | None = None
    overrides: Sequence[str] = ()
    timeout_s: float = READY_TIMEOUT_S


class Cluster:
    """A local cluster in a directory."""

    def __init__(self, path: Path) -> None:
        self.directory = ClusterDirectory(path)

    def spec(self) -> ClusterSpec:
        """Return what the cluster consists of. Raises F1Error NOT_FOUND if there is no cluster."""
        return self.directory.load()

    # ------------------------------------------------------------------ up

    def up(self, options: UpOptions, progress: Callable[[str], None] = lambda _: None) -> ClusterSpec:
        """Start the cluster, a new one if there is none, and return when it is ready: every process serves, every group
        has a leader, and every f1server knows all slaves.

        Raises F1Error ALREADY_EXISTS if it runs, PORT_IN_USE, BAD_DATA_DIR, INVALID_ARGUMENT, FAILED_PRECONDITION for
        options that contradict the cluster that is there, UNAVAILABLE if a process does not stay up, and
        DEADLINE_EXCEEDED if it is not ready in time; what was started is stopped again then.
        """
        directory = self.directory
        # Wrong options leave no directory behind.
        merge_overrides((), options.overrides)
        if not directory.exists():
            shape_of(options).check()
        directory.create()
        with directory.command_lock():
            spec = self._prepare(options)
            write_configs(directory, spec)
            directory.save(spec)
            for process in spec.processes:
                directory.give_order(process.name, up=True)
            try:
                self._ensure_supervisor()
                self._await_ready(spec, options.timeout_s, progress)
            except BaseException:
                self._stop_all(spec)
                raise
        return spec

    def _prepare(self, options: UpOptions) -> ClusterSpec:
        """Return the plan: of the cluster that is here, with ports that are free now, or of a new one."""
        rng = random.Random(f"{boot_id()} {os.getpid()} {boot_us()}")
        if not self.directory.exists():
            port = DEFAULT_PORT if options.port is None else options.port
            spec = plan(shape_of(options), f"f1-{rng.randbytes(4).hex()}", port, FreePorts(HOST, rng, _front(port)))
        else:
            spec = self.directory.load()
            if self.runs(spec):
                raise F1Error(
                    Code.ALREADY_EXISTS,
                    f"the cluster in {self.directory.path} is running; `f1 cluster start NAME` starts a process of it, "
                    "`f1 cluster down` stops it all, --dir names another one",
                )
            _require_same_shape(spec, options)
            port = spec.port if options.port is None else options.port
            if options.port is not None:
                spec = without_front_ports(spec)
            # Clients know where they connect: those ports stay, also where they were once chosen free.
            require_free(HOST, front_ports(spec) if options.port is None else ())
            spec = with_ports(spec, port, FreePorts(HOST, rng, [*_front(port), *front_ports(spec)]))
        if port:
            require_free(HOST, (p.port for p in spec.processes if p.port in _front(port)))
        return msgspec.structs.replace(spec, overrides=merge_overrides(spec.overrides, options.overrides))

    def runs(self, spec: ClusterSpec) -> bool:
        """Tell whether the supervisor or any process of the cluster lives."""
        return is_alive(self.directory.supervisor()) or any(
            is_alive(self.directory.state(process.name).identity) for process in spec.processes
        )

    def _ensure_supervisor(self) -> Identity:
        """Return the supervisor, started if there is none."""
        directory = self.directory
        current = directory.supervisor()
        if current is not None and is_alive(current):
            send_signal(current, signal.SIGHUP)
            return current
        started = spawn(directory.supervisor_command(), directory.log_path("supervisor"), new_session=True)

        def settled() -> Identity | None:
            identity = directory.supervisor()
            return identity if identity is not None and is_alive(identity) else None

        found = _wait_for(settled, _SUPERVISOR_TIMEOUT_S, lambda: not is_alive(started) and settled() is None)
        if found is None:
            raise F1Error(
                Code.UNAVAILABLE,
                f"the supervisor does not start: {_last_line(directory.log_path('supervisor'))}",
            )
        return found

    def _await_ready(self, spec: ClusterSpec, timeout_s: float, progress: Callable[[str], None]) -> None:
        """Wait until all processes serve, all groups have a leader with a lease and all f1servers know the slaves."""
        end = boot_us() + int(timeout_s * 1_000_000)
        told = ""
        with Prober(process.address for process in spec.processes) as prober:
            while True:
                self._check_none_failed(spec)
                waits = _waits_for(spec, prober)
                if not waits:
                    return
                if waits != told:
                    progress(waits)
                    told = waits
                if boot_us() > end:
                    raise F1Error(
                        Code.DEADLINE_EXCEEDED,
                        f"the cluster is not ready after {timeout_s:g} s: {waits}; logs: {self.directory.logs}",
                    )
                time.sleep(_POLL_S)

    def _check_none_failed(self, spec: ClusterSpec) -> None:
        for process in spec.processes:
            state = self.directory.state(process.name)
            # A process that exits before the cluster has ever served has a reason that waiting does not cure.
            if state.order == self.directory.order(process.name).number and state.phase in ("waiting", "failed"):
                if not state.reason:
                    continue
                log = self.directory.log_path(process.name)
                raise F1Error(
                    Code.UNAVAILABLE,
                    f"{process.name} does not stay up ({state.reason}): {_last_line(log)}; all of it is in {log}",
                )

    # ------------------------------------------------------------------ down

    def down(self) -> bool:
        """Stop everything: SIGTERM, and SIGKILL for what does not end in time. False if nothing ran."""
        spec = self.spec()
        with self.directory.command_lock():
            ran = self.runs(spec)
            self._stop_all(spec)
        return ran

    def _stop_all(self, spec: ClusterSpec) -> None:
        directory = self.directory
        for process in spec.processes:
            directory.give_order(process.name, up=False)
        # The supervisor goes first: nobody starts anything from here on.
        supervisor = directory.supervisor()
        send_signal(supervisor, signal.SIGTERM)
        _end(([supervisor] if supervisor else []), _KILL_TIMEOUT_S)
        running = [state.identity for p in spec.processes if (state := directory.state(p.name)).identity is not None]
        for identity in running:
            send_signal(identity, signal.SIGTERM)
            send_signal(identity, signal.SIGCONT)
        _end(running, _TERM_TIMEOUT_S)
        for process in spec.processes:
            last = directory.state(process.name)
            directory.save_state(process.name, State("down", directory.order(process.name).number, None, last.restarts))

    # ------------------------------------------------------------------ one process

    def kill(self, name: str) -> None:
        """Kill a process with SIGKILL; it is not started again. Raises F1Error NOT_FOUND or FAILED_PRECONDITION."""
        self.spec().process(name)
        with self.directory.command_lock():
            state = self.directory.state(name)
            if not is_alive(state.identity) and state.phase in ("down", "failed"):
                raise F1Error(Code.FAILED_PRECONDITION, f"{name} is not running; `f1 cluster start {name}` starts it")
            order = self.directory.give_order(name, up=False)
            send_signal(state.identity, signal.SIGKILL)
            self._await_obeyed(name, order, signal.SIGKILL)

    def _await_obeyed(self, name: str, order: Order, number: signal.Signals) -> None:
        """Repeat the signal until the process is gone and no supervisor can start it any more."""

        def gone() -> bool | None:
            supervisor = self.directory.supervisor()
            send_signal(supervisor, signal.SIGHUP)
            confirmed = self.directory.state(name).order == order.number or not is_alive(supervisor)
            alive = send_signal(self.directory.state(name).identity, number)
            return True if confirmed and not alive else None

        if _wait_for(gone, _KILL_TIMEOUT_S) is None:
            raise F1Error(Code.DEADLINE_EXCEEDED, f"{name} does not die; it may hang in the kernel, see `ps`")

    def start(self, name: str) -> None:
        """Start a process and wait until it serves. Does nothing to one that runs.

        Raises F1Error NOT_FOUND, FAILED_PRECONDITION if the cluster is down, UNAVAILABLE if it does not stay up.
        """
        spec = self.spec()
        process = spec.process(name)
        with self.directory.command_lock():
            if not self.runs(spec):
                raise F1Error(
                    Code.FAILED_PRECONDITION,
                    f"the cluster in {self.directory.path} is down; `f1 cluster up` starts it",
                )
            self.start_processes([process])

    def start_processes(self, processes: Sequence[ProcessSpec]) -> None:
        """Order processes to run and wait until they serve. Raises F1Error UNAVAILABLE, DEADLINE_EXCEEDED."""
        orders = {process.name: self.directory.give_order(process.name, up=True) for process in processes}
        self._ensure_supervisor()
        for process in processes:
            with Prober([process.address]) as prober:
                started = partial(self._started, process, orders[process.name], prober)
                if _wait_for(started, _START_TIMEOUT_S) is None:
                    raise F1Error(
                        Code.DEADLINE_EXCEEDED,
                        f"{process.name} does not serve after {_START_TIMEOUT_S:g} s; "
                        f"see `f1 cluster logs {process.name}`",
                    )

    def reconfigure(self, overrides: Sequence[str], names: Sequence[str]) -> ClusterSpec:
        """Set configuration keys and restart these processes one after the other. Raises F1Error as :meth:`start`."""
        with self.directory.command_lock():
            spec = self.spec()
            spec = msgspec.structs.replace(spec, overrides=merge_overrides(spec.overrides, overrides))
            write_configs(self.directory, spec)
            self.directory.save(spec)
            for name in names:
                self.stop_process(name)
                self.start_processes([spec.process(name)])
        return spec

    def stop_process(self, name: str) -> None:
        """Order a process not to run: SIGTERM, and SIGKILL if it does not end in time."""
        order = self.directory.give_order(name, up=False)
        identity = self.directory.state(name).identity
        if send_signal(identity, signal.SIGTERM) and identity is not None:
            send_signal(identity, signal.SIGCONT)
            _end([identity], _TERM_TIMEOUT_S)
        self._await_obeyed(name, order, signal.SIGKILL)

    def free_ports(self, spec: ClusterSpec) -> FreePorts:
        """Return free ports that no process of ``spec`` has, and that none of those may get that clients connect to."""
        rng = random.Random(f"{boot_id()} {os.getpid()} {boot_us()}")
        taken = [port for process in spec.processes for port in (process.port, process.metrics_port)]
        return FreePorts(HOST, rng, [*_front(spec.port), *taken])

    def _started(self, process: ProcessSpec, order: Order, prober: Prober) -> bool | None:
        state = self.directory.state(process.name)
        if state.order != order.number:
            return None
        if state.phase == "failed":
            last = _last_line(self.directory.log_path(process.name))
            raise F1Error(Code.UNAVAILABLE, f"{process.name} does not stay up ({state.reason}): {last}")
        return True if state.phase == "up" and prober.serving()[process.address] else None

    def pause(self, name: str) -> None:
        """Stop a process with SIGSTOP: it lives and does nothing. Raises F1Error NOT_FOUND or FAILED_PRECONDITION."""
        self._signal_running(name, signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """Let a paused process go on (SIGCONT). Raises F1Error NOT_FOUND or FAILED_PRECONDITION."""
        self._signal_running(name, signal.SIGCONT)

    def _signal_running(self, name: str, number: signal.Signals) -> None:
        self.spec().process(name)
        if not send_signal(self.directory.state(name).identity, number):
            raise F1Error(Code.FAILED_PRECONDITION, f"{name} is not running; `f1 cluster start {name}` starts it")

    # ------------------------------------------------------------------ status

    def status(self) -> list[ProcessStatus]:
        """Return how every process is, in the order of the plan."""
        spec = self.spec()
        states = {process.name: self.directory.state(process.name) for process in spec.processes}
        alive = {
            process.address: state.identity
            for process in spec.processes
            if (state := states[process.name]).identity is not None and is_alive(state.identity)
        }
        paused = {address for address, identity in alive.items() if identity and is_stopped(identity)}
        with Prober(sorted(set(alive) - paused)) as prober:
            serving = prober.serving()
        return [
            ProcessStatus(
                name=process.name,
                kind=process.kind,
                pid=identity.pid if (identity := alive.get(process.address)) else None,
                address=process.address,
                state=_state_of(
                    states[process.name],
                    process.address in alive,
                    process.address in paused,
                    serving.get(process.address),
                ),
            )
            for process in spec.processes
        ]

    def supervised(self) -> bool:
        """Tell whether the supervisor lives."""
        return is_alive(self.directory.supervisor())


def _state_of(state: State, alive: bool, paused: bool, serving: bool | None) -> ProcessState:
    if alive:
        return "paused" if paused else "running" if serving else "starting"
    match state.phase:
        case "failed":
            return "failed"
        case "up" | "waiting":
            return "restarting"
        case _:
            return "stopped"


def _waits_for(spec: ClusterSpec, prober: Prober) -> str:
    """Return in words what a cluster still lacks to be ready; empty: nothing."""
    serving = prober.serving()
    missing = sorted(process.name for process in spec.processes if not serving[process.address])
    if missing:
        return f"waiting for {', '.join(missing)}"
    leaders = prober.leaders()
    leaderless = [str(group.id) for group in spec.groups if group.id not in leaders]
    if leaderless:
        return f"waiting for the leaders of groups {', '.join(leaderless)}"
    slaves = {process.name for process in spec.slaves()}
    if slaves:
        known = prober.live_slaves(process.address for process in spec.f1servers())
        strangers = sorted(set.union(*(slaves - names for names in known.values())))
        if strangers:
            return f"waiting for f1servers to hear of {', '.join(strangers)}"
    return ""


def shape_of(options: UpOptions) -> Shape:
    """Return the shape that the options ask for; what they leave out has its default."""
    given = {
        "spanservers": options.spanservers,
        "f1servers": options.f1servers,
        "slaves": options.slaves,
        "groups": options.groups,
        "zones": options.zones,
        "voters": options.voters,
        "readonly": options.readonly,
    }
    numbers = {name: value for name, value in given.items() if value is not None}
    return Shape(orchestrator=options.orchestrator, **numbers)


def _require_same_shape(spec: ClusterSpec, options: UpOptions) -> None:
    zones = len({process.zone for process in spec.processes})
    first = spec.groups[0]
    services = bool(spec.services("locks"))
    if options.orchestrator not in (None, services):
        way = "remove NAME` takes services away" if services else "add --kind timestamps` and `--kind locks` add them"
        text = f"this cluster was made with{'' if services else 'out'} the orchestrator's services; `f1 cluster {way}"
        raise F1Error(Code.FAILED_PRECONDITION, text)
    for option, asked, has in (
        ("--voters", options.voters, len(first.voters)),
        ("--readonly", options.readonly, len(first.readers)),
        ("--spanservers", options.spanservers, len(spec.spanservers())),
        ("--f1servers", options.f1servers, len(spec.f1servers())),
        ("--slaves", options.slaves, len(spec.slaves())),
        ("--groups", options.groups, len(spec.groups) - 1),
        ("--zones", options.zones, zones),
    ):
        if asked is not None and asked != has:
            raise F1Error(
                Code.FAILED_PRECONDITION,
                f"this cluster was made with {option} {has}, which cannot be changed to {asked}; leave the option out, "
                "or make another cluster with --dir (`f1 cluster add` and `remove` change one that runs)",
            )


def _front(port: int) -> range:
    """The ports that clients may come to connect to: nothing else is put there."""
    return range(port, port + 100) if port else range(0)


def _wait_for(
    attempt: Callable[[], T | None], timeout_s: float, hopeless: Callable[[], bool] = lambda: False
) -> T | None:
    """Attempt until there is a result; None when the time is up or there is no hope."""
    end = boot_us() + int(timeout_s * 1_000_000)
    while True:
        result = attempt()
        if result is not None:
            return result
        if boot_us() > end or hopeless():
            return None
        time.sleep(_POLL_S)


def _end(identities: Sequence[Identity], timeout_s: float) -> None:
    """Wait for processes to end, kill those that do not, and wait for these."""

    def ended() -> bool | None:
        return None if any(map(is_alive, identities)) else True

    if _wait_for(ended, timeout_s) is None:
        for identity in identities:
            send_signal(identity, signal.SIGKILL)
        _wait_for(ended, _KILL_TIMEOUT_S)


def _last_line(log: Path) -> str:
    """Return the last line of a log, which tells why a process ended."""
    try:
        with log.open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - _LOG_TAIL_BYTES, 0))
            lines = file.read().decode("utf-8", "replace").strip().splitlines()
    except FileNotFoundError:
        lines = []
    return lines[-1].strip() if lines else "it said nothing"
