"""Writes of many rows that travel together mean what they would mean one by one."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from f1common.errors import Code, F1Error
from f1common.pb import spanstore_pb2 as pb
from spanstore.client import CommitId, ExpectAbsent, ExpectExists, Puts, SpanClient, Write
from spanstore.client.twophase import Plan, Share, share_out
from spanstore.client.values import Precondition
from spanstore.group.requests import Commit, TxnWork
from spanstore.placement.range_map import RangeMap
from spanstore.runtime.wire import request_from_pb
from spanstore.txn import outcomes
from tests.unit.client.fakes import DONE, Answer, Script, Tier, body, committed, prepared, talk

KEYS = [bytes([n]) for n in range(65, 90)]


def read(share: Share, *, packed: bool) -> TxnWork:
    """Return what a spanserver makes of the message of a share."""
    plan = Plan(CommitId(b"A", b"t", 5), 1, 7, 1, {1: share}, 99, 3)
    request = request_from_pb(pb.Request(commit=pb.Commit(work=plan.work(1, packed=packed))))
    assert isinstance(request, Commit)
    return request.work


def absent(work: TxnWork) -> list[bytes]:
    found: list[bytes] = []
    for test in work.preconditions:
        match test:
            case outcomes.WrittenAbsent(keys):
                found += keys
            case outcomes.ExpectAbsent(key):
                found.append(key)
            case _:
                pass
    return sorted(found)


def others(work: TxnWork) -> list[object]:
    return [t for t in work.preconditions if not isinstance(t, outcomes.WrittenAbsent | outcomes.ExpectAbsent)]


def a_write(key: bytes) -> st.SearchStrategy[Write]:
    return st.one_of(
        st.builds(Write, st.just(key), st.one_of(st.none(), st.binary(max_size=5))),
        st.sampled_from([b"v", b"w"]).map(lambda value: Write(key + b"12345678id", value, key_offset=1)),
        st.just(Write(key + b"12345678", b"v", key_offset=1)),
        st.just(Write(key + b"12345678id", None, key_offset=1)),
        st.just(Write(key, b"12345678", value_offsets=(0,))),
    )


WRITES = st.sets(st.sampled_from(KEYS), max_size=20).flatmap(
    lambda keys: st.tuples(*(a_write(key) for key in sorted(keys)))
)
TESTS = st.lists(st.builds(ExpectAbsent, st.sampled_from(KEYS)) | st.builds(ExpectExists, st.sampled_from(KEYS)))


@given(writes=WRITES, tests=TESTS, new=st.booleans())
def test_a_packed_share_is_the_same_share(writes: Sequence[Write], tests: list[Precondition], new: bool) -> None:
    if new:
        tests = [*tests, *(ExpectAbsent(w.key) for w in writes if w.key_offset < 0)]
    share = Share(list(writes), list(tests))
    plain, packed = read(share, packed=False), read(share, packed=True)
    assert sorted(plain.writes, key=lambda w: w.key) == sorted(packed.writes, key=lambda w: w.key)
    assert set(absent(plain)) == set(absent(packed))
    assert others(plain) == others(packed)
    assert set(plain.wanted()) == set(packed.wanted())
    assert (plain.txn, plain.deadline, plain.above) == (packed.txn, packed.deadline, packed.above)


@given(
    keys=st.sets(st.binary(min_size=1, max_size=2).filter(lambda key: b"\x01" <= key < b"\xff"), max_size=30),
    borders=st.sets(st.binary(min_size=1, max_size=2).filter(lambda key: key < b"\xff"), max_size=6),
    packed=st.booleans(),
)
def test_many_puts_are_dealt_as_writes_one_by_one_are(keys: set[bytes], borders: set[bytes], packed: bool) -> None:
    starts = [b"", *sorted(borders)]
    ranges = RangeMap.from_starts([(start, position % 3) for position, start in enumerate(starts)])
    rows = Puts(sorted(keys), [b"v" + key for key in sorted(keys)], absent=True)
    history = Puts([key + b"12345678id" for key in rows.keys], [b"h"] * len(rows), stamp_before_end=10)
    dealt = share_out(ranges, [], [], [rows, history])
    tests = [ExpectAbsent(key) for key in rows.keys]
    assert [write.key_offset for write in history.writes()] == [len(key) for key in rows.keys]
    expected = share_out(ranges, [*rows.writes(), *history.writes()], tests)
    assert dealt.keys() == expected.keys()
    for group, share in dealt.items():
        ours, theirs = read(share, packed=packed), read(expected[group], packed=False)
        assert sorted(ours.writes, key=lambda w: w.key) == sorted(theirs.writes, key=lambda w: w.key)
        assert absent(ours) == absent(theirs) and not others(ours)
        assert (share.rows, share.size) == (expected[group].rows, expected[group].size)


def test_of_two_writes_of_one_key_the_last_one_counts() -> None:
    writes = [*(Write(key, b"v") for key in KEYS), Write(KEYS[0], None)]
    assert read(Share(writes), packed=True).writes[-1] == read(Share(writes), packed=False).writes[-1]
    assert read(Share(writes), packed=True).writes[-1].value is None


def test_many_new_rows_are_one_test() -> None:
    writes = [Write(key, key.lower()) for key in KEYS]
    work = read(Share(writes, [ExpectAbsent(key) for key in KEYS]), packed=True)
    assert work.preconditions == (outcomes.WrittenAbsent(tuple(KEYS)),) and not work.tested


@pytest.mark.parametrize(
    "work",
    [
        pb.TxnWork(puts=[pb.Puts(keys=[b"a", b"b"], values=[b"1"])]),
        pb.TxnWork(puts=[pb.Puts(values=[b"1"])]),
        pb.TxnWork(preconditions=[pb.Precondition(understands=3)]),
        pb.TxnWork(preconditions=[pb.Precondition()]),
    ],
)
def test_what_is_no_such_share_is_refused(work: pb.TxnWork) -> None:
    work.txn.unique = b"t"
    with pytest.raises(F1Error) as caught:
        request_from_pb(pb.Request(commit=pb.Commit(work=work)))
    assert caught.value.code is Code.INVALID_ARGUMENT


def of_an_older_version(commits: Answer) -> Script:
    """Refuse what a server that knows no ``puts`` refuses: the precondition that goes with them."""

    def script(server: str, request: pb.Request) -> Answer:
        work = getattr(request, body(request)).work if body(request) in ("commit", "prepare") else pb.TxnWork()
        if any(test.WhichOneof("test") == "understands" for test in work.preconditions):
            return F1Error(Code.INVALID_ARGUMENT, "a precondition of an unknown kind")
        assert not work.puts
        return {**DONE, "commit": commits, "prepare": prepared(50)}.get(body(request))

    return script


@pytest.mark.parametrize(
    "kinds", [["commit", "commit", "commit"], ["prepare", "prepare", "commit", "prepare", "commit"]]
)
def test_servers_of_an_older_version_get_them_one_by_one(kinds: list[str]) -> None:
    """Once that is found out, nothing is sent twice for a while."""
    second = b"n" if "prepare" in kinds else b"b"
    writes = [Write(key + bytes([n]), b"v") for n in range(65, 75) for key in (b"a", second)]

    async def main(client: SpanClient, tier: Tier) -> None:
        assert await client.commit(writes, [ExpectAbsent(writes[0].key)]) == 77
        assert await client.commit(writes) == 77
        await tier.world.sleep_us(100_000)
        assert [kind for kind in tier.kinds() if kind in ("commit", "prepare")] == kinds
        sent = [w.key for request in tier.of("commit", 1)[-1:] for w in request.work.writes]
        assert sorted(sent) == sorted(w.key for w in writes if w.key < b"m")

    talk(of_an_older_version(committed(77)), main)


def test_puts_of_a_transaction_go_as_writes_to_servers_of_an_older_version() -> None:
    puts = Puts(KEYS, [b"v"] * len(KEYS), absent=True)

    async def main(client: SpanClient, tier: Tier) -> None:
        for kinds in (["commit", "commit"], ["commit", "commit", "commit"]):
            tx = client.transaction()
            tx.put(puts)
            assert tx.size == puts.size
            assert await tx.commit() == 77
            assert [kind for kind in tier.kinds() if kind == "commit"] == kinds
        for request in tier.of("commit", 1)[1:]:
            assert [w.key for w in request.work.writes] == KEYS
            assert sorted(test.absent for test in request.work.preconditions) == KEYS

    talk(of_an_older_version(committed(77)), main)


def test_another_refusal_is_no_sign_of_an_older_version() -> None:
    async def main(client: SpanClient, tier: Tier) -> None:
        with pytest.raises(F1Error, match="nonsense"):
            await client.commit([Write(key, b"v") for key in KEYS])
        assert tier.kinds() == ["commit"]

    talk(lambda server, request: F1Error(Code.INVALID_ARGUMENT, "nonsense"), main)
