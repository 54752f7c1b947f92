"""The schema as bytes: one protobuf value (``proto/schema.proto``), the same bytes for the same schema."""

from google.protobuf.message import DecodeError

from f1common.errors import Code, F1Error
from f1common.pb import schema_pb2 as pb
from f1server.catalog.roles import Grant, Privilege, Role
from f1server.catalog.schema import (
    Check,
    Column,
    ColumnType,
    ElementState,
    ForeignKey,
    Index,
    IndexPart,
    Kind,
    LockColumn,
    Schema,
    Table,
    View,
)

__all__ = ["decode_schema", "encode_schema", "schema_from_pb", "schema_to_pb"]


def encode_schema(schema: Schema) -> bytes:
    """Return the bytes of a schema, without ``commit_ts``: that is the timestamp of the version that holds them."""
    return schema_to_pb(schema).SerializeToString(deterministic=True)


def decode_schema(data: bytes, commit_ts: int = 0) -> Schema:
    """Read what :func:`encode_schema` wrote. Raises F1Error DATA_CORRUPTION."""
    try:
        return schema_from_pb(pb.Schema.FromString(data), commit_ts)
    except (DecodeError, ValueError) as error:
        raise F1Error(Code.DATA_CORRUPTION, f"the bytes are no schema: {error}") from error


def schema_to_pb(schema: Schema) -> pb.Schema:
    """Convert to the message."""
    return pb.Schema(
        database=schema.database,
        version=schema.version,
        tables=[_table_to_pb(table) for table in schema.tables],
        views=[pb.View(name=view.name, sql=view.sql) for view in schema.views],
        proto_files=[pb.ProtoFile(name=name, text=text) for name, text in schema.proto_files],
        descriptor_set=schema.descriptor_set,
        dropped=schema.dropped,
        elements_since=schema.elements_since,
        roles=[
            pb.Role(
                id=role.id,
                name=role.name,
                login=role.login,
                superuser=role.superuser,
                create=role.create,
                verifier=role.verifier,
                member_of=role.member_of,
            )
            for role in schema.roles
        ],
    )


def schema_from_pb(message: pb.Schema, commit_ts: int = 0) -> Schema:
    """Convert from the message. Raises ValueError for a type or state that this version does not know."""
    return Schema(
        database=message.database,
        version=message.version,
        tables=tuple(_table_from_pb(table) for table in message.tables),
        views=tuple(View(view.name, view.sql) for view in message.views),
        proto_files=tuple((file.name, file.text) for file in message.proto_files),
        descriptor_set=message.descriptor_set,
        dropped=tuple(message.dropped),
        elements_since=message.elements_since,
        roles=tuple(
            Role(r.id, r.name, r.login, r.superuser, r.create, r.verifier, tuple(r.member_of)) for r in message.roles
        ),
        commit_ts=commit_ts,
    )


def _table_to_pb(table: Table) -> pb.Table:
    return pb.Table(
        id=table.id,
        name=table.name,
        parent_id=table.parent_id,
        cascade=table.cascade,
        columns=[_column_to_pb(column) for column in table.columns],
        key_column_ids=table.key_column_ids,
        indexes=[_index_to_pb(index) for index in table.indexes],
        foreign_keys=[
            pb.ForeignKey(
                id=key.id,
                name=key.name,
                column_ids=key.column_ids,
                referenced_table_id=key.referenced_table_id,
                referenced_column_ids=key.referenced_column_ids,
                state=int(key.state),  # type: ignore[arg-type]
            )
            for key in table.foreign_keys
        ],
        checks=[
            pb.Check(id=check.id, name=check.name, sql=check.sql, state=int(check.state))  # type: ignore[arg-type]
            for check in table.checks
        ],
        locks=[
            pb.LockColumn(id=lock.id, name=lock.name, column_ids=lock.column_ids, state=int(lock.state))  # type: ignore[arg-type]
            for lock in table.locks
        ],
        state=int(table.state),  # type: ignore[arg-type]
        untracked=table.untracked,
        dual=table.dual,
        mirror_of=table.mirror_of,
        readable_from=table.readable_from,
        history_from=table.history_from,
        anchor_id=table.anchor_id,
        anchor_column_ids=table.anchor_column_ids,
        grants=[pb.Grant(role_id=grant.role_id, privileges=int(grant.privileges)) for grant in table.grants],
    )


def _table_from_pb(message: pb.Table) -> Table:
    return Table(
        id=message.id,
        name=message.name,
        parent_id=message.parent_id,
        columns=tuple(_column_from_pb(column) for column in message.columns),
        key_column_ids=tuple(message.key_column_ids),
        cascade=message.cascade,
        indexes=tuple(_index_from_pb(index) for index in message.indexes),
        foreign_keys=tuple(
            ForeignKey(
                key.id,
                key.name,
                tuple(key.column_ids),
                key.referenced_table_id,
                tuple(key.referenced_column_ids),
                ElementState(key.state),
            )
            for key in message.foreign_keys
        ),
        checks=tuple(Check(c.id, c.name, c.sql, ElementState(c.state)) for c in message.checks),
        locks=tuple(LockColumn(k.id, k.name, tuple(k.column_ids), ElementState(k.state)) for k in message.locks),
        state=ElementState(message.state),
        untracked=message.untracked,
        dual=tuple(message.dual),
        mirror_of=message.mirror_of,
        readable_from=message.readable_from,
        history_from=message.history_from,
        anchor_id=message.anchor_id,
        anchor_column_ids=tuple(message.anchor_column_ids),
        grants=tuple(Grant(grant.role_id, Privilege(grant.privileges)) for grant in message.grants),
    )


def _column_to_pb(column: Column) -> pb.Column:
    return pb.Column(
        id=column.id,
        name=column.name,
        type=pb.ColumnType(
            kind=column.type.kind.value,
            proto=column.type.proto,
            max_length=column.type.max_length,
            precision=column.type.precision,
            scale=column.type.scale,
        ),
        not_null=column.not_null,
        default_sql=column.default_sql,
        state=int(column.state),  # type: ignore[arg-type]
        hidden=column.hidden,
        untracked=column.untracked,
        not_null_state=_unless_public(column.not_null_state),  # type: ignore[arg-type]
        former_names=[pb.FormerName(name=name, until=until) for name, until in column.former_names],
        dropping=column.dropping,
    )


def _unless_public(state: ElementState) -> int:
    """Return a state as it is stored where not set means PUBLIC."""
    return 0 if state is ElementState.PUBLIC else int(state)


def _column_from_pb(message: pb.Column) -> Column:
    kind = message.type
    return Column(
        id=message.id,
        name=message.name,
        type=ColumnType(Kind(kind.kind), kind.proto, kind.max_length, kind.precision, kind.scale),
        not_null=message.not_null,
        default_sql=message.default_sql,
        state=ElementState(message.state),
        hidden=message.hidden,
        untracked=message.untracked,
        not_null_state=ElementState(message.not_null_state or ElementState.PUBLIC),
        former_names=tuple((former.name, former.until) for former in message.former_names),
        dropping=message.dropping,
    )


def _index_to_pb(index: Index) -> pb.Index:
    return pb.Index(
        id=index.id,
        name=index.name,
        parts=[pb.IndexPart(column_id=part.column_id, path=part.path) for part in index.parts],
        unique=index.unique,
        local=index.local,
        storing=index.storing,
        state=int(index.state),  # type: ignore[arg-type]
        readable_from=index.readable_from,
    )


def _index_from_pb(message: pb.Index) -> Index:
    return Index(
        message.id,
        message.name,
        tuple(IndexPart(part.column_id, tuple(part.path)) for part in message.parts),
        message.unique,
        message.local,
        tuple(message.storing),
        ElementState(message.state),
        message.readable_from,
    )
