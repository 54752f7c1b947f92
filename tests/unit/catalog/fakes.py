"""A storage client in memory that behaves as the real one does towards the catalog, and can be made to fail."""

import asyncio

from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from spanstore.client import CommitId, Decision, ExpectAbsent, ExpectExists, ExpectVersion, ReadResult, Row, Version


class FakeStorage:
    """Rows with versions; commit timestamps from true time; one serial order.

    ``true_us`` is the true time in microseconds. Several clients share one store: :meth:`client` makes them.
    """

    def __init__(self, true_us, *, delay_s=0.001, skew_us=10_000_000):
        self.true_us = true_us
        self.delay_s = delay_s
        self.skew_us = skew_us
        self.rows: dict[bytes, list[Version]] = {}
        self.last_ts = 0
        self.commits: list[tuple[int, tuple[bytes, ...]]] = []
        self.decided: dict[bytes, int] = {}

    def client(self):
        return FakeClient(self)

    def newest(self, key):
        versions = self.rows.get(key)
        return versions[-1] if versions else None

    def at(self, key, ts):
        return next((v for v in reversed(self.rows.get(key, [])) if v.ts <= ts), None)

    def holds(self, test):
        version = self.newest(test.key)
        live = version is not None and version.value is not None
        match test:
            case ExpectVersion(_, ts):
                return (version.ts if live else 0) == ts
            case ExpectExists():
                return live
            case ExpectAbsent():
                return not live

    def commit(self, writes, preconditions, deadline, above):
        if above > self.true_us() + self.skew_us:
            raise F1Error(Code.CLOCK_SKEW, "above is too far ahead")
        ts = max(self.true_us(), self.last_ts + 1, above + 1)
        if deadline and ts > deadline:
            raise F1Error(Code.FENCED, "past the deadline")
        for test in preconditions:
            if not self.holds(test):
                raise F1Error(Code.ABORTED, f"precondition {test}")
        self.last_ts = ts
        for write in writes:
            self.rows.setdefault(write.key, []).append(Version(ts, write.value))
        self.commits.append((ts, tuple(write.key for write in writes)))
        return ts


class FakeClient:
    """One client; ``down`` makes every call fail, ``lose_answers`` makes that many commits happen without an answer.

    ``away`` are the first elements of keys whose groups cannot be reached: calls that need them fail in the end.
    """

    def __init__(self, store):
        self.store = store
        self.down = False
        self.away: set[int] = set()
        self.lose_answers = 0
        self.lose_requests = 0
        self.number = 0

    async def wait(self):
        await asyncio.sleep(self.store.delay_s)
        if self.down:
            raise F1Error(Code.UNAVAILABLE, "the storage tier cannot be reached")

    async def reach(self, keys, timeout_s):
        if any(key.startswith(tuples.encode((place,))) for key in keys for place in self.away):
            await asyncio.sleep(timeout_s)
            raise F1Error(Code.UNAVAILABLE, "a group has no leader")

    async def read(self, keys=(), ranges=(), *, timestamp=0, timeout_s=10.0):
        await self.wait()
        await self.reach([*keys, *(wanted.start for wanted in ranges)], timeout_s)
        store = self.store
        ts = timestamp or max(store.true_us(), store.last_ts)
        result = ReadResult(ts, [store.at(key, ts) for key in keys], [])
        for wanted in ranges:
            rows = []
            for key in sorted(store.rows):
                version = store.at(key, ts)
                if wanted.start <= key < wanted.end and version is not None and version.value is not None:
                    rows.append(Row(key, version.ts, version.value))
            result.ranges.append(rows[: wanted.limit] if wanted.limit else rows)
        await self.wait()
        return result

    async def commit(self, writes, preconditions=(), *, deadline=0, above=0, commit_id=None, attempt=1, timeout_s=10.0):
        await self.wait()
        await self.reach([*(w.key for w in writes), *(p.key for p in preconditions)], timeout_s)
        if self.lose_requests:
            self.lose_requests -= 1
            raise F1Error(Code.UNKNOWN_OUTCOME, "no answer")
        ts = self.store.commit(writes, preconditions, deadline, above)
        if commit_id is not None:
            self.store.decided[commit_id.unique] = ts
        if self.lose_answers:
            self.lose_answers -= 1
            raise F1Error(Code.UNKNOWN_OUTCOME, "no answer")
        await self.wait()
        return ts

    def new_commit_id(self, anchor):
        self.number += 1
        return CommitId(anchor, f"{id(self)}/{self.number}".encode(), self.store.true_us())

    async def outcome(self, commit_id, attempt=1, *, peek=False, timeout_s=10.0):
        await self.wait()
        ts = self.store.decided.get(commit_id.unique, 0)
        return Decision(ts != 0, ts)
