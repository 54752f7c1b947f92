"""Change batches of new rows that come by columns: the bytes that :mod:`f1server.rows.changes` gives for them.

Messages one after the other are one message with the fields of all (protobuf's encoding says so), and here they come in
the order of their numbers.
"""

from collections.abc import Sequence

from f1common.pb import f1_pb2 as pb
from f1server.catalog.schema import Table
from f1server.rows.changes import links_of

__all__ = ["new_batches", "new_changes"]

_LENGTH_DELIMITED = 2


def new_changes(
    table: Table, keys: Sequence[bytes], after: Sequence[bytes], columns: Sequence[tuple[str, ...]]
) -> list[bytes]:
    """Return the changes of new rows as fields of a batch: of their encoded primary keys, their encoded tracked columns
    and the names of these."""
    row = pb.Change(table=table.name, table_id=table.id).SerializeToString(deterministic=True)
    names = {some: pb.Change(columns=some).SerializeToString(deterministic=True) for some in set(columns)}
    made = [
        b"".join((row, _KEY, _LENGTHS[len(key)], key, _AFTER, _LENGTHS[len(cells)], cells, names[some]))
        for key, cells, some in zip(keys, after, columns, strict=True)
    ]
    return [b"".join((_CHANGES, _LENGTHS[len(change)], change)) for change in made]


def new_batches(root: Table, roots: Sequence[bytes], changes: Sequence[bytes]) -> tuple[tuple[bytes, ...], list[bytes]]:
    """Group changes, given in key order, by the storage keys of their root rows.

    Returns these keys in ascending order, and the bytes of the batch of each.
    """
    head = pb.ChangeBatch(root_table=root.name).SerializeToString(deterministic=True)
    grouped = dict(zip(roots, changes, strict=True))
    if len(grouped) < len(changes):
        several: dict[bytes, list[bytes]] = {}
        for key, change in zip(roots, changes, strict=True):
            several.setdefault(key, []).append(change)
        grouped = {key: b"".join(some) for key, some in several.items()}
    ordered = tuple(sorted(grouped))
    tails: dict[tuple[bytes, ...], bytes] = {}
    batches = []
    for key, links in links_of(ordered).items():
        tail = tails.get(links)
        if tail is None:
            message = pb.ChangeBatch(other_roots=links, roots=len(ordered))
            tail = tails[links] = message.SerializeToString(deterministic=True)
        batches.append(b"".join((head, grouped[key], tail)))
    return ordered, batches


class _Lengths(dict[int, bytes]):
    """Numbers as protobuf encodes them; those that come often are kept."""

    def __missing__(self, number: int) -> bytes:
        groups, rest = [], number
        while rest > 0x7F:
            groups.append(rest & 0x7F | 0x80)
            rest >>= 7
        encoded = bytes((*groups, rest))
        if number <= 0xFFFF:
            self[number] = encoded
        return encoded


_LENGTHS = _Lengths()


def _tag(number: int) -> bytes:
    return bytes((number << 3 | _LENGTH_DELIMITED,))


_KEY = _tag(pb.Change.KEY_FIELD_NUMBER)
_AFTER = _tag(pb.Change.AFTER_FIELD_NUMBER)
_CHANGES = _tag(pb.ChangeBatch.CHANGES_FIELD_NUMBER)
