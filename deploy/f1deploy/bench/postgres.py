"""PostgreSQL beside us: a server of this machine, made for a measurement and removed again."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from f1common.clock import boot_us
from f1common.errors import Code, F1Error

__all__ = ["Postgres", "find_postgres", "postgres"]

_USER = "bench"
_READY_S = 60


def find_postgres() -> Path | None:
    """Return the folder of its programs, None where it is not installed."""
    found = [Path(name) for name in (shutil.which("initdb"), shutil.which("postgres")) if name]
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    for path in [*(path.resolve() for path in found), *reversed(installed)]:
        if all((path.parent / name).exists() for name in ("initdb", "pg_ctl", "postgres", "psql")):
            return path.parent
    return None


class Postgres:
    """A running server that listens on a socket in its folder only; all settings are its own defaults."""

    def __init__(self, programs: Path, folder: Path) -> None:
        """``folder`` is where the socket is."""
        self._programs = programs
        self._folder = folder

    def version(self) -> str:
        """Return its name and version."""
        said = subprocess.run([self._programs / "postgres", "--version"], capture_output=True, text=True, check=True)
        return said.stdout.strip().replace(" (PostgreSQL)", "").replace("postgres ", "PostgreSQL ").split(" (")[0]

    def run(self, sql: str, *, stdin: Path | None = None) -> float:
        """Run statements and return how long that took, in seconds. Raises F1Error INTERNAL with what it says."""
        command = [str(self._programs / "psql"), "-h", str(self._folder), "-U", _USER, "-d", "postgres", "-qAtX"]
        with open(stdin or os.devnull, "rb") as source:
            began_us = boot_us()
            done = subprocess.run(
                [*command, "-v", "ON_ERROR_STOP=1", "-c", sql], stdin=source, capture_output=True, text=True
            )
            took_s = (boot_us() - began_us) / 1e6
        if done.returncode:
            raise F1Error(Code.INTERNAL, f"PostgreSQL refused {sql!r}: {done.stderr.strip()}")
        return took_s


@contextmanager
def postgres(programs: Path) -> Iterator[Postgres]:
    """Start a server with data of its own. Raises F1Error UNAVAILABLE if it does not start."""
    account = _account()
    with tempfile.TemporaryDirectory(prefix="f1-bench-pg-") as name:
        folder = Path(name)
        if account is not None:
            os.chown(folder, account.pw_uid, account.pw_gid)

        def call(program: str, *arguments: str) -> None:
            done = subprocess.run(
                [programs / program, *arguments],
                user=None if account is None else account.pw_uid,
                group=None if account is None else account.pw_gid,
                extra_groups=None if account is None else [],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            if done.returncode:
                raise F1Error(Code.UNAVAILABLE, f"PostgreSQL's {program} failed: {done.stderr.strip()}")

        data = str(folder / "data")
        call("initdb", "-D", data, "-U", _USER, "-A", "trust", "--locale=C", "--encoding=UTF8")
        options = f"-c listen_addresses='' -c unix_socket_directories='{folder}'"
        call("pg_ctl", "-D", data, "-w", "-t", str(_READY_S), "-l", str(folder / "log"), "-o", options, "start")
        try:
            yield Postgres(programs, folder)
        finally:
            call("pg_ctl", "-D", data, "-w", "-m", "fast", "stop")


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
