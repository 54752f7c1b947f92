from f1common.pb import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BeatBatch(_message.Message):
    __slots__ = ("beats", "protocol_version")
    BEATS_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    beats: _containers.RepeatedCompositeFieldContainer[Beat]
    protocol_version: int
    def __init__(self, beats: _Optional[_Iterable[_Union[Beat, _Mapping]]] = ..., protocol_version: _Optional[int] = ...) -> None: ...

class BeatReplies(_message.Message):
    __slots__ = ("replies",)
    REPLIES_FIELD_NUMBER: _ClassVar[int]
    replies: _containers.RepeatedCompositeFieldContainer[BeatReply]
    def __init__(self, replies: _Optional[_Iterable[_Union[BeatReply, _Mapping]]] = ...) -> None: ...

class Beat(_message.Message):
    __slots__ = ("id", "slave", "number", "running", "lag_us", "draining", "failing")
    ID_FIELD_NUMBER: _ClassVar[int]
    SLAVE_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    LAG_US_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    FAILING_FIELD_NUMBER: _ClassVar[int]
    id: int
    slave: SlaveIdentity
    number: int
    running: int
    lag_us: int
    draining: bool
    failing: str
    def __init__(self, id: _Optional[int] = ..., slave: _Optional[_Union[SlaveIdentity, _Mapping]] = ..., number: _Optional[int] = ..., running: _Optional[int] = ..., lag_us: _Optional[int] = ..., draining: _Optional[bool] = ..., failing: _Optional[str] = ...) -> None: ...

class SlaveIdentity(_message.Message):
    __slots__ = ("name", "address", "zone", "version", "incarnation", "started_us", "threads", "memory_bytes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    STARTED_US_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    address: str
    zone: str
    version: str
    incarnation: int
    started_us: int
    threads: int
    memory_bytes: int
    def __init__(self, name: _Optional[str] = ..., address: _Optional[str] = ..., zone: _Optional[str] = ..., version: _Optional[str] = ..., incarnation: _Optional[int] = ..., started_us: _Optional[int] = ..., threads: _Optional[int] = ..., memory_bytes: _Optional[int] = ...) -> None: ...

class BeatReply(_message.Message):
    __slots__ = ("id", "error", "replaced")
    ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    REPLACED_FIELD_NUMBER: _ClassVar[int]
    id: int
    error: _types_pb2.Error
    replaced: bool
    def __init__(self, id: _Optional[int] = ..., error: _Optional[_Union[_types_pb2.Error, _Mapping]] = ..., replaced: _Optional[bool] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("server", "protocol_version")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    server: str
    protocol_version: int
    def __init__(self, server: _Optional[str] = ..., protocol_version: _Optional[int] = ...) -> None: ...

class PoolList(_message.Message):
    __slots__ = ("epoch", "version", "settling", "keepalive_ms", "slaves")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SETTLING_FIELD_NUMBER: _ClassVar[int]
    KEEPALIVE_MS_FIELD_NUMBER: _ClassVar[int]
    SLAVES_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    version: int
    settling: bool
    keepalive_ms: int
    slaves: _containers.RepeatedCompositeFieldContainer[SlaveEntry]
    def __init__(self, epoch: _Optional[int] = ..., version: _Optional[int] = ..., settling: _Optional[bool] = ..., keepalive_ms: _Optional[int] = ..., slaves: _Optional[_Iterable[_Union[SlaveEntry, _Mapping]]] = ...) -> None: ...

class SlaveEntry(_message.Message):
    __slots__ = ("slave", "state", "since_version", "running", "reason")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNKNOWN: _ClassVar[SlaveEntry.State]
        LIVE: _ClassVar[SlaveEntry.State]
        SUSPECT: _ClassVar[SlaveEntry.State]
        DRAINING: _ClassVar[SlaveEntry.State]
    UNKNOWN: SlaveEntry.State
    LIVE: SlaveEntry.State
    SUSPECT: SlaveEntry.State
    DRAINING: SlaveEntry.State
    SLAVE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SINCE_VERSION_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    slave: SlaveIdentity
    state: SlaveEntry.State
    since_version: int
    running: int
    reason: str
    def __init__(self, slave: _Optional[_Union[SlaveIdentity, _Mapping]] = ..., state: _Optional[_Union[SlaveEntry.State, str]] = ..., since_version: _Optional[int] = ..., running: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...
