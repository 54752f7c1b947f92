"""Back-off and the end of patience."""

from f1deploy.restart import RestartPolicy, Restarts

POLICY = RestartPolicy(first_delay_us=100, max_delay_us=500, steady_us=1_000, max_quick_exits=4)


def delays(*lives_us: int) -> list[int | None]:
    restarts, result = Restarts(), []
    for lived in lives_us:
        restarts, delay = restarts.after_exit(lived, POLICY)
        result.append(delay)
    return result


def test_delays_double_up_to_a_limit_and_then_it_is_given_up() -> None:
    assert delays(1, 1, 1, 1, 1) == [100, 200, 400, 500, None]


def test_a_long_life_begins_anew() -> None:
    assert delays(1, 1, 1, 1_000, 1, 999) == [100, 200, 400, 100, 200, 400]


def test_a_process_that_lives_long_is_restarted_for_ever() -> None:
    assert delays(*[5_000] * 50) == [100] * 50


def test_restarts_are_counted() -> None:
    restarts = Restarts(total=7)
    for _ in range(3):
        restarts, _delay = restarts.after_exit(1, POLICY)
    assert restarts == Restarts(3, 10)
