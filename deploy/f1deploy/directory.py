"""The directory of a local cluster, and who writes which file of it.

======================= ================ ============================================================================
file                    written by       holds
======================= ================ ============================================================================
``cluster.json``        ``f1 cluster``   what the cluster consists of (:mod:`f1deploy.spec`)
``clock``               ``f1 cluster``   boot and offset of the clock that all processes share
``conf/NAME.toml``      ``f1 cluster``   the configuration of a process, complete
``data/NAME/``          the process      its data
``log/NAME.log``        the process      what it prints; ``log/supervisor.log`` likewise
``run/NAME.order``      ``f1 cluster``   whether the process should run: the latest order, numbered
``run/NAME.state``      the supervisor   who the process is, which order was carried out, how often it was restarted
``run/supervisor.pid``  the supervisor   who the supervisor is; ``run/supervisor.lock`` is held while it lives
``run/command.lock``    ``f1 cluster``   held while a command changes something
======================= ================ ============================================================================

Every file has one writer and is replaced as a whole, so that nobody reads half of one and the death of anybody leaves
the rest as it was.
"""

import fcntl
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from f1common.clock import boot_us
from f1common.errors import Code, F1Error
from f1deploy.processes import Identity
from f1deploy.spec import SPEC_VERSION, ClusterSpec

DEFAULT_DIRECTORY = Path("f1-cluster")
_COMMAND_WAIT_US = 30_000_000
_POLL_S = 0.05

T = TypeVar("T")


class Order(msgspec.Struct, frozen=True):
    """What ``f1 cluster`` wants of a process; a higher number is a newer order, and a new chance after failures."""

    up: bool
    number: int


class State(msgspec.Struct, frozen=True):
    """What the supervisor knows of a process.

    ``order`` is the number of the order that it has carried out. ``phase``: ``up`` while it is to run, ``waiting``
    between two attempts, ``failed`` once the supervisor has given up, ``down`` by order.
    """

    phase: Literal["up", "waiting", "failed", "down"]
    order: int = 0
    identity: Identity | None = None
    restarts: int = 0
    reason: str = ""


class ClusterDirectory:
    """The files of one cluster."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.conf = self.path / "conf"
        self.data = self.path / "data"
        self.logs = self.path / "log"
        self.run = self.path / "run"

    # ------------------------------------------------------------------ the cluster

    def exists(self) -> bool:
        """Tell whether a cluster was made here."""
        return (self.path / "cluster.json").is_file()

    def create(self) -> None:
        """Make the folders. Raises F1Error BAD_DATA_DIR if something else is here."""
        try:
            if self.path.exists() and not self.exists() and self._is_foreign():
                raise F1Error(
                    Code.BAD_DATA_DIR,
                    f"{self.path} holds something that is no cluster; choose an empty or a new directory with --dir",
                )
            for folder in (self.conf, self.data, self.logs, self.run):
                folder.mkdir(parents=True, exist_ok=True)
            # A cluster made inside a work tree is nothing to commit.
            (self.path / ".gitignore").write_text("*\n", encoding="ascii")
        except OSError as error:
            raise F1Error(
                Code.BAD_DATA_DIR, f"cannot use {self.path} as the directory of a cluster: {error.strerror}"
            ) from error

    def _is_foreign(self) -> bool:
        """Tell whether there is more than what a first `up` that failed leaves behind."""
        if not self.path.is_dir():
            return True
        ours = {".gitignore", "clock", "conf", "data", "log", "run"}
        return any(item.name not in ours for item in self.path.iterdir())

    def load(self) -> ClusterSpec:
        """Read what the cluster consists of. Raises F1Error NOT_FOUND, BAD_DATA_DIR or VERSION_MISMATCH."""
        path = self.path / "cluster.json"
        try:
            data = path.read_bytes()
            version = msgspec.json.decode(data, type=dict[str, object]).get("version")
            if version != SPEC_VERSION:
                raise F1Error(
                    Code.VERSION_MISMATCH,
                    f"{path} has version {version}, this program reads {SPEC_VERSION}: use the program that wrote it",
                )
            return msgspec.json.decode(data, type=ClusterSpec)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise F1Error(
                Code.NOT_FOUND,
                f"{self.path} is no cluster's directory; make a cluster with `f1 cluster up`, or name one with --dir",
            ) from error
        except (OSError, msgspec.DecodeError) as error:
            raise F1Error(Code.BAD_DATA_DIR, f"cannot read {path}: {error}") from error

    def save(self, spec: ClusterSpec) -> None:
        """Write what the cluster consists of."""
        replace_file(self.path / "cluster.json", msgspec.json.format(msgspec.json.encode(spec), indent=1) + b"\n")

    def spec_stamp(self) -> tuple[int, int]:
        """Return what changes whenever :meth:`save` has replaced the file."""
        try:
            found = (self.path / "cluster.json").stat()
        except OSError as error:
            raise F1Error(Code.BAD_DATA_DIR, f"cannot read {self.path / 'cluster.json'}: {error.strerror}") from error
        return found.st_ino, found.st_mtime_ns

    def config_path(self, name: str) -> Path:
        """Return the path of the configuration of process ``name``."""
        return self.conf / f"{name}.toml"

    def log_path(self, name: str) -> Path:
        """Return the path of the log of process ``name``, or of ``supervisor``."""
        return self.logs / f"{name}.log"

    # ------------------------------------------------------------------ orders and states

    def order(self, name: str) -> Order:
        """Return the latest order for a process."""
        return _read(self.run / f"{name}.order", Order) or Order(up=False, number=0)

    def give_order(self, name: str, *, up: bool) -> Order:
        """Order a process to run or not to run."""
        order = Order(up, self.order(name).number + 1)
        replace_file(self.run / f"{name}.order", msgspec.json.encode(order))
        return order

    def state(self, name: str) -> State:
        """Return what the supervisor last knew of a process."""
        return _read(self.run / f"{name}.state", State) or State("down")

    def save_state(self, name: str, state: State) -> None:
        """Write what the supervisor knows of a process."""
        replace_file(self.run / f"{name}.state", msgspec.json.encode(state))

    def supervisor(self) -> Identity | None:
        """Return who the supervisor is or was."""
        return _read(self.run / "supervisor.pid", Identity)

    def save_supervisor(self, identity: Identity) -> None:
        """Write who the supervisor is."""
        replace_file(self.run / "supervisor.pid", msgspec.json.encode(identity))

    def lock_supervisor(self) -> int | None:
        """Become the only supervisor as long as the returned descriptor is open; None if there is one already."""
        return _try_lock(self.run / "supervisor.lock")

    @contextmanager
    def command_lock(self) -> Iterator[None]:
        """Let one command at a time change the cluster. Raises F1Error UNAVAILABLE if another one takes too long."""
        began = boot_us()
        while (fd := _try_lock(self.run / "command.lock")) is None:
            if boot_us() - began > _COMMAND_WAIT_US:
                raise F1Error(Code.UNAVAILABLE, f"another `f1 cluster` command is at work on {self.path}; wait for it")
            time.sleep(_POLL_S)
        try:
            yield
        finally:
            os.close(fd)

    def supervisor_command(self) -> list[str]:
        """Return the command line of the supervisor. -P: nothing is imported from where the user happens to be."""
        return [sys.executable, "-P", "-m", "f1deploy.supervisor", str(self.path)]

    def process_command(self, name: str, kind: str) -> list[str]:
        """Return the command line of a process."""
        command = {"f1server": "server"}.get(kind, kind)
        return [sys.executable, "-P", "-m", "f1", command, "--config", str(self.config_path(name))]


def _try_lock(path: Path) -> int | None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise F1Error(Code.BAD_DATA_DIR, f"cannot read {path}: {error}") from error


def replace_file(path: Path, data: bytes) -> None:
    """Write a file as a whole: whoever reads it sees the old or the new one. Raises F1Error BAD_DATA_DIR."""
    scratch = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        scratch.write_bytes(data)
        scratch.replace(path)
    except OSError as error:
        raise F1Error(Code.BAD_DATA_DIR, f"cannot write {path}: {error.strerror}") from error
