"""Rows from a stranger: what Arrow reads is not yet what DuckDB may be given."""

import asyncio
import random
import struct
from decimal import Decimal
from typing import Any, cast

import pyarrow as pa
import pytest

from f1common.errors import Code, F1Error
from f1common.pb import slave_pb2 as pb
from f1server.dist.evaluation import PartEvaluation
from f1server.dist.rows import RowsReader
from f1server.exec.duck import Duck, DuckConfig

TABLE = pa.table(
    {
        "a": [1, None, 3],
        "s": ["x", "yy", None],
        "l": [[1, 2], [], None],
        "st": [{"q": 1, "w": "z"}, None, {"q": 2, "w": None}],
        "d": [Decimal("1.5")] * 3,
        "b": [b"ab", b"", None],
        "m": pa.array([[("k", 1)]] * 3, pa.map_(pa.string(), pa.int64())),
    }
)


class Taken:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.batches: list[Any] = []

    async def take(self, relation: str, giver: int, schema: Any, batch: Any, last: bool) -> None:
        if batch is not None:
            self.batches.append(batch)


def taken(schema: bytes, *batches: bytes) -> list[Any]:
    kept = Taken()
    reader = RowsReader(1, lambda _: cast(PartEvaluation, kept))

    async def main() -> None:
        await reader.take(pb.Rows(consumer=1, relation="x", schema=schema))
        for batch in batches:
            await reader.take(pb.Rows(consumer=1, relation="x", batch=batch))

    asyncio.run(main())
    return kept.batches


def parts(table: pa.Table) -> tuple[bytes, bytes]:
    (batch,) = table.to_batches()
    return table.schema.serialize().to_pybytes(), batch.serialize().to_pybytes()


def refused(schema: bytes, *batches: bytes) -> str:
    with pytest.raises(F1Error) as caught:
        taken(schema, *batches)
    assert caught.value.code is Code.INVALID_ARGUMENT
    return caught.value.message


def test_what_workers_send_is_taken() -> None:
    schema, batch = parts(TABLE)
    assert pa.Table.from_batches(taken(schema, batch)).equals(TABLE)


@pytest.mark.parametrize("kind", [pa.string(), pa.list_(pa.int8())])
def test_offsets_that_point_elsewhere(kind: Any) -> None:
    values = ["ab"] if pa.types.is_string(kind) else [[1, 2]]
    schema, batch = parts(pa.table({"c": pa.array(values, kind)}))
    right, wrong = struct.pack("<2i", 0, 2), struct.pack("<2i", 0, 1 << 30)
    assert right in batch
    refused(schema, batch.replace(right, wrong))


def test_text_that_is_no_text() -> None:
    schema, batch = parts(pa.table({"c": ["abcdefgh"]}))
    assert "UTF8" in refused(schema, batch.replace(b"abcdefgh", b"\xff\xfe\xc0\x80efgh"))


@pytest.mark.parametrize(
    "field",
    [
        pa.field("c", pa.float16()),
        pa.field("c", pa.decimal256(70, 1)),
        pa.field("c", pa.decimal128(3, 5)),
        pa.field("c", pa.dictionary(pa.int8(), pa.string())),
        pa.field("c", pa.list_(pa.run_end_encoded(pa.int32(), pa.int64()))),
        pa.field("c", pa.uuid()),
        pa.field("c", pa.binary(), metadata={"ARROW:extension:name": "duckdb.hugeint"}),
        pa.field("c", pa.struct([pa.field("d", pa.binary(), metadata={"note": "x"})])),
    ],
)
def test_types_that_workers_do_not_exchange(field: Any) -> None:
    refused(pa.schema([field]).serialize().to_pybytes())


def test_damaged_bytes_are_refused_or_can_be_read() -> None:
    """Without the checks DuckDB reads beyond its memory within a few hundred of these."""
    rng = random.Random(5)
    schema, batch = parts(TABLE)
    duck = Duck(DuckConfig(threads=1, memory_mb=64))
    read = 0
    for _ in range(400):
        try:
            found = taken(_flipped(schema, rng) if rng.random() < 0.4 else schema, _flipped(batch, rng))
        except F1Error as error:
            assert error.code is Code.INVALID_ARGUMENT, error
            continue
        connection = duck.connection()
        try:
            connection.register("z", pa.Table.from_batches(found))
            connection.table("SELECT *, hash(z) FROM z")
            read += 1
        except F1Error as error:
            assert error.code is not Code.INTERNAL, error
        finally:
            connection.close()
    duck.close()
    assert 10 < read < 300


def _flipped(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(out))
        out[at] = rng.choice((0, 1, 127, 128, 255, out[at] ^ (1 << rng.randrange(8))))
    return bytes(out)
