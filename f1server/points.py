"""SELECT of a row by its key outside of a transaction: what most statements are, on a way that is as short.

It gives what :class:`~f1server.sql.SqlRunner` would give for such a statement, without a plan of its own: the key is
made of the parameters, and read together with those that others ask for at the same moment, as reads by key of the
NoSQL interface are. Whatever is not so plain goes the long way: a value that is none of the column's type, the first
execution of a statement, rows in the form of another time.
"""

from f1common.clock import Clock
from f1common.encoding.row import encode_row
from f1common.errors import check
from f1server.access.needs import require_query
from f1server.access.rights import rights_of
from f1server.answers import SqlAnswer, SqlRequest, info
from f1server.catalog.leases import Leased, SchemaLeases
from f1server.exec.engine import PickedForm, given
from f1server.history.table import with_history
from f1server.plan.points import Point
from f1server.plan.prepare import PlanCache, Prepared
from f1server.plan.statements import QueryStatement
from f1server.rows.keys import split_row_key
from f1server.rows.rowcodec import decode_row_value
from f1server.txn.together import ReadsTogether
from spanstore.client import SpanClient


class PointQueries:
    """Runs such statements."""

    def __init__(
        self, client: SpanClient, leases: SchemaLeases, together: ReadsTogether, plans: PlanCache, clock: Clock
    ) -> None:
        """``plans`` are those of the long way, which prepares each statement first."""
        self._client = client
        self._leases = leases
        self._together = together
        self._plans = plans
        self._clock = clock

    async def run(self, request: SqlRequest, statement: QueryStatement) -> SqlAnswer | None:
        """Answer a query; None if it has to go the long way. Raises F1Error, as that would."""
        alone = request.kind == "AUTOCOMMIT" and not request.read_ts and not request.writes
        if not alone or not request.few_as_rows or statement.as_of is not None:
            return None
        async with self._leases.use(request.database) as leased:
            schema = leased.schema
            prepared = self._plans.get(with_history(schema), statement.sql)
            if not isinstance(prepared, Prepared) or prepared.point is None:
                return None
            form = prepared.kept.get(prepared.point.picks)
            if not isinstance(form, PickedForm) or form.cells is None:
                return None
            since_ts = schema.indexes_since
            if since_ts and since_ts > self._client.strong_timestamp():
                return None
            require_query(rights_of(schema, request.caller), prepared)
            key = prepared.point.key(schema, request.params, self._clock.sample().tt.latest)
            return None if key is None else await self._read(leased, prepared.point, key, form, statement.tag)

    async def _read(self, leased: Leased, point: Point, key: bytes, form: PickedForm, tag: str) -> SqlAnswer:
        timestamp, version = await self._together.read(key)
        leased.checked(timestamp)
        cells = []
        if version is not None and version.value is not None:
            split = split_row_key(leased.schema, key)
            check(split is not None, "a key that was made of a table's values is one of its keys")
            row = decode_row_value(point.table, split[1], version.value)  # type: ignore[index]
            shown = {p: row.get(i) for p, i in enumerate(form.cells or (), 1)}
            cells.append(encode_row({p: value for p, value in shown.items() if value is not None}))
        return SqlAnswer(
            tag=tag,
            columns=tuple(map(info, form.columns)),
            schema=form.schema,
            batches=given([]),
            read_ts=timestamp,
            schema_version=leased.schema.version,
            cells=cells,
        )
