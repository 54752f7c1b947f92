"""Commands of the log: every command survives its bytes, and nothing else is taken for one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from f1common.errors import Code, F1Error
from spanstore.txn.commands import (
    AbortCmd,
    CollectCmd,
    Command,
    CommitCmd,
    DecideCmd,
    GcOutcomesCmd,
    LockRecord,
    NewLeader,
    PrepareCmd,
    RaiseMarkCmd,
    Removal,
    TxnRef,
    Write,
    decode_command,
    encode_command,
)
from spanstore.txn.locks import LockMode, Priority, Span

ts = st.integers(0, (1 << 63) - 1)
group = st.integers(0, 0xFFFE)
short = st.binary(max_size=24)
txn = st.builds(TxnRef, short, short, ts, st.integers(1, 1 << 31))
write = st.builds(
    Write, short, st.one_of(st.none(), short), st.integers(-1, 500), st.lists(st.integers(0, 1 << 20)).map(tuple)
)
writes = st.lists(write, max_size=4).map(tuple)
lock = st.builds(LockRecord, short, st.one_of(st.none(), short), st.sampled_from(LockMode))
names = st.lists(short, max_size=3).map(tuple)
removal = st.builds(Removal, short, ts, ts)
commands: st.SearchStrategy[Command] = st.one_of(
    st.builds(NewLeader, ts, st.text(max_size=9), ts),
    st.builds(CommitCmd, txn, ts, writes, st.lists(group, max_size=3).map(tuple), ts),
    st.builds(AbortCmd, txn, st.text(max_size=20), ts),
    st.builds(
        PrepareCmd, txn, ts, st.builds(Priority, ts, short), writes, st.lists(lock, max_size=4).map(tuple), group, ts
    ),
    st.builds(DecideCmd, txn, st.one_of(st.none(), ts), ts),
    st.builds(GcOutcomesCmd, ts, st.lists(group, max_size=3).map(tuple), names, names, short),
    st.builds(RaiseMarkCmd, ts),
    st.builds(CollectCmd, st.lists(removal, max_size=3).map(tuple), ts, ts, short, ts, ts),
)


@given(commands)
def test_command_survives_its_bytes(command: Command) -> None:
    decoded = decode_command(encode_command(command))
    assert decoded == command
    assert type(decoded) is type(command)


REF = TxnRef(b"root", b"u", 7, 2)


@pytest.mark.parametrize(
    ("command", "data"),
    [
        (NewLeader(3, "a1", 9), "940103a2613109"),
        (
            CommitCmd(REF, 8, (Write(b"k", None), Write(b"q", b"v", 1, (0,))), (4,), 99),
            "96029 4c404726f6f74c401750702 08 92 94c4016bc0ff90 94c40171c40176019100 9104 63",
        ),
        (AbortCmd(REF, "no", 8), "940394c404726f6f74c401750702 a26e6f 08"),
        (
            PrepareCmd(REF, 8, Priority(7, b"u"), (), (LockRecord(b"a", b"b", LockMode.APPEND),), 0, 99),
            "980494c404726f6f74c401750702 08 9207c40175 90 9193c40161c4016204 00 63",
        ),
        (DecideCmd(REF, None, 99), "940594c404726f6f74c401750702 c0 63"),
        (GcOutcomesCmd(8, (4,), (b"r\x00u",), (b"v",), b"\x12r"), "960608910491c403720075 91c40176 c4021272"),
        (RaiseMarkCmd(8), "921e08"),
        (CollectCmd((Removal(b"k", 9, 7),), 2, 40, b"\x10k", 6, 5), "971f9193c4016b0907 02 28 c402106b 06 05"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_bytes_in_a_log_keep_their_meaning(command: Command, data: str) -> None:
    """Logs are kept on disk: changing what these bytes mean needs another tag, not another layout."""
    raw = bytes.fromhex(data.replace(" ", ""))
    assert encode_command(command) == raw
    assert decode_command(raw) == command


def test_fields_that_were_appended_later_have_defaults() -> None:
    assert decode_command(bytes.fromhex("930594c404726f6f74c401750702c0")) == DecideCmd(REF, None)
    assert decode_command(bytes.fromhex("920608")) == GcOutcomesCmd(8)
    assert decode_command(bytes.fromhex("9306089104")) == GcOutcomesCmd(8, (4,))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b"\x93\x63\x01\x02",  # an unknown tag
        b"\x95\x01\x03\xa1a\x09\x00",  # a field that this version does not know
        b"\x92\x01\x03",  # a NewLeader without its last fields
        b"\x94\x01\x03\xa1a\xa1x",  # text where a timestamp belongs
        encode_command(NewLeader(3, "a1", 9))[:-1],
        encode_command(NewLeader(3, "a1", 9)) + b"\x00",
        encode_command(PrepareCmd(REF, 8, Priority(7, b""), (), (LockRecord(b"", None, LockMode.SHARED),), 0, 1))[:-3]
        + b"\x03\x00\x01",  # lock mode 3
        b"\x94\x03" + encode_command(DecideCmd(REF, None))[2:-2] + b"\xa1\xff\x01",  # a reason that is not UTF-8
        b"\x95\x01\x03\xa1a\x09" + b"\x91" * 100_000 + b"\xc0",  # nested without end
    ],
    ids=range(11),
)
def test_anything_else_is_corruption(data: bytes) -> None:
    with pytest.raises(F1Error) as caught:
        decode_command(data)
    assert caught.value.code is Code.DATA_CORRUPTION


@given(st.one_of(st.binary(max_size=60), commands.map(encode_command)))
def test_no_bytes_crash_the_decoder(data: bytes) -> None:
    for cut in (data, data[1:], data[:-1], data[: len(data) // 2] + b"\xc1" + data[len(data) // 2 :]):
        try:
            decode_command(cut)
        except F1Error as error:
            assert error.code is Code.DATA_CORRUPTION


def test_lock_record_is_a_span() -> None:
    assert LockRecord(b"a", b"c", LockMode.SHARED).span == Span(b"a", b"c")
    assert LockRecord(b"a", None, LockMode.SHARED).span == Span(b"a")
