"""The rows of a range that are alive at a timestamp, many at a time.

What :func:`spanstore.mvcc.versions.scan_versions` gives one by one, through a generator for each layer, this gives as
lists, in one loop over a page of what is stored: for those who read whole tables, where each call for each row counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from operator import ne
from typing import Final
from zlib import crc32

import numpy as np

from spanstore.engine.base import Reader
from spanstore.engine.keyspace import PREFIX_BYTES, data_prefix
from spanstore.mvcc.versions import (
    AFTER_VERSIONS,
    HEAD_BYTES,
    SUFFIX_BYTES,
    VALUE_FLAG,
    decode_version,
    low_border,
    pack_suffix,
    split_version_key,
    successors_key,
    unpack_head,
)

__all__ = ["LivePage", "LiveRows"]

_INVERT = (1 << 64) - 1
_NONE = (-1, 0)
_HEAD: Final = np.dtype([("flag", "u1"), ("checksum", ">u4")])
_MAX_STEPS = 8
"""Versions of one key that are passed over before the page is left, and the next one begins behind them."""


@dataclass(slots=True)
class LivePage:
    """Rows in order of their keys: user keys, commit timestamps and values.

    ``reached``: the user key up to which everything was looked at, itself perhaps only in part; empty: there was
    nothing. ``looked_at`` counts the stored versions, without those behind the place where a page was left. ``last``:
    the range has no more.
    """

    keys: list[bytes]
    stamps: list[int]
    values: list[bytes]
    reached: bytes
    looked_at: int
    last: bool


class LiveRows:
    """Reads the rows in ``[start, end)`` that are alive at ``ts``, from one view."""

    __slots__ = ("_above", "_borders", "_found", "_group", "_high", "_low", "_reader", "_steps", "_suffix")

    def __init__(self, reader: Reader, group: int, start: bytes, end: bytes, ts: int) -> None:
        prefix = data_prefix(group)
        self._reader = reader
        self._group = group
        self._borders = (start, end)
        self._suffix = pack_suffix(0, _INVERT - ts)
        self._low = low_border(reader, prefix, start)
        self._high = prefix + end
        self._found = b""
        """The key whose version was given: its older ones are passed over."""
        self._above = b""
        """The key whose versions so far are too new."""
        self._steps = 0

    def page(self, most: int, max_bytes: int) -> LivePage:
        """Look at up to ``most`` stored versions, fewer after ``max_bytes`` of them; the page may be without rows.

        Raises F1Error DATA_CORRUPTION for a damaged version that it would give or that is too new, or a key of none.
        """
        items, last = self._reader.page(self._low, self._high, most, max_bytes)
        page = self._plain(items, last)
        restart = b""
        if page is None:
            page = LivePage([], [], [], b"", 0, last)
            restart = self._sift(items, page)
        if items:
            self._low = items[-1][0] + b"\x00"
        if restart:
            self._low, page.last = restart, False
        elif last and (item := successors_key(self._reader, data_prefix(self._group), *self._borders, self._suffix)):
            self._sift([item], page)
        return page

    def _plain(self, items: Sequence[tuple[bytes, bytes]], last: bool) -> LivePage | None:
        """Return the page of rows that have one version each, which is alive and sound; None if there is anything else.

        That is what most of a table looks like, and a step over all of its rows at a time costs half of a loop. Raises
        F1Error DATA_CORRUPTION for a key that is no version's.
        """
        if not items:
            return None
        engine_keys, stored = zip(*items, strict=True)
        if len(shortest := min(engine_keys, key=len)) <= PREFIX_BYTES + SUFFIX_BYTES:
            split_version_key(shortest)  # says that it is damaged; it has no suffix that would tell anything
        keys = [key[PREFIX_BYTES:-SUFFIX_BYTES] for key in engine_keys]
        first = engine_keys[0][:-SUFFIX_BYTES]
        heads = b"".join([data[:HEAD_BYTES] for data in stored])
        if first in (self._found, self._above) or len(heads) < HEAD_BYTES * len(items):
            return None
        inverted = np.frombuffer(b"".join([key[-8:] for key in engine_keys]), ">u8")
        if inverted.min() < int.from_bytes(self._suffix[-8:], "big") or not all(map(ne, keys, islice(keys, 1, None))):
            return None
        values = [data[HEAD_BYTES:] for data in stored]
        stems = [key[PREFIX_BYTES:] for key in engine_keys]
        sums = [crc32(value, crc32(stem, VALUE_FLAG)) for stem, value in zip(stems, values, strict=True)]
        said = np.frombuffer(heads, _HEAD)
        if not (said["flag"] == VALUE_FLAG).all() or not (said["checksum"] == np.array(sums, np.uint32)).all():
            return None
        self._found, self._above, self._steps = engine_keys[-1][:-SUFFIX_BYTES], b"", 0
        stamps: list[int] = (_INVERT - inverted.astype(np.uint64)).tolist()
        return LivePage(keys, stamps, values, keys[-1], len(items), last)

    def _sift(self, items: Sequence[tuple[bytes, bytes]], page: LivePage) -> bytes:
        """Add what is alive to ``page``; return where to go on if too many versions of one key are in the way."""
        add_key, add_stamp, add_value = page.keys.append, page.stamps.append, page.values.append
        suffix, found, above, steps = self._suffix, self._found, self._above, self._steps
        restart = b""
        for engine_key, data in items:
            here = engine_key[:-SUFFIX_BYTES]
            visible = engine_key[-SUFFIX_BYTES:] >= suffix
            if not visible:
                decode_version(engine_key, data)  # a bit of its timestamp flipped would hide a row
            if here == found or (here == above and not visible):
                steps += 1
                if steps > _MAX_STEPS:
                    # What lies behind it on the page has not been looked at.
                    restart = found + AFTER_VERSIONS if here == found else here + suffix
                    break
            elif visible:
                found, steps = here, 0
                flag, checksum = unpack_head(data) if len(data) >= HEAD_BYTES else _NONE
                value = data[HEAD_BYTES:]
                stem = engine_key[PREFIX_BYTES:]
                if flag == VALUE_FLAG and crc32(value, crc32(stem, VALUE_FLAG)) == checksum:
                    add_key(stem[:-SUFFIX_BYTES])
                    add_stamp(_INVERT - int.from_bytes(stem[-8:], "big"))
                    add_value(value)
                else:
                    decode_version(engine_key, data)  # a deletion, or damage
            else:
                above, steps = here, 0
        self._found, self._above, self._steps = found, above, 0 if restart else steps
        if items:
            page.reached = here[PREFIX_BYTES:]
            page.looked_at += items.index((engine_key, data)) + 1 if restart else len(items)
        return restart
