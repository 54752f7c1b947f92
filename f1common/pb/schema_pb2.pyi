from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ElementState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ABSENT: _ClassVar[ElementState]
    DELETE_ONLY: _ClassVar[ElementState]
    WRITE_ONLY: _ClassVar[ElementState]
    PUBLIC: _ClassVar[ElementState]

class Privilege(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NO_PRIVILEGE: _ClassVar[Privilege]
    SELECT: _ClassVar[Privilege]
    INSERT: _ClassVar[Privilege]
    UPDATE: _ClassVar[Privilege]
    DELETE: _ClassVar[Privilege]
ABSENT: ElementState
DELETE_ONLY: ElementState
WRITE_ONLY: ElementState
PUBLIC: ElementState
NO_PRIVILEGE: Privilege
SELECT: Privilege
INSERT: Privilege
UPDATE: Privilege
DELETE: Privilege

class ColumnType(_message.Message):
    __slots__ = ("kind", "proto", "max_length", "precision", "scale")
    KIND_FIELD_NUMBER: _ClassVar[int]
    PROTO_FIELD_NUMBER: _ClassVar[int]
    MAX_LENGTH_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    kind: str
    proto: str
    max_length: int
    precision: int
    scale: int
    def __init__(self, kind: _Optional[str] = ..., proto: _Optional[str] = ..., max_length: _Optional[int] = ..., precision: _Optional[int] = ..., scale: _Optional[int] = ...) -> None: ...

class Column(_message.Message):
    __slots__ = ("id", "name", "type", "not_null", "default_sql", "state", "hidden", "untracked", "not_null_state", "former_names", "dropping")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    NOT_NULL_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_SQL_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_FIELD_NUMBER: _ClassVar[int]
    UNTRACKED_FIELD_NUMBER: _ClassVar[int]
    NOT_NULL_STATE_FIELD_NUMBER: _ClassVar[int]
    FORMER_NAMES_FIELD_NUMBER: _ClassVar[int]
    DROPPING_FIELD_NUMBER: _ClassVar[int]
    id: int
    name: str
    type: ColumnType
    not_null: bool
    default_sql: str
    state: ElementState
    hidden: bool
    untracked: bool
    not_null_state: ElementState
    former_names: _containers.RepeatedCompositeFieldContainer[FormerName]
    dropping: bool
    def __init__(self, id: _Optional[int] = ..., name: _Optional[str] = ..., type: _Optional[_Union[ColumnType, _Mapping]] = ..., not_null: _Optional[bool] = ..., default_sql: _Optional[str] = ..., state: _Optional[_Union[ElementState, str]] = ..., hidden: _Optional[bool] = ..., untracked: _Optional[bool] = ..., not_null_state: _Optional[_Union[ElementState, str]] = ..., former_names: _Optional[_Iterable[_Union[FormerName, _Mapping]]] = ..., dropping: _Optional[bool] = ...) -> None: ...

class FormerName(_message.Message):
    __slots__ = ("name", "until")
    NAME_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    name: str
    until: int
    def __init__(self, name: _Optional[str] = ..., until: _Optional[int] = ...) -> None: ...

class IndexPart(_message.Message):
    __slots__ = ("column_id", "path")
    COLUMN_ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    column_id: int
    path: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, column_id: _Optional[int] = ..., path: _Optional[_Iterable[str]] = ...) -> None: ...

class Index(_message.Message):
    __slots__ = ("id", "name", "parts", "unique", "local", "storing", "state", "readable_from")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    STORING_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    READABLE_FROM_FIELD_NUMBER: _ClassVar[int]
    id: int
    name: str
    parts: _containers.RepeatedCompositeFieldContainer[IndexPart]
    unique: bool
    local: bool
    storing: _containers.RepeatedScalarFieldContainer[int]
    state: ElementState
    readable_from: int
    def __init__(self, id: _Optional[int] = ..., name: _Optional[str] = ..., parts: _Optional[_Iterable[_Union[IndexPart, _Mapping]]] = ..., unique: _Optional[bool] = ..., local: _Optional[bool] = ..., storing: _Optional[_Iterable[int]] = ..., state: _Optional[_Union[ElementState, str]] = ..., readable_from: _Optional[int] = ...) -> None: ...

class ForeignKey(_message.Message):
    __slots__ = ("id", "name", "column_ids", "referenced_table_id", "referenced_column_ids", "state")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    COLUMN_IDS_FIELD_NUMBER: _ClassVar[int]
    REFERENCED_TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    REFERENCED_COLUMN_IDS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    id: int
    name: str
    column_ids: _containers.RepeatedScalarFieldContainer[int]
    referenced_table_id: int
    referenced_column_ids: _containers.RepeatedScalarFieldContainer[int]
    state: ElementState
    def __init__(self, id: _Optional[int] = ..., name: _Optional[str] = ..., column_ids: _Optional[_Iterable[int]] = ..., referenced_table_id: _Optional[int] = ..., referenced_column_ids: _Optional[_Iterable[int]] = ..., state: _Optional[_Union[ElementState, str]] = ...) -> None: ...

class Check(_message.Message):
    __slots__ = ("id", "name", "sql", "state")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SQL_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    id: int
    name: str
    sql: str
    state: ElementState
    def __init__(self, id: _Optional[int] = ..., name: _Optional[str] = ..., sql: _Optional[str] = ..., state: _Optional[_Union[ElementState, str]] = ...) -> None: ...

class LockColumn(_message.Message):
    __slots__ = ("id", "name", "column_ids", "state")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    COLUMN_IDS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    id: int
    name: str
    column_ids: _containers.RepeatedScalarFieldContainer[int]
    state: ElementState
    def __init__(self, id: _Optional[int] = ..., name: _Optional[str] = ..., column_ids: _Optional[_Iterable[int]] = ..., state: _Optional[_Union[ElementState, str]] = ...) -> None: ...

class Table(_message.Message):
    __slots__ = ("id", "name", "parent_id", "cascade", "columns", "key_column_ids", "indexes", "foreign_keys", "checks", "locks", "state", "untracked", "dual", "mirror_of", "readable_from", "anchor_id", "anchor_column_ids", "grants", "history_from")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARENT_ID_FIELD_NUMBER: _ClassVar[int]
    CASCADE_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    KEY_COLUMN_IDS_FIELD_NUMBER: _ClassVar[int]
    INDEXES_FIELD_NUMBER: _ClassVar[int]
    FOREIGN_KEYS_FIELD_NUMBER: _ClassVar[int]
    CHECKS_FIELD_NUMBER: _ClassVar[int]
    LOCKS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    UNTRACKED_FIELD_NUMBER: _ClassVar[int]
    DUAL_FIELD_NUMBER: _ClassVar[int]
    MIRROR_OF_FIELD_NUMBER: _ClassVar[int]
    READABLE_FROM_FIELD_NUMBER: _ClassVar[int]
    ANCHOR_ID_FIELD_NUMBER: _ClassVar[int]
    ANCHOR_COLUMN_IDS_FIELD_NUMBER: _ClassVar[int]
    GRANTS_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FROM_FIELD_NUMBER: _ClassVar[int]
    id: int
    name: str
    parent_id: int
    cascade: bool
    columns: _containers.RepeatedCompositeFieldContainer[Column]
    key_column_ids: _containers.RepeatedScalarFieldContainer[int]
    indexes: _containers.RepeatedCompositeFieldContainer[Index]
    foreign_keys: _containers.RepeatedCompositeFieldContainer[ForeignKey]
    checks: _containers.RepeatedCompositeFieldContainer[Check]
    locks: _containers.RepeatedCompositeFieldContainer[LockColumn]
    state: ElementState
    untracked: bool
    dual: _containers.RepeatedScalarFieldContainer[int]
    mirror_of: int
    readable_from: int
    anchor_id: int
    anchor_column_ids: _containers.RepeatedScalarFieldContainer[int]
    grants: _containers.RepeatedCompositeFieldContainer[Grant]
    history_from: int
    def __init__(self, id: _Optional[int] = ..., name: _Optional[str] = ..., parent_id: _Optional[int] = ..., cascade: _Optional[bool] = ..., columns: _Optional[_Iterable[_Union[Column, _Mapping]]] = ..., key_column_ids: _Optional[_Iterable[int]] = ..., indexes: _Optional[_Iterable[_Union[Index, _Mapping]]] = ..., foreign_keys: _Optional[_Iterable[_Union[ForeignKey, _Mapping]]] = ..., checks: _Optional[_Iterable[_Union[Check, _Mapping]]] = ..., locks: _Optional[_Iterable[_Union[LockColumn, _Mapping]]] = ..., state: _Optional[_Union[ElementState, str]] = ..., untracked: _Optional[bool] = ..., dual: _Optional[_Iterable[int]] = ..., mirror_of: _Optional[int] = ..., readable_from: _Optional[int] = ..., anchor_id: _Optional[int] = ..., anchor_column_ids: _Optional[_Iterable[int]] = ..., grants: _Optional[_Iterable[_Union[Grant, _Mapping]]] = ..., history_from: _Optional[int] = ...) -> None: ...

class Grant(_message.Message):
    __slots__ = ("role_id", "privileges")
    ROLE_ID_FIELD_NUMBER: _ClassVar[int]
    PRIVILEGES_FIELD_NUMBER: _ClassVar[int]
    role_id: int
    privileges: int
    def __init__(self, role_id: _Optional[int] = ..., privileges: _Optional[int] = ...) -> None: ...

class Role(_message.Message):
    __slots__ = ("id", "name", "login", "superuser", "create", "verifier", "member_of")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LOGIN_FIELD_NUMBER: _ClassVar[int]
    SUPERUSER_FIELD_NUMBER: _ClassVar[int]
    CREATE_FIELD_NUMBER: _ClassVar[int]
    VERIFIER_FIELD_NUMBER: _ClassVar[int]
    MEMBER_OF_FIELD_NUMBER: _ClassVar[int]
    id: int
    name: str
    login: bool
    superuser: bool
    create: bool
    verifier: str
    member_of: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, id: _Optional[int] = ..., name: _Optional[str] = ..., login: _Optional[bool] = ..., superuser: _Optional[bool] = ..., create: _Optional[bool] = ..., verifier: _Optional[str] = ..., member_of: _Optional[_Iterable[int]] = ...) -> None: ...

class View(_message.Message):
    __slots__ = ("name", "sql")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SQL_FIELD_NUMBER: _ClassVar[int]
    name: str
    sql: str
    def __init__(self, name: _Optional[str] = ..., sql: _Optional[str] = ...) -> None: ...

class ProtoFile(_message.Message):
    __slots__ = ("name", "text")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    name: str
    text: str
    def __init__(self, name: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class Schema(_message.Message):
    __slots__ = ("database", "version", "tables", "views", "proto_files", "descriptor_set", "dropped", "roles", "elements_since")
    DATABASE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    PROTO_FILES_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTOR_SET_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    ROLES_FIELD_NUMBER: _ClassVar[int]
    ELEMENTS_SINCE_FIELD_NUMBER: _ClassVar[int]
    database: str
    version: int
    tables: _containers.RepeatedCompositeFieldContainer[Table]
    views: _containers.RepeatedCompositeFieldContainer[View]
    proto_files: _containers.RepeatedCompositeFieldContainer[ProtoFile]
    descriptor_set: bytes
    dropped: _containers.RepeatedScalarFieldContainer[str]
    roles: _containers.RepeatedCompositeFieldContainer[Role]
    elements_since: int
    def __init__(self, database: _Optional[str] = ..., version: _Optional[int] = ..., tables: _Optional[_Iterable[_Union[Table, _Mapping]]] = ..., views: _Optional[_Iterable[_Union[View, _Mapping]]] = ..., proto_files: _Optional[_Iterable[_Union[ProtoFile, _Mapping]]] = ..., descriptor_set: _Optional[bytes] = ..., dropped: _Optional[_Iterable[str]] = ..., roles: _Optional[_Iterable[_Union[Role, _Mapping]]] = ..., elements_since: _Optional[int] = ...) -> None: ...
