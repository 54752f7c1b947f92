"""What an operator wants of a group, made of safe steps: each can be repeated, so anyone can go on after another.

Groups are replicated 3 or 5 ways (F1 section 2.1); a voter that is dead for good is replaced while the others serve: a
new replica comes as a learner, catches up, votes, and only then the dead one goes.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from f1common.errors import Code, F1Error
from f1common.pb import spanstore_pb2 as pb
from spanstore.client.client import SpanClient
from spanstore.client.values import ExpectVersion, KeyRange, Write
from spanstore.paxos.configuration import home_of, server_of
from spanstore.placement.directory import Directory, decode_directory, row_ranges
from spanstore.placement.orders import (
    OPERATOR,
    Joining,
    decode_joining,
    encode_joining,
    joining_key,
    joining_range,
)

_PAUSE_S = 0.2
_MAJORITY_S = 10.0
_READ_S = 5.0

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Members:
    """The members of a group, by their own log: ``leader`` is a server, empty while there is none."""

    group: int
    version: int
    voters: tuple[str, ...]
    learners: tuple[str, ...]
    leader: str
    last_index: int
    matches: dict[str, int]

    def of(self, server: str) -> str | None:
        """Return the member at ``server``, or of that name."""
        return next((m for m in self.voters + self.learners if server in (m, server_of(m))), None)


class GroupAdmin:
    """Changes the members of groups by commands that wait for each step."""

    def __init__(
        self,
        client: SpanClient,
        *,
        timeout_s: float = 300.0,
        progress: Progress = lambda text: None,
        owner: str = OPERATOR,
    ) -> None:
        """``timeout_s`` bounds each command; ``progress`` hears about every step; ``owner`` is for whom it is."""
        self._client = client
        self._timeout_s = timeout_s
        self._progress = progress
        self._owner = owner

    async def members(self, group: int) -> Members:
        """Return the members of ``group`` as its leader has them, once it has one. Raises NOT_FOUND, UNAVAILABLE."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._timeout_s
        while True:
            found = [m for m in await self.all_members() if m.group == group]
            if not found:
                raise F1Error(Code.NOT_FOUND, f"no server has a replica of group {group}")
            if found[0].leader:
                return found[0]
            if loop.time() >= end:
                raise F1Error(Code.UNAVAILABLE, f"group {group} has no leader; retry", retryable=True)
            await asyncio.sleep(_PAUSE_S)

    async def all_members(self) -> list[Members]:
        """Return the members of all groups, each by the replica that knows best."""
        answers = await self._client.status()
        best: dict[int, tuple[tuple[bool, int], Members]] = {}
        for answer in answers.values():
            if isinstance(answer, F1Error):
                continue
            for view in answer.groups:
                leads = view.role == "leader" and view.lease_valid
                rank = (leads, view.members_version)
                if view.group not in best or rank > best[view.group][0]:
                    best[view.group] = (rank, _members(view, answer.name if leads else ""))
        return [best[group][1] for group in sorted(best)]

    async def add_learner(self, group: int, server: str) -> Members:
        """Give ``server`` a read-only replica.

        Raises NOT_FOUND, FAILED_PRECONDITION for a server that is to have none, UNAVAILABLE for one that is silent.
        """
        member = (await self.members(group)).of(server)
        if member is not None and home_of(member) not in ("", await self._home(server)):
            # It lived in a data directory that the server has no more.
            await self._without(group, member)
            member = None
        if member is None:
            await self._check_may_join(server)
            await self._step(group, pb.ChangeMembers.ADD, server, await self._home(server), done=Code.ALREADY_EXISTS)
        return await self.members(group)

    async def add_reader(self, group: int, server: str) -> Members:
        """Give ``server`` a read-only replica. Raises also ALREADY_EXISTS if it votes."""
        members = await self.members(group)
        if members.of(server) in members.voters:
            text = f"{server} votes in group {group}; `f1 group demote {group} {server}` makes it read-only"
            raise F1Error(Code.ALREADY_EXISTS, text)
        return await self.add_learner(group, server)

    async def _check_may_join(self, server: str) -> None:
        directory = await read_directory(self._client)
        if server not in directory.servers:
            names = ", ".join(sorted(directory.servers))
            raise F1Error(Code.NOT_FOUND, f"the cluster has no spanserver {server!r}; it has {names}")
        if directory.is_draining(server):
            raise F1Error(Code.FAILED_PRECONDITION, f"{server} is being drained: it gets no replicas")
        for answer in (await self._client.status()).values():
            if not isinstance(answer, F1Error) and answer.name == server and answer.all_damaged:
                text = f"the data file of {server} is damaged: stop it, delete its data directory and start it again"
                raise F1Error(Code.FAILED_PRECONDITION, f"{text}; then its replicas are built anew")

    async def add_voter(self, group: int, server: str, *, instead_of: str = "") -> Members:
        """Make ``server`` a voter, first a learner until it has caught up.

        It is noted that it is to vote, and ``instead_of`` whom, until it does: the placement driver goes on if this
        command does not. Raises also FAILED_PRECONDITION while somebody else sees to that.
        """
        members = await self.members(group)
        if members.of(server) not in members.voters:
            await self._note_joining(group, server, instead_of)
            members = await self.add_learner(group, server)
        if members.of(server) not in members.voters:
            await self._step(group, pb.ChangeMembers.PROMOTE, server, done=Code.ALREADY_EXISTS)
        if not instead_of:
            await self.forget_joining(group, server)
        return await self.members(group)

    async def joining(self) -> list[Joining]:
        """Return the learners that are to become voters, by what whoever added them has noted."""
        (rows,) = (await self._client.read(ranges=[KeyRange(*joining_range())], timeout_s=_READ_S)).ranges
        return [decode_joining(row.value) for row in rows]

    async def _note_joining(self, group: int, server: str, instead_of: str) -> None:
        await self._check_may_join(server)
        end = asyncio.get_running_loop().time() + self._timeout_s
        # Somebody else may note something meanwhile, perhaps that it is at work on the same.
        while not await self._noted_joining(group, server, instead_of):
            if asyncio.get_running_loop().time() >= end:
                text = f"others keep changing whether {server} joins group {group}; run the command again"
                raise F1Error(Code.ABORTED, text)

    async def _noted_joining(self, group: int, server: str, instead_of: str) -> bool:
        key = joining_key(group, server)
        version = (await self._client.read([key])).versions[0]
        now = self._client.strong_timestamp()
        if version is not None and version.value is not None:
            known = decode_joining(version.value)
            if not known.is_free(self._owner, now):
                text = f"the {known.owner} is making {server} a voter of group {group}"
                raise F1Error(Code.FAILED_PRECONDITION, f"{text}; f1 group list shows when it is one")
        noted = Joining(group, server, instead_of, self._owner, now + int(self._timeout_s * 1_000_000))
        expected = ExpectVersion(key, 0 if version is None or version.value is None else version.ts)
        try:
            await self._client.commit([Write(key, encode_joining(noted))], [expected])
        except F1Error as error:
            if error.code is not Code.ABORTED or error.ambiguous:
                raise
            return False
        return True

    async def forget_joining(self, group: int, server: str) -> None:
        """The replica at ``server`` votes, or is not to vote any more."""
        await self._client.commit([Write(joining_key(group, server), None)])

    async def demote(self, group: int, server: str) -> Members:
        """Make the voter at ``server`` a read-only replica."""
        members = await self.members(group)
        if members.of(server) is None:
            raise F1Error(Code.NOT_FOUND, f"{server} has no replica of group {group}")
        if members.of(server) in members.voters:
            await self._step(group, pb.ChangeMembers.DEMOTE, server)
        return await self.members(group)

    async def remove(self, group: int, server: str) -> Members:
        """Take the replica of ``server`` out of the group."""
        member = (await self.members(group)).of(server)
        if member is None:
            raise F1Error(Code.NOT_FOUND, f"{server} has no replica of group {group}")
        await self._step(group, pb.ChangeMembers.REMOVE, member)
        await self.forget_joining(group, server_of(member))
        return await self.members(group)

    async def replace(self, group: int, old: str, new: str) -> Members:
        """Put a voter at ``new`` in the place of the one at ``old``, dead or alive."""
        if old == new:
            raise F1Error(Code.INVALID_ARGUMENT, "a replica is replaced by one at another server; see rebuild")
        members = await self.members(group)
        if members.of(old) is None and members.of(new) in members.voters:
            return members  # somebody has done it
        self._check_replaces(members, old, new)
        await self.add_voter(group, new, instead_of=members.of(old) or "")
        members = await self._without(group, old)
        await self.forget_joining(group, new)
        return members

    def _check_replaces(self, members: Members, old: str, new: str) -> None:
        """Refuse to replace what does not vote, or by what votes already, unless an earlier try was broken off.

        That leaves an even number of voters.
        """
        if members.of(old) not in members.voters:
            raise F1Error(Code.NOT_FOUND, f"{old} does not vote in group {members.group}; see f1 group list")
        if members.of(new) in members.voters and len(members.voters) % 2:
            text = f"{new} votes in group {members.group} already: without {old} it would have one voter less"
            raise F1Error(Code.ALREADY_EXISTS, f"{text}; name another server, or use f1 group remove")

    async def rebuild(self, group: int, server: str, *, old: str | None = None, votes: bool | None = None) -> Members:
        """Discard the replica of ``server``, which is damaged or lost its disk, and build it anew from the others.

        ``old`` and ``votes`` say which replica that was, for whoever goes on after another that may have removed it.
        Without ``votes`` it votes if it did, and if the group has an even number of voters: a rebuild was broken off.
        """
        members = await self.members(group)
        member = members.of(old or server)
        if votes is None:
            votes = member in members.voters or len(members.voters) % 2 == 0
        await self._check_may_join(server)
        if votes:
            await self._note_joining(group, server, "")
        if member is not None:
            await self._without(group, member)
        return await (self.add_voter(group, server) if votes else self.add_learner(group, server))

    async def _without(self, group: int, name: str) -> Members:
        """Take a member out, or find that somebody else has."""
        member = (await self.members(group)).of(name)
        if member is not None:
            await self._step(group, pb.ChangeMembers.REMOVE, member, done=Code.NOT_FOUND)
        return await self.members(group)

    async def caught_up(self, group: int, server: str) -> None:
        """Wait until the replica at ``server`` holds what the leader holds now. Raises NOT_FOUND, DEADLINE_EXCEEDED."""
        end = asyncio.get_running_loop().time() + self._timeout_s
        goal = (await self.members(group)).last_index
        while True:
            found = [m for m in await self.all_members() if m.group == group and m.leader]
            member = found[0].of(server) if found else None
            if found and member is None:
                raise F1Error(Code.NOT_FOUND, f"{server} has no replica of group {group}")
            if member is not None and (found[0].leader == server or found[0].matches.get(member, 0) >= goal):
                return
            if asyncio.get_running_loop().time() >= end:
                raise F1Error(Code.DEADLINE_EXCEEDED, f"group {group}: {server} has not caught up yet")
            self._progress(f"group {group}: {server} catches up")
            await asyncio.sleep(_PAUSE_S)

    async def transfer(self, group: int, server: str) -> Members:
        """Let the voter at ``server`` lead. Raises NOT_FOUND for a group that is not there."""
        await self.members(group)
        await self._step(group, pb.ChangeMembers.TRANSFER, server)
        await self._until_led_by(group, server)
        return await self.members(group)

    async def _home(self, server: str) -> str:
        """Return the name of the server's data directory."""
        for answer in (await self._client.status()).values():
            if not isinstance(answer, F1Error) and answer.name == server:
                return answer.home
        raise F1Error(
            Code.UNAVAILABLE, f"no spanserver {server} answers: start it first, or name another", retryable=True
        )

    async def _until_led_by(self, group: int, server: str) -> None:
        end = asyncio.get_running_loop().time() + self._timeout_s
        while (await self._leader(group)) != server:
            if asyncio.get_running_loop().time() >= end:
                raise F1Error(Code.DEADLINE_EXCEEDED, f"{server} does not lead group {group} yet")
            await asyncio.sleep(_PAUSE_S)

    async def _leader(self, group: int) -> str:
        return next((m.leader for m in await self.all_members() if m.group == group), "")

    async def _step(
        self, group: int, step: pb.ChangeMembers.Step, name: str, home: str = "", *, done: Code | None = None
    ) -> None:
        """Take a step, again and again while waiting helps. A refusal shows whether an unanswered one was taken.

        ``done`` is the refusal that says that somebody else has taken the step, as the placement driver may.
        """
        self._progress(
            f"group {group}: {pb.ChangeMembers.Step.Name(pb.ChangeMembers.Step.ValueType(step)).lower()} {name}"
        )
        loop = asyncio.get_running_loop()
        began = loop.time()
        end = began + self._timeout_s
        unsure = False
        while True:
            try:
                await self._client.change_members(group, step, name, home=home)
                return
            except F1Error as error:
                if error.code is done or (unsure and error.code in (Code.ALREADY_EXISTS, Code.NOT_FOUND)):
                    return
                unsure = unsure or error.ambiguous
                # A majority that is missing only because a server restarts is there again soon.
                patience = min(end, began + _MAJORITY_S) if "majority" in error.details else end
                if not (error.retryable or error.ambiguous) or loop.time() >= patience:
                    raise
                self._progress(f"group {group}: {error.message}")
            await asyncio.sleep(_PAUSE_S)


async def read_directory(client: SpanClient, *, timeout_s: float = 10.0) -> Directory:
    """Return the directory as it is now, by a strong read. Raises what reads raise."""
    ranges = [KeyRange(start, end) for start, end in row_ranges()]
    found = await client.read(ranges=ranges, timeout_s=timeout_s)
    return decode_directory((row.key, row.value) for rows in found.ranges for row in rows)


def _members(view: pb.GroupStatus, leader: str) -> Members:
    return Members(
        group=view.group,
        version=view.members_version,
        voters=tuple(view.voters),
        learners=tuple(view.learners),
        leader=leader,
        last_index=view.last_index,
        matches=dict(view.matches),
    )
