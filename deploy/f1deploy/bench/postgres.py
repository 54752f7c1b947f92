"""PostgreSQL beside us: a server of this machine, alone or with standbys, made for a measurement and removed again."""

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from f1common.clock import boot_us
from f1common.errors import Code, F1Error

__all__ = ["Postgres", "find_postgres", "postgres"]

_USER = "bench"
_READY_S = 60
_PORT = 5432
"""Names a socket in a folder of its own; no network port is taken."""

_PROGRAMS = ("initdb", "pg_basebackup", "pg_ctl", "postgres", "psql")


def find_postgres() -> Path | None:
    """Return the folder of its programs, None where it is not installed."""
    found = [Path(name) for name in (shutil.which("initdb"), shutil.which("postgres")) if name]
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    for path in [*(path.resolve() for path in found), *reversed(installed)]:
        if all((path.parent / name).exists() for name in _PROGRAMS):
            return path.parent
    return None


class Postgres:
    """A running server that listens on a socket in its folder only; all settings are its own defaults."""

    def __init__(self, programs: Path, folder: Path, pids: Sequence[int]) -> None:
        """``folder`` is where the socket is; ``pids`` are the server and its standbys."""
        self._programs = programs
        self._folder = folder
        self.pids = tuple(pids)

    def version(self) -> str:
        """Return its name and version."""
        said = subprocess.run([self._programs / "postgres", "--version"], capture_output=True, text=True, check=True)
        return said.stdout.strip().replace(" (PostgreSQL)", "").replace("postgres ", "PostgreSQL ").split(" (")[0]

    @property
    def psql(self) -> tuple[str, ...]:
        """The command that connects to it and takes statements from its input."""
        return (str(self._programs / "psql"), "-h", str(self._folder), "-U", _USER, "-d", "postgres", "-AtX")

    def run(self, sql: str, *, stdin: Path | None = None) -> float:
        """Run statements and return how long that took, in seconds. Raises F1Error INTERNAL with what it says."""
        return self._run(sql, stdin)[1]

    def ask(self, sql: str) -> str:
        """Run a query and return what it prints. Raises F1Error INTERNAL with what it says."""
        return self._run(sql, None)[0]

    def _run(self, sql: str, stdin: Path | None) -> tuple[str, float]:
        with open(stdin or os.devnull, "rb") as source:
            began_us = boot_us()
            done = subprocess.run(
                [*self.psql, "-q", "-v", "ON_ERROR_STOP=1", "-c", sql], stdin=source, capture_output=True, text=True
            )
            took_s = (boot_us() - began_us) / 1e6
        if done.returncode:
            raise F1Error(Code.INTERNAL, f"PostgreSQL refused {sql!r}: {done.stderr.strip()}")
        return done.stdout.strip(), took_s


@contextmanager
def postgres(programs: Path, *, standbys: Sequence[str] = ()) -> Iterator[Postgres]:
    """Start a server with data of its own, and standbys by streaming replication under these names.

    With standbys a commit waits until one of them has it on disk, which makes a majority if there are two: ``ANY 1 (a,
    b)``. Raises F1Error UNAVAILABLE if one does not start.
    """
    account = _account()
    with tempfile.TemporaryDirectory(prefix="f1-bench-pg-") as name, ExitStack() as stack:
        folder = Path(name)
        if account is not None:
            os.chown(folder, account.pw_uid, account.pw_gid)
        instances = _Instances(programs, folder, account)
        instances.call("initdb", "-D", "primary", "-U", _USER, "-A", "trust", "--locale=C", "--encoding=UTF8")
        pids = [stack.enter_context(instances.running("primary", _PORT))]
        for number, standby in enumerate(standbys, 1):
            source = ("-h", str(folder), "-p", str(_PORT), "-U", _USER)
            instances.call("pg_basebackup", *source, "-D", standby, "-R", "-X", "stream", "-c", "fast")
            pids.append(stack.enter_context(instances.running(standby, _PORT + number)))
        server = Postgres(programs, folder, pids)
        if standbys:
            _synchronous(server, standbys)
        yield server


def _synchronous(server: Postgres, standbys: Sequence[str]) -> None:
    """Have commits wait for one of the standbys, and see that all of them follow."""
    server.run(f"ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 ({', '.join(standbys)})'")
    server.run("SELECT pg_reload_conf()")
    deadline_us = boot_us() + _READY_S * 1_000_000
    while boot_us() < deadline_us:
        following = server.ask("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'quorum'")
        if int(following) == len(standbys):
            return
        time.sleep(0.1)
    raise F1Error(Code.UNAVAILABLE, f"PostgreSQL's standbys do not follow within {_READY_S} s")


class _Instances:
    """Runs PostgreSQL's programs in one folder under one account."""

    def __init__(self, programs: Path, folder: Path, account: pwd.struct_passwd | None) -> None:
        self._programs = programs
        self._folder = folder
        self._account = account

    @contextmanager
    def running(self, data: str, port: int) -> Iterator[int]:
        """Have a server run over a data directory; its name for others is that of the directory. Gives its pid."""
        options = f"-c listen_addresses='' -c unix_socket_directories='{self._folder}' -c cluster_name={data}"
        control = ("-D", data, "-w", "-t", str(_READY_S))
        self.call("pg_ctl", *control, "-l", f"{data}.log", "-o", f"{options} -c port={port}", "start")
        try:
            yield int((self._folder / data / "postmaster.pid").read_text().split()[0])
        finally:
            # Not "fast": a server that is stopped waits for standbys, which may be gone.
            self.call("pg_ctl", *control, "-m", "immediate", "stop")

    def call(self, program: str, *arguments: str) -> None:
        """Run a program and wait for it. Raises F1Error UNAVAILABLE with what it says."""
        account = self._account
        done = subprocess.run(
            [self._programs / program, *arguments],
            user=None if account is None else account.pw_uid,
            group=None if account is None else account.pw_gid,
            extra_groups=None if account is None else [],
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        if done.returncode:
            raise F1Error(Code.UNAVAILABLE, f"PostgreSQL's {program} failed: {done.stderr.strip()}")


def _account() -> pwd.struct_passwd | None:
    """Return the account to run under: it refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise F1Error(Code.UNAVAILABLE, "PostgreSQL does not run as root, and there is no account 'postgres' or 'nobody'")
