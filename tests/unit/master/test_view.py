"""What an f1server makes of the master's lists, and of slaves that do not answer."""

from f1server.dist.view import AVOID_US, PoolView, Slave, SlaveState, SlaveView

ONE = Slave("slave-1", "h:1", 11)
TWO = Slave("slave-2", "h:2", 22)


def live(slave: Slave, since: tuple[int, int], state: SlaveState = SlaveState.LIVE) -> SlaveView:
    return SlaveView(slave, state, since)


def view_of(*views: SlaveView, version: tuple[int, int] = (1, 5)) -> PoolView:
    view = PoolView()
    assert view.take(version, False, views, 0)
    return view


def test_only_live_slaves_are_used() -> None:
    view = view_of(live(TWO, (1, 1)), live(ONE, (1, 2)), live(Slave("slave-3", "h:3", 33), (1, 3), SlaveState.SUSPECT))
    assert view.live(0) == (ONE, TWO)


def test_an_older_list_is_not_taken() -> None:
    view = view_of(live(ONE, (1, 1)))
    assert not view.take((1, 4), False, (), 1)
    assert view.live(1) == (ONE,)
    assert view.take((1, 6), False, (), 1)
    assert view.live(1) == ()


def test_a_settling_master_adds_and_corrects_but_takes_nobody_away() -> None:
    view = view_of(live(ONE, (1, 1)), live(TWO, (1, 2)))
    assert view.take((2, 0), True, (), 10)
    assert view.live(10) == (ONE, TWO)
    again = Slave("slave-1", "h:9", 12)
    assert view.take((2, 1), True, [live(again, (2, 1))], 11)
    assert view.live(11) == (again, TWO)
    assert view.take((2, 2), True, [live(again, (2, 2), SlaveState.SUSPECT)], 12)
    assert view.live(12) == (TWO,)
    assert view.take((2, 3), True, [], 13), "the settling master itself has forgotten the slave that it knew"
    assert view.live(13) == (TWO,)
    assert view.take((2, 4), False, [], 14)
    assert view.live(14) == ()


def test_an_earlier_master_is_believed_only_once_the_later_one_is_silent() -> None:
    view = PoolView()
    view.take((9, 3), False, [live(ONE, (9, 1))], 0)
    assert not view.take((8, 50), False, [], 4_999_999)
    assert view.take((8, 50), False, [], 5_000_000)


def test_a_slave_that_does_not_answer_is_avoided_for_a_while() -> None:
    view = view_of(live(ONE, (1, 1)), live(TWO, (1, 2)))
    assert view.suspect("slave-1", 11, "no answer", 100)
    assert view.live(100) == (TWO,)
    assert [v.avoided for v in view.all(100)] == ["no answer", ""]
    assert not view.suspect("slave-1", 11, "no answer", 200), "known already; avoided for longer"
    assert view.live(100 + AVOID_US) == (TWO,)
    assert view.live(200 + AVOID_US) == (ONE, TWO)


def test_a_list_that_says_the_same_does_not_end_the_suspicion_but_a_return_to_life_does() -> None:
    view = view_of(live(ONE, (1, 1)))
    view.suspect("slave-1", 11, "no answer", 0)
    view.take((1, 6), False, [live(ONE, (1, 1))], 1)
    assert view.live(1) == ()
    view.take((1, 7), False, [live(ONE, (1, 7), SlaveState.SUSPECT)], 2)
    view.take((1, 8), False, [live(ONE, (1, 8))], 3)
    assert view.live(3) == (ONE,)


def test_another_run_of_the_slave_is_not_suspected() -> None:
    view = view_of(live(ONE, (1, 1)))
    assert not view.suspect("slave-1", 10, "an earlier run", 0)
    assert not view.suspect("slave-9", 1, "unknown", 0)
    assert view.live(0) == (ONE,)
    view.suspect("slave-1", 11, "no answer", 0)
    again = Slave("slave-1", "h:1", 12)
    view.take((1, 6), False, [live(again, (1, 6))], 1)
    assert view.live(1) == (again,)
