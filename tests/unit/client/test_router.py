"""Where requests go, when they go again, and what is said in the end."""

import asyncio

import pytest

from f1common.errors import Code, F1Error
from f1common.pb import spanstore_pb2 as pb
from spanstore.client.router import Router, Sent
from tests.unit.client.fakes import LOST, SERVERS, Answer, Script, Tier, committed, error, not_leader, route


def ping() -> pb.Request:
    return pb.Request(commit=pb.Commit())


def test_request_goes_to_the_leader_that_the_map_names() -> None:
    async def main(router: Router, tier: Tier) -> None:
        tier.leaders[2] = "s3"
        response = await router.send(2, ping, 5.0)
        assert response.commit.ts == 7
        assert tier.log == [("s3", 2, "commit")]

    route(lambda server, request: committed(7), main)


def test_hint_is_followed_at_once_and_remembered() -> None:
    async def main(router: Router, tier: Tier) -> None:
        await router.send(1, ping, 5.0)
        await router.send(1, ping, 5.0)
        assert [server for server, _, _ in tier.log] == ["s1", "s2", "s2"]

    route(lambda server, request: committed(7) if server == "s2" else not_leader("s2"), main)


@pytest.mark.parametrize(("leader", "second"), [("s3", "s3"), ("", "s1"), ("somebody", "s1")])
def test_answer_to_a_read_tells_who_leads(leader: str, second: str) -> None:
    """A follower answers late: whoever got such an answer would else go on asking it."""

    async def main(router: Router, tier: Tier) -> None:
        for _ in range(2):
            await router.send(1, lambda: pb.Request(read=pb.Read(timestamp=5)), 5.0)
        assert [server for server, _, _ in tier.log] == ["s1", second]

    route(lambda server, request: pb.Response(read=pb.ReadReply(timestamp=5, leader=leader)), main)


@pytest.mark.parametrize("hint", ["", "s1", "somebody"])
def test_without_a_good_hint_the_others_are_asked(hint: str) -> None:
    """A hint may be missing, name the one who gives it, or name a stranger."""

    async def main(router: Router, tier: Tier) -> None:
        await router.send(1, ping, 5.0)
        assert tier.log[0][0] == "s1" and tier.log[-1][0] == "s3"

    route(lambda server, request: committed(7) if server == "s3" else not_leader(hint), main)


def test_two_servers_that_name_each_other_end_with_the_callers_time() -> None:
    async def main(router: Router, tier: Tier) -> None:
        with pytest.raises(F1Error) as caught:
            await router.send(1, ping, 1.0)
        assert caught.value.code is Code.DEADLINE_EXCEEDED
        assert len(tier.log) < 40  # hints that lead in a circle are not followed without a pause

    others = {"s1": "s2", "s2": "s3", "s3": "s1"}
    route(lambda server, request: not_leader(others[server]), main)


def test_overloaded_and_unavailable_servers_are_asked_again_later() -> None:
    refusals = [error(Code.OVERLOADED), error(Code.UNAVAILABLE), error(Code.OVERLOADED)]

    async def main(router: Router, tier: Tier) -> None:
        sent = Sent()
        assert (await router.send(1, ping, 5.0, sent=sent)).commit.ts == 7
        assert len(tier.log) == 4 and not sent.repeated

    route(lambda server, request: refusals.pop() if refusals else committed(7), main)


@pytest.mark.parametrize(
    "code", [Code.ABORTED, Code.FENCED, Code.ALREADY_EXISTS, Code.INVALID_ARGUMENT, Code.WRONG_RANGE]
)
def test_refusal_for_good_is_told_at_once(code: Code) -> None:
    async def main(router: Router, tier: Tier) -> None:
        with pytest.raises(F1Error) as caught:
            await router.send(1, ping, 5.0)
        assert caught.value.code is code and not caught.value.ambiguous
        assert len(tier.log) == 1

    route(lambda server, request: error(code), main)


def test_lost_answer_is_asked_for_elsewhere_and_counted() -> None:
    async def main(router: Router, tier: Tier) -> None:
        sent = Sent()
        assert (await router.send(1, ping, 10.0, sent=sent)).commit.ts == 7
        assert sent.repeated and sent.unanswered == 1

    def script(server: str, request: pb.Request) -> Answer:
        return LOST if server == "s1" else committed(7)

    route(script, main)


def replaced_by_s2(began_s: list[float], elected_s: float) -> Script:
    """s1 leads and says nothing; the others name it until they elect s2, so long after ``began_s``."""

    def script(server: str, request: pb.Request) -> Answer:
        if server == "s1":
            return LOST
        if asyncio.get_running_loop().time() - began_s[0] < elected_s:
            return not_leader("s1")
        return committed(7) if server == "s2" else not_leader("s2")

    return script


def test_leader_that_is_cut_off_is_not_asked_again_because_its_followers_still_name_it() -> None:
    """They do until another one is elected; a second attempt at the old one would outlast the election."""
    elected_s = 2.5

    began_s = [0.0]

    async def main(router: Router, tier: Tier) -> None:
        loop = asyncio.get_running_loop()
        await router.range_map()
        began_s[0] = loop.time()
        assert (await router.send(1, ping, 10.0)).commit.ts == 7
        assert loop.time() - began_s[0] < elected_s + 1.0
        assert tier.log.count(("s1", 1, "commit")) == 1
        # Whoever comes next does not begin with it, nor does who looks for the map.
        tier.leaders[1] = "s1"
        before_s = loop.time()
        await router.range_map(refresh=True)
        assert (await router.send(1, ping, 10.0)).commit.ts == 7
        assert loop.time() - before_s < 0.5 and tier.log.count(("s1", 1, "commit")) == 1

    route(replaced_by_s2(began_s, elected_s), main)


@pytest.mark.parametrize("elected_s", [1.0, 4.0, 9.0])
def test_leader_whose_machine_is_gone_is_given_up_with_its_connection(elected_s: float) -> None:
    """Nobody says that it is gone: the connection breaks when its keepalive is not answered, and no new one is made."""

    began_s = [0.0]

    async def main(router: Router, tier: Tier) -> None:
        loop = asyncio.get_running_loop()
        await router.range_map()
        with pytest.raises(F1Error):
            await router.send(1, ping, 0.1)  # the connection is made
        tier.world.config.net.keepalive_us = 900_000  # sooner than an attempt is given up
        tier.world.crash("s1", silent=True)
        began_s[0] = loop.time()
        assert (await router.send(1, ping, 20.0)).commit.ts == 7
        assert loop.time() - began_s[0] < max(elected_s, tier.world.config.net.keepalive_us / 1e6) + 0.8

    route(replaced_by_s2(began_s, elected_s), main)


def test_leader_that_takes_long_is_asked_again() -> None:
    """It answers other requests: it is not cut off, and the copy joins what it works on."""

    def script(server: str, request: pb.Request) -> Answer:
        if server != "s1":
            return not_leader("s1")
        if request.WhichOneof("body") == "safe_time":
            return pb.Response(safe_time=pb.SafeTimeReply(safe_ts=1))
        asked.append(server)
        return committed(7) if len(asked) == 2 else LOST

    asked: list[str] = []

    async def main(router: Router, tier: Tier) -> None:
        assert (await router.send(1, ping, 10.0)).commit.ts == 7
        assert asked == ["s1", "s1"]

    route(script, main)


def test_definite_refusal_after_a_lost_answer_tells_of_the_copy_under_way() -> None:
    async def main(router: Router, tier: Tier) -> None:
        sent = Sent()
        with pytest.raises(F1Error) as caught:
            await router.send(1, ping, 10.0, sent=sent)
        assert caught.value.code is Code.ABORTED and sent.repeated

    route(lambda server, request: LOST if server == "s1" else error(Code.ABORTED), main)


def test_silence_of_all_ends_ambiguous() -> None:
    async def main(router: Router, tier: Tier) -> None:
        loop = asyncio.get_running_loop()
        before = loop.time()
        with pytest.raises(F1Error) as caught:
            await router.send(1, ping, 5.0)
        assert caught.value.code is Code.DEADLINE_EXCEEDED and caught.value.ambiguous
        assert 5.0 <= loop.time() - before < 5.1
        assert {server for server, _, _ in tier.log} > {"s1"}

    route(lambda server, request: LOST, main)


def test_caller_who_wants_no_copies_gets_none() -> None:
    async def main(router: Router, tier: Tier) -> None:
        with pytest.raises(F1Error) as caught:
            await router.send(1, ping, 5.0, retry_ambiguous=False)
        assert caught.value.ambiguous
        assert len(tier.log) == 1

    route(lambda server, request: LOST, main)


def test_servers_are_told_how_long_the_caller_waits() -> None:
    async def main(router: Router, tier: Tier) -> None:
        await router.send(1, ping, 9.0)
        first, second = (request.timeout_ms for request in tier.requests)
        # A little less, so that a server can say why it could not before the caller is gone.
        assert 8_500 <= first <= 8_600 and second < first - 1_800

    route(lambda server, request: LOST if server == "s1" else committed(7), main)


def test_dead_server_is_passed_over() -> None:
    async def main(router: Router, tier: Tier) -> None:
        await router.range_map()
        tier.world.crash("s1")
        assert (await router.send(1, ping, 5.0)).commit.ts == 7
        assert {server for server, _, _ in tier.log} <= {"s2", "s3"}

    route(lambda server, request: committed(7), main)


def test_map_comes_from_whoever_is_up_and_is_fetched_once_for_all() -> None:
    async def main(router: Router, tier: Tier) -> None:
        tier.world.crash("s1")
        tier.world.crash("s3")
        maps = await asyncio.gather(*(router.range_map() for _ in range(10)))
        assert len({id(m) for m in maps}) == 1
        assert tier.maps_asked == 1
        await router.range_map()
        assert tier.maps_asked == 1
        await router.range_map(refresh=True)
        assert tier.maps_asked == 2
        assert router.servers().keys() == set(SERVERS)

    route(lambda server, request: LOST, main)


def test_no_map_in_time_says_whom_it_asked() -> None:
    async def main(router: Router, tier: Tier) -> None:
        for name in SERVERS:
            tier.world.crash(name)
        with pytest.raises(F1Error) as caught:
            await router.range_map(2.0)
        assert caught.value.code is Code.UNAVAILABLE
        assert all(f"{name}:7000" in caught.value.message for name in SERVERS)

    route(lambda server, request: LOST, main)


def test_group_that_the_map_does_not_know_is_a_wrong_range() -> None:
    async def main(router: Router, tier: Tier) -> None:
        with pytest.raises(F1Error) as caught:
            await router.send(9, ping, 1.0)
        assert caught.value.code is Code.WRONG_RANGE and caught.value.retryable

    route(lambda server, request: LOST, main)
