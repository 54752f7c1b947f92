"""Where the rows of tables lie: placement policies by the names of tables (F1, section 2.1).

The storage tier knows tables by the ids that their keys begin with, and goes by policies of these
(:mod:`spanstore.placement.policy`): so a policy outlives renames, and what is interleaved in a table, its local indexes
and its change history go where it goes. Global indexes have keys of their own: they get the policy of their table.
"""

import logging
from collections.abc import Iterable, Sequence

from f1common.errors import Code, F1Error
from f1server.catalog.schema import Schema, Table
from f1server.plan.statements import PlacementStatement
from spanstore.client import SpanClient
from spanstore.client.policies import TablePlace, forget_table, place_table, table_places
from spanstore.client.surveying import table_policies
from spanstore.placement.policy import ANYWHERE, Policy
from spanstore.placement.range_map import GLOBAL_INDEX_BASE

_log = logging.getLogger(__name__)

COLUMNS = ("name", "kind", "zones", "leader_zone", "groups", "note")

Row = tuple[str | None, ...]


async def place(client: SpanClient, schema: Schema, statement: PlacementStatement) -> list[Row]:
    """Have a table, and its global indexes, in groups that meet the statement's policy; return what that means.

    Raises NOT_FOUND, FAILED_PRECONDITION for a table that lies within another one, INVALID_ARGUMENT for a policy that
    nobody can meet. May be repeated.
    """
    table = schema.table(statement.table)
    root = schema.root(table)
    if root is not table:
        text = f"table {table.name} lies within {root.name} and goes where that goes"
        raise F1Error(Code.FAILED_PRECONDITION, f"{text}: ALTER TABLE {root.name} {statement.action} PLACEMENT")
    policy = Policy(statement.zones, statement.leader_zone)
    rows = []
    for kind, name, number in _parts(schema, table):
        rows.append(_row(kind, name, await place_table(client, number, policy)))
    return rows


async def placements(client: SpanClient, schema: Schema, name: str = "") -> list[Row]:
    """Return where the root tables of a database and their global indexes lie, or one of them. Raises NOT_FOUND."""
    tables = [schema.root(schema.table(name))] if name else _roots(schema)
    parts = [part for table in tables for part in _parts(schema, table)]
    places = {place.table: place for place in await table_places(client, [number for _, _, number in parts])}
    return [_row(kind, name, places[number]) for kind, name, number in parts]


async def follow(client: SpanClient, schema: Schema) -> None:
    """Give global indexes that are new the policy of their table, and a table that has moved the one that it had.

    What goes wrong is logged: the index, or table, is there.
    """
    try:
        policies = await table_policies(client)
        for root in _roots(schema):
            former = policies.get(root.mirror_of, ANYWHERE)
            if former != ANYWHERE:
                if root.id not in policies:
                    await place_table(client, root.id, former)
                    policies[root.id] = former
                    _log.info("table %s goes on where it was: %s", root.name, former)
                await forget_table(client, root.mirror_of)
            policy = policies.get(root.id, ANYWHERE)
            for _, name, number in _parts(schema, root) if policy != ANYWHERE else ():
                if number not in policies:
                    await place_table(client, number, policy)
                    _log.info("index %s goes where table %s belongs: %s", name, root.name, policy)
    except F1Error as error:
        _log.warning("new tables or indexes are not where they belong; repeat ALTER TABLE ... SET PLACEMENT: %s", error)


def _roots(schema: Schema) -> list[Table]:
    return sorted((table for table in schema.by_name.values() if not table.parent_id), key=lambda t: t.name.lower())


def _parts(schema: Schema, root: Table) -> Iterable[tuple[str, str, int]]:
    """Yield what keys of its own a hierarchy has: kind, name, and the id that the keys begin with."""
    yield "table", root.name, root.id
    for table in (root, *schema.descendants(root)):
        for index in sorted(table.indexes, key=lambda i: i.id):
            if not index.local:
                yield "index", index.name, GLOBAL_INDEX_BASE + index.id


def _row(kind: str, name: str, place: TablePlace) -> Row:
    policy = place.policy
    groups = ", ".join(map(str, place.groups))
    if policy == ANYWHERE:
        return name, kind, None, None, groups, None
    return name, kind, _list(policy.zones), policy.leader_zone or None, groups, place.note or None


def _list(zones: Sequence[str]) -> str | None:
    return ", ".join(zones) or None
