"""Rows between workers as messages: the schema once, then record batches without it."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from f1common.errors import Code, F1Error
from f1common.pb import slave_pb2 as pb
from f1server.dist.evaluation import PartEvaluation
from f1server.exec.duck import TYPE_NOTE
from f1server.plan.parts import Output

__all__ = ["RowsReader", "batch_rows", "last_rows", "schema_rows"]


def schema_rows(output: Output, schema: Any) -> pb.Rows:
    """Return the message that says which rows will come."""
    return pb.Rows(consumer=output.consumer, relation=output.relation, schema=schema.serialize().to_pybytes())


def batch_rows(output: Output, batch: Any) -> pb.Rows:
    """Return the message that carries a record batch."""
    return pb.Rows(consumer=output.consumer, relation=output.relation, batch=batch.serialize().to_pybytes())


def last_rows(output: Output) -> pb.Rows:
    """Return the message that says that no more rows will come."""
    return pb.Rows(consumer=output.consumer, relation=output.relation, last=True)


class RowsReader:
    """Hands what one giver sends to the parts that consume it."""

    def __init__(self, giver: int, consumer: Callable[[int], PartEvaluation]) -> None:
        """``consumer`` finds a part that runs here by its id. Raises F1Error if there is none."""
        self._giver = giver
        self._consumer = consumer
        self._schemas: dict[tuple[int, str], Any] = {}

    async def take(self, rows: pb.Rows) -> None:
        """Return once the rows are taken over. Raises F1Error; INVALID_ARGUMENT for what makes no sense."""
        evaluation = self._consumer(rows.consumer)
        place = (rows.consumer, rows.relation)
        try:
            if rows.schema:
                self._schemas[place] = _schema(rows.schema)
            schema = self._schemas[place]
            batch = _batch(rows.batch, schema) if rows.batch else None
        except (pa.ArrowException, LookupError, MemoryError, OSError, ValueError) as error:
            text = f"rows of worker {self._giver} for {rows.relation!r} cannot be read: {error}"
            raise F1Error(Code.INVALID_ARGUMENT, text) from error
        await evaluation.take(rows.relation, self._giver, schema, batch, rows.last)


_PLAIN = (
    pa.types.is_null,
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_decimal128,
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_date32,
    pa.types.is_time,
    pa.types.is_timestamp,
    pa.types.is_interval,
)
_DIGITS = 38
_NESTED = (pa.types.is_struct, pa.types.is_list, pa.types.is_fixed_size_list, pa.types.is_map)


def _schema(data: bytes) -> Any:
    """Read a schema. Raises ValueError for what DuckDB does not give, and might read as something else."""
    schema = pa.ipc.read_schema(pa.py_buffer(data))
    for field in schema:
        _check_field(field)
    return schema.remove_metadata()


def _check_field(field: Any) -> None:
    kind = field.type
    is_nested = any(test(kind) for test in _NESTED)
    if not is_nested and not any(test(kind) for test in _PLAIN):
        raise ValueError(f"workers do not exchange values of the type {kind}")
    if pa.types.is_decimal128(kind) and not 0 <= kind.scale <= kind.precision <= _DIGITS:
        raise ValueError(f"there is no type {kind}")
    if unknown := sorted(set(field.metadata or ()) - {TYPE_NOTE}):
        # An extension's name lets the rows be read as what their bytes need not be.
        raise ValueError(f"a column with notes of an unknown kind: {unknown}")
    if is_nested:
        for i in range(kind.num_fields):
            _check_field(kind.field(i))


def _batch(data: bytes, schema: Any) -> Any:
    """Read a record batch. What Arrow reads is only looked at for its form: DuckDB trusts offsets, lengths and text."""
    batch = pa.ipc.read_record_batch(pa.py_buffer(data), schema)
    batch.validate(full=True)
    return batch
