"""Commits as their caller sees them: retries, lost answers, two phases, and what is true of each error."""

from collections.abc import Callable

import pytest

from f1common.errors import Code, F1Error
from f1common.pb import spanstore_pb2 as pb
from spanstore.client import CommitId, ExpectUnchanged, ExpectVersion, SpanClient, Write
from spanstore.placement.range_map import KEY_MAX, Range, RangeMap
from tests.unit.client.fakes import (
    DONE,
    LOST,
    Answer,
    Script,
    Tier,
    body,
    committed,
    error,
    outcome,
    prepared,
    talk,
)

ONE = [Write(b"a", b"1")]
TWO = [Write(b"a", b"1"), Write(b"n", b"2")]
THREE = [*TWO, Write(b"u", b"3")]


def by_kind(**answers: Answer | Callable[[pb.Request], Answer]) -> Script:
    def script(server: str, request: pb.Request) -> Answer:
        kind = body(request)
        found = answers.get(kind, DONE.get(kind))
        return found(request) if callable(found) else found

    return script


async def refusal(client: SpanClient, writes: list[Write], **options: object) -> F1Error:
    with pytest.raises(F1Error) as caught:
        await client.commit(writes, **options)  # type: ignore[arg-type]
    return caught.value


def test_one_group_commits_in_one_round() -> None:
    async def main(client: SpanClient, tier: Tier) -> None:
        assert await client.commit(ONE, [ExpectVersion(b"b", 5)]) == 77
        assert tier.kinds() == ["commit"]
        (sent,) = tier.of("commit", 1)
        assert [w.key for w in sent.work.writes] == [b"a"] and sent.work.txn.anchor == b"a"
        assert sent.work.preconditions[0].version.ts == 5 and not sent.participants

    talk(by_kind(commit=committed(77)), main)


def test_participants_prepare_before_the_coordinator_commits_and_are_told_after() -> None:
    async def main(client: SpanClient, tier: Tier) -> None:
        assert await client.commit(THREE, [ExpectUnchanged(b"l", b"o", 9)]) == 77
        await tier.world.sleep_us(100_000)
        assert sorted(tier.kinds()[:2]) == ["prepare", "prepare"] and tier.kinds()[2] == "commit"
        (sent,) = tier.of("commit", 1)
        assert {(p.group, p.prepare_ts) for p in sent.participants} == {(2, 20), (3, 30)}
        assert sent.work.preconditions[0].unchanged.end == b"m"
        (second,) = tier.of("prepare", 2)
        assert second.coordinator_group == 1 and second.work.preconditions[0].unchanged.start == b"m"
        assert second.work.deadline > 0
        decisions = [(r.group, r.decide.commit, r.decide.ts) for r in tier.requests if body(r) == "decide"]
        assert sorted(decisions) == [(2, True, 77), (3, True, 77)]

    talk(by_kind(commit=committed(77), prepare=lambda r: prepared(r.group * 10)), main)


def test_group_that_is_only_tested_is_a_participant() -> None:
    async def main(client: SpanClient, tier: Tier) -> None:
        await client.commit(ONE, [ExpectVersion(b"n", 5)])
        assert [r.group for r in tier.requests if body(r) == "prepare"] == [2]

    talk(by_kind(commit=committed(77), prepare=prepared(1)), main)


@pytest.mark.parametrize("code", [Code.ABORTED, Code.FENCED, Code.CLOCK_SKEW])
def test_refused_prepare_aborts_everywhere_and_is_told_as_it_is(code: Code) -> None:
    async def main(client: SpanClient, tier: Tier) -> None:
        why = await refusal(client, THREE)
        assert why.code is code and not why.ambiguous
        await tier.world.sleep_us(1_000_000)
        assert not tier.of("commit")
        told = sorted((r.group, r.decide.commit) for r in tier.requests if body(r) == "decide")
        assert told == [(2, False), (3, False)]

    talk(by_kind(prepare=lambda r: prepared(20) if r.group == 2 else error(code)), main)


def test_one_refusal_decides_though_another_participant_still_waits_for_locks() -> None:
    async def main(client: SpanClient, tier: Tier) -> None:
        await client.range_map()
        before = tier.world.now_us()
        assert (await refusal(client, THREE)).code is Code.ABORTED
        assert tier.world.now_us() - before < 100_000
        await tier.world.sleep_us(100_000)
        assert sorted(r.group for r in tier.requests if body(r) == "decide") == [2, 3]

    talk(by_kind(prepare=lambda r: LOST if r.group == 2 else error(Code.ABORTED)), main)


def test_silent_participant_aborts_and_says_that_nothing_happened() -> None:
    async def main(client: SpanClient, tier: Tier) -> None:
        why = await refusal(client, TWO, timeout_s=3.0)
        assert why.code is Code.ABORTED and why.retryable and not why.ambiguous

    talk(by_kind(prepare=LOST), main)


def test_refused_commit_aborts_who_has_prepared() -> None:
    async def main(client: SpanClient, tier: Tier) -> None:
        why = await refusal(client, TWO)
        assert why.code is Code.ALREADY_EXISTS
        await tier.world.sleep_us(1_000_000)
        assert [d.commit for d in tier.of("decide", 2)] == [False]
        assert not tier.of("outcome")

    talk(by_kind(prepare=prepared(20), commit=error(Code.ALREADY_EXISTS)), main)


@pytest.mark.parametrize("writes", [ONE, TWO])
def test_lost_answer_of_a_commit_that_happened_is_found_out(writes: list[Write]) -> None:
    async def main(client: SpanClient, tier: Tier) -> None:
        assert await client.commit(writes, timeout_s=3.0) == 88
        await tier.world.sleep_us(100_000)
        assert len(tier.of("commit")) > 1
        (first, *others) = tier.of("commit")
        assert all(other == first for other in others)
        assert [(d.commit, d.ts) for d in tier.of("decide")] == [(True, 88)] * (len(writes) - 1)

    talk(by_kind(prepare=prepared(20), commit=LOST, outcome=outcome(pb.COMMITTED, 88)), main)


@pytest.mark.parametrize("writes", [ONE, TWO])
def test_lost_answer_of_a_commit_that_did_not_happen_is_aborted_for_ever(writes: list[Write]) -> None:
    async def main(client: SpanClient, tier: Tier) -> None:
        why = await refusal(client, writes, timeout_s=3.0)
        assert why.code is Code.ABORTED and why.retryable and not why.ambiguous
        (question,) = tier.of("outcome")
        assert not question.peek  # only an abort that is logged lets the caller try again
        await tier.world.sleep_us(1_000_000)
        assert [d.commit for d in tier.of("decide")] == [False] * (len(writes) - 1)

    talk(by_kind(prepare=prepared(20), commit=LOST, outcome=outcome(pb.ABORTED)), main)


def test_refusal_while_a_copy_is_under_way_is_not_believed() -> None:
    """The first copy is slow; the second meets a leader that knows nothing of the first, and refuses."""
    copies = iter((LOST, error(Code.ABORTED)))

    async def main(client: SpanClient, tier: Tier) -> None:
        assert await client.commit(ONE) == 88
        assert len(tier.of("outcome")) == 1

    talk(by_kind(commit=lambda r: next(copies), outcome=outcome(pb.COMMITTED, 88)), main)


def test_coordinator_that_cannot_be_asked_leaves_it_unknown_and_nobody_is_told_anything() -> None:
    async def main(client: SpanClient, tier: Tier) -> None:
        why = await refusal(client, TWO, timeout_s=3.0)
        assert why.code is Code.UNKNOWN_OUTCOME and why.ambiguous and not why.retryable
        (first, *_) = tier.of("commit")
        assert bytes.fromhex(why.details["unique"]) == first.work.txn.unique
        assert bytes.fromhex(why.details["anchor"]) == b"a" and why.details["attempt"] == "1"
        await tier.world.sleep_us(5_000_000)
        assert not tier.of("decide") and not tier.of("release")

    talk(by_kind(prepare=prepared(20), commit=LOST, outcome=LOST), main)


def test_expired_outcome_is_unknown_and_not_an_abort() -> None:
    async def main(client: SpanClient, tier: Tier) -> None:
        why = await refusal(client, ONE, timeout_s=3.0)
        assert why.code is Code.UNKNOWN_OUTCOME and why.ambiguous

    talk(by_kind(commit=LOST, outcome=error(Code.EXPIRED)), main)


NAMED = CommitId(b"a", b"u" * 16, 1_000)


def test_named_commit_sent_again_after_it_happened_returns_its_timestamp() -> None:
    """A participant that has finished refuses the prepare; that says nothing about how it finished."""

    async def main(client: SpanClient, tier: Tier) -> None:
        assert await client.commit(TWO, commit_id=NAMED) == 88
        await tier.world.sleep_us(1_000_000)
        assert all(d.commit for d in tier.of("decide"))

    talk(by_kind(prepare=error(Code.ABORTED), outcome=outcome(pb.COMMITTED, 88)), main)


def test_named_commit_that_a_participant_refuses_is_aborted_at_the_coordinator_before_anybody_is_told() -> None:
    async def main(client: SpanClient, tier: Tier) -> None:
        why = await refusal(client, THREE, commit_id=NAMED)
        assert why.code is Code.ABORTED
        await tier.world.sleep_us(1_000_000)
        kinds = tier.kinds()
        assert kinds.index("outcome") < kinds.index("decide")

    talk(
        by_kind(prepare=lambda r: prepared(20) if r.group == 2 else error(Code.ABORTED), outcome=outcome(pb.ABORTED)),
        main,
    )


def test_named_commit_that_is_refused_may_have_been_committed_by_another_driver() -> None:
    async def main(client: SpanClient, tier: Tier) -> None:
        assert await client.commit(ONE, commit_id=NAMED, attempt=1) == 88

    talk(by_kind(commit=error(Code.ABORTED), outcome=outcome(pb.COMMITTED, 88)), main)


OTHER_MAP = RangeMap([Range(b"", b"m", 1), Range(b"m", KEY_MAX, 3)], 2)


def test_wrong_range_is_retried_with_a_fresh_map_and_a_fresh_attempt() -> None:
    """The abort of the first try is still on its way: under the same name it could kill the second one's prepare."""

    def script(server: str, request: pb.Request) -> Answer:
        match body(request):
            case "prepare":
                return error(Code.WRONG_RANGE) if request.group == 2 else prepared(30)
            case "commit":
                return committed(99)
            case kind:
                return DONE.get(kind)

    async def main(client: SpanClient, tier: Tier) -> None:
        await client.range_map()
        tier.map = OTHER_MAP
        assert await client.commit(THREE) == 99
        await tier.world.sleep_us(1_000_000)
        aborted = {(d.txn.unique, d.txn.attempt) for d in tier.of("decide") if not d.commit}
        (done,) = tier.of("commit")
        assert (done.work.txn.unique, done.work.txn.attempt) not in aborted
        assert [w.key for w in tier.of("prepare", 3)[-1].work.writes] == [b"n", b"u"]

    talk(script, main)


def test_wrong_range_for_a_named_commit_ends_that_attempt() -> None:
    def script(server: str, request: pb.Request) -> Answer:
        match body(request):
            case "prepare":
                return error(Code.WRONG_RANGE) if request.group == 2 else prepared(30)
            case "commit":
                return committed(99)
            case "outcome":
                return outcome(pb.ABORTED)
            case kind:
                return DONE.get(kind)

    async def main(client: SpanClient, tier: Tier) -> None:
        await client.range_map()
        tier.map = OTHER_MAP
        why = await refusal(client, THREE, commit_id=NAMED)
        assert why.code is Code.ABORTED and why.retryable
        assert not tier.of("commit") and len(tier.of("outcome")) == 1
        assert (await client.commit(THREE, commit_id=NAMED, attempt=2)) == 99

    talk(script, main)


def test_commit_without_writes_is_refused_before_anything_is_sent() -> None:
    async def main(client: SpanClient, tier: Tier) -> None:
        assert (await refusal(client, [])).code is Code.INVALID_ARGUMENT
        assert not tier.log

    talk(by_kind(), main)


@pytest.mark.parametrize("bad", [Write(b"b", b"12345678", -1, (-1,)), Write(b"o", b"12345678", 1 << 40)])
def test_numbers_that_no_message_takes_are_refused_and_whoever_prepared_is_told(bad: Write) -> None:
    async def main(client: SpanClient, tier: Tier) -> None:
        assert (await refusal(client, [*THREE, bad])).code is Code.INVALID_ARGUMENT
        assert (await refusal(client, ONE, deadline=1 << 63)).code is Code.INVALID_ARGUMENT
        assert await client.commit(ONE, timeout_s=1e12) == 77
        await tier.world.sleep_us(100_000)
        ended = [request for request in tier.of("decide", 3) if not request.commit]
        assert len(ended) == 1
        assert [request.work.deadline for request in tier.of("commit", 1)] != [1 << 63]

    talk(by_kind(commit=committed(77), prepare=prepared(70)), main)


def test_later_commits_come_after_what_the_client_saw() -> None:
    async def main(client: SpanClient, tier: Tier) -> None:
        await client.commit(ONE)
        await client.commit(ONE, above=5)
        await client.commit(ONE, above=(1 << 60) + 5)
        assert [c.work.above for c in tier.of("commit")] == [0, 1 << 60, (1 << 60) + 5]

    talk(by_kind(commit=committed(1 << 60)), main)


def test_outcome_tells_the_three_states() -> None:
    states = iter((pb.UNKNOWN, pb.ABORTED, pb.COMMITTED))

    async def main(client: SpanClient, tier: Tier) -> None:
        found = [await client.outcome(NAMED, peek=n == 0) for n in range(3)]
        assert [(d.committed, d.ts) for d in found] == [(None, 5), (False, 5), (True, 5)]
        assert [q.peek for q in tier.of("outcome")] == [True, False, False]

    talk(by_kind(outcome=lambda r: outcome(next(states), 5)), main)
