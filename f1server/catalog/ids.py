"""The ids of new elements of a schema, of which that of a global index also says where its entries lie.

A new cluster deals root tables and global indexes to its groups by their ids
(:func:`spanstore.placement.range_map.spread_tables`). A commit that changes a row and its entry in another group is a
two-phase commit, which costs about twice as much as one in one group. So a global index takes an id that lies in the
group of its table: there it stays until load, size or a policy has one of the two move.
"""

from collections.abc import Callable

from f1common.encoding import tuple as tuples
from spanstore.placement.range_map import GLOBAL_INDEX_BASE

__all__ = ["GroupOf", "Ids", "NewId", "index_id"]

NewId = Callable[[], int]
"""Draws an id that was never used in the cluster."""

GroupOf = Callable[[bytes], int | None]
"""Tells which group owns a key, as far as that is known."""

_MOST_PASSED_OVER = 16


class Ids:
    """Draws ids, which the commit that uses them makes good."""

    def __init__(self, next_id: int, group_of: GroupOf | None = None) -> None:
        """``next_id``: the first that was not drawn; without ``group_of`` indexes lie anywhere."""
        self.next = next_id
        self._group_of = group_of

    def __call__(self) -> int:
        """Draw the next id."""
        self.next += 1
        return self.next - 1

    def of_index(self, root_id: int) -> int:
        """Draw the id of a global index of the root table ``root_id``, or of one below: one in the table's group.

        Ids before it are passed over. The next one is as good as any if none of the next few is there.
        """
        group_of = self._group_of
        group = None if group_of is None else group_of(tuples.encode((root_id,)))
        if group_of is not None and group is not None:
            for number in range(self.next, self.next + _MOST_PASSED_OVER):
                if group_of(tuples.encode((GLOBAL_INDEX_BASE + number,))) == group:
                    self.next = number
                    break
        return self()


def index_id(new_id: NewId, root_id: int, *, local: bool) -> int:
    """Draw the id of an index; entries of local ones lie with their rows in any case."""
    return new_id.of_index(root_id) if isinstance(new_id, Ids) and not local else new_id()
