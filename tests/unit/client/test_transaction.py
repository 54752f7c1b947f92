"""Reads over pages and groups, own writes laid over them, and the one retry loop."""

import asyncio
import random

import pytest

from f1common.errors import Code, F1Error
from f1common.pb import spanstore_pb2 as pb
from spanstore.client import ExpectAbsent, KeyRange, SpanClient, Transaction, Write
from spanstore.placement.range_map import KEY_MAX, Range, RangeMap
from tests.unit.client.fakes import DONE, LOST, Answer, Tier, body, committed, error, outcome, prepared, talk

KEYS = [bytes((letter, digit)) for letter in b"almnstuz" for digit in b"12345"]


class Rows:
    """Answers reads from a dictionary, a page at a time, as the groups do."""

    def __init__(self, rows: dict[bytes, bytes], page: int = 3) -> None:
        self.rows = rows
        self.page = page
        self.term = {1: 5, 2: 6, 3: 7}
        self.reads: list[tuple[int, int]] = []

    def __call__(self, server: str, request: pb.Request) -> Answer:
        kind = body(request)
        match kind:
            case "read":
                self.reads.append((request.group, request.read.timestamp))
                return pb.Response(read=self.answer(request.read, request.read.timestamp or 1_000 + request.group))
            case "lock_read":
                reply = self.answer(request.lock_read, 3_000)
                reply.term = self.term[request.group]
                return pb.Response(read=reply)
            case "prepare":
                return prepared(10)
            case "commit":
                return committed(20)
            case _:
                return DONE.get(kind)

    def answer(self, wanted: "pb.Read | pb.LockRead", timestamp: int) -> pb.ReadReply:
        reply = pb.ReadReply(timestamp=timestamp)
        for key in wanted.keys:
            value = self.rows.get(key)
            reply.versions.append(pb.Version() if value is None else pb.Version(exists=True, ts=1, value=value))
        for r in wanted.ranges:
            found = sorted((k for k in self.rows if r.start <= k < r.end), reverse=r.reverse)
            limit = min(r.limit or self.page, self.page)
            rows = found[:limit]
            row_set = reply.ranges.add(rows=[pb.Row(key=k, ts=1, value=self.rows[k]) for k in rows])
            if len(found) > limit:
                row_set.more = True
                row_set.resume = rows[-1] if r.reverse else found[limit]
        return reply


def some_rows(rng: random.Random) -> dict[bytes, bytes]:
    return {key: b"%d" % n for n, key in enumerate(KEYS) if rng.random() < 0.6}


def some_ranges(rng: random.Random) -> list[KeyRange]:
    ranges = []
    for _ in range(rng.randrange(1, 4)):
        start, end = sorted(rng.sample([b"", *KEYS, b"\xff"], 2))
        ranges.append(KeyRange(start, end, rng.choice((0, 1, 2, 5, 50)), rng.random() < 0.5))
    return ranges


def expected(rows: dict[bytes, bytes], wanted: KeyRange) -> list[tuple[bytes, bytes]]:
    keys = sorted((k for k in rows if wanted.start <= k < wanted.end), reverse=wanted.reverse)
    return [(key, rows[key]) for key in (keys[: wanted.limit] if wanted.limit else keys)]


@pytest.mark.parametrize("page", [1, 2, 3, 100])
def test_snapshot_reads_over_groups_and_pages_are_as_if_read_at_once(page: int) -> None:
    rng = random.Random(page)
    rows = some_rows(rng)

    async def main(client: SpanClient, tier: Tier) -> None:
        for _ in range(40):
            keys = rng.sample(KEYS, rng.randrange(5))
            ranges = some_ranges(rng)
            server.reads.clear()
            result = await client.read(keys, ranges)
            assert result.values() == [rows.get(key) for key in keys]
            for wanted, found in zip(ranges, result.ranges, strict=True):
                assert [(r.key, r.value) for r in found] == expected(rows, wanted), wanted
            # One timestamp for all of it; only the first question to a single group may leave the choice to the group.
            asked = {ts for _, ts in server.reads}
            assert asked - {0} <= {result.timestamp}
            assert len({group for group, ts in server.reads if ts == 0}) <= 1

    server = Rows(rows, page)
    talk(server, main)


@pytest.mark.parametrize("page", [1, 3, 100])
def test_transaction_sees_its_own_writes_in_every_read(page: int) -> None:
    rng = random.Random(page)
    rows = some_rows(rng)

    async def main(client: SpanClient, tier: Tier) -> None:
        for _ in range(25):
            tx = client.transaction()
            mine = dict(rows)
            for _ in range(6):
                if rng.random() < 0.7:
                    key = rng.choice(KEYS)
                    value = rng.choice((None, b"mine%d" % rng.randrange(100)))
                    tx.write(key, value)
                    mine.pop(key, None)
                    if value is not None:
                        mine[key] = value
                keys = rng.sample(KEYS, 3)
                ranges = some_ranges(rng)
                result = await tx.read(keys, ranges)
                assert result.values() == [mine.get(key) for key in keys]
                for wanted, found in zip(ranges, result.ranges, strict=True):
                    assert [(r.key, r.value) for r in found] == expected(mine, wanted), wanted
            await tx.rollback()

    talk(Rows(rows, page), main)


def test_range_behind_own_deletes_is_filled_up_to_its_limit() -> None:
    async def main(client: SpanClient, tier: Tier) -> None:
        tx = client.transaction()
        tx.write(b"a1", None)
        for reverse, keys in ((False, [b"a2", b"a3"]), (True, [b"a4", b"a3"])):
            result = await tx.read(ranges=[KeyRange(b"a", b"b", 2, reverse)])
            assert [row.key for row in result.ranges[0]] == keys

    talk(Rows({b"a%d" % n: b"v" for n in range(1, 5)}), main)


def test_strong_read_of_several_groups_is_at_the_clients_latest_and_never_below_what_it_saw() -> None:
    async def main(client: SpanClient, tier: Tier) -> None:
        assert (await client.read([b"a"])).timestamp == 1_001
        first = await client.read([b"a", b"n"])
        assert first.timestamp >= tier.world.true_ts() - 1_000_000
        client.saw(1 << 60)
        assert (await client.read([b"a", b"n"])).timestamp == 1 << 60
        assert (await client.read([b"a", b"n"], timestamp=7)).timestamp == 7
        assert (await client.read([b"a"])).timestamp == 1 << 60

    talk(Rows({}), main)


@pytest.mark.parametrize("start", [b"a", b"b"])
def test_range_that_is_none_is_refused(start: bytes) -> None:
    async def main(client: SpanClient, tier: Tier) -> None:
        for read in (client.read, client.transaction().read):
            with pytest.raises(F1Error) as caught:
                await read(ranges=[KeyRange(start, b"a")])
            assert caught.value.code is Code.INVALID_ARGUMENT

    talk(Rows({}), main)


def test_commit_claims_every_lock_under_the_term_that_gave_it() -> None:
    async def main(client: SpanClient, tier: Tier) -> None:
        tx = client.transaction()
        await tx.read([b"a"], [KeyRange(b"b", b"c")])
        await tx.read([b"n"], exclusive=True)
        tx.write(b"a", b"1")
        tx.expect(ExpectAbsent(b"u"))
        assert await tx.commit() == 20
        (at_one,) = tier.of("commit", 1)
        assert at_one.work.term == 5
        assert [(k.start, k.end if k.HasField("end") else None) for k in at_one.work.held] == [
            (b"a", None),
            (b"b", b"c"),
        ]
        (at_two,) = tier.of("prepare", 2)
        assert at_two.work.term == 6 and [(k.start, k.mode) for k in at_two.work.held] == [(b"n", pb.EXCLUSIVE)]
        (at_three,) = tier.of("prepare", 3)
        assert at_three.work.preconditions[0].absent == b"u"
        names = {r.lock_read.txn.unique for r in tier.requests if body(r) == "lock_read"}
        assert names == {at_one.work.txn.unique} == {at_two.work.txn.unique}

    talk(Rows({}), main)


def test_leader_that_changes_between_two_reads_ends_the_transaction() -> None:
    async def main(client: SpanClient, tier: Tier) -> None:
        tx = client.transaction()
        await tx.read([b"a"])
        server.term[1] = 9
        with pytest.raises(F1Error) as caught:
            await tx.read([b"b"])
        assert caught.value.code is Code.ABORTED and caught.value.retryable
        assert [r.lock_read.term for r in tier.requests if body(r) == "lock_read"] == [0, 5]

    server = Rows({})
    talk(server, main)


def test_transaction_that_only_read_once_commits_without_a_round_and_gives_up_its_locks() -> None:
    async def main(client: SpanClient, tier: Tier) -> None:
        tx = client.transaction()
        await tx.read([b"a"])
        await tx.commit()
        await tx.rollback()
        await tier.world.sleep_us(100_000)
        assert tier.kinds() == ["lock_read", "release"]

    talk(Rows({}), main)


@pytest.mark.parametrize("keys", [[[b"a"], [b"b"]], [[b"a", b"n"]]])
def test_transaction_that_read_at_several_moments_verifies_its_locks(keys: list[list[bytes]]) -> None:
    async def main(client: SpanClient, tier: Tier) -> None:
        tx = client.transaction()
        for some in keys:
            await tx.read(some)
        await tx.commit()
        assert len(tier.of("commit", 1)) == 1 and not tier.of("commit")[0].work.writes

    talk(Rows({}), main)


def test_lost_answer_of_a_locked_read_ends_the_transaction_without_doubt() -> None:
    async def main(client: SpanClient, tier: Tier) -> None:
        with pytest.raises(F1Error) as caught:
            await client.transaction().read([b"a"], timeout_s=3.0)
        assert caught.value.code is Code.ABORTED and not caught.value.ambiguous

    talk(lambda server, request: LOST, main)


def test_last_write_of_a_key_wins_and_placeholders_are_kept_apart() -> None:
    async def main(client: SpanClient, tier: Tier) -> None:
        tx = client.transaction()
        tx.write(b"a", b"1")
        tx.write(b"a", b"2")
        for n in range(2):
            tx.write(b"h" + bytes(8), b"%d" % n, key_offset=1)
        await tx.commit()
        (sent,) = tier.of("commit")
        assert [(w.key, w.value) for w in sent.work.writes] == [
            (b"a", b"2"),
            (b"h" + bytes(8), b"0"),
            (b"h" + bytes(8), b"1"),
        ]
        assert [max(w.key_offset, 0) for w in sent.work.writes] == [0, 1, 1]

    talk(Rows({}), main)


def test_run_tries_again_with_the_age_of_the_first_try() -> None:
    refusals = [error(Code.ABORTED)] * 3
    rows = Rows({b"a": b"1"})

    def script(server: str, request: pb.Request) -> Answer:
        if body(request) == "commit" and refusals:
            return refusals.pop()
        return rows(server, request)

    async def main(client: SpanClient, tier: Tier) -> None:
        tries = 0

        async def work(tx: Transaction) -> int:
            nonlocal tries
            tries += 1
            await tx.read([b"a"], exclusive=True)
            tx.write(b"a", b"2")
            return tries

        assert await client.run(work) == 4
        ages = {r.lock_read.priority_ts for r in tier.requests if body(r) == "lock_read"}
        names = {r.lock_read.txn.unique for r in tier.requests if body(r) == "lock_read"}
        assert len(ages) == 1 and len(names) == 4
        assert {c.work.priority_ts for c in tier.of("commit")} == ages

    talk(script, main)


@pytest.mark.parametrize(
    ("answer", "code", "tries"),
    [
        (error(Code.ALREADY_EXISTS), Code.ALREADY_EXISTS, 1),
        (error(Code.FENCED), Code.FENCED, 1),
        (error(Code.ABORTED), Code.ABORTED, 3),
        (LOST, Code.UNKNOWN_OUTCOME, 1),
    ],
)
def test_run_gives_up_on_what_a_retry_cannot_change(answer: Answer, code: Code, tries: int) -> None:
    def script(server: str, request: pb.Request) -> Answer:
        return answer if body(request) in ("commit", "outcome") else DONE.get(body(request))

    async def main(client: SpanClient, tier: Tier) -> None:
        done = 0

        async def work(tx: Transaction) -> None:
            nonlocal done
            done += 1
            tx.write(b"a", b"2")

        with pytest.raises(F1Error) as caught:
            await client.run(work, attempts=3)
        assert caught.value.code is code and done == tries

    talk(script, main)


def test_run_gives_up_the_locks_of_a_function_that_fails() -> None:
    async def main(client: SpanClient, tier: Tier) -> None:
        async def work(tx: Transaction) -> None:
            await tx.read([b"a", b"n"])
            raise ValueError("not ours")

        with pytest.raises(ValueError, match="not ours"):
            await client.run(work)
        await tier.world.sleep_us(100_000)
        assert sorted(r.group for r in tier.requests if body(r) == "release") == [1, 2]
        assert not tier.of("commit")

    talk(Rows({}), main)


def test_closing_client_lets_its_decisions_arrive() -> None:
    async def main(client: SpanClient, tier: Tier) -> list[bool]:
        await client.commit([Write(b"a", b"1"), Write(b"n", b"2")])
        await client.close()
        await tier.world.sleep_us(100_000)
        return [d.commit for d in tier.of("decide")]

    assert talk(Rows({}), main) == [True]


def test_several_reads_at_once_claim_all_their_locks() -> None:
    async def main(client: SpanClient, tier: Tier) -> None:
        tx = client.transaction()
        await asyncio.gather(*(tx.read([key]) for key in (b"a", b"b", b"c", b"n")))
        tx.write(b"a", b"1")
        await tx.commit()
        assert sorted(k.start for k in tier.of("commit")[0].work.held) == [b"a", b"b", b"c"]
        assert [k.start for k in tier.of("prepare", 2)[0].work.held] == [b"n"]

    talk(Rows({}), main)


def test_wrong_range_in_a_transaction_refreshes_the_map_for_the_next_try() -> None:
    refusals = [error(Code.WRONG_RANGE)]
    rows = Rows({})

    def script(server: str, request: pb.Request) -> Answer:
        return refusals.pop() if refusals else rows(server, request)

    async def main(client: SpanClient, tier: Tier) -> None:
        async def work(tx: Transaction) -> None:
            await tx.read([b"a"])

        await client.run(work)
        assert tier.maps_asked == 2

    talk(script, main)


def test_a_locked_read_waits_for_a_range_that_is_on_its_way() -> None:
    refusals = [error(Code.WRONG_RANGE) for _ in range(3)]
    rows = Rows({b"a": b"1", b"n": b"2"})

    def script(server: str, request: pb.Request) -> Answer:
        moving = request.group == 1 and body(request) == "lock_read"
        return refusals.pop() if moving and refusals else rows(server, request)

    async def main(client: SpanClient, tier: Tier) -> None:
        tx = client.transaction()
        assert (await tx.read([b"a", b"n"])).values() == [b"1", b"2"]
        assert not refusals and len(tier.of("lock_read", 1)) == 4
        tx.write(b"a", b"3")
        assert await tx.commit() == 20
        assert {lock.start for lock in tier.of("prepare", 2)[0].work.held} == {b"n"}

    talk(script, main)


def test_a_group_that_owned_nothing_of_what_was_asked_for_is_no_participant() -> None:
    rows = Rows({})
    moved = RangeMap([Range(b"", b"t", 1), Range(b"t", KEY_MAX, 3)], version=2)

    async def main(client: SpanClient, tier: Tier) -> None:
        def script(server: str, request: pb.Request) -> Answer:
            if request.group == 2:
                tier.map = moved
                return error(Code.WRONG_RANGE, heir="1")
            return rows(server, request)

        tier.script = script
        tx = client.transaction()
        await tx.read([b"n"])
        assert len(tier.of("lock_read", 2)) == 1
        tx.write(b"n", b"1")
        await tx.commit()
        assert tier.of("prepare") == [] and len(tier.of("commit", 1)) == 1

    talk(rows, main)


def test_a_transaction_with_locks_in_a_range_that_moves_is_to_be_run_again() -> None:
    rows = Rows({})
    moving: list[bool] = []

    def script(server: str, request: pb.Request) -> Answer:
        return error(Code.WRONG_RANGE, heir="3") if moving else rows(server, request)

    async def main(client: SpanClient, tier: Tier) -> None:
        tx = client.transaction()
        await tx.read([b"a"])
        moving.append(True)
        with pytest.raises(F1Error) as caught:
            await tx.read([b"b"])
        assert caught.value.code is Code.ABORTED and caught.value.retryable
        assert caught.value.message == "a range that the transaction uses is moving to group 3; run it again"
        assert len(tier.of("lock_read")) == 2

    talk(script, main)


def test_unknown_outcome_names_the_commit_of_the_transaction() -> None:
    def script(server: str, request: pb.Request) -> Answer:
        return outcome(pb.COMMITTED, 9) if body(request) == "outcome" and late else LOST

    late: list[bool] = []

    async def main(client: SpanClient, tier: Tier) -> None:
        tx = client.transaction()
        tx.write(b"a", b"1")
        with pytest.raises(F1Error) as caught:
            await tx.commit(timeout_s=2.0)
        assert caught.value.code is Code.UNKNOWN_OUTCOME and tx.commit_id is not None
        late.append(True)
        assert (await client.outcome(tx.commit_id)).committed is True

    talk(script, main)


def test_safe_time_is_the_least_of_all_groups_and_never_zero() -> None:
    """Zero as the timestamp of a read would mean the newest, another one for each read of a snapshot."""
    known = {1: 50, 2: 70, 3: 0}

    async def main(client: SpanClient, tier: Tier) -> None:
        asked = asyncio.create_task(client.safe_time())
        await tier.world.sleep_us(300_000)
        assert not asked.done()
        known[3] = 60
        assert await asked == 50
        known[2] = 0
        with pytest.raises(F1Error) as caught:
            await client.safe_time(0.5)
        assert caught.value.code is Code.UNAVAILABLE

    talk(lambda server, request: pb.Response(safe_time=pb.SafeTimeReply(safe_ts=known[request.group])), main)


def test_safe_time_counts_groups_that_the_meta_group_tells_of() -> None:
    """A group that was founded since the client read the map may commit below what the others call safe."""
    known = {1: 50, 2: 70, 3: 60, 9: 40}

    def script(server: str, request: pb.Request) -> Answer:
        groups = (1, 2, 3, 9) if request.group == 1 else ()
        return pb.Response(safe_time=pb.SafeTimeReply(safe_ts=known[request.group], groups=groups))

    async def main(client: SpanClient, tier: Tier) -> None:
        await client.range_map()
        asked = asyncio.create_task(client.safe_time())
        await tier.world.sleep_us(500_000)
        assert not asked.done(), "nobody has said where group 9 is"
        tier.leaders[9] = "s2"
        assert await asked == 40
        del tier.leaders[9]
        # A server that is behind does not make the client forget it.
        await client.range_map(refresh=True)
        known[9] = 45
        assert await client.safe_time() == 45

    talk(script, main)


def test_a_group_that_no_server_knows_makes_no_timestamp_safe() -> None:
    def script(server: str, request: pb.Request) -> Answer:
        return pb.Response(safe_time=pb.SafeTimeReply(safe_ts=50, groups=(1, 2, 3, 9)))

    async def main(client: SpanClient, tier: Tier) -> None:
        with pytest.raises(F1Error, match="where group 9 is") as caught:
            await client.safe_time(0.5)
        assert (caught.value.code, caught.value.retryable) == (Code.UNAVAILABLE, True)

    talk(script, main)
