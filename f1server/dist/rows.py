"""Rows between workers as messages: the schema once, then record batches without it."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from f1common.errors import Code, F1Error
from f1common.pb import slave_pb2 as pb
from f1server.dist.evaluation import PartEvaluation
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
                self._schemas[place] = pa.ipc.read_schema(pa.py_buffer(rows.schema))
            schema = self._schemas[place]
            batch = pa.ipc.read_record_batch(pa.py_buffer(rows.batch), schema) if rows.batch else None
        except (pa.ArrowException, KeyError, OSError) as error:
            text = f"rows of worker {self._giver} for {rows.relation!r} cannot be read: {error}"
            raise F1Error(Code.INVALID_ARGUMENT, text) from error
        await evaluation.take(rows.relation, self._giver, schema, batch, rows.last)
