"""What an operator wants of a whole spanserver: that it is emptied, removed, or built anew.

Here is only what must be so beforehand and afterwards. Replicas are moved by the placement driver at the leader of the
meta group, which finds the orders as rows and goes on with them whoever dies: whoever gave the order may only watch.
"""

import asyncio
from collections.abc import Iterable

from f1common.errors import Code, F1Error
from f1common.pb import spanstore_pb2 as pb
from spanstore.client.client import SpanClient
from spanstore.client.groups import GroupAdmin, Members, Progress, read_directory
from spanstore.client.values import KeyRange, Write
from spanstore.paxos.configuration import server_of
from spanstore.placement.balance import GroupState, Health, Move, ServerState, Why
from spanstore.placement.directory import Directory, Standing, encode_standing, server_key, standing_key
from spanstore.placement.draining import why_not
from spanstore.placement.orders import decode_move, encode_move, order_key, order_range

_PAUSE_S = 0.5
_ELECTION_S = 20.0


class ServerAdmin:
    """Orders about spanservers; each can be given again, and then goes on where it was."""

    def __init__(self, client: SpanClient, *, timeout_s: float = 600.0, progress: Progress = lambda text: None) -> None:
        """``timeout_s`` bounds how long a command waits; ``progress`` hears what it waits for."""
        self._client = client
        self._groups = GroupAdmin(client, timeout_s=timeout_s, progress=progress)
        self._timeout_s = timeout_s
        self._progress = progress

    async def directory(self) -> Directory:
        """Return the servers and groups as they are now."""
        return await read_directory(self._client)

    async def replicas(self, server: str) -> list[Members]:
        """Return the groups that ``server`` has a replica of. Raises UNAVAILABLE while a group has no leader."""
        return [members for members in await self._members(server) if members.of(server) is not None]

    async def until_known(self, servers: set[str]) -> None:
        """Wait until ``servers`` have registered and answer where they say. Raises DEADLINE_EXCEEDED."""
        end = self._end()
        while True:
            states = await self._states(await self.directory())
            missing = servers - {state.name for state in states if state.health is Health.UP}
            if not missing:
                return
            names = ", ".join(sorted(missing))
            self._progress(f"waiting for {names} to register")
            if asyncio.get_running_loop().time() >= end:
                raise F1Error(Code.DEADLINE_EXCEEDED, f"{names} have not registered yet; see their logs")
            await asyncio.sleep(_PAUSE_S)

    # ------------------------------------------------------------------ draining

    async def drain(self, server: str, *, any_zone: bool = False) -> list[int]:
        """Have the replicas of ``server``, dead or alive, moved to others, and return their groups when all are gone.

        Raises NOT_FOUND, FAILED_PRECONDITION where there is no place for them (unless ``any_zone`` also where a group
        would lie in fewer zones) and then nothing is moved; DEADLINE_EXCEEDED, and then it goes on.
        """
        directory = await self._present(server)
        before = await self.replicas(server)
        if not directory.is_draining(server):
            await self._check_places(server, directory, any_zone)
            await self._mark(server, Standing.DRAINING)
        end = self._end()
        while left := await self.replicas(server):
            groups = ", ".join(str(members.group) for members in left)
            self._progress(f"{server}: its replicas of groups {groups} move to others")
            if asyncio.get_running_loop().time() >= end:
                raise F1Error(
                    Code.DEADLINE_EXCEEDED,
                    f"{server} still has replicas of groups {groups}; draining goes on, drain it again to wait for it",
                )
            await asyncio.sleep(_PAUSE_S)
        return [members.group for members in before]

    async def _check_places(self, server: str, directory: Directory, any_zone: bool) -> None:
        zones = {group: policy.zones for group, policy in directory.policies.items()}
        members = await self._members(server)
        groups = [GroupState(m.group, m.voters, m.learners, zones.get(m.group, ())) for m in members]
        states = await self._states(directory)
        reasons = why_not(server, states, groups, any_zone=any_zone)
        if reasons:
            cure = f"add a spanserver in zone {directory.servers[server].zone}"
            if not why_not(server, states, groups, any_zone=True):
                cure += ", or give --any-zone if zones do not matter"
            others = f" (and {len(reasons) - 1} groups more)" if len(reasons) > 1 else ""
            text = f"{server} cannot be drained: {reasons[0]}{others}; {cure}"
            raise F1Error(Code.FAILED_PRECONDITION, text)

    async def undrain(self, server: str) -> None:
        """Let ``server`` have replicas again. Raises NOT_FOUND."""
        await self._present(server)
        await self._mark(server, Standing.SERVING)

    # ------------------------------------------------------------------ removing

    async def retire(self, server: str) -> None:
        """Make sure that ``server`` has no replicas and gets none any more: then it can be stopped and removed.

        Raises NOT_FOUND, FAILED_PRECONDITION while it has replicas, UNAVAILABLE while a group has no leader.
        """
        drained = (await self._present(server)).is_draining(server)
        if not drained:
            # From here on nobody gives it a replica; so it still has none after it was looked at.
            await self._mark(server, Standing.DRAINING)
        try:
            await self._check_empty(server)
        except F1Error:
            if not drained:
                await self._mark(server, Standing.SERVING)
            raise

    async def remove(self, server: str) -> None:
        """Strike ``server`` off for ever: its row goes, its peers refuse it. Does nothing to one that was removed.

        Raises what :meth:`retire` raises.
        """
        if (await self.directory()).is_removed(server):
            return
        await self.retire(server)
        removed = Write(standing_key(server), encode_standing(Standing.REMOVED))
        await self._client.commit([removed, Write(server_key(server), None)])

    async def _check_empty(self, server: str) -> None:
        held = await self.replicas(server)
        if held:
            groups = ", ".join(str(members.group) for members in held)
            raise F1Error(Code.FAILED_PRECONDITION, f"{server} has replicas of groups {groups}: drain it first")

    # ------------------------------------------------------------------ rebuilding

    async def rebuild(self, server: str) -> list[int]:
        """Have every replica of ``server`` discarded and built anew from the others, and return their groups.

        Raises NOT_FOUND, FAILED_PRECONDITION for a server that does not answer or is being drained;
        DEADLINE_EXCEEDED, and then it goes on.
        """
        directory = await self._present(server)
        if directory.is_draining(server):
            raise F1Error(Code.FAILED_PRECONDITION, f"{server} is being drained: it gets no replicas")
        state = next(state for state in await self._states(directory) if state.name == server)
        if state.health is not Health.UP:
            raise F1Error(Code.FAILED_PRECONDITION, f"{server} does not answer: start it first")
        orders = await self._orders(server) or [_rebuilding(m, server) for m in await self.replicas(server)]
        if orders:
            await self._client.commit([Write(order_key(order), encode_move(order)) for order in orders])
        end = self._end()
        while left := await self._orders(server):
            groups = ", ".join(str(order.group) for order in left)
            self._progress(f"{server}: its replicas of groups {groups} are built anew")
            if asyncio.get_running_loop().time() >= end:
                raise F1Error(Code.DEADLINE_EXCEEDED, f"the replicas of groups {groups} at {server} are not built yet")
            await asyncio.sleep(_PAUSE_S)
        await self._check_rebuilt(server, orders)
        for order in orders:
            await self._groups.caught_up(order.group, server)
        return [order.group for order in orders]

    async def _orders(self, server: str) -> list[Move]:
        start, end = order_range()
        (rows,) = (await self._client.read(ranges=[KeyRange(start, end)])).ranges
        moves = [decode_move(row.value) for row in rows]
        return [move for move in moves if move.new == server]

    async def _check_rebuilt(self, server: str, orders: Iterable[Move]) -> None:
        now = {members.group: members for members in await self._members(server)}
        for order in orders:
            member = now[order.group].of(server) if order.group in now else None
            votes = member is not None and member in now[order.group].voters
            if member is None or member == order.old or votes != order.votes:
                text = f"the replica of group {order.group} at {server} could not be built anew"
                raise F1Error(Code.UNAVAILABLE, f"{text}; the log of the server that leads group 0 says why")

    # ------------------------------------------------------------------ inside

    async def _present(self, server: str) -> Directory:
        """Return the directory, which has ``server``. Raises NOT_FOUND."""
        directory = await self.directory()
        if server not in directory.servers:
            names = ", ".join(sorted(directory.servers))
            raise F1Error(Code.NOT_FOUND, f"the cluster has no spanserver {server!r}; it has {names}")
        return directory

    async def _mark(self, server: str, standing: Standing) -> None:
        await self._client.commit([Write(standing_key(server), encode_standing(standing))])

    async def _members(self, server: str) -> list[Members]:
        """Return the members of all groups as their leaders have them, once each has one: an election takes seconds.

        A group that was founded and has had no leader so far counts if ``server`` is to have a replica of it. Raises
        UNAVAILABLE if one stays without.
        """
        end = asyncio.get_running_loop().time() + min(self._timeout_s, _ELECTION_S)
        while True:
            found = {members.group: members for members in await self._groups.all_members() if members.leader}
            # A group that has had no leader yet is in the range map only, or in the row of its founding.
            directory = await self.directory()
            begun = (n for n, founding in directory.foundings.items() if server in map(server_of, founding.voters))
            known = {*directory.groups, *begun, *(await self._client.range_map()).groups()}
            silent = [str(number) for number in sorted(known) if number not in found]
            if not silent:
                return list(found.values())
            text = f"groups {', '.join(silent)} have no leader at present, so nobody knows their members"
            if asyncio.get_running_loop().time() >= end:
                raise F1Error(Code.UNAVAILABLE, f"{text}; retry", retryable=True)
            self._progress(text)
            await asyncio.sleep(_PAUSE_S)

    async def _states(self, directory: Directory) -> list[ServerState]:
        answers = await self._client.status()
        up = {answer.name for answer in answers.values() if isinstance(answer, pb.StatusReply)}
        return [
            ServerState(name, item.zone, Health.UP if name in up else Health.SILENT, directory.is_draining(name))
            for name, item in sorted(directory.servers.items())
        ]

    def _end(self) -> float:
        return asyncio.get_running_loop().time() + self._timeout_s


def _rebuilding(members: Members, server: str) -> Move:
    member = members.of(server) or server
    return Move(members.group, member, server, member in members.voters, Why.ORDER)
