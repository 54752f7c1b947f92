"""Random bytes, messages and SQL, and servers of both tiers in one process over real gRPC to throw them at."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from f1common.clock import SameHostClock, measure_same_host_offset_us
from f1common.config import (
    ClockSection,
    ClusterGroup,
    ClusterRange,
    ClusterSection,
    ClusterServer,
    Config,
    MasterSection,
    PaxosSection,
    ServerSection,
    SlaveSection,
)
from f1common.encoding import tuple as tuples
from f1common.encoding.row import encode_row
from f1common.rpc.channels import ChannelCache
from f1common.rpc.server import server_options
from f1server.process import F1Process
from master.process import MasterProcess
from slavepool.process import SlaveProcess
from spanstore.engine.lmdb_engine import LmdbEngine
from spanstore.placement.range_map import spread_tables
from spanstore.runtime.process import SpanProcess
from tests.integration.scan_cluster import free_ports

T = TypeVar("T")

LOST_STATUS = "Internal error from Core"
"""What grpc.aio says instead of a status that arrives while a message is being written (grpc issue 36066)."""
MAP_BYTES = 1 << 28
_NUMBERS = (0, 1, 2, 3, 5, 127, 255, 1 << 20, (1 << 31) - 1, (1 << 32) - 1, (1 << 63) - 1, -1, -(1 << 63))
_CPP = FieldDescriptor


@dataclass(slots=True)
class Servers:
    """One process of each kind."""

    span_address: str
    f1_address: str
    master_address: str
    slave_address: str
    span: SpanProcess
    f1: F1Process
    slave: SlaveProcess


@asynccontextmanager
async def servers(root: Path) -> AsyncIterator[Servers]:
    """Run all until the end of the context. Whatever fails in them unnoticed fails the test."""
    offset = measure_same_host_offset_us()
    clock = SameHostClock(offset)
    ports = free_ports(4)
    span_port, f1_port, master_port, slave_port = ports
    cluster = ClusterSection(
        cluster_id="fuzz",
        servers=(ClusterServer(name="span-a", zone="a", address=f"127.0.0.1:{span_port}"),),
        groups=tuple(ClusterGroup(id=group, voters=("span-a",)) for group in range(3)),
        ranges=tuple(ClusterRange(start=r.start.hex(), group=r.group) for r in spread_tables([0, 1, 2]).ranges),
        master=f"127.0.0.1:{master_port}",
    )

    def config(name: str, port: int) -> Config:
        return Config(
            server=ServerSection(name=name, zone="a", port=port, data_dir=str(root / name)),
            clock=ClockSection(source="same_host", offset_us=offset),
            paxos=PaxosSection(heartbeat_ms=50, lease_ms=600, election_timeout_ms=200),
            cluster=cluster,
            slave=SlaveSection(memory_mib=256, query_memory_mib=32, heartbeat_ms=100),
        )

    engine = LmdbEngine.open(root / "span-a", cluster="fuzz", server="span-a", map_bytes=MAP_BYTES)
    channels = ChannelCache()
    span = SpanProcess(config("span-a", span_port), engine, clock, channels, random.Random(1))
    f1 = F1Process(config("f1-1", f1_port), clock, channels, random.Random(2), address=f"127.0.0.1:{f1_port}")
    master = MasterProcess(MasterSection(), clock)
    slave = SlaveProcess(config("slave-1", slave_port), clock, channels, random.Random(3))
    started: list[Any] = []
    process: Any
    for process, port in zip((span, f1, master, slave), ports, strict=True):
        server = grpc.aio.server(options=server_options())
        server.add_insecure_port(f"127.0.0.1:{port}")
        await process.start(server)
        await server.start()
        started.append(server)
    slave.announce(f"127.0.0.1:{slave_port}")
    try:
        await asyncio.wait_for(f1.ready.wait(), 30)
        addresses = [f"127.0.0.1:{port}" for port in ports]
        yield Servers(addresses[0], addresses[1], addresses[2], addresses[3], span, f1, slave)
        if span.failed.done():
            raise span.failed.exception() or AssertionError("the spanserver ended")
    finally:
        await f1.stop()
        await slave.stop()
        await master.stop()
        for server in reversed(started):
            await server.stop(None)
        await span.stop()
        await channels.close()
        await engine.close()


class Fuzz:
    """Draws inputs. Many are nearly right, since what is far off is refused at the door."""

    def __init__(self, seed: int, words: Sequence[str] = (), numbers: Sequence[int] = ()) -> None:
        self.rng = random.Random(seed)
        self._words = ["", "R", "r", "Nope", "default", "ö\u0000", "x" * 600, *words]
        self._numbers = (*_NUMBERS, *numbers)
        self.seen: list[bytes] = []
        """Handles and the like from answers, which make requests that get further."""

    def bytes_(self) -> bytes:
        """Bytes: noise, tuples, rows, and damaged ones."""
        rng = self.rng
        if self.seen and rng.random() < 0.3:
            return rng.choice(self.seen)
        match rng.randrange(8):
            case 0:
                return b""
            case 1:
                return rng.randbytes(rng.choice((1, 8, 16, 100, 600)))
            case 2 | 3:
                return tuples.encode(tuple(self._value() for _ in range(rng.randrange(4))))
            case 4 | 5:
                return encode_row({rng.choice((1, 2, 3, 4, 5, 9)): self._value() for _ in range(rng.randrange(4))})
            case _:
                return self.damaged(rng.choice((tuples.encode((1, "a", 2)), encode_row({1: 1, 2: "x"}))))

    def _value(self) -> Any:
        rng = self.rng
        kinds = (None, True, rng.choice((0, 1, 2, 5, -1, 1 << 62)), 1.5, float("nan"), rng.choice(self._words), b"\xff")
        return rng.choice(kinds)

    def damaged(self, data: bytes) -> bytes:
        """Change, cut or lengthen data a little."""
        rng = self.rng
        out = bytearray(data)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(out) + 1)
            match rng.randrange(3):
                case 0:
                    out[at:at] = rng.randbytes(1)
                case 1:
                    del out[at : at + rng.randint(1, 4)]
                case _ if at < len(out):
                    out[at] ^= 1 << rng.randrange(8)
                case _:
                    pass
        return bytes(out)

    def fill(self, message: Message, depth: int = 0) -> Message:
        """Set some fields of a message, and of the messages in it."""
        rng = self.rng
        for field in message.DESCRIPTOR.fields:
            if rng.random() > (0.6 if depth else 0.9):
                continue
            if field.is_repeated:
                if field.message_type is not None and field.message_type.GetOptions().map_entry:
                    continue
                values = getattr(message, field.name)
                for _ in range(rng.choice((0, 1, 1, 2, 5))):
                    if field.message_type is not None:
                        if depth < 4:
                            self.fill(values.add(), depth + 1)
                    else:
                        values.append(self._scalar(field))
            elif field.message_type is not None:
                if depth < 4:
                    self.fill(getattr(message, field.name), depth + 1)
                    getattr(message, field.name).SetInParent()
            else:
                setattr(message, field.name, self._scalar(field))
        return message

    def _scalar(self, field: Any) -> Any:
        rng = self.rng
        match field.cpp_type:
            case _CPP.CPPTYPE_STRING:
                return self.bytes_() if field.type == _CPP.TYPE_BYTES else rng.choice(self._words)
            case _CPP.CPPTYPE_BOOL:
                return rng.random() < 0.5
            case _CPP.CPPTYPE_ENUM:
                return rng.choice([value.number for value in field.enum_type.values] + [7])
            case _CPP.CPPTYPE_DOUBLE | _CPP.CPPTYPE_FLOAT:
                return rng.choice((0.0, -1.5, float("inf"), float("nan")))
            case kind:
                unsigned = kind in (_CPP.CPPTYPE_UINT32, _CPP.CPPTYPE_UINT64)
                bits = 32 if kind in (_CPP.CPPTYPE_INT32, _CPP.CPPTYPE_UINT32) else 64
                low, high = (0, (1 << bits) - 1) if unsigned else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
                return min(max(rng.choice(self._numbers), low), high)

    def body(self, request: Message) -> str:
        """Choose one alternative of ``body`` in a request, fill it, and return its name."""
        field: Any = self.rng.choice(request.DESCRIPTOR.oneofs_by_name["body"].fields)
        part = getattr(request, field.name)
        part.SetInParent()
        self.fill(part)
        return str(field.name)


def _tokens(text: str) -> list[str]:
    return text.replace("(", " ( ").replace(")", " ) ").replace(",", " , ").split()


def sql_mutations(rng: random.Random, seeds: Sequence[str], count: int) -> Iterator[str]:
    """Yield statements near to valid ones: tokens dropped, doubled, swapped and replaced, texts joined and nested."""
    words = [token for text in seeds for token in _tokens(text)]
    words += [
        "NULL",
        "''",
        "1e400",
        "9" * 40,
        "(",
        ")",
        ",",
        "*",
        "?",
        "$1",
        ";",
        "--",
        "/*",
        "'",
        '"',
        "::",
        ".",
        "\u0000",
    ]
    words += ["OVER", "LATERAL", "UNNEST", "EXISTS", "CASE", "WITH", "RECURSIVE", "INTERVAL", "ARRAY", "[", "]", "\\"]
    for _ in range(count):
        tokens = _tokens(rng.choice(seeds))
        for _ in range(rng.choice((0, 1, 1, 2, 4, 8))):
            at = rng.randrange(len(tokens) + 1)
            match rng.randrange(6):
                case 0:
                    tokens[at:at] = [rng.choice(words)]
                case 1:
                    del tokens[at : at + rng.randint(1, 2)]
                case 2 if at < len(tokens):
                    tokens[at] = rng.choice(words)
                case 3 if at < len(tokens):
                    tokens[at:at] = [tokens[at]]
                case 4:
                    other = rng.choice(seeds)
                    tokens[at:at] = ["(", *other.split(), ")"]
                case _:
                    rng.shuffle(tokens[at : at + 3])
        yield " ".join(tokens)


SPECIAL_SQL: tuple[str, ...] = (
    "",
    ";",
    ";;;",
    "--",
    "/* /* */",
    "'",
    '"',
    "\x00",
    "SELECT " + "(" * 400 + "1" + ")" * 400,
    "SELECT " + "(" * 20_000,
    "SELECT " + "NOT " * 3_000 + "TRUE",
    "SELECT " + "- " * 3_000 + "1",
    "SELECT " + " + ".join(["1"] * 2_000),
    "SELECT " + " || ".join(["'a'"] * 1_000),
    "SELECT * FROM R WHERE " + " OR ".join(["A = 1"] * 1_500),
    "SELECT * FROM R WHERE A IN (" + ", ".join(map(str, range(20_000))) + ")",
    "SELECT " + "CASE WHEN TRUE THEN " * 300 + "1" + " END" * 300,
    "SELECT * FROM " + "(SELECT * FROM " * 200 + "R" + ") AS x" * 200,
    "SELECT '" + "x" * 3_000_000 + "'",
    "SELECT " + "9" * 5_000,
    "SELECT 1e" + "9" * 50,
    "SELECT " + ", ".join(f"{i} AS c{i}" for i in range(3_000)),
    "INSERT INTO R VALUES " + ", ".join("(1, 'a')" for _ in range(3_000)),
    "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 100) SELECT max(n) FROM t",
    "SELECT X.A FROM R AS X, R AS Y, R AS Z WHERE X.A + Y.A = Z.A",
    "SELECT repeat('x', 100000000)",
    "SELECT * FROM read_csv('/etc/passwd')",
    "COPY R TO '/tmp/f1-fuzz.csv'",
    "ATTACH '/tmp/f1-fuzz.db'",
    "PRAGMA database_list",
    "INSTALL httpfs",
    "SET memory_limit = '1GB'",
    "CALL pragma_version()",
    "EXPLAIN EXPLAIN SELECT 1",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM information_schema.tables",
    "SELECT getenv('HOME')",
    "CREATE TABLE " + "t" * 2_000 + " (A INT64, PRIMARY KEY (A))",
    "CREATE TABLE f1_x (A INT64, PRIMARY KEY (A))",
    "CREATE TABLE Loop (A INT64, PRIMARY KEY (A)) INTERLEAVE IN PARENT Loop",
    "DROP DATABASE default",
    "SELECT A FROM R AS OF TIMESTAMP '2200-01-01'",
    "SELECT A FROM R AS OF TIMESTAMP '1000-01-01'",
)


async def with_deadline(what: str, seconds: float, work: Awaitable[T]) -> T:
    """Await something that must end. Raises AssertionError naming it."""
    try:
        return await asyncio.wait_for(work, seconds)
    except TimeoutError:
        raise AssertionError(f"{what} does not end") from None
