"""State transfer: a replica that is empty or too far behind for the log fetches the state of its group from another.

The naive way, and why not
--------------------------
A consistent copy is what one view of the source's disk shows. But a view that is open for as long as a copy takes keeps
the disk from reusing any page meanwhile, and a stream that breaks off begins anew. So only the *records* (owned ranges,
prepared transactions, outcomes and the like: small next to the rows) come from one view, and the rows come in pieces
from as many views as it takes, from any replica that is far enough.

The protocol
------------
1. A leader whose log begins above what a member has offers its state. The receiver asks for the header first and goes
   on only if the source has applied more than what it has itself.
2. It takes the replica out of service: from now on it promises and accepts nothing, like one that is down. A record
   ``installing`` says so on disk; a server that restarts with it does not load the replica but goes on here.
3. The old state is removed, in pieces. The log and what the replica has promised stay as they are.
4. The records arrive, all as of one log entry, the *base*; then the rows in the order of their keys. Each chunk is
   written in one batch with the position. When source or receiver die, the rows go on from there, at any source that
   has applied the base; if the records were not complete, it begins anew. It begins anew also if all sources that
   answer have cut their logs above the base, since the log could not take over from there. Where a chunk takes longer
   than half a minute, smaller ones are asked for, since only whole chunks are kept.
5. The last batch makes the log the one entry at the base, unless it has that entry already: then what lies above stays.
   The applied record says the base, and the replica is loaded as if it had restarted. The leader's log does the rest.

Why the result is right
-----------------------
*Rows.* Let b be the base, v >= b the index as of which some row key was read, and n >= v one that is applied later.
What an entry does to row keys (puts, deletes, deletes of ranges) depends on the entry and on the records before it,
never on rows; and the records are exactly those of b when the replay from b + 1 begins, so each entry does at the
receiver what it did everywhere. If no entry in (b, n] touches the key, v has the value of b, which is that of n. If one
does, the last of them decides alone, whatever was there. So after entry n every key is as everywhere. Only between b
and the newest v are rows ahead of the records. Versions that are too new hide from a read at its timestamp, but rows
that a later entry removed would be missed: so the replica calls no timestamp safe, serves no scan and is no source
before it has applied ``whole_from``, the newest v. A leader serves after it has applied the entry that opens its term,
which follows everything that was applied anywhere when it was elected, v included. Digests, by which replicas are
compared, are the one thing that an entry reads rows for; none is computed below v. A property test replays random
commands over copies made at random indices.

*Consensus.* What this replica has promised (its hard state) is never touched: forgetting it could elect two leaders
under one ballot. Its log stays until the end. Is the entry at the base in it, then all above may be what a quorum
counts on, and stays. Otherwise the log ends below the base, or has another entry there. The base is chosen, for it was
applied; so whatever follows the other entry was never chosen and never will be. A base below what the replica had
applied before, or below the beginning of its log, is refused, since entries that it counted for would be gone.

*Damage.* A chunk has a checksum over its bytes and its place, every row version its own from when it was written. What
does not match is refused and named with the server that it came from, and another source is asked.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import grpc.aio
import msgspec

from f1common.errors import Code, F1Error, InvariantViolation
from f1common.pb import spanstore_pb2 as pb
from f1common.pb import spanstore_pb2_grpc as stubs
from f1common.rpc.channels import ChannelCache
from f1common.rpc.status import error_from_exception
from spanstore.engine.base import Engine, EngineFailed, WriteBatch
from spanstore.group import checkpoint
from spanstore.group.checkpoint import Base, Installing, Part, Stage
from spanstore.group.group import Group
from spanstore.paxos.configuration import server_of
from spanstore.runtime.peers import PROTOCOL_VERSION

_log = logging.getLogger(__name__)

_PERIOD_S = 0.1
_PAUSE_S = 0.5
_SILENCE_S = 30.0
"""How long a source may send nothing."""
_REPORT_BYTES = 64 << 20
_SLOW_BYTES, _SLOWEST_BYTES, _LESS = 64 << 10, 1 << 10, 4
"""What chunks may have where larger ones came too slowly: at first, at the least, and by how much less each time."""


class Host(Protocol):
    """The server whose replicas are installed."""

    name: str
    groups: dict[int, Group]

    absent: set[int]

    async def take_out(self, number: int) -> None:
        """Let a replica take part in nothing any more; requests that wait there are answered UNAVAILABLE."""
        ...

    async def load(self, number: int) -> None:
        """Load a replica from the disk and let it take part."""
        ...


class Addresses(Protocol):
    """Who serves where, as far as is known."""

    def address_of(self, server: str) -> str | None:
        """Return where a server is reached."""
        ...

    def servers_of(self, group: int) -> list[str]:
        """Return the servers that may have a replica of a group."""
        ...


@dataclass(frozen=True, slots=True)
class Progress:
    """A replica that is being installed, for status. ``note`` says why it does not go on."""

    group: int
    source: str
    received_bytes: int
    base_index: int
    note: str


class Transfers:
    """Installs the replicas of one server that need it, a few at a time."""

    def __init__(
        self,
        host: Host,
        engine: Engine,
        channels: ChannelCache,
        addresses: Addresses,
        *,
        cluster_id: str,
        at_once: int,
        on_installed: Callable[[int, int], None] | None = None,
    ) -> None:
        """``on_installed`` is told (group, index) before a replica is loaded. Raises DATA_CORRUPTION."""
        self.host = host
        self.engine = engine
        self.cluster_id = cluster_id
        self._channels = channels
        self._addresses = addresses
        self._at_once = at_once
        self._on_installed = on_installed
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._not_before: dict[int, float] = {}
        self._notes: dict[int, str] = {}
        self._chunk_bytes: dict[int, int] = {}
        self._failure: EngineFailed | None = None
        self.count = 0
        """How many replicas were installed."""
        with engine.snapshot() as reader:
            found = checkpoint.all_installing(reader)
        self._installing = {group: found[group] for group in sorted(found) if group in host.absent}

    # ------------------------------------------------------------------ what the process sees

    async def run(self) -> None:
        """Install what needs it until cancelled. Raises EngineFailed: the replicas of this server have crashed."""
        try:
            while True:
                for group, task in sorted(self._tasks.items()):
                    if task.done():
                        del self._tasks[group]
                        task.result()
                if self._failure is not None:
                    raise self._failure
                self._start_some()
                await asyncio.sleep(_PERIOD_S)
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def status(self) -> list[Progress]:
        """Return the replicas that are being installed."""
        return [
            Progress(group, found.source, found.size, found.base, self._notes.get(group, ""))
            for group, found in sorted(self._installing.items())
        ]

    def _start_some(self) -> None:
        now = asyncio.get_running_loop().time()
        offered = [number for number, group in self.host.groups.items() if group.replica.offered_state is not None]
        wanting = {*self._installing, *offered} - set(self._tasks)
        due = sorted((self._not_before.get(group, 0.0), group) for group in wanting)
        for not_before, group in due[: max(self._at_once - len(self._tasks), 0)]:
            if not_before <= now:
                self._tasks[group] = asyncio.create_task(self._attempt(group), name=f"state of group {group}")

    # ------------------------------------------------------------------ one replica

    async def _attempt(self, group: int) -> None:
        """Bring a replica as far as the sources that there are allow."""
        try:
            if group in self._installing or await self._accept_offer(group):
                await self._install(group)
        except EngineFailed as error:
            self._failure = error  # for run(), which the end of the process may leave no time to look at its tasks
        except F1Error as error:
            if isinstance(error, InvariantViolation):
                raise
            self.note(group, str(error))
        self._not_before[group] = asyncio.get_running_loop().time() + _PAUSE_S

    async def _accept_offer(self, group: int) -> bool:
        """Take the replica out of service if the member that offers its state is ahead."""
        replica = self.host.groups[group].replica
        offer = replica.offered_state
        if offer is None:
            return False
        source = server_of(offer[0])
        try:
            base = await self._probe(source, group)
        except F1Error as error:
            _log.info("group %d: %s offered its state, but does not send it: %s", group, source, error)
            replica.decline_state()
            return False
        present = self.host.groups.get(group)
        if present is None or present.replica is not replica or replica.offered_state is None:
            return False
        had = replica.chosen_index
        if base.index <= had:
            replica.decline_state()
            return False
        with self.engine.snapshot() as reader:
            checkpoint.check_base(reader, group, base, had)
        _log.info("group %d: the log ends at %d, %s has %d: fetching the state", group, had, source, base.index)
        await self.host.take_out(group)
        await self.save(group, Installing(Stage.CLEARING, source, had), WriteBatch())
        return True

    async def _probe(self, source: str, group: int) -> Base:
        stream = Stream(self._call(source, self._request(group, probe=True)), source, group, 0)
        try:
            return checkpoint.decode_base((await stream.next()).payload, group)
        finally:
            stream.close()

    async def _install(self, group: int) -> None:
        """Ask one source after the other; begin anew if none that answers can go on from the base."""
        outgrown = False
        for source in self._sources(group, self._installing[group].source):
            try:
                await Installation(self, group, source).run()
                return
            except Outgrown as error:
                outgrown = True
                self.note(group, str(error))
            except EngineFailed:
                raise
            except F1Error as error:
                if isinstance(error, InvariantViolation):
                    raise
                if error.code is Code.DEADLINE_EXCEEDED:
                    self._ask_for_less(group)
                self.note(group, f"{source}: {error}", damaged=error.code is Code.DATA_CORRUPTION)
        if outgrown:
            before = self._installing[group]
            await self.save(group, Installing(Stage.CLEARING, before.source, before.had), WriteBatch())

    def _ask_for_less(self, group: int) -> None:
        before = self._chunk_bytes.get(group, _SLOW_BYTES * _LESS)
        self._chunk_bytes[group] = max(before // _LESS, _SLOWEST_BYTES)

    def _sources(self, group: int, first: str) -> list[str]:
        return [first, *(name for name in self._addresses.servers_of(group) if name not in (first, self.host.name))]

    # ------------------------------------------------------------------ for one installation

    def call(self, source: str, group: int, installing: Installing) -> Any:
        """Open the stream of what comes next."""
        rows = installing.stage is Stage.ROWS
        return self._call(
            source,
            self._request(group, base_index=installing.base if rows else 0, after=installing.after if rows else b""),
        )

    def _request(self, group: int, **fields: Any) -> pb.StateRequest:
        return pb.StateRequest(
            protocol_version=PROTOCOL_VERSION,
            cluster_id=self.cluster_id,
            receiver=self.host.name,
            group=group,
            max_chunk_bytes=self._chunk_bytes.get(group, 0),
            **fields,
        )

    def _call(self, source: str, request: pb.StateRequest) -> Any:
        address = self._addresses.address_of(source)
        if address is None:
            raise F1Error(Code.UNAVAILABLE, f"the address of {source} is not known here")
        return stubs.SpanServerStub(self._channels.get(address)).FetchState(request)

    def state_of(self, group: int) -> Installing:
        """Return where an installation stands."""
        return self._installing[group]

    async def save(self, group: int, installing: Installing, batch: WriteBatch) -> None:
        """Commit ``batch`` together with where the installation stands then."""
        checkpoint.put_installing(batch, group, installing)
        await self.engine.commit(batch)
        before = self._installing.get(group)
        self._installing[group] = installing
        self._notes.pop(group, None)
        if before is not None and installing.size // _REPORT_BYTES > before.size // _REPORT_BYTES:
            _log.info("group %d: %d MiB of the state have come", group, installing.size >> 20)

    async def installed(self, group: int, index: int) -> None:
        """The replica is complete on disk."""
        installing = self._installing.pop(group)
        self._notes.pop(group, None)
        self._chunk_bytes.pop(group, None)
        self.count += 1
        _log.info("group %d: %d bytes of state as of entry %d are installed", group, installing.size, index)
        if self._on_installed is not None:
            self._on_installed(group, index)
        await self.host.load(group)

    def note(self, group: int, text: str, *, damaged: bool = False) -> None:
        """Say why an installation does not go on: in status always, in the log once."""
        if self._notes.get(group) != text:
            _log.log(logging.ERROR if damaged else logging.WARNING, "group %d: state transfer: %s", group, text)
        self._notes[group] = text


class Outgrown(F1Error):
    """The source has cut its log above the base: nobody could go on from the state that would be installed."""

    def __init__(self, source: str, group: int, base: int, first: int) -> None:
        text = f"{source} has cut the log of group {group} below {first}, the state being installed is as of {base}"
        super().__init__(Code.UNAVAILABLE, text)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a checkpoint; ``applied`` is what the source had applied when it read it."""

    part: Part
    applied: int
    payload: bytes


class Stream:
    """The chunks of one call, checked for damage and order on the way."""

    def __init__(self, call: Any, source: str, group: int, base: int) -> None:
        self._call = call
        # Not read(), which sees no message any more once the call's status is there.
        self._messages = aiter(call)
        self._source = source
        self._group = group
        self._number = 0
        self._part = Part.HEADER
        self.base = base

    async def next(self) -> Chunk:
        """Return the next chunk. Raises what the source raises, DEADLINE_EXCEEDED, UNAVAILABLE, DATA_CORRUPTION."""
        try:
            async with asyncio.timeout(_SILENCE_S):
                message = await anext(self._messages, None)
        except TimeoutError as error:
            raise F1Error(Code.DEADLINE_EXCEEDED, f"nothing came for {_SILENCE_S:g} s") from error
        except grpc.aio.AioRpcError as error:
            raise error_from_exception(error) from error
        if not isinstance(message, pb.StateChunk):
            raise F1Error(Code.UNAVAILABLE, "the stream broke off before its end")
        if int(message.part) not in set(Part):
            raise self._damaged(f"a chunk of the state is of the unknown kind {message.part}")
        chunk = Chunk(Part(message.part), int(message.applied_index), message.payload)
        self._check(chunk, int(message.checksum))
        self._number += 1
        return chunk

    def _check(self, chunk: Chunk, found: int) -> None:
        part = chunk.part
        wanted = checkpoint.checksum(chunk.payload, self._group, self.base, part, chunk.applied, self._number)
        if found != wanted:
            raise self._damaged(f"chunk {self._number} of the state was changed on the way")
        if (part is Part.HEADER) != (self._number == 0) or part < self._part:
            raise self._damaged(f"chunk {self._number} of the state is {part.name} after {self._part.name}")
        self._part = part

    def _damaged(self, what: str) -> F1Error:
        details = {"server": self._source, "group": str(self._group)}
        return F1Error(Code.DATA_CORRUPTION, f"group {self._group} from {self._source}: {what}", details=details)

    def close(self) -> None:
        """Hear no more."""
        self._call.cancel()


class Installation:
    """One replica and one source, until the end or an error."""

    def __init__(self, transfers: Transfers, group: int, source: str) -> None:
        self._transfers = transfers
        self._group = group
        self._source = source

    async def run(self) -> None:
        """Fetch and write what is missing, and let the replica be loaded. Raises F1Error, Outgrown, EngineFailed."""
        if self._now.stage is Stage.CLEARING:
            await self._clear()
        resumed = self._now.base
        stream = Stream(self._transfers.call(self._source, self._group, self._now), self._source, self._group, resumed)
        try:
            await self._begin(stream, await stream.next(), resumed)
            while (chunk := await stream.next()).part is not Part.END:
                await self._take(chunk, stream.base)
        finally:
            stream.close()
        await self._finish(stream.base, chunk)

    @property
    def _now(self) -> Installing:
        return self._transfers.state_of(self._group)

    async def _clear(self) -> None:
        engine = self._transfers.engine
        while True:
            batch = WriteBatch()
            with engine.snapshot() as reader:
                if not checkpoint.drop_some(reader, self._group, batch):
                    return
            await engine.commit(batch)
            await asyncio.sleep(0)

    async def _begin(self, stream: Stream, chunk: Chunk, resumed: int) -> None:
        base = checkpoint.decode_base(chunk.payload, self._group)
        if resumed:
            if base.first_index > resumed:
                raise Outgrown(self._source, self._group, resumed, base.first_index)
            self._check_reaches(chunk, resumed)
            return
        with self._transfers.engine.snapshot() as reader:
            checkpoint.check_base(reader, self._group, base, self._now.had)
        batch = WriteBatch()
        checkpoint.put_base(batch, self._group, base)
        stream.base = base.index
        await self._transfers.save(self._group, Installing(Stage.CLEARING, self._source, self._now.had), batch)

    async def _take(self, chunk: Chunk, base: int) -> None:
        """Write one chunk and where it ends, in one batch."""
        self._check_reaches(chunk, base)
        try:
            items = checkpoint.decode_items(chunk.payload, self._group, chunk.part)
        except F1Error as error:
            details = {**error.details, "server": self._source}
            raise F1Error(error.code, f"from {self._source}: {error.message}", details=details) from error
        before = self._now
        size = before.size + len(chunk.payload)
        if chunk.part is Part.RECORDS:
            after = msgspec.structs.replace(before, source=self._source, size=size)
        else:
            if not items or items[0][0] <= before.after:
                raise F1Error(Code.DATA_CORRUPTION, f"group {self._group}: {self._source} sent rows out of order")
            seen = max(before.seen, chunk.applied)
            after = Installing(Stage.ROWS, self._source, before.had, base, items[-1][0], seen, size)
        batch = WriteBatch()
        checkpoint.put_items(batch, self._group, items)
        await self._transfers.save(self._group, after, batch)

    def _check_reaches(self, chunk: Chunk, base: int) -> None:
        if chunk.applied < base:
            text = f"{self._source} has applied {chunk.applied} only, {base} is needed; ask another"
            raise F1Error(Code.UNAVAILABLE, text)

    async def _finish(self, base: int, chunk: Chunk) -> None:
        self._check_reaches(chunk, base)
        batch = WriteBatch()
        with self._transfers.engine.snapshot() as reader:
            index = checkpoint.finish(reader, self._group, batch, self._now.seen)
        await self._transfers.engine.commit(batch)
        await self._transfers.installed(self._group, index)
