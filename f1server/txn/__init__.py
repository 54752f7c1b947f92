"""Transactions of the database over those of the storage tier (F1 section 5).

An **optimistic** transaction reads at one timestamp and holds nothing at any server. Its client collects the read set
(row, columns looked at, when their lock last changed) and the logical writes. The commit is one short pessimistic
transaction of the storage tier: the rows to be written are locked and read again, as are those of the read set; if a
lock has a newer value than was seen, somebody else was faster, and nothing is written. New row values are always built
from the row read under the lock, never from what the client saw.

A **pessimistic** transaction is one of the storage tier from its first statement on, held open by one f1server.

A **snapshot** transaction reads at a timestamp in the past, by default the global safe timestamp, and waits for nobody.

Commits carry the end of the schema lease as their deadline: what was planned under a version of the schema is refused
by the storage tier once that version may be two behind (schema-change paper, section 4.2).
"""
