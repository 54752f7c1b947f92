from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class OfferRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class OfferReply(_message.Message):
    __slots__ = ("port", "secret", "methods")
    PORT_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    METHODS_FIELD_NUMBER: _ClassVar[int]
    port: int
    secret: bytes
    methods: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, port: _Optional[int] = ..., secret: _Optional[bytes] = ..., methods: _Optional[_Iterable[str]] = ...) -> None: ...
