"""When leadership goes where it is wanted, and how often that is tried."""

from itertools import pairwise
from typing import Any, cast

from spanstore.group.leadership import PreferredLeader
from spanstore.paxos.configuration import Configuration
from spanstore.paxos.replica import Replica

S = 1_000_000


class Leader:
    """A leader at a, whose voters b and c hold the log; c is silent."""

    me = "a"
    configuration = Configuration(0, ("a", "b", "c"))
    chosen_index = 7

    def match(self, member: str) -> int:
        return 7

    def heard(self, member: str) -> int:
        return 0 if member == "c" else 1 << 60


def heir(wish: PreferredLeader, at_us: int) -> str | None:
    return wish.heir(cast(Replica, cast(Any, Leader())), at_us, S)


def test_leadership_goes_to_a_wanted_server_that_is_fit() -> None:
    assert heir(PreferredLeader(frozenset("b")), 5 * S) == "b"
    assert heir(PreferredLeader(frozenset("c")), 5 * S) is None, "it is silent"
    assert heir(PreferredLeader(frozenset("ab")), 5 * S) is None, "it is where it should be"
    assert heir(PreferredLeader(), 5 * S) is None


def test_what_fails_is_tried_ever_less_often_and_soon_again_after_a_quiet_time() -> None:
    wish = PreferredLeader(frozenset("b"))
    wish.settled(0)
    tried = [at for at in range(0, 60 * S, S // 2) if heir(wish, at)]
    gaps = [later - earlier for earlier, later in pairwise(tried)]
    assert tried[0] == S and gaps == sorted(gaps) and gaps[-1] > 4 * gaps[0]
    wish.settled(600 * S)
    assert heir(wish, 601 * S) == "b"
