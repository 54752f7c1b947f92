from f1common.pb import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReorganiseRequest(_message.Message):
    __slots__ = ("start", "fence_ts")
    START_FIELD_NUMBER: _ClassVar[int]
    FENCE_TS_FIELD_NUMBER: _ClassVar[int]
    start: StartWalk
    fence_ts: int
    def __init__(self, start: _Optional[_Union[StartWalk, _Mapping]] = ..., fence_ts: _Optional[int] = ...) -> None: ...

class StartWalk(_message.Message):
    __slots__ = ("protocol_version", "schema", "schema_commit_ts", "tasks", "start", "end", "cuts", "snapshot", "earlier", "fence_ts", "slowdown", "min_rate", "max_rate", "least_rate", "kind")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CHANGE: _ClassVar[StartWalk.Kind]
        VERIFY_ROWS: _ClassVar[StartWalk.Kind]
        VERIFY_ENTRIES: _ClassVar[StartWalk.Kind]
        PURGE: _ClassVar[StartWalk.Kind]
        SUM_ROWS: _ClassVar[StartWalk.Kind]
        SUM_ENTRIES: _ClassVar[StartWalk.Kind]
    CHANGE: StartWalk.Kind
    VERIFY_ROWS: StartWalk.Kind
    VERIFY_ENTRIES: StartWalk.Kind
    PURGE: StartWalk.Kind
    SUM_ROWS: StartWalk.Kind
    SUM_ENTRIES: StartWalk.Kind
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_COMMIT_TS_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    CUTS_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    EARLIER_FIELD_NUMBER: _ClassVar[int]
    FENCE_TS_FIELD_NUMBER: _ClassVar[int]
    SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    MIN_RATE_FIELD_NUMBER: _ClassVar[int]
    MAX_RATE_FIELD_NUMBER: _ClassVar[int]
    LEAST_RATE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    schema: bytes
    schema_commit_ts: int
    tasks: _containers.RepeatedCompositeFieldContainer[WalkTask]
    start: bytes
    end: bytes
    cuts: _containers.RepeatedScalarFieldContainer[bytes]
    snapshot: int
    earlier: bool
    fence_ts: int
    slowdown: float
    min_rate: float
    max_rate: float
    least_rate: float
    kind: StartWalk.Kind
    def __init__(self, protocol_version: _Optional[int] = ..., schema: _Optional[bytes] = ..., schema_commit_ts: _Optional[int] = ..., tasks: _Optional[_Iterable[_Union[WalkTask, _Mapping]]] = ..., start: _Optional[bytes] = ..., end: _Optional[bytes] = ..., cuts: _Optional[_Iterable[bytes]] = ..., snapshot: _Optional[int] = ..., earlier: _Optional[bool] = ..., fence_ts: _Optional[int] = ..., slowdown: _Optional[float] = ..., min_rate: _Optional[float] = ..., max_rate: _Optional[float] = ..., least_rate: _Optional[float] = ..., kind: _Optional[_Union[StartWalk.Kind, str]] = ...) -> None: ...

class WalkTask(_message.Message):
    __slots__ = ("kind", "table_id", "id", "name", "lock", "work")
    KIND_FIELD_NUMBER: _ClassVar[int]
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LOCK_FIELD_NUMBER: _ClassVar[int]
    WORK_FIELD_NUMBER: _ClassVar[int]
    kind: str
    table_id: int
    id: int
    name: str
    lock: int
    work: str
    def __init__(self, kind: _Optional[str] = ..., table_id: _Optional[int] = ..., id: _Optional[int] = ..., name: _Optional[str] = ..., lock: _Optional[int] = ..., work: _Optional[str] = ...) -> None: ...

class ReorganiseReply(_message.Message):
    __slots__ = ("rows", "bytes", "done", "error", "sums", "rest")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    SUMS_FIELD_NUMBER: _ClassVar[int]
    REST_FIELD_NUMBER: _ClassVar[int]
    rows: int
    bytes: int
    done: bool
    error: _types_pb2.Error
    sums: _containers.RepeatedCompositeFieldContainer[EntrySum]
    rest: WalkRest
    def __init__(self, rows: _Optional[int] = ..., bytes: _Optional[int] = ..., done: _Optional[bool] = ..., error: _Optional[_Union[_types_pb2.Error, _Mapping]] = ..., sums: _Optional[_Iterable[_Union[EntrySum, _Mapping]]] = ..., rest: _Optional[_Union[WalkRest, _Mapping]] = ...) -> None: ...

class WalkRest(_message.Message):
    __slots__ = ("start", "end", "rows", "bytes", "sums")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    SUMS_FIELD_NUMBER: _ClassVar[int]
    start: bytes
    end: bytes
    rows: int
    bytes: int
    sums: _containers.RepeatedCompositeFieldContainer[EntrySum]
    def __init__(self, start: _Optional[bytes] = ..., end: _Optional[bytes] = ..., rows: _Optional[int] = ..., bytes: _Optional[int] = ..., sums: _Optional[_Iterable[_Union[EntrySum, _Mapping]]] = ...) -> None: ...

class EntrySum(_message.Message):
    __slots__ = ("index_id", "count", "total")
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    index_id: int
    count: int
    total: int
    def __init__(self, index_id: _Optional[int] = ..., count: _Optional[int] = ..., total: _Optional[int] = ...) -> None: ...

class RunRequest(_message.Message):
    __slots__ = ("start", "go", "credit_bytes")
    START_FIELD_NUMBER: _ClassVar[int]
    GO_FIELD_NUMBER: _ClassVar[int]
    CREDIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    start: Start
    go: Go
    credit_bytes: int
    def __init__(self, start: _Optional[_Union[Start, _Mapping]] = ..., go: _Optional[_Union[Go, _Mapping]] = ..., credit_bytes: _Optional[int] = ...) -> None: ...

class RunReply(_message.Message):
    __slots__ = ("rows", "ready", "done", "failed", "beat")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    BEAT_FIELD_NUMBER: _ClassVar[int]
    rows: _containers.RepeatedCompositeFieldContainer[Rows]
    ready: Ready
    done: Done
    failed: Failed
    beat: bool
    def __init__(self, rows: _Optional[_Iterable[_Union[Rows, _Mapping]]] = ..., ready: _Optional[_Union[Ready, _Mapping]] = ..., done: _Optional[_Union[Done, _Mapping]] = ..., failed: _Optional[_Union[Failed, _Mapping]] = ..., beat: _Optional[bool] = ...) -> None: ...

class Start(_message.Message):
    __slots__ = ("protocol_version", "query", "attempt", "worker", "workers", "schema", "schema_commit_ts", "timestamp", "timeout_ms", "parts", "clips", "window_bytes", "collect")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_COMMIT_TS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    CLIPS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_BYTES_FIELD_NUMBER: _ClassVar[int]
    COLLECT_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    query: bytes
    attempt: int
    worker: int
    workers: _containers.RepeatedScalarFieldContainer[str]
    schema: bytes
    schema_commit_ts: int
    timestamp: int
    timeout_ms: int
    parts: _containers.RepeatedCompositeFieldContainer[Part]
    clips: _containers.RepeatedCompositeFieldContainer[Clip]
    window_bytes: int
    collect: bool
    def __init__(self, protocol_version: _Optional[int] = ..., query: _Optional[bytes] = ..., attempt: _Optional[int] = ..., worker: _Optional[int] = ..., workers: _Optional[_Iterable[str]] = ..., schema: _Optional[bytes] = ..., schema_commit_ts: _Optional[int] = ..., timestamp: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., parts: _Optional[_Iterable[_Union[Part, _Mapping]]] = ..., clips: _Optional[_Iterable[_Union[Clip, _Mapping]]] = ..., window_bytes: _Optional[int] = ..., collect: _Optional[bool] = ...) -> None: ...

class Go(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Ready(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Done(_message.Message):
    __slots__ = ("parts", "read_set")
    PARTS_FIELD_NUMBER: _ClassVar[int]
    READ_SET_FIELD_NUMBER: _ClassVar[int]
    parts: _containers.RepeatedCompositeFieldContainer[PartStats]
    read_set: _containers.RepeatedCompositeFieldContainer[ReadRow]
    def __init__(self, parts: _Optional[_Iterable[_Union[PartStats, _Mapping]]] = ..., read_set: _Optional[_Iterable[_Union[ReadRow, _Mapping]]] = ...) -> None: ...

class ReadRow(_message.Message):
    __slots__ = ("key", "ts", "table", "columns")
    KEY_FIELD_NUMBER: _ClassVar[int]
    TS_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    ts: int
    table: str
    columns: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, key: _Optional[bytes] = ..., ts: _Optional[int] = ..., table: _Optional[str] = ..., columns: _Optional[_Iterable[int]] = ...) -> None: ...

class Failed(_message.Message):
    __slots__ = ("error", "blamed")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    BLAMED_FIELD_NUMBER: _ClassVar[int]
    error: _types_pb2.Error
    blamed: int
    def __init__(self, error: _Optional[_Union[_types_pb2.Error, _Mapping]] = ..., blamed: _Optional[int] = ...) -> None: ...

class ExchangeRequest(_message.Message):
    __slots__ = ("hello", "rows")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    rows: _containers.RepeatedCompositeFieldContainer[Rows]
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., rows: _Optional[_Iterable[_Union[Rows, _Mapping]]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol_version", "query", "attempt", "from_worker", "to_worker")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    FROM_WORKER_FIELD_NUMBER: _ClassVar[int]
    TO_WORKER_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    query: bytes
    attempt: int
    from_worker: int
    to_worker: int
    def __init__(self, protocol_version: _Optional[int] = ..., query: _Optional[bytes] = ..., attempt: _Optional[int] = ..., from_worker: _Optional[int] = ..., to_worker: _Optional[int] = ...) -> None: ...

class ExchangeReply(_message.Message):
    __slots__ = ("credit_bytes",)
    CREDIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    credit_bytes: int
    def __init__(self, credit_bytes: _Optional[int] = ...) -> None: ...

class Rows(_message.Message):
    __slots__ = ("consumer", "relation", "schema", "batch", "last")
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    RELATION_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    consumer: int
    relation: str
    schema: bytes
    batch: bytes
    last: bool
    def __init__(self, consumer: _Optional[int] = ..., relation: _Optional[str] = ..., schema: _Optional[bytes] = ..., batch: _Optional[bytes] = ..., last: _Optional[bool] = ...) -> None: ...

class Part(_message.Message):
    __slots__ = ("id", "sql", "workers", "scans", "inputs", "outputs", "bound", "functions")
    class Workers(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ALL: _ClassVar[Part.Workers]
        ONE: _ClassVar[Part.Workers]
        SERVER: _ClassVar[Part.Workers]
    ALL: Part.Workers
    ONE: Part.Workers
    SERVER: Part.Workers
    class InputsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class BoundEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Value, _Mapping]] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    SQL_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    SCANS_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    BOUND_FIELD_NUMBER: _ClassVar[int]
    FUNCTIONS_FIELD_NUMBER: _ClassVar[int]
    id: int
    sql: str
    workers: Part.Workers
    scans: _containers.RepeatedCompositeFieldContainer[PartScan]
    inputs: _containers.ScalarMap[str, int]
    outputs: _containers.RepeatedCompositeFieldContainer[Output]
    bound: _containers.MessageMap[str, Value]
    functions: _containers.RepeatedCompositeFieldContainer[ProtoFunction]
    def __init__(self, id: _Optional[int] = ..., sql: _Optional[str] = ..., workers: _Optional[_Union[Part.Workers, str]] = ..., scans: _Optional[_Iterable[_Union[PartScan, _Mapping]]] = ..., inputs: _Optional[_Mapping[str, int]] = ..., outputs: _Optional[_Iterable[_Union[Output, _Mapping]]] = ..., bound: _Optional[_Mapping[str, Value]] = ..., functions: _Optional[_Iterable[_Union[ProtoFunction, _Mapping]]] = ...) -> None: ...

class Output(_message.Message):
    __slots__ = ("consumer", "relation", "spread", "keys")
    class Spread(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        HASH: _ClassVar[Output.Spread]
        BROADCAST: _ClassVar[Output.Spread]
        GATHER: _ClassVar[Output.Spread]
        KEEP: _ClassVar[Output.Spread]
    HASH: Output.Spread
    BROADCAST: Output.Spread
    GATHER: Output.Spread
    KEEP: Output.Spread
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    RELATION_FIELD_NUMBER: _ClassVar[int]
    SPREAD_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    consumer: int
    relation: str
    spread: Output.Spread
    keys: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, consumer: _Optional[int] = ..., relation: _Optional[str] = ..., spread: _Optional[_Union[Output.Spread, str]] = ..., keys: _Optional[_Iterable[str]] = ...) -> None: ...

class Clip(_message.Message):
    __slots__ = ("part", "relation", "range")
    PART_FIELD_NUMBER: _ClassVar[int]
    RELATION_FIELD_NUMBER: _ClassVar[int]
    RANGE_FIELD_NUMBER: _ClassVar[int]
    part: int
    relation: str
    range: _types_pb2.KeyRange
    def __init__(self, part: _Optional[int] = ..., relation: _Optional[str] = ..., range: _Optional[_Union[_types_pb2.KeyRange, _Mapping]] = ...) -> None: ...

class PartScan(_message.Message):
    __slots__ = ("relation", "names", "scan", "alias", "lookup", "views", "divided")
    RELATION_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    SCAN_FIELD_NUMBER: _ClassVar[int]
    ALIAS_FIELD_NUMBER: _ClassVar[int]
    LOOKUP_FIELD_NUMBER: _ClassVar[int]
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    DIVIDED_FIELD_NUMBER: _ClassVar[int]
    relation: str
    names: _containers.RepeatedScalarFieldContainer[str]
    scan: TableScan
    alias: str
    lookup: Lookup
    views: _containers.RepeatedCompositeFieldContainer[ScanView]
    divided: bool
    def __init__(self, relation: _Optional[str] = ..., names: _Optional[_Iterable[str]] = ..., scan: _Optional[_Union[TableScan, _Mapping]] = ..., alias: _Optional[str] = ..., lookup: _Optional[_Union[Lookup, _Mapping]] = ..., views: _Optional[_Iterable[_Union[ScanView, _Mapping]]] = ..., divided: _Optional[bool] = ...) -> None: ...

class ScanView(_message.Message):
    __slots__ = ("relation", "columns")
    RELATION_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    relation: str
    columns: _containers.RepeatedCompositeFieldContainer[Renamed]
    def __init__(self, relation: _Optional[str] = ..., columns: _Optional[_Iterable[_Union[Renamed, _Mapping]]] = ...) -> None: ...

class Renamed(_message.Message):
    __slots__ = ("there", "here")
    THERE_FIELD_NUMBER: _ClassVar[int]
    HERE_FIELD_NUMBER: _ClassVar[int]
    there: str
    here: str
    def __init__(self, there: _Optional[str] = ..., here: _Optional[str] = ...) -> None: ...

class TableScan(_message.Message):
    __slots__ = ("table_id", "columns", "spans", "index_id", "index_spans", "covering", "predicates", "limit", "ancestry", "empty", "with_locks", "in_key_order")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    INDEX_SPANS_FIELD_NUMBER: _ClassVar[int]
    COVERING_FIELD_NUMBER: _ClassVar[int]
    PREDICATES_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    ANCESTRY_FIELD_NUMBER: _ClassVar[int]
    EMPTY_FIELD_NUMBER: _ClassVar[int]
    WITH_LOCKS_FIELD_NUMBER: _ClassVar[int]
    IN_KEY_ORDER_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    columns: _containers.RepeatedCompositeFieldContainer[Field]
    spans: _containers.RepeatedCompositeFieldContainer[KeySpan]
    index_id: int
    index_spans: _containers.RepeatedCompositeFieldContainer[KeySpan]
    covering: bool
    predicates: _containers.RepeatedCompositeFieldContainer[Predicate]
    limit: int
    ancestry: int
    empty: bool
    with_locks: bool
    in_key_order: int
    def __init__(self, table_id: _Optional[int] = ..., columns: _Optional[_Iterable[_Union[Field, _Mapping]]] = ..., spans: _Optional[_Iterable[_Union[KeySpan, _Mapping]]] = ..., index_id: _Optional[int] = ..., index_spans: _Optional[_Iterable[_Union[KeySpan, _Mapping]]] = ..., covering: _Optional[bool] = ..., predicates: _Optional[_Iterable[_Union[Predicate, _Mapping]]] = ..., limit: _Optional[int] = ..., ancestry: _Optional[int] = ..., empty: _Optional[bool] = ..., with_locks: _Optional[bool] = ..., in_key_order: _Optional[int] = ...) -> None: ...

class Field(_message.Message):
    __slots__ = ("column_id", "path")
    COLUMN_ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    column_id: int
    path: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, column_id: _Optional[int] = ..., path: _Optional[_Iterable[str]] = ...) -> None: ...

class KeySpan(_message.Message):
    __slots__ = ("prefix", "lower", "upper")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    LOWER_FIELD_NUMBER: _ClassVar[int]
    UPPER_FIELD_NUMBER: _ClassVar[int]
    prefix: _containers.RepeatedCompositeFieldContainer[Value]
    lower: Bound
    upper: Bound
    def __init__(self, prefix: _Optional[_Iterable[_Union[Value, _Mapping]]] = ..., lower: _Optional[_Union[Bound, _Mapping]] = ..., upper: _Optional[_Union[Bound, _Mapping]] = ...) -> None: ...

class Bound(_message.Message):
    __slots__ = ("value", "inclusive")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    INCLUSIVE_FIELD_NUMBER: _ClassVar[int]
    value: Value
    inclusive: bool
    def __init__(self, value: _Optional[_Union[Value, _Mapping]] = ..., inclusive: _Optional[bool] = ...) -> None: ...

class Predicate(_message.Message):
    __slots__ = ("column", "op", "values")
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    column: Field
    op: str
    values: _containers.RepeatedCompositeFieldContainer[Value]
    def __init__(self, column: _Optional[_Union[Field, _Mapping]] = ..., op: _Optional[str] = ..., values: _Optional[_Iterable[_Union[Value, _Mapping]]] = ...) -> None: ...

class Lookup(_message.Message):
    __slots__ = ("relation", "parts", "index_id", "covering", "limit")
    RELATION_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    COVERING_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    relation: str
    parts: _containers.RepeatedCompositeFieldContainer[LookupPart]
    index_id: int
    covering: bool
    limit: int
    def __init__(self, relation: _Optional[str] = ..., parts: _Optional[_Iterable[_Union[LookupPart, _Mapping]]] = ..., index_id: _Optional[int] = ..., covering: _Optional[bool] = ..., limit: _Optional[int] = ...) -> None: ...

class LookupPart(_message.Message):
    __slots__ = ("field", "constant")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    CONSTANT_FIELD_NUMBER: _ClassVar[int]
    field: Field
    constant: Value
    def __init__(self, field: _Optional[_Union[Field, _Mapping]] = ..., constant: _Optional[_Union[Value, _Mapping]] = ...) -> None: ...

class Value(_message.Message):
    __slots__ = ("null", "boolean", "integer", "number", "decimal", "text", "data", "date", "timestamp", "list")
    NULL_FIELD_NUMBER: _ClassVar[int]
    BOOLEAN_FIELD_NUMBER: _ClassVar[int]
    INTEGER_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    DECIMAL_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    DATE_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    LIST_FIELD_NUMBER: _ClassVar[int]
    null: bool
    boolean: bool
    integer: str
    number: float
    decimal: str
    text: str
    data: bytes
    date: int
    timestamp: int
    list: Values
    def __init__(self, null: _Optional[bool] = ..., boolean: _Optional[bool] = ..., integer: _Optional[str] = ..., number: _Optional[float] = ..., decimal: _Optional[str] = ..., text: _Optional[str] = ..., data: _Optional[bytes] = ..., date: _Optional[int] = ..., timestamp: _Optional[int] = ..., list: _Optional[_Union[Values, _Mapping]] = ...) -> None: ...

class Values(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedCompositeFieldContainer[Value]
    def __init__(self, values: _Optional[_Iterable[_Union[Value, _Mapping]]] = ...) -> None: ...

class ProtoFunction(_message.Message):
    __slots__ = ("name", "action", "message", "path", "result")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    name: str
    action: str
    message: str
    path: _containers.RepeatedScalarFieldContainer[str]
    result: SqlType
    def __init__(self, name: _Optional[str] = ..., action: _Optional[str] = ..., message: _Optional[str] = ..., path: _Optional[_Iterable[str]] = ..., result: _Optional[_Union[SqlType, _Mapping]] = ...) -> None: ...

class SqlType(_message.Message):
    __slots__ = ("kind", "scale", "precision", "proto", "lists", "literal")
    KIND_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    PROTO_FIELD_NUMBER: _ClassVar[int]
    LISTS_FIELD_NUMBER: _ClassVar[int]
    LITERAL_FIELD_NUMBER: _ClassVar[int]
    kind: str
    scale: int
    precision: int
    proto: str
    lists: int
    literal: bool
    def __init__(self, kind: _Optional[str] = ..., scale: _Optional[int] = ..., precision: _Optional[int] = ..., proto: _Optional[str] = ..., lists: _Optional[int] = ..., literal: _Optional[bool] = ...) -> None: ...

class PartStats(_message.Message):
    __slots__ = ("part", "reads", "sent", "rows_out", "scan_us", "input_us", "evaluate_us")
    PART_FIELD_NUMBER: _ClassVar[int]
    READS_FIELD_NUMBER: _ClassVar[int]
    SENT_FIELD_NUMBER: _ClassVar[int]
    ROWS_OUT_FIELD_NUMBER: _ClassVar[int]
    SCAN_US_FIELD_NUMBER: _ClassVar[int]
    INPUT_US_FIELD_NUMBER: _ClassVar[int]
    EVALUATE_US_FIELD_NUMBER: _ClassVar[int]
    part: int
    reads: _containers.RepeatedCompositeFieldContainer[Read]
    sent: _containers.RepeatedCompositeFieldContainer[Sent]
    rows_out: int
    scan_us: int
    input_us: int
    evaluate_us: int
    def __init__(self, part: _Optional[int] = ..., reads: _Optional[_Iterable[_Union[Read, _Mapping]]] = ..., sent: _Optional[_Iterable[_Union[Sent, _Mapping]]] = ..., rows_out: _Optional[int] = ..., scan_us: _Optional[int] = ..., input_us: _Optional[int] = ..., evaluate_us: _Optional[int] = ...) -> None: ...

class Read(_message.Message):
    __slots__ = ("relation", "scan", "rows", "bytes", "spooled")
    RELATION_FIELD_NUMBER: _ClassVar[int]
    SCAN_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    SPOOLED_FIELD_NUMBER: _ClassVar[int]
    relation: str
    scan: bool
    rows: int
    bytes: int
    spooled: bool
    def __init__(self, relation: _Optional[str] = ..., scan: _Optional[bool] = ..., rows: _Optional[int] = ..., bytes: _Optional[int] = ..., spooled: _Optional[bool] = ...) -> None: ...

class Sent(_message.Message):
    __slots__ = ("consumer", "destination", "rows", "bytes")
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    consumer: int
    destination: int
    rows: int
    bytes: int
    def __init__(self, consumer: _Optional[int] = ..., destination: _Optional[int] = ..., rows: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...
