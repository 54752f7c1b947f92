from f1common.pb import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LockMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LOCK_MODE_UNSPECIFIED: _ClassVar[LockMode]
    SHARED: _ClassVar[LockMode]
    EXCLUSIVE: _ClassVar[LockMode]
    APPEND: _ClassVar[LockMode]

class TxnState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TXN_STATE_UNSPECIFIED: _ClassVar[TxnState]
    COMMITTED: _ClassVar[TxnState]
    ABORTED: _ClassVar[TxnState]
    UNKNOWN: _ClassVar[TxnState]
LOCK_MODE_UNSPECIFIED: LockMode
SHARED: LockMode
EXCLUSIVE: LockMode
APPEND: LockMode
TXN_STATE_UNSPECIFIED: TxnState
COMMITTED: TxnState
ABORTED: TxnState
UNKNOWN: TxnState

class HelloRequest(_message.Message):
    __slots__ = ("sender", "cluster_id")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    sender: str
    cluster_id: str
    def __init__(self, sender: _Optional[str] = ..., cluster_id: _Optional[str] = ...) -> None: ...

class HelloReply(_message.Message):
    __slots__ = ("nonce", "born", "certificate", "name")
    class CertificateEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    NONCE_FIELD_NUMBER: _ClassVar[int]
    BORN_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    nonce: bytes
    born: bool
    certificate: _containers.ScalarMap[str, bytes]
    name: str
    def __init__(self, nonce: _Optional[bytes] = ..., born: _Optional[bool] = ..., certificate: _Optional[_Mapping[str, bytes]] = ..., name: _Optional[str] = ...) -> None: ...

class ClientBatch(_message.Message):
    __slots__ = ("requests", "protocol_version")
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[Request]
    protocol_version: int
    def __init__(self, requests: _Optional[_Iterable[_Union[Request, _Mapping]]] = ..., protocol_version: _Optional[int] = ...) -> None: ...

class ServerBatch(_message.Message):
    __slots__ = ("responses",)
    RESPONSES_FIELD_NUMBER: _ClassVar[int]
    responses: _containers.RepeatedCompositeFieldContainer[Response]
    def __init__(self, responses: _Optional[_Iterable[_Union[Response, _Mapping]]] = ...) -> None: ...

class Request(_message.Message):
    __slots__ = ("id", "group", "timeout_ms", "background", "read", "lock_read", "commit", "prepare", "decide", "outcome", "release", "range_map", "safe_time", "bundle", "begin_move", "move_export", "move_stage", "move_cede", "move_own", "move_clear", "move_abandon", "change_members", "scrub", "oldest_prepared")
    ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    BACKGROUND_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    LOCK_READ_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    PREPARE_FIELD_NUMBER: _ClassVar[int]
    DECIDE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    RANGE_MAP_FIELD_NUMBER: _ClassVar[int]
    SAFE_TIME_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    BEGIN_MOVE_FIELD_NUMBER: _ClassVar[int]
    MOVE_EXPORT_FIELD_NUMBER: _ClassVar[int]
    MOVE_STAGE_FIELD_NUMBER: _ClassVar[int]
    MOVE_CEDE_FIELD_NUMBER: _ClassVar[int]
    MOVE_OWN_FIELD_NUMBER: _ClassVar[int]
    MOVE_CLEAR_FIELD_NUMBER: _ClassVar[int]
    MOVE_ABANDON_FIELD_NUMBER: _ClassVar[int]
    CHANGE_MEMBERS_FIELD_NUMBER: _ClassVar[int]
    SCRUB_FIELD_NUMBER: _ClassVar[int]
    OLDEST_PREPARED_FIELD_NUMBER: _ClassVar[int]
    id: int
    group: int
    timeout_ms: int
    background: bool
    read: Read
    lock_read: LockRead
    commit: Commit
    prepare: Prepare
    decide: Decide
    outcome: Outcome
    release: Release
    range_map: RangeMap
    safe_time: SafeTime
    bundle: Bundle
    begin_move: BeginMove
    move_export: MoveExport
    move_stage: MoveStage
    move_cede: MoveCede
    move_own: MoveOwn
    move_clear: MoveClear
    move_abandon: MoveAbandon
    change_members: ChangeMembers
    scrub: Scrub
    oldest_prepared: OldestPrepared
    def __init__(self, id: _Optional[int] = ..., group: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., background: _Optional[bool] = ..., read: _Optional[_Union[Read, _Mapping]] = ..., lock_read: _Optional[_Union[LockRead, _Mapping]] = ..., commit: _Optional[_Union[Commit, _Mapping]] = ..., prepare: _Optional[_Union[Prepare, _Mapping]] = ..., decide: _Optional[_Union[Decide, _Mapping]] = ..., outcome: _Optional[_Union[Outcome, _Mapping]] = ..., release: _Optional[_Union[Release, _Mapping]] = ..., range_map: _Optional[_Union[RangeMap, _Mapping]] = ..., safe_time: _Optional[_Union[SafeTime, _Mapping]] = ..., bundle: _Optional[_Union[Bundle, _Mapping]] = ..., begin_move: _Optional[_Union[BeginMove, _Mapping]] = ..., move_export: _Optional[_Union[MoveExport, _Mapping]] = ..., move_stage: _Optional[_Union[MoveStage, _Mapping]] = ..., move_cede: _Optional[_Union[MoveCede, _Mapping]] = ..., move_own: _Optional[_Union[MoveOwn, _Mapping]] = ..., move_clear: _Optional[_Union[MoveClear, _Mapping]] = ..., move_abandon: _Optional[_Union[MoveAbandon, _Mapping]] = ..., change_members: _Optional[_Union[ChangeMembers, _Mapping]] = ..., scrub: _Optional[_Union[Scrub, _Mapping]] = ..., oldest_prepared: _Optional[_Union[OldestPrepared, _Mapping]] = ...) -> None: ...

class Response(_message.Message):
    __slots__ = ("id", "foreground", "error", "read", "commit", "prepare", "decide", "outcome", "release", "range_map", "safe_time", "bundle", "move", "move_export", "members", "scrub", "oldest_prepared")
    ID_FIELD_NUMBER: _ClassVar[int]
    FOREGROUND_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    PREPARE_FIELD_NUMBER: _ClassVar[int]
    DECIDE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    RANGE_MAP_FIELD_NUMBER: _ClassVar[int]
    SAFE_TIME_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    MOVE_FIELD_NUMBER: _ClassVar[int]
    MOVE_EXPORT_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    SCRUB_FIELD_NUMBER: _ClassVar[int]
    OLDEST_PREPARED_FIELD_NUMBER: _ClassVar[int]
    id: int
    foreground: Foreground
    error: _types_pb2.Error
    read: ReadReply
    commit: CommitReply
    prepare: PrepareReply
    decide: DecideReply
    outcome: OutcomeReply
    release: ReleaseReply
    range_map: RangeMapReply
    safe_time: SafeTimeReply
    bundle: BundleReply
    move: MoveReply
    move_export: MoveExportReply
    members: MembersReply
    scrub: ScrubReply
    oldest_prepared: OldestPreparedReply
    def __init__(self, id: _Optional[int] = ..., foreground: _Optional[_Union[Foreground, _Mapping]] = ..., error: _Optional[_Union[_types_pb2.Error, _Mapping]] = ..., read: _Optional[_Union[ReadReply, _Mapping]] = ..., commit: _Optional[_Union[CommitReply, _Mapping]] = ..., prepare: _Optional[_Union[PrepareReply, _Mapping]] = ..., decide: _Optional[_Union[DecideReply, _Mapping]] = ..., outcome: _Optional[_Union[OutcomeReply, _Mapping]] = ..., release: _Optional[_Union[ReleaseReply, _Mapping]] = ..., range_map: _Optional[_Union[RangeMapReply, _Mapping]] = ..., safe_time: _Optional[_Union[SafeTimeReply, _Mapping]] = ..., bundle: _Optional[_Union[BundleReply, _Mapping]] = ..., move: _Optional[_Union[MoveReply, _Mapping]] = ..., move_export: _Optional[_Union[MoveExportReply, _Mapping]] = ..., members: _Optional[_Union[MembersReply, _Mapping]] = ..., scrub: _Optional[_Union[ScrubReply, _Mapping]] = ..., oldest_prepared: _Optional[_Union[OldestPreparedReply, _Mapping]] = ...) -> None: ...

class Foreground(_message.Message):
    __slots__ = ("reads", "read_us", "commits", "commit_us")
    READS_FIELD_NUMBER: _ClassVar[int]
    READ_US_FIELD_NUMBER: _ClassVar[int]
    COMMITS_FIELD_NUMBER: _ClassVar[int]
    COMMIT_US_FIELD_NUMBER: _ClassVar[int]
    reads: float
    read_us: float
    commits: float
    commit_us: float
    def __init__(self, reads: _Optional[float] = ..., read_us: _Optional[float] = ..., commits: _Optional[float] = ..., commit_us: _Optional[float] = ...) -> None: ...

class RangeRead(_message.Message):
    __slots__ = ("start", "end", "limit", "reverse")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    REVERSE_FIELD_NUMBER: _ClassVar[int]
    start: bytes
    end: bytes
    limit: int
    reverse: bool
    def __init__(self, start: _Optional[bytes] = ..., end: _Optional[bytes] = ..., limit: _Optional[int] = ..., reverse: _Optional[bool] = ...) -> None: ...

class Read(_message.Message):
    __slots__ = ("timestamp", "keys", "ranges", "apart")
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    APART_FIELD_NUMBER: _ClassVar[int]
    timestamp: int
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    ranges: _containers.RepeatedCompositeFieldContainer[RangeRead]
    apart: bool
    def __init__(self, timestamp: _Optional[int] = ..., keys: _Optional[_Iterable[bytes]] = ..., ranges: _Optional[_Iterable[_Union[RangeRead, _Mapping]]] = ..., apart: _Optional[bool] = ...) -> None: ...

class Version(_message.Message):
    __slots__ = ("exists", "ts", "value")
    EXISTS_FIELD_NUMBER: _ClassVar[int]
    TS_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    exists: bool
    ts: int
    value: bytes
    def __init__(self, exists: _Optional[bool] = ..., ts: _Optional[int] = ..., value: _Optional[bytes] = ...) -> None: ...

class Row(_message.Message):
    __slots__ = ("key", "ts", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    TS_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    ts: int
    value: bytes
    def __init__(self, key: _Optional[bytes] = ..., ts: _Optional[int] = ..., value: _Optional[bytes] = ...) -> None: ...

class RowSet(_message.Message):
    __slots__ = ("rows", "resume", "more")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    rows: _containers.RepeatedCompositeFieldContainer[Row]
    resume: bytes
    more: bool
    def __init__(self, rows: _Optional[_Iterable[_Union[Row, _Mapping]]] = ..., resume: _Optional[bytes] = ..., more: _Optional[bool] = ...) -> None: ...

class ReadReply(_message.Message):
    __slots__ = ("timestamp", "versions", "ranges", "term", "leader", "left_out")
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    timestamp: int
    versions: _containers.RepeatedCompositeFieldContainer[Version]
    ranges: _containers.RepeatedCompositeFieldContainer[RowSet]
    term: int
    leader: str
    left_out: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, timestamp: _Optional[int] = ..., versions: _Optional[_Iterable[_Union[Version, _Mapping]]] = ..., ranges: _Optional[_Iterable[_Union[RowSet, _Mapping]]] = ..., term: _Optional[int] = ..., leader: _Optional[str] = ..., left_out: _Optional[_Iterable[int]] = ...) -> None: ...

class TxnRef(_message.Message):
    __slots__ = ("anchor", "unique", "created_ts", "attempt")
    ANCHOR_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_FIELD_NUMBER: _ClassVar[int]
    CREATED_TS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    anchor: bytes
    unique: bytes
    created_ts: int
    attempt: int
    def __init__(self, anchor: _Optional[bytes] = ..., unique: _Optional[bytes] = ..., created_ts: _Optional[int] = ..., attempt: _Optional[int] = ...) -> None: ...

class LockRead(_message.Message):
    __slots__ = ("txn", "priority_ts", "mode", "keys", "ranges", "term")
    TXN_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_TS_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    txn: TxnRef
    priority_ts: int
    mode: LockMode
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    ranges: _containers.RepeatedCompositeFieldContainer[RangeRead]
    term: int
    def __init__(self, txn: _Optional[_Union[TxnRef, _Mapping]] = ..., priority_ts: _Optional[int] = ..., mode: _Optional[_Union[LockMode, str]] = ..., keys: _Optional[_Iterable[bytes]] = ..., ranges: _Optional[_Iterable[_Union[RangeRead, _Mapping]]] = ..., term: _Optional[int] = ...) -> None: ...

class Lock(_message.Message):
    __slots__ = ("start", "end", "mode")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    start: bytes
    end: bytes
    mode: LockMode
    def __init__(self, start: _Optional[bytes] = ..., end: _Optional[bytes] = ..., mode: _Optional[_Union[LockMode, str]] = ...) -> None: ...

class Write(_message.Message):
    __slots__ = ("key", "value", "key_offset", "value_offsets")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    KEY_OFFSET_FIELD_NUMBER: _ClassVar[int]
    VALUE_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    key_offset: int
    value_offsets: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., key_offset: _Optional[int] = ..., value_offsets: _Optional[_Iterable[int]] = ...) -> None: ...

class Precondition(_message.Message):
    __slots__ = ("version", "exists", "absent", "unchanged", "no_newer", "understands")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    EXISTS_FIELD_NUMBER: _ClassVar[int]
    ABSENT_FIELD_NUMBER: _ClassVar[int]
    UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    NO_NEWER_FIELD_NUMBER: _ClassVar[int]
    UNDERSTANDS_FIELD_NUMBER: _ClassVar[int]
    version: ExpectVersion
    exists: bytes
    absent: bytes
    unchanged: ExpectUnchanged
    no_newer: NoNewer
    understands: int
    def __init__(self, version: _Optional[_Union[ExpectVersion, _Mapping]] = ..., exists: _Optional[bytes] = ..., absent: _Optional[bytes] = ..., unchanged: _Optional[_Union[ExpectUnchanged, _Mapping]] = ..., no_newer: _Optional[_Union[NoNewer, _Mapping]] = ..., understands: _Optional[int] = ...) -> None: ...

class Puts(_message.Message):
    __slots__ = ("keys", "values", "absent", "stamp_before_end")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    ABSENT_FIELD_NUMBER: _ClassVar[int]
    STAMP_BEFORE_END_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    values: _containers.RepeatedScalarFieldContainer[bytes]
    absent: bool
    stamp_before_end: int
    def __init__(self, keys: _Optional[_Iterable[bytes]] = ..., values: _Optional[_Iterable[bytes]] = ..., absent: _Optional[bool] = ..., stamp_before_end: _Optional[int] = ...) -> None: ...

class NoNewer(_message.Message):
    __slots__ = ("since_ts", "leave_out")
    SINCE_TS_FIELD_NUMBER: _ClassVar[int]
    LEAVE_OUT_FIELD_NUMBER: _ClassVar[int]
    since_ts: int
    leave_out: bool
    def __init__(self, since_ts: _Optional[int] = ..., leave_out: _Optional[bool] = ...) -> None: ...

class ExpectVersion(_message.Message):
    __slots__ = ("key", "ts")
    KEY_FIELD_NUMBER: _ClassVar[int]
    TS_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    ts: int
    def __init__(self, key: _Optional[bytes] = ..., ts: _Optional[int] = ...) -> None: ...

class ExpectUnchanged(_message.Message):
    __slots__ = ("start", "end", "since_ts")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    SINCE_TS_FIELD_NUMBER: _ClassVar[int]
    start: bytes
    end: bytes
    since_ts: int
    def __init__(self, start: _Optional[bytes] = ..., end: _Optional[bytes] = ..., since_ts: _Optional[int] = ...) -> None: ...

class TxnWork(_message.Message):
    __slots__ = ("txn", "priority_ts", "writes", "preconditions", "held", "term", "deadline", "above", "puts")
    TXN_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_TS_FIELD_NUMBER: _ClassVar[int]
    WRITES_FIELD_NUMBER: _ClassVar[int]
    PRECONDITIONS_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    ABOVE_FIELD_NUMBER: _ClassVar[int]
    PUTS_FIELD_NUMBER: _ClassVar[int]
    txn: TxnRef
    priority_ts: int
    writes: _containers.RepeatedCompositeFieldContainer[Write]
    preconditions: _containers.RepeatedCompositeFieldContainer[Precondition]
    held: _containers.RepeatedCompositeFieldContainer[Lock]
    term: int
    deadline: int
    above: int
    puts: _containers.RepeatedCompositeFieldContainer[Puts]
    def __init__(self, txn: _Optional[_Union[TxnRef, _Mapping]] = ..., priority_ts: _Optional[int] = ..., writes: _Optional[_Iterable[_Union[Write, _Mapping]]] = ..., preconditions: _Optional[_Iterable[_Union[Precondition, _Mapping]]] = ..., held: _Optional[_Iterable[_Union[Lock, _Mapping]]] = ..., term: _Optional[int] = ..., deadline: _Optional[int] = ..., above: _Optional[int] = ..., puts: _Optional[_Iterable[_Union[Puts, _Mapping]]] = ...) -> None: ...

class PreparedIn(_message.Message):
    __slots__ = ("group", "prepare_ts")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PREPARE_TS_FIELD_NUMBER: _ClassVar[int]
    group: int
    prepare_ts: int
    def __init__(self, group: _Optional[int] = ..., prepare_ts: _Optional[int] = ...) -> None: ...

class Commit(_message.Message):
    __slots__ = ("work", "participants")
    WORK_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANTS_FIELD_NUMBER: _ClassVar[int]
    work: TxnWork
    participants: _containers.RepeatedCompositeFieldContainer[PreparedIn]
    def __init__(self, work: _Optional[_Union[TxnWork, _Mapping]] = ..., participants: _Optional[_Iterable[_Union[PreparedIn, _Mapping]]] = ...) -> None: ...

class CommitReply(_message.Message):
    __slots__ = ("ts",)
    TS_FIELD_NUMBER: _ClassVar[int]
    ts: int
    def __init__(self, ts: _Optional[int] = ...) -> None: ...

class Bundle(_message.Message):
    __slots__ = ("works",)
    WORKS_FIELD_NUMBER: _ClassVar[int]
    works: _containers.RepeatedCompositeFieldContainer[TxnWork]
    def __init__(self, works: _Optional[_Iterable[_Union[TxnWork, _Mapping]]] = ...) -> None: ...

class BundleReply(_message.Message):
    __slots__ = ("ts", "left_out")
    TS_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    ts: int
    left_out: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ts: _Optional[int] = ..., left_out: _Optional[_Iterable[int]] = ...) -> None: ...

class Prepare(_message.Message):
    __slots__ = ("work", "coordinator_group")
    WORK_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_GROUP_FIELD_NUMBER: _ClassVar[int]
    work: TxnWork
    coordinator_group: int
    def __init__(self, work: _Optional[_Union[TxnWork, _Mapping]] = ..., coordinator_group: _Optional[int] = ...) -> None: ...

class PrepareReply(_message.Message):
    __slots__ = ("prepare_ts",)
    PREPARE_TS_FIELD_NUMBER: _ClassVar[int]
    prepare_ts: int
    def __init__(self, prepare_ts: _Optional[int] = ...) -> None: ...

class Decide(_message.Message):
    __slots__ = ("txn", "commit", "ts")
    TXN_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    TS_FIELD_NUMBER: _ClassVar[int]
    txn: TxnRef
    commit: bool
    ts: int
    def __init__(self, txn: _Optional[_Union[TxnRef, _Mapping]] = ..., commit: _Optional[bool] = ..., ts: _Optional[int] = ...) -> None: ...

class DecideReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Outcome(_message.Message):
    __slots__ = ("txn", "peek", "inquiry")
    TXN_FIELD_NUMBER: _ClassVar[int]
    PEEK_FIELD_NUMBER: _ClassVar[int]
    INQUIRY_FIELD_NUMBER: _ClassVar[int]
    txn: TxnRef
    peek: bool
    inquiry: bool
    def __init__(self, txn: _Optional[_Union[TxnRef, _Mapping]] = ..., peek: _Optional[bool] = ..., inquiry: _Optional[bool] = ...) -> None: ...

class OutcomeReply(_message.Message):
    __slots__ = ("state", "ts", "attempt")
    STATE_FIELD_NUMBER: _ClassVar[int]
    TS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    state: TxnState
    ts: int
    attempt: int
    def __init__(self, state: _Optional[_Union[TxnState, str]] = ..., ts: _Optional[int] = ..., attempt: _Optional[int] = ...) -> None: ...

class Release(_message.Message):
    __slots__ = ("txn",)
    TXN_FIELD_NUMBER: _ClassVar[int]
    txn: TxnRef
    def __init__(self, txn: _Optional[_Union[TxnRef, _Mapping]] = ...) -> None: ...

class ReleaseReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RangeMap(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RangeEntry(_message.Message):
    __slots__ = ("start", "end", "group")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    start: bytes
    end: bytes
    group: int
    def __init__(self, start: _Optional[bytes] = ..., end: _Optional[bytes] = ..., group: _Optional[int] = ...) -> None: ...

class GroupEntry(_message.Message):
    __slots__ = ("group", "voters", "leader", "readers", "members_version")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    VOTERS_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    READERS_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_VERSION_FIELD_NUMBER: _ClassVar[int]
    group: int
    voters: _containers.RepeatedScalarFieldContainer[str]
    leader: str
    readers: _containers.RepeatedScalarFieldContainer[str]
    members_version: int
    def __init__(self, group: _Optional[int] = ..., voters: _Optional[_Iterable[str]] = ..., leader: _Optional[str] = ..., readers: _Optional[_Iterable[str]] = ..., members_version: _Optional[int] = ...) -> None: ...

class ServerEntry(_message.Message):
    __slots__ = ("name", "zone", "address")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    name: str
    zone: str
    address: str
    def __init__(self, name: _Optional[str] = ..., zone: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...

class RangeMapReply(_message.Message):
    __slots__ = ("cluster_id", "ranges", "groups", "servers", "version")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    ranges: _containers.RepeatedCompositeFieldContainer[RangeEntry]
    groups: _containers.RepeatedCompositeFieldContainer[GroupEntry]
    servers: _containers.RepeatedCompositeFieldContainer[ServerEntry]
    version: int
    def __init__(self, cluster_id: _Optional[str] = ..., ranges: _Optional[_Iterable[_Union[RangeEntry, _Mapping]]] = ..., groups: _Optional[_Iterable[_Union[GroupEntry, _Mapping]]] = ..., servers: _Optional[_Iterable[_Union[ServerEntry, _Mapping]]] = ..., version: _Optional[int] = ...) -> None: ...

class SafeTime(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SafeTimeReply(_message.Message):
    __slots__ = ("safe_ts", "groups")
    SAFE_TS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    safe_ts: int
    groups: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, safe_ts: _Optional[int] = ..., groups: _Optional[_Iterable[int]] = ...) -> None: ...

class BeginMove(_message.Message):
    __slots__ = ("move", "start", "end", "source")
    MOVE_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    move: int
    start: bytes
    end: bytes
    source: int
    def __init__(self, move: _Optional[int] = ..., start: _Optional[bytes] = ..., end: _Optional[bytes] = ..., source: _Optional[int] = ...) -> None: ...

class MoveProgress(_message.Message):
    __slots__ = ("stage", "resume", "since_ts", "until_ts", "outcomes_since_ts", "outcomes_until_ts", "passes", "rows", "last_rows", "total")
    class Stage(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CLEARING: _ClassVar[MoveProgress.Stage]
        ROWS: _ClassVar[MoveProgress.Stage]
        OUTCOMES: _ClassVar[MoveProgress.Stage]
        LAST_ROWS: _ClassVar[MoveProgress.Stage]
        LAST_OUTCOMES: _ClassVar[MoveProgress.Stage]
        LAST_FINISHED: _ClassVar[MoveProgress.Stage]
        READY: _ClassVar[MoveProgress.Stage]
    CLEARING: MoveProgress.Stage
    ROWS: MoveProgress.Stage
    OUTCOMES: MoveProgress.Stage
    LAST_ROWS: MoveProgress.Stage
    LAST_OUTCOMES: MoveProgress.Stage
    LAST_FINISHED: MoveProgress.Stage
    READY: MoveProgress.Stage
    STAGE_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    SINCE_TS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_TS_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_SINCE_TS_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_UNTIL_TS_FIELD_NUMBER: _ClassVar[int]
    PASSES_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    LAST_ROWS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    stage: MoveProgress.Stage
    resume: bytes
    since_ts: int
    until_ts: int
    outcomes_since_ts: int
    outcomes_until_ts: int
    passes: int
    rows: int
    last_rows: int
    total: int
    def __init__(self, stage: _Optional[_Union[MoveProgress.Stage, str]] = ..., resume: _Optional[bytes] = ..., since_ts: _Optional[int] = ..., until_ts: _Optional[int] = ..., outcomes_since_ts: _Optional[int] = ..., outcomes_until_ts: _Optional[int] = ..., passes: _Optional[int] = ..., rows: _Optional[int] = ..., last_rows: _Optional[int] = ..., total: _Optional[int] = ...) -> None: ...

class MoveItem(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ...) -> None: ...

class MoveExport(_message.Message):
    __slots__ = ("move", "start", "end", "stage", "resume", "since_ts", "timestamp")
    MOVE_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    SINCE_TS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    move: int
    start: bytes
    end: bytes
    stage: MoveProgress.Stage
    resume: bytes
    since_ts: int
    timestamp: int
    def __init__(self, move: _Optional[int] = ..., start: _Optional[bytes] = ..., end: _Optional[bytes] = ..., stage: _Optional[_Union[MoveProgress.Stage, str]] = ..., resume: _Optional[bytes] = ..., since_ts: _Optional[int] = ..., timestamp: _Optional[int] = ...) -> None: ...

class MoveExportReply(_message.Message):
    __slots__ = ("timestamp", "items", "resume", "done", "checksum")
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    timestamp: int
    items: _containers.RepeatedCompositeFieldContainer[MoveItem]
    resume: bytes
    done: bool
    checksum: int
    def __init__(self, timestamp: _Optional[int] = ..., items: _Optional[_Iterable[_Union[MoveItem, _Mapping]]] = ..., resume: _Optional[bytes] = ..., done: _Optional[bool] = ..., checksum: _Optional[int] = ...) -> None: ...

class MoveStage(_message.Message):
    __slots__ = ("move", "seq", "progress", "items", "checksum", "clear")
    MOVE_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    CLEAR_FIELD_NUMBER: _ClassVar[int]
    move: int
    seq: int
    progress: MoveProgress
    items: _containers.RepeatedCompositeFieldContainer[MoveItem]
    checksum: int
    clear: bool
    def __init__(self, move: _Optional[int] = ..., seq: _Optional[int] = ..., progress: _Optional[_Union[MoveProgress, _Mapping]] = ..., items: _Optional[_Iterable[_Union[MoveItem, _Mapping]]] = ..., checksum: _Optional[int] = ..., clear: _Optional[bool] = ...) -> None: ...

class MoveCede(_message.Message):
    __slots__ = ("move", "start", "end", "heir")
    MOVE_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    HEIR_FIELD_NUMBER: _ClassVar[int]
    move: int
    start: bytes
    end: bytes
    heir: int
    def __init__(self, move: _Optional[int] = ..., start: _Optional[bytes] = ..., end: _Optional[bytes] = ..., heir: _Optional[int] = ...) -> None: ...

class MoveOwn(_message.Message):
    __slots__ = ("move", "floor_ts", "mark_ts")
    MOVE_FIELD_NUMBER: _ClassVar[int]
    FLOOR_TS_FIELD_NUMBER: _ClassVar[int]
    MARK_TS_FIELD_NUMBER: _ClassVar[int]
    move: int
    floor_ts: int
    mark_ts: int
    def __init__(self, move: _Optional[int] = ..., floor_ts: _Optional[int] = ..., mark_ts: _Optional[int] = ...) -> None: ...

class MoveClear(_message.Message):
    __slots__ = ("move", "start", "end")
    MOVE_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    move: int
    start: bytes
    end: bytes
    def __init__(self, move: _Optional[int] = ..., start: _Optional[bytes] = ..., end: _Optional[bytes] = ...) -> None: ...

class MoveAbandon(_message.Message):
    __slots__ = ("move",)
    MOVE_FIELD_NUMBER: _ClassVar[int]
    move: int
    def __init__(self, move: _Optional[int] = ...) -> None: ...

class MoveIncoming(_message.Message):
    __slots__ = ("seq", "progress")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    seq: int
    progress: MoveProgress
    def __init__(self, seq: _Optional[int] = ..., progress: _Optional[_Union[MoveProgress, _Mapping]] = ...) -> None: ...

class MoveCeded(_message.Message):
    __slots__ = ("last_ts", "earliest_ts", "mark_ts")
    LAST_TS_FIELD_NUMBER: _ClassVar[int]
    EARLIEST_TS_FIELD_NUMBER: _ClassVar[int]
    MARK_TS_FIELD_NUMBER: _ClassVar[int]
    last_ts: int
    earliest_ts: int
    mark_ts: int
    def __init__(self, last_ts: _Optional[int] = ..., earliest_ts: _Optional[int] = ..., mark_ts: _Optional[int] = ...) -> None: ...

class MoveReply(_message.Message):
    __slots__ = ("closed", "incoming", "ceded", "done")
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    INCOMING_FIELD_NUMBER: _ClassVar[int]
    CEDED_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    closed: int
    incoming: MoveIncoming
    ceded: MoveCeded
    done: bool
    def __init__(self, closed: _Optional[int] = ..., incoming: _Optional[_Union[MoveIncoming, _Mapping]] = ..., ceded: _Optional[_Union[MoveCeded, _Mapping]] = ..., done: _Optional[bool] = ...) -> None: ...

class ChangeMembers(_message.Message):
    __slots__ = ("step", "name", "version", "home")
    class Step(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STEP_UNSPECIFIED: _ClassVar[ChangeMembers.Step]
        ADD: _ClassVar[ChangeMembers.Step]
        PROMOTE: _ClassVar[ChangeMembers.Step]
        DEMOTE: _ClassVar[ChangeMembers.Step]
        REMOVE: _ClassVar[ChangeMembers.Step]
        TRANSFER: _ClassVar[ChangeMembers.Step]
    STEP_UNSPECIFIED: ChangeMembers.Step
    ADD: ChangeMembers.Step
    PROMOTE: ChangeMembers.Step
    DEMOTE: ChangeMembers.Step
    REMOVE: ChangeMembers.Step
    TRANSFER: ChangeMembers.Step
    STEP_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    HOME_FIELD_NUMBER: _ClassVar[int]
    step: ChangeMembers.Step
    name: str
    version: int
    home: str
    def __init__(self, step: _Optional[_Union[ChangeMembers.Step, str]] = ..., name: _Optional[str] = ..., version: _Optional[int] = ..., home: _Optional[str] = ...) -> None: ...

class MembersReply(_message.Message):
    __slots__ = ("version", "voters", "learners")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    VOTERS_FIELD_NUMBER: _ClassVar[int]
    LEARNERS_FIELD_NUMBER: _ClassVar[int]
    version: int
    voters: _containers.RepeatedScalarFieldContainer[str]
    learners: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, version: _Optional[int] = ..., voters: _Optional[_Iterable[str]] = ..., learners: _Optional[_Iterable[str]] = ...) -> None: ...

class Scrub(_message.Message):
    __slots__ = ("bytes_per_s",)
    BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    bytes_per_s: int
    def __init__(self, bytes_per_s: _Optional[int] = ...) -> None: ...

class ScrubReply(_message.Message):
    __slots__ = ("passes",)
    PASSES_FIELD_NUMBER: _ClassVar[int]
    passes: int
    def __init__(self, passes: _Optional[int] = ...) -> None: ...

class OldestPrepared(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class OldestPreparedReply(_message.Message):
    __slots__ = ("created_ts",)
    CREATED_TS_FIELD_NUMBER: _ClassVar[int]
    created_ts: int
    def __init__(self, created_ts: _Optional[int] = ...) -> None: ...

class PeerBatch(_message.Message):
    __slots__ = ("sender", "cluster_id", "protocol_version", "messages")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    sender: str
    cluster_id: str
    protocol_version: int
    messages: _containers.RepeatedCompositeFieldContainer[PeerMessage]
    def __init__(self, sender: _Optional[str] = ..., cluster_id: _Optional[str] = ..., protocol_version: _Optional[int] = ..., messages: _Optional[_Iterable[_Union[PeerMessage, _Mapping]]] = ...) -> None: ...

class PeerAck(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Ballot(_message.Message):
    __slots__ = ("round", "replica")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    round: int
    replica: str
    def __init__(self, round: _Optional[int] = ..., replica: _Optional[str] = ...) -> None: ...

class LogEntry(_message.Message):
    __slots__ = ("index", "ballot", "payload")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    BALLOT_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    index: int
    ballot: Ballot
    payload: bytes
    def __init__(self, index: _Optional[int] = ..., ballot: _Optional[_Union[Ballot, _Mapping]] = ..., payload: _Optional[bytes] = ...) -> None: ...

class PeerMessage(_message.Message):
    __slots__ = ("group", "ballot", "pre_vote", "pre_vote_reply", "prepare", "promise", "accept", "accepted", "transfer", "offer_state", "removed", "report", "digest", "sender", "receiver")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    BALLOT_FIELD_NUMBER: _ClassVar[int]
    PRE_VOTE_FIELD_NUMBER: _ClassVar[int]
    PRE_VOTE_REPLY_FIELD_NUMBER: _ClassVar[int]
    PREPARE_FIELD_NUMBER: _ClassVar[int]
    PROMISE_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_FIELD_NUMBER: _ClassVar[int]
    OFFER_STATE_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    RECEIVER_FIELD_NUMBER: _ClassVar[int]
    group: int
    ballot: Ballot
    pre_vote: PreVote
    pre_vote_reply: PreVoteReply
    prepare: PaxosPrepare
    promise: Promise
    accept: Accept
    accepted: Accepted
    transfer: TransferLeadership
    offer_state: OfferState
    removed: Removed
    report: ServerReport
    digest: RangeDigest
    sender: str
    receiver: str
    def __init__(self, group: _Optional[int] = ..., ballot: _Optional[_Union[Ballot, _Mapping]] = ..., pre_vote: _Optional[_Union[PreVote, _Mapping]] = ..., pre_vote_reply: _Optional[_Union[PreVoteReply, _Mapping]] = ..., prepare: _Optional[_Union[PaxosPrepare, _Mapping]] = ..., promise: _Optional[_Union[Promise, _Mapping]] = ..., accept: _Optional[_Union[Accept, _Mapping]] = ..., accepted: _Optional[_Union[Accepted, _Mapping]] = ..., transfer: _Optional[_Union[TransferLeadership, _Mapping]] = ..., offer_state: _Optional[_Union[OfferState, _Mapping]] = ..., removed: _Optional[_Union[Removed, _Mapping]] = ..., report: _Optional[_Union[ServerReport, _Mapping]] = ..., digest: _Optional[_Union[RangeDigest, _Mapping]] = ..., sender: _Optional[str] = ..., receiver: _Optional[str] = ...) -> None: ...

class ServerReport(_message.Message):
    __slots__ = ("incarnation", "boot_us", "earliest", "latest", "echo_boot_us", "held_us", "unfit", "full")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    BOOT_US_FIELD_NUMBER: _ClassVar[int]
    EARLIEST_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    ECHO_BOOT_US_FIELD_NUMBER: _ClassVar[int]
    HELD_US_FIELD_NUMBER: _ClassVar[int]
    UNFIT_FIELD_NUMBER: _ClassVar[int]
    FULL_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    boot_us: int
    earliest: int
    latest: int
    echo_boot_us: int
    held_us: int
    unfit: bool
    full: bool
    def __init__(self, incarnation: _Optional[int] = ..., boot_us: _Optional[int] = ..., earliest: _Optional[int] = ..., latest: _Optional[int] = ..., echo_boot_us: _Optional[int] = ..., held_us: _Optional[int] = ..., unfit: _Optional[bool] = ..., full: _Optional[bool] = ...) -> None: ...

class RangeDigest(_message.Message):
    __slots__ = ("index", "start", "end", "records", "digest")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    index: int
    start: bytes
    end: bytes
    records: int
    digest: bytes
    def __init__(self, index: _Optional[int] = ..., start: _Optional[bytes] = ..., end: _Optional[bytes] = ..., records: _Optional[int] = ..., digest: _Optional[bytes] = ...) -> None: ...

class PreVote(_message.Message):
    __slots__ = ("last_index", "last_ballot")
    LAST_INDEX_FIELD_NUMBER: _ClassVar[int]
    LAST_BALLOT_FIELD_NUMBER: _ClassVar[int]
    last_index: int
    last_ballot: Ballot
    def __init__(self, last_index: _Optional[int] = ..., last_ballot: _Optional[_Union[Ballot, _Mapping]] = ...) -> None: ...

class PreVoteReply(_message.Message):
    __slots__ = ("granted", "promised")
    GRANTED_FIELD_NUMBER: _ClassVar[int]
    PROMISED_FIELD_NUMBER: _ClassVar[int]
    granted: bool
    promised: Ballot
    def __init__(self, granted: _Optional[bool] = ..., promised: _Optional[_Union[Ballot, _Mapping]] = ...) -> None: ...

class PaxosPrepare(_message.Message):
    __slots__ = ("last_index", "last_ballot", "released")
    LAST_INDEX_FIELD_NUMBER: _ClassVar[int]
    LAST_BALLOT_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    last_index: int
    last_ballot: Ballot
    released: Ballot
    def __init__(self, last_index: _Optional[int] = ..., last_ballot: _Optional[_Union[Ballot, _Mapping]] = ..., released: _Optional[_Union[Ballot, _Mapping]] = ...) -> None: ...

class Promise(_message.Message):
    __slots__ = ("granted", "promised", "previous", "ceiling")
    GRANTED_FIELD_NUMBER: _ClassVar[int]
    PROMISED_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    CEILING_FIELD_NUMBER: _ClassVar[int]
    granted: bool
    promised: Ballot
    previous: Ballot
    ceiling: int
    def __init__(self, granted: _Optional[bool] = ..., promised: _Optional[_Union[Ballot, _Mapping]] = ..., previous: _Optional[_Union[Ballot, _Mapping]] = ..., ceiling: _Optional[int] = ...) -> None: ...

class Accept(_message.Message):
    __slots__ = ("prev_index", "prev_ballot", "entries", "chosen_index", "ceiling", "sent_boot_us", "lease_us", "safe_index", "safe_ts", "truncate_below")
    PREV_INDEX_FIELD_NUMBER: _ClassVar[int]
    PREV_BALLOT_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    CHOSEN_INDEX_FIELD_NUMBER: _ClassVar[int]
    CEILING_FIELD_NUMBER: _ClassVar[int]
    SENT_BOOT_US_FIELD_NUMBER: _ClassVar[int]
    LEASE_US_FIELD_NUMBER: _ClassVar[int]
    SAFE_INDEX_FIELD_NUMBER: _ClassVar[int]
    SAFE_TS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_BELOW_FIELD_NUMBER: _ClassVar[int]
    prev_index: int
    prev_ballot: Ballot
    entries: _containers.RepeatedCompositeFieldContainer[LogEntry]
    chosen_index: int
    ceiling: int
    sent_boot_us: int
    lease_us: int
    safe_index: int
    safe_ts: int
    truncate_below: int
    def __init__(self, prev_index: _Optional[int] = ..., prev_ballot: _Optional[_Union[Ballot, _Mapping]] = ..., entries: _Optional[_Iterable[_Union[LogEntry, _Mapping]]] = ..., chosen_index: _Optional[int] = ..., ceiling: _Optional[int] = ..., sent_boot_us: _Optional[int] = ..., lease_us: _Optional[int] = ..., safe_index: _Optional[int] = ..., safe_ts: _Optional[int] = ..., truncate_below: _Optional[int] = ...) -> None: ...

class Accepted(_message.Message):
    __slots__ = ("promised", "ok", "match_index", "hint", "sent_boot_us", "ceiling", "newcomer")
    PROMISED_FIELD_NUMBER: _ClassVar[int]
    OK_FIELD_NUMBER: _ClassVar[int]
    MATCH_INDEX_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    SENT_BOOT_US_FIELD_NUMBER: _ClassVar[int]
    CEILING_FIELD_NUMBER: _ClassVar[int]
    NEWCOMER_FIELD_NUMBER: _ClassVar[int]
    promised: Ballot
    ok: bool
    match_index: int
    hint: int
    sent_boot_us: int
    ceiling: int
    newcomer: bool
    def __init__(self, promised: _Optional[_Union[Ballot, _Mapping]] = ..., ok: _Optional[bool] = ..., match_index: _Optional[int] = ..., hint: _Optional[int] = ..., sent_boot_us: _Optional[int] = ..., ceiling: _Optional[int] = ..., newcomer: _Optional[bool] = ...) -> None: ...

class TransferLeadership(_message.Message):
    __slots__ = ("highest_ts",)
    HIGHEST_TS_FIELD_NUMBER: _ClassVar[int]
    highest_ts: int
    def __init__(self, highest_ts: _Optional[int] = ...) -> None: ...

class OfferState(_message.Message):
    __slots__ = ("first_index",)
    FIRST_INDEX_FIELD_NUMBER: _ClassVar[int]
    first_index: int
    def __init__(self, first_index: _Optional[int] = ...) -> None: ...

class Removed(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class ScanColumn(_message.Message):
    __slots__ = ("name", "type", "source", "number")
    class Source(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CELL: _ClassVar[ScanColumn.Source]
        KEY_PART: _ClassVar[ScanColumn.Source]
        VERSION_TS: _ClassVar[ScanColumn.Source]
        RAW_KEY: _ClassVar[ScanColumn.Source]
        RAW_VALUE: _ClassVar[ScanColumn.Source]
    CELL: ScanColumn.Source
    KEY_PART: ScanColumn.Source
    VERSION_TS: ScanColumn.Source
    RAW_KEY: ScanColumn.Source
    RAW_VALUE: ScanColumn.Source
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: str
    source: ScanColumn.Source
    number: int
    def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ..., source: _Optional[_Union[ScanColumn.Source, str]] = ..., number: _Optional[int] = ...) -> None: ...

class ScanLiteral(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: bytes
    def __init__(self, value: _Optional[bytes] = ...) -> None: ...

class ScanPredicate(_message.Message):
    __slots__ = ("column", "operator", "literals")
    class Operator(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        EQ: _ClassVar[ScanPredicate.Operator]
        NE: _ClassVar[ScanPredicate.Operator]
        LT: _ClassVar[ScanPredicate.Operator]
        LE: _ClassVar[ScanPredicate.Operator]
        GT: _ClassVar[ScanPredicate.Operator]
        GE: _ClassVar[ScanPredicate.Operator]
        IN: _ClassVar[ScanPredicate.Operator]
        IS_NULL: _ClassVar[ScanPredicate.Operator]
        IS_NOT_NULL: _ClassVar[ScanPredicate.Operator]
    EQ: ScanPredicate.Operator
    NE: ScanPredicate.Operator
    LT: ScanPredicate.Operator
    LE: ScanPredicate.Operator
    GT: ScanPredicate.Operator
    GE: ScanPredicate.Operator
    IN: ScanPredicate.Operator
    IS_NULL: ScanPredicate.Operator
    IS_NOT_NULL: ScanPredicate.Operator
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    LITERALS_FIELD_NUMBER: _ClassVar[int]
    column: int
    operator: ScanPredicate.Operator
    literals: _containers.RepeatedCompositeFieldContainer[ScanLiteral]
    def __init__(self, column: _Optional[int] = ..., operator: _Optional[_Union[ScanPredicate.Operator, str]] = ..., literals: _Optional[_Iterable[_Union[ScanLiteral, _Mapping]]] = ...) -> None: ...

class SketchTable(_message.Message):
    __slots__ = ("steps",)
    class Step(_message.Message):
        __slots__ = ("element", "own")
        ELEMENT_FIELD_NUMBER: _ClassVar[int]
        OWN_FIELD_NUMBER: _ClassVar[int]
        element: bytes
        own: int
        def __init__(self, element: _Optional[bytes] = ..., own: _Optional[int] = ...) -> None: ...
    STEPS_FIELD_NUMBER: _ClassVar[int]
    steps: _containers.RepeatedCompositeFieldContainer[SketchTable.Step]
    def __init__(self, steps: _Optional[_Iterable[_Union[SketchTable.Step, _Mapping]]] = ...) -> None: ...

class ScanSketch(_message.Message):
    __slots__ = ("tables", "every", "max_keys")
    TABLES_FIELD_NUMBER: _ClassVar[int]
    EVERY_FIELD_NUMBER: _ClassVar[int]
    MAX_KEYS_FIELD_NUMBER: _ClassVar[int]
    tables: _containers.RepeatedCompositeFieldContainer[SketchTable]
    every: int
    max_keys: int
    def __init__(self, tables: _Optional[_Iterable[_Union[SketchTable, _Mapping]]] = ..., every: _Optional[int] = ..., max_keys: _Optional[int] = ...) -> None: ...

class KeyElement(_message.Message):
    __slots__ = ("position", "element")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    ELEMENT_FIELD_NUMBER: _ClassVar[int]
    position: int
    element: bytes
    def __init__(self, position: _Optional[int] = ..., element: _Optional[bytes] = ...) -> None: ...

class ScanRequest(_message.Message):
    __slots__ = ("group", "timestamp", "ranges", "columns", "predicates", "limit", "batch_rows", "key_elements", "table_element", "table_position", "timeout_ms", "protocol_version", "sketch", "more_elements", "background")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    PREDICATES_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    BATCH_ROWS_FIELD_NUMBER: _ClassVar[int]
    KEY_ELEMENTS_FIELD_NUMBER: _ClassVar[int]
    TABLE_ELEMENT_FIELD_NUMBER: _ClassVar[int]
    TABLE_POSITION_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    SKETCH_FIELD_NUMBER: _ClassVar[int]
    MORE_ELEMENTS_FIELD_NUMBER: _ClassVar[int]
    BACKGROUND_FIELD_NUMBER: _ClassVar[int]
    group: int
    timestamp: int
    ranges: _containers.RepeatedCompositeFieldContainer[_types_pb2.KeyRange]
    columns: _containers.RepeatedCompositeFieldContainer[ScanColumn]
    predicates: _containers.RepeatedCompositeFieldContainer[ScanPredicate]
    limit: int
    batch_rows: int
    key_elements: int
    table_element: bytes
    table_position: int
    timeout_ms: int
    protocol_version: int
    sketch: ScanSketch
    more_elements: _containers.RepeatedCompositeFieldContainer[KeyElement]
    background: bool
    def __init__(self, group: _Optional[int] = ..., timestamp: _Optional[int] = ..., ranges: _Optional[_Iterable[_Union[_types_pb2.KeyRange, _Mapping]]] = ..., columns: _Optional[_Iterable[_Union[ScanColumn, _Mapping]]] = ..., predicates: _Optional[_Iterable[_Union[ScanPredicate, _Mapping]]] = ..., limit: _Optional[int] = ..., batch_rows: _Optional[int] = ..., key_elements: _Optional[int] = ..., table_element: _Optional[bytes] = ..., table_position: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., protocol_version: _Optional[int] = ..., sketch: _Optional[_Union[ScanSketch, _Mapping]] = ..., more_elements: _Optional[_Iterable[_Union[KeyElement, _Mapping]]] = ..., background: _Optional[bool] = ...) -> None: ...

class ScanChunk(_message.Message):
    __slots__ = ("ipc", "timestamp", "rows", "range", "resume", "last")
    IPC_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    RANGE_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    ipc: bytes
    timestamp: int
    rows: int
    range: int
    resume: bytes
    last: bool
    def __init__(self, ipc: _Optional[bytes] = ..., timestamp: _Optional[int] = ..., rows: _Optional[int] = ..., range: _Optional[int] = ..., resume: _Optional[bytes] = ..., last: _Optional[bool] = ...) -> None: ...

class StateRequest(_message.Message):
    __slots__ = ("protocol_version", "cluster_id", "receiver", "group", "probe", "base_index", "after", "max_chunk_bytes")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    RECEIVER_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PROBE_FIELD_NUMBER: _ClassVar[int]
    BASE_INDEX_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    MAX_CHUNK_BYTES_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    cluster_id: str
    receiver: str
    group: int
    probe: bool
    base_index: int
    after: bytes
    max_chunk_bytes: int
    def __init__(self, protocol_version: _Optional[int] = ..., cluster_id: _Optional[str] = ..., receiver: _Optional[str] = ..., group: _Optional[int] = ..., probe: _Optional[bool] = ..., base_index: _Optional[int] = ..., after: _Optional[bytes] = ..., max_chunk_bytes: _Optional[int] = ...) -> None: ...

class StateChunk(_message.Message):
    __slots__ = ("part", "applied_index", "payload", "checksum")
    class Part(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        HEADER: _ClassVar[StateChunk.Part]
        RECORDS: _ClassVar[StateChunk.Part]
        ROWS: _ClassVar[StateChunk.Part]
        END: _ClassVar[StateChunk.Part]
    HEADER: StateChunk.Part
    RECORDS: StateChunk.Part
    ROWS: StateChunk.Part
    END: StateChunk.Part
    PART_FIELD_NUMBER: _ClassVar[int]
    APPLIED_INDEX_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    part: StateChunk.Part
    applied_index: int
    payload: bytes
    checksum: int
    def __init__(self, part: _Optional[_Union[StateChunk.Part, str]] = ..., applied_index: _Optional[int] = ..., payload: _Optional[bytes] = ..., checksum: _Optional[int] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GroupStatus(_message.Message):
    __slots__ = ("group", "role", "leader", "ballot_round", "chosen_index", "applied_index", "last_index", "safe_ts", "lease_valid", "prepared", "locked_transactions", "safe_holder", "safe_holder_ts", "digest", "member", "members_version", "voters", "learners", "matches", "mark_ts", "removed_versions", "removed_bytes", "forgotten_outcomes", "collecting_passes", "last_pass_ts", "damaged_keys", "load_rows_per_s", "load_keys")
    class MatchesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    GROUP_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    BALLOT_ROUND_FIELD_NUMBER: _ClassVar[int]
    CHOSEN_INDEX_FIELD_NUMBER: _ClassVar[int]
    APPLIED_INDEX_FIELD_NUMBER: _ClassVar[int]
    LAST_INDEX_FIELD_NUMBER: _ClassVar[int]
    SAFE_TS_FIELD_NUMBER: _ClassVar[int]
    LEASE_VALID_FIELD_NUMBER: _ClassVar[int]
    PREPARED_FIELD_NUMBER: _ClassVar[int]
    LOCKED_TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    SAFE_HOLDER_FIELD_NUMBER: _ClassVar[int]
    SAFE_HOLDER_TS_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_VERSION_FIELD_NUMBER: _ClassVar[int]
    VOTERS_FIELD_NUMBER: _ClassVar[int]
    LEARNERS_FIELD_NUMBER: _ClassVar[int]
    MATCHES_FIELD_NUMBER: _ClassVar[int]
    MARK_TS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    FORGOTTEN_OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    COLLECTING_PASSES_FIELD_NUMBER: _ClassVar[int]
    LAST_PASS_TS_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_KEYS_FIELD_NUMBER: _ClassVar[int]
    LOAD_ROWS_PER_S_FIELD_NUMBER: _ClassVar[int]
    LOAD_KEYS_FIELD_NUMBER: _ClassVar[int]
    group: int
    role: str
    leader: str
    ballot_round: int
    chosen_index: int
    applied_index: int
    last_index: int
    safe_ts: int
    lease_valid: bool
    prepared: int
    locked_transactions: int
    safe_holder: str
    safe_holder_ts: int
    digest: int
    member: str
    members_version: int
    voters: _containers.RepeatedScalarFieldContainer[str]
    learners: _containers.RepeatedScalarFieldContainer[str]
    matches: _containers.ScalarMap[str, int]
    mark_ts: int
    removed_versions: int
    removed_bytes: int
    forgotten_outcomes: int
    collecting_passes: int
    last_pass_ts: int
    damaged_keys: int
    load_rows_per_s: float
    load_keys: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, group: _Optional[int] = ..., role: _Optional[str] = ..., leader: _Optional[str] = ..., ballot_round: _Optional[int] = ..., chosen_index: _Optional[int] = ..., applied_index: _Optional[int] = ..., last_index: _Optional[int] = ..., safe_ts: _Optional[int] = ..., lease_valid: _Optional[bool] = ..., prepared: _Optional[int] = ..., locked_transactions: _Optional[int] = ..., safe_holder: _Optional[str] = ..., safe_holder_ts: _Optional[int] = ..., digest: _Optional[int] = ..., member: _Optional[str] = ..., members_version: _Optional[int] = ..., voters: _Optional[_Iterable[str]] = ..., learners: _Optional[_Iterable[str]] = ..., matches: _Optional[_Mapping[str, int]] = ..., mark_ts: _Optional[int] = ..., removed_versions: _Optional[int] = ..., removed_bytes: _Optional[int] = ..., forgotten_outcomes: _Optional[int] = ..., collecting_passes: _Optional[int] = ..., last_pass_ts: _Optional[int] = ..., damaged_keys: _Optional[int] = ..., load_rows_per_s: _Optional[float] = ..., load_keys: _Optional[_Iterable[bytes]] = ...) -> None: ...

class ScrubStatus(_message.Message):
    __slots__ = ("passes", "running", "position", "records", "bytes", "findings")
    PASSES_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    passes: int
    running: bool
    position: str
    records: int
    bytes: int
    findings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, passes: _Optional[int] = ..., running: _Optional[bool] = ..., position: _Optional[str] = ..., records: _Optional[int] = ..., bytes: _Optional[int] = ..., findings: _Optional[_Iterable[str]] = ...) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ("name", "zone", "cluster_id", "version", "now_earliest", "now_latest", "groups", "disk_used_bytes", "disk_map_bytes", "commits", "installing", "conditions", "scrub", "damaged_groups", "sync_us", "longest_sync_us", "disk_room_bytes", "home", "all_damaged")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NOW_EARLIEST_FIELD_NUMBER: _ClassVar[int]
    NOW_LATEST_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    DISK_USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_MAP_BYTES_FIELD_NUMBER: _ClassVar[int]
    COMMITS_FIELD_NUMBER: _ClassVar[int]
    INSTALLING_FIELD_NUMBER: _ClassVar[int]
    CONDITIONS_FIELD_NUMBER: _ClassVar[int]
    SCRUB_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_GROUPS_FIELD_NUMBER: _ClassVar[int]
    SYNC_US_FIELD_NUMBER: _ClassVar[int]
    LONGEST_SYNC_US_FIELD_NUMBER: _ClassVar[int]
    DISK_ROOM_BYTES_FIELD_NUMBER: _ClassVar[int]
    HOME_FIELD_NUMBER: _ClassVar[int]
    ALL_DAMAGED_FIELD_NUMBER: _ClassVar[int]
    name: str
    zone: str
    cluster_id: str
    version: str
    now_earliest: int
    now_latest: int
    groups: _containers.RepeatedCompositeFieldContainer[GroupStatus]
    disk_used_bytes: int
    disk_map_bytes: int
    commits: int
    installing: _containers.RepeatedCompositeFieldContainer[InstallingStatus]
    conditions: _containers.RepeatedScalarFieldContainer[str]
    scrub: ScrubStatus
    damaged_groups: _containers.RepeatedScalarFieldContainer[int]
    sync_us: int
    longest_sync_us: int
    disk_room_bytes: int
    home: str
    all_damaged: bool
    def __init__(self, name: _Optional[str] = ..., zone: _Optional[str] = ..., cluster_id: _Optional[str] = ..., version: _Optional[str] = ..., now_earliest: _Optional[int] = ..., now_latest: _Optional[int] = ..., groups: _Optional[_Iterable[_Union[GroupStatus, _Mapping]]] = ..., disk_used_bytes: _Optional[int] = ..., disk_map_bytes: _Optional[int] = ..., commits: _Optional[int] = ..., installing: _Optional[_Iterable[_Union[InstallingStatus, _Mapping]]] = ..., conditions: _Optional[_Iterable[str]] = ..., scrub: _Optional[_Union[ScrubStatus, _Mapping]] = ..., damaged_groups: _Optional[_Iterable[int]] = ..., sync_us: _Optional[int] = ..., longest_sync_us: _Optional[int] = ..., disk_room_bytes: _Optional[int] = ..., home: _Optional[str] = ..., all_damaged: _Optional[bool] = ...) -> None: ...

class InstallingStatus(_message.Message):
    __slots__ = ("group", "source", "received_bytes", "base_index", "note")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    BASE_INDEX_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    group: int
    source: str
    received_bytes: int
    base_index: int
    note: str
    def __init__(self, group: _Optional[int] = ..., source: _Optional[str] = ..., received_bytes: _Optional[int] = ..., base_index: _Optional[int] = ..., note: _Optional[str] = ...) -> None: ...
