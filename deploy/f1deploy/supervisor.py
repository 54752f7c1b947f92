"""The supervisor of a local cluster: starts what is ordered to run and starts it again when it exits by itself.

``python -m f1deploy.supervisor DIR`` is started detached by ``f1 cluster up``. It takes orders from files
(:mod:`f1deploy.directory`) and is woken by SIGHUP when there is one. It does not stop processes: who ends one by order
sends the signal, and the supervisor sees that it is not to be started again. Its own death leaves all processes
running; the next supervisor adopts them.
"""

import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

import msgspec

from f1common.clock import boot_us
from f1common.errors import Code, F1Error, check
from f1common.observe import logs
from f1deploy.directory import ClusterDirectory, Order, State
from f1deploy.processes import Identity, identify, is_alive, reap, spawn
from f1deploy.restart import RestartPolicy, Restarts
from f1deploy.spec import ProcessSpec

# Children tell of their end by SIGCHLD, commands of an order by SIGHUP; adopted processes are looked at this often.
_LOOK_S = 0.25
_WAKING = frozenset({signal.SIGCHLD, signal.SIGHUP, signal.SIGTERM, signal.SIGINT})

_log = logs.get_logger(__name__)


@dataclass(slots=True)
class _Process:
    """One process under supervision; times are of the boot clock."""

    spec: ProcessSpec
    state: State
    restarts: Restarts
    started_us: int
    due_us: int = 0


class Supervisor:
    """Keeps the processes of one cluster as ordered."""

    def __init__(self, directory: ClusterDirectory, policy: RestartPolicy | None = None) -> None:
        """Take over a cluster: processes that run already are adopted."""
        self._directory = directory
        self._policy = policy if policy is not None else RestartPolicy()
        self._processes: list[_Process] = []
        self._stamp = (0, 0)
        self._follow_spec()

    def _follow_spec(self) -> None:
        """Take on the processes that have come, and let go of those that were removed."""
        stamp = self._directory.spec_stamp()
        if stamp == self._stamp:
            return
        specs = self._directory.load().processes
        known = {process.spec.name: process for process in self._processes}
        for name in known.keys() - {spec.name for spec in specs}:
            self._look_at(known[name])  # it has ended by order, and is buried
        self._processes = [known.get(spec.name) or self._adopt(spec) for spec in specs]
        for process, spec in zip(self._processes, specs, strict=True):
            process.spec = spec
        self._stamp = stamp

    def _adopt(self, spec: ProcessSpec) -> _Process:
        state = self._directory.state(spec.name)
        if is_alive(state.identity):
            _log.info("adopted", process=spec.name, pid=state.identity.pid if state.identity else 0)
        return _Process(spec, state, Restarts(total=state.restarts), boot_us())

    def run(self) -> None:
        """Supervise until SIGTERM or SIGINT."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _WAKING)
        while True:
            self.step()
            woken = signal.sigtimedwait(_WAKING, _LOOK_S)
            if woken is not None and woken.si_signo in (signal.SIGTERM, signal.SIGINT):
                return

    def step(self) -> None:
        """Look at every process once and do what is due."""
        self._follow_spec()
        for process in self._processes:
            self._look_at(process)

    def _look_at(self, process: _Process) -> None:
        name, state = process.spec.name, process.state
        order = self._directory.order(name)
        if order.number != state.order:
            self._obey(process, order)
            state = process.state
        match state.phase:
            case "down" | "failed":
                if state.identity is not None and not is_alive(state.identity):
                    reap(state.identity.pid)
                    self._save(process, msgspec.structs.replace(state, identity=None))
            case "waiting":
                if boot_us() >= process.due_us:
                    self._start(process)
            case "up":
                if not is_alive(state.identity):
                    self._ended(process)
            case _:
                assert_never(state.phase)

    def _obey(self, process: _Process, order: Order) -> None:
        """Carry out a new order: a fresh start, or never again."""
        state = process.state
        process.restarts = Restarts(total=state.restarts)
        process.due_us = 0
        if not order.up:
            self._save(process, State("down", order.number, state.identity, state.restarts))
        elif is_alive(state.identity):
            self._save(process, State("up", order.number, state.identity, state.restarts))
        else:
            if state.identity is not None:
                reap(state.identity.pid)
            self._save(process, State("waiting", order.number, None, state.restarts))

    def _start(self, process: _Process) -> None:
        name = process.spec.name
        command = self._directory.process_command(name, process.spec.kind)
        process.started_us = boot_us()
        identity = spawn(command, self._directory.log_path(name))
        _log.info("started", process=name, pid=identity.pid)
        self._save(process, State("up", process.state.order, identity, process.restarts.total))

    def _ended(self, process: _Process) -> None:
        name, state = process.spec.name, process.state
        pid = state.identity.pid if state.identity else 0
        how = _describe(reap(pid))
        process.restarts, delay = process.restarts.after_exit(boot_us() - process.started_us, self._policy)
        if delay is None:
            _log.error("given up", process=name, pid=pid, exit=how)
            self._save(process, State("failed", state.order, None, process.restarts.total, how))
            return
        _log.warning("exited", process=name, pid=pid, exit=how, restart_in_ms=delay // 1000)
        process.due_us = boot_us() + delay
        self._save(process, State("waiting", state.order, None, process.restarts.total, how))

    def _save(self, process: _Process, state: State) -> None:
        process.state = state
        self._directory.save_state(process.spec.name, state)


def _describe(status: int | None) -> str:
    """Say how a process ended; None: it was not our child."""
    if status is None:
        return "ended"
    if status >= 0:
        return f"exit code {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


def main(path: Path) -> int:
    """Supervise the cluster in ``path`` until told to stop; 1 if there is a supervisor already."""
    logs.configure(logs.LogOptions(node="supervisor", repeats=0))
    directory = ClusterDirectory(path)
    lock = directory.lock_supervisor()
    if lock is None:
        _log.warning("another supervisor is at work")
        return 1
    me: Identity | None = identify(os.getpid())
    check(me is not None, "a running process can be identified")
    if me is not None:
        directory.save_supervisor(me)
    _log.info("supervising", directory=str(directory.path))
    try:
        Supervisor(directory).run()
    except F1Error as error:
        _log.error("stopped", exc=error)
        return 1
    _log.info("stopped by order; the processes run on")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise F1Error(Code.INVALID_ARGUMENT, "usage: python -m f1deploy.supervisor DIRECTORY")
    sys.exit(main(Path(sys.argv[1])))
