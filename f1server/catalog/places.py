"""Where the canonical schema is kept: in the meta group, and as copies in groups of data (schema-change paper, 4.3).

A *place* is the first element of the keys of one copy, like the id of a root table; the range map says which group has
it. The first place is the meta group's. The others lie behind all tables and indexes, where a new cluster with several
groups of data has ranges in two of them (:func:`spanstore.placement.range_map.spread_tables`); ``f1 range move`` puts
them elsewhere. At each place there are the schema of each database, the row that says that the database exists, and the
leases that were taken there.

One transaction writes all copies, with one timestamp, and expects all of them to be as they were read. So a strong
read of any copy gives the newest schema, and a lease that is written where a copy is unchanged is as good as one at the
first place.
"""

from f1common.encoding import tuple as tuples
from spanstore.client import KeyRange
from spanstore.placement.range_map import COPIES_BASE

__all__ = [
    "COPIES_SPAN",
    "PLACES",
    "SYSTEM_TABLE",
    "database_key",
    "lease_key",
    "lease_range",
    "schema_key",
]

SYSTEM_TABLE = 0
"""The place in the meta group."""

PLACES = (SYSTEM_TABLE, COPIES_BASE, COPIES_BASE + 1)

COPIES_SPAN = (tuples.encode((PLACES[1],)), tuples.encode((PLACES[-1] + 1,)))
"""The keys of all places but the first."""


def schema_key(database: str, place: int = SYSTEM_TABLE) -> bytes:
    """Return the key of a database's schema."""
    return tuples.encode((place, "schema", database))


def database_key(database: str, place: int = SYSTEM_TABLE) -> bytes:
    """Return the key of the row that says that a database exists."""
    return tuples.encode((place, "database", database))


def lease_key(database: str, server: str, place: int = SYSTEM_TABLE) -> bytes:
    """Return the key of a server's lease."""
    return tuples.encode((place, "schema_lease", database, server))


def lease_range(database: str, place: int = SYSTEM_TABLE) -> KeyRange:
    """Return the range of all leases on a database's schema that were taken at a place."""
    prefix = tuples.encode((place, "schema_lease", database))
    return KeyRange(prefix, tuples.successor(prefix))
