"""Change history: the batches that every transaction leaves under the roots it touched, read back (F1 section 6).

The write planner makes the batches (:mod:`f1server.rows.changes`). Here they are found again: all batches of a root
lie next to each other in commit order, below the root's key and after its rows and local indexes, and stay there when
the root is deleted. Readers go no further than a timestamp below which nothing can commit any more (a safe timestamp):
a batch that is not there yet at a later one may still come.

SQL sees a read-only table for each root table, ``ChangeHistory_<Root>``, with one row for each changed row.
"""

from f1server.history.reading import (
    BatchRef,
    HistoryShape,
    batch_from_pb,
    batch_to_pb,
    history_shape,
    history_span,
    read_batch,
    split_batch_key,
)
from f1server.history.table import history_rows, history_table, is_history_table, root_of_history, with_history

__all__ = [
    "BatchRef",
    "HistoryShape",
    "batch_from_pb",
    "batch_to_pb",
    "history_rows",
    "history_shape",
    "history_span",
    "history_table",
    "is_history_table",
    "read_batch",
    "root_of_history",
    "split_batch_key",
    "with_history",
]
