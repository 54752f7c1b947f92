"""A store in a dictionary, and transactions on it through the write planner."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from f1common.encoding.row import Cell, decode_row
from f1server.catalog.schema import Schema, Table
from f1server.history import read_batch
from f1server.rows.changes import ChangeBatch
from f1server.rows.keys import split_row_key
from f1server.rows.planner import CheckEvaluator, Needs, Plan, WritePlanner
from f1server.rows.rowcodec import row_of
from f1server.rows.values import Row, Value
from f1server.rows.writes import LogicalWrite
from spanstore.client import Version, Write
from spanstore.mvcc.placeholders import fill


@dataclass
class Store:
    """Live rows by storage key; commit timestamps count up by ten."""

    data: dict[bytes, Version] = field(default_factory=dict)
    ts: int = 1000
    rounds: list[Needs] = field(default_factory=list)
    """What the planner asked for in the last transaction, round by round."""

    def read(self, needs: Needs, planner: WritePlanner) -> None:
        """Give the planner what it asked for, and of a limited range not one row more."""
        rows = {key: self.data.get(key) for key in needs.rows | needs.shared_rows | needs.unique}
        ranges = {}
        for start, end in needs.ranges:
            found = [(key, self.data[key]) for key in sorted(self.data) if start <= key < end]
            ranges[start, end] = found[: needs.limits.get((start, end), len(found))]
        planner.give(rows, ranges)

    def plan(
        self,
        schema: Schema,
        writes: Sequence[LogicalWrite],
        check_evaluator: CheckEvaluator | None = None,
        commit_id: bytes = b"id",
    ) -> Plan:
        """Plan a transaction without doing it."""
        planner = WritePlanner(schema, writes, check_evaluator=check_evaluator)
        self.rounds = []
        while needs := planner.needs():
            self.rounds.append(needs)
            assert len(self.rounds) < 4, "the planner never has enough"
            self.read(needs, planner)
        return planner.plan(commit_id)

    def run(
        self,
        schema: Schema,
        writes: Sequence[LogicalWrite],
        check_evaluator: CheckEvaluator | None = None,
        commit_id: bytes = b"id",
    ) -> Plan:
        """Do a transaction. Raises what the planner raises, and then nothing has changed."""
        plan = self.plan(schema, writes, check_evaluator, commit_id)
        self.apply(plan.writes)
        return plan

    def apply(self, writes: Sequence[Write]) -> None:
        """Commit storage writes, at the next timestamp."""
        self.ts += 10
        keys = [write.key for write in writes]
        assert len(set(keys)) == len(keys), "one key is written twice"
        for write in writes:
            offset = write.key_offset if write.key_offset >= 0 else None
            key, value = fill(write.key, offset, write.value, write.value_offsets, self.ts)
            if value is None:
                self.data.pop(key, None)
            else:
                self.data[key] = Version(self.ts, value)

    # ------------------------------------------------------------------ what is in it

    def rows(self, schema: Schema) -> dict[str, dict[tuple[Value, ...], Row]]:
        """All rows by table and key."""
        found: dict[str, dict[tuple[Value, ...], Row]] = {table.name: {} for table in schema.tables}
        for key, version in sorted(self.data.items()):
            if (place := split_row_key(schema, key)) is not None:
                table, key_values = place
                found[table.name][key_values] = row_of(table, key_values, decode_row(version.value or b""))
        return found

    def cells(self, key: bytes) -> tuple[dict[int, Cell], int]:
        """The cells and the timestamp of a row."""
        version = self.data[key]
        return decode_row(version.value or b""), version.ts

    def batches(self, schema: Schema) -> list[ChangeBatch]:
        """All change batches in the order of commits."""
        roots = [table for table in schema.tables if not table.parent_id]
        found = [
            batch
            for key, version in sorted(self.data.items())
            for root in roots
            if (batch := read_batch(schema, root, key, version.value or b"")) is not None
        ]
        return sorted(found, key=lambda batch: batch.commit_ts)

    def others(self, schema: Schema) -> dict[bytes, bytes]:
        """What is neither a row nor a change batch: index entries."""
        roots = [table for table in schema.tables if not table.parent_id]
        return {
            key: version.value or b""
            for key, version in self.data.items()
            if split_row_key(schema, key) is None
            and all(read_batch(schema, root, key, version.value or b"") is None for root in roots)
        }


Evaluated = Callable[[Table, list[Row]], list[tuple[int, str]]]
