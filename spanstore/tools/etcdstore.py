"""etcd beside us: a cluster of three on this machine, and the benchmark's works through its gRPC interface.

etcd is one Raft group with a flat key space. A transfer reads both accounts and writes both if neither has changed,
which is etcd's way of a transaction; there is no difference between one group and two. Clients talk to the leader, so
that no request is forwarded; reads are linearizable, as ours are.
"""

import asyncio
import os
import random
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
import grpc.aio

from f1common.clock import boot_us
from f1common.errors import Code, F1Error, check
from f1common.rpc.status import error_from_rpc
from spanstore.tools.works import ACCOUNTS, ROW_BYTES, ROWS, START_BALANCE, Work

BINARY = "etcd"
_MEMBERS = 3
_HOST = "127.0.0.1"
_READY_US = 20_000_000
_LOOK_S = 0.2
_STOP_S = 5.0
_CALL_TIMEOUT_S = 5.0
_CONNECTIONS = 8
_BATCH = 100
_ACCOUNTS = b"account/"
_ROWS = b"row/"
# As many as ours has in its four groups, so that conflicts are as frequent.
_ALL_ACCOUNTS = 4 * ACCOUNTS


def find_binary() -> str | None:
    """Return the path of etcd, None where it is not installed."""
    return shutil.which(BINARY)


class EtcdCluster:
    """Three members as processes of this machine, with their data under a directory."""

    def __init__(self, binary: str, directory: Path, free_port: Callable[[], int]) -> None:
        self._binary = binary
        self._directory = directory
        self._clients = [f"http://{_HOST}:{free_port()}" for _ in range(_MEMBERS)]
        self._peers = [f"http://{_HOST}:{free_port()}" for _ in range(_MEMBERS)]
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def addresses(self) -> tuple[str, ...]:
        """Addresses for clients."""
        return tuple(url.removeprefix("http://") for url in self._clients)

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes of the members."""
        return tuple(process.pid for process in self._processes)

    def __enter__(self) -> Self:
        cluster = ",".join(f"m{number}={url}" for number, url in enumerate(self._peers))
        self._directory.mkdir(parents=True, exist_ok=True)
        for number, (client, peer) in enumerate(zip(self._clients, self._peers, strict=True)):
            arguments = [
                self._binary,
                *("--name", f"m{number}", "--data-dir", str(self._directory / f"m{number}")),
                *("--listen-client-urls", client, "--advertise-client-urls", client),
                *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
                *("--initial-cluster", cluster, "--initial-cluster-token", "bench", "--logger", "zap"),
            ]
            with (self._directory / f"m{number}.log").open("wb") as log:
                self._processes.append(subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    async def ready(self) -> None:
        """Wait until there is a leader. Raises F1Error UNAVAILABLE, with what a member said that has ended."""
        store = EtcdStore(self.addresses)
        finding = asyncio.ensure_future(store.find_leader())
        try:
            while not finding.done():
                await asyncio.wait([finding], timeout=_LOOK_S)
                self._require_members()
            await finding
        finally:
            finding.cancel()
            await asyncio.gather(finding, return_exceptions=True)

    def _require_members(self) -> None:
        for number, process in enumerate(self._processes):
            if process.poll() is not None:
                log = (self._directory / f"m{number}.log").read_text(errors="replace").splitlines()
                said = log[-1] if log else "it said nothing"
                raise F1Error(Code.UNAVAILABLE, f"a member ended with {process.returncode}: {said}")

    def cpu_seconds(self) -> float:
        """Return the processor time that the members have used."""
        ticks = 0
        for process in self._processes:
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")


class EtcdStore:
    """A client of etcd. Needs a running event loop."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._messages, self._services = grpc.protos_and_services("spanstore/tools/etcd.proto")
        self._addresses = addresses
        self._channels: list[Any] = []
        self._stubs: list[Any] = []
        self._connecting = asyncio.Lock()

    async def _kv(self, rng: random.Random | None = None) -> Any:
        """Return a stub of a connection to the leader."""
        async with self._connecting:
            if not self._stubs:
                leader = await self.find_leader()
                self._channels = [_channel(leader) for _ in range(_CONNECTIONS)]
                self._stubs = [self._services.KVStub(channel) for channel in self._channels]
        return self._stubs[0] if rng is None else rng.choice(self._stubs)

    async def find_leader(self) -> str:
        """Return the address of the leader, waiting for one. Raises F1Error UNAVAILABLE if there is none for long."""
        end = boot_us() + _READY_US
        while boot_us() < end:
            for address in self._addresses:
                async with _channel(address) as channel:
                    try:
                        stub = self._services.MaintenanceStub(channel)
                        status = await stub.Status(self._messages.StatusRequest(), timeout=1.0)
                    except grpc.aio.AioRpcError:
                        continue
                    if status.leader and status.leader == status.header.member_id:
                        return address
            await asyncio.sleep(0.1)
        raise F1Error(Code.UNAVAILABLE, f"etcd at {', '.join(self._addresses)} has no leader")

    async def close(self) -> None:
        """Disconnect."""
        for channel in self._channels:
            await channel.close()

    async def prepare(self) -> None:
        """Write all accounts and rows."""
        accounts = [(_account(n), str(START_BALANCE).encode()) for n in range(_ALL_ACCOUNTS)]
        await self.put_many(accounts + [(_row(n), bytes(ROW_BYTES)) for n in range(ROWS)])

    async def perform(self, work: Work, rng: random.Random) -> None:
        """Do one operation."""
        match work:
            case "transfer, one group" | "transfer, two groups":
                stub = await self._any(rng)
                a, b = rng.sample(range(_ALL_ACCOUNTS), 2)
                while not await self._transfer(stub, a, b, rng.randint(1, 100)):
                    pass
            case "write one row":
                await self.put(_row(rng.randrange(ROWS)), rng.randbytes(ROW_BYTES), rng)
            case "read one row":
                found = await self.get(_row(rng.randrange(ROWS)), rng)
                check(found is not None, "a row that was written is there")

    async def put(self, key: bytes, value: bytes, rng: random.Random) -> None:
        """Write one key; ``rng`` draws the connection. Raises F1Error."""
        stub = await self._any(rng)
        await _call(stub.Put, self._messages.PutRequest(key=key, value=value))

    async def get(self, key: bytes, rng: random.Random) -> bytes | None:
        """Read one key, linearizably. Raises F1Error."""
        stub = await self._any(rng)
        reply = await _call(stub.Range, self._messages.RangeRequest(key=key))
        return bytes(reply.kvs[0].value) if reply.kvs else None

    async def put_many(self, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Write keys, many at a time. Raises F1Error."""
        m = self._messages
        stub = await self._kv()
        for at in range(0, len(rows), _BATCH):
            puts = [m.PutRequest(key=key, value=value) for key, value in rows[at : at + _BATCH]]
            await _call(stub.Txn, m.TxnRequest(success=[m.RequestOp(request_put=put) for put in puts]))

    async def _any(self, rng: random.Random) -> Any:
        return rng.choice(self._stubs) if self._stubs else await self._kv(rng)

    async def _transfer(self, stub: Any, a: int, b: int, amount: int) -> bool:
        """Read both accounts, write both if neither has changed; False if one has."""
        m = self._messages
        reads = [m.RequestOp(request_range=m.RangeRequest(key=_account(number))) for number in (a, b)]
        reply = await _call(stub.Txn, m.TxnRequest(success=reads))
        found = [response.response_range.kvs[0] for response in reply.responses]
        balances = (int(found[0].value) - amount, int(found[1].value) + amount)
        unchanged = [m.Compare(result="EQUAL", target="MOD", key=kv.key, mod_revision=kv.mod_revision) for kv in found]
        puts = [
            m.RequestOp(request_put=m.PutRequest(key=kv.key, value=str(balance).encode()))
            for kv, balance in zip(found, balances, strict=True)
        ]
        reply = await _call(stub.Txn, m.TxnRequest(compare=unchanged, success=puts))
        return bool(reply.succeeded)

    async def total(self) -> int:
        """Sum all accounts at one revision."""
        stub = await self._kv()
        request = self._messages.RangeRequest(key=_ACCOUNTS, range_end=_ACCOUNTS[:-1] + b"0")
        return sum(int(kv.value) for kv in (await _call(stub.Range, request)).kvs)

    @property
    def expected_total(self) -> int:
        """What the accounts hold together."""
        return _ALL_ACCOUNTS * START_BALANCE

    async def clean(self) -> None:
        """Nothing: the cluster was made for the benchmark."""


def _channel(address: str) -> Any:
    # Connections of their own; the servers' usual keepalive would be too lively for etcd, which then hangs up.
    options = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))
    return grpc.aio.insecure_channel(address, options=options)


def _account(number: int) -> bytes:
    return _ACCOUNTS + b"%06d" % number


def _row(number: int) -> bytes:
    return _ROWS + b"%06d" % number


async def _call(method: Any, request: Any) -> Any:
    try:
        return await method(request, timeout=_CALL_TIMEOUT_S)
    except grpc.aio.AioRpcError as error:
        raise error_from_rpc(error) from error
