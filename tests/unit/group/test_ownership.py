"""A group works on nothing that lies outside of its ranges, however many keys a request has."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from f1common.errors import Code, F1Error
from spanstore.group.holding import Holding
from spanstore.group.ownership import check_owned
from spanstore.group.requests import Commit, TxnWork
from spanstore.placement.range_map import OwnedRanges, Range
from spanstore.txn.commands import TxnRef, Write
from spanstore.txn.outcomes import ExpectAbsent, ExpectUnchangedRange

OWNED = OwnedRanges([Range(b"b", b"d", 2), Range(b"m", b"p", 2)])
HOLDING = cast(Holding, SimpleNamespace(owned=OWNED, record=SimpleNamespace(heir_of=lambda start, end: None)))


def commit(keys: list[bytes], *tests: Any, anchor: bytes = b"b0") -> Commit:
    writes = tuple(Write(key, b"v") for key in keys)
    return Commit(TxnWork(TxnRef(anchor, b"u", 1, 1), 1, writes, tests))


@pytest.mark.parametrize("count", [1, 3, 20])
def test_what_is_owned_is_worked_on(count: int) -> None:
    within = [b"b%d" % n for n in range(count)]
    check_owned(HOLDING, commit(within, *map(ExpectAbsent, within)), 2)
    check_owned(HOLDING, commit([*within, b"m", b"oz"], ExpectUnchangedRange(b"m", b"p", 1)), 2)


@pytest.mark.parametrize("count", [1, 3, 20])
@pytest.mark.parametrize("outside", [b"a", b"d", b"e", b"lz", b"p"])
def test_one_key_outside_is_enough(count: int, outside: bytes) -> None:
    within = [b"b%d" % n for n in range(count)]
    for request in (
        commit([*within, outside]),
        commit([outside, *within, b"n"]),
        commit(within, *map(ExpectAbsent, [*within, outside])),
        commit(within, anchor=outside),
    ):
        with pytest.raises(F1Error) as refused:
            check_owned(HOLDING, request, 2)
        assert refused.value.code is Code.WRONG_RANGE
        assert outside.hex() in refused.value.message


@pytest.mark.parametrize("count", [1, 20])
def test_a_range_that_reaches_beyond_is_outside(count: int) -> None:
    within = [b"b%d" % n for n in range(count)]
    for start, end in ((b"b", b"e"), (b"c", b"n"), (b"a", b"c")):
        with pytest.raises(F1Error, match="does not own all of"):
            check_owned(HOLDING, commit(within, ExpectUnchangedRange(start, end, 1)), 2)
