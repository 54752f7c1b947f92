"""Timestamps of a leader (Spanner, sections 4.1 and 4.2)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from f1common.clock import TTInterval
from f1common.errors import Code, F1Error
from spanstore.mvcc.timestamps import TimestampOracle, WaitForCeiling

SKEW = 1000
NOW = TTInterval(990, 1010)


def commit(oracle: TimestampOracle, now: TTInterval = NOW, **options: int | None) -> int | WaitForCeiling:
    arguments: dict[str, int | None] = {"above": 0, "ceiling": 10_000, "max_skew_us": SKEW, **options}
    return oracle.commit_ts(now, **arguments)  # type: ignore[arg-type]


def test_a_commit_is_at_now_latest_and_above_everything_given_out() -> None:
    oracle = TimestampOracle()
    assert commit(oracle) == 1010
    assert commit(oracle) == 1011
    assert commit(oracle, above=1500) == 1501
    assert oracle.read_ts(NOW, 10_000) == 1501
    assert commit(oracle) == 1502
    oracle.promise(2000)
    assert commit(oracle) == 2001
    oracle.promise(5)
    assert oracle.last_ts == 2001


def test_a_new_leader_starts_above_the_ceiling_it_learned() -> None:
    oracle = TimestampOracle()
    oracle.raise_floor(7000)
    assert commit(oracle) == 7001


def test_above_the_ceiling_nothing_is_given_out() -> None:
    oracle = TimestampOracle()
    assert commit(oracle, ceiling=1009) == WaitForCeiling(1010)
    assert oracle.last_ts == 0
    assert commit(oracle, ceiling=1010) == 1010
    assert commit(oracle, ceiling=1010) == WaitForCeiling(1011)


@pytest.mark.parametrize(("fence", "value"), [("deadline", 1009), ("not_before", 1011)])
def test_a_missed_fence_is_definite(fence: str, value: int) -> None:
    oracle = TimestampOracle()
    with pytest.raises(F1Error) as raised:
        commit(oracle, NOW, **{fence: value})
    assert raised.value.code is Code.FENCED
    assert raised.value.details["fence"] == fence
    assert not raised.value.ambiguous
    assert oracle.last_ts == 0
    assert commit(oracle, NOW, **{fence: 1010}) == 1010


def test_a_deadline_is_judged_by_the_timestamp_not_by_the_clock() -> None:
    oracle = TimestampOracle()
    oracle.promise(1500)
    with pytest.raises(F1Error) as raised:
        commit(oracle, deadline=1400)
    assert raised.value.code is Code.FENCED


def test_timestamps_from_too_far_ahead_are_refused() -> None:
    oracle = TimestampOracle()
    for call in (
        lambda: commit(oracle, above=NOW.latest + SKEW + 1),
        lambda: oracle.observe_read(NOW.latest + SKEW + 1, NOW, 10_000, SKEW),
    ):
        with pytest.raises(F1Error) as raised:
            call()
        assert raised.value.code is Code.CLOCK_SKEW
    assert oracle.last_ts == 0
    assert commit(oracle, above=NOW.latest + SKEW) == NOW.latest + SKEW + 1


def test_a_strong_read_sees_what_was_given_out_anywhere_and_promises_nothing_above_the_ceiling() -> None:
    oracle = TimestampOracle()
    assert oracle.read_ts(NOW, 500) == 1010
    assert oracle.last_ts == 0
    assert commit(oracle, ceiling=2000) == 1010
    assert oracle.read_ts(NOW, 10_000) == 1010
    oracle.promise(1300)
    assert oracle.read_ts(NOW, 10_000) == 1300
    assert oracle.read_ts(TTInterval(1390, 1400), 10_000) == 1400
    assert commit(oracle) == 1401


def test_no_commit_at_or_below_a_read_that_was_observed() -> None:
    oracle = TimestampOracle()
    oracle.observe_read(1500, NOW, 10_000, SKEW)
    assert commit(oracle) == 1501
    oracle.observe_read(1800, NOW, 1700, SKEW)
    assert commit(oracle) == 1502


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["commit", "read", "observe", "promise"]),
            st.integers(0, 3000),
            st.integers(0, 2000),
            st.integers(0, 4000),
        )
    )
)
def test_whatever_is_promised_stays_true(steps: list[tuple[str, int, int, int]]) -> None:
    """No commit is at or below anything given out before, nor above the ceiling, nor below now.latest."""
    oracle = TimestampOracle()
    promised = 0
    for kind, latest, argument, ceiling in steps:
        now = TTInterval(latest - 10, latest)
        match kind:
            case "commit":
                try:
                    ts = commit(oracle, now, above=argument, ceiling=ceiling)
                except F1Error:
                    assert argument > latest + SKEW
                    continue
                if isinstance(ts, WaitForCeiling):
                    assert ts.needed > ceiling
                    continue
                assert promised < ts <= ceiling
                assert ts > argument
                assert ts >= latest
                promised = ts
            case "read":
                ts = oracle.read_ts(now, ceiling)
                assert ts >= max(promised, latest)
                if ts <= ceiling:
                    promised = ts
            case "observe" if argument <= latest + SKEW:
                oracle.observe_read(argument, now, ceiling, SKEW)
                if argument <= ceiling:
                    promised = max(promised, argument)
            case "observe":
                with pytest.raises(F1Error):
                    oracle.observe_read(argument, now, ceiling, SKEW)
            case _:
                oracle.promise(argument)
                promised = max(promised, argument)
