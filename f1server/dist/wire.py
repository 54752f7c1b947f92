"""Parts of distributed plans as protobuf messages, and back.

Tables and indexes travel as ids: both sides hold the same version of the schema, which travels beside the parts.
"""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation

from f1common.encoding.values import Date, Timestamp
from f1common.errors import Code, F1Error
from f1common.pb import slave_pb2 as pb
from f1server.catalog.codec import decode_schema, encode_schema
from f1server.catalog.schema import Index, Kind, Schema, Table
from f1server.history.table import is_history_table, with_history
from f1server.plan.constants import Unfit, plain
from f1server.plan.parts import Output, Part, PartScan, Spread, Workers
from f1server.plan.prepare import PlannedScan, ScanView
from f1server.plan.resolve import ProtoFunction
from f1server.plan.scans import Bound, FieldWanted, KeySpan, Lookup, PredicateOp, SimplePredicate, TableScan
from f1server.plan.types import SqlType
from f1server.rows.layout import of_schema
from f1server.rows.values import Value

__all__ = [
    "parts_from_pb",
    "parts_to_pb",
    "schema_from_wire",
    "schema_to_wire",
    "value_from_pb",
    "value_to_pb",
]

_WORKERS = {Workers.ALL: pb.Part.ALL, Workers.ONE: pb.Part.ONE, Workers.SERVER: pb.Part.SERVER}
_SPREADS = {
    Spread.HASH: pb.Output.HASH,
    Spread.BROADCAST: pb.Output.BROADCAST,
    Spread.GATHER: pb.Output.GATHER,
    Spread.KEEP: pb.Output.KEEP,
}
_WORKERS_OF = {number: workers for workers, number in _WORKERS.items()}
_SPREAD_OF = {number: spread for spread, number in _SPREADS.items()}


def schema_to_wire(schema: Schema) -> bytes:
    """Return the bytes of the schema of a plan, made once for each schema. The tables of history are derived again."""

    def make() -> bytes:
        stored = tuple(table for table in schema.tables if not is_history_table(table))
        # Who may read what was decided before: slaves need no roles, and no verifiers.
        return encode_schema(replace(schema, tables=stored, roles=()))

    return of_schema(schema, "wire", make)


def schema_from_wire(data: bytes, commit_ts: int) -> Schema:
    """Return the schema as plans see it. Raises F1Error DATA_CORRUPTION."""
    return with_history(decode_schema(data, commit_ts))


# ---------------------------------------------------------------- values


def value_to_pb(value: object) -> pb.Value:
    """Convert a value, a parameter or a list of them. Raises F1Error INVALID_ARGUMENT for what SQL does not know."""
    if isinstance(value, list | tuple):
        return pb.Value(list=pb.Values(values=[value_to_pb(item) for item in value]))
    match plain(value):
        case None:
            return pb.Value(null=True)
        case bool() as flag:
            return pb.Value(boolean=flag)
        case int() as whole:
            return pb.Value(integer=str(whole))
        case float() as number:
            return pb.Value(number=number)
        case Decimal() as exact:
            return pb.Value(decimal=str(exact))
        case str() as text:
            return pb.Value(text=text)
        case bytes() as data:
            return pb.Value(data=data)
        case Date() as date:
            return pb.Value(date=date.days)
        case Timestamp() as moment:
            return pb.Value(timestamp=moment.us)
        case Unfit():
            raise F1Error(Code.INVALID_ARGUMENT, f"a value of type {type(value).__name__} cannot be sent to slaves")


def value_from_pb(message: pb.Value) -> Value:
    """Convert to a value. Raises F1Error INVALID_ARGUMENT."""
    match message.WhichOneof("kind"):
        case "null":
            return None
        case "boolean":
            return message.boolean
        case "integer":
            return int(message.integer)
        case "number":
            return message.number
        case "decimal":
            try:
                return Decimal(message.decimal)
            except InvalidOperation:
                raise F1Error(Code.INVALID_ARGUMENT, "a decimal from a peer cannot be read") from None
        case "text":
            return message.text
        case "data":
            return message.data
        case "date":
            return Date(message.date)
        case "timestamp":
            return Timestamp(message.timestamp)
        case _:
            raise F1Error(Code.INVALID_ARGUMENT, "a value of an unknown kind; is the peer newer?")


def _bound_from_pb(message: pb.Value) -> object:
    """Convert to what DuckDB takes as a parameter."""
    if message.WhichOneof("kind") == "list":
        return [_bound_from_pb(item) for item in message.list.values]
    match value_from_pb(message):
        case Date() as date:
            return date.to_date()
        case Timestamp() as moment:
            return moment.to_datetime()
        case value:
            return value


# ---------------------------------------------------------------- scans


def _field_to_pb(wanted: FieldWanted) -> pb.Field:
    return pb.Field(column_id=wanted.column_id, path=wanted.path)


def _field_from_pb(message: pb.Field) -> FieldWanted:
    return FieldWanted(message.column_id, tuple(message.path))


def _span_to_pb(span: KeySpan) -> pb.KeySpan:
    def bound(end: Bound | None) -> pb.Bound | None:
        return None if end is None else pb.Bound(value=value_to_pb(end.value), inclusive=end.inclusive)

    return pb.KeySpan(prefix=[value_to_pb(v) for v in span.prefix], lower=bound(span.lower), upper=bound(span.upper))


def _span_from_pb(message: pb.KeySpan) -> KeySpan:
    def bound(name: str, end: pb.Bound) -> Bound | None:
        return Bound(value_from_pb(end.value), end.inclusive) if message.HasField(name) else None

    prefix = tuple(value_from_pb(v) for v in message.prefix)
    return KeySpan(prefix, bound("lower", message.lower), bound("upper", message.upper))


def _scan_to_pb(scan: TableScan) -> pb.TableScan:
    return pb.TableScan(
        table_id=scan.table.id,
        columns=[_field_to_pb(wanted) for wanted in scan.columns],
        spans=[_span_to_pb(span) for span in scan.spans],
        index_id=scan.index.id if scan.index is not None else 0,
        index_spans=[_span_to_pb(span) for span in scan.index_spans],
        covering=scan.covering,
        predicates=[
            pb.Predicate(column=_field_to_pb(p.column), op=p.op.value, values=[value_to_pb(v) for v in p.values])
            for p in scan.predicates
        ],
        limit=scan.limit,
        ancestry=scan.ancestry,
        empty=scan.empty,
        with_locks=scan.with_locks,
        in_key_order=scan.in_key_order,
    )


def _scan_from_pb(schema: Schema, message: pb.TableScan) -> TableScan:
    table = schema.by_id.get(message.table_id)
    if table is None:
        raise F1Error(Code.INVALID_ARGUMENT, f"a scan of table {message.table_id}, which its schema does not have")
    return TableScan(
        table,
        tuple(_field_from_pb(wanted) for wanted in message.columns),
        tuple(_span_from_pb(span) for span in message.spans),
        _index(table, message.index_id),
        tuple(_span_from_pb(span) for span in message.index_spans),
        message.covering,
        tuple(
            SimplePredicate(_field_from_pb(p.column), PredicateOp(p.op), tuple(value_from_pb(v) for v in p.values))
            for p in message.predicates
        ),
        message.limit if message.HasField("limit") else None,
        ancestry=message.ancestry if message.HasField("ancestry") else None,
        empty=message.empty,
        with_locks=message.with_locks,
        in_key_order=message.in_key_order,
    )


def _index(table: Table, index_id: int) -> Index | None:
    if not index_id:
        return None
    found = next((index for index in table.indexes if index.id == index_id), None)
    if found is None:
        raise F1Error(Code.INVALID_ARGUMENT, f"a scan by index {index_id}, which {table.name} does not have")
    return found


def _lookup_to_pb(lookup: Lookup | None) -> pb.Lookup | None:
    if lookup is None:
        return None
    parts = [
        pb.LookupPart(constant=value_to_pb(part[0]))
        if isinstance(part, tuple)
        else pb.LookupPart(field=_field_to_pb(part))
        for part in lookup.parts
    ]
    index_id = lookup.index.id if lookup.index is not None else 0
    return pb.Lookup(
        relation=lookup.relation, parts=parts, index_id=index_id, covering=lookup.covering, limit=lookup.limit
    )


def _lookup_from_pb(table: Table, message: pb.Lookup) -> Lookup:
    parts: list[FieldWanted | tuple[Value]] = []
    for part in message.parts:
        parts.append(_field_from_pb(part.field) if part.HasField("field") else (value_from_pb(part.constant),))
    return Lookup(message.relation, tuple(parts), _index(table, message.index_id), message.covering, message.limit)


def _part_scan_to_pb(item: PartScan) -> pb.PartScan:
    planned = item.planned
    return pb.PartScan(
        relation=planned.relation,
        names=planned.names,
        scan=_scan_to_pb(planned.scan),
        alias=planned.alias,
        lookup=_lookup_to_pb(planned.lookup),
        views=[
            pb.ScanView(relation=v.relation, columns=[pb.Renamed(there=there, here=here) for there, here in v.columns])
            for v in planned.views
        ],
        divided=item.divided,
    )


def _part_scan_from_pb(schema: Schema, message: pb.PartScan) -> PartScan:
    scan = _scan_from_pb(schema, message.scan)
    planned = PlannedScan(
        message.relation,
        tuple(message.names),
        scan,
        message.alias,
        _lookup_from_pb(scan.table, message.lookup) if message.HasField("lookup") else None,
        tuple(ScanView(v.relation, tuple((c.there, c.here) for c in v.columns)) for v in message.views),
    )
    return PartScan(planned, message.divided)


# ---------------------------------------------------------------- parts


def _type_to_pb(kind: SqlType) -> pb.SqlType:
    return pb.SqlType(
        kind=kind.kind.value if kind.kind is not None else "",
        scale=kind.scale,
        precision=kind.precision,
        proto=kind.proto,
        lists=kind.lists,
        literal=kind.literal,
    )


def _type_from_pb(message: pb.SqlType) -> SqlType:
    kind = Kind(message.kind) if message.kind else None
    return SqlType(kind, message.scale, message.precision, message.proto, message.lists, message.literal)


def _function_from_pb(message: pb.ProtoFunction) -> ProtoFunction:
    return ProtoFunction(
        message.name, message.action, message.message, tuple(message.path), _type_from_pb(message.result)
    )


def parts_to_pb(parts: Sequence[Part]) -> list[pb.Part]:
    """Convert the parts of a plan; of the root part only who it is and what it reads: no slave runs it.

    Raises F1Error INVALID_ARGUMENT for parameters that cannot travel.
    """
    return [_part_to_pb(part) for part in parts]


def _part_to_pb(part: Part) -> pb.Part:
    message = pb.Part(id=part.id, workers=_WORKERS[part.workers], inputs=dict(part.inputs))
    if part.workers is Workers.SERVER:
        return message
    message.sql = part.sql
    message.scans.extend(_part_scan_to_pb(item) for item in part.scans)
    message.outputs.extend(
        pb.Output(consumer=o.consumer, relation=o.relation, spread=_SPREADS[o.spread], keys=o.keys)
        for o in part.outputs
    )
    for name, value in part.bound.items():
        message.bound[name].CopyFrom(value_to_pb(value))
    message.functions.extend(
        pb.ProtoFunction(name=f.name, action=f.action, message=f.message, path=f.path, result=_type_to_pb(f.result))
        for f in part.functions
    )
    return message


def parts_from_pb(schema: Schema, messages: Sequence[pb.Part]) -> tuple[Part, ...]:
    """Convert back, under the schema of the plan. Raises F1Error INVALID_ARGUMENT."""
    try:
        return tuple(_part_from_pb(schema, message) for message in messages)
    except (ValueError, KeyError, ArithmeticError, RecursionError) as error:
        raise F1Error(
            Code.INVALID_ARGUMENT, f"a part of a plan cannot be read; is the peer newer? ({error})"
        ) from error


def _part_from_pb(schema: Schema, message: pb.Part) -> Part:
    return Part(
        message.id,
        message.sql,
        _WORKERS_OF[message.workers],
        tuple(_part_scan_from_pb(schema, item) for item in message.scans),
        dict(message.inputs),
        tuple(
            Output(
                o.consumer,
                o.relation,
                _SPREAD_OF[o.spread],
                tuple(o.keys),
            )
            for o in message.outputs
        ),
        {name: _bound_from_pb(value) for name, value in message.bound.items()},
        tuple(_function_from_pb(function) for function in message.functions),
    )
