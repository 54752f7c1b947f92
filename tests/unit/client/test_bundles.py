"""Commits that are asked for at about the same time travel together, and are answered as if each had come alone."""

import asyncio
from collections.abc import Callable, Sequence

from f1common.errors import Code, F1Error
from f1common.pb import spanstore_pb2 as pb
from spanstore.client import CommitId, ExpectAbsent, NoNewer, SpanClient, Write
from tests.unit.client.fakes import DONE, LOST, Answer, Tier, body, committed, error, outcome, talk

KEYS = [b"a%02d" % n for n in range(40)]


ALL = pb.Response(bundle=pb.BundleReply(ts=30))


class Leader:
    """Answers commits and bundles at once, bundles as a test says."""

    def __init__(self, bundle: Callable[[pb.Bundle], Answer] | Answer = ALL) -> None:
        self.bundle = bundle
        self.commit: Answer = committed(20)

    def __call__(self, server: str, request: pb.Request) -> Answer:
        match body(request):
            case "commit":
                return self.commit
            case "bundle":
                return self.bundle(request.bundle) if callable(self.bundle) else self.bundle
            case kind:
                return DONE.get(kind)


async def one(client: SpanClient, key: bytes, timeout_s: float = 10.0) -> int | F1Error:
    try:
        return await client.commit([Write(key, b"1")], [ExpectAbsent(key)], timeout_s=timeout_s)
    except F1Error as error:
        return error


async def all_of(client: SpanClient, keys: Sequence[bytes]) -> list[int | F1Error]:
    await client.range_map()
    return list(await asyncio.gather(*(one(client, key) for key in keys)))


def keys_of(tier: Tier) -> list[list[bytes]]:
    return [[w.writes[0].key for w in bundle.works] for bundle in tier.of("bundle")]


def test_one_alone_goes_as_it_always_did() -> None:
    async def main(client: SpanClient, tier: Tier) -> None:
        assert await all_of(client, KEYS[:1]) == [20]
        assert tier.kinds() == ["commit"]

    talk(Leader(), main)


def test_those_of_one_turn_go_together_each_with_its_own_name_and_tests() -> None:
    async def main(client: SpanClient, tier: Tier) -> None:
        assert await all_of(client, KEYS[:3]) == [30, 30, 30]
        assert tier.kinds() == ["bundle"]
        (bundle,) = tier.of("bundle", 1)
        assert [w.writes[0].key for w in bundle.works] == [w.txn.anchor for w in bundle.works] == KEYS[:3]
        assert [w.preconditions[0].absent for w in bundle.works] == KEYS[:3]
        assert len({w.txn.unique for w in bundle.works}) == 3

    talk(Leader(), main)


def test_each_group_has_its_own() -> None:
    async def main(client: SpanClient, tier: Tier) -> None:
        assert await all_of(client, [b"a", b"n", b"b", b"o", b"u"]) == [30, 30, 30, 30, 20]
        assert sorted(tier.kinds()) == ["bundle", "bundle", "commit"]
        assert [len(tier.of("bundle", group)) for group in (1, 2)] == [1, 1]

    talk(Leader(), main)


def test_who_comes_while_others_are_under_way_waits_for_them_and_not_for_long() -> None:
    async def main(client: SpanClient, tier: Tier) -> None:
        await client.range_map()
        tier.script = lambda server, request: LOST
        stuck = asyncio.create_task(one(client, KEYS[0]))
        await asyncio.sleep(0.001)
        late = [asyncio.create_task(one(client, key)) for key in KEYS[2:5]]
        await asyncio.sleep(0.01)
        assert tier.kinds() == ["commit"]
        tier.script = Leader()
        await asyncio.sleep(0.2)
        assert [task.result() for task in late] == [30, 30, 30]
        stuck.cancel()
        await asyncio.wait([stuck])

    talk(Leader(), main)


def test_what_waits_for_a_lock_is_in_the_way_for_a_moment_only() -> None:
    leader = Leader()

    async def main(client: SpanClient, tier: Tier) -> None:
        await client.range_map()
        tier.script = lambda server, request: LOST
        stuck = asyncio.create_task(one(client, KEYS[0]))
        await asyncio.sleep(0.1)
        tier.script = leader
        loop = asyncio.get_running_loop()
        waits = []
        for key in KEYS[1:20]:
            began = loop.time()
            assert await one(client, key) == 20
            waits.append(loop.time() - began)
        assert max(waits) < 0.005 and not stuck.done()
        stuck.cancel()
        await asyncio.wait([stuck])

    talk(leader, main)


def test_what_is_left_out_is_sent_alone_under_the_same_name() -> None:
    def but_the_second(bundle: pb.Bundle) -> Answer:
        return pb.Response(bundle=pb.BundleReply(ts=30, left_out=[1]))

    async def main(client: SpanClient, tier: Tier) -> None:
        assert await all_of(client, KEYS[:3]) == [30, 20, 30]
        (bundle,), (alone,) = tier.of("bundle"), tier.of("commit")
        assert alone.work == bundle.works[1]

    talk(Leader(but_the_second), main)


def test_who_is_left_out_hears_why() -> None:
    leader = Leader(pb.Response(bundle=pb.BundleReply(left_out=[0, 1])))
    leader.commit = error(Code.ALREADY_EXISTS)

    async def main(client: SpanClient, tier: Tier) -> None:
        codes = [found.code for found in await all_of(client, KEYS[:2]) if isinstance(found, F1Error)]
        assert codes == [Code.ALREADY_EXISTS] * 2 and tier.kinds() == ["bundle", "commit", "commit"]

    talk(leader, main)


def test_after_a_bundle_without_an_answer_nobody_believes_a_refusal() -> None:
    leader = Leader(LOST)
    leader.commit = error(Code.ABORTED)
    answers = {"outcome": outcome(pb.COMMITTED, 25)}

    def script(server: str, request: pb.Request) -> Answer:
        return answers.get(body(request)) or leader(server, request)

    async def main(client: SpanClient, tier: Tier) -> None:
        # The first copies had committed, and their answers were lost.
        assert await all_of(client, KEYS[:2]) == [25, 25]
        assert len(tier.of("outcome")) == 2

    talk(script, main)


def test_an_older_leader_gets_them_one_by_one_and_is_not_asked_again() -> None:
    for refusal in (error(Code.INVALID_ARGUMENT), error(Code.FAILED_PRECONDITION)):

        async def main(client: SpanClient, tier: Tier) -> None:
            for _ in range(2):
                assert await all_of(client, KEYS[:3]) == [20, 20, 20]
            assert tier.kinds() == ["bundle"] + ["commit"] * 6

        talk(Leader(refusal), main)


def test_a_member_that_has_not_said_its_version_yet_is_no_older_one() -> None:
    refusal = F1Error(Code.FAILED_PRECONDITION, "c has not said its version", retryable=True)

    async def main(client: SpanClient, tier: Tier) -> None:
        for _ in range(2):
            assert await all_of(client, KEYS[:2]) == [20, 20]
        assert tier.kinds() == ["bundle", "commit", "commit"] * 2

    talk(Leader(refusal), main)


def test_large_and_odd_ones_go_alone() -> None:
    async def main(client: SpanClient, tier: Tier) -> None:
        ranges_map = await client.range_map()
        assert ranges_map.group_of(b"a") != ranges_map.group_of(b"n")
        odd = [
            client.commit([Write(b"a", bytes(20_000))]),
            client.commit([Write(b"b%d" % n, b"") for n in range(20)]),
            client.commit([Write(b"c", b"")], [NoNewer(5)]),
            client.commit([Write(b"d", b"")], commit_id=CommitId(b"d", b"someone", 7)),
            client.commit([Write(b"e", b"")], timeout_s=1.0),
        ]
        assert list(await asyncio.gather(*odd)) == [20] * 5
        assert tier.kinds() == ["commit"] * 5

    talk(Leader(), main)


def test_no_more_than_so_many_go_at_once() -> None:
    async def main(client: SpanClient, tier: Tier) -> None:
        many = [b"b%03d" % n for n in range(150)]
        assert await all_of(client, many) == [30] * 150
        sizes = [len(keys) for keys in keys_of(tier)]
        assert max(sizes) == 64 and sum(sizes) == 150

    talk(Leader(), main)


def test_a_client_that_closes_leaves_nobody_waiting() -> None:
    async def main(client: SpanClient, tier: Tier) -> None:
        for turns in range(6):
            await client.range_map()
            waiting = [asyncio.create_task(one(client, key)) for key in KEYS[:3]]
            for _ in range(turns):
                await asyncio.sleep(0)
            await client._bundles.close()
            await asyncio.wait(waiting, timeout=20)
            assert all(task.done() for task in waiting)

    talk(Leader(), main)


def test_whoever_gives_up_is_in_nobodys_way() -> None:
    async def main(client: SpanClient, tier: Tier) -> None:
        await client.range_map()
        for _ in range(4):
            # Before it was sent, in the moment in which it may be, and while it is under way.
            for turns in range(4):
                task = asyncio.create_task(one(client, KEYS[0]))
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
        await asyncio.sleep(1)
        tier.log.clear()
        assert await all_of(client, KEYS[:2]) == [30, 30]
        assert all(lane.flight is None and not lane.waiting for lane in client._bundles._lanes.values())
        assert tier.kinds() == ["bundle"]

    talk(Leader(), main)
