"""The key-value client of the storage tier's workloads over tables, by SQL and by key, in every kind of transaction.

A key ``b"flat:x"`` is the row x of table Flat, ``b"wide:x"`` of Wide, ``b"3:x"`` that of Item below root row 3. Which
statements and which kind of transaction serve an operation is drawn each time.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import f1
from f1.nosql import Read, table_read
from f1.results import ResultSet, dicts_of
from f1.servers import Resend
from f1.transactions import OptimisticTransaction, Retries, Transaction, begin
from f1.values import encode_params
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from spanstore.testing.workloads.base import Absent, Condition, KvTx, KvWrite

DIRECTORIES = 4
"""Root rows of Item: 0 to 3."""

DDL = """
CREATE TABLE Flat (K STRING NOT NULL, V BYTES, PRIMARY KEY (K));
CREATE UNIQUE INDEX FlatByV ON Flat (V);
CREATE TABLE Wide (K STRING NOT NULL, V BYTES, Extra STRING DEFAULT 'x', PRIMARY KEY (K));
CREATE INDEX WideByV ON Wide (V, Extra);
CREATE TABLE Dir (D INT64 NOT NULL, Note STRING, PRIMARY KEY (D));
CREATE TABLE Item (D INT64 NOT NULL, K STRING NOT NULL, V BYTES, PRIMARY KEY (D, K))
  INTERLEAVE IN PARENT Dir ON DELETE CASCADE;
CREATE LOCAL INDEX ItemByV ON Item (D, V);
CREATE INDEX ItemEverywhere ON Item (V);
CREATE TABLE Counter (Id INT64 NOT NULL, N INT64 NOT NULL, PRIMARY KEY (Id), CONSTRAINT Positive CHECK (N >= 0));
CREATE INDEX CounterByN ON Counter (N);
"""

TABLES = ("Flat", "Wide", "Item")
ROOTS = ("Flat", "Wide", "Dir", "Counter")

_INDEXES = {"Flat": ("FlatByV",), "Wide": ("WideByV",), "Item": ("ItemByV", "ItemEverywhere")}
_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where a key lives: a table and a primary key."""

    table: str
    key: tuple[Any, ...]


def place_of(key: bytes) -> Place:
    """Return the row of a key."""
    head, _, name = key.decode().partition(":")
    if head in ("flat", "wide"):
        return Place(head.title(), (name,))
    return Place("Item", (int(head), name))


def key_of(table: str, row: Mapping[str, Any]) -> bytes:
    """Return the key of a row."""
    head = str(row["D"]) if table == "Item" else table.lower()
    return f"{head}:{row['K']}".encode()


def keys_for(count: int, *, start: int = 0) -> list[bytes]:
    """Return keys in all tables and several directories."""
    heads = ("flat", "0", "wide", "1", "2", "3")
    return [f"{heads[i % len(heads)]}:k{i}".encode() for i in range(start, start + count)]


def _row(write: KvWrite) -> dict[str, Any]:
    place = place_of(write.key)
    columns = ("D", "K") if place.table == "Item" else ("K",)
    return {**dict(zip(columns, place.key, strict=True)), "V": write.value}


def _by_table(keys: Iterable[bytes]) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    for key in keys:
        found.setdefault(place_of(key).table, []).append(key)
    return dict(sorted(found.items()))


def select(keys: Sequence[bytes], *, for_update: bool = False) -> tuple[str, list[Any]]:
    """Return a query for the rows of keys of one table and its parameters."""
    (table,) = _by_table(keys)
    places = [place_of(key) for key in keys]
    lock = " FOR UPDATE" if for_update else ""
    if table == "Item":
        tests = " OR ".join("(D = ? AND K = ?)" for _ in places)
        return f"SELECT D, K, V FROM Item WHERE {tests}{lock}", [value for p in places for value in p.key]
    marks = ", ".join("?" for _ in places)
    return f"SELECT K, V FROM {table} WHERE K IN ({marks}){lock}", [p.key[0] for p in places]


def _union(keys: Sequence[bytes], *, everything: bool = False) -> tuple[str, list[Any]]:
    """Return one query over all tables; ``everything``: it reads whole tables."""
    parts, params = [], []
    for table, own in _by_table(keys).items():
        text, values = select(own)
        text = text.split(" WHERE ")[0] if everything else text
        columns = "D, K, V" if table == "Item" else "NULL AS D, K, V"
        parts.append(f"SELECT '{table}' AS T, {columns} FROM ({text}) AS part_{table}")
        params += [] if everything else values
    return " UNION ALL ".join(parts), params


class F1Tx:
    """A :class:`~spanstore.testing.workloads.base.KvTx` over a transaction of the client library."""

    def __init__(self, tx: Transaction, rng: random.Random, style: str) -> None:
        self._tx = tx
        self._rng = rng
        self._style = style
        self._pending: dict[bytes, KvWrite] = {}

    async def read(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read rows, with this transaction's own writes."""
        await self.flush()
        found: dict[bytes, bytes | None] = {}
        if self._use_sql():
            for table, own in _by_table(keys).items():
                sql, params = select(own, for_update=self._tx.kind == "pessimistic" and self._rng.random() < 0.3)
                columns = ("D", "K", "V") if table == "Item" else ("K", "V")
                for values in await (await self._tx.execute(sql, params)).fetchall():
                    row = dict(zip(columns, values, strict=True))
                    found[key_of(table, row)] = row["V"]
        else:
            reads = _reads(keys)
            for read, rows in zip(reads, await self._tx.read_many(reads), strict=True):
                found |= {key_of(read.table, row): row["V"] for row in rows}
        return [found.get(key) for key in keys]

    def write(self, key: bytes, value: bytes | None) -> None:
        """Write a row before the next read or the commit; None deletes it."""
        self._pending[key] = KvWrite(key, value)

    async def flush(self) -> None:
        """Hand the writes to the transaction."""
        pending, self._pending = self._pending, {}
        for write in pending.values():
            if self._use_sql():
                await self._write_sql(write)
            elif write.value is None:
                place = place_of(write.key)
                await self._tx.delete(place.table, [place.key])
            else:
                await self._tx.upsert(place_of(write.key).table, _row(write))

    def _use_sql(self) -> bool:
        return self._style == "sql" or (self._style == "mixed" and self._rng.random() < 0.5)

    async def _write_sql(self, write: KvWrite) -> None:
        row = _row(write)
        value = row.pop("V")
        table = place_of(write.key).table
        where = " AND ".join(f"{name} = ?" for name in row)
        if value is None:
            await self._tx.execute(f"DELETE FROM {table} WHERE {where}", list(row.values()))
        elif self._rng.random() < 0.5:
            done = await self._tx.execute(f"UPDATE {table} SET V = ? WHERE {where}", [value, *row.values()])
            if not done.rowcount:
                await self._insert(table, {**row, "V": value}, "")
        else:
            key = ", ".join(row)
            await self._insert(table, {**row, "V": value}, f" ON CONFLICT ({key}) DO UPDATE SET V = excluded.V")

    async def _insert(self, table: str, row: Mapping[str, Any], conflict: str) -> None:
        marks = ", ".join("?" for _ in row)
        sql = f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks}){conflict}"
        await self._tx.execute(sql, list(row.values()))


def _reads(keys: Sequence[bytes]) -> list[Read]:
    return [Read(table, [place_of(key).key for key in own]) for table, own in _by_table(keys).items()]


class F1Kv:
    """A :class:`~spanstore.testing.workloads.base.KvClient` over a connection."""

    def __init__(self, conn: f1.aio.Connection, rng: random.Random) -> None:
        self.conn = conn
        self._session = conn.session
        self._rng = rng
        self._read_sets: dict[int, OptimisticTransaction] = {}

    # ------------------------------------------------------------------ reads

    async def read(self, keys: Sequence[bytes]) -> tuple[int, list[bytes | None]]:
        """Read strongly: by key, by index, by one query, by a scan of whole tables."""
        way = self._rng.choice(("key", "key", "query", "scan", "index"))
        match way:
            case "key" if len(keys) == 1 and self._rng.random() < 0.5:
                return await self._by_itself(keys[0])
            case "key":
                tx = OptimisticTransaction(self._session)
                values = await self._by_key(tx, keys)
                self._read_sets = {tx.read_ts: tx}
                return tx.read_ts, values
            case "index":
                tx = OptimisticTransaction(self._session)
                return await self._by_index(tx, keys)
            case _:
                return await self._query(keys, pb.TxnContext(kind=pb.AUTOCOMMIT), everything=way == "scan")

    async def read_at(self, ts: int, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read at ``ts``."""
        if self._rng.random() < 0.5:
            return await self._by_key(begin(self._session, "snapshot", timestamp=ts), keys)
        kind = self._rng.choice((pb.AUTOCOMMIT, pb.SNAPSHOT))
        context = pb.TxnContext(kind=kind, read_ts=ts if kind == pb.SNAPSHOT else 0)
        timestamp = 0 if kind == pb.SNAPSHOT else ts
        return (await self._query(keys, context, timestamp, everything=self._rng.random() < 0.3))[1]

    async def _by_itself(self, key: bytes) -> tuple[int, list[bytes | None]]:
        """Read a row outside of any transaction, and others at the same time, so that they travel together."""
        others = [f"{head}:k{self._rng.randrange(8)}".encode() for head in ("flat", "wide", "0", "1")]
        asked = [key, *self._rng.sample(others, self._rng.randrange(4))]
        self._rng.shuffle(asked)
        deadline = self._session.deadline()
        if self._rng.random() < 0.5:
            answers = await asyncio.gather(*(self._select(each) for each in asked))
            return answers[asked.index(key)]
        metadata = await self._session.metadata()
        messages = [table_read(metadata, read) for each in asked for read in _reads([each])]
        replies = await asyncio.gather(
            *(self._session.read(pb.Read(reads=[each], few_as_rows=True), deadline) for each in messages)
        )
        reply = replies[asked.index(key)]
        rows = dicts_of(reply.results[0], self._session)
        return reply.read_ts, [rows[0]["V"] if rows else None]

    async def _select(self, key: bytes) -> tuple[int, list[bytes | None]]:
        """Read a row by a statement that commits by itself."""
        sql, params = select([key])
        execute = pb.Execute(
            sql=sql, params=encode_params(params), txn=pb.TxnContext(kind=pb.AUTOCOMMIT), few_as_rows=True
        )
        answer = await self._session.execute(execute, self._session.deadline(), Resend.ALWAYS)
        rows = (await ResultSet(self._session, answer).read_all()).to_pylist()
        return answer[0].read_ts, [rows[0]["V"] if rows else None]

    async def _by_key(self, tx: Transaction, keys: Sequence[bytes]) -> list[bytes | None]:
        return await F1Tx(tx, self._rng, "nosql").read(keys)

    async def _by_index(self, tx: Transaction, keys: Sequence[bytes]) -> tuple[int, list[bytes | None]]:
        tables = list(_by_table(keys))
        reads = [Read(table, index=self._rng.choice(_INDEXES[table])) for table in tables]
        found: dict[bytes, bytes | None] = {}
        for table, rows in zip(tables, await tx.read_many(reads), strict=True):
            found |= {key_of(table, row): row["V"] for row in rows}
        return tx.read_ts, [found.get(key) for key in keys]

    async def _query(
        self, keys: Sequence[bytes], context: pb.TxnContext, timestamp: int = 0, *, everything: bool
    ) -> tuple[int, list[bytes | None]]:
        sql, params = _union(keys, everything=everything)
        execute = pb.Execute(sql=sql, params=encode_params(params), txn=context, timestamp=timestamp)
        execute.max_bytes = self._rng.choice((0, 100))
        deadline = self._session.deadline()
        answer = await self._session.execute(execute, deadline, Resend.ALWAYS)
        table = await ResultSet(self._session, answer).read_all()
        found = {key_of(row["T"], row): row["V"] for row in table.to_pylist()}
        return answer[0].read_ts, [found.get(key) for key in keys]

    # ------------------------------------------------------------------ transactions

    async def transact(self, fn: Callable[[KvTx], Awaitable[None]]) -> int:
        """Run ``fn`` in a transaction of some kind, again if it was aborted; 0: it has no timestamp of its own."""
        kind = self._rng.choice(("optimistic", "optimistic", "pessimistic"))
        style = self._rng.choice(("sql", "nosql", "mixed"))
        retries = Retries(self._session, kind, _TIMEOUT_S)
        while True:
            tx = begin(self._session, retries.kind, priority_ts=retries.priority_ts)
            try:
                await tx.start()
                adapted = F1Tx(tx, self._rng, style)
                await fn(adapted)
                await adapted.flush()
                wrote = tx.has_writes
                done = await tx.commit()
                return done.ts if wrote or tx.kind == "pessimistic" else tx.read_ts
            except F1Error as error:
                await tx.rollback()
                delay_s = retries.delay_s(error)
            await asyncio.sleep(delay_s)

    async def commit(self, writes: Sequence[KvWrite], conditions: Sequence[Condition] = ()) -> int:
        """Apply ``writes`` at once if all conditions hold and return the commit timestamp, else raise."""
        tx = OptimisticTransaction(self._session)
        for condition in conditions:
            tx = await self._tested(tx, condition)
        adapted = F1Tx(tx, self._rng, "nosql" if not conditions else "mixed")
        for write in writes:
            adapted.write(write.key, write.value)
        await adapted.flush()
        return (await tx.commit(_TIMEOUT_S)).ts

    async def _tested(self, tx: OptimisticTransaction, condition: Condition) -> OptimisticTransaction:
        """Let the commit of a transaction depend on a condition: what was read then goes into its read set."""
        if isinstance(condition, Absent):
            if (await F1Tx(tx, self._rng, "mixed").read([condition.key]))[0] is not None:
                raise F1Error(Code.ABORTED, "the row is there")
            return tx
        if not tx.read_ts:
            # The read set of the read itself if it has one: another server than the reader's may validate it.
            tx = self._read_sets.pop(condition.since_ts, tx)
            tx._read_ts = condition.since_ts
        await F1Tx(tx, self._rng, "mixed").read([condition.key])
        return tx

    # ------------------------------------------------------------------ the whole database

    async def rows(self, table: str) -> list[dict[str, Any]]:
        """Return all rows of a table."""
        tx = OptimisticTransaction(self._session)
        return list((await tx.read_many([Read(table)]))[0])
