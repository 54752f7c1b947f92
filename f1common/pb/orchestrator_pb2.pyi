from f1common.pb import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ServiceStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TimestampsStatus(_message.Message):
    __slots__ = ("name", "zone", "version", "leads", "term", "last")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LEADS_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    name: str
    zone: str
    version: str
    leads: bool
    term: int
    last: int
    def __init__(self, name: _Optional[str] = ..., zone: _Optional[str] = ..., version: _Optional[str] = ..., leads: _Optional[bool] = ..., term: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...

class LocksStatus(_message.Message):
    __slots__ = ("name", "zone", "version", "incarnation", "leases", "waiting")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    name: str
    zone: str
    version: str
    incarnation: int
    leases: int
    waiting: int
    def __init__(self, name: _Optional[str] = ..., zone: _Optional[str] = ..., version: _Optional[str] = ..., incarnation: _Optional[int] = ..., leases: _Optional[int] = ..., waiting: _Optional[int] = ...) -> None: ...

class TimestampRequests(_message.Message):
    __slots__ = ("requests", "protocol_version")
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[TimestampRequest]
    protocol_version: int
    def __init__(self, requests: _Optional[_Iterable[_Union[TimestampRequest, _Mapping]]] = ..., protocol_version: _Optional[int] = ...) -> None: ...

class TimestampReplies(_message.Message):
    __slots__ = ("replies",)
    REPLIES_FIELD_NUMBER: _ClassVar[int]
    replies: _containers.RepeatedCompositeFieldContainer[TimestampReply]
    def __init__(self, replies: _Optional[_Iterable[_Union[TimestampReply, _Mapping]]] = ...) -> None: ...

class TimestampRequest(_message.Message):
    __slots__ = ("id", "count")
    ID_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    id: int
    count: int
    def __init__(self, id: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class TimestampReply(_message.Message):
    __slots__ = ("id", "error", "first")
    ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    id: int
    error: _types_pb2.Error
    first: int
    def __init__(self, id: _Optional[int] = ..., error: _Optional[_Union[_types_pb2.Error, _Mapping]] = ..., first: _Optional[int] = ...) -> None: ...

class LockRequests(_message.Message):
    __slots__ = ("requests", "protocol_version")
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[LockRequest]
    protocol_version: int
    def __init__(self, requests: _Optional[_Iterable[_Union[LockRequest, _Mapping]]] = ..., protocol_version: _Optional[int] = ...) -> None: ...

class LockReplies(_message.Message):
    __slots__ = ("replies",)
    REPLIES_FIELD_NUMBER: _ClassVar[int]
    replies: _containers.RepeatedCompositeFieldContainer[LockReply]
    def __init__(self, replies: _Optional[_Iterable[_Union[LockReply, _Mapping]]] = ...) -> None: ...

class LockRequest(_message.Message):
    __slots__ = ("id", "acquire", "withdraw", "refresh", "validate", "release", "oldest_bound")
    ID_FIELD_NUMBER: _ClassVar[int]
    ACQUIRE_FIELD_NUMBER: _ClassVar[int]
    WITHDRAW_FIELD_NUMBER: _ClassVar[int]
    REFRESH_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    OLDEST_BOUND_FIELD_NUMBER: _ClassVar[int]
    id: int
    acquire: AcquireLocks
    withdraw: WithdrawLocks
    refresh: LockTokens
    validate: LockTokens
    release: LockTokens
    oldest_bound: AskOldestBound
    def __init__(self, id: _Optional[int] = ..., acquire: _Optional[_Union[AcquireLocks, _Mapping]] = ..., withdraw: _Optional[_Union[WithdrawLocks, _Mapping]] = ..., refresh: _Optional[_Union[LockTokens, _Mapping]] = ..., validate: _Optional[_Union[LockTokens, _Mapping]] = ..., release: _Optional[_Union[LockTokens, _Mapping]] = ..., oldest_bound: _Optional[_Union[AskOldestBound, _Mapping]] = ...) -> None: ...

class AcquireLocks(_message.Message):
    __slots__ = ("request", "locks", "bound", "wait_ms")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    LOCKS_FIELD_NUMBER: _ClassVar[int]
    BOUND_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    request: bytes
    locks: _containers.RepeatedCompositeFieldContainer[WantedLock]
    bound: int
    wait_ms: int
    def __init__(self, request: _Optional[bytes] = ..., locks: _Optional[_Iterable[_Union[WantedLock, _Mapping]]] = ..., bound: _Optional[int] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class WantedLock(_message.Message):
    __slots__ = ("name", "mode")
    class Mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNKNOWN: _ClassVar[WantedLock.Mode]
        READ: _ClassVar[WantedLock.Mode]
        WRITE: _ClassVar[WantedLock.Mode]
    UNKNOWN: WantedLock.Mode
    READ: WantedLock.Mode
    WRITE: WantedLock.Mode
    NAME_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    mode: WantedLock.Mode
    def __init__(self, name: _Optional[bytes] = ..., mode: _Optional[_Union[WantedLock.Mode, str]] = ...) -> None: ...

class WithdrawLocks(_message.Message):
    __slots__ = ("request",)
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    request: bytes
    def __init__(self, request: _Optional[bytes] = ...) -> None: ...

class LockToken(_message.Message):
    __slots__ = ("incarnation", "number")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    number: int
    def __init__(self, incarnation: _Optional[int] = ..., number: _Optional[int] = ...) -> None: ...

class LockTokens(_message.Message):
    __slots__ = ("tokens",)
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedCompositeFieldContainer[LockToken]
    def __init__(self, tokens: _Optional[_Iterable[_Union[LockToken, _Mapping]]] = ...) -> None: ...

class AskOldestBound(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LockReply(_message.Message):
    __slots__ = ("id", "error", "token", "lease_ms", "alive", "bound")
    ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    BOUND_FIELD_NUMBER: _ClassVar[int]
    id: int
    error: _types_pb2.Error
    token: LockToken
    lease_ms: int
    alive: _containers.RepeatedScalarFieldContainer[bool]
    bound: int
    def __init__(self, id: _Optional[int] = ..., error: _Optional[_Union[_types_pb2.Error, _Mapping]] = ..., token: _Optional[_Union[LockToken, _Mapping]] = ..., lease_ms: _Optional[int] = ..., alive: _Optional[_Iterable[bool]] = ..., bound: _Optional[int] = ...) -> None: ...
