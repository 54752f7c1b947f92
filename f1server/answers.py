"""What is asked of SQL and what comes of it, as values."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from f1server.access.rights import Caller
from f1server.catalog.schema import ColumnType, Kind
from f1server.catalog.statements import CreateTable
from f1server.dist.coordinator import DistributedResult
from f1server.dist.queries import Choice
from f1server.exec.engine import ColumnInfo, QueryResult
from f1server.plan.prepare import BoundQuery, Prepared
from f1server.rows.values import Value
from f1server.rows.writes import LogicalWrite
from f1server.txn.committer import CommitName
from f1server.txn.readset import ReadSetEntry

Batches = AsyncIterator[pa.RecordBatch]

# A time that another machine calls now may be as far ahead.
_AHEAD_US = 500_000


@dataclass(frozen=True, slots=True)
class SqlRequest:
    """A statement of a role, and its transaction: ``kind`` as in f1.db.TxnKind; ``handle`` names a pessimistic one.

    ``change_id`` is the client's name of the schema change that is asked for.
    """

    database: str
    sql: str = field(repr=False)
    caller: Caller
    params: tuple[Value, ...] = ()
    kind: str = "AUTOCOMMIT"
    read_ts: int = 0
    writes: tuple[LogicalWrite, ...] = ()
    schemas: Sequence[int] = ()
    """When the versions of the schema were committed under which statements of an optimistic transaction ran."""
    handle: bytes = b""
    change_id: bytes = b""
    few_as_rows: bool = False
    """A row read by its key may be answered as cells."""
    commit: CommitName | None = None
    """The statement is all of an optimistic transaction, which may be committed at once under this name."""


@dataclass(slots=True)
class SqlAnswer:
    """What a statement gave: a result that streams, and what its transaction must remember."""

    tag: str
    columns: tuple[pb.ColumnInfo, ...] = ()
    schema: pa.Schema | None = None
    batches: Batches | None = None
    rows_affected: int = 0
    read_ts: int = 0
    read_set: Sequence[ReadSetEntry] = ()
    writes: Sequence[LogicalWrite] = ()
    commit_ts: int = 0
    schema_version: int = 0
    schema_ts: int = 0
    """Of an optimistic transaction: as in ``schemas``."""
    cells: Sequence[bytes] = ()
    """The rows of the result, instead of batches."""
    says_row: bool = False
    """The statement itself says which row it writes, so that it can name its commit."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query as it was written, prepared and bound."""

    text: str
    prepared: Prepared
    bound: BoundQuery


@dataclass(frozen=True, slots=True)
class Ran:
    """A query that runs: as what, its result, why there or by which plan, and what slaves did of it."""

    bound: BoundQuery
    result: QueryResult
    choice: Choice
    done: DistributedResult | None = None


def column_type(ddl: CreateTable, column: pb.ColumnInfo) -> ColumnType:
    if column.proto_type:
        return ColumnType(Kind.PROTO, proto=column.proto_type)
    try:
        return ColumnType(Kind(column.type))
    except ValueError:
        raise ddl.at.error(
            Code.INVALID_ARGUMENT, f"column {column.name} would have the type {column.type}, which tables do not have"
        ) from None


def with_locks(bound: BoundQuery) -> BoundQuery:
    """Let every row that the query looks at join the read set."""
    return replace(bound, scans=tuple(replace(s, scan=replace(s.scan, with_locks=True)) for s in bound.scans))


def info(column: ColumnInfo) -> pb.ColumnInfo:
    return pb.ColumnInfo(
        name=column.name,
        type=column.type,
        proto_type=column.proto_type,
        nullable=column.nullable,
        scale=column.scale,
    )


def check_as_of(timestamp: int, now_us: int) -> None:
    if timestamp <= 0:
        raise F1Error(Code.INVALID_ARGUMENT, "AS OF needs a time after 1970-01-01 00:00:00 UTC: nothing is older")
    if timestamp > now_us + _AHEAD_US:
        text = f"AS OF reads the past; this time is {(timestamp - now_us) / 1e6:,.1f} s ahead"
        raise F1Error(Code.INVALID_ARGUMENT, text)
