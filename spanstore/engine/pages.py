"""The pages of an LMDB file, read with ``pread`` and checked one by one: what LMDB itself never does.

A damaged page read through LMDB's memory map gives wrong answers, endless loops or a dead process. Here nothing is
mapped and nothing is believed. Checked are of every page its number and kind, that its nodes fill it without gap or
overlap (LMDB keeps pages packed), that keys ascend and lie between the separators above, that all leaves lie at one
depth, and that large values have the pages they name. What a page says besides is for the records' own checksums.

A file that is being written may be read too, as long as a read transaction of the same environment pins the pages and
the meta page is the one of that transaction.

Layout (LMDB 0.9, ``mdb.c``; little-endian 64-bit machines): pages of one size; a header of 16 bytes (page number,
pad, flags, then the ends of the free space, or the number of pages of a large value); two-byte offsets of nodes; nodes
from the end of the page downwards, each of even size: 8 bytes of header, key, value. Pages 0 and 1 are the meta pages,
written in turn, so that transaction t is described by page t mod 2.
"""

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

META_MAGIC = 0xBEEFC0DE
META_VERSION = 1

_HEADER = struct.Struct("<QHHHH")
_LARGE_HEADER = struct.Struct("<QHHI")
_NODE = struct.Struct("<HHHH")
_META = struct.Struct("<IIQQ")
_TREE = struct.Struct("<IHHQQQQQ")
_META_TAIL = struct.Struct("<QQ")
_PAGE_NUMBER = struct.Struct("<Q")
META_BYTES = _HEADER.size + _META.size + 2 * _TREE.size + _META_TAIL.size

META_FLAGS = 0x08
_BRANCH, _LEAF, _OVERFLOW = 0x01, 0x02, 0x04
_BIG_DATA = 0x01
_FIRST_PAGE = 2
_MAX_PAGE_BYTES = 65_536
_NO_PAGE = 0xFFFF_FFFF_FFFF_FFFF


@dataclass(frozen=True, slots=True)
class Tree:
    """One B+ tree: its root, and what it says to consist of."""

    flags: int
    depth: int
    branch_pages: int
    leaf_pages: int
    overflow_pages: int
    entries: int
    root: int

    @property
    def empty(self) -> bool:
        """Tell whether there is no page."""
        return self.root == _NO_PAGE


@dataclass(frozen=True, slots=True)
class Meta:
    """A meta page: one committed state of the file."""

    header: tuple[int, int]
    """Number and flags of the page itself."""
    magic: int
    version: int
    page_bytes: int
    main_pad: int
    """A number of the main tree that only databases of several values for a key use: 0."""
    map_bytes: int
    free: Tree
    main: Tree
    last_page: int
    transaction: int


@dataclass(frozen=True, slots=True)
class Fault:
    """A page that is not as it was written. The keys that it answers for lie in ``[low, high)``; None has no end."""

    page: int
    what: str
    low: bytes = b""
    high: bytes | None = None

    def __str__(self) -> str:
        return f"page {self.page}: {self.what}"


@dataclass(frozen=True, slots=True)
class Leaf:
    """A sound leaf page and its items as they are stored. All keys below ``high`` are in it or before it."""

    page: int
    items: list[tuple[bytes, bytes]]
    high: bytes | None


@dataclass(slots=True)
class Visited:
    """Pages seen on a walk: which, and of what kind how many."""

    pages: set[int] = field(default_factory=set)
    branch_pages: int = 0
    leaf_pages: int = 0
    overflow_pages: int = 0
    entries: int = 0


class _Bad(Exception):
    """What is wrong with a page."""


@dataclass(frozen=True, slots=True)
class _Node:
    offset: int
    size: int
    key: bytes
    child: int = 0
    length: int = 0
    """Bytes of the value."""
    large: bool = False


def parse_meta(data: bytes) -> Meta | None:
    """Return what the first ``META_BYTES`` of a meta page say, None if they are too few."""
    if len(data) < META_BYTES:
        return None
    at = _HEADER.size
    magic, version, _, map_bytes = _META.unpack_from(data, at)
    trees = [_TREE.unpack_from(data, at + _META.size + i * _TREE.size) for i in range(2)]
    last_page, transaction = _META_TAIL.unpack_from(data, META_BYTES - _META_TAIL.size)
    free, main = (Tree(*fields[1:]) for fields in trees)
    number, _, flags, _, _ = _HEADER.unpack_from(data)
    pads = (trees[0][0], trees[1][0])
    return Meta((number, flags), magic, version, *pads, map_bytes, free, main, last_page, transaction)


class PageFile:
    """An LMDB file opened for reading its pages. Raises OSError as the operating system does."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.bytes_read = 0

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def metas(self) -> tuple[Meta | None, Meta | None]:
        """Return both meta pages, read at once because somebody may be writing; None for what cannot be one."""
        first = parse_meta(os.pread(self._fd, META_BYTES, 0))
        if first is None or first.page_bytes > _MAX_PAGE_BYTES:
            return None, None
        data = os.pread(self._fd, first.page_bytes + META_BYTES, 0)
        return parse_meta(data), parse_meta(data[first.page_bytes :])

    def read(self, page: int, count: int, page_bytes: int) -> bytes:
        """Return ``count`` pages from ``page`` on, fewer bytes at the end of the file."""
        data = os.pread(self._fd, count * page_bytes, page * page_bytes)
        self.bytes_read += len(data)
        return data


class Walk:
    """A walk over one tree of one committed state, in key order. Damage is yielded, never raised."""

    def __init__(self, pages: PageFile, meta: Meta, tree: Tree, *, integer_keys: bool = False) -> None:
        """``integer_keys``: keys are eight-byte numbers of the machine, as in the tree of free pages."""
        self.visited = Visited()
        self._pages = pages
        self._meta = meta
        self._tree = tree
        self._integer_keys = integer_keys

    def leaves(self, start: bytes = b"") -> Iterator[Leaf | Fault]:
        """Yield the leaves that may hold keys from ``start`` on, and a fault in place of what cannot be read."""
        if self._tree.empty:
            if self._tree.entries or self._tree.depth:
                yield Fault(0, "the meta page counts entries and names no root")
            return
        yield from self._visit(self._tree.root, 1, b"", None, start)

    def totals(self) -> str:
        """Say what differs from the tree's own counts after a walk over all of it; nothing if all is there."""
        seen, tree = self.visited, self._tree
        pairs = (
            ("entries", seen.entries, tree.entries),
            ("leaf pages", seen.leaf_pages, tree.leaf_pages),
            ("branch pages", seen.branch_pages, tree.branch_pages),
            ("overflow pages", seen.overflow_pages, tree.overflow_pages),
        )
        return ", ".join(f"{found} of {expected} {what}" for what, found, expected in pairs if found != expected)

    def _visit(self, page: int, level: int, low: bytes, high: bytes | None, start: bytes) -> Iterator[Leaf | Fault]:
        is_leaf = level == self._tree.depth
        try:
            data = self._read(page)
            self._claim(page, 1)
            nodes = self._nodes(data, page, _LEAF if is_leaf else _BRANCH)
            self._check_order(nodes, low, high, skip_first=not is_leaf)
            if is_leaf:
                self.visited.leaf_pages += 1
                self.visited.entries += len(nodes)
                items = [(node.key, self._value(data, node)) for node in nodes]
                yield Leaf(page, items, high)
                return
        except _Bad as bad:
            yield Fault(page, str(bad), low, high)
            return
        self.visited.branch_pages += 1
        borders = [low, *(node.key for node in nodes[1:])]
        ends: list[bytes | None] = [*borders[1:], high]
        for node, child_low, child_high in zip(nodes, borders, ends, strict=True):
            if child_high is None or child_high > start or self._integer_keys:
                yield from self._visit(node.child, level + 1, child_low, child_high, start)

    def _read(self, page: int) -> bytes:
        if not _FIRST_PAGE <= page <= self._meta.last_page:
            raise _Bad(f"there is no such page among {self._meta.last_page + 1}")
        data = self._pages.read(page, 1, self._meta.page_bytes)
        if len(data) < self._meta.page_bytes:
            raise _Bad("the file ends before it")
        return data

    def _claim(self, page: int, count: int) -> None:
        for number in range(page, page + count):
            if number in self.visited.pages:
                raise _Bad(f"page {number} is used twice")
            self.visited.pages.add(number)

    def _nodes(self, data: bytes, page: int, kind: int) -> list[_Node]:
        number, pad, flags, lower, upper = _HEADER.unpack_from(data)
        size = len(data)
        if number != page:
            raise _Bad(f"it says that it is page {number}")
        if flags != kind or pad:
            raise _Bad(f"flags {flags:#x} and pad {pad} are not those of a {'leaf' if kind == _LEAF else 'branch'}")
        if lower % 2 or not _HEADER.size <= lower <= upper <= size:
            raise _Bad(f"its free space from {lower} to {upper} is impossible")
        count = (lower - _HEADER.size) // 2
        if count < (2 if kind == _BRANCH else 1):
            raise _Bad(f"it has {count} nodes")
        offsets = struct.unpack_from(f"<{count}H", data, _HEADER.size)
        nodes = [self._node(data, offset, kind) for offset in offsets]
        at = upper
        for node in sorted(nodes, key=lambda node: node.offset):
            if node.offset != at:
                raise _Bad(f"a node begins at {node.offset}, where {at} is expected")
            at += node.size
        if at != size:
            raise _Bad(f"its nodes end at {at} of {size} bytes")
        return nodes

    def _node(self, data: bytes, offset: int, kind: int) -> _Node:
        if offset % 2 or offset + _NODE.size > len(data):
            raise _Bad(f"a node cannot begin at {offset}")
        low, high, flags, key_bytes = _NODE.unpack_from(data, offset)
        begin = offset + _NODE.size
        key = data[begin : begin + key_bytes]
        if kind == _BRANCH:
            size, node = key_bytes, (low | high << 16 | flags << 32, 0, False)
        else:
            if flags & ~_BIG_DATA:
                raise _Bad(f"a node has flags {flags:#x}")
            length = low | high << 16
            size, node = key_bytes + (_PAGE_NUMBER.size if flags else length), (0, length, bool(flags))
        size += _NODE.size
        size += size % 2
        if offset + size > len(data):
            raise _Bad(f"the node at {offset} is longer than the page")
        return _Node(offset, size, key, *node)

    def _check_order(self, nodes: list[_Node], low: bytes, high: bytes | None, *, skip_first: bool) -> None:
        if self._integer_keys:
            keys = [int.from_bytes(node.key, "little") for node in nodes]
            if any(a >= b for a, b in zip(keys[skip_first:], keys[1 + skip_first :], strict=False)):
                raise _Bad("its keys do not ascend")
            return
        before: bytes | None = None
        for node in nodes[1:] if skip_first else nodes:
            if before is not None and node.key <= before:
                raise _Bad("its keys do not ascend")
            if node.key < low or (high is not None and node.key >= high):
                raise _Bad(f"the key {node.key.hex()} belongs elsewhere")
            before = node.key

    def _value(self, data: bytes, node: _Node) -> bytes:
        begin = node.offset + _NODE.size + len(node.key)
        if not node.large:
            return data[begin : begin + node.length]
        (page,) = _PAGE_NUMBER.unpack_from(data, begin)
        page_bytes = self._meta.page_bytes
        count = (_HEADER.size + node.length + page_bytes - 1) // page_bytes
        if not _FIRST_PAGE <= page <= self._meta.last_page - count + 1:
            raise _Bad(f"a large value has no pages {page} to {page + count - 1}")
        whole = self._pages.read(page, count, page_bytes)
        if len(whole) < count * page_bytes:
            raise _Bad(f"the file ends before pages {page} to {page + count - 1} of a large value")
        number, pad, flags, named = _LARGE_HEADER.unpack_from(whole)
        # A value that was replaced by a shorter one may keep the pages of the longer.
        if (number, pad, flags) != (page, 0, _OVERFLOW) or not count <= named <= self._meta.last_page - page + 1:
            raise _Bad(f"page {page} does not begin a large value of {count} pages")
        self._claim(page, named)
        self.visited.overflow_pages += named
        return whole[_HEADER.size : _HEADER.size + node.length]


def free_pages(pages: PageFile, meta: Meta) -> tuple[set[int], list[Fault], set[int]]:
    """Return the pages listed as free, what is wrong with the list, and the pages that the list itself takes."""
    walk = Walk(pages, meta, meta.free, integer_keys=True)
    listed: set[int] = set()
    faults: list[Fault] = []
    for found in walk.leaves():
        if isinstance(found, Fault):
            faults.append(found)
            continue
        for _, value in found.items:
            numbers = struct.unpack(f"<{len(value) // 8}Q", value[: len(value) // 8 * 8])
            count = numbers[0] if numbers else 0
            free = numbers[1 : count + 1]
            if len(free) != count or not numbers:
                faults.append(Fault(found.page, "a list of free pages has another length than it says"))
            elif any(not _FIRST_PAGE <= page <= meta.last_page for page in free) or listed & set(free):
                faults.append(Fault(found.page, "a page is listed as free that is none, or twice"))
            listed.update(free)
    totals = walk.totals()
    if totals and not faults:
        faults.append(Fault(meta.free.root, f"the list of free pages has {totals}"))
    return listed, faults, walk.visited.pages
