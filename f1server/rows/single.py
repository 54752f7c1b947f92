"""The write planner's answer for what most transactions are: one write, of a row that nothing else depends on.

A table without indexes, foreign keys to it or from it, checks and another form asks for nothing but the row. What
is written then, and what is refused, is what :class:`f1server.rows.planner.WritePlanner` would say: it is made of the
same pieces, without those that put the rows of many tables in order. A row that is replaced as a whole, in a table that
keeps no change history, need not even be known: nothing of it is left.
"""

from collections.abc import Sequence

from f1common.encoding.row import encode_row_with_placeholders
from f1common.errors import F1Error
from f1server.catalog.schema import ElementState, Schema, Table
from f1server.rows.changes import Change, batch_write, batches_of, change_of
from f1server.rows.images import Image, Images, Prepared, prepare, storage_write
from f1server.rows.layout import layout, of_schema
from f1server.rows.planner import Plan
from f1server.rows.rowcodec import cells_of
from f1server.rows.writes import LogicalWrite, WriteKind, of_write
from spanstore.client import Version, Write

__all__ = ["SingleWrite", "single_write"]


class SingleWrite:
    """The plan of one write under one version of the schema."""

    __slots__ = ("_prepared", "_schema", "is_blind")

    def __init__(self, schema: Schema, prepared: Prepared) -> None:
        self._schema = schema
        self._prepared = prepared
        self.is_blind = _is_blind(schema, prepared)
        """Whether nothing has to be known of the row: what there was is replaced, whatever it was."""

    @property
    def key(self) -> bytes:
        """The row's storage key."""
        return self._prepared.key

    @property
    def inserts(self) -> bool:
        """Whether the row is not there if all goes well."""
        return self._prepared.write.kind is WriteKind.INSERT

    def plan(self, version: Version | None, commit_unique: bytes) -> Plan | None:
        """Return what to write if ``version`` is the row's newest; None if that depends on other rows, too.

        Of a blind write nobody knows what it did beside writing: its plan has no effect.
        Raises as :meth:`WritePlanner.needs` and :meth:`WritePlanner.plan`.
        """
        schema, prepared = self._schema, self._prepared
        if self.is_blind:
            value, offsets = encode_row_with_placeholders(cells_of(prepared.table, prepared.columns))
            return Plan([Write(prepared.key, value, value_offsets=offsets)], 1, [], [])
        images = Images(schema)
        images.load(prepared.table, prepared.key_values, prepared.key, version)
        effect = images.apply(prepared)
        (image,) = images.all()
        if image.before is None and image.now is not None and layout(schema, image.table).parent is not None:
            return None
        batches = batches_of(schema, _changes(image), commit_unique)
        writes = [storage_write(image)] if image.changed else []
        writes += [batch_write(root, batch) for root, batch in batches.items()]
        affected = 1 if effect.before is not None or effect.after is not None else 0
        return Plan(sorted(writes, key=lambda write: write.key), affected, list(batches.values()), [effect])


def _changes(image: Image) -> Sequence[tuple[Table, Change]]:
    change = change_of(image.table, image.key_values, image.before, image.now) if image.changed else None
    return [] if change is None else [(image.table, change)]


def single_write(schema: Schema, writes: Sequence[LogicalWrite]) -> SingleWrite | None:
    """Return the plan of ``writes`` if they are one that asks for nothing but its row; they have their defaults.

    Raises what :func:`f1server.rows.images.prepare` raises, as the planner does.
    """
    if len(writes) != 1 or not _stands_alone(schema, schema.table(writes[0].table)):
        return None
    try:
        prepared = prepare(schema, writes[0])
    except F1Error as error:
        raise of_write(0, error) from error
    if prepared.moved_to is not None:
        return None
    if prepared.write.kind is WriteKind.DELETE and layout(schema, prepared.table).children:
        return None
    return SingleWrite(schema, prepared)


def _stands_alone(schema: Schema, table: Table) -> bool:
    """Tell whether no other row, entry or check depends on a row of the table, but those below it."""

    def find() -> bool:
        where = layout(schema, table)
        checked = any(check.state >= ElementState.WRITE_ONLY for check in table.checks)
        moving = bool(table.mirror_of) or table.id in schema.forms
        return not (where.indexes or where.foreign_keys or where.referrers or checked or moving)

    return of_schema(schema, ("stands alone", table.id), find)


def _is_blind(schema: Schema, prepared: Prepared) -> bool:
    table = prepared.table
    if prepared.write.kind is not WriteKind.UPSERT or not _keeps_nothing(schema, table):
        return False
    # Without any column nothing is written where there is a row.
    return 0 < len(prepared.columns) == len(layout(schema, table).column_ids)


def _keeps_nothing(schema: Schema, table: Table) -> bool:
    """Tell whether a row that gets values for all columns keeps nothing of what there was.

    A lock column keeps when what it covers was written, a column that is on its way in or out the value that servers
    with another version of the schema see, and the change history what there was.
    """

    def find() -> bool:
        settled = all(column.state is ElementState.PUBLIC for column in table.columns)
        return bool(table.untracked) and not table.locks and layout(schema, table).parent is None and settled

    return of_schema(schema, ("keeps nothing", table.id), find)
