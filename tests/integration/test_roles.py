"""Logins on a real cluster: `f1 cluster up --password`, wrong passwords, tokens that end, and no secret in a file."""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

import f1
from f1common.errors import Code
from f1common.pb import f1_pb2, f1_pb2_grpc

BOSS_WORD, APP_WORD, OTHER_WORD = "boss-secret-7391", "app-secret-5520", "other-secret-9914"
TOKEN_MS = 2_000


@dataclass(frozen=True)
class Shell:
    """Somebody at a shell beside a cluster."""

    directory: Path
    hosts: str = ""

    def f1(self, *arguments: str, user: str = "", password: str = "") -> "subprocess.CompletedProcess[str]":
        clean = {name: value for name, value in os.environ.items() if not name.startswith("F1_")}
        who = {"F1_HOST": self.hosts, "F1_USER": user, "F1_PASSWORD": password}
        return subprocess.run(
            [sys.executable, "-m", "f1", *arguments],
            cwd=self.directory.parent,
            env=clean | {name: value for name, value in who.items() if value},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    directory = tmp_path_factory.mktemp("roles") / "cluster"
    first = Shell(directory)
    where = ("--dir", str(directory))
    options = ("--port", "0", "--slaves", "1", "--no-orchestrator", "--set", f"f1server.token_ms={TOKEN_MS}")
    done = first.f1("cluster", "up", "--password", *options, *where, password=BOSS_WORD)
    try:
        assert done.returncode == 0, done.stderr
        status = json.loads(first.f1("cluster", "status", "--format", "json", *where).stdout)
        yield Shell(directory, ",".join(p["address"] for p in status if p["kind"] == "f1server"))
    finally:
        first.f1("cluster", "down", *where)


def code_of(work: object) -> Code | None:
    """The code of the error that a call ends with; None: it did not fail."""
    try:
        work()  # type: ignore[operator]
    except f1.Error as error:
        return error.code
    return None


def test_logins_grants_and_no_secret_in_any_file(shell: Shell) -> None:
    boss = ("f1", BOSS_WORD)
    for statement in (
        "CREATE TABLE T (A INT64 PRIMARY KEY, B INT64)",
        f"CREATE ROLE app LOGIN PASSWORD '{APP_WORD}'",
        "GRANT SELECT, INSERT ON T TO app",
        "INSERT INTO T VALUES (1, 2)",
    ):
        done = shell.f1("sql", "-c", statement, user=boss[0], password=boss[1])
        assert done.returncode == 0, done.stderr
    # Who is wrong, or nobody, is turned away, with one line.
    for user, password, code in (
        ("", "", "UNAUTHENTICATED"),
        ("app", OTHER_WORD, "UNAUTHENTICATED"),
        ("nobody", OTHER_WORD, "UNAUTHENTICATED"),
        ("app", "", "INVALID_ARGUMENT"),
    ):
        done = shell.f1("sql", "-c", "SELECT 1", user=user, password=password)
        assert done.returncode == 1 and done.stderr.startswith(code), done.stderr
        assert OTHER_WORD not in done.stderr
    done = shell.f1("sql", "--user", "app", "-c", "UPDATE T SET B = 3", password=APP_WORD)
    assert done.returncode == 1 and done.stderr.startswith("PERMISSION_DENIED: the role app lacks UPDATE on T")
    # Other commands take who they are from the environment; a statement that fails keeps its password to itself.
    assert "GRANT SELECT, INSERT ON TABLE T TO app;" in shell.f1("schema", "show", user="app", password=APP_WORD).stdout
    wrong = shell.f1("sql", "-c", f"ALTER ROLE app PASSWORD '{OTHER_WORD}' 'x'", user=boss[0], password=boss[1])
    assert wrong.returncode == 1 and OTHER_WORD not in wrong.stderr
    # A session outlives its tokens, and other processes that were started again.
    with f1.connect(shell.hosts, user="app", password=APP_WORD, autocommit=True) as app:
        until = time.monotonic() + 3 * TOKEN_MS / 1000
        while time.monotonic() < until:
            assert app.execute("SELECT B FROM T").fetchall() == [(2,)]
            time.sleep(0.1)
        assert code_of(lambda: app.execute("DELETE FROM T")) is Code.PERMISSION_DENIED
        with f1.connect(shell.hosts, user="f1", password=BOSS_WORD, autocommit=True) as first:
            first.execute("REVOKE SELECT ON T FROM app")
            assert code_of(lambda: app.execute("SELECT B FROM T")) is Code.PERMISSION_DENIED
            stored = first.execute("SHOW ROLES").fetchall()
    assert "********" in str(stored)
    _no_secret_in(shell.directory)


def _no_secret_in(directory: Path) -> None:
    """Logs, configurations and what processes were started with hold no password, in whatever form."""
    data = directory / "data"
    files = [path for path in directory.rglob("*") if path.is_file() and data not in path.parents]
    assert any(path.suffix == ".log" for path in files)
    for path in files:
        text = path.read_bytes()
        for secret in (BOSS_WORD, APP_WORD, OTHER_WORD, "SCRAM-SHA-256$"):
            assert secret.encode() not in text, path
    # On the disks of the storage tier there are verifiers, and no passwords either.
    for path in data.rglob("*"):
        if path.is_file():
            held = path.read_bytes()
            assert not [word for word in (BOSS_WORD, APP_WORD, OTHER_WORD) if word.encode() in held], path


def test_login_survives_whatever_is_sent_to_it(shell: Shell) -> None:
    """Texts and bytes of all sorts, and real messages with a byte changed: an error each time, and never a token."""
    rng = random.Random(7)
    host = shell.hosts.split(",")[0]
    with grpc.insecure_channel(host) as channel:
        stub = f1_pb2_grpc.F1ServerStub(channel)
        first = f1_pb2.LoginRequest(client_first="n,,n=fuzz,r=" + "n" * 24)
        begun = stub.Login(first, timeout=20)
        assert begun.server_first and begun.state and not begun.token
        real = f1_pb2.LoginRequest(
            state=begun.state,
            client_final="c=biws," + begun.server_first.split(",")[0] + ",p=" + "A" * 43 + "=",
        )
        for number in range(300):
            request = f1_pb2.LoginRequest()
            if number % 3 == 0:
                request.client_first = _text(rng)
                request.database = rng.choice(["", "default", "nope", _text(rng)])
            elif number % 3 == 1:
                request.CopyFrom(real)
                changed = bytearray(request.state)
                changed[rng.randrange(len(changed))] ^= rng.randrange(1, 256)
                request.state = bytes(changed)
            else:
                request.state = rng.choice([b"", begun.state, rng.randbytes(rng.randrange(200))])
                request.client_final = _text(rng) or "x"
            try:
                reply = stub.Login(request, timeout=60)
            except grpc.RpcError as error:
                assert error.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNAUTHENTICATED), request
            else:
                assert not reply.token and not request.client_final
    with f1.connect(shell.hosts, user="f1", password=BOSS_WORD, autocommit=True) as boss:
        assert boss.execute("SELECT 1").fetchall() == [(1,)]


def _text(rng: random.Random) -> str:
    parts = ["n,,", "n=", "r=", "c=biws", "p=", ",", "=", "=2C", "é", "\x00", "A" * 50, "x" * 5000, "\N{SNOWMAN}"]
    return "".join(rng.choice(parts) for _ in range(rng.randrange(6)))
