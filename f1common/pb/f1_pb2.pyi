from f1common.pb import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TxnKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    AUTOCOMMIT: _ClassVar[TxnKind]
    OPTIMISTIC: _ClassVar[TxnKind]
    PESSIMISTIC: _ClassVar[TxnKind]
    SNAPSHOT: _ClassVar[TxnKind]
AUTOCOMMIT: TxnKind
OPTIMISTIC: TxnKind
PESSIMISTIC: TxnKind
SNAPSHOT: TxnKind

class ClientBatch(_message.Message):
    __slots__ = ("requests", "protocol_version", "token")
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[Request]
    protocol_version: int
    token: bytes
    def __init__(self, requests: _Optional[_Iterable[_Union[Request, _Mapping]]] = ..., protocol_version: _Optional[int] = ..., token: _Optional[bytes] = ...) -> None: ...

class LoginRequest(_message.Message):
    __slots__ = ("database", "client_first", "client_final", "state")
    DATABASE_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIRST_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FINAL_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    database: str
    client_first: str
    client_final: str
    state: bytes
    def __init__(self, database: _Optional[str] = ..., client_first: _Optional[str] = ..., client_final: _Optional[str] = ..., state: _Optional[bytes] = ...) -> None: ...

class LoginReply(_message.Message):
    __slots__ = ("server_first", "state", "server_final", "token", "valid_ms")
    SERVER_FIRST_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SERVER_FINAL_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    VALID_MS_FIELD_NUMBER: _ClassVar[int]
    server_first: str
    state: bytes
    server_final: str
    token: bytes
    valid_ms: int
    def __init__(self, server_first: _Optional[str] = ..., state: _Optional[bytes] = ..., server_final: _Optional[str] = ..., token: _Optional[bytes] = ..., valid_ms: _Optional[int] = ...) -> None: ...

class ServerBatch(_message.Message):
    __slots__ = ("responses",)
    RESPONSES_FIELD_NUMBER: _ClassVar[int]
    responses: _containers.RepeatedCompositeFieldContainer[Response]
    def __init__(self, responses: _Optional[_Iterable[_Union[Response, _Mapping]]] = ...) -> None: ...

class Request(_message.Message):
    __slots__ = ("id", "timeout_ms", "database", "execute", "fetch", "close_cursor", "read", "commit", "begin", "end", "outcome", "apply_schema", "show_schema", "ping", "read_changes", "check", "schema_jobs", "plan_schema", "insert_rows")
    ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    DATABASE_FIELD_NUMBER: _ClassVar[int]
    EXECUTE_FIELD_NUMBER: _ClassVar[int]
    FETCH_FIELD_NUMBER: _ClassVar[int]
    CLOSE_CURSOR_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    APPLY_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    SHOW_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    READ_CHANGES_FIELD_NUMBER: _ClassVar[int]
    CHECK_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_JOBS_FIELD_NUMBER: _ClassVar[int]
    PLAN_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    INSERT_ROWS_FIELD_NUMBER: _ClassVar[int]
    id: int
    timeout_ms: int
    database: str
    execute: Execute
    fetch: Fetch
    close_cursor: CloseCursor
    read: Read
    commit: Commit
    begin: Begin
    end: End
    outcome: Outcome
    apply_schema: ApplySchema
    show_schema: ShowSchema
    ping: Ping
    read_changes: ReadChanges
    check: Check
    schema_jobs: SchemaJobs
    plan_schema: PlanSchema
    insert_rows: InsertRows
    def __init__(self, id: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., database: _Optional[str] = ..., execute: _Optional[_Union[Execute, _Mapping]] = ..., fetch: _Optional[_Union[Fetch, _Mapping]] = ..., close_cursor: _Optional[_Union[CloseCursor, _Mapping]] = ..., read: _Optional[_Union[Read, _Mapping]] = ..., commit: _Optional[_Union[Commit, _Mapping]] = ..., begin: _Optional[_Union[Begin, _Mapping]] = ..., end: _Optional[_Union[End, _Mapping]] = ..., outcome: _Optional[_Union[Outcome, _Mapping]] = ..., apply_schema: _Optional[_Union[ApplySchema, _Mapping]] = ..., show_schema: _Optional[_Union[ShowSchema, _Mapping]] = ..., ping: _Optional[_Union[Ping, _Mapping]] = ..., read_changes: _Optional[_Union[ReadChanges, _Mapping]] = ..., check: _Optional[_Union[Check, _Mapping]] = ..., schema_jobs: _Optional[_Union[SchemaJobs, _Mapping]] = ..., plan_schema: _Optional[_Union[PlanSchema, _Mapping]] = ..., insert_rows: _Optional[_Union[InsertRows, _Mapping]] = ...) -> None: ...

class Response(_message.Message):
    __slots__ = ("id", "error", "execute", "fetch", "close_cursor", "read", "commit", "begin", "end", "outcome", "apply_schema", "show_schema", "ping", "read_changes", "check", "schema_jobs", "plan_schema", "insert_rows")
    ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    EXECUTE_FIELD_NUMBER: _ClassVar[int]
    FETCH_FIELD_NUMBER: _ClassVar[int]
    CLOSE_CURSOR_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    APPLY_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    SHOW_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    READ_CHANGES_FIELD_NUMBER: _ClassVar[int]
    CHECK_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_JOBS_FIELD_NUMBER: _ClassVar[int]
    PLAN_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    INSERT_ROWS_FIELD_NUMBER: _ClassVar[int]
    id: int
    error: _types_pb2.Error
    execute: ExecuteReply
    fetch: FetchReply
    close_cursor: CloseCursorReply
    read: ReadReply
    commit: CommitReply
    begin: BeginReply
    end: EndReply
    outcome: OutcomeReply
    apply_schema: ApplySchemaReply
    show_schema: ShowSchemaReply
    ping: PingReply
    read_changes: ReadChangesReply
    check: CheckReply
    schema_jobs: SchemaJobsReply
    plan_schema: PlanSchemaReply
    insert_rows: CommitReply
    def __init__(self, id: _Optional[int] = ..., error: _Optional[_Union[_types_pb2.Error, _Mapping]] = ..., execute: _Optional[_Union[ExecuteReply, _Mapping]] = ..., fetch: _Optional[_Union[FetchReply, _Mapping]] = ..., close_cursor: _Optional[_Union[CloseCursorReply, _Mapping]] = ..., read: _Optional[_Union[ReadReply, _Mapping]] = ..., commit: _Optional[_Union[CommitReply, _Mapping]] = ..., begin: _Optional[_Union[BeginReply, _Mapping]] = ..., end: _Optional[_Union[EndReply, _Mapping]] = ..., outcome: _Optional[_Union[OutcomeReply, _Mapping]] = ..., apply_schema: _Optional[_Union[ApplySchemaReply, _Mapping]] = ..., show_schema: _Optional[_Union[ShowSchemaReply, _Mapping]] = ..., ping: _Optional[_Union[PingReply, _Mapping]] = ..., read_changes: _Optional[_Union[ReadChangesReply, _Mapping]] = ..., check: _Optional[_Union[CheckReply, _Mapping]] = ..., schema_jobs: _Optional[_Union[SchemaJobsReply, _Mapping]] = ..., plan_schema: _Optional[_Union[PlanSchemaReply, _Mapping]] = ..., insert_rows: _Optional[_Union[CommitReply, _Mapping]] = ...) -> None: ...

class LogicalWrite(_message.Message):
    __slots__ = ("kind", "table", "key", "columns", "must_exist", "schema_version", "defaults", "key_order")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        INSERT: _ClassVar[LogicalWrite.Kind]
        UPDATE: _ClassVar[LogicalWrite.Kind]
        DELETE: _ClassVar[LogicalWrite.Kind]
        UPSERT: _ClassVar[LogicalWrite.Kind]
    INSERT: LogicalWrite.Kind
    UPDATE: LogicalWrite.Kind
    DELETE: LogicalWrite.Kind
    UPSERT: LogicalWrite.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    MUST_EXIST_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    DEFAULTS_FIELD_NUMBER: _ClassVar[int]
    KEY_ORDER_FIELD_NUMBER: _ClassVar[int]
    kind: LogicalWrite.Kind
    table: str
    key: bytes
    columns: bytes
    must_exist: bool
    schema_version: int
    defaults: bytes
    key_order: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, kind: _Optional[_Union[LogicalWrite.Kind, str]] = ..., table: _Optional[str] = ..., key: _Optional[bytes] = ..., columns: _Optional[bytes] = ..., must_exist: _Optional[bool] = ..., schema_version: _Optional[int] = ..., defaults: _Optional[bytes] = ..., key_order: _Optional[_Iterable[int]] = ...) -> None: ...

class ReadSetEntry(_message.Message):
    __slots__ = ("key", "ts", "columns", "table")
    KEY_FIELD_NUMBER: _ClassVar[int]
    TS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    ts: int
    columns: _containers.RepeatedScalarFieldContainer[int]
    table: str
    def __init__(self, key: _Optional[bytes] = ..., ts: _Optional[int] = ..., columns: _Optional[_Iterable[int]] = ..., table: _Optional[str] = ...) -> None: ...

class TxnContext(_message.Message):
    __slots__ = ("kind", "read_ts", "writes", "handle", "schemas")
    KIND_FIELD_NUMBER: _ClassVar[int]
    READ_TS_FIELD_NUMBER: _ClassVar[int]
    WRITES_FIELD_NUMBER: _ClassVar[int]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    SCHEMAS_FIELD_NUMBER: _ClassVar[int]
    kind: TxnKind
    read_ts: int
    writes: _containers.RepeatedCompositeFieldContainer[LogicalWrite]
    handle: bytes
    schemas: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, kind: _Optional[_Union[TxnKind, str]] = ..., read_ts: _Optional[int] = ..., writes: _Optional[_Iterable[_Union[LogicalWrite, _Mapping]]] = ..., handle: _Optional[bytes] = ..., schemas: _Optional[_Iterable[int]] = ...) -> None: ...

class Execute(_message.Message):
    __slots__ = ("sql", "params", "txn", "max_bytes", "timestamp", "change_id", "few_as_rows", "commit_id", "created_ts", "priority_ts")
    SQL_FIELD_NUMBER: _ClassVar[int]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    TXN_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    CHANGE_ID_FIELD_NUMBER: _ClassVar[int]
    FEW_AS_ROWS_FIELD_NUMBER: _ClassVar[int]
    COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_TS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_TS_FIELD_NUMBER: _ClassVar[int]
    sql: str
    params: bytes
    txn: TxnContext
    max_bytes: int
    timestamp: int
    change_id: bytes
    few_as_rows: bool
    commit_id: bytes
    created_ts: int
    priority_ts: int
    def __init__(self, sql: _Optional[str] = ..., params: _Optional[bytes] = ..., txn: _Optional[_Union[TxnContext, _Mapping]] = ..., max_bytes: _Optional[int] = ..., timestamp: _Optional[int] = ..., change_id: _Optional[bytes] = ..., few_as_rows: _Optional[bool] = ..., commit_id: _Optional[bytes] = ..., created_ts: _Optional[int] = ..., priority_ts: _Optional[int] = ...) -> None: ...

class ColumnInfo(_message.Message):
    __slots__ = ("name", "type", "proto_type", "nullable", "scale")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    PROTO_TYPE_FIELD_NUMBER: _ClassVar[int]
    NULLABLE_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: str
    proto_type: str
    nullable: bool
    scale: int
    def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ..., proto_type: _Optional[str] = ..., nullable: _Optional[bool] = ..., scale: _Optional[int] = ...) -> None: ...

class ExecuteReply(_message.Message):
    __slots__ = ("columns", "arrow", "cursor", "rows_affected", "tag", "read_ts", "read_set", "writes", "commit_ts", "schema_version", "rows", "schema_ts")
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    ARROW_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    ROWS_AFFECTED_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    READ_TS_FIELD_NUMBER: _ClassVar[int]
    READ_SET_FIELD_NUMBER: _ClassVar[int]
    WRITES_FIELD_NUMBER: _ClassVar[int]
    COMMIT_TS_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_TS_FIELD_NUMBER: _ClassVar[int]
    columns: _containers.RepeatedCompositeFieldContainer[ColumnInfo]
    arrow: bytes
    cursor: bytes
    rows_affected: int
    tag: str
    read_ts: int
    read_set: _containers.RepeatedCompositeFieldContainer[ReadSetEntry]
    writes: _containers.RepeatedCompositeFieldContainer[LogicalWrite]
    commit_ts: int
    schema_version: int
    rows: _containers.RepeatedScalarFieldContainer[bytes]
    schema_ts: int
    def __init__(self, columns: _Optional[_Iterable[_Union[ColumnInfo, _Mapping]]] = ..., arrow: _Optional[bytes] = ..., cursor: _Optional[bytes] = ..., rows_affected: _Optional[int] = ..., tag: _Optional[str] = ..., read_ts: _Optional[int] = ..., read_set: _Optional[_Iterable[_Union[ReadSetEntry, _Mapping]]] = ..., writes: _Optional[_Iterable[_Union[LogicalWrite, _Mapping]]] = ..., commit_ts: _Optional[int] = ..., schema_version: _Optional[int] = ..., rows: _Optional[_Iterable[bytes]] = ..., schema_ts: _Optional[int] = ...) -> None: ...

class Fetch(_message.Message):
    __slots__ = ("cursor", "max_bytes")
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    cursor: bytes
    max_bytes: int
    def __init__(self, cursor: _Optional[bytes] = ..., max_bytes: _Optional[int] = ...) -> None: ...

class FetchReply(_message.Message):
    __slots__ = ("arrow", "more")
    ARROW_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    arrow: bytes
    more: bool
    def __init__(self, arrow: _Optional[bytes] = ..., more: _Optional[bool] = ...) -> None: ...

class CloseCursor(_message.Message):
    __slots__ = ("cursor",)
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    cursor: bytes
    def __init__(self, cursor: _Optional[bytes] = ...) -> None: ...

class CloseCursorReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class KeySet(_message.Message):
    __slots__ = ("keys", "prefixes", "ranges", "all")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    PREFIXES_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    prefixes: _containers.RepeatedScalarFieldContainer[bytes]
    ranges: _containers.RepeatedCompositeFieldContainer[_types_pb2.KeyRange]
    all: bool
    def __init__(self, keys: _Optional[_Iterable[bytes]] = ..., prefixes: _Optional[_Iterable[bytes]] = ..., ranges: _Optional[_Iterable[_Union[_types_pb2.KeyRange, _Mapping]]] = ..., all: _Optional[bool] = ...) -> None: ...

class TableRead(_message.Message):
    __slots__ = ("table", "columns", "keys", "index", "limit", "reverse", "exclusive", "key_columns")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    REVERSE_FIELD_NUMBER: _ClassVar[int]
    EXCLUSIVE_FIELD_NUMBER: _ClassVar[int]
    KEY_COLUMNS_FIELD_NUMBER: _ClassVar[int]
    table: str
    columns: _containers.RepeatedScalarFieldContainer[str]
    keys: KeySet
    index: str
    limit: int
    reverse: bool
    exclusive: bool
    key_columns: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, table: _Optional[str] = ..., columns: _Optional[_Iterable[str]] = ..., keys: _Optional[_Union[KeySet, _Mapping]] = ..., index: _Optional[str] = ..., limit: _Optional[int] = ..., reverse: _Optional[bool] = ..., exclusive: _Optional[bool] = ..., key_columns: _Optional[_Iterable[int]] = ...) -> None: ...

class Read(_message.Message):
    __slots__ = ("reads", "txn", "timestamp", "few_as_rows")
    READS_FIELD_NUMBER: _ClassVar[int]
    TXN_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    FEW_AS_ROWS_FIELD_NUMBER: _ClassVar[int]
    reads: _containers.RepeatedCompositeFieldContainer[TableRead]
    txn: TxnContext
    timestamp: int
    few_as_rows: bool
    def __init__(self, reads: _Optional[_Iterable[_Union[TableRead, _Mapping]]] = ..., txn: _Optional[_Union[TxnContext, _Mapping]] = ..., timestamp: _Optional[int] = ..., few_as_rows: _Optional[bool] = ...) -> None: ...

class TableRows(_message.Message):
    __slots__ = ("columns", "arrow", "rows")
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    ARROW_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    columns: _containers.RepeatedCompositeFieldContainer[ColumnInfo]
    arrow: bytes
    rows: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, columns: _Optional[_Iterable[_Union[ColumnInfo, _Mapping]]] = ..., arrow: _Optional[bytes] = ..., rows: _Optional[_Iterable[bytes]] = ...) -> None: ...

class ReadReply(_message.Message):
    __slots__ = ("results", "read_ts", "read_set", "schema_version", "schema_ts")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    READ_TS_FIELD_NUMBER: _ClassVar[int]
    READ_SET_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_TS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[TableRows]
    read_ts: int
    read_set: _containers.RepeatedCompositeFieldContainer[ReadSetEntry]
    schema_version: int
    schema_ts: int
    def __init__(self, results: _Optional[_Iterable[_Union[TableRows, _Mapping]]] = ..., read_ts: _Optional[int] = ..., read_set: _Optional[_Iterable[_Union[ReadSetEntry, _Mapping]]] = ..., schema_version: _Optional[int] = ..., schema_ts: _Optional[int] = ...) -> None: ...

class Commit(_message.Message):
    __slots__ = ("writes", "read_set", "read_ts", "commit_id", "created_ts", "priority_ts", "schemas")
    WRITES_FIELD_NUMBER: _ClassVar[int]
    READ_SET_FIELD_NUMBER: _ClassVar[int]
    READ_TS_FIELD_NUMBER: _ClassVar[int]
    COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_TS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_TS_FIELD_NUMBER: _ClassVar[int]
    SCHEMAS_FIELD_NUMBER: _ClassVar[int]
    writes: _containers.RepeatedCompositeFieldContainer[LogicalWrite]
    read_set: _containers.RepeatedCompositeFieldContainer[ReadSetEntry]
    read_ts: int
    commit_id: bytes
    created_ts: int
    priority_ts: int
    schemas: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, writes: _Optional[_Iterable[_Union[LogicalWrite, _Mapping]]] = ..., read_set: _Optional[_Iterable[_Union[ReadSetEntry, _Mapping]]] = ..., read_ts: _Optional[int] = ..., commit_id: _Optional[bytes] = ..., created_ts: _Optional[int] = ..., priority_ts: _Optional[int] = ..., schemas: _Optional[_Iterable[int]] = ...) -> None: ...

class InsertRows(_message.Message):
    __slots__ = ("table", "arrow", "schema_version", "commit_id", "created_ts", "priority_ts")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    ARROW_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_TS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_TS_FIELD_NUMBER: _ClassVar[int]
    table: str
    arrow: bytes
    schema_version: int
    commit_id: bytes
    created_ts: int
    priority_ts: int
    def __init__(self, table: _Optional[str] = ..., arrow: _Optional[bytes] = ..., schema_version: _Optional[int] = ..., commit_id: _Optional[bytes] = ..., created_ts: _Optional[int] = ..., priority_ts: _Optional[int] = ...) -> None: ...

class CommitReply(_message.Message):
    __slots__ = ("commit_ts", "rows_affected")
    COMMIT_TS_FIELD_NUMBER: _ClassVar[int]
    ROWS_AFFECTED_FIELD_NUMBER: _ClassVar[int]
    commit_ts: int
    rows_affected: int
    def __init__(self, commit_ts: _Optional[int] = ..., rows_affected: _Optional[int] = ...) -> None: ...

class Begin(_message.Message):
    __slots__ = ("kind", "priority_ts")
    KIND_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_TS_FIELD_NUMBER: _ClassVar[int]
    kind: TxnKind
    priority_ts: int
    def __init__(self, kind: _Optional[_Union[TxnKind, str]] = ..., priority_ts: _Optional[int] = ...) -> None: ...

class BeginReply(_message.Message):
    __slots__ = ("handle", "read_ts", "priority_ts")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    READ_TS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_TS_FIELD_NUMBER: _ClassVar[int]
    handle: bytes
    read_ts: int
    priority_ts: int
    def __init__(self, handle: _Optional[bytes] = ..., read_ts: _Optional[int] = ..., priority_ts: _Optional[int] = ...) -> None: ...

class End(_message.Message):
    __slots__ = ("handle", "commit", "writes")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    WRITES_FIELD_NUMBER: _ClassVar[int]
    handle: bytes
    commit: bool
    writes: _containers.RepeatedCompositeFieldContainer[LogicalWrite]
    def __init__(self, handle: _Optional[bytes] = ..., commit: _Optional[bool] = ..., writes: _Optional[_Iterable[_Union[LogicalWrite, _Mapping]]] = ...) -> None: ...

class EndReply(_message.Message):
    __slots__ = ("commit_ts",)
    COMMIT_TS_FIELD_NUMBER: _ClassVar[int]
    commit_ts: int
    def __init__(self, commit_ts: _Optional[int] = ...) -> None: ...

class Outcome(_message.Message):
    __slots__ = ("commit_id", "created_ts", "first_write", "statement")
    COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_TS_FIELD_NUMBER: _ClassVar[int]
    FIRST_WRITE_FIELD_NUMBER: _ClassVar[int]
    STATEMENT_FIELD_NUMBER: _ClassVar[int]
    commit_id: bytes
    created_ts: int
    first_write: LogicalWrite
    statement: Execute
    def __init__(self, commit_id: _Optional[bytes] = ..., created_ts: _Optional[int] = ..., first_write: _Optional[_Union[LogicalWrite, _Mapping]] = ..., statement: _Optional[_Union[Execute, _Mapping]] = ...) -> None: ...

class OutcomeReply(_message.Message):
    __slots__ = ("committed", "commit_ts", "tag")
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    COMMIT_TS_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    committed: bool
    commit_ts: int
    tag: str
    def __init__(self, committed: _Optional[bool] = ..., commit_ts: _Optional[int] = ..., tag: _Optional[str] = ...) -> None: ...

class SourceFile(_message.Message):
    __slots__ = ("name", "text")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    name: str
    text: str
    def __init__(self, name: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class ApplySchema(_message.Message):
    __slots__ = ("files", "dry_run", "allow_data_loss", "change_id")
    FILES_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    ALLOW_DATA_LOSS_FIELD_NUMBER: _ClassVar[int]
    CHANGE_ID_FIELD_NUMBER: _ClassVar[int]
    files: _containers.RepeatedCompositeFieldContainer[SourceFile]
    dry_run: bool
    allow_data_loss: bool
    change_id: bytes
    def __init__(self, files: _Optional[_Iterable[_Union[SourceFile, _Mapping]]] = ..., dry_run: _Optional[bool] = ..., allow_data_loss: _Optional[bool] = ..., change_id: _Optional[bytes] = ...) -> None: ...

class SchemaStep(_message.Message):
    __slots__ = ("what", "loses_data")
    WHAT_FIELD_NUMBER: _ClassVar[int]
    LOSES_DATA_FIELD_NUMBER: _ClassVar[int]
    what: str
    loses_data: bool
    def __init__(self, what: _Optional[str] = ..., loses_data: _Optional[bool] = ...) -> None: ...

class ApplySchemaReply(_message.Message):
    __slots__ = ("steps", "version", "warnings")
    STEPS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    steps: _containers.RepeatedCompositeFieldContainer[SchemaStep]
    version: int
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, steps: _Optional[_Iterable[_Union[SchemaStep, _Mapping]]] = ..., version: _Optional[int] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class PlanSchema(_message.Message):
    __slots__ = ("files", "data", "part", "only")
    FILES_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    ONLY_FIELD_NUMBER: _ClassVar[int]
    files: _containers.RepeatedCompositeFieldContainer[SourceFile]
    data: bool
    part: CheckPart
    only: _containers.RepeatedCompositeFieldContainer[Fingerprints]
    def __init__(self, files: _Optional[_Iterable[_Union[SourceFile, _Mapping]]] = ..., data: _Optional[bool] = ..., part: _Optional[_Union[CheckPart, _Mapping]] = ..., only: _Optional[_Iterable[_Union[Fingerprints, _Mapping]]] = ...) -> None: ...

class PlanSchemaReply(_message.Message):
    __slots__ = ("schema_version", "steps", "warnings", "holders", "timestamp", "pin", "parts", "tables", "findings", "fingerprints", "rows", "rows_per_s", "before", "after")
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    HOLDERS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    PIN_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINTS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    ROWS_PER_S_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    schema_version: int
    steps: _containers.RepeatedCompositeFieldContainer[PlannedStep]
    warnings: _containers.RepeatedScalarFieldContainer[str]
    holders: _containers.RepeatedCompositeFieldContainer[SchemaHolder]
    timestamp: int
    pin: str
    parts: _containers.RepeatedCompositeFieldContainer[CheckPart]
    tables: _containers.RepeatedCompositeFieldContainer[TableFigures]
    findings: _containers.RepeatedCompositeFieldContainer[CheckFindings]
    fingerprints: _containers.RepeatedCompositeFieldContainer[Fingerprints]
    rows: _containers.RepeatedCompositeFieldContainer[RowBehind]
    rows_per_s: int
    before: _containers.RepeatedCompositeFieldContainer[SourceFile]
    after: _containers.RepeatedCompositeFieldContainer[SourceFile]
    def __init__(self, schema_version: _Optional[int] = ..., steps: _Optional[_Iterable[_Union[PlannedStep, _Mapping]]] = ..., warnings: _Optional[_Iterable[str]] = ..., holders: _Optional[_Iterable[_Union[SchemaHolder, _Mapping]]] = ..., timestamp: _Optional[int] = ..., pin: _Optional[str] = ..., parts: _Optional[_Iterable[_Union[CheckPart, _Mapping]]] = ..., tables: _Optional[_Iterable[_Union[TableFigures, _Mapping]]] = ..., findings: _Optional[_Iterable[_Union[CheckFindings, _Mapping]]] = ..., fingerprints: _Optional[_Iterable[_Union[Fingerprints, _Mapping]]] = ..., rows: _Optional[_Iterable[_Union[RowBehind, _Mapping]]] = ..., rows_per_s: _Optional[int] = ..., before: _Optional[_Iterable[_Union[SourceFile, _Mapping]]] = ..., after: _Optional[_Iterable[_Union[SourceFile, _Mapping]]] = ...) -> None: ...

class PlannedStep(_message.Message):
    __slots__ = ("moves", "at_once", "work")
    MOVES_FIELD_NUMBER: _ClassVar[int]
    AT_ONCE_FIELD_NUMBER: _ClassVar[int]
    WORK_FIELD_NUMBER: _ClassVar[int]
    moves: _containers.RepeatedCompositeFieldContainer[ElementMove]
    at_once: _containers.RepeatedScalarFieldContainer[str]
    work: _containers.RepeatedCompositeFieldContainer[PlannedWork]
    def __init__(self, moves: _Optional[_Iterable[_Union[ElementMove, _Mapping]]] = ..., at_once: _Optional[_Iterable[str]] = ..., work: _Optional[_Iterable[_Union[PlannedWork, _Mapping]]] = ...) -> None: ...

class ElementMove(_message.Message):
    __slots__ = ("element", "before", "after")
    ELEMENT_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    element: str
    before: str
    after: str
    def __init__(self, element: _Optional[str] = ..., before: _Optional[str] = ..., after: _Optional[str] = ...) -> None: ...

class PlannedWork(_message.Message):
    __slots__ = ("table_id", "table", "elements", "rows", "bytes", "passes")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    ELEMENTS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    PASSES_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    table: str
    elements: _containers.RepeatedCompositeFieldContainer[ElementWork]
    rows: int
    bytes: int
    passes: int
    def __init__(self, table_id: _Optional[int] = ..., table: _Optional[str] = ..., elements: _Optional[_Iterable[_Union[ElementWork, _Mapping]]] = ..., rows: _Optional[int] = ..., bytes: _Optional[int] = ..., passes: _Optional[int] = ...) -> None: ...

class ElementWork(_message.Message):
    __slots__ = ("element", "work")
    ELEMENT_FIELD_NUMBER: _ClassVar[int]
    WORK_FIELD_NUMBER: _ClassVar[int]
    element: str
    work: str
    def __init__(self, element: _Optional[str] = ..., work: _Optional[str] = ...) -> None: ...

class SchemaHolder(_message.Message):
    __slots__ = ("server", "address", "version", "lease_ms")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    server: str
    address: str
    version: int
    lease_ms: int
    def __init__(self, server: _Optional[str] = ..., address: _Optional[str] = ..., version: _Optional[int] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class TableFigures(_message.Message):
    __slots__ = ("table_id", "rows", "bytes", "elements")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    ELEMENTS_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    rows: int
    bytes: int
    elements: _containers.RepeatedCompositeFieldContainer[ElementCount]
    def __init__(self, table_id: _Optional[int] = ..., rows: _Optional[int] = ..., bytes: _Optional[int] = ..., elements: _Optional[_Iterable[_Union[ElementCount, _Mapping]]] = ...) -> None: ...

class ElementCount(_message.Message):
    __slots__ = ("element", "count")
    ELEMENT_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    element: str
    count: int
    def __init__(self, element: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class Fingerprints(_message.Message):
    __slots__ = ("element_id", "index_id", "fingerprints", "table", "element")
    ELEMENT_ID_FIELD_NUMBER: _ClassVar[int]
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINTS_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    ELEMENT_FIELD_NUMBER: _ClassVar[int]
    element_id: int
    index_id: int
    fingerprints: bytes
    table: str
    element: str
    def __init__(self, element_id: _Optional[int] = ..., index_id: _Optional[int] = ..., fingerprints: _Optional[bytes] = ..., table: _Optional[str] = ..., element: _Optional[str] = ...) -> None: ...

class RowBehind(_message.Message):
    __slots__ = ("element_id", "fingerprint", "whole", "key", "message")
    ELEMENT_ID_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    element_id: int
    fingerprint: bytes
    whole: bytes
    key: str
    message: str
    def __init__(self, element_id: _Optional[int] = ..., fingerprint: _Optional[bytes] = ..., whole: _Optional[bytes] = ..., key: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class ShowSchema(_message.Message):
    __slots__ = ("with_protos", "timestamp")
    WITH_PROTOS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    with_protos: bool
    timestamp: int
    def __init__(self, with_protos: _Optional[bool] = ..., timestamp: _Optional[int] = ...) -> None: ...

class ShowSchemaReply(_message.Message):
    __slots__ = ("ddl", "version", "protos", "descriptor_set", "schema", "since")
    DDL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PROTOS_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTOR_SET_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    ddl: str
    version: int
    protos: _containers.RepeatedCompositeFieldContainer[SourceFile]
    descriptor_set: bytes
    schema: bytes
    since: int
    def __init__(self, ddl: _Optional[str] = ..., version: _Optional[int] = ..., protos: _Optional[_Iterable[_Union[SourceFile, _Mapping]]] = ..., descriptor_set: _Optional[bytes] = ..., schema: _Optional[bytes] = ..., since: _Optional[int] = ...) -> None: ...

class SchemaJobs(_message.Message):
    __slots__ = ("order", "number", "change_id")
    class Order(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        LIST: _ClassVar[SchemaJobs.Order]
        PAUSE: _ClassVar[SchemaJobs.Order]
        RESUME: _ClassVar[SchemaJobs.Order]
        CANCEL: _ClassVar[SchemaJobs.Order]
        FOLLOW: _ClassVar[SchemaJobs.Order]
    LIST: SchemaJobs.Order
    PAUSE: SchemaJobs.Order
    RESUME: SchemaJobs.Order
    CANCEL: SchemaJobs.Order
    FOLLOW: SchemaJobs.Order
    ORDER_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    CHANGE_ID_FIELD_NUMBER: _ClassVar[int]
    order: SchemaJobs.Order
    number: int
    change_id: bytes
    def __init__(self, order: _Optional[_Union[SchemaJobs.Order, str]] = ..., number: _Optional[int] = ..., change_id: _Optional[bytes] = ...) -> None: ...

class SchemaJobsReply(_message.Message):
    __slots__ = ("jobs", "steps", "schema_version")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[SchemaJob]
    steps: _containers.RepeatedCompositeFieldContainer[SchemaStep]
    schema_version: int
    def __init__(self, jobs: _Optional[_Iterable[_Union[SchemaJob, _Mapping]]] = ..., steps: _Optional[_Iterable[_Union[SchemaStep, _Mapping]]] = ..., schema_version: _Optional[int] = ...) -> None: ...

class SchemaJob(_message.Message):
    __slots__ = ("number", "what", "state", "owner", "step", "rows", "created_ts", "error", "no_return", "rows_total", "bytes", "left_ms", "step_number", "steps", "ended_ts", "worked_rows")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    CREATED_TS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    NO_RETURN_FIELD_NUMBER: _ClassVar[int]
    ROWS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    LEFT_MS_FIELD_NUMBER: _ClassVar[int]
    STEP_NUMBER_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    ENDED_TS_FIELD_NUMBER: _ClassVar[int]
    WORKED_ROWS_FIELD_NUMBER: _ClassVar[int]
    number: int
    what: str
    state: str
    owner: str
    step: str
    rows: int
    created_ts: int
    error: str
    no_return: bool
    rows_total: int
    bytes: int
    left_ms: int
    step_number: int
    steps: int
    ended_ts: int
    worked_rows: int
    def __init__(self, number: _Optional[int] = ..., what: _Optional[str] = ..., state: _Optional[str] = ..., owner: _Optional[str] = ..., step: _Optional[str] = ..., rows: _Optional[int] = ..., created_ts: _Optional[int] = ..., error: _Optional[str] = ..., no_return: _Optional[bool] = ..., rows_total: _Optional[int] = ..., bytes: _Optional[int] = ..., left_ms: _Optional[int] = ..., step_number: _Optional[int] = ..., steps: _Optional[int] = ..., ended_ts: _Optional[int] = ..., worked_rows: _Optional[int] = ...) -> None: ...

class Ping(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PingReply(_message.Message):
    __slots__ = ("server", "zone", "now", "version")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    server: str
    zone: str
    now: int
    version: str
    def __init__(self, server: _Optional[str] = ..., zone: _Optional[str] = ..., now: _Optional[int] = ..., version: _Optional[str] = ...) -> None: ...

class ReadChanges(_message.Message):
    __slots__ = ("table", "root_key", "after_ts", "limit")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    ROOT_KEY_FIELD_NUMBER: _ClassVar[int]
    AFTER_TS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    table: str
    root_key: bytes
    after_ts: int
    limit: int
    def __init__(self, table: _Optional[str] = ..., root_key: _Optional[bytes] = ..., after_ts: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class ReadChangesReply(_message.Message):
    __slots__ = ("batches", "resolved_ts")
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    RESOLVED_TS_FIELD_NUMBER: _ClassVar[int]
    batches: _containers.RepeatedCompositeFieldContainer[ChangeBatch]
    resolved_ts: int
    def __init__(self, batches: _Optional[_Iterable[_Union[ChangeBatch, _Mapping]]] = ..., resolved_ts: _Optional[int] = ...) -> None: ...

class ChangeBatch(_message.Message):
    __slots__ = ("root_table", "root_key", "commit_ts", "commit_id", "changes", "other_roots", "roots")
    ROOT_TABLE_FIELD_NUMBER: _ClassVar[int]
    ROOT_KEY_FIELD_NUMBER: _ClassVar[int]
    COMMIT_TS_FIELD_NUMBER: _ClassVar[int]
    COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    OTHER_ROOTS_FIELD_NUMBER: _ClassVar[int]
    ROOTS_FIELD_NUMBER: _ClassVar[int]
    root_table: str
    root_key: bytes
    commit_ts: int
    commit_id: bytes
    changes: _containers.RepeatedCompositeFieldContainer[Change]
    other_roots: _containers.RepeatedScalarFieldContainer[bytes]
    roots: int
    def __init__(self, root_table: _Optional[str] = ..., root_key: _Optional[bytes] = ..., commit_ts: _Optional[int] = ..., commit_id: _Optional[bytes] = ..., changes: _Optional[_Iterable[_Union[Change, _Mapping]]] = ..., other_roots: _Optional[_Iterable[bytes]] = ..., roots: _Optional[int] = ...) -> None: ...

class Change(_message.Message):
    __slots__ = ("kind", "table", "table_id", "key", "before", "after", "columns")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        INSERT: _ClassVar[Change.Kind]
        UPDATE: _ClassVar[Change.Kind]
        DELETE: _ClassVar[Change.Kind]
    INSERT: Change.Kind
    UPDATE: Change.Kind
    DELETE: Change.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    kind: Change.Kind
    table: str
    table_id: int
    key: bytes
    before: bytes
    after: bytes
    columns: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, kind: _Optional[_Union[Change.Kind, str]] = ..., table: _Optional[str] = ..., table_id: _Optional[int] = ..., key: _Optional[bytes] = ..., before: _Optional[bytes] = ..., after: _Optional[bytes] = ..., columns: _Optional[_Iterable[str]] = ...) -> None: ...

class Check(_message.Message):
    __slots__ = ("plan", "part", "keep", "end")
    PLAN_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    plan: CheckPlan
    part: CheckPart
    keep: str
    end: str
    def __init__(self, plan: _Optional[_Union[CheckPlan, _Mapping]] = ..., part: _Optional[_Union[CheckPart, _Mapping]] = ..., keep: _Optional[str] = ..., end: _Optional[str] = ...) -> None: ...

class CheckPlan(_message.Message):
    __slots__ = ("tables",)
    TABLES_FIELD_NUMBER: _ClassVar[int]
    tables: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, tables: _Optional[_Iterable[str]] = ...) -> None: ...

class CheckPart(_message.Message):
    __slots__ = ("kind", "start", "end", "table_id", "index_id", "keys", "timestamp", "repair", "examples")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ROWS: _ClassVar[CheckPart.Kind]
        ENTRIES: _ClassVar[CheckPart.Kind]
        STRAYS: _ClassVar[CheckPart.Kind]
        COPIES: _ClassVar[CheckPart.Kind]
    ROWS: CheckPart.Kind
    ENTRIES: CheckPart.Kind
    STRAYS: CheckPart.Kind
    COPIES: CheckPart.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    REPAIR_FIELD_NUMBER: _ClassVar[int]
    EXAMPLES_FIELD_NUMBER: _ClassVar[int]
    kind: CheckPart.Kind
    start: bytes
    end: bytes
    table_id: int
    index_id: int
    keys: int
    timestamp: int
    repair: bool
    examples: int
    def __init__(self, kind: _Optional[_Union[CheckPart.Kind, str]] = ..., start: _Optional[bytes] = ..., end: _Optional[bytes] = ..., table_id: _Optional[int] = ..., index_id: _Optional[int] = ..., keys: _Optional[int] = ..., timestamp: _Optional[int] = ..., repair: _Optional[bool] = ..., examples: _Optional[int] = ...) -> None: ...

class CheckReply(_message.Message):
    __slots__ = ("timestamp", "pin", "schema_version", "parts", "rows", "entries", "findings")
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    PIN_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    timestamp: int
    pin: str
    schema_version: int
    parts: _containers.RepeatedCompositeFieldContainer[CheckPart]
    rows: int
    entries: int
    findings: _containers.RepeatedCompositeFieldContainer[CheckFindings]
    def __init__(self, timestamp: _Optional[int] = ..., pin: _Optional[str] = ..., schema_version: _Optional[int] = ..., parts: _Optional[_Iterable[_Union[CheckPart, _Mapping]]] = ..., rows: _Optional[int] = ..., entries: _Optional[int] = ..., findings: _Optional[_Iterable[_Union[CheckFindings, _Mapping]]] = ...) -> None: ...

class CheckFindings(_message.Message):
    __slots__ = ("clause", "kind", "table", "element", "count", "repaired", "examples")
    CLAUSE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    ELEMENT_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    REPAIRED_FIELD_NUMBER: _ClassVar[int]
    EXAMPLES_FIELD_NUMBER: _ClassVar[int]
    clause: int
    kind: str
    table: str
    element: str
    count: int
    repaired: int
    examples: _containers.RepeatedCompositeFieldContainer[CheckExample]
    def __init__(self, clause: _Optional[int] = ..., kind: _Optional[str] = ..., table: _Optional[str] = ..., element: _Optional[str] = ..., count: _Optional[int] = ..., repaired: _Optional[int] = ..., examples: _Optional[_Iterable[_Union[CheckExample, _Mapping]]] = ...) -> None: ...

class CheckExample(_message.Message):
    __slots__ = ("key", "message")
    KEY_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    key: str
    message: str
    def __init__(self, key: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class RefreshSchemaRequest(_message.Message):
    __slots__ = ("database", "version")
    DATABASE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    database: str
    version: int
    def __init__(self, database: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class RefreshSchemaReply(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ("name", "zone", "version", "databases", "now", "open_cursors", "open_transactions", "storage", "pool", "timestamps", "locks")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DATABASES_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    OPEN_CURSORS_FIELD_NUMBER: _ClassVar[int]
    OPEN_TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    STORAGE_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMPS_FIELD_NUMBER: _ClassVar[int]
    LOCKS_FIELD_NUMBER: _ClassVar[int]
    name: str
    zone: str
    version: str
    databases: _containers.RepeatedCompositeFieldContainer[DatabaseStatus]
    now: int
    open_cursors: int
    open_transactions: int
    storage: _containers.RepeatedScalarFieldContainer[str]
    pool: PoolStatus
    timestamps: _containers.RepeatedScalarFieldContainer[str]
    locks: str
    def __init__(self, name: _Optional[str] = ..., zone: _Optional[str] = ..., version: _Optional[str] = ..., databases: _Optional[_Iterable[_Union[DatabaseStatus, _Mapping]]] = ..., now: _Optional[int] = ..., open_cursors: _Optional[int] = ..., open_transactions: _Optional[int] = ..., storage: _Optional[_Iterable[str]] = ..., pool: _Optional[_Union[PoolStatus, _Mapping]] = ..., timestamps: _Optional[_Iterable[str]] = ..., locks: _Optional[str] = ...) -> None: ...

class PoolStatus(_message.Message):
    __slots__ = ("master", "connected", "epoch", "version", "slaves")
    MASTER_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SLAVES_FIELD_NUMBER: _ClassVar[int]
    master: str
    connected: bool
    epoch: int
    version: int
    slaves: _containers.RepeatedCompositeFieldContainer[PoolSlave]
    def __init__(self, master: _Optional[str] = ..., connected: _Optional[bool] = ..., epoch: _Optional[int] = ..., version: _Optional[int] = ..., slaves: _Optional[_Iterable[_Union[PoolSlave, _Mapping]]] = ...) -> None: ...

class PoolSlave(_message.Message):
    __slots__ = ("name", "zone", "address", "state", "reason", "running", "version", "incarnation")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    name: str
    zone: str
    address: str
    state: str
    reason: str
    running: int
    version: str
    incarnation: int
    def __init__(self, name: _Optional[str] = ..., zone: _Optional[str] = ..., address: _Optional[str] = ..., state: _Optional[str] = ..., reason: _Optional[str] = ..., running: _Optional[int] = ..., version: _Optional[str] = ..., incarnation: _Optional[int] = ...) -> None: ...

class DatabaseStatus(_message.Message):
    __slots__ = ("database", "schema_version", "lease_end")
    DATABASE_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    LEASE_END_FIELD_NUMBER: _ClassVar[int]
    database: str
    schema_version: int
    lease_end: int
    def __init__(self, database: _Optional[str] = ..., schema_version: _Optional[int] = ..., lease_end: _Optional[int] = ...) -> None: ...
