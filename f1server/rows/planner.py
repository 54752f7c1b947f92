"""The write planner: from the logical writes of a transaction to storage writes that keep everything consistent.

Pure: it says what it needs to know (:meth:`WritePlanner.needs`), is given it, and says in the end what to write.
Whoever drives it reads under the locks that it asks for and goes on until it needs nothing more: one round for
inserts, one more for what depends on the old values of rows.

In one storage transaction it writes rows, index entries, lock columns and one ChangeBatch for each root touched (F1
sections 3.1, 5.1, 6), and refuses duplicate keys, missing parents, remaining children, broken foreign keys and failed
checks. Writes act in the order in which they were made; conditions between rows are tested once, at the end.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType

import msgspec

from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error, check
from f1server.catalog.schema import ElementState, Schema, Table
from f1server.rows.changes import ChangeBatch, batch_write, batches_of, change_of
from f1server.rows.constraints import Constraints, Range, Rows, reference_of
from f1server.rows.entries import Entries, predicted_reads
from f1server.rows.images import Effect, Image, Images, Prepared, describe_key, prepare, storage_write
from f1server.rows.keys import row_prefix, split_row_key
from f1server.rows.layout import cascades, layout
from f1server.rows.values import Row
from f1server.rows.writes import LogicalWrite, WriteKind, of_write
from spanstore.client import Version, Write

CheckEvaluator = Callable[[Table, list[Row]], Sequence[tuple[int, str]]]
"""Evaluates the enforced checks of a table over rows: (position of the row, name of the check) where one is false."""


class Needs(msgspec.Struct, frozen=True, gc=False):
    """What the planner must be given before it can go on. False if that is nothing.

    ``rows``, ``unique`` and ``ranges`` under exclusive locks, ``shared_rows`` under shared ones. ``limits``: so many
    rows of a range are enough (the whole range is locked all the same); ranges that are not in it are wanted whole.
    """

    rows: frozenset[bytes] = frozenset()
    shared_rows: frozenset[bytes] = frozenset()
    ranges: frozenset[Range] = frozenset()
    unique: frozenset[bytes] = frozenset()
    limits: Mapping[Range, int] = MappingProxyType({})

    def __bool__(self) -> bool:
        return bool(self.rows or self.shared_rows or self.ranges or self.unique)


class Plan(msgspec.Struct, frozen=True, gc=False):
    """What to write, sorted by key, and what the transaction did. ``effects``: one for each logical write.

    ``unfilled_ts``: a row of then has no value in a column that is being added, and is taken for not filled yet. That
    is so only if the schema was still the newest then: under the next version somebody may have written a NULL.
    """

    writes: list[Write]
    rows_affected: int
    change_batches: list[ChangeBatch]
    effects: list[Effect]
    unfilled_ts: int = 0


class WritePlanner:
    """Plans the writes of one attempt of one transaction, under one version of the schema."""

    def __init__(
        self,
        schema: Schema,
        writes: Sequence[LogicalWrite],
        *,
        check_evaluator: CheckEvaluator | None = None,
        new_rows: Callable[[int], None] = lambda size: None,
        kept: Collection[int] = (),
    ) -> None:
        """Take the writes, with their defaults filled in (:func:`fill_defaults`); ``kept`` is for :class:`Images`.

        ``new_rows`` is told for each row of a transaction that only inserts how many bytes all until then come to, at
        least; it may refuse them before anything is read.

        Raises what that raises, and what :func:`f1server.rows.images.prepare` does: NOT_FOUND, INVALID_ARGUMENT,
        OUT_OF_RANGE, KEY_TOO_LONG; the detail ``write`` is the position of the one that is wrong.
        """
        self._schema = schema
        self._check_evaluator = check_evaluator
        self._prepared: list[Prepared] = []
        size, only_inserts = 0, all(write.kind is WriteKind.INSERT for write in writes)
        for position, write in enumerate(writes):
            self._prepared.append(_prepared(schema, position, write))
            if only_inserts:
                new_rows(size := size + _least_bytes(self._prepared[-1]))
        self._tables: dict[bytes, tuple[Table, tuple[object, ...]]] = {}
        self._rows: dict[bytes, Version | None] = {}
        self._ranges: dict[Range, Rows] = {}
        self._first = self._first_needs()
        self._images: Images | None = None
        self._kept = kept
        self._effects: list[Effect] = []
        self._changed: list[Image] = []
        self._entries = Entries(schema)
        self._constraints: Constraints | None = None

    # ------------------------------------------------------------------ what must be read

    @property
    def rows(self) -> int:
        """How many writes there are."""
        return len(self._prepared)

    @property
    def first_needs(self) -> Needs:
        """What is known to be needed before anything has been read: enough for :meth:`images`."""
        return self._first

    def insertions(self) -> frozenset[bytes]:
        """Return the rows that are not there if all goes well: whoever tests that at the commit need not look."""
        touched = Counter(prepared.key for prepared in self._prepared)
        touched.update(prepared.moved_to[1] for prepared in self._prepared if prepared.moved_to is not None)
        inserts = (prepared.key for prepared in self._prepared if prepared.write.kind is WriteKind.INSERT)
        return frozenset(key for key in inserts if touched[key] == 1)

    def looks_below(self) -> bool:
        """Tell whether some write takes a row away from where others may lie below it, or refer to it."""
        leaving = (p for p in self._prepared if p.write.kind is WriteKind.DELETE or p.moved_to is not None)
        return any(where.children or where.referrers for where in (layout(self._schema, p.table) for p in leaving))

    def needs(self) -> Needs:
        """Return what has not been given yet.

        Raises, once the rows are known, what the writes do wrong: ALREADY_EXISTS, NOT_FOUND, INVALID_ARGUMENT.
        """
        if missing := self._missing(self._first):
            return missing
        if self._constraints is None:
            self._constraints = self._settle()
        if missing := self._missing(self._second_needs()):
            return missing
        for span in self._constraints.undecided(self._ranges):
            del self._ranges[span]
        return self._missing(self._second_needs())

    def give(
        self,
        rows: Mapping[bytes, Version | None],
        ranges: Mapping[Range, Sequence[tuple[bytes, Version]]] | None = None,
    ) -> None:
        """Take what was read: versions by key (None or a version without a value: no row), and the rows of ranges."""
        self._rows.update(rows)
        for span, found in (ranges or {}).items():
            self._ranges[span] = list(found)

    def _missing(self, wanted: Needs) -> Needs:
        rows = wanted.rows - self._rows.keys()
        unique = wanted.unique - self._rows.keys() - rows
        shared = wanted.shared_rows - self._rows.keys() - rows - unique
        ranges = wanted.ranges - self._ranges.keys()
        limits = {span: limit for span, limit in wanted.limits.items() if span in ranges}
        return Needs(rows, shared, ranges, unique, MappingProxyType(limits))

    def _first_needs(self) -> Needs:
        """Return what is known to be needed before anything has been read."""
        rows: set[bytes] = set()
        shared: set[bytes] = set()
        ranges: set[Range] = set()
        unique: set[bytes] = set()
        for prepared in self._prepared:
            rows.add(prepared.key)
            if prepared.moved_to is not None:
                rows.add(prepared.moved_to[1])
            match prepared.write.kind:
                case WriteKind.DELETE:
                    ranges |= self._cascade_ranges(prepared)
                case WriteKind.INSERT:
                    self._predict(prepared, shared, unique)
                case _:
                    pass
        return Needs(frozenset(rows), frozenset(shared - rows), frozenset(ranges), frozenset(unique))

    def _cascade_ranges(self, prepared: Prepared) -> set[Range]:
        found: set[Range] = set()
        for child in layout(self._schema, prepared.table).children:
            if cascades(child):
                prefix = row_prefix(self._schema, child, prepared.key_values)
                found.add((prefix, tuples.successor(prefix)))
        return found

    def _predict(self, prepared: Prepared, shared: set[bytes], unique: set[bytes]) -> None:
        """Add what an INSERT will need if all goes well, so that one round of reads is enough."""
        where = layout(self._schema, prepared.table)
        if where.parent is not None:
            width = len(where.parent.key_column_ids)
            shared.add(layout(self._schema, where.parent).row_key_again(prepared.key_values[:width]))
        if not (where.foreign_keys or where.unique_indexes):
            return
        row = {**prepared.columns, **dict(zip(prepared.table.key_column_ids, prepared.key_values, strict=True))}
        image = Image(prepared.table, prepared.key_values, prepared.key, None, None, None, row)
        for foreign in where.foreign_keys:
            if (reference := reference_of(self._schema, image, foreign)) is not None:
                shared.add(reference.key)
        unique |= predicted_reads(self._schema, image, row)

    # ------------------------------------------------------------------ what the writes do

    def images(self) -> Images:
        """Return all rows touched, as the writes leave them: what the transaction itself sees.

        May be called when :meth:`needs` asks for nothing of the first round. Raises as :meth:`needs`.
        """
        if self._images is None:
            check(not self._missing(self._first).rows, "the planner was asked before it was given the rows")
            images = Images(self._schema, self._kept)
            for prepared in self._prepared:
                images.load(prepared.table, prepared.key_values, prepared.key, self._rows[prepared.key])
                if prepared.moved_to is not None:
                    values, key = prepared.moved_to
                    images.load(prepared.table, values, key, self._rows[key])
            for span in sorted(self._first.ranges):
                for key, version in self._ranges[span]:
                    if (found := split_row_key(self._schema, key)) is not None:
                        images.load(found[0], found[1], key, version)
            self._effects = [images.apply(prepared) for prepared in self._prepared]
            self._images = images
        return self._images

    def _settle(self) -> Constraints:
        images = self.images()
        self._changed = [image for image in images.all() if image.changed]
        for image in self._changed:
            self._entries.add(image)
        self._entries.close()
        constraints = Constraints(self._schema, images, self._entries)
        constraints.collect(self._changed, self._first.ranges)
        return constraints

    def _second_needs(self) -> Needs:
        constraints = self._constraints
        if constraints is None:
            return Needs()
        limits = {span: limit for span, limit in constraints.ranges.items() if limit}
        return Needs(
            shared_rows=frozenset(constraints.shared),
            ranges=frozenset(constraints.ranges),
            unique=frozenset(self._entries.reads),
            limits=MappingProxyType(limits),
        )

    # ------------------------------------------------------------------ the plan

    def plan(self, commit_unique: bytes) -> Plan:
        """Return the plan, when :meth:`needs` asks for nothing more. ``commit_unique`` names the commit in the history.

        Raises FAILED_PRECONDITION (parents, children, foreign keys, checks), ALREADY_EXISTS (unique indexes),
        KEY_TOO_LONG.
        """
        check(not self.needs(), "the planner was asked for a plan before it was given what it needs")
        constraints = self._constraints
        if constraints is None:
            raise F1Error(Code.INTERNAL, "the planner has not settled")
        constraints.verify(self._rows.get, self._ranges)
        self._entries.verify(self._rows.get)
        self._verify_checks()
        writes = [storage_write(image) for image in self._changed]
        writes += self._entries.writes(self._rows.get)
        changes = [
            (image.table, change)
            for image in self._changed
            if (change := change_of(image.table, image.key_values, image.before, image.now)) is not None
        ]
        batches = batches_of(self._schema, changes, commit_unique)
        writes += [batch_write(root, batch) for root, batch in batches.items()]
        return Plan(
            writes=sorted(writes, key=lambda write: write.key),
            rows_affected=sum(1 for effect in self._effects if effect.before is not None or effect.after is not None),
            change_batches=list(batches.values()),
            effects=self._effects,
            unfilled_ts=self.images().unfilled_ts,
        )

    def _verify_checks(self) -> None:
        by_table: dict[int, list[Image]] = {}
        for image in self._changed:
            if image.now is not None and any(c.state >= ElementState.WRITE_ONLY for c in image.table.checks):
                by_table.setdefault(image.table.id, []).append(image)
        for table_id, images in sorted(by_table.items()):
            table = self._schema.by_id[table_id]
            check(self._check_evaluator is not None, f"table {table.name} has checks and nobody evaluates them")
            if self._check_evaluator is None:
                return
            failures = self._check_evaluator(table, [image.now or {} for image in images])
            for position, name in failures:
                key = describe_key(table, images[position].key_values)
                raise F1Error(
                    Code.FAILED_PRECONDITION,
                    f"the row of {table.name} with {key} violates check {name}",
                    details={"table": table.name, "check": name, "key": key},
                )


def _least_bytes(inserted: Prepared) -> int:
    """Return how many bytes a new row has in storage at least: its key, and its texts and bytes."""
    return len(inserted.key) + sum(len(value) for value in inserted.columns.values() if isinstance(value, str | bytes))


def _prepared(schema: Schema, position: int, write: LogicalWrite) -> Prepared:
    try:
        return prepare(schema, write)
    except F1Error as error:
        raise of_write(position, error) from error
